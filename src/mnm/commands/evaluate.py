"""`mnm evaluate`: a trained agent's returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import tyro

from mnm.commands.run_folder import RunFolder
from mnm.messages import UserError, fail


@dataclass(frozen=True)
class Evaluate(RunFolder):
    """Play episodes with a run's deterministic policy, from its agent or its last checkpoint.

    They start where no evaluation of the training started.
    Example: mnm evaluate runs/Pendulum-v1-sac-seed0 --episodes 20 --json
    """

    episodes: int = 10
    """How many episodes for each seed."""
    seeds: tuple[int, ...] = (0,)
    """Decide where the episodes start."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of a line."""


def never_but(on_step: Callable[[], None]) -> Callable[[], bool]:
    """Never stops an evaluation, but counts its steps."""

    def should_stop() -> bool:
        on_step()
        return False

    return should_stop


def evaluate(command: Evaluate) -> int:
    """`mnm evaluate`."""
    if command.episodes < 1:
        return fail(f"--episodes is {command.episodes}, but must be 1 or more")
    if not command.seeds or min(command.seeds) < 0:
        return fail(f"--seeds is {command.seeds}: name at least one, each 0 or more")

    from mnm.training.driver import load_trained
    from mnm.training.progress import COMPILING, Activity

    try:
        played = []
        with Activity() as activity:
            activity.begin(f"loading {command.run}")
            learner = load_trained(command.run, trusted=command.trust)
            for seed in command.seeds:
                activity.begin(f"playing {command.episodes} episodes of {learner.task_name}, seed {seed}", COMPILING)
                played += learner.evaluate(0, command.episodes, seed, never_but(activity.step), stream="test")
    except UserError as error:
        return fail(str(error))
    returns = [episode.total for episode in played]
    result = {
        "run": str(command.run),
        "env": learner.task_name,
        "agent": learner.algorithm.name,
        "steps": learner.steps,
        "seeds": list(command.seeds),
        "episodes": command.episodes,
        "mean": float(np.mean(returns)),
        "std": float(np.std(returns)),
        "returns": returns,  # all of the first seed, then all of the next
        "lengths": [episode.length for episode in played],
        "terminated": [episode.terminated for episode in played],
        "success": [episode.success for episode in played],
    }
    successes = [episode.success for episode in played if episode.success is not None]
    success_note = f", success {np.mean(successes):.0%}" if successes else ""
    if command.json:
        print(json.dumps(result, indent=2))
    else:
        print(
            f"{command.run}: {result['agent']} after {result['steps']} steps on {result['env']}:"
            f" return {result['mean']:.1f} +- {result['std']:.1f} over {len(returns)} episodes,"
            f" {min(returns):.1f} to {max(returns):.1f}{success_note}"
        )
    learner.close()
    return 0
