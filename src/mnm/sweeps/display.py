"""What a sweep shows: a live table on a terminal, else a line per change; at the end every trial, and the failures."""

from __future__ import annotations

import math
import sys
from collections import Counter
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.table import Table
from rich.text import Text

from mnm.messages import console
from mnm.sweeps.trials import TrialState, TrialStatus

COLOURS = {
    TrialState.RUNNING: "blue",
    TrialState.FINISHED: "green",
    TrialState.FAILED: "red",
    TrialState.STOPPED: "yellow",
}
LIVE_ORDER = (TrialState.RUNNING, TrialState.FAILED, TrialState.WAITING, TrialState.FINISHED, TrialState.STOPPED)


class SweepDisplay:
    """On a terminal the table follows the records by itself; elsewhere `changed` prints what is new."""

    def __init__(self, records: list[TrialStatus]) -> None:
        self._live: Live | None = None
        if sys.stdout.isatty():
            self._live = Live(get_renderable=lambda: live_table(records), refresh_per_second=1, transient=True)
        else:
            print(summary(records), flush=True)

    def changed(self, record: TrialStatus) -> None:
        """A trial's state or step is new."""
        if self._live is None:
            print(line(record), flush=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


def line(record: TrialStatus) -> str:
    """One trial in one line."""
    parts = [f"{record.trial.name}: {record.state}"]
    if record.why:
        parts.append(record.why)
    if record.step:
        parts.append(f"step {record.step} of {record.trial.spec.steps}, return {number(record.last_return)}")
    if record.seconds_left is not None:
        parts.append(f"{duration(record.seconds_left)} left")
    return ", ".join(parts)


def summary(records: list[TrialStatus]) -> str:
    """How many trials are in which state."""
    counts = Counter(record.state for record in records)
    return f"{len(records)} runs: " + ", ".join(f"{counts[state]} {state}" for state in TrialState if counts[state])


def live_table(records: list[TrialStatus]) -> Table:
    """What runs stands first: a terminal may be too low for all."""
    ordered = sorted(records, key=lambda record: LIVE_ORDER.index(record.state))
    table = Table(title=summary(records))
    table.add_column("run", overflow="fold")
    for heading in ("state", "step", "return", "left"):
        table.add_column(heading, justify="right", no_wrap=True)
    for record in ordered:
        table.add_row(*cells(record), duration(record.seconds_left))
    return table


def final_table(records: list[TrialStatus]) -> Table:
    """All trials in their order; the minutes are those of this sweep."""
    table = Table(title=summary(records))
    table.add_column("run", overflow="fold")
    for heading in ("state", "step", "return", "minutes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for record in records:
        table.add_row(*cells(record), "" if record.seconds is None else f"{record.seconds / 60:.1f}")
    return table


def cells(record: TrialStatus) -> tuple[Text, Text, str, str]:
    """What both tables say of a trial."""
    state = Text(str(record.state), style=COLOURS.get(record.state, ""))
    return Text(record.trial.name), state, f"{record.step}/{record.trial.spec.steps}", number(record.last_return)


def print_report(records: list[TrialStatus]) -> None:
    """The table, then each failure with its reason and the last lines of its log."""
    console().print(final_table(records))
    for record in records:
        if record.state is TrialState.FAILED:
            print(f"\n{record.trial.name} failed, {record.why}. The end of {record.trial.log}:")
            for text in record.last_lines():
                print(f"  {text}")


def number(value: float) -> str:
    """A return; nothing before the first."""
    return "" if math.isnan(value) else f"{value:.1f}"


def duration(seconds: float | None) -> str:
    """Hours and minutes, or seconds when there are few."""
    if seconds is None:
        return ""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
