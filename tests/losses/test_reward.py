"""Rewards and targets: by hand, against the exact code, and at extremes."""

import jax.numpy as jnp
import numpy as np
import pytest

from mnm.losses.reward import absorbing_log_value, mnm_reward, td_target, tight_target, vmbpo_reward
from mnm.tabular import evaluate_policy, random_mdp, random_model, tight_model
from mnm.tabular.bounds import augmented_rewards, log_ratio, penalised_values, tight_values
from mnm.tabular.mdp import deterministic_policy

ONE = jnp.ones(1)


def test_mnm_reward_by_hand():
    # (1 - 0.9) log 2 + 0.9 * (-0.5) - 0.1 log 0.1
    expected = 0.1 * np.log(2.0) - 0.45 - 0.1 * np.log(0.1)
    assert mnm_reward(2 * ONE, -0.5 * ONE, 0.9, ratio_weight=0.9) == pytest.approx(expected, abs=1e-6)


def test_vmbpo_reward_by_hand():
    assert vmbpo_reward(2 * ONE, -0.5 * ONE, temperature=2.0) == pytest.approx(1.75)


@pytest.mark.parametrize(("continues", "expected"), [(1.0, 2 + 0.9 * 5), (0.0, 2 + 0.9 * 7), (0.5, 2 + 0.9 * 6)])
def test_td_target_by_hand(continues, expected):
    target = td_target(2 * ONE, continues * ONE, 5 * ONE, 0.9, absorbing_value=7.0)
    assert target == pytest.approx(expected, abs=1e-6)


def test_tight_target_by_hand():
    # log(2 + 0.5 * exp(log(1/2) + log 8)) = log 4
    target = tight_target(2 * ONE, jnp.log(0.5 * ONE), ONE, jnp.log(8 * ONE), 0.5)
    assert target == pytest.approx(np.log(4.0), abs=1e-6)


def test_tight_target_after_the_end():
    assert tight_target(2 * ONE, ONE, 0 * ONE, ONE, 0.5) == pytest.approx(np.log(2.0), abs=1e-6)
    # The absorbing state pays 3 for ever: log(2 + 0.5 * 3 / 0.5).
    assert tight_target(2 * ONE, ONE, 0 * ONE, ONE, 0.5, absorbing_reward=3.0) == pytest.approx(np.log(5.0), abs=1e-6)


def test_tight_target_does_not_overflow():
    target = tight_target(
        jnp.array([1e-30, 1e30]), jnp.array([500.0, -500.0]), jnp.ones(2), jnp.array([500.0, 500.0]), 0.9
    )
    assert np.isfinite(target).all()
    assert target[0] == pytest.approx(1000 + np.log(0.9), abs=1e-3)


def test_absorbing_value():
    assert absorbing_log_value(0.5, 0.9) == pytest.approx(np.log(5.0), abs=1e-6)


def case(seed):
    mdp = random_mdp(5, 2, seed=seed)
    policy = deterministic_policy(np.random.default_rng(seed).integers(2, size=5), 2)
    return mdp, policy, random_model(mdp, seed=seed + 1)


def expected_under(model, policy, values):
    return (policy * (model.probs * np.asarray(values)).sum(axis=-1)).sum(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1.0, 0.9])
def test_the_exact_bound_is_a_fixed_point_of_the_deep_target(weight):
    mdp, policy, model = case(3)
    values = penalised_values(mdp, policy, model, augmented_rewards(mdp), weight)
    rewards = mnm_reward(
        jnp.asarray(mdp.expected_rewards)[:, :, None] * jnp.ones(5),
        jnp.asarray(log_ratio(mdp.dynamics, model)),
        0.9,
        weight,
    )
    targets = td_target(rewards, jnp.ones_like(rewards), jnp.asarray(values[model.successors]), 0.9)
    np.testing.assert_allclose(expected_under(model, policy, targets), values, atol=1e-4)


def test_the_exact_tight_bound_is_a_fixed_point_of_its_target():
    mdp, policy, model = case(4)
    values = tight_values(mdp, policy, model)
    rewards = jnp.asarray(mdp.expected_rewards)[:, :, None] * jnp.ones(5)
    ratios, next_values = jnp.asarray(log_ratio(mdp.dynamics, model)), jnp.asarray(values[model.successors])
    targets = tight_target(rewards, ratios, jnp.ones_like(rewards), next_values, 0.9)
    np.testing.assert_allclose(expected_under(model, policy, targets), values, atol=1e-4)


def test_at_the_tight_model_every_sample_has_the_same_target():
    mdp, policy, _ = case(5)
    returns = evaluate_policy(mdp, policy)
    model = tight_model(mdp, returns)
    rewards = jnp.asarray(mdp.expected_rewards)[:, :, None] * jnp.ones(5)
    ratios, next_values = jnp.asarray(log_ratio(mdp.dynamics, model)), jnp.asarray(np.log(returns)[model.successors])
    targets = np.asarray(tight_target(rewards, ratios, jnp.ones_like(rewards), next_values, 0.9))
    assert np.ptp(targets, axis=-1).max() < 1e-4
