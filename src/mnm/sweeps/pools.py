"""Where a sweep's trials run: on this machine's cores, or on a Ray cluster."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from mnm.sweeps.trials import Trial, start, why_failed
from mnm.training.spec import RunError

GRACE = 30.0
"""Seconds that a process has to save its checkpoint before it is killed."""
POLL = 1.0
"""Seconds between two looks of a Ray task for the file that tells it to stop."""
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
        self._stop_file: Path | None = None

    def start(self, trial: Trial) -> None:
        """Queue it."""
        self._stop_file = (trial.folder.parent / f".stop-{os.getpid()}").absolute()
        self._names[self._attempt.remote(trial, self._program, os.getcwd(), self._stop_file)] = trial.name

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
        """Tasks that see the file stop their processes as this machine would, and queued ones end at once.

        Ray's own way to cancel is an interrupt, which can get lost on a busy machine, and comes only once.
        """
        if self._stop_file is not None:
            self._stop_file.touch()
        deadline = time.monotonic() + GRACE
        while len(self._done(timeout=0.2)) < len(self._names) and time.monotonic() < deadline and not hurry():
            pass
        self._ray.shutdown()  # what is left dies with its worker
        if self._stop_file is not None:
            self._stop_file.unlink(missing_ok=True)

    def _done(self, timeout: float) -> list[Any]:
        tasks = list(self._names)
        return self._ray.wait(tasks, num_returns=len(tasks), timeout=timeout)[0] if tasks else []


def attempt(trial: Trial, program: tuple[str, ...], cwd: str, stop_file: Path) -> int:
    """What a Ray worker does: the trial's process, from where an earlier worker left it; its exit code."""
    if trial.finished or stop_file.exists():
        return 0
    process = start(trial, program, patience=GRACE, cwd=cwd)  # a lost node's process may linger
    try:
        while not stop_file.exists():
            try:
                return process.wait(timeout=POLL)
            except subprocess.TimeoutExpired:
                pass
    finally:
        stop_processes([process])
    return process.wait()
