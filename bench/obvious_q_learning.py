"""The obvious version of the sampled Q-learning figure: a replay that grows, and a pass over all of it.

NumPy, vectorised where that is obvious; a run's cost grows with the square of its iterations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mnm.tabular import TabularMDP, deterministic_policy, evaluate_policy
from mnm.tabular.q_learning import Method, Schedule


def learn_obviously(mdp: TabularMDP, method: Method, seed: int, schedule: Schedule) -> NDArray[np.float64]:
    """The returns of one run, evaluated as the schedule says."""
    rng = np.random.default_rng(seed)
    probs, successors = mdp.dynamics.probs, mdp.dynamics.successors
    rewards = method.rewards(mdp)
    q_values = np.zeros(rewards.shape)
    size = schedule.iterations * schedule.episode_steps
    stored_states, stored_actions, stored_next = (np.zeros(size, dtype=np.int64) for _ in range(3))
    stored_rewards = np.zeros(size)
    stored, returns = 0, []
    for iteration in range(schedule.iterations):
        values = q_values.max(axis=1)
        model = probs * np.exp(method.tilt * (values[successors] - values.max()))
        model /= model.sum(axis=-1, keepdims=True)
        log_ratio = np.log(np.where(model > 0, model, 1.0)) - np.log(np.where(model > 0, probs, 1.0))
        augmented = rewards - method.kl_weight * (model * log_ratio).sum(axis=-1)
        cumulative = model.cumsum(axis=-1)
        greedy = q_values.argmax(axis=1)
        state = int(mdp.start.argmax())
        for explore, random_action, quantile in zip(
            rng.random(schedule.episode_steps) < schedule.epsilon,
            rng.integers(mdp.num_actions, size=schedule.episode_steps),
            rng.random(schedule.episode_steps),
            strict=True,
        ):
            action = random_action if explore else greedy[state]
            slot = min(int(np.searchsorted(cumulative[state, action], quantile)), probs.shape[2] - 1)
            stored_states[stored], stored_actions[stored] = state, action
            state = int(successors[state, action, slot])
            stored_next[stored] = state
            stored_rewards[stored] = augmented[stored_states[stored], action]
            stored += 1
        pairs = (stored_states[:stored], stored_actions[:stored])
        targets = stored_rewards[:stored] + mdp.discount * values[stored_next[:stored]]
        change = np.zeros_like(q_values)
        np.add.at(change, pairs, targets - q_values[pairs])
        q_values = q_values + schedule.learning_rate * change / schedule.episode_steps
        if iteration % schedule.evaluate_every == 0:
            policy = deterministic_policy(q_values.argmax(axis=1), mdp.num_actions)
            returns.append(float(mdp.start @ evaluate_policy(mdp, policy)))
    return np.array(returns)
