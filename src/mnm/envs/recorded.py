"""A task of which there are data alone: it has spaces, and cannot be played."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike

from mnm.messages import short

WIDEST = 10_000
"""Numbers in one row of data."""


class Recorded(gym.Env):
    """What is known of a task by its data; an agent learns from them and predicts, but is not evaluated."""

    def __init__(self, observation_space: gym.Space, action_space: gym.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """There is nothing to begin."""
        raise RuntimeError("there are data of this task, and no environment: name it, --env ID, in Python env=")

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """There is nothing to step."""
        raise RuntimeError("there are data of this task, and no environment")


def recorded(observation_dim: int, action_low: ArrayLike, action_high: ArrayLike) -> Recorded:
    """The same with flat observations, and actions between these bounds; ValueError if they are none."""
    with np.errstate(over="ignore"):  # what float32 does not hold is not finite, which is refused below
        low, high = (np.asarray(bound).astype(np.float32).reshape(-1) for bound in (action_low, action_high))
    if not 0 < observation_dim <= WIDEST:
        raise ValueError(f"observations of {observation_dim} numbers")
    if low.shape != high.shape or low.size > WIDEST:
        raise ValueError(f"bounds of actions of {low.size} and {high.size} numbers")
    if not np.isfinite([low, high]).all() or not (low <= high).all():
        raise ValueError(f"actions between {short(low.tolist())} and {short(high.tolist())}")
    observations = gym.spaces.Box(-np.inf, np.inf, (observation_dim,), np.float32)
    return Recorded(observations, gym.spaces.Box(low, high, low.shape, np.float32))
