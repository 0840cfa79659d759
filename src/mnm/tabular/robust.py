"""The worst case over sets of dynamics: what a policy is sure to return, and the policy that is sure of most.

Every pair (s, a) has a set of distributions of its own (confidence.py), and the smallest value over all of them is the
fixed point of the robust Bellman operator

    (T V)(s) = sum_a pi(a|s) [ r(s,a) + discount min_{p in set(s,a)} p . V ],

with max_a for the best policy. It is found by policy iteration of the adversary, who in turn takes the worst
distributions for V and lets the policy be evaluated in them exactly (or the best policy be found in them: Hoffman and
Karp's algorithm). Whatever V that ends with, T V + discount/(1-discount) min(T V - V) is below the fixed point
(MacQueen), so no tolerance is ever on the wrong side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mnm.tabular.confidence import worst_means
from mnm.tabular.evaluation import evaluate
from mnm.tabular.mdp import Dynamics, Floats, Ints, TabularMDP, deterministic_policy
from mnm.tabular.solvers import solve

MAX_ITERATIONS = 100
SETTLED = 1e-9
"""Of the range of values: the adversary stops when nothing changes by more."""


@dataclass(frozen=True, eq=False)
class UncertainMDP:
    """A finite MDP of which every pair's dynamics are known to lie in a set, and the rewards to be no less than stated.

    The set of a pair is { p : KL(p_hat || p) <= radius } on its listed successors and, where `open`, on one more state
    of the adversary's choice (several would be of no use to him).
    """

    successors: Ints
    """[S, A, K] state numbers."""
    probs: Floats
    """[S, A, K] p_hat; 0 marks padding, and rows without any are of pairs that nothing is known of."""
    radius: Floats
    """[S, A]; infinite where nothing is known."""
    open: NDArray[np.bool_]
    """[S, A] whether a state that is not listed can follow."""
    rewards: Floats
    """[S, A] the smallest rewards."""
    discount: float

    def taking(self, actions: NDArray) -> UncertainMDP:
        """The same with one action in each state, actions[s]: a policy's evaluation needs no more."""
        rows = np.arange(len(actions)), actions
        parts = {
            name: getattr(self, name)[rows][:, None] for name in ("successors", "probs", "radius", "open", "rewards")
        }
        return replace(self, **parts)

    def worst(self, values: Floats) -> tuple[Floats, Floats]:
        """min over the sets of p . V, [S, A], and the listed successors' probabilities there, [S, A, K].

        What these lack to 1 is the probability of the state of the smallest value.
        """
        shape = self.probs.shape
        following = values[self.successors]
        listed = np.where(self.probs > 0, following, np.inf).min(axis=-1)
        floor = np.where(self.open, values.min(), listed)
        flat = (-1, shape[2])
        means, probs = worst_means(
            following.reshape(flat), self.probs.reshape(flat), self.radius.ravel(), floor.ravel()
        )
        return means.reshape(shape[:2]), probs.reshape(shape)

    def worst_dynamics(self, values: Floats) -> Dynamics:
        """The adversary's choice."""
        _, probs = self.worst(values)
        unseen = np.maximum(1.0 - probs.sum(axis=-1, keepdims=True), 0.0)
        states = np.full(unseen.shape, int(values.argmin()), np.int32)
        return Dynamics.from_lists(
            np.concatenate([self.successors, states], axis=-1), np.concatenate([probs, unseen], axis=-1)
        )

    def action_values(self, values: Floats) -> Floats:
        """r(s, a) + discount min over the set of p . V, [S, A]."""
        means, _ = self.worst(values)
        return self.rewards + self.discount * means


def adversarial_values(mdp: UncertainMDP, answer: Callable[[Dynamics], Floats], values: Floats) -> Floats:
    """The adversary's policy iteration from `values`: V <- answer(worst dynamics for V), until V changes no more.

    answer: the values that a policy, or the best one, has in given dynamics.
    """
    for _ in range(MAX_ITERATIONS):
        before, values = values, answer(mdp.worst_dynamics(values))
        if np.abs(values - before).max() <= SETTLED * max(float(np.abs(values).max()), np.finfo(float).tiny):
            break
    return values


def lower_values(mdp: UncertainMDP, policy: Floats, first_guess: Floats) -> Floats:
    """Numbers below min over all dynamics in the sets of V^pi(s), and closest to it but for rounding: [S]."""
    if (policy.max(axis=1) == 1.0).all():
        mdp, policy = mdp.taking(policy.argmax(axis=1)), np.ones((len(policy), 1))
    values = adversarial_values(
        mdp, lambda dynamics: evaluate(dynamics, mdp.rewards, policy, mdp.discount), first_guess
    )
    image: Floats = (policy * mdp.action_values(values)).sum(axis=1)
    residual = min(float((image - values).min()), 0.0)
    rounding = 64 * np.finfo(float).eps * float(np.abs(image).max())
    return image + (mdp.discount * residual - rounding) / (1.0 - mdp.discount)


def best_policy(mdp: UncertainMDP, start: Floats, first_guess: Floats) -> Floats:
    """The policy with the largest worst case, from every state at once; it needs no chance. [S, A]"""

    def answer(dynamics: Dynamics) -> Floats:
        return solve(TabularMDP(dynamics, mdp.rewards, start, mdp.discount)).values

    values = adversarial_values(mdp, answer, first_guess)
    return deterministic_policy(mdp.action_values(values).argmax(axis=1), mdp.rewards.shape[1])
