"""`mnm export`: the transitions that a run has seen, for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mnm.commands.run_folder import RunFolder
from mnm.messages import fail

if TYPE_CHECKING:
    from mnm.training.datasets import Arrays
    from mnm.training.learner import Learner


@dataclass(frozen=True)
class Export(RunFolder):
    """Write a run's replay as arrays (.npz, .h5), or as a Minari data set.

    Example: mnm export runs/Pendulum-v1-sac-seed0 --out pendulum.npz --minari pendulum/sac-v0
    """

    out: Path | None = None
    """A .npz or .h5 with observations, actions (in the task's own units), rewards, next_observations and
    terminations."""
    minari: str | None = None
    """The name of a Minari data set, such as pendulum/sac-v0; needs pip install 'mnm-rl[offline]'."""


def export(command: Export) -> int:
    """The exit code: 0, 2 bad input."""
    if command.out is None and command.minari is None:
        return fail("name a file, --out pendulum.npz, or a Minari data set, --minari pendulum/sac-v0")

    from mnm.training.driver import load_trained
    from mnm.training.export import check_file, replay_arrays

    if command.out is not None:
        check_file(command.out)
    learner = load_trained(command.run, trusted=command.trust)
    try:
        said = f"The replay of {learner.algorithm.name} after {learner.steps} steps on {learner.task_name}."
        write(replay_arrays(learner), command.out, command.minari, learner, said)
    finally:
        learner.close()
    return 0


def write(arrays: Arrays, out: Path | None, minari: str | None, learner: Learner, said: str) -> None:
    """A file, a Minari data set, or both, and a line about each."""
    from mnm.training.export import write_file, write_minari

    rows = len(arrays["rewards"])
    if minari is not None:
        print(f"{minari}: {write_minari(arrays, minari, learner, said)} episodes, {rows} steps")
    if out is not None:
        write_file(arrays, out, learner)
        print(f"{out}: {rows} transitions")
