"""The classifier of real against model transitions, and the model that plays against it: what MnM and its kin share.

Departs from the paper in one linear map: the classifier sees normalized (s, a, s' - s), where the paper has (s, a, s').
The input noise is then in units of what changes in a step; of the states' spread, 0.1 would hide small steps.
And the model's objective has log p/q where the paper has the logit: with smoothed labels the logit has a floor,
log(s/(1-s)), and V has none, so that a model may leave the real transitions altogether and gain V without limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents import world_model
from mnm.agents.actor_critic import Actor, plain_values
from mnm.agents.base import Count, CountOrZero, Layers, Metrics, NonNegative, Positive, Rate, Share
from mnm.agents.world_model import (
    AgentState,
    ModelConfig,
    World,
    decayed_step,
    moved_dynamics,
    real_rows,
    target_errors,
    update_heads,
)
from mnm.losses.classifier import (
    bounded_log_ratio,
    calibration_step,
    classifier_accuracy,
    classifier_loss,
    expected_log_ratio,
    log_ratio,
    pessimistic_log_ratio,
)
from mnm.losses.model import adversarial_loss, gaussian_nll, likelihood_loss, value_unit
from mnm.networks import MLP, GaussianDynamics
from mnm.replay import Replay, Transitions


@dataclass(frozen=True)
class AdversarialConfig(ModelConfig):
    """Settings of the agents with a classifier."""

    classifier_hidden: Layers = (1024, 1024)
    """Hidden layers of the classifier."""
    classifier_learning_rate: Positive = 1e-3
    classifier_weight_decay: NonNegative = 0.0
    """As the model's. A classifier that has to keep its weights small says little where it has no data."""
    input_noise: NonNegative = 0.1
    """Standard deviation of the noise on the classifier's normalized inputs, wherever it is asked."""
    smoothing: Share = 0.1
    """Label smoothing of the classifier's negatives."""
    likelihood_weight: NonNegative = 1.0
    """Of the likelihood of real transitions in the model's objective, beside the classifier's and the value term."""
    value_weight: NonNegative = 1.0
    """Of the value term in the model's objective."""
    ratio_samples: Count = 8
    """Next states of the model over which log p/q given (s, a) is averaged in the reward; 1: at one, as the paper."""
    calibrate: bool = False
    """Whether log p/q is believed only as far as transitions that were held out bear it out."""
    policy_negatives: Share = 0.0
    """The weight, among the classifier's negatives, of model transitions at the policy's actions in real states: by
    them it learns where there are no data. 0: all are at real actions, as in the paper."""
    value_term_start: CountOrZero = 200_000
    """Updates, the warm-up's included, before the value term enters the model's objective."""


@dataclass(frozen=True)
class PricedConfig(AdversarialConfig):
    """Settings of the agents in whose reward log p/q stands: their policy goes where it is large, right or wrong."""

    classifier_learning_rate: Positive = 3e-4
    classifier_weight_decay: NonNegative = 0.3
    calibrate: bool = True
    error_limit: Positive | None = 10.0
    pessimism_rate: NonNegative = 0.0
    """Their Q has log p/q of the model's steps in it: real transitions alone cannot tell whether it is too high."""
    trust_rate: Rate | None = None
    """For the same reason."""
    real_ratio: Share = 0.5
    """More of the model's rows: log p/q stands in their rewards alone."""


SETTINGS: dict[str, dict[str, Any]] = {
    "paper": world_model.SETTINGS["paper"]
    | {
        "classifier_learning_rate": 3e-4,
        "classifier_weight_decay": 0.0,
        "likelihood_weight": 0.0,
        "ratio_samples": 1,
        "calibrate": False,
        "error_limit": None,
    },
    "cpu": world_model.SETTINGS["cpu"] | {"classifier_hidden": (128, 128), "value_term_start": 5_000},
    "quick": world_model.SETTINGS["quick"] | {"classifier_hidden": (64, 64), "value_term_start": 400},
}
"""What each scale changes."""

OFFLINE: dict[str, Any] = {"policy_negatives": 0.5, "calibrate": True}
"""What learning from a data set changes: no real step will ever correct a model where there are no data."""

CALIBRATION_RATE = 0.01
"""How fast the trust in the classifier follows what held-out transitions say: over a hundred updates."""

HIGHEST_PRICE = 1.0
"""Of a nat of doubt, in units of the rewards' spread."""


class Classifier(eqx.Module):
    """The network, its optimiser's state, and how far its ratio is believed."""

    network: MLP
    """Normalized s, a, s' - s -> logit of being real."""
    optimiser: optax.OptState
    trust: Float[Array, ""]
    """Between 0 and 1: what log p/q is multiplied with, so that it is calibrated on held-out transitions."""

    def logits(
        self, world: World, transitions: Transitions, input_noise: float, key: PRNGKeyArray
    ) -> Float[Array, " batch"]:
        """The logits of transitions with the noise that the classifier was trained with.

        The ratio that it knows is that of noisy densities. At noisy samples of the model its mean logarithm is minus
        their divergence, never above 0; at samples without noise, near the centres, it can be far above.
        """
        inputs = world.inputs(transitions.observations, transitions.actions)
        changes = world.changes(transitions.observations, transitions.next_observations)
        rows = jnp.concatenate([inputs, changes], axis=-1)
        return self.network(rows + input_noise * jax.random.normal(key, rows.shape))[..., 0]


class AdversarialState(AgentState):
    """All of an agent with a classifier."""

    classifier: Classifier


def init(config: AdversarialConfig, observation_dim: int, action_dim: int, key: PRNGKeyArray) -> AdversarialState:
    """A new agent with a classifier."""
    agent_key, classifier_key = jax.random.split(key)
    agent = world_model.init(config, observation_dim, action_dim, agent_key)
    network = MLP(classifier_key, (2 * observation_dim + action_dim, *config.classifier_hidden, 1))
    classifier = Classifier(network, optax.adam(config.classifier_learning_rate).init(network), jnp.ones(()))
    return AdversarialState(agent.actor_critic, agent.world, agent.model_buffer, agent.key, classifier)


def log_ratios(
    config: AdversarialConfig, world: World, classifier: Classifier, experience: Transitions, key: PRNGKeyArray
) -> Float[Array, " batch"]:
    """log p/q of transitions, by the classifier, at one draw of its input noise."""
    return log_ratio(classifier.logits(world, experience, config.input_noise, key), config.smoothing)


def model_ratios(
    config: AdversarialConfig,
    world: World,
    classifier: Classifier,
    observations: Float[Array, "batch obs"],
    actions: Float[Array, "batch act"],
    samples: int,
    key: PRNGKeyArray,
) -> Float[Array, "samples batch"]:
    """log p/q at several next states of the model for each (s, a), each with input noise of its own."""
    model_key, noise_key = jax.random.split(key)
    inputs = world.inputs(observations, actions)
    means, log_stds = world.target_dynamics.one_each(inputs)
    changes = means + jnp.exp(log_stds) * jax.random.normal(model_key, (samples, *means.shape))
    repeated = jnp.broadcast_to(inputs, (samples, *inputs.shape))
    rows = jnp.concatenate([repeated, changes], axis=-1)
    rows = rows + config.input_noise * jax.random.normal(noise_key, rows.shape)
    logits = classifier.network(rows.reshape(-1, rows.shape[-1]))
    return bounded_log_ratio(logits.reshape(rows.shape[:-1]), config.smoothing)


def ratio_terms(
    config: AdversarialConfig, world: World, classifier: Classifier, rows: Transitions, key: PRNGKeyArray
) -> Float[Array, " batch"]:
    """What stands for log p/q in the reward of the model's rows: E_q[ log p/q | s, a ], as far as it is believed.

    Minus the divergence of the model at (s, a). With one sample, log p/q of the row itself.
    """
    if config.ratio_samples == 1:
        return classifier.trust * log_ratios(config, world, classifier, rows, key)
    ratios = model_ratios(config, world, classifier, rows.observations, rows.actions, config.ratio_samples, key)
    return expected_log_ratio(classifier.trust * ratios)


def pessimistic_terms(
    config: AdversarialConfig, world: World, classifier: Classifier, rows: Transitions, key: PRNGKeyArray
) -> Float[Array, " batch"]:
    """What the model says of (s, a) beyond what the data know, in nats, as far as it is believed; never above 0."""
    ratios = model_ratios(config, world, classifier, rows.observations, rows.actions, config.ratio_samples, key)
    return pessimistic_log_ratio(classifier.trust * ratios)


def experience_ratios(
    config: AdversarialConfig,
    state: AdversarialState,
    experience: Transitions,
    key: PRNGKeyArray,
    terms_of: Callable[..., Array] = ratio_terms,
) -> Float[Array, "batches rows"]:
    """The same of batches of experience, real rows first. A real row is a sample of the model q = p: 0."""
    batches, real = len(experience.rewards), real_rows(config)
    model_rows = jax.tree.map(lambda column: column[:, real:].reshape(-1, *column.shape[2:]), experience)
    terms = terms_of(config, state.world, state.classifier, model_rows, key)
    return jnp.concatenate([jnp.zeros((batches, real)), terms.reshape(batches, -1)], axis=1)


def sample_real(config: AdversarialConfig, replay: Replay, key: PRNGKeyArray) -> Transitions:
    """Real transitions that model and classifier learn from."""
    sample = replay.sample_training if config.calibrate else replay.sample
    return sample(key, config.batch_size)


def calibrated(
    config: AdversarialConfig, world: World, actor: Actor, classifier: Classifier, replay: Replay, key: PRNGKeyArray
) -> Classifier:
    """The classifier with its trust moved towards what held-out transitions bear out.

    They are compared with the model's own at the same (s, a), a share of them at the policy's actions if the
    classifier's negatives are; neither player has learned from them.
    """
    if not config.calibrate:
        return classifier
    batch_key, real_key, model_key = jax.random.split(key, 3)
    held_out = replay.sample_held_out(batch_key, config.batch_size)
    real = bounded_log_ratio(classifier.logits(world, held_out, config.input_noise, real_key), config.smoothing)
    actions = held_out.actions
    if config.policy_negatives > 0:
        model_key, policy_key = jax.random.split(model_key)
        count = round(config.policy_negatives * config.batch_size)
        chosen, _ = actor.sample(held_out.observations[:count], policy_key)
        actions = jnp.concatenate([chosen, actions[count:]])
    fake = model_ratios(config, world, classifier, held_out.observations, actions, 1, model_key)[0]
    trust = calibration_step(classifier.trust, real, fake, CALIBRATION_RATE)
    return eqx.tree_at(lambda c: c.trust, classifier, trust)


def price_of_doubt(config: AdversarialConfig, state: AdversarialState, replay: Replay, key: PRNGKeyArray) -> Array:
    """What a nat of doubt costs, in units of the rewards' spread, by transitions that were held out.

    E[ abs( y - m ) ] / E[ -`pessimistic_terms` ]: how far the targets m that the model makes are off there, for as much
    doubt as the classifier has there. Never above HIGHEST_PRICE, so that a classifier without any doubt of them does
    not make others dear without limit.
    """
    batch_key, error_key, ratio_key = jax.random.split(key, 3)
    held_out = replay.sample_held_out(batch_key, config.batch_size)
    error = target_errors(config, state.world, state.actor_critic, held_out, error_key).mean()
    doubt = -pessimistic_terms(config, state.world, state.classifier, held_out, ratio_key).mean()
    return HIGHEST_PRICE * error / jnp.maximum(HIGHEST_PRICE * doubt, jnp.maximum(error, 1e-8))


def update_model_and_classifier(
    config: AdversarialConfig,
    state: AdversarialState,
    batch: Transitions,
    value_weight: Float[Array, ""] | None,
    value_term: Literal["relative", "raw"],
    key: PRNGKeyArray,
) -> tuple[World, Classifier, Metrics]:
    """One step of both players, each against the other as it was: dynamics, classifier; then rewards, termination.

    The model maximises log p/q + value_weight V(s'), V in units of its spread if it is relative; and the likelihood of
    real transitions, which has the same optimum as log p/q.

    The model's samples s' serve both players, with the same noise on them. The model sees the classifier's and the
    critics' parameters as constants, the classifier the samples; the critics are the target networks.

    With `policy_negatives` the classifier also sees what the target model makes of the policy's actions in the same
    states: its ratio is then d(s) b(a|s) p(s'|s,a) over d(s) [(1-w) b(a|s) + w pi(a|s)] q(s'|s,a), b the policy that
    made the data, and goes to 0 where pi goes and b does not.
    """
    world, network = state.world, state.classifier.network
    model_key, target_key, noise_key, policy_key, *more_keys = jax.random.split(
        key, 7 if config.policy_negatives else 4
    )
    inputs = world.inputs(batch.observations, batch.actions)
    real_changes = world.changes(batch.observations, batch.next_observations)
    noise = config.input_noise * jax.random.normal(
        noise_key, (3, len(inputs), inputs.shape[-1] + batch.observations.shape[-1])
    )

    def logits(network: MLP, changes: Array, noise: Array, inputs: Array = inputs) -> Array:
        return network(jnp.concatenate([inputs, changes], axis=-1) + noise)[:, 0]

    def model_objective(dynamics: GaussianDynamics) -> tuple[Array, Array]:
        means, log_stds = dynamics.one_each(inputs)
        changes = means + jnp.exp(log_stds) * jax.random.normal(model_key, means.shape)
        ratios = log_ratio(logits(network, changes, noise[0]), config.smoothing)
        if value_weight is None:
            loss = adversarial_loss(ratios, jnp.zeros_like(ratios), value_weight=0.0)
        else:
            next_observations = world.next_observations(batch.observations, changes)
            values = plain_values(state.actor_critic, next_observations, policy_key)
            unit = value_unit(values) if value_term == "relative" else 1.0
            loss = adversarial_loss(ratios, values / unit, value_weight)
        if config.likelihood_weight > 0:
            # Every member learns from every row.
            nlls = gaussian_nll(*dynamics.distribution(inputs), real_changes, config.nll_beta)
            loss = loss + config.likelihood_weight * likelihood_loss(nlls)
        return loss, changes

    (model_loss, model_changes), model_gradient = jax.value_and_grad(model_objective, has_aux=True)(world.dynamics)
    target_changes = world.target_dynamics.sample(inputs, target_key)
    if config.policy_negatives > 0:
        own_actions, _ = state.actor_critic.actor.sample(batch.observations, more_keys[0])
        own_inputs = world.inputs(batch.observations, own_actions)
        own_changes = world.target_dynamics.sample(own_inputs, more_keys[1])
        own_noise = config.input_noise * jax.random.normal(more_keys[2], noise.shape[1:])

    def classifier_objective(network: MLP) -> tuple[Array, Array]:
        model = logits(network, model_changes, noise[0])
        target = logits(network, target_changes, noise[1])
        real = logits(network, real_changes, noise[2])
        fakes = jnp.concatenate([model, target])
        loss = classifier_loss(real, fakes, config.smoothing)
        if config.policy_negatives > 0:
            own = classifier_loss(real, logits(network, own_changes, own_noise, own_inputs), config.smoothing)
            loss = (1.0 - config.policy_negatives) * loss + config.policy_negatives * own
        return loss, classifier_accuracy(real, fakes)

    (loss, accuracy), gradient = jax.value_and_grad(classifier_objective, has_aux=True)(network)
    rate, decay = config.classifier_learning_rate, config.classifier_weight_decay
    network, optimiser = decayed_step(rate, decay, world.statistics, network, state.classifier.optimiser, gradient)
    classifier = Classifier(network, optimiser, state.classifier.trust)
    world, head_metrics = update_heads(config, moved_dynamics(config, world, model_gradient), batch)
    metrics = {"model_loss": model_loss, "classifier_loss": loss, "classifier_accuracy": accuracy}
    return world, classifier, metrics | head_metrics


def delayed(config: AdversarialConfig, update_step: Array, weight: float = 1.0) -> Float[Array, ""]:
    """The value term's weight: 0 before its delay has passed."""
    return jnp.where(update_step >= config.value_term_start, config.value_weight * weight, 0.0)


def warm_up(
    config: AdversarialConfig, state: AdversarialState, replay: Replay, _: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of model and classifier alone; Q means nothing yet."""
    key, batch_key, model_key = jax.random.split(state.key, 3)
    batch = sample_real(config, replay, batch_key)
    world, classifier, metrics = update_model_and_classifier(config, state, batch, None, "raw", model_key)
    return AdversarialState(state.actor_critic, world, state.model_buffer, key, classifier), metrics
