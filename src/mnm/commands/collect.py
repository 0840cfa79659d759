"""`mnm collect`: a data set of episodes that trained agents play."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mnm.commands.export import write
from mnm.messages import fail, short
from mnm.schema import Count, Seed, refused


@dataclass(frozen=True)
class Collect:
    """Play episodes with the policies of runs, and write them as a data set to learn from (docs/offline.md).

    A finished run gives an expert's, one that was trained for less a medium one's, --noise a noisy one's, several runs
    a mixed one's.
    Example: mnm collect runs/Pendulum-v1-sac-seed0 --episodes 50 --noise 0.3 --out noisy.npz
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """The runs' folders, all of one task."""
    episodes: int = 10
    """How many of each run."""
    seed: int = 0
    """Decides where the episodes start, and which actions are random."""
    noise: float = 0.0
    """The share of uniformly random actions; the rest are the deterministic policy's."""
    out: Path | None = None
    """A .npz or .h5 with the arrays that mnm export writes."""
    minari: str | None = None
    """The name of a Minari data set, such as pendulum/expert-v0; needs pip install 'mnm-rl[offline]'."""
    trust: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Import the module of a task or agent that the runs' files name as module:name: it runs that module's code."""


def collect(command: Collect) -> int:
    """The exit code: 0, 2 bad input."""
    if not command.runs:
        return fail("name a run's folder")
    if command.out is None and command.minari is None:
        return fail("name a file, --out pendulum.npz, or a Minari data set, --minari pendulum/expert-v0")
    for flag, value, kind in (("episodes", command.episodes, Count), ("seed", command.seed, Seed)):
        if why := refused(value, kind):
            return fail(f"--{flag} is {short(value)}, but must be {why}")
    if not 0 <= command.noise <= 1:
        return fail(f"--noise is {command.noise:g}, but must be a share, 0 to 1")

    from mnm.training.driver import load_trained
    from mnm.training.export import check_file, joined, policy_arrays

    if command.out is not None:
        check_file(command.out)
    learners = [load_trained(run, trusted=command.trust) for run in command.runs]
    try:
        first = learners[0]
        for run, learner in zip(command.runs, learners, strict=True):
            if learner.spaces != first.spaces:
                return fail(f"{run} has other spaces than {command.runs[0]}: collect runs of one task")
        parts = [policy_arrays(learner, command.episodes, command.seed, command.noise) for learner in learners]
        agents = ", ".join(f"{learner.algorithm.name} after {learner.steps} steps" for learner in learners)
        said = f"Episodes of {agents} on {first.task_name}, a share {command.noise:g} of the actions random."
        write(joined(parts), command.out, command.minari, first, said)
    finally:
        for learner in learners:
            learner.close()
    return 0
