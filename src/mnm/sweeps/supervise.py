"""Start a sweep's trials as there is room, follow them, and end in good order."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mnm.sweeps.pools import Pool
    from mnm.sweeps.trials import TrialStatus


MNM = ("-P", "-m", "mnm")
"""What Python is told so that it is the `mnm` command; -P: no file of the present folder hides a library."""


POLL = 0.2
"""Seconds between two looks at the trials."""


def train_all(records: list[TrialStatus], pool: Pool) -> int:
    """Run them, show how they get on, report; the exit code: 0 all finished, 1 some failed, 128 + a signal."""
    from mnm.sweeps.display import SweepDisplay, print_report
    from mnm.sweeps.trials import TrialState

    with noted_signals() as signals, SweepDisplay(records) as display:
        supervise(records, pool, display.changed, signals)
    print_report(records)
    if signals:
        print("stopped; the same command goes on from the last checkpoints")
        return 128 + signals[0]
    return int(any(record.state is TrialState.FAILED for record in records))


def supervise(
    records: list[TrialStatus], pool: Pool, changed: Callable[[TrialStatus], None], signals: list[int]
) -> None:
    """Start what is not finished, as the pool has room, and follow it until all has ended or a signal has come."""
    from mnm.sweeps.trials import TrialState
    from mnm.training.spec import RunError

    waiting = deque(record for record in records if record.state is TrialState.WAITING)
    started: dict[str, TrialStatus] = {}
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
            record.state = TrialState.FINISHED if record.trial.finished else TrialState.STOPPED


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
