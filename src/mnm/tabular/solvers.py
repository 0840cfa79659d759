"""The best policy of a finite MDP: value iteration and policy iteration, with a stated error bound.

The stopping rule is MacQueen's: for any V, with d = T V - V,

    T V + discount/(1-discount) min d  <=  V*  <=  T V + discount/(1-discount) max d,

so the midpoint of the two is within discount/(1-discount) (max d - min d) / 2 of the optimal values V*, up to rounding
(which the reported bounds include). A tolerance is absolute; by default it is 1e-9 of the largest possible value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra

from mnm.tabular.evaluation import SMALL, ConvergenceError, action_values, chain, evaluate_policy
from mnm.tabular.mdp import Floats, MDPError, TabularMDP, deterministic_policy, uniform_policy

TIE = 1e-12
"""An action must be better than the present one by this share of the values' size, or ties would cycle."""


@dataclass(frozen=True, eq=False)
class Solution:
    """Optimal values with their error bound, and the actions that are greedy for them."""

    values: Floats
    """[S]"""
    actions: NDArray[np.integer[Any]]
    """[S]"""
    error_bound: float
    """No value is further than this from the optimal one."""
    iterations: int

    def policy(self, num_actions: int) -> Floats:
        """The actions as an [S, A] policy."""
        return deterministic_policy(self.actions, num_actions)


def macqueen_bounds(values: Floats, image: Floats, discount: float) -> tuple[Floats, float]:
    """The midpoint of MacQueen's bounds on V*, given V and T V, and how far V* can be from it."""
    change = image - values
    factor = discount / (1.0 - discount)
    low, high = float(change.min()), float(change.max())
    rounding = 4 * np.finfo(float).eps * float(np.abs(image).max()) / (1.0 - discount)
    return image + factor * (low + high) / 2, factor * (high - low) / 2 + rounding


def value_iteration(mdp: TabularMDP, tolerance: float | None = None) -> Solution:
    """V <- max_a [ r + discount E_p V ], until MacQueen's bound is below the tolerance."""
    tolerance = checked_tolerance(tolerance, mdp.expected_rewards, mdp.discount)
    values = mdp.expected_rewards.max(axis=1) / (1.0 - mdp.discount)
    limit = _iteration_limit(mdp, tolerance)
    for iteration in range(1, limit + 1):
        q_values = action_values(mdp, values)
        image = q_values.max(axis=1)
        midpoint, error = macqueen_bounds(values, image, mdp.discount)
        if error <= tolerance:
            return Solution(midpoint, q_values.argmax(axis=1), error, iteration)
        values = image
    raise ConvergenceError(f"value iteration stopped at an error bound of {error:.3g}, above {tolerance:g}")


def policy_iteration(mdp: TabularMDP, tolerance: float | None = None) -> Solution:
    """Exact evaluation and greedy improvement in turn, until MacQueen's bound is below the tolerance.

    An action is only exchanged for one that is truly better (`improved_policy`), so tied actions cannot make
    the iteration cycle: every exchange raises the value of some state by more than rounding can.
    """
    tolerance = checked_tolerance(tolerance, mdp.expected_rewards, mdp.discount)
    policy = uniform_policy(mdp)
    for iteration in range(1, 10_000):
        values = evaluate_policy(mdp, policy)
        q_values = action_values(mdp, values)
        midpoint, error = macqueen_bounds(values, q_values.max(axis=1), mdp.discount)
        better = improved_policy(policy, q_values)
        if error <= tolerance or np.array_equal(better, policy):
            if error > tolerance:
                raise ConvergenceError(f"rounding limits the error bound to {error:.3g}; {tolerance:g} cannot be had")
            return Solution(midpoint, better.argmax(axis=1), error, iteration)
        policy = better
    raise ConvergenceError(f"policy iteration stopped at an error bound of {error:.3g}, above {tolerance:g}")


def improved_policy(policy: Floats, q_values: Floats) -> Floats:
    """The greedy policy, which keeps the present action unless another one is truly better."""
    best = q_values.max(axis=1)
    present = policy.argmax(axis=1)
    finite = np.isfinite(best)
    margin = TIE * np.maximum(1.0, np.abs(np.where(finite, best, 0.0)))
    threshold = np.where(finite, best - margin, best)
    keeps = np.take_along_axis(q_values, present[:, None], axis=1)[:, 0] >= threshold
    return deterministic_policy(np.where(keeps, present, q_values.argmax(axis=1)), policy.shape[1])


def _iteration_limit(mdp: TabularMDP, tolerance: float) -> int:
    """Enough iterations for a contraction by the discount to come below the tolerance, unless rounding forbids."""
    size = max(float(np.abs(mdp.expected_rewards).max()), 1e-300) / (1.0 - mdp.discount) ** 2
    return int(np.ceil(max(np.log(tolerance / size) / np.log(mdp.discount), 0.0))) + 100


def solve(mdp: TabularMDP, tolerance: float | None = None) -> Solution:
    """The optimal values and actions: exact policy iteration for small MDPs, ordered sweeps for large ones."""
    if mdp.num_states <= SMALL:
        return policy_iteration(mdp, tolerance)
    return solve_by_sweeps(mdp, mdp.expected_rewards, tolerance, entropic=False)


def solve_by_sweeps(mdp: TabularMDP, rewards: Floats, tolerance: float | None, *, entropic: bool) -> Solution:
    """The fixed point of max_a [ rewards + discount E_p V ], or with log E_p exp V if `entropic`: gauss_seidel.py."""
    from mnm.tabular.gauss_seidel import sweep_to_fixed_point  # compiles kernels, which small MDPs do not need

    tolerance = checked_tolerance(tolerance, rewards, mdp.discount)
    solution = Solution(
        *sweep_to_fixed_point(
            mdp.dynamics.successors, mdp.dynamics.probs, rewards, mdp.discount, tolerance, entropic=entropic
        )
    )
    if solution.error_bound > tolerance:
        raise ConvergenceError(f"the error bound is {solution.error_bound:.3g}; {tolerance:g} cannot be had")
    return solution


def optimal_return(mdp: TabularMDP) -> float:
    """The best policy's expected return from the start distribution."""
    return float(mdp.start @ solve(mdp).values)


def checked_tolerance(tolerance: float | None, rewards: Floats, discount: float) -> float:
    """The tolerance, or by default 1e-9 of the largest value that such rewards can give."""
    if tolerance is None:
        return 1e-9 * max(float(np.abs(rewards).max()), np.finfo(float).tiny) / (1.0 - discount)
    if not tolerance > 0:
        raise MDPError(f"tolerance must be positive; got {tolerance}")
    return tolerance


def path_lengths(mdp: TabularMDP, goal: int) -> Floats:
    """The least number of steps in which each state can reach the goal; infinity where none does."""
    backwards = chain(mdp.dynamics, np.ones((mdp.num_states, mdp.num_actions))).T.tocsr()
    lengths: Floats = dijkstra(backwards, indices=goal, unweighted=True)
    return lengths
