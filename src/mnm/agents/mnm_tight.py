"""MnM-tight: the deep version of the ladder's tight bound.

The critics learn log Q with the target log(r + discount (p/q) exp l(s')), the model maximises log p/q + l(s'), the
policy maximises log Q. At the best model, q ~ p V(s'), all samples have the same target, and the bound is tight.
"""

from __future__ import annotations

from jaxtyping import Array, Float, PRNGKeyArray

from mnm.agents.adversarial import AdversarialState, init, log_ratios, prepare, update_with, warm_up
from mnm.agents.algorithm import Algorithm, Metrics
from mnm.agents.mnm import PRESETS, MnMConfig
from mnm.losses.reward import tight_target
from mnm.replay import Replay, Transitions


def update(
    config: MnMConfig, state: AdversarialState, replay: Replay, number: Array
) -> tuple[AdversarialState, Metrics]:
    """One update of everything."""
    return update_with(targets, lambda log_values: log_values, config, state, replay, number)


def targets(
    config: MnMConfig,
    state: AdversarialState,
    experience: Transitions,
    log_values: Float[Array, " batch"],
    key: PRNGKeyArray,
) -> Float[Array, " batch"]:
    """log( r + discount (p/q) exp l(s') )."""
    return tight_target(
        experience.rewards + config.reward_offset,
        log_ratios(config, state.world, state.classifier, experience, key),
        experience.continues,
        log_values,
        config.discount,
        config.reward_offset,
    )


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
