"""MnM-approx: MnM's model and classifier, but Q and policy learn from the plain reward.

V is then in units of reward, and V + log p/q would mix units. The value term is V in units of its spread; the paper's
raw V is a setting, and makes the model explode where returns are large.

From a data set alone (`ratio_weight` above 0), what the classifier says of the model's rows is taken off their rewards:
a policy that leaves the data pays for it (docs/offline.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
from jaxtyping import Array

from mnm.agents.actor_critic import update_policy
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import Metrics, NonNegative
from mnm.agents.classifier import (
    OFFLINE,
    SETTINGS,
    AdversarialConfig,
    AdversarialState,
    calibrated,
    delayed,
    experience_ratios,
    init,
    pessimistic_terms,
    price_of_doubt,
    sample_real,
    update_model_and_classifier,
    warm_up,
)
from mnm.agents.world_model import (
    imagine,
    observe,
    real_rows,
    sample_experience,
    trusted_td_steps,
)
from mnm.replay import Replay


@dataclass(frozen=True)
class MnMApproxConfig(AdversarialConfig):
    """Settings of MnM-approx."""

    value_term: Literal["relative", "raw"] = "relative"
    """V in units of its standard deviation in the model's objective, or the paper's V."""
    ratio_weight: NonNegative = 0.0
    """How much of the price a model row pays for each nat by which the classifier doubts it: the price is how wrong the
    model is on held-out transitions for each nat of doubt there. 0: nothing, as in the paper; from a data set 1."""


PRESETS = {scale: MnMApproxConfig(**settings) for scale, settings in SETTINGS.items()}


def update(
    config: MnMApproxConfig, state: AdversarialState, replay: Replay, update_step: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of everything: Algorithm 1, whose lines are named."""
    pessimistic = config.ratio_weight > 0
    key, *keys = jax.random.split(state.key, 11 if pessimistic else 8)
    batch_key, imagine_key, critics_key, noise_key, experience_key, policy_key, model_key, *more_keys = keys
    batch = sample_real(config, replay, batch_key)
    # Line 2: sample experience from the learned model.
    rows = imagine(config, state.world, state.actor_critic.actor, batch, imagine_key)
    model_buffer = state.model_buffer.add(rows)

    # Line 3 is left out: the rewards stay as they are, but for what the data do not know.
    experience = sample_experience(config, replay, model_buffer, critics_key, config.critic_updates)
    if pessimistic:
        ratios = experience_ratios(config, state, experience, more_keys[0], pessimistic_terms)
        price = price_of_doubt(config, state, replay, more_keys[1])
        unit = state.world.statistics.rewards.unit[0]
        experience = experience._replace(rewards=experience.rewards + config.ratio_weight * price * unit * ratios)
    # Line 4: update Q on it,
    actor_critic, metrics = trusted_td_steps(config, state, experience, noise_key)
    # and the policy.
    observations = sample_experience(config, replay, model_buffer, experience_key, 1).observations[0]
    actor_critic, policy_metrics = update_policy(config, actor_critic, observations, policy_key)
    # Line 5: update model and classifier, which see Q and policy as they were.
    world, classifier, model_metrics = update_model_and_classifier(
        config, state, batch, delayed(config, update_step), config.value_term, model_key
    )
    metrics |= policy_metrics | model_metrics
    if pessimistic:
        classifier = calibrated(config, world, state.actor_critic.actor, classifier, replay, more_keys[2])
        doubt = -ratios[:, real_rows(config) :].mean()
        metrics |= {"trust": classifier.trust, "doubt": doubt, "price": price}
    return AdversarialState(actor_critic, world, model_buffer, key, classifier), metrics


ALGORITHM = Algorithm(
    "mnm_approx",
    "MnM's model with the plain reward for the policy",
    PRESETS,
    init,
    observe,
    update,
    warm_up,
    has_model=True,
    has_classifier=True,
    offline=OFFLINE | {"ratio_weight": 1.0},
)
