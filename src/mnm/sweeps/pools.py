"""Where a sweep's trials run: on this machine's cores, or on a Ray cluster."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from mnm.sweeps.trials import Trial, start, why_failed
from mnm.training.spec import RunError

GRACE = 30.0
"""Seconds that a process has to save its checkpoint before it is killed."""
CANCEL_AGAIN = 5.0
"""Seconds after which a Ray task that has not ended is cancelled once more."""
RETRIES = 3
"""How often a trial is taken up again after its Ray worker has died."""


class Pool(Protocol):
    """Runs trials side by side."""

    @property
    def has_room(self) -> bool:
        """Whether a trial can be started."""

    def start(self, trial: Trial) -> None:
        """Start it, or queue it."""

    def ended(self) -> dict[str, str]:
        """The trials that have ended since the last call: why each failed, nothing if it finished."""

    def stop(self, hurry: Callable[[], bool]) -> None:
        """End what runs: with a checkpoint if there is time, at once if `hurry` says so."""


def cores() -> list[int]:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return sorted(affinity(0)) if affinity is not None else list(range(os.cpu_count() or 1))


def stop_processes(processes: Iterable[subprocess.Popen[bytes]], hurry: Callable[[], bool] = lambda: False) -> None:
    """SIGTERM, which makes a run save a checkpoint; SIGKILL for what is still there after the time of grace."""
    left = [process for process in processes if process.poll() is None]
    for process in left:
        process.terminate()
    deadline = time.monotonic() + GRACE
    while (left := [process for process in left if process.poll() is None]) and time.monotonic() < deadline:
        if hurry():
            break
        time.sleep(0.05)
    for process in left:
        process.kill()
        process.wait()


class LocalPool:
    """Processes of this machine, each on a core of its own if there are enough."""

    def __init__(self, program: tuple[str, ...], jobs: int) -> None:
        self._program = program
        self._places: list[int | None] = [*cores()[:jobs]] if jobs <= len(cores()) else [None] * jobs
        self._running: dict[str, tuple[subprocess.Popen[bytes], int | None]] = {}

    @property
    def has_room(self) -> bool:
        """Whether a place is free."""
        return bool(self._places)

    def start(self, trial: Trial) -> None:
        """Start it on the first free core."""
        core = self._places[0]
        self._running[trial.name] = start(trial, self._program, core=core), core
        self._places.pop(0)

    def ended(self) -> dict[str, str]:
        """By exit code; their cores are free again."""
        ended = {}
        for name, (process, core) in list(self._running.items()):
            code = process.poll()
            if code is not None:
                ended[name] = why_failed(code)
                self._places.append(core)
                del self._running[name]
        return ended

    def stop(self, hurry: Callable[[], bool]) -> None:
        """All of them."""
        stop_processes([process for process, _ in self._running.values()], hurry)


class RayPool:
    """Tasks of a Ray cluster, one CPU each; Ray queues them, and repeats those whose worker has died."""

    has_room = True

    def __init__(self, program: tuple[str, ...], address: str) -> None:
        try:
            import ray
        except ImportError:
            raise RunError("--ray needs Ray: pip install 'mnm-rl[ray]'") from None
        self._ray: Any = ray
        self._program = program
        try:
            ray.init(address=None if address == "auto" else address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError) as error:
            raise RunError(f"--ray {address}: no cluster can be reached: {error}") from error
        self._attempt = ray.remote(num_cpus=1, max_retries=RETRIES)(attempt)
        self._names: dict[Any, str] = {}

    def start(self, trial: Trial) -> None:
        """Queue it."""
        self._names[self._attempt.remote(trial, self._program, os.getcwd())] = trial.name

    def ended(self) -> dict[str, str]:
        """By exit code, or by what Ray says of a worker that died too often."""
        ended = {}
        for task in self._done(timeout=0):
            try:
                why = why_failed(self._ray.get(task))
            except self._ray.exceptions.RayError as error:
                why = f"Ray: {type(error).__name__}: {error}".splitlines()[0]
            ended[self._names.pop(task)] = why
        return ended

    def stop(self, hurry: Callable[[], bool]) -> None:
        """Cancelled tasks stop their processes as this machine would; then the cluster is left."""
        deadline, cancel_at = time.monotonic() + GRACE, 0.0
        while len(self._done(timeout=0.2)) < len(self._names) and time.monotonic() < deadline and not hurry():
            if time.monotonic() >= cancel_at:  # on a busy machine a first interrupt can get lost
                for task in self._names:
                    self._ray.cancel(task)
                cancel_at = time.monotonic() + CANCEL_AGAIN
        self._ray.shutdown()  # what is left dies with its worker

    def _done(self, timeout: float) -> list[Any]:
        tasks = list(self._names)
        return self._ray.wait(tasks, num_returns=len(tasks), timeout=timeout)[0] if tasks else []


def attempt(trial: Trial, program: tuple[str, ...], cwd: str) -> int:
    """What a Ray worker does: the trial's process, from where an earlier worker left it; its exit code."""
    if trial.finished:
        return 0
    processes: list[subprocess.Popen[bytes]] = []
    try:  # Ray may cancel as soon as the process has started
        processes.append(start(trial, program, patience=GRACE, cwd=cwd))  # a lost node's process may linger
        while True:  # a long wait would not see that Ray cancels
            try:
                return processes[0].wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                pass
    finally:
        with uninterrupted():  # cancelled once more, it shall still wait for the checkpoint
            stop_processes(processes)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """No SIGINT, which is how Ray cancels, breaks off what is inside."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
