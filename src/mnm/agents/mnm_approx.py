"""MnM-approx: MnM's model and classifier, but Q and policy learn from the plain reward.

V is then in units of reward, and V + log p/q would mix units. The value term is V / mean |V|, free of scale; the
paper's raw V is a setting, and makes the model explode where returns are large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
from jaxtyping import Array

from mnm.agents.actor_critic import next_values, update_actor_critic
from mnm.agents.algorithm import Algorithm, Metrics
from mnm.agents.classifier import (
    SETTINGS,
    AdversarialConfig,
    AdversarialState,
    init,
    prepare,
    update_model_and_classifier,
    warm_up,
)
from mnm.agents.world_model import imagine
from mnm.losses.model import relative_values
from mnm.losses.reward import td_target
from mnm.replay import Replay


@dataclass(frozen=True)
class MnMApproxConfig(AdversarialConfig):
    """Settings of MnM-approx."""

    value_term: Literal["relative", "raw"] = "relative"
    """V / mean |V| in the model's objective, or the paper's V."""


PRESETS = {scale: MnMApproxConfig(**settings) for scale, settings in SETTINGS.items()}


def update(
    config: MnMApproxConfig, state: AdversarialState, replay: Replay, number: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of everything: Algorithm 1, whose lines are named."""
    key, batch_key, _ratio_key, policy_key, model_key = jax.random.split(state.key, 5)
    imagine_key, experience_key, value_key, actor_key = jax.random.split(policy_key, 4)
    batch = replay.sample(batch_key, config.batch_size)
    # Line 2: sample experience from the learned model.
    imagined = state.imagined.add(imagine(config, state.world, state.actor_critic.policy, batch, imagine_key))
    experience = imagined.sample(experience_key, config.batch_size)
    values = next_values(state.actor_critic, experience.next_observations, value_key)
    # Line 3 is left out: the rewards stay as they are.
    targets = td_target(experience.rewards, experience.continues, values, config.discount)
    # Line 4: update Q and policy on it.
    actor_critic, metrics = update_actor_critic(
        config, state.actor_critic, experience.observations, experience.actions, targets, actor_key
    )
    # Line 5: update model and classifier, which see Q and policy as they were.
    value_term = relative_values if config.value_term == "relative" else lambda values: values
    world, classifier, model_metrics = update_model_and_classifier(config, state, batch, number, model_key, value_term)
    return AdversarialState(actor_critic, world, imagined, key, classifier), metrics | model_metrics


ALGORITHM = Algorithm(
    "mnm_approx", "MnM's model with the plain reward for the policy", PRESETS, init, update, warm_up, prepare
)
