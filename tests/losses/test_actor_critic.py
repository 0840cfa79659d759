"""Soft actor-critic's losses: by hand, and gradients that stop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnm.losses.actor_critic import (
    actor_loss,
    critic_loss,
    pessimism_step,
    pessimistic_q,
    shrinkage,
    soft_values,
    temperature_loss,
)

Q_VALUES = jnp.array([[1.0, 5.0], [2.0, 4.0]])
LOG_PROBS = jnp.array([-1.0, -3.0])


@pytest.mark.slow
def test_errors_beyond_the_limit_count_linearly():
    """Errors 1, 1, 2, 0: with limit 1.5 the third counts 2 * 1.5 * 2 - 1.5^2 = 3.75, with slope 3."""
    targets = jnp.array([0.0, 4.0])
    assert critic_loss(Q_VALUES, targets, 1.5) == pytest.approx((1 + 1) / 2 + (3.75 + 0) / 2)
    assert critic_loss(Q_VALUES, targets, 2.5) == critic_loss(Q_VALUES, targets)
    slopes = jax.grad(lambda q: critic_loss(q, targets, 1.5))(Q_VALUES)
    np.testing.assert_allclose(np.abs(slopes), [[1.0, 1.0], [1.5, 0.0]])


def test_critic_loss_by_hand():
    assert critic_loss(Q_VALUES, jnp.array([0.0, 4.0])) == pytest.approx((1 + 1) / 2 + (4 + 0) / 2)
    assert not np.asarray(jax.grad(critic_loss, argnums=1)(Q_VALUES, jnp.array([0.0, 4.0]))).any()


@pytest.mark.slow
def test_a_row_s_gradient_is_that_of_a_target_so_far_from_q_as_its_weight_says():
    targets, weights = jnp.array([0.0, 9.0]), jnp.array([1.0, 0.25])
    assert critic_loss(Q_VALUES, targets, weights=weights) == pytest.approx((1 + 16 / 4) / 2 + (4 + 25 / 4) / 2)
    nearer = Q_VALUES + weights * (targets - Q_VALUES)
    slopes = jax.grad(lambda q: critic_loss(q, targets, weights=weights))(Q_VALUES)
    np.testing.assert_allclose(slopes, Q_VALUES - nearer, rtol=1e-6)


def test_shrinkage_is_the_best_share_of_the_model_s_errors():
    """The b for which b (m - Q) is nearest to y - Q, by least squares; and never a share below 0 or above 1."""
    rng = np.random.default_rng(0)
    models = rng.normal(size=200)
    for share in (-0.5, 0.0, 0.3, 1.0, 1.7):
        real = share * models + rng.normal(size=200)
        best = np.linalg.lstsq(models[:, None], real, rcond=None)[0][0]
        found = shrinkage(jnp.asarray((real * models).mean()), jnp.asarray((models**2).mean()))
        assert float(found) == pytest.approx(np.clip(best, 0, 1), abs=1e-5)
    assert float(shrinkage(jnp.array(0.5), jnp.array(0.0))) == 0.0


@pytest.mark.parametrize(("pessimism", "expected"), [(0.0, [1.5, 4.5]), (1.0, [1.0, 4.0]), (3.0, [0.0, 3.0])])
def test_q_lies_below_the_critics_mean_by_halves_of_their_distance(pessimism, expected):
    """0: the mean; 1: the minimum."""
    np.testing.assert_allclose(pessimistic_q(Q_VALUES, pessimism), expected)


@pytest.mark.slow
def test_the_minimum_passes_its_gradient_to_the_lesser_critic_alone():
    np.testing.assert_allclose(jax.grad(lambda q: pessimistic_q(q, 1.0).sum())(Q_VALUES), [[1.0, 0.0], [0.0, 1.0]])
    equal = jnp.ones((2, 1))
    assert float(jax.grad(lambda q: pessimistic_q(q, 1.0).sum())(equal).sum()) == pytest.approx(1.0)


def test_critics_that_promise_too_much_become_more_pessimistic():
    for before, surprise, after in ((1.0, -2.0, 1.2), (1.0, 2.0, 0.8), (0.6, 2.0, 0.5), (4.9, -2.0, 5.0)):
        moved = pessimism_step(jnp.array(before), jnp.array(surprise), rate=0.1, least=0.5, most=5.0)
        assert float(moved) == pytest.approx(after)


def test_discounted_surprises_add_up_to_the_return_less_q():
    """Why they tell of Q's bias, whatever Q is: r + discount V(s') - Q(s) along a trajectory that ends."""
    rng = np.random.default_rng(0)
    rewards, q, discounts = rng.normal(size=8), rng.normal(size=9), 0.9 ** np.arange(8)
    q[-1] = 0.0  # after the end
    assert discounts @ (rewards + 0.9 * q[1:] - q[:-1]) == pytest.approx(discounts @ rewards - q[0])


def test_soft_values_by_hand():
    np.testing.assert_allclose(soft_values(jnp.array([1.0, 4.0]), LOG_PROBS, jnp.array(0.5)), [1 + 0.5, 4 + 1.5])


def test_actor_loss_by_hand():
    q_values = jnp.array([1.0, 4.0])
    assert actor_loss(q_values, LOG_PROBS, jnp.array(0.5)) == pytest.approx(-(1.5 + 5.5) / 2)
    gradients = jax.grad(actor_loss, argnums=(0, 1, 2))(q_values, LOG_PROBS, jnp.array(0.5))
    np.testing.assert_allclose(gradients[0], [-0.5, -0.5])
    np.testing.assert_allclose(gradients[1], [0.25, 0.25])
    assert float(gradients[2]) == 0.0


def test_temperature_rises_while_the_entropy_is_too_low():
    # Mean log-probability -2: entropy 2. With a target of 3 the loss falls when the temperature rises.
    loss, gradient = jax.value_and_grad(temperature_loss)(jnp.array(0.3), LOG_PROBS, 3.0)
    assert loss == pytest.approx(-0.3 * 1.0, abs=1e-6)
    assert float(gradient) == pytest.approx(-1.0)
    assert float(jax.grad(temperature_loss)(jnp.array(0.3), LOG_PROBS, 1.0)) == pytest.approx(1.0)
    assert not np.asarray(jax.grad(temperature_loss, argnums=1)(jnp.array(0.3), LOG_PROBS, 3.0)).any()
