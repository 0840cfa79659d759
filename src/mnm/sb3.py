"""Agents for the tools of Stable-Baselines3, which need not be there: `evaluate_policy(SB3Policy(agent), env)`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from numpy.typing import NDArray

from mnm.training.learner import Learner


class SB3Policy:
    """An agent with the `predict` that Stable-Baselines3's tools ask for: one observation, or those of a VecEnv."""

    def __init__(self, agent: Learner) -> None:
        self.agent = agent

    @property
    def observation_space(self) -> gym.spaces.Box | gym.spaces.Dict:
        """The task's own."""
        return self.agent.observation_space

    @property
    def action_space(self) -> gym.spaces.Box:
        """The task's own."""
        return self.agent.action_space

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray, Any]:
        """Actions, and the state as it came: the agents have no memory."""
        return self.agent.predict(observation, deterministic=deterministic), state
