"""Random MDPs, policies and models from a seed, for tests, examples and statistics over MDPs."""

from __future__ import annotations

import numpy as np

from mnm.tabular.mdp import Dynamics, Floats, MDPError, TabularMDP


def random_mdp(
    num_states: int,
    num_actions: int,
    *,
    seed: int,
    successors: int | None = None,
    discount: float = 0.9,
    smallest_reward: float = 0.1,
    largest_reward: float = 10.0,
) -> TabularMDP:
    """Random rows over `successors` distinct states (all of them by default), log-uniform positive rewards."""
    slots = num_states if successors is None else successors
    if min(num_states, num_actions) < 1 or not 1 <= slots <= num_states:
        raise MDPError(f"{num_states} states, {num_actions} actions and {slots} successors do not make an MDP")
    if not 0 < smallest_reward <= largest_reward:
        raise MDPError(f"rewards between {smallest_reward} and {largest_reward} are not positive")
    rng = np.random.default_rng(seed)
    numbers = distinct_numbers(rng, num_states, (num_states, num_actions, slots))
    log_rewards = rng.uniform(np.log(smallest_reward), np.log(largest_reward), (num_states, num_actions))
    return TabularMDP(
        Dynamics(numbers, rng.dirichlet(np.ones(slots), (num_states, num_actions))),
        np.exp(log_rewards),
        rng.dirichlet(np.ones(num_states)),
        discount,
    )


def distinct_numbers(rng: np.random.Generator, bound: int, shape: tuple[int, int, int]) -> np.ndarray:
    """Integers below `bound`, distinct along the last axis."""
    if shape[2] == bound:
        return np.broadcast_to(np.arange(bound), shape)
    if shape[2] * 4 > bound:
        order = rng.permuted(np.broadcast_to(np.arange(bound), (*shape[:2], bound)), axis=-1)
        return np.asarray(order[..., : shape[2]])
    numbers = rng.integers(bound, size=shape)
    while True:  # few rows collide: draw those again
        repeated = (np.diff(np.sort(numbers, axis=-1), axis=-1) == 0).any(axis=-1)
        if not repeated.any():
            return numbers
        numbers[repeated] = rng.integers(bound, size=(int(repeated.sum()), shape[2]))


def random_policy(mdp: TabularMDP, *, seed: int) -> Floats:
    """Action probabilities drawn uniformly from the simplex, state by state."""
    return np.random.default_rng(seed).dirichlet(np.ones(mdp.num_actions), mdp.num_states)


def random_model(mdp: TabularMDP, *, seed: int) -> Dynamics:
    """A model on the real successors, its probabilities drawn uniformly from the simplex."""
    drawn = np.random.default_rng(seed).exponential(size=mdp.dynamics.probs.shape) * (mdp.dynamics.probs > 0)
    return mdp.dynamics.with_probs(drawn / drawn.sum(axis=-1, keepdims=True))
