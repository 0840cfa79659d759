"""The page: what was found, as one HTML document that loads nothing.

Jinja2 escapes every text. A Content-Security-Policy is the second wall: only the two scripts written here run, and the
page may load nothing from anywhere. Styles may be inline because Plotly sets them.
"""

from __future__ import annotations

import math
import platform
import shlex
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from mnm.analysis.certificates import PROMISES, Kept
from mnm.analysis.comparison import (
    CompareError,
    Comparison,
    aggregates,
    by_setting,
    compare_runs,
    different_versions,
    kept_apart,
    label_agents,
)
from mnm.figures.base import ANSWERS
from mnm.plotting.style import agent_name
from mnm.report.contents import Contents, FoundFigure
from mnm.report.plots import Plot, certificate_plot, diagnostic_plots, figure_plots, not_measured, return_plots
from mnm.training.runs import Run, revision

PACKAGE = "mnm.report"


@cache
def template() -> Template:
    """The page's, which is compiled once."""
    environment = Environment(
        loader=PackageLoader(PACKAGE, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = shown
    environment.filters["agent"] = agent_name
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment.get_template("page.html")


def rendered(contents: Contents, baseline: str | None, flags: Mapping[str, Sequence[object]]) -> str:
    """The document; `flags` are those of the command that asked for it, for its last section."""
    compared = comparisons(contents.runs, baseline)
    figures = [drawn(figure) for figure in contents.figures]
    returns = return_plots(contents.runs, contents.labels)
    first = headline(figures, returns)
    scripts = [get_plotlyjs(), files(PACKAGE).joinpath("page.js").read_text(encoding="utf-8")]
    runs = [
        {"number": number} | described(run, contents.labels[run.folder], contents.certificates.get(run.folder, ()))
        for number, run in enumerate(contents.runs)
    ]
    return template().render(
        style=Markup(files(PACKAGE).joinpath("page.css").read_text(encoding="utf-8")),
        scripts=[Markup(script) for script in scripts],
        hashes=[b64encode(sha256(script.encode("utf-8")).digest()).decode("ascii") for script in scripts],
        contents=contents,
        tiles=tiles(contents, compared),
        headline=first,
        figures=[figure for figure in figures if figure is not first],
        returns=[plot for plot in returns if plot is not first],
        videos=[
            (f"{run.setting}, {agent_name(contents.labels[run.folder])}, seed {run.seed}", video)
            for run in contents.runs
            for video in contents.videos.get(run.folder, ())
        ],
        baseline=baseline,
        comparisons=compared,
        aggregates=aggregates([comparison for _, comparison, _ in compared if comparison is not None]),
        warnings=[*kept_apart(contents.runs), *different_versions(contents.runs)],
        runs=runs,
        made=how_made(contents.runs, flags),
    )


@dataclass(frozen=True)
class DrawnFigure:
    """A figure and its curves."""

    found: FoundFigure
    plots: Sequence[Plot]
    problems: Sequence[str]


def drawn(figure: FoundFigure) -> DrawnFigure:
    """A figure with its curves, or with the reason why they cannot be drawn."""
    try:
        return DrawnFigure(figure, figure_plots(figure.name, figure.columns), figure.problems)
    except ValueError as error:
        return DrawnFigure(figure, [], [*figure.problems, f"{figure.name}.csv: {error}"])


def headline(figures: Sequence[DrawnFigure], returns: Sequence[Plot]) -> DrawnFigure | Plot | None:
    """What the page opens with: agents against one another, else the ladder of bounds, else whatever is there."""
    several = [plot for plot in returns if len(plot.names) > 1]
    ladder = [figure for figure in figures if figure.found.name == "comparing_objectives"]
    seen = [figure for figure in figures if figure.plots or figure.found.picture]
    candidates: list[DrawnFigure | Plot] = [*several, *ladder, *returns, *seen]
    return candidates[0] if candidates else None


@dataclass(frozen=True)
class Tile:
    """A number that sums up a part of the page, and where that part is."""

    number: str
    words: str
    target: str


def tiles(contents: Contents, compared: Sequence[tuple[str, Comparison | None, str]]) -> list[Tile]:
    """What has been found, at a glance."""
    verdicts = [verdict for figure in contents.figures for verdict in figure.verdicts]
    found = []
    if verdicts:
        counts = {answer: sum(verdict.answer == answer for verdict in verdicts) for answer in ANSWERS.values()}
        others = [f"{answer}: {count}" for answer, count in counts.items() if answer != "yes" and count]
        words = "; ".join(["claims hold", *others])
        found.append(Tile(f"{counts['yes']} of {len(verdicts)}", words, "claims"))
    if contents.figures:
        found.append(Tile(str(len(contents.figures)), plural(len(contents.figures), "figure"), "figures"))
    if contents.runs:
        tasks = len({run.env or run.setting for run in contents.runs})
        words = f"training {plural(len(contents.runs), 'run')} on {tasks} {plural(tasks, 'task')}"
        if from_data := sum(run.data is not None for run in contents.runs):
            words += f", {from_data} from data alone"
        found.append(Tile(str(len(contents.runs)), words, "runs"))
    scores = [(setting, row) for setting, one, _ in compared if one for row in one.scores if math.isfinite(row.mean)]
    if scores:
        setting, best = max((pair for pair in scores if pair[0] == scores[0][0]), key=lambda pair: pair[1].mean)
        words = f"highest mean return on {setting}: {agent_name(best.agent)}, {best.seeds} {plural(best.seeds, 'seed')}"
        found.append(Tile(shown(best.mean), words, "comparisons"))
    return found


def plural(count: int, noun: str) -> str:
    """The noun, with an s unless there is one."""
    return noun if count == 1 else f"{noun}s"


def comparisons(runs: Sequence[Run], baseline: str | None) -> list[tuple[str, Comparison | None, str]]:
    """For every task and every data set, its agents compared, or the reason why they cannot be."""
    found: list[tuple[str, Comparison | None, str]] = []
    for setting, own in by_setting(runs).items():
        agents = {name for label, group in label_agents(own).items() for name in (label, group[0].algorithm)}
        try:
            (comparison,) = compare_runs(own, "return", None, baseline if baseline in agents else None)
            found.append((setting, comparison, ""))
        except CompareError as error:
            found.append((setting, None, str(error)))
    return found


def described(run: Run, label: str, certificates: Sequence[Kept]) -> dict[str, Any]:
    """A run as the page shows it: where it stands, its diagnostics and certificates, how to make it again."""
    settings = run.config.get("settings")
    return {
        "name": run.name,
        "label": agent_name(label),
        "setting": run.setting,
        "data": run.data,
        "clock": run.clock,
        "seed": run.seed,
        "steps": " of ".join([f"{_last(run, 'step'):,.0f}" if run.metrics.get("step") else "0", *_asked(run)]),
        "return": shown(_last(run, "return"), " ± ", _last(run, "return_std")),
        "bound": shown(_last(run, "bound"), " / ", _last(run, "log_return")),
        "q": shown(_last(run, "q_at_start"), " / ", _last(run, "discounted_return")),
        "error": shown(_last(run, "model_error_1"), " / ", _last(run, "constant_error_1")),
        "calibration": shown(_last(run, "calibration_error")),
        "guarantee": guarantee(certificates[-1]) if certificates else shown(math.nan),
        "certificates": [{"guarantee": guarantee(one), "promised": promised(one), **one} for one in certificates],
        "certificate_plot": certificate_plot(certificates[-1]) if certificates else None,
        "plots": diagnostic_plots(run),
        "not_measured": not_measured(run),
        "command": train_command(run),
        "settings": settings if isinstance(settings, dict) else {},
    }


def guarantee(certificate: Kept) -> str:
    """What a certificate guarantees, in a cell."""
    if not certificate["certified"]:
        return "not certified"
    return f"≥ {shown(certificate['certificate'])} ({100 * certificate['confidence']:g} %)"


def promised(certificate: Kept) -> str:
    """What the agent's own model and Q say of the same episodes."""
    values = certificate["promises"]
    return "; ".join(
        f"{words}: {shown(values[name])}" for name, words in PROMISES.items() if values.get(name) is not None
    )


def _asked(run: Run) -> list[str]:
    """The steps that were asked for, if the run has not come there."""
    return [] if run.finished else [f"{int(run.config['steps']):,}"]


def _last(run: Run, column: str) -> float:
    return (run.metrics.get(column) or [math.nan])[-1]


def shown(value: float, between: str = "", second: float = math.nan) -> str:
    """A number, with another beside it if there is one; a dash if there is none."""
    if not math.isfinite(value):
        return "–"
    return f"{value:.4g}" + (f"{between}{second:.4g}" if math.isfinite(second) else "")


def train_command(run: Run) -> str:
    """The command that makes the run, but for settings that are not its scale's."""
    options = {"env": run.env, run.clock: run.config["steps"], "scale": run.config["scale"], "seed": run.seed}
    if run.data is not None:
        options = {"dataset": run.data["dataset"]} | options
    flags = [f"--{name}={value}" for name, value in options.items() if value != ""]
    evaluates = ["--evaluate"] if run.data is not None and run.data["evaluate"] else []
    return shlex.join(["mnm", "train", run.algorithm, *flags, *evaluates])


def how_made(runs: Sequence[Run], flags: Mapping[str, Sequence[object]]) -> dict[str, str]:
    """Command, versions and scales."""
    own = revision()
    words = [str(word) for flag, values in flags.items() if any(values) for word in (flag, *values)]
    made = {
        "Written": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "Command": shlex.join(["mnm", "report", *words]),
        "mnm": version("mnm-rl") + (f" (revision {own})" if own else ""),
        "Python": f"{platform.python_version()} (of this report)",
    }
    if runs:
        found = [run.config.get("versions", {}) for run in runs]
        versions = [(str(name), str(one)) for table in found if isinstance(table, dict) for name, one in table.items()]
        names = dict.fromkeys(name for name, _ in versions)
        made["Versions of the runs"] = "; ".join(
            f"{name} {', '.join(sorted({one for other, one in versions if other == name}))}" for name in names
        )
        made["Revisions of the runs"] = counted(str(run.config.get("revision") or "unknown") for run in runs)
        made["Scales of the runs"] = counted(str(run.config["scale"]) for run in runs)
        lengths = (f"{int(run.config['steps']):,}{'' if run.data is None else ' updates from data'}" for run in runs)
        made["Steps of the runs"] = counted(lengths)
    return made


def counted(texts: Iterable[str]) -> str:
    """Each text with how often it occurs."""
    listed = sorted(texts)
    return "; ".join(f"{text} ({listed.count(text)} runs)" for text in dict.fromkeys(listed))
