"""`mnm export`: the transitions that a run has seen, for other programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mnm.commands.run_folder import RunFolder
from mnm.messages import fail


@dataclass(frozen=True)
class Export(RunFolder):
    """Write a run's replay as arrays (.npz), or as a Minari data set.

    Example: mnm export runs/Pendulum-v1-sac-seed0 --out pendulum.npz --minari pendulum/sac-v0
    """

    out: Path | None = None
    """A .npz with observations, actions (in the task's own units), rewards, next_observations and terminations."""
    minari: str | None = None
    """The name of a Minari data set, such as pendulum/sac-v0; needs pip install 'mnm-rl[minari]'."""


def export(command: Export) -> int:
    """The exit code: 0, 2 bad input."""
    if command.out is None and command.minari is None:
        return fail("name a file, --out pendulum.npz, or a Minari data set, --minari pendulum/sac-v0")
    if command.out is not None and command.out.suffix != ".npz":
        return fail(f"--out {command.out}: arrays are written to a .npz")

    from mnm.training.driver import load_trained
    from mnm.training.export import replay_arrays, write_minari, write_npz

    learner = load_trained(command.run, trusted=command.trust)
    try:
        arrays = replay_arrays(learner)
        rows = len(arrays["rewards"])
        if command.minari is not None:
            print(f"{command.minari}: {write_minari(arrays, command.minari, learner)} episodes, {rows} steps")
        if command.out is not None:
            write_npz(arrays, command.out)
            print(f"{command.out}: {rows} transitions")
    finally:
        learner.close()
    return 0
