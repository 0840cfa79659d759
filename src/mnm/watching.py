"""`mnm evaluate RUN` and `mnm render RUN`: how good a trained policy is, and what it looks like."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from mnm.messages import fail


@dataclass(frozen=True)
class Evaluate:
    """Play episodes with a run's deterministic policy, from its agent or its last checkpoint.

    Example: mnm evaluate runs/Pendulum-v1-sac-seed0 --episodes 20 --json
    """

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    episodes: int = 10
    """How many episodes for each seed."""
    seeds: tuple[int, ...] = (0,)
    """Decide where the episodes start."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of a line."""


@dataclass(frozen=True)
class Render:
    """Write a film of a run's policy; beside it, for an agent with a model, what the model imagines.

    The imagined film starts in the same state and takes the same actions: where it runs ahead of the real one, the
    dynamics are optimistic.
    Example: mnm render runs/HalfCheetah-v4-mnm_approx-seed0 --out cheetah.gif
    """

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    out: Path = Path("run.gif")
    """The film: .gif, or .mp4 (which needs pip install imageio-ffmpeg)."""
    steps: int = 200
    """The film's length."""
    seed: int = 0
    """Decides where the episode starts."""


def evaluate(command: Evaluate) -> int:
    """`mnm evaluate`."""
    if command.episodes < 1:
        return fail(f"--episodes is {command.episodes}, but must be 1 or more")
    if not command.seeds or min(command.seeds) < 0:
        return fail(f"--seeds is {command.seeds}: name at least one, each 0 or more")

    from mnm.training.work import trained

    try:
        learner = trained(command.run)
        played = [episode for seed in command.seeds for episode in learner.evaluate(0, command.episodes, seed)]
    except ValueError as error:  # of runs, checkpoints, saved agents and tasks: all one line
        return fail(str(error))
    returns = [episode.total for episode in played]
    found = {
        "run": str(command.run),
        "env": learner.task_name,
        "agent": learner.algorithm.name,
        "steps": learner.steps,
        "seeds": list(command.seeds),
        "episodes": command.episodes,
        "mean": float(np.mean(returns)),
        "std": float(np.std(returns)),
        "returns": returns,  # all of the first seed, then all of the next
        "lengths": [len(episode.rewards) for episode in played],
        "terminated": [episode.terminated for episode in played],
        "success": [episode.success for episode in played],
    }
    successes = [episode.success for episode in played if episode.success is not None]
    told = f", success {np.mean(successes):.0%}" if successes else ""
    if command.json:
        print(json.dumps(found, indent=2))
    else:
        print(
            f"{command.run}: {found['agent']} after {found['steps']} steps on {found['env']}:"
            f" return {found['mean']:.1f} +- {found['std']:.1f} over {len(returns)} episodes,"
            f" {min(returns):.1f} to {max(returns):.1f}{told}"
        )
    learner.close()
    return 0


def render(command: Render) -> int:
    """`mnm render`."""
    if command.steps < 1 or command.seed < 0:
        return fail(f"--steps is {command.steps} and --seed {command.seed}: at least 1, and 0 or more")
    if command.out.suffix not in (".gif", ".mp4"):
        return fail(f"--out {command.out}: a film ends in .gif or .mp4")

    from mnm.training.films import imagine, play, write_film
    from mnm.training.work import trained

    try:
        learner = trained(command.run)
        take = play(learner, command.steps, command.seed)
        imagined = imagine(learner, take)
    except ValueError as error:
        return fail(str(error))
    frames = [np.hstack(pair) for pair in zip(take.frames, imagined, strict=False)] if imagined else take.frames
    try:
        command.out.parent.mkdir(parents=True, exist_ok=True)
        write_film(command.out, frames)
    except (OSError, ValueError, ImportError) as error:
        return fail(f"--out {command.out}: {' '.join(str(error).split())}")
    told = ", real left, imagined right" if imagined else ""
    print(f"{command.out}: {len(frames)} frames{told}")
    if len(frames) < len(take.frames):
        print(
            f"mnm: the model left the range of numbers after {len(frames)} steps: the film ends there", file=sys.stderr
        )
    if not imagined and hasattr(learner.state, "world"):
        print(f"mnm: {learner.task_name} cannot be drawn from an observation: the real film alone", file=sys.stderr)
    learner.close()
    return 0
