"""The model's losses: by hand, gradients that stop, and Gaussian dynamics with a known optimum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mnm.losses.model import (
    adversarial_loss,
    gaussian_nll,
    likelihood_loss,
    relative_values,
    value_weighted_loss,
    vaml_loss,
)


def test_adversarial_loss_by_hand():
    assert adversarial_loss(jnp.array([1.0, 3.0]), jnp.array([2.0, 4.0]), 0.5) == pytest.approx(-(2.0 + 1.5))


def test_relative_values_are_free_of_scale_and_units():
    values = jnp.array([1.0, 3.0, -2.0])
    np.testing.assert_allclose(relative_values(values), values / 2.0, rtol=1e-6)
    np.testing.assert_allclose(relative_values(1000 * values), relative_values(values), rtol=1e-5)
    gradient = jax.grad(lambda v: relative_values(v)[0])(values)
    np.testing.assert_allclose(gradient, [0.5, 0.0, 0.0], atol=1e-6)
    assert np.isfinite(relative_values(jnp.zeros(3))).all()


def test_gaussian_nll_by_hand():
    # Two dimensions: z = 1 with std 1, z = 2 with std 1/2.
    nll = gaussian_nll(jnp.zeros((1, 2)), jnp.log(jnp.array([[1.0, 0.5]])), jnp.ones((1, 2)))
    expected = 0.5 + 0.5 * 4 + np.log(0.5) + np.log(2 * np.pi)
    assert nll[0] == pytest.approx(expected, abs=1e-5)
    assert likelihood_loss(nll) == pytest.approx(expected, abs=1e-5)


def test_gaussian_nll_at_tiny_std_is_finite():
    value, gradient = jax.value_and_grad(
        lambda m: gaussian_nll(m, jnp.log(jnp.full((1, 1), 1e-5)), jnp.ones((1, 1)))[0]
    )(jnp.zeros((1, 1)))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_members_see_the_same_targets():
    assert gaussian_nll(jnp.zeros((5, 7, 2)), jnp.zeros((5, 7, 2)), jnp.zeros((7, 2))).shape == (5, 7)


def test_value_weights_by_hand_and_without_gradient():
    q_values = jnp.log(jnp.array([1.0, 3.0]))
    nlls = jnp.array([[2.0, 4.0]])
    assert value_weighted_loss(nlls, q_values) == pytest.approx(0.25 * 2 + 0.75 * 4, abs=1e-6)
    assert not np.asarray(jax.grad(value_weighted_loss, argnums=1)(nlls, q_values)).any()
    assert np.isfinite(value_weighted_loss(nlls, jnp.array([1e6, -1e6])))


def test_vaml_by_hand_and_its_gradients():
    arguments = (jnp.array([1.0]), jnp.array([5.0]), jnp.array([2.0]), jnp.array([4.0]))
    assert vaml_loss(*arguments, 0.5) == pytest.approx(1.0 + (2 + 2 - 5) ** 2)
    gradients = jax.grad(vaml_loss, argnums=(1, 3))(*arguments, 0.5)
    assert float(gradients[0][0]) == 0.0
    assert float(gradients[1][0]) == pytest.approx(2 * (-1) * 0.5)


MEAN, STD = 0.5, 0.4


def train_gaussian(objective, steps=3000):
    """A model N(m, s^2) of the real N(MEAN, STD^2), trained with exact log-densities in place of a classifier."""
    optimiser = optax.adam(optax.cosine_decay_schedule(0.02, steps))

    def loss(parameters, key):
        samples = parameters[0] + jnp.exp(parameters[1]) * jax.random.normal(key, (256,))
        real = -0.5 * ((samples - MEAN) / STD) ** 2 - jnp.log(STD)
        # The classifier is fixed while the model moves: its density is not differentiated, its samples are.
        fixed = jax.lax.stop_gradient(parameters)
        model = -0.5 * ((samples - fixed[0]) * jnp.exp(-fixed[1])) ** 2 - fixed[1]
        return adversarial_loss(real - model, objective(samples), 1.0)

    def step(carry, key):
        parameters, state = carry
        updates, state = optimiser.update(jax.grad(loss)(parameters, key), state)
        return (optax.apply_updates(parameters, updates), state), None

    start = jnp.array([0.0, 0.0])
    keys = jax.random.split(jax.random.key(0), steps)
    (parameters, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, keys))((start, optimiser.init(start)))
    return float(parameters[0]), float(jnp.exp(parameters[1]))


def test_without_a_value_the_adversarial_model_is_the_real_one():
    mean, std = train_gaussian(jnp.zeros_like)
    assert mean == pytest.approx(MEAN, abs=0.01)
    assert std == pytest.approx(STD, rel=0.03)


@pytest.mark.parametrize("slope", [-1.0, 2.0])
def test_a_linear_value_shifts_the_mean_by_slope_times_variance(slope):
    mean, std = train_gaussian(lambda samples: slope * samples)
    assert mean - MEAN == pytest.approx(slope * STD**2, rel=0.1)
    assert std == pytest.approx(STD, rel=0.03)


def test_the_tight_objective_has_its_own_closed_form():
    """The tight model is q ~ p V, with V(s') = exp(1.5 s') N(m + 1.5 s^2, s^2); its objective's value is log V."""

    def log_value(samples):
        return jnp.log(jnp.exp(1.5 * samples))

    mean, std = train_gaussian(log_value)
    assert mean - MEAN == pytest.approx(1.5 * STD**2, rel=0.1)
    assert std == pytest.approx(STD, rel=0.03)


def test_the_tight_objective_with_a_linear_value():
    """q ~ p V with V(s') = 5 + s': the mean of p V / E_p[V] is m + s^2 / (5 + m)."""
    mean, _ = train_gaussian(lambda samples: jnp.log(jnp.maximum(5.0 + samples, 1e-3)))
    assert mean - MEAN == pytest.approx(STD**2 / (5.0 + MEAN), rel=0.1)
