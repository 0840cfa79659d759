"""The honest curve: MnM on a finite MDP with everything learned from real transitions.

The sampled experiments of the paper compute the model from the true p and count its samples as free. Here p is
unknown. An iteration collects one REAL episode and adds it to the counts N(s,a,s'); then come `model_rounds`
rounds of Algorithm 1, all on tables:

1. the classifier: logistic regression of real against model transitions. Its data are the counts N (positive) and
   the model's own predictions at the same pairs, N(s,a) q(s'|s,a) (negative); Newton steps on the cross entropy.
2. the model: one step of q ~ q exp( V + logit ) (mirror ascent on Eq. model-objective), on successors seen so far.
3. an episode in the model, rewarded by (1-discount) log r + logit (Eq. augmented-reward), and one batch pass over
   the stored model experience, as in `q_learning.py`.

A pair (s,a) never tried in reality has no model: its model transitions stay in place and are not stored, so its Q
keeps its first value. The rivals see the same data and make as many passes: Q-learning replays the real
transitions; the maximum-likelihood model (MBPO's) uses q = N(s,a,s') / N(s,a) and the plain reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from mnm.tabular.mdp import Floats, TabularMDP
from mnm.tabular.q_learning import (
    METHODS,
    Chance,
    Method,
    draw_chance,
    episode,
    greedy_actions,
    greedy_returns,
    stacked_chance,
)

CLASSIFIER_STEPS = 3
LARGEST_LOGIT = 30.0


@dataclass(frozen=True)
class TabularLearner:
    """A method that learns from real transitions alone."""

    method: Method
    replays_reality: bool = False
    """Q-learning: batch passes over the real transitions, no model."""


LEARNERS = {
    "Q-learning": TabularLearner(METHODS["Q-learning"], replays_reality=True),
    "Maximum likelihood": TabularLearner(METHODS["Q-learning"]),
    "Maximum likelihood, log reward": TabularLearner(METHODS["Q-learning, log reward"]),
    "MnM": TabularLearner(METHODS["MnM"]),
    "VMBPO": TabularLearner(METHODS["VMBPO"]),
}


@dataclass(frozen=True)
class HonestSchedule:
    """How much is collected and learned."""

    real_episodes: int = 300
    model_rounds: int = 5
    episode_steps: int = 200
    learning_rate: float = 1e-2
    epsilon: float = 0.5

    @property
    def real_steps(self) -> NDArray[np.int64]:
        """Real steps taken by the end of every iteration."""
        return self.episode_steps * np.arange(1, self.real_episodes + 1)


@dataclass(frozen=True, eq=False)
class HonestRuns:
    """What the runs give, in the order learner by learner, seed by seed."""

    real_steps: NDArray[np.int64]
    returns: Floats
    """[learners, seeds, iterations] exact return of the greedy policy in the real MDP."""
    counts: Floats
    """[learners, seeds, S, A, K] real transitions."""
    model_probs: Floats
    """[learners, seeds, S, A, K] the learned model; rows of pairs never tried are 0."""
    logits: Floats
    """[learners, seeds, S, A, K] the learned classifier."""


def learn_from_data(
    mdp: TabularMDP,
    learners: list[TabularLearner],
    seeds: list[int],
    schedule: HonestSchedule = HonestSchedule(),  # noqa: B008
) -> HonestRuns:
    """Every learner with every seed, in one vmapped program, in float64."""
    runs = [(learner, seed) for learner in learners for seed in seeds]
    rewards = np.stack([learner.method.rewards(mdp) for learner, _ in runs])
    settings = [np.array([getattr(learner.method, name) for learner, _ in runs]) for name in ("kl_weight", "tilt")]
    replays_reality = np.array([learner.replays_reality for learner, _ in runs])
    episodes = schedule.real_episodes * (schedule.model_rounds + 1)
    chance = stacked_chance(
        draw_chance(seed, episodes, schedule.episode_steps, mdp.num_actions, schedule.epsilon) for _, seed in runs
    )
    arrays = (mdp.dynamics.successors, mdp.dynamics.probs, mdp.start)
    with jax.enable_x64(True):
        greedy, *tables = _learn_all(schedule, mdp.discount, *arrays, rewards, *settings, replays_reality, chance)
        actions = np.asarray(greedy)
    returns = np.stack([greedy_returns(mdp, run_actions) for run_actions in actions])
    shape = (len(learners), len(seeds))
    counts, model_probs, logits = (np.asarray(table).reshape(*shape, *table.shape[1:]) for table in tables)
    return HonestRuns(schedule.real_steps, returns.reshape(*shape, -1), counts, model_probs, logits)


def train_classifier(logits: jax.Array, positives: jax.Array, negatives: jax.Array) -> jax.Array:
    """Newton steps on the cross entropy  sum positives log C + negatives log(1 - C),  C = sigmoid(logit).

    A table has one logit per entry, so the steps are elementwise. They are limited, as the logistic loss is
    flat far from its optimum, and start from the logits of the round before.
    """
    totals = positives + negatives
    for _ in range(CLASSIFIER_STEPS):
        predicted = jax.nn.sigmoid(logits)
        gradient = positives - totals * predicted
        curvature = totals * predicted * (1.0 - predicted)
        step = gradient / jnp.maximum(curvature, 1e-12)
        logits = jnp.where(totals > 0, logits + jnp.clip(step, -2.0, 2.0), logits)
    return jnp.clip(logits, -LARGEST_LOGIT, LARGEST_LOGIT)


def improve_model(log_model: jax.Array, objective: jax.Array, seen: jax.Array) -> jax.Array:
    """log q for q ~ q exp(objective), on the successors seen so far; -inf elsewhere."""
    return jax.nn.log_softmax(jnp.where(seen, log_model + objective, -jnp.inf), axis=-1, where=seen)


def _learn_one(
    schedule: HonestSchedule,
    discount: float,
    successors: jax.Array,
    probs: jax.Array,
    start: jax.Array,
    rewards: jax.Array,
    kl_weight: jax.Array,
    tilt: jax.Array,
    replays_reality: jax.Array,
    chance: Chance,
) -> tuple[jax.Array, ...]:
    """Greedy actions after every real episode, and the last tables, of one run."""
    slots = probs.shape[2]
    own_states = jnp.broadcast_to(jnp.arange(len(rewards), dtype=successors.dtype)[:, None, None], probs.shape)
    step_size = schedule.learning_rate / schedule.episode_steps
    adversarial = tilt > 0

    def visits(outcomes: jax.Array, model_probs: jax.Array, q_values: jax.Array, chance: Chance) -> jax.Array:
        visited = episode(outcomes, model_probs, greedy_actions(q_values), start, chance)
        return jnp.zeros(probs.size).at[visited].add(1.0).reshape(probs.shape)

    def model_round(carry: Any, chance: Chance) -> tuple[Any, None]:
        q_values, counts, log_model, logits, model_counts, model_reward_sums = carry
        seen, pair_counts = counts > 0, counts.sum(axis=-1, keepdims=True)
        tried = pair_counts > 0
        # A successor seen for the first time enters the model at its share of the data.
        log_model = jnp.where(seen & jnp.isneginf(log_model), jnp.log(likelihood(counts)), log_model)
        log_model = improve_model(log_model, jnp.zeros_like(logits), seen)
        logits = train_classifier(logits, counts, pair_counts * jnp.exp(log_model))
        objective = tilt * q_values.max(axis=1)[successors] + logits
        log_model = improve_model(log_model, objective, seen)
        logits = train_classifier(logits, counts, pair_counts * jnp.exp(log_model))
        model_probs = jnp.where(adversarial, jnp.where(seen, jnp.exp(log_model), 0.0), likelihood(counts))
        # A pair without data stays where it is; what happens there is not stored.
        first_slot = jnp.arange(slots) == 0
        sampled = jnp.where(tried, model_probs, first_slot)
        outcomes = jnp.where(tried, successors, own_states)
        new_counts = visits(outcomes, sampled, q_values, chance) * tried
        model_counts = model_counts + new_counts
        augmented = rewards[:, :, None] + kl_weight * logits
        model_reward_sums = model_reward_sums + (new_counts * augmented).sum(axis=-1)
        pass_counts = jnp.where(replays_reality, counts, model_counts)
        reward_sums = jnp.where(replays_reality, counts.sum(axis=-1) * rewards, model_reward_sums)
        target_sums = reward_sums + discount * (pass_counts * q_values.max(axis=1)[successors]).sum(axis=-1)
        q_values = q_values + step_size * (target_sums - pass_counts.sum(axis=-1) * q_values)
        return (q_values, counts, log_model, logits, model_counts, model_reward_sums), None

    def iteration(carry: Any, episodes: Chance) -> tuple[Any, jax.Array]:
        q_values, counts, *rest = carry
        real, imagined = (
            jax.tree.map(lambda numbers, part=part: numbers[part], episodes) for part in (0, slice(1, None))
        )
        counts = counts + visits(successors, probs, q_values, real)
        carry, _ = jax.lax.scan(model_round, (q_values, counts, *rest), imagined)
        return carry, greedy_actions(carry[0])

    pairs, triples = jnp.zeros(rewards.shape), jnp.zeros(probs.shape)
    carry = (pairs, triples, triples - jnp.inf, triples, triples, pairs)
    by_iteration = jax.tree.map(lambda numbers: numbers.reshape(schedule.real_episodes, -1, *numbers.shape[1:]), chance)
    carry, greedy = jax.lax.scan(iteration, carry, by_iteration)
    _, counts, log_model, logits, _, _ = carry
    return greedy, counts, jnp.where(adversarial, jnp.exp(log_model), likelihood(counts)), logits


def likelihood(counts: jax.Array) -> jax.Array:
    """The maximum-likelihood model N(s,a,s') / N(s,a); rows without data are 0."""
    return counts / jnp.maximum(counts.sum(axis=-1, keepdims=True), 1.0)


@partial(jax.jit, static_argnums=(0, 1))
def _learn_all(schedule: HonestSchedule, discount: float, *arrays: Any) -> tuple[jax.Array, ...]:
    """`_learn_one` for every run; the MDP is shared."""
    in_axes = (None, None, None, 0, 0, 0, 0, 0)
    return jax.vmap(partial(_learn_one, schedule, discount), in_axes=in_axes)(*arrays)
