"""Diagnostics of an agent against real episodes that it never learned from: those of its evaluation.

Q against the return obtained, the return and the bound in the model, the model's error against a constant predictor's,
the classifier's accuracy and calibration.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import NDArray

from mnm.agents.actor_critic import ActorCritic
from mnm.agents.algorithm import Algorithm, ClassifierState, ModelState, State
from mnm.agents.classifier import Classifier, log_ratios, model_ratios, ratio_terms
from mnm.agents.world_model import World
from mnm.compiled import program
from mnm.losses.classifier import classifier_accuracy
from mnm.losses.reward import absorbing_log_value, mnm_reward
from mnm.normalizer import squash
from mnm.replay import Replay, Transitions

ROWS = 1024
"""Held-out transitions that are looked at; fewer are repeated, so that every call has the same shapes."""
WINDOWS = 256
WINDOW = 10
BOUND_HORIZON = 1000
"""Steps in the model for the bound's estimate; what is further away is left out."""


KEPT_BYTES = 2**27
"""Of an evaluation's steps, over all its episodes: five of 1,000 steps fit whole with up to 6,700 numbers a step."""
PIECE = 2 * WINDOW
"""Steps that are kept or left out together: a segment of WINDOW steps must fit."""
REWARD_BLOCK = 2**16
"""Rewards that are summed at once."""

Kept = tuple[NDArray, NDArray, NDArray, float]
"""A step: observation, action, next observation, reward."""


class Piece(NamedTuple):
    """Consecutive steps of real experience; actions in [-1, 1]."""

    observations: NDArray[np.float32]
    """[steps + 1, obs]"""
    actions: NDArray[np.float32]
    """[steps, act]"""
    rewards: NDArray[np.float32]


class Episode(NamedTuple):
    """What is kept of one episode: what diagnostics need, which is bounded however long it was."""

    first: NDArray[np.float32]
    """The first observation: Q, the bound and the return in the model start there."""
    last: NDArray[np.float32]
    """The last: where the episode was cut off, Q there stands for its rest."""
    length: int
    total: float
    """The plain return."""
    discounted: float
    """sum discount^t (reward + offset), with the agent's own discount and offset; without what comes after the end."""
    pieces: tuple[Piece, ...]
    """Of its steps, to draw held-out rows and segments from: all in one piece, or pieces evenly spread over it."""
    terminated: bool
    success: bool | None = None
    """Whether it ended in success, by the last step's info; None if the task does not say."""


class Recorder:
    """Makes an Episode of steps as they come, in at most `room` bytes for its pieces, but no less than two pieces.

    Without `room` all steps are kept. Where they do not fit, every other piece is left out, as often as need be, so
    that early and late steps stay equally likely to be drawn.
    """

    def __init__(self, first: NDArray[np.float32], discount: float, offset: float, room: int | None = None) -> None:
        self._first = self._last = first
        self._discount, self._offset, self._room = discount, offset, room
        self._length = 0
        self._total = self._discounted = 0.0
        self._block: list[float] = []
        self._pieces: list[list[Kept]] = []
        self._every = 1

    def add(self, action: NDArray[np.float32], reward: float, observation: NDArray[np.float32]) -> None:
        """The next step, and the observation that it led to."""
        self._keep((self._last, action, observation, reward))
        self._last = observation
        self._length += 1
        self._block.append(reward)
        if len(self._block) == REWARD_BLOCK:
            self._sum_block()

    def _keep(self, step: Kept) -> None:
        number, place = divmod(self._length, PIECE)
        if place == 0 and self._room is not None:
            piece_bytes = PIECE * (step[0].nbytes + step[1].nbytes)
            if len(self._pieces) >= max(2, self._room // piece_bytes) and number % self._every == 0:
                self._pieces = self._pieces[::2]
                self._every *= 2
        if number % self._every:
            return
        if place == 0:
            self._pieces.append([])
        self._pieces[-1].append(step)

    def _sum_block(self) -> None:
        rewards = np.asarray(self._block, np.float32)
        self._total += float(rewards.sum(dtype=np.float64))
        begin = self._discount ** (self._length - len(rewards))
        self._discounted += begin * float(self._discount ** np.arange(len(rewards)) @ (rewards + self._offset))
        self._block = []

    def episode(self, terminated: bool, success: bool | None = None) -> Episode:
        """What was kept, at the episode's end."""
        self._sum_block()
        pieces = [list(chain(*self._pieces))] if self._every == 1 else self._pieces
        joined = tuple(_joined(steps) for steps in pieces)
        numbers = (self._length, self._total, self._discounted)
        return Episode(self._first, self._last, *numbers, joined, terminated, success)


def _joined(steps: list[Kept]) -> Piece:
    before, actions, after, rewards = zip(*steps, strict=True)
    return Piece(np.stack([*before, after[-1]]), np.stack(actions), np.asarray(rewards, np.float32))


def diagnose(
    algorithm: Algorithm, config: Any, state: State, episodes: list[Episode], time_limit: int, seed: int = 0
) -> dict[str, float]:
    """All diagnostics that the agent allows, by name."""
    generator = np.random.default_rng(seed)
    metrics = value_diagnostics(algorithm, config, state.actor_critic, episodes)
    if not algorithm.has_model:
        return metrics
    state = cast(ModelState, state)
    key, rows = jax.random.key(seed), held_out(episodes, generator)
    metrics |= _floats(model_errors(state.world, rows, windows(episodes, generator), key))
    classifier = cast(ClassifierState, state).classifier if algorithm.has_classifier else None
    if classifier is not None:
        metrics |= _floats(classifier_diagnostics(config, state.world, classifier, rows, key))
    return metrics | model_returns(algorithm, config, state, episodes, time_limit, key)


def diagnose_on_data(algorithm: Algorithm, config: Any, state: State, replay: Replay, seed: int) -> dict[str, float]:
    """What data alone tell of an agent: Q and log p/q where they are, against where its policy goes from there."""
    return _floats(data_diagnostics(algorithm, config, state, replay, jax.random.key(seed)))


@program(static=("algorithm", "config"))
def data_diagnostics(
    algorithm: Algorithm, config: Any, state: State, replay: Replay, key: PRNGKeyArray
) -> dict[str, Array]:
    """The same as arrays. With `calibrate` the rows are those that neither model nor classifier has learned from."""
    batch_key, policy_key, *keys = jax.random.split(key, 6)
    held_out = algorithm.has_classifier and config.calibrate
    rows = (replay.sample_held_out if held_out else replay.sample)(batch_key, ROWS)
    actor_critic = state.actor_critic
    actions, _ = actor_critic.averaged_actor.sample(rows.observations, policy_key)
    places = {"data": rows.actions, "policy": actions}
    metrics = {
        f"q_{name}": actor_critic.lower_q(actor_critic.critics, rows.observations, actions).mean()
        for name, actions in places.items()
    }
    if not held_out:
        return metrics
    world, classifier = cast(ClassifierState, state).world, cast(ClassifierState, state).classifier
    metrics |= model_errors(world, rows, None, keys[0])
    metrics |= classifier_diagnostics(config, world, classifier, rows, keys[1])
    for key, (name, actions) in zip(keys[2:], places.items(), strict=True):
        ratios = model_ratios(config, world, classifier, rows.observations, actions, config.ratio_samples, key)
        metrics[f"log_ratio_{name}"] = ratios.mean()
    return metrics


def model_returns(
    algorithm: Algorithm, config: Any, state: ModelState, episodes: list[Episode], time_limit: int, key: PRNGKeyArray
) -> dict[str, float]:
    """`imagined_returns` from the episodes' starts; the bound where there is a classifier and no reward was <= 0."""
    starts = np.stack([episode.first for episode in episodes])
    classifier = cast(ClassifierState, state).classifier if algorithm.has_classifier else None
    offset = algorithm.reward_offset(config)
    with_bound = classifier is not None and float(state.world.statistics.rewards.lowest[0]) + offset > 0
    parts = (state.actor_critic, state.world, classifier)
    return _floats(imagined_returns(config, with_bound, offset, *parts, starts, min(time_limit, BOUND_HORIZON), key))


def value_diagnostics(
    algorithm: Algorithm, config: Any, actor_critic: ActorCritic, episodes: list[Episode]
) -> dict[str, float]:
    """Q at the episodes' starts against the discounted return obtained.

    Where an episode was cut off, Q stands for its rest. For agents whose Q is the logarithm of a return, both are
    returns, exp Q and with the reward offset, and `bound` and `log_return` are compared as logarithms.
    """
    first = np.stack([episode.first for episode in episodes])
    last = np.stack([episode.last for episode in episodes])
    start_values, end_values = (
        np.asarray(_mode_values(actor_critic, first)),
        np.asarray(_mode_values(actor_critic, last)),
    )
    offset = algorithm.reward_offset(config)
    after_end = offset / (1.0 - config.discount)
    if algorithm.log_returns:
        start_values, end_values = np.exp(start_values), np.exp(end_values)
    obtained = []
    for episode, end_value in zip(episodes, end_values, strict=True):
        rest = after_end if episode.terminated else end_value
        obtained.append(episode.discounted + float(config.discount**episode.length * rest))
    metrics = {"q_at_start": float(start_values.mean()), "discounted_return": float(np.mean(obtained))}
    if metrics["discounted_return"] > 0 and (algorithm.log_returns or algorithm.has_classifier):
        metrics["log_return"] = float(np.log(metrics["discounted_return"]))
    return metrics


@program()
def _mode_values(actor_critic: ActorCritic, observations: Array) -> Float[Array, " batch"]:
    actions = actor_critic.averaged_actor.mode(observations)
    return actor_critic.lower_q(actor_critic.critics, observations, actions)


def held_out(episodes: list[Episode], generator: np.random.Generator) -> Transitions:
    """ROWS transitions of the episodes' pieces, drawn with replacement."""
    pieces = [piece for episode in episodes for piece in episode.pieces]
    observations = np.concatenate([piece.observations[:-1] for piece in pieces])
    next_observations = np.concatenate([piece.observations[1:] for piece in pieces])
    actions = np.concatenate([piece.actions for piece in pieces])
    rows = generator.integers(0, len(actions), ROWS)
    columns: tuple[Any, ...] = (
        observations[rows],
        actions[rows],
        np.zeros(ROWS, np.float32),
        next_observations[rows],
        np.ones(ROWS, np.float32),
    )
    return Transitions(*columns)


def windows(episodes: list[Episode], generator: np.random.Generator) -> tuple[NDArray, NDArray] | None:
    """WINDOWS segments of WINDOW steps: observations [WINDOW + 1, rows, obs], actions [WINDOW, rows, act]; or None."""
    pieces = [piece for episode in episodes for piece in episode.pieces]
    starts = [(p, t) for p, piece in enumerate(pieces) for t in range(len(piece.actions) - WINDOW + 1)]
    if not starts:
        return None
    chosen = [starts[i] for i in generator.integers(0, len(starts), WINDOWS)]
    observations = np.stack([pieces[p].observations[t : t + WINDOW + 1] for p, t in chosen], axis=1)
    return observations, np.stack([pieces[p].actions[t : t + WINDOW] for p, t in chosen], axis=1)


@program()
def model_errors(
    world: World, rows: Transitions, segments: tuple[Array, Array] | None, key: PRNGKeyArray
) -> dict[str, Array]:
    """Mean squared error of the target model's means, after 1 step and after 10 on its own predictions.

    In units of the normalized change; an error that is as large as a jump in every step counts by its logarithm. The
    constant predictor always moves by the mean change of the training data.
    """

    def step(observations: Array, actions: Array) -> Array:
        changes = world.target_dynamics.sample(world.inputs(observations, actions), key, noise_scale=0.0)
        return world.next_observations(observations, changes)

    scale = world.statistics.changes.unit
    drift = world.statistics.changes.mean

    def error(predicted: Array, real: Array, steps: int = 1) -> Array:
        return jnp.square(steps * squash((predicted - real) / scale / steps)).mean()

    metrics = {
        "model_error_1": error(step(rows.observations, rows.actions), rows.next_observations),
        "constant_error_1": error(rows.observations + drift, rows.next_observations),
    }
    if segments is not None:
        observations, actions = segments
        predicted, _ = jax.lax.scan(lambda s, a: (step(s, a), None), observations[0], actions)
        metrics["model_error_10"] = error(predicted, observations[-1], WINDOW)
        metrics["constant_error_10"] = error(observations[0] + WINDOW * drift, observations[-1], WINDOW)
    return metrics


@program(static=("config",))
def classifier_diagnostics(
    config: Any, world: World, classifier: Classifier, rows: Transitions, key: PRNGKeyArray
) -> dict[str, Array]:
    """Accuracy and calibration error (10 bins) on held-out transitions against the target model's at the same (s, a).

    The probability of being real is p/(p+q) from the log ratio: the smoothing of the labels is undone.
    """
    inputs = world.inputs(rows.observations, rows.actions)
    model_key, *noise_keys = jax.random.split(key, 3)
    changes = world.target_dynamics.sample(inputs, model_key)
    fakes = rows._replace(next_observations=world.next_observations(rows.observations, changes))
    real, fake = (
        log_ratios(config, world, classifier, part, noise_key)
        for part, noise_key in zip((rows, fakes), noise_keys, strict=True)
    )
    return {
        "held_out_accuracy": classifier_accuracy(real, fake),
        "calibration_error": calibration_error(jax.nn.sigmoid(real), jax.nn.sigmoid(fake)),
    }


def calibration_error(real: Float[Array, " rows"], fake: Float[Array, " rows"], bins: int = 10) -> Float[Array, ""]:
    """sum over bins of share of rows * | share of real ones in the bin - mean predicted probability in the bin |."""
    probabilities = jnp.concatenate([real, fake])
    labels = jnp.concatenate([jnp.ones_like(real), jnp.zeros_like(fake)])
    which = jnp.minimum((probabilities * bins).astype(int), bins - 1)
    excess = jnp.zeros(bins).at[which].add(labels - probabilities)
    return jnp.abs(excess).sum() / len(probabilities)


@program(static=("config", "with_bound", "offset"))
def imagined_returns(
    config: Any,
    with_bound: bool,
    offset: float,
    actor_critic: ActorCritic,
    world: World,
    classifier: Classifier | None,
    starts: Float[Array, "episodes obs"],
    time_limit: Array | int,
    key: PRNGKeyArray,
) -> dict[str, Array]:
    """The deterministic policy's return in the target model, up to the time limit; and with a classifier the bound.

    The bound is E_q sum discount^t [ (1-discount) log r + discount log p/q - (1-discount) log(1-discount) ]; where
    the episode may have ended the rest is the log value of being paid the offset for ever.
    """
    discount = config.discount

    def step(t: Array, carry: tuple[Array, ...]) -> tuple[Array, ...]:
        observations, alive, total, bound = carry
        actions = actor_critic.averaged_actor.mode(observations)
        model_key, noise_key = jax.random.split(jax.random.fold_in(key, t))
        rows = world.step(world.target_dynamics, config.termination, observations, actions, model_key)
        total = total + alive * rows.rewards
        if with_bound:
            assert classifier is not None
            ratios = ratio_terms(config, world, classifier, rows, noise_key)
            lowest = world.statistics.rewards.lowest[0]
            gain = mnm_reward(jnp.maximum(rows.rewards, lowest) + offset, ratios, discount, ratio_weight=discount)
            if offset > 0:
                gain = gain + discount * (1 - rows.continues) * absorbing_log_value(offset, discount)
            bound = bound + discount**t * alive * gain
        alive = alive * rows.continues
        # A row that has ended stays where it is: what follows counts nothing, but must not overflow.
        return jnp.where(alive[:, None] > 1e-6, rows.next_observations, observations), alive, total, bound

    nothing = jnp.zeros(len(starts))
    carry = jax.lax.fori_loop(0, time_limit, step, (starts, nothing + 1.0, nothing, nothing))
    metrics = {"model_return": carry[2].mean()}
    if with_bound:
        _, _, _, bound = jax.lax.fori_loop(time_limit, BOUND_HORIZON, step, carry)
        metrics["bound"] = bound.mean()
    return metrics


def _floats(values: dict[str, Array]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}
