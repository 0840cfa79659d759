"""Finite MDPs as Gymnasium environments: the same object as the exact code's, sampled."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from mnm.tabular import paper_tasks
from mnm.tabular.grids import Grid
from mnm.tabular.mdp import TabularMDP

PIXELS = 32
"""Of a cell's side."""
FREE, WALL, GOAL, AGENT = (245, 245, 242), (70, 75, 85), (120, 190, 130), (40, 90, 200)

Table = dict[int, dict[int, list[tuple[float, int, float, bool]]]]


class FiniteEnv(gym.Env[np.int64, np.int64]):
    """Samples a TabularMDP. Nothing terminates; the reward of a step is r(s, a), or r(s, a, s') if the MDP has that."""

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, mdp: TabularMDP, grid: Grid | None = None, render_mode: str | None = None) -> None:
        """The grid is for the pictures; without one the states stand in a row."""
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}: use 'ansi', 'rgb_array' or None")
        self.mdp, self.render_mode = mdp, render_mode
        states, actions = mdp.dynamics.probs.shape[:2]
        self.observation_space = gym.spaces.Discrete(states)
        self.action_space = self._choices = gym.spaces.Discrete(actions)
        self.state = 0
        self._walls = grid.walls if grid is not None else np.zeros((1, states), dtype=bool)
        self._goals = grid.goals if grid is not None else ()
        self._cells = grid.cells if grid is not None else np.argwhere(~self._walls)
        # Rounding must not leave a last sliver of probability without an outcome.
        self._cumulative = np.cumsum(mdp.dynamics.probs, axis=2) / mdp.dynamics.probs.sum(axis=2, keepdims=True)

    @cached_property
    def P(self) -> Table:  # noqa: N802
        """P[s][a] lists (probability, next state, reward, False): Gymnasium's transition table."""
        successors, probs = self.mdp.dynamics.successors, self.mdp.dynamics.probs
        rewards = np.broadcast_to(
            self.mdp.rewards if self.mdp.rewards.ndim == 3 else self.mdp.rewards[..., None], probs.shape
        )
        states, actions, slots = probs.shape
        return {
            s: {
                a: [
                    (float(probs[s, a, k]), int(successors[s, a, k]), float(rewards[s, a, k]), False)
                    for k in range(slots)
                    if probs[s, a, k] > 0
                ]
                for a in range(actions)
            }
            for s in range(states)
        }

    @property
    def initial_state_distrib(self) -> NDArray[np.float64]:
        """Probabilities of the first state, beside P as in Gymnasium's own finite tasks."""
        return self.mdp.start

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """A state from the start distribution."""
        super().reset(seed=seed)
        self.state = int(self.np_random.choice(len(self.mdp.start), p=self.mdp.start))
        return np.int64(self.state), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """One transition."""
        if not self._choices.contains(action):
            raise ValueError(f"the action is {action!r}, but must be one of 0 to {self._choices.n - 1}")
        cumulative = self._cumulative[self.state, action]
        slot = int(np.searchsorted(cumulative, self.np_random.random(), side="right"))
        reward = self.mdp.rewards[self.state, action]
        self.state = int(self.mdp.dynamics.successors[self.state, action, slot])
        paid = float(reward if np.ndim(reward) == 0 else reward[slot])
        return np.int64(self.state), paid, False, False, {}

    def render(self) -> str | NDArray[np.uint8] | None:
        """The map as text (# wall, G goal, A agent), or as a picture."""
        if self.render_mode is None:
            gym.logger.warn("render() without a render mode: make the environment with render_mode='rgb_array'")
            return None
        agent = tuple(self._cells[self.state])
        if self.render_mode == "ansi":
            letters = np.where(self._walls, "#", ".")
            for goal in self._goals:
                letters[goal] = "G"
            letters[agent] = "A"
            return "\n".join("".join(row) for row in letters) + "\n"
        colours = np.where(self._walls[..., None], np.array(WALL), np.array(FREE))
        for goal in self._goals:
            colours[goal] = GOAL
        picture = np.repeat(np.repeat(colours, PIXELS, axis=0), PIXELS, axis=1).astype(np.uint8)
        picture[::PIXELS] = picture[:, ::PIXELS] = (205, 205, 200)
        offsets = np.indices((PIXELS, PIXELS)) - (PIXELS - 1) / 2
        disc = (offsets**2).sum(axis=0) < (0.32 * PIXELS) ** 2
        row, column = (PIXELS * int(place) for place in agent)
        picture[row : row + PIXELS, column : column + PIXELS][disc] = AGENT
        return picture


def stochastic_gridworld(render_mode: str | None = None) -> FiniteEnv:
    """10 by 10, a wall between start and goal, half of the actions replaced by random ones."""
    return _of_grid(paper_tasks.stochastic_gridworld(), render_mode)


def comparing_objectives(render_mode: str | None = None) -> FiniteEnv:
    """The stochastic gridworld with reward 1 everywhere but at the goal (10)."""
    return _of_grid(paper_tasks.comparing_objectives(), render_mode)


def optimistic_gridworld(render_mode: str | None = None) -> FiniteEnv:
    """The stochastic gridworld with 90% of the actions replaced and rewards for steps towards the goal."""
    grid, mdp = paper_tasks.optimistic_text()
    return FiniteEnv(mdp, grid, render_mode)


def aliased_gridworld(render_mode: str | None = None) -> FiniteEnv:
    """15 by 15, deterministic, five actions; the exact code's model sees blocks of 3 by 3 only."""
    return _of_grid(paper_tasks.aliased_gridworld(), render_mode)


def three_states(render_mode: str | None = None) -> FiniteEnv:
    """Left, middle and right: where likelihood and value disagree about the best model."""
    return FiniteEnv(paper_tasks.three_states(), render_mode=render_mode)


def _of_grid(grid: Grid, render_mode: str | None) -> FiniteEnv:
    return FiniteEnv(grid.mdp, grid, render_mode)
