"""A trial is one run of a sweep: how it is started, where it stands. Knows nothing of agents, so that it loads fast."""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from mnm.sweeps import guard
from mnm.training.metrics import FILE as METRICS
from mnm.training.runs import is_unmade, read_run, write_spec
from mnm.training.spec import RunError, RunSpec

ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class TrialState(StrEnum):
    """Where a trial stands."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Trial:
    """One run: its folder, and what it shall be."""

    folder: Path
    spec: RunSpec

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.name

    @property
    def log(self) -> Path:
        """What its process prints. Not in the run's folder, which is the run's own to make and to delete."""
        return self.folder.with_name(f"{self.name}.log")

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return not is_unmade(self.folder) and read_run(self.folder).finished


def start(
    trial: Trial, program: tuple[str, ...], *, core: int | None = None, patience: float = 0.0, cwd: str | None = None
) -> subprocess.Popen[bytes]:
    """The trial's process, on one core if one is named. The terminal's Ctrl-C does not reach it: we end it ourselves.

    It goes on with the run, from its beginning if there is no checkpoint yet. If another process is training the run,
    it fails after `patience` seconds.
    """
    if is_unmade(trial.folder):
        write_spec(trial.folder, trial.spec)
    # The sweep's user has typed the names: a task or an agent of a module may be imported.
    trusted = ("--trust",) if ":" in trial.spec.env + trial.spec.algorithm else ()
    arguments = ("resume", str(trial.folder), *trusted)
    tie = ["-I", "-S", guard.__file__, str(os.getpid()), "-" if core is None else str(core), str(patience)]
    with trial.log.open("ab") as log:
        log.write(f"$ mnm {shlex.join(arguments)}\n".encode())
        log.flush()
        return subprocess.Popen(
            [sys.executable, *tie, sys.executable, *program, *arguments],
            cwd=cwd,
            env=one_thread_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def one_thread_environment() -> dict[str, str]:
    """This process's environment for one that shall have one thread; XLA's other flags stay."""
    flags = os.environ.get("XLA_FLAGS")
    return os.environ | dict.fromkeys(THREADS, "1") | {"XLA_FLAGS": f"{flags} {ONE_THREAD}" if flags else ONE_THREAD}


def why_failed(code: int) -> str:
    """What an exit code says; nothing if the process finished."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}" if code else ""


@dataclass
class TrialStatus:
    """A trial and where it stands, as far as its files and its process tell."""

    trial: Trial
    state: TrialState = field(init=False)
    step: int = 0
    last_return: float = math.nan
    why: str = ""
    """The reason of a failure."""
    began: float | None = None
    """The clocks are time.monotonic()."""
    ended: float | None = None
    _began_at_step: int = 0
    _measured: float = 0.0
    _metrics_seen: tuple[int, int] | None = None
    _log_before: int = 0

    def __post_init__(self) -> None:
        self._read_metrics()
        self.state = TrialState.FINISHED if self.trial.finished else TrialState.WAITING

    def expect_start(self) -> None:
        """From now on a growing log means that the trial runs."""
        self._log_before = self._log_size()

    def look(self) -> None:
        """Bring the record up to date."""
        if self.state is TrialState.WAITING and self._log_size() > self._log_before:
            self.state, self.began, self._began_at_step = TrialState.RUNNING, time.monotonic(), self.step
        self._read_metrics()

    def end(self, why: str) -> None:
        """The process is over: failed for a reason, or finished."""
        self.why = why
        self.state = TrialState.FAILED if why else TrialState.FINISHED
        self.ended = time.monotonic()

    @property
    def seconds(self) -> float | None:
        """How long it has run in this sweep, or ran."""
        return None if self.began is None else (self.ended or time.monotonic()) - self.began

    @property
    def seconds_left(self) -> float | None:
        """By the steps measured since it began here; unknown before the first."""
        done = self.step - self._began_at_step
        if self.state is not TrialState.RUNNING or self.began is None or done <= 0:
            return None
        pace = (self._measured - self.began) / done
        return max(0.0, (self.trial.spec.steps - self.step) * pace - (time.monotonic() - self._measured))

    def last_lines(self, count: int = 10) -> list[str]:
        """The end of the log."""
        try:
            return self.trial.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
        except OSError:
            return []

    def _log_size(self) -> int:
        return self.trial.log.stat().st_size if self.trial.log.exists() else 0

    def _read_metrics(self) -> None:
        try:
            stat = (self.trial.folder / METRICS).stat()
            if (stat.st_mtime_ns, stat.st_size) == self._metrics_seen:
                return
            metrics = read_run(self.trial.folder).metrics
        except (FileNotFoundError, RunError):  # not there yet, or just being made: the next look will tell
            return
        self._metrics_seen = stat.st_mtime_ns, stat.st_size
        if metrics.get("step"):
            self.step, self._measured = int(metrics["step"][-1]), time.monotonic()
            self.last_return = metrics.get("return", [math.nan])[-1]
            self._began_at_step = min(self._began_at_step, self.step)  # it went back to a checkpoint
