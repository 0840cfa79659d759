"""A finite MDP solved: the optimal value, MnM's policy and its value, the ladder of bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnm.tabular.bounds import LADDER, average, ladder
from mnm.tabular.evaluation import evaluate_policy
from mnm.tabular.files import FiniteTask, InputError
from mnm.tabular.grids import ARROWS, MOVES
from mnm.tabular.mdp import TabularMDP, first_index, suggested_offset
from mnm.tabular.mnm import JointStep, solve_mnm, solve_tight

LARGEST_PRINTED_POLICY = 40


@dataclass(frozen=True, eq=False)
class Solution:
    """The answers of `mnm solve`."""

    task: FiniteTask
    mnm: JointStep | None
    """The optimum of the sharper bound (q ~ p exp V); None if rewards of 0 forbid its logarithm."""
    tight: JointStep
    """The optimum of the tight bound (q ~ p V): its policy is the optimal one."""
    why_not: str
    """Why `mnm` is None; empty otherwise."""

    @property
    def best(self) -> JointStep:
        """MnM's answer: of the sharper bound where it exists, of the tight one otherwise."""
        return self.mnm or self.tight

    @cached_property
    def optimal_return(self) -> float:
        """The best policy's return from the start."""
        return self.return_of(self.tight)

    def return_of(self, step: JointStep) -> float:
        """A step's policy's real return."""
        return average(self.task.mdp.start, evaluate_policy(self.task.mdp, step.policy))

    @cached_property
    def ladders(self) -> dict[str, dict[str, float]]:
        """The ladder of bounds at the two joint optima; without positive rewards only what needs no logarithm."""
        mdp = self.task.mdp
        ladders = {}
        for name, step in (("mnm", self.mnm), ("tight", self.tight)):
            if step is None:
                continue
            rungs = tuple(LADDER) if self.mnm else ("tight bound",)
            ladders[name] = ladder(mdp, step.policy, step.model, rungs)
        return ladders

    def as_json(self) -> dict[str, Any]:
        """For programs. Infinite numbers, which JSON does not have, are null."""
        mdp = self.task.mdp
        agents = {"mnm": self.mnm, "tight": self.tight}
        return {
            "task": self.task.name,
            "num_states": mdp.num_states,
            "num_actions": mdp.num_actions,
            "discount": mdp.discount,
            "optimal_return": self.optimal_return,
            "optimal_actions": self.tight.policy.argmax(axis=1).tolist(),
            "agents": {
                name: step
                and {
                    "return": self.return_of(step),
                    "bound": _finite(average(mdp.start, step.values)),
                    "actions": step.policy.argmax(axis=1).tolist(),
                }
                for name, step in agents.items()
            },
            "ladder": {
                name: {rung: _finite(value) for rung, value in rungs.items()} for name, rungs in self.ladders.items()
            },
            "note": self.why_not,
        }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def solve_task(task: FiniteTask, reward_offset: float = 0.0) -> Solution:
    """Solve a task; `reward_offset` is added to every reward first."""
    if not np.isfinite(reward_offset):
        raise InputError(f"--reward-offset must be a finite number; got {reward_offset}")
    mdp = task.mdp.with_reward_offset(reward_offset) if reward_offset else task.mdp
    task = replace(task, mdp=mdp)
    rewards = mdp.expected_rewards
    if (rewards < 0).any():
        state, action = first_index(rewards < 0)
        raise InputError(
            f"{task.name}: state {state}, action {action}: reward {rewards[state, action]:g} is negative, but MnM "
            f"takes the logarithm of the return; add an explicit offset to every reward, for instance "
            f"--reward-offset {reward_offset + suggested_offset(rewards):.12g}"
        )
    why_not = _why_no_logarithm(mdp, reward_offset)
    mnm = None if why_not else solve_mnm(mdp)
    return Solution(task, mnm, solve_tight(mdp), why_not)


def _why_no_logarithm(mdp: TabularMDP, reward_offset: float) -> str:
    zero = mdp.expected_rewards == 0
    if not zero.any():
        return ""
    state, action = first_index(zero)
    return (
        f"rewards of 0 (first: state {state}, action {action}) have no logarithm, so only the tight bound is shown; "
        f"for the whole ladder add an explicit offset to every reward, for instance --reward-offset "
        f"{reward_offset + suggested_offset(mdp.expected_rewards):.12g}"
    )


def policy_lines(task: FiniteTask, actions: np.ndarray) -> list[str]:
    """A policy as text: arrows for a grid or a Gymnasium task with a map, a list of states otherwise."""
    if task.letters is not None:
        return _lines(_policy_on_letters(task.mdp, task.letters, actions))
    if task.grid is None:
        lines = [f"state {state}: action {action}" for state, action in enumerate(actions[:LARGEST_PRINTED_POLICY])]
        more = len(actions) - len(lines)
        return lines + ([f"... and {more} more states (--json has them all)"] if more else [])
    grid = task.grid
    symbols = np.full(grid.walls.shape, "#")
    symbols[~grid.walls] = np.array(list(ARROWS))[actions]
    for goal in grid.goals:
        symbols[goal] = "G"
    return _lines(symbols)


def _policy_on_letters(mdp: TabularMDP, letters: NDArray[np.str_], actions: np.ndarray) -> NDArray[np.str_]:
    """Arrows on a Gymnasium task's map; a cell where the episode is over keeps its letter.

    Tasks number their moves as they like: an action's arrow is where it leads to on average, of all cells.
    """
    cells, over = letters.size, mdp.num_states - 1
    places = np.stack(np.divmod(np.arange(cells), letters.shape[1]), axis=1)
    successors, probs = (lists[:cells] for lists in (mdp.dynamics.successors, mdp.dynamics.probs))
    inside = np.where(successors < cells, probs, 0.0)
    steps = places[np.minimum(successors, cells - 1)] - places[:, None, None]
    directions = MOVES[:4] @ (inside[..., None] * steps).sum(axis=2).mean(axis=0).T  # [moves, actions]
    signs = [ARROWS[move.argmax()] if move.max() > 0 else str(number) for number, move in enumerate(directions.T)]
    ended = (np.where(successors == over, probs, 0.0).sum(axis=2) > 1 - 1e-12).all(axis=1)
    return np.where(ended.reshape(letters.shape), letters, np.array(signs)[actions[:cells]].reshape(letters.shape))


def _lines(symbols: NDArray[np.str_]) -> list[str]:
    if symbols.size > 80 * 80:
        return [f"({len(symbols)} by {len(symbols[0])} cells: too large to print; --json has them all)"]
    return [" ".join(row) for row in symbols]
