"""MnM-tight: the deep version of the ladder's tight bound.

The critics learn log Q with the target log(r + discount (p/q) exp l(s')), the model maximises log p/q + l(s'), the
policy maximises log Q. At the best model, q ~ p V(s'), all samples have the same target, and the bound is tight.
"""

from __future__ import annotations

import jax
from jaxtyping import Array

from mnm.agents.actor_critic import next_values, update_actor_critic
from mnm.agents.algorithm import Algorithm, Metrics
from mnm.agents.classifier import AdversarialState, init, log_ratios, prepare, update_model_and_classifier, warm_up
from mnm.agents.mnm import PRESETS, MnMConfig
from mnm.agents.world_model import imagine
from mnm.losses.reward import tight_target
from mnm.replay import Replay


def update(
    config: MnMConfig, state: AdversarialState, replay: Replay, number: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of everything: Algorithm 1, whose lines are named."""
    key, batch_key, ratio_key, policy_key, model_key = jax.random.split(state.key, 5)
    imagine_key, experience_key, value_key, actor_key = jax.random.split(policy_key, 4)
    batch = replay.sample(batch_key, config.batch_size)
    # Line 2: sample experience from the learned model.
    imagined = state.imagined.add(imagine(config, state.world, state.actor_critic.policy, batch, imagine_key))
    experience = imagined.sample(experience_key, config.batch_size)
    values = next_values(state.actor_critic, experience.next_observations, value_key)
    # Line 3: the ratio of the classifier weighs what follows, inside of the logarithm.
    ratios = log_ratios(config, state.world, state.classifier, experience, ratio_key)
    rewards = experience.rewards + config.reward_offset
    targets = tight_target(rewards, ratios, experience.continues, values, config.discount, config.reward_offset)
    # Line 4: update Q and policy on it.
    actor_critic, metrics = update_actor_critic(
        config, state.actor_critic, experience.observations, experience.actions, targets, actor_key
    )
    # Line 5: update model and classifier, which see Q and policy as they were.
    world, classifier, model_metrics = update_model_and_classifier(
        config, state, batch, number, model_key, lambda log_values: log_values
    )
    return AdversarialState(actor_critic, world, imagined, key, classifier), metrics | model_metrics


ALGORITHM = Algorithm(
    "mnm_tight",
    "MnM with the tight bound: a critic of log Q",
    PRESETS,
    init,
    update,
    warm_up,
    prepare,
    log_returns=True,
)
