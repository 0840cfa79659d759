"""Q-learning on a finite MDP with sampled experience: plain, MnM's, VMBPO's and MnM's two ablations.

Every method alike: an iteration collects one episode with the epsilon-greedy policy, stores it with the reward of
that moment, then makes one batch pass over everything stored, all from the same old Q:

    Q(s,a) += sum_i (learning_rate / episode_steps) * ( r_i + discount max_a' Q(s'_i, a') - Q(s, a) ),

the sum being over the stored transitions i of (s, a). That sum depends on them only through the counts N(s,a,s')
and the summed rewards, so an iteration's cost does not grow with the replay. The methods differ in four numbers
(`Method`), so that all methods and seeds are one vmapped program.

MnM's model is computed from the real p (q ~ p exp V): as in the paper, samples from the model count as free. The
version that learns the model and the classifier from real transitions is in `learned.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from mnm.tabular.mdp import Dynamics, Floats, MDPError, TabularMDP


@dataclass(frozen=True)
class Method:
    """What distinguishes a method: its reward is scale * (log r or r) - kl_weight * KL(q||p), q ~ p exp(tilt V)."""

    log_reward: bool
    discounted_scale: bool
    """Whether the reward is scaled by 1 - discount."""
    kl_weight: float
    tilt: float

    def rewards(self, mdp: TabularMDP) -> Floats:
        """The reward's part that does not depend on the model, [S, A]."""
        plain = mdp.log_rewards if self.log_reward else mdp.expected_rewards
        return (1.0 - mdp.discount if self.discounted_scale else 1.0) * plain


METHODS = {
    "Q-learning": Method(log_reward=False, discounted_scale=False, kl_weight=0.0, tilt=0.0),
    "MnM": Method(log_reward=True, discounted_scale=True, kl_weight=1.0, tilt=1.0),
    "VMBPO": Method(log_reward=False, discounted_scale=False, kl_weight=1.0, tilt=1.0),
    "MnM, no logarithm": Method(log_reward=False, discounted_scale=True, kl_weight=1.0, tilt=1.0),
    "MnM, no classifier": Method(log_reward=True, discounted_scale=True, kl_weight=0.0, tilt=1.0),
    "Q-learning, log reward": Method(log_reward=True, discounted_scale=True, kl_weight=0.0, tilt=0.0),
}


@dataclass(frozen=True)
class Schedule:
    """How much is collected and learned; the defaults are the paper's."""

    iterations: int = 1501
    episode_steps: int = 200
    learning_rate: float = 1e-2
    epsilon: float = 0.5
    evaluate_every: int = 20

    @property
    def evaluated(self) -> NDArray[np.int64]:
        """The iterations after which the greedy policy is evaluated."""
        return np.arange(0, self.iterations, self.evaluate_every)


@dataclass(frozen=True, eq=False)
class Run:
    """One run of the batch: a task, a method, and the dynamics that it samples from (before the tilt)."""

    mdp: TabularMDP
    method: Method
    seed: int
    dynamics: Dynamics | None = None
    """None for the MDP's own; other probabilities on the same successors otherwise."""


@dataclass(frozen=True, eq=False)
class LearningCurves:
    """What a batch of runs gives."""

    iterations: NDArray[np.int64]
    """[evaluations]"""
    returns: Floats
    """[runs, evaluations] exact return of the greedy policy in the real MDP, from its start."""
    q_values: Floats
    """[runs, S, A] the last Q."""


def learn(runs: list[Run], schedule: Schedule = Schedule()) -> LearningCurves:  # noqa: B008 (frozen)
    """All runs at once, in float64. The MDPs must share successors, discount and start."""
    first = runs[0].mdp
    for run in runs:
        _check_alike(first, run)
    chance = stacked_chance(
        draw_chance(run.seed, schedule.iterations, schedule.episode_steps, first.num_actions, schedule.epsilon)
        for run in runs
    )
    base_probs = np.stack([(run.dynamics or run.mdp.dynamics).probs for run in runs])
    rewards = np.stack([run.method.rewards(run.mdp) for run in runs])
    kl_weights, tilts = (np.array([getattr(run.method, name) for run in runs]) for name in ("kl_weight", "tilt"))
    successors, start = first.dynamics.successors, first.start
    with jax.enable_x64(True):
        q_values, greedy = _learn_all(
            schedule, first.discount, successors, base_probs, rewards, kl_weights, tilts, start, chance
        )
        actions = np.asarray(greedy)[:, schedule.evaluated]
    returns = np.stack([greedy_returns(run.mdp, run_actions) for run, run_actions in zip(runs, actions, strict=True)])
    return LearningCurves(schedule.evaluated, returns, np.asarray(q_values))


def _check_alike(first: TabularMDP, run: Run) -> None:
    """The runs of a batch share what the program does not map over."""
    dynamics = run.dynamics or run.mdp.dynamics
    alike = (
        np.array_equal(first.dynamics.successors, dynamics.successors)
        and np.array_equal(first.dynamics.successors, run.mdp.dynamics.successors)
        and np.array_equal(first.start, run.mdp.start)
        and first.discount == run.mdp.discount
    )
    if not alike:
        raise MDPError("runs of one batch must share successors, start and discount; learn them in separate calls")


def greedy_returns(mdp: TabularMDP, actions: NDArray[Any]) -> Floats:
    """The exact return, from the start, of each of many deterministic policies: actions[n, s]."""
    dense, states = mdp.dynamics.to_dense(), np.arange(mdp.num_states)
    systems = np.eye(mdp.num_states) - mdp.discount * dense[states, actions]
    values = np.linalg.solve(systems, mdp.expected_rewards[states, actions][..., None])[..., 0]
    returns: Floats = values @ mdp.start
    return returns


def tilted_model(probs: jax.Array, successor_values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """q ~ p exp(values) on the rows of p, and KL(q || p) row by row."""
    exponents = jnp.where(probs > 0, successor_values, -jnp.inf)
    largest = exponents.max(axis=-1, keepdims=True)
    weights = probs * jnp.exp(exponents - largest)
    totals = weights.sum(axis=-1, keepdims=True)
    model_probs = weights / totals
    log_ratio = jnp.where(probs > 0, successor_values - largest - jnp.log(totals), 0.0)
    return model_probs, (model_probs * log_ratio).sum(axis=-1)


class Chance(NamedTuple):
    """What chance decides in episodes: where to start, when to explore, with which action, and each outcome."""

    starts: Any
    """[episodes] quantiles of the first state."""
    explores: Any
    """[episodes, steps] whether the action is a random one."""
    actions: Any
    """[episodes, steps] that action."""
    outcomes: Any
    """[episodes, steps] quantiles of the next state."""


def draw_chance(seed: int, episodes: int, steps: int, num_actions: int, epsilon: float) -> Chance:
    """All of a run's random numbers; drawn here, not in the jitted program, which halves its compilation."""
    rng = np.random.default_rng(seed)
    return Chance(
        rng.random(episodes),
        rng.random((episodes, steps)) < epsilon,
        rng.integers(num_actions, size=(episodes, steps), dtype=np.int32),
        rng.random((episodes, steps)),
    )


def stacked_chance(chances: Iterable[Chance]) -> Chance:
    """The runs' random numbers with the runs as first axis."""
    return Chance(*(np.stack(arrays) for arrays in zip(*chances, strict=True)))


def episode(
    successors: jax.Array, model_probs: jax.Array, greedy: jax.Array, start: jax.Array, chance: Chance
) -> jax.Array:
    """The flat indices (s, a, slot) of one episode's transitions."""
    _, actions, slots = successors.shape
    # Divided by its own last entry, the last positive slot's share is exactly 1: padding is never drawn.
    cumulative = jnp.cumsum(model_probs, axis=-1)
    cumulative = (cumulative / cumulative[..., -1:])[..., :-1].reshape(-1, slots - 1)
    outcomes = successors.ravel()
    first = (jnp.cumsum(start)[:-1] <= chance.starts).sum(dtype=outcomes.dtype)

    def step(state: jax.Array, now: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        explores, random_action, quantile = now
        pair = state * actions + jnp.where(explores, random_action, _at(greedy, state))
        transition = pair * slots + (_at(cumulative, pair) <= quantile).sum(dtype=state.dtype)
        return _at(outcomes, transition), transition

    _, visited = jax.lax.scan(step, first, (chance.explores, chance.actions, chance.outcomes))
    return visited


def _at(table: jax.Array, index: jax.Array) -> jax.Array:
    """table[index] without the checks for an index that is out of bounds: half of the loop's time."""
    return table.at[index].get(mode="promise_in_bounds")


def greedy_actions(q_values: jax.Array) -> jax.Array:
    """The first of the best actions in every state."""
    return q_values.argmax(axis=1).astype(jnp.int32)


def _learn_one(
    schedule: Schedule,
    discount: float,
    successors: jax.Array,
    base_probs: jax.Array,
    rewards: jax.Array,
    kl_weight: jax.Array,
    tilt: jax.Array,
    start: jax.Array,
    chance: Chance,
) -> tuple[jax.Array, jax.Array]:
    """The last Q and the greedy actions after every iteration, of one run."""
    step_size = schedule.learning_rate / schedule.episode_steps

    def iteration(carry: Any, episode_chance: Chance) -> tuple[Any, jax.Array]:
        q_values, counts, reward_sums = carry
        model_probs, kl = tilted_model(base_probs, tilt * q_values.max(axis=1)[successors])
        visited = episode(successors, model_probs, greedy_actions(q_values), start, episode_chance)
        new_counts = jnp.zeros(counts.size).at[visited].add(1.0).reshape(counts.shape)
        counts = counts + new_counts
        reward_sums = reward_sums + new_counts.sum(axis=-1) * (rewards - kl_weight * kl)
        target_sums = reward_sums + discount * (counts * q_values.max(axis=1)[successors]).sum(axis=-1)
        q_values = q_values + step_size * (target_sums - counts.sum(axis=-1) * q_values)
        return (q_values, counts, reward_sums), greedy_actions(q_values)

    zeros = jnp.zeros(rewards.shape)
    carry, greedy = jax.lax.scan(iteration, (zeros, jnp.zeros(base_probs.shape), zeros), chance)
    return carry[0], greedy


@partial(jax.jit, static_argnums=(0, 1))
def _learn_all(schedule: Schedule, discount: float, *arrays: Any) -> tuple[jax.Array, jax.Array]:
    """`_learn_one` for every run; successors and start are shared."""
    return jax.vmap(partial(_learn_one, schedule, discount), in_axes=(None, 0, 0, 0, 0, None, 0))(*arrays)
