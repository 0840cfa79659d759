"""What MnM and its kin share: the classifier of real against model transitions, and the model that plays against it.

Departs from the paper in one linear map: the classifier sees (s, a, s' - s), whitened, where the paper has (s, a, s').
The input noise is then in units of what changes in a step; of the states' spread, 0.1 would hide small steps.
And the model's objective has log p/q where the paper has the logit: with smoothed labels the logit has a floor,
log(s/(1-s)), and V has none, so that a model may leave the real transitions altogether and gain V without limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents import world_model
from mnm.agents.actor_critic import adam_step, plain_values
from mnm.agents.algorithm import Metrics
from mnm.agents.world_model import (
    AgentState,
    ModelConfig,
    World,
    moved_dynamics,
    prepare_world,
    statistics_before,
    transition_whitening,
    update_outcomes,
)
from mnm.losses.classifier import classifier_accuracy, classifier_loss, log_ratio
from mnm.losses.model import adversarial_loss
from mnm.networks import MLP, GaussianDynamics, rewhitened_inputs
from mnm.replay import Replay, Transitions


@dataclass(frozen=True)
class AdversarialConfig(ModelConfig):
    """Settings of the agents with a classifier; the defaults are the paper's."""

    classifier_hidden: tuple[int, ...] = (1024, 1024)
    """Hidden layers of the classifier."""
    input_noise: float = 0.1
    """Standard deviation of the noise on the classifier's whitened inputs, wherever it is asked."""
    smoothing: float = 0.1
    """Label smoothing of the classifier's negatives."""
    value_delay: int = 200_000
    """Updates, the warm-up's included, before the value term enters the model's objective."""


SETTINGS: dict[str, dict[str, Any]] = {
    "paper": world_model.SETTINGS["paper"],
    "cpu": world_model.SETTINGS["cpu"] | {"classifier_hidden": (128, 128), "value_delay": 10_000},
    "quick": world_model.SETTINGS["quick"] | {"classifier_hidden": (64, 64), "value_delay": 400},
}
"""What each scale changes."""


class Classifier(eqx.Module):
    """The network and its optimiser's state."""

    network: MLP
    """Whitened (s, a, s' - s) -> logit of being real."""
    optimiser: optax.OptState

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


Values = Callable[[Float[Array, " batch"]], Float[Array, " batch"]]
"""V(s') in the units of reward or log return -> the term that the model's objective adds to log p/q."""


def init(config: AdversarialConfig, observation_dim: int, action_dim: int, key: PRNGKeyArray) -> AdversarialState:
    """A new agent with a classifier."""
    agent_key, classifier_key = jax.random.split(key)
    agent = world_model.init(config, observation_dim, action_dim, agent_key)
    network = MLP(classifier_key, (2 * observation_dim + action_dim, *config.classifier_hidden, 1))
    classifier = Classifier(network, optax.adam(config.learning_rate).init(network))
    return AdversarialState(agent.actor_critic, agent.world, agent.imagined, agent.key, classifier)


def prepare(state: AdversarialState, replay: Replay, size: int) -> AdversarialState:
    """The agent with its statistics set from the `size` transitions stored; what a network has learned it keeps."""
    world = prepare_world(state.world, replay, size)
    before = statistics_before(state.world, world.statistics)
    whitenings = transition_whitening(before), transition_whitening(world.statistics)
    network = rewhitened_inputs(state.classifier.network, *whitenings)
    return eqx.tree_at(lambda s: (s.world, s.classifier.network), state, (world, network))


def log_ratios(
    config: AdversarialConfig, world: World, classifier: Classifier, experience: Transitions, key: PRNGKeyArray
) -> Float[Array, " batch"]:
    """log p/q of transitions, by the classifier, at one draw of its input noise."""
    return log_ratio(classifier.logits(world, experience, config.input_noise, key), config.smoothing)


def update_model_and_classifier(
    config: AdversarialConfig,
    state: AdversarialState,
    batch: Transitions,
    number: Array,
    key: PRNGKeyArray,
    value_term: Values | None,
) -> tuple[World, Classifier, Metrics]:
    """One step of both players, each against the other as it was: dynamics, classifier; then rewards, continuation.

    The model's samples and the classifier's logits on them serve both players. The value term, if there is one, enters
    when `number` reaches its delay.
    """
    world, network = state.world, state.classifier.network
    model_key, slow_key, noise_key, policy_key = jax.random.split(key, 4)
    inputs = world.inputs(batch.observations, batch.actions)
    noise = config.input_noise * jax.random.normal(
        noise_key, (3, len(inputs), inputs.shape[-1] + batch.observations.shape[-1])
    )

    def logits(network: MLP, changes: Array, noise: Array) -> Array:
        return network(jnp.concatenate([inputs, changes], axis=-1) + noise)[:, 0]

    def no_value(changes: Array) -> Array:
        return jnp.zeros(len(changes))

    def value(changes: Array) -> Array:
        if value_term is None:
            return no_value(changes)
        next_observations = world.next_observations(batch.observations, changes)
        return value_term(plain_values(state.actor_critic, next_observations, policy_key))

    def model_objective(dynamics: GaussianDynamics) -> tuple[Array, Array]:
        changes = dynamics.sample(inputs, model_key)
        values = jax.lax.cond(number >= config.value_delay, value, no_value, changes)
        ratios = log_ratio(logits(network, changes, noise[0]), config.smoothing)
        return adversarial_loss(ratios, values, value_weight=1.0), changes

    (model_loss, model_changes), model_gradient = jax.value_and_grad(model_objective, has_aux=True)(world.dynamics)
    slow_changes = world.slow_dynamics.sample(inputs, slow_key)
    real_changes = world.changes(batch.observations, batch.next_observations)

    def classifier_objective(network: MLP) -> tuple[Array, Array]:
        model = logits(network, model_changes, noise[0])
        slow = logits(network, slow_changes, noise[1])
        real = logits(network, real_changes, noise[2])
        fakes = jnp.concatenate([model, slow])
        return classifier_loss(real, fakes, config.smoothing), classifier_accuracy(real, fakes)

    (loss, accuracy), gradient = jax.value_and_grad(classifier_objective, has_aux=True)(network)
    classifier = Classifier(*adam_step(config, network, state.classifier.optimiser, gradient))
    world, outcome_metrics = update_outcomes(config, moved_dynamics(config, world, model_gradient), batch)
    metrics = {"model_loss": model_loss, "classifier_loss": loss, "classifier_accuracy": accuracy}
    return world, classifier, metrics | outcome_metrics


def warm_up(
    config: AdversarialConfig, state: AdversarialState, replay: Replay, number: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of model and classifier alone."""
    key, batch_key, model_key = jax.random.split(state.key, 3)
    batch = replay.sample(batch_key, config.batch_size)
    world, classifier, metrics = update_model_and_classifier(config, state, batch, number, model_key, value_term=None)
    return AdversarialState(state.actor_critic, world, state.imagined, key, classifier), metrics
