"""MDPs from Gymnasium environments that publish their transition table `P` (FrozenLake, Taxi, CliffWalking)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnm.tabular.mdp import Dynamics, MDPError, TabularMDP


def from_gym(environment: Any, discount: float = 0.99) -> TabularMDP:
    """The MDP behind `environment.unwrapped.P`, where P[s][a] lists (probability, next state, reward, ended).

    A transition that ends the episode leads to one extra absorbing state, the last one, that pays 0 for ever.
    Where an outcome is listed more than once, the probabilities add up and the rewards are averaged.
    """
    unwrapped = getattr(environment, "unwrapped", environment)
    table = getattr(unwrapped, "P", None)
    if table is None:
        raise MDPError(f"{unwrapped}: has no transition table P; only finite environments that publish one can be read")
    states, actions = len(table), len(table[0])
    absorbing = states
    pairs = [(state, action) for state in range(states) for action in range(actions)]
    slots = max(len(table[state][action]) for state, action in pairs)
    successors = np.full((states + 1, actions, slots), absorbing, np.int64)
    probs = np.zeros((states + 1, actions, slots))
    rewards = np.zeros((states + 1, actions))
    probs[absorbing, :, 0] = 1.0
    for state, action in pairs:
        for slot, (probability, next_state, reward, ended) in enumerate(table[state][action]):
            successors[state, action, slot] = absorbing if ended else next_state
            probs[state, action, slot] = probability
            rewards[state, action] += probability * reward
    start = getattr(unwrapped, "initial_state_distrib", None)
    if start is None:
        raise MDPError(f"{unwrapped}: has no initial_state_distrib, so the start distribution is unknown")
    return TabularMDP(Dynamics.from_lists(successors, probs), rewards, np.append(start, 0.0), discount)


def map_of(environment: Any) -> NDArray[np.str_] | None:
    """[rows, columns] the letters of the environment's own map (its `desc`), if that has one cell for each state."""
    unwrapped = getattr(environment, "unwrapped", environment)
    letters = np.asarray(getattr(unwrapped, "desc", None))
    is_map = letters.ndim == 2 and letters.dtype.kind in "SU" and letters.size == len(unwrapped.P)
    return letters.astype("U1") if is_map else None
