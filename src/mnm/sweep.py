"""`mnm sweep`: every task x agent x seed x override, several at once, each run a process of its own."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mnm.messages import fail

if TYPE_CHECKING:
    from mnm.sweeps.pools import Pool
    from mnm.sweeps.trials import Record

MNM = ("-P", "-m", "mnm")
"""What Python is told so that it is the `mnm` command; -P: no file of the present folder hides a library."""
POLL = 0.2
"""Seconds between two looks at the trials."""


@dataclass(frozen=True)
class Sweep:
    """Train every agent on every task with every seed and every override, several runs at once.

    Each run is a process with one thread on a core of its own. The same sweep started again skips what is finished and
    goes on with what is not. A run that fails stops no other.
    Example: mnm sweep --envs Pendulum-v1 --agents sac mnm_approx --seeds 0 1 2 --steps 3000
    """

    envs: tuple[str, ...]
    """The tasks' Gymnasium ids."""
    agents: tuple[str, ...]
    """The agents' names; mnm train --help lists them."""
    seeds: tuple[int, ...] = (0,)
    """The seeds, one run each."""
    steps: int = 10_000
    """Real steps of a run."""
    scale: str = "cpu"
    """Which preset the agents' settings start from: paper, cpu, quick."""
    evaluate_every: int = 500
    """Real steps between two evaluations of the deterministic policy."""
    evaluation_episodes: int = 10
    """Episodes per evaluation."""
    overrides: tuple[str, ...] = ("",)
    """More flags of mnm train; every string is one more variant: --overrides "" "--value-delay 0". Agents that do not
    have a string's flags are left out of its variant."""
    runs: Path = Path("runs/sweep")
    """Folder of the runs, and beside each run its NAME.log."""
    jobs: int | None = None
    """How many runs at once; by default one per core."""
    ray: str | None = None
    """Run on a Ray cluster: its address, or auto for the one on this machine (started if there is none). The runs'
    folder must be on a filesystem that all workers share. Needs pip install 'mnm-rl[ray]'."""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Check everything, print what would be run, and stop."""


def shield_overrides(arguments: Sequence[str]) -> list[str]:
    """The arguments with a space before each override that starts with a dash: else it is taken for a flag of ours."""
    ours = {f"--{field.name.replace('_', '-')}" for field in fields(Sweep)} | {"-h", "--help"}
    shielded, inside = [], False
    for argument in arguments:
        if argument.partition("=")[0].replace("_", "-") in ours:
            inside = argument == "--overrides"
        elif inside and argument.startswith("-"):
            argument = f" {argument}"
        shielded.append(argument)
    return shielded


def sweep(command: Sweep, program: tuple[str, ...] = MNM) -> int:
    """Check, run, report; the exit code: 0 all finished, 1 some failed, 2 bad input, 128 + the signal that stopped it.

    `program` is what Python runs, followed by the arguments of `mnm`.
    """
    from mnm.agents.algorithm import ConfigError
    from mnm.envs.adapter import TaskError
    from mnm.sweeps.plan import plan
    from mnm.sweeps.pools import LocalPool, RayPool, cores
    from mnm.sweeps.trials import Record
    from mnm.training.spec import RunError

    try:
        trials = plan(command)
        if command.dry_run:
            for trial in trials:
                print(f"{'finished' if trial.finished else 'to train'}: {trial.folder}, {trial.spec.steps} steps")
            return 0
        records = [Record(trial) for trial in trials]
        command.runs.mkdir(parents=True, exist_ok=True)
        jobs = len(cores()) if command.jobs is None else command.jobs
        pool = LocalPool(program, jobs) if command.ray is None else RayPool(program, command.ray)
    except (ConfigError, TaskError, RunError) as error:
        return fail(str(error))
    except OSError as error:
        return fail(f"--runs {command.runs}: {error.strerror}")
    return train_all(records, pool)


def train_all(records: list[Record], pool: Pool) -> int:
    """Run them, show how they get on, report; the exit code: 0 all finished, 1 some failed, 128 + a signal."""
    from mnm.sweeps.display import Display, print_report
    from mnm.sweeps.trials import State

    with noted_signals() as signals, Display(records) as display:
        supervise(records, pool, display.changed, signals)
    print_report(records)
    if signals:
        print("stopped; the same command goes on from the last checkpoints")
        return 128 + signals[0]
    return int(any(record.state is State.FAILED for record in records))


def supervise(records: list[Record], pool: Pool, changed: Callable[[Record], None], signals: list[int]) -> None:
    """Start what is not finished, as the pool has room, and follow it until all has ended or a signal has come."""
    from mnm.sweeps.trials import State
    from mnm.training.spec import RunError

    waiting = deque(record for record in records if record.state is State.WAITING)
    started: dict[str, Record] = {}
    try:
        while (waiting or started) and not signals:
            while waiting and pool.has_room:
                record = waiting.popleft()
                record.expect_start()
                try:
                    pool.start(record.trial)
                    started[record.trial.name] = record
                except RunError as error:  # its folder cannot be made
                    record.end(str(error))
                    changed(record)
            ended = pool.ended()
            for name, record in list(started.items()):
                before = record.state, record.step
                record.look()
                if name in ended:
                    record.end(ended[name])
                    del started[name]
                if (record.state, record.step) != before:
                    changed(record)
            time.sleep(POLL)
    finally:
        pool.stop(hurry=lambda: len(signals) > 1)
        for record in started.values():
            record.look()
            record.state = State.FINISHED if record.trial.finished else State.STOPPED


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """SIGINT and SIGTERM are noted in the list, instead of breaking off wherever the program is."""
    noted: list[int] = []
    before = {number: signal.signal(number, lambda n, _: noted.append(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
