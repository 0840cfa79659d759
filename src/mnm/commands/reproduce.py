"""`mnm reproduce`: figures with their data and verdicts; the deep ones after the runs that they need."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from mnm.messages import UserError, console, fail, nearest

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from mnm.figures.base import Verdict
    from mnm.figures.deep import DeepFigure
    from mnm.sweeps.request import Sweep
    from mnm.sweeps.trials import Trial

GROUPS = ("exact", "deep")
HEAD = ["figure", "claim", "paper", "measured", "holds"]
COLOURS = {"yes": "green", "no": "red", "cannot tell": "yellow"}


@dataclass(frozen=True)
class Reproduce:
    """Reproduce the paper's figures: data (CSV), pictures (PNG, SVG) and verdicts on the paper's claims.

    The exact figures take half a minute. The deep ones train agents first, at a scale: quick is a first look, cpu takes
    two cores hours, paper is for a GPU. What is trained is kept, shared by the figures, and gone on with after a stop.
    Examples: mnm reproduce; mnm reproduce gym_benchmark --scale cpu --envs HalfCheetah-v4; mnm reproduce deep --dry-run
    """

    figures: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which figures, or exact, or deep; the exact ones if none is named. See --list."""
    list: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Name the figures and stop."""
    scale: Literal["quick", "cpu", "paper"] = "quick"
    """How much the deep figures train."""
    envs: tuple[str, ...] = ()
    """Only these tasks of the deep figures."""
    agents: tuple[str, ...] = ()
    """Only these agents of the deep figures."""
    seeds: tuple[int, ...] = ()
    """These seeds instead of the scale's own."""
    jobs: int | None = None
    """How many runs at once; by default one per core."""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print what the deep figures would train, with the updates per real step, and stop."""
    out: Path = Path("results")
    """Folder for NAME.csv, .png, .svg and verdicts.csv; a deep NAME ends in its scale, and its runs are in runs/."""


def reproduce(command: Reproduce) -> int:
    """The exit code: 0, 1 a run failed, 2 bad input, 128 + the signal that stopped it."""
    from mnm.figures import DEEP, EXACT, FIGURES, RENAMED

    if command.list:
        for name, title in FIGURES.items():
            print(f"{name:22} {title}")
        return 0
    known = [*FIGURES, *GROUPS]
    for old in RENAMED.keys() & set(command.figures):
        print(f"mnm: the figure {old} is now {RENAMED[old]}; the old name goes with version 0.3", file=sys.stderr)
    command = replace(command, figures=tuple(RENAMED.get(name, name) for name in command.figures))
    for name in command.figures:
        if name not in known:
            return fail(f"there is no figure {name!r}{nearest(name, known)}; mnm reproduce --list names them")
    groups = {"exact": tuple(EXACT), "deep": tuple(DEEP)}
    names = dict.fromkeys(part for name in command.figures or ("exact",) for part in groups.get(name, (name,)))
    exact, deep = ([name for name in names if name in group] for group in (EXACT, DEEP))
    if not deep and (command.envs or command.agents or command.seeds or command.dry_run):
        return fail("--envs, --agents, --seeds and --dry-run are for deep figures, and none is named: see --list")
    try:
        if not command.dry_run:
            command.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return fail(f"--out {command.out}: {error.strerror}")
    if deep:
        return reproduce_deep(command, exact, deep)
    return write_all(command, exact, {})


def reproduce_deep(command: Reproduce, exact: Sequence[str], deep: Sequence[str]) -> int:
    """Plan everything, train what is missing, then write all figures."""
    from mnm.figures.deep import Choice
    from mnm.sweeps.plan import plan
    from mnm.sweeps.pools import LocalPool, cores
    from mnm.sweeps.supervise import MNM, train_all
    from mnm.sweeps.trials import TrialStatus

    choice = Choice(command.envs, command.agents, command.seeds)
    try:
        sweeps = {name: load_deep(name).sweeps(command.scale, choice, runs_folder(command)) for name in deep}
        check_choice(command, sweeps)
        trials = {name: [trial for sweep in some for trial in plan(sweep)] for name, some in sweeps.items() if some}
        console().print(table_of_runs([sweep for some in sweeps.values() for sweep in some], command.scale))
        if command.dry_run:
            return 0
        runs_folder(command).mkdir(parents=True, exist_ok=True)
        once = {trial.folder: trial for some in trials.values() for trial in some}
        records = [TrialStatus(trial) for trial in once.values()]
    except UserError as error:
        return fail(str(error))
    except OSError as error:
        return fail(f"--out {command.out}: {error.strerror}")
    code = train_all(records, LocalPool(MNM, min(command.jobs or len(cores()), len(cores()) + len(records))))
    return code if code > 1 else max(code, write_all(command, exact, trials))


def runs_folder(command: Reproduce) -> Path:
    """Where the runs of a scale are, shared by all figures."""
    return command.out / "runs" / command.scale


def load_deep(name: str) -> DeepFigure:
    """A deep figure."""
    from mnm.figures import load
    from mnm.figures.deep import DeepFigure

    figure = load(name)
    assert isinstance(figure, DeepFigure)
    return figure


def check_choice(command: Reproduce, sweeps: Mapping[str, Sequence[Sweep]]) -> None:
    """Refuse a choice that leaves nothing; tell which figures it leaves out."""
    from mnm.training.spec import RunError

    if command.jobs is not None and command.jobs < 1:
        raise RunError(f"--jobs is {command.jobs}, but must be at least 1")
    without = [name for name, some in sweeps.items() if not some]
    if len(without) == len(sweeps):
        grids = [grid for name in sweeps for grid in load_deep(name).grids]
        envs, agents = (sorted({one for grid in grids for one in getattr(grid, kind)}) for kind in ("envs", "agents"))
        raise RunError(
            f"--envs and --agents leave no run of {', '.join(without)}: tasks are {', '.join(envs)}; agents"
            f" {', '.join(agents)}"
        )
    for name in without:
        print(f"mnm: {name} has none of these tasks and agents: left out", file=sys.stderr)


def table_of_runs(sweeps: Sequence[Sweep], scale: str) -> Table:
    """What is trained: each task and agent once, with its updates per real step and its updates in all."""
    from rich.table import Table

    from mnm.sweeps.plan import quoted, variants

    table = Table(title=f"Runs at scale {scale}")
    for heading in ("task", "agent", "settings"):
        table.add_column(heading)
    for heading in ("seeds", "real steps", "updates a step", "updates of a run"):
        table.add_column(heading, justify="right")
    rows: dict[tuple[str, str, str], list[str]] = {}
    for sweep in sweeps:
        for variant in (variant for env in sweep.envs for variant in variants(sweep, env)):
            config, steps = variant.command.config, variant.command.steps
            warm_up = variant.command.algorithm.warmup_updates(config)
            updates = warm_up + max(0, steps - config.learning_starts) * config.updates_per_step
            settings = quoted(variant.flags) if variant.flags else ""
            numbers = [len(sweep.seeds), steps, config.updates_per_step, updates]
            rows[variant.command.env, variant.agent, settings] = [f"{number:,}" for number in numbers]
    for labels, texts in rows.items():
        table.add_row(*labels, *texts)
    return table


def write_all(command: Reproduce, exact: Sequence[str], deep: Mapping[str, Sequence[Trial]]) -> int:
    """Every figure's files, then the table of claims."""
    from mnm.figures import FIGURES

    verdicts: dict[str, list[Verdict]] = {}
    number, total, began = 0, len(exact) + len(deep), time.monotonic()
    terminal = console()
    for name in (*exact, *deep):
        number, start = number + 1, time.monotonic()
        with terminal.status(f"{number}/{total} {name}: {FIGURES[name]} ..."):
            try:
                label, claims, pictures = write_one(command, name, deep.get(name))
            except UserError as error:
                return fail(str(error))
            except OSError as error:
                return fail(f"--out {command.out}: cannot write {name}: {error.strerror}")
        verdicts[label] = claims
        took = time.monotonic() - start
        print(f"{number}/{total} {name} ({took:.1f} s): {', '.join(map(str, pictures))}", flush=True)
    print_verdicts(terminal, verdicts)
    try:
        write_verdicts(command.out / "verdicts.csv", verdicts)
    except OSError as error:
        return fail(f"--out {command.out}: cannot write verdicts.csv: {error.strerror}")
    print(f"{total} figures in {time.monotonic() - began:.0f} s, in {command.out}/")
    return 0


def write_one(
    command: Reproduce, name: str, trials: Sequence[Trial] | None
) -> tuple[str, list[Verdict], Sequence[Path]]:
    """One figure's files: its label in the table of claims, its verdicts, its pictures."""
    from mnm.figures import load
    from mnm.figures.deep import DeepFigure
    from mnm.training.runs import CONFIG, read_run
    from mnm.training.spec import RunError

    figure = load(name)
    if not isinstance(figure, DeepFigure):
        return name, figure.reproduce(command.out), [command.out / f"{name}.png"]
    runs = [read_run(trial.folder) for trial in trials or () if (trial.folder / CONFIG).exists()]
    measured = [run for run in runs if run.metrics.get("step")]
    if not measured:
        raise RunError(f"{name}: no run has measured anything: see the logs in {runs_folder(command)}")
    verdicts, pictures = figure.write(measured, command.out, command.scale)
    return f"{name}-{command.scale}", verdicts, pictures


def print_verdicts(console: Console, verdicts: Mapping[str, Sequence[Verdict]]) -> None:
    """The table of claims."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="The paper's claims, measured")
    for heading in ("claim", "paper", "measured", "holds"):
        table.add_column(heading)
    for name, rows in verdicts.items():
        table.add_section()
        table.add_row(f"[bold]{name}")
        for row in rows:
            texts = (escape(text) for text in (row.claim, row.paper, row.measured))
            table.add_row(*texts, f"[{COLOURS[row.answer]}]{row.answer}")
    console.print(table)


def write_verdicts(path: Path, verdicts: Mapping[str, Sequence[Verdict]]) -> None:
    """The same as CSV; what the file holds of other figures is kept."""
    rows = []
    if path.exists():
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            before = [row for row in csv.reader(file) if row]
        rows = [row for row in before[1:] if before[0] == HEAD and row[0] not in verdicts]
    rows += [
        [name, row.claim, row.paper, row.measured, row.answer]
        for name, figure_verdicts in verdicts.items()
        for row in figure_verdicts
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *rows])
