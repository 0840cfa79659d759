"""How a command shows where it is: a bar on a terminal, and for a run a line per evaluation everywhere."""

from __future__ import annotations

import math
import sys
import time
from importlib.util import find_spec
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mnm.training.learner import Progress as RunProgress
from mnm.training.learner import Row

COMPILING = "compiling"
"""What most of the time before the first step is."""


def watched() -> bool:
    """Whether the program runs in a terminal, or in a notebook that can show a bar."""
    return sys.stderr.isatty() or (Console(stderr=True).is_jupyter and find_spec("ipywidgets") is not None)


class ProgressDisplay:
    """`progress` and `row` are the loop's callbacks; where somebody watches, a bar stands below the lines."""

    def __init__(self, bar: bool | None = None) -> None:
        """`bar`: whether there is one; None: if somebody watches."""
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[pace]:.0f} updates/s  return {task.fields[last]}  left"),
            TimeRemainingColumn(),
            console=console,
            disable=not (watched() if bar is None else bar),
            redirect_stdout=not console.is_jupyter,  # a notebook's bar stands apart: lines need not be broken for it
        )
        self._task: TaskID | None = None
        self._phase = ""
        self._began, self._updates = time.monotonic(), 0

    def progress(self, report: RunProgress) -> None:
        """Move the bar."""
        if report.phase != self._phase:
            self._phase = report.phase
            self._began, self._updates = time.monotonic(), report.updates
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(report.phase, total=report.total, completed=report.done, pace=0.0, last="-")
        assert self._task is not None
        pace = (report.updates - self._updates) / max(time.monotonic() - self._began, 1e-9)
        last = f"{report.last_return:.0f}" if math.isfinite(report.last_return) else "-"
        self._bar.update(self._task, completed=report.done, total=report.total, pace=pace, last=last)

    def row(self, seed: int, step: int, row: Row) -> None:
        """Print what an evaluation found."""
        parts = [f"step {step}", f"seed {seed}"]
        if "return" in row:  # from data alone there may be none
            parts.append(f"return {row['return']:.1f} +- {row['return_std']:.1f}")
        names = ["model_return", "q_at_start", "discounted_return", "bound", "log_return", "model_error_1"]
        names += ["q_data", "q_policy", "log_ratio_policy"]
        parts += [f"{name} {row[name]:.3g}" for name in names if name in row]
        parts += [f"{row['updates_per_s']:.0f} updates/s", f"{row['seconds']:.0f} s"]
        print(" | ".join(parts), flush=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.refresh()  # in a notebook, stop() alone leaves the bar short of its end
        self._bar.stop()


class Activity:
    """What a short command is doing: on a terminal a line that moves, and goes when it is done; elsewhere nothing."""

    def __init__(self) -> None:
        self._line = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self._task: TaskID | None = None
        self._steps = 0

    def begin(self, words: str, note: str = "") -> None:
        """Say what is being done now; the note stands until its second step."""
        if self._task is not None:
            self._line.remove_task(self._task)
        self._task, self._steps = self._line.add_task(words, total=None, note=note), 0

    def step(self) -> None:
        """One more step of it."""
        assert self._task is not None
        self._steps += 1
        if self._steps > 1:
            self._line.update(self._task, note=f"step {self._steps}")

    def __enter__(self) -> Self:
        self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._line.stop()
