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
    softmax_weights,
    standardized_weights,
    value_unit,
    value_weighted_loss,
    vaml_loss,
)


def test_adversarial_loss_by_hand():
    assert adversarial_loss(jnp.array([1.0, 3.0]), jnp.array([2.0, 4.0]), 0.5) == pytest.approx(-(2.0 + 1.5))


def test_the_unit_of_values_is_their_standard_deviation():
    values = jnp.array([1.0, 3.0, -2.0])
    assert value_unit(values) == pytest.approx(np.std([1.0, 3.0, -2.0]), rel=1e-6)
    assert value_unit(values + 100.0) == pytest.approx(float(value_unit(values)), rel=1e-4)
    assert value_unit(-1000.0 * values) == pytest.approx(1000.0 * float(value_unit(values)), rel=1e-5)
    assert not np.asarray(jax.grad(value_unit)(values)).any()


def test_values_without_spread_have_a_unit_above_0():
    for values in (jnp.zeros(3), jnp.full(3, 7.0)):
        assert 0 < float(value_unit(values)) < 1e-3
        assert np.isfinite(values / value_unit(values)).all()


@pytest.mark.slow
def test_gaussian_nll_by_hand():
    # Two dimensions: z = 1 with std 1, z = 2 with std 1/2.
    nll = gaussian_nll(jnp.zeros((1, 2)), jnp.log(jnp.array([[1.0, 0.5]])), jnp.ones((1, 2)))
    expected = 0.5 + 0.5 * 4 + np.log(0.5) + np.log(2 * np.pi)
    assert nll[0] == pytest.approx(expected, abs=1e-5)
    assert likelihood_loss(nll) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_beta_weighs_every_dimension_by_a_constant_power_of_its_std(beta):
    errors, stds = np.array([0.3, 2.0]), np.array([0.01, 1.0])
    targets, log_stds = jnp.asarray(errors)[None], jnp.log(jnp.asarray(stds))[None]
    of_means, of_log_stds = jax.grad(lambda *at: gaussian_nll(*at, targets, beta)[0], (0, 1))(
        jnp.zeros((1, 2)), log_stds
    )
    weights = stds ** (2 * beta) / np.mean(stds ** (2 * beta))
    np.testing.assert_allclose(of_means[0], -weights * errors / stds**2, rtol=1e-5)
    np.testing.assert_allclose(of_log_stds[0], weights * (1 - (errors / stds) ** 2), rtol=1e-4)


@pytest.mark.slow
def test_gaussian_nll_at_tiny_std_is_finite():
    value, gradient = jax.value_and_grad(
        lambda m: gaussian_nll(m, jnp.log(jnp.full((1, 1), 1e-5)), jnp.ones((1, 1)))[0]
    )(jnp.zeros((1, 1)))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@pytest.mark.slow
def test_members_see_the_same_targets():
    assert gaussian_nll(jnp.zeros((5, 7, 2)), jnp.zeros((5, 7, 2)), jnp.zeros((7, 2))).shape == (5, 7)


@pytest.mark.slow
def test_value_weights_by_hand_and_without_gradient():
    q_values = jnp.log(jnp.array([1.0, 3.0]))
    nlls = jnp.array([[2.0, 4.0], [6.0, 8.0]])  # of two members
    np.testing.assert_allclose(softmax_weights(q_values), [0.25, 0.75], atol=1e-6)
    expected = (0.25 * 2 + 0.75 * 4 + 0.25 * 6 + 0.75 * 8) / 2
    assert value_weighted_loss(nlls, softmax_weights(q_values)) == pytest.approx(expected, abs=1e-6)
    for weights in (softmax_weights, standardized_weights):
        gradient = jax.grad(lambda q, weights=weights: value_weighted_loss(nlls, weights(q)))(q_values)
        assert not np.asarray(gradient).any()
        assert np.isfinite(value_weighted_loss(nlls, weights(jnp.array([1e6, -1e6]))))


def test_standardized_weights_by_hand():
    # Q with mean 1 and standard deviation 1: softmax(0, 2) = (0.119, 0.881), with an effective sample size of 1.266.
    q_values = jnp.array([0.0, 2.0])
    plain = np.array([1.0, np.exp(2.0)]) / (1.0 + np.exp(2.0))
    np.testing.assert_allclose(standardized_weights(q_values), plain, atol=1e-6)  # half of two rows is 1
    # At least 0.9 of two rows: mixed with (1/2, 1/2) until 1 / sum w^2 = 1.8.
    mixed = np.asarray(standardized_weights(q_values, 0.9))
    assert 1.0 / (mixed**2).sum() == pytest.approx(1.8, rel=1e-5)
    kept = (mixed[1] - 0.5) / (plain[1] - 0.5)
    assert 0.0 < kept < 1.0
    np.testing.assert_allclose(mixed, kept * plain + (1.0 - kept) / 2, atol=1e-6)


def effective_sample_size(weights):
    return 1.0 / (np.asarray(weights, np.float64) ** 2).sum()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(
    "q_values",
    [
        np.eye(256)[3] * 1e6,
        np.random.default_rng(0).standard_cauchy(256),
        np.exp(np.random.default_rng(1).normal(size=256) * 5),
        -(np.arange(256.0) ** 3),
        np.full(256, -1e4),
        np.zeros(256),
    ],
    ids=["one row", "Cauchy", "log-normal", "cubes", "constant", "zeros"],
)
def test_no_few_rows_have_all_the_standardized_weight(q_values, share):
    weights = standardized_weights(jnp.asarray(q_values, jnp.float32), share)
    assert weights.sum() == pytest.approx(1.0, abs=1e-5)
    assert (weights > 0).all()
    assert effective_sample_size(weights) >= share * 256 * (1 - 1e-4)
    if np.ptp(q_values) == 0:
        np.testing.assert_allclose(weights, 1 / 256, rtol=1e-5)
    else:
        order = np.argsort(q_values)
        assert (np.diff(np.asarray(weights)[order]) >= 0).all()
        assert float(weights.max()) > 1 / 256


@pytest.mark.slow
def test_standardized_weights_do_not_depend_on_the_unit_of_reward():
    q_values = jnp.asarray(np.random.default_rng(0).normal(size=64), jnp.float32)
    for other in (100.0 * q_values, q_values + 50.0, 1e-3 * q_values - 1.0):
        np.testing.assert_allclose(standardized_weights(other), standardized_weights(q_values), rtol=2e-3)
    assert np.abs(softmax_weights(100.0 * q_values) - softmax_weights(q_values)).max() > 0.5


def test_vaml_by_hand_and_its_gradients():
    arguments = (jnp.array([1.0]), jnp.array([5.0]), jnp.array([2.0]), jnp.array([4.0]))
    assert vaml_loss(*arguments, 0.5) == pytest.approx(1.0 + (2 + 2 - 5) ** 2)
    gradients = jax.grad(vaml_loss, argnums=(1, 3))(*arguments, 0.5)
    assert float(gradients[0][0]) == 0.0
    assert float(gradients[1][0]) == pytest.approx(2 * (-1) * 0.5)
    assert vaml_loss(*arguments, 0.5, 10.0) == pytest.approx(1.0 + ((2 + 2 - 5) / 10.0) ** 2)
    gradients = jax.grad(vaml_loss, argnums=(1, 3))(*arguments, 0.5, 10.0)
    assert float(gradients[0][0]) == 0.0
    assert float(gradients[1][0]) == pytest.approx(2 * (-1) * 0.5 / 10.0**2)


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


@pytest.mark.slow
def test_without_a_value_the_adversarial_model_is_the_real_one():
    mean, std = train_gaussian(jnp.zeros_like)
    assert mean == pytest.approx(MEAN, abs=0.01)
    assert std == pytest.approx(STD, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("slope", [-1.0, 2.0])
def test_a_linear_value_shifts_the_mean_by_slope_times_variance(slope):
    mean, std = train_gaussian(lambda samples: slope * samples)
    assert mean - MEAN == pytest.approx(slope * STD**2, rel=0.1)
    assert std == pytest.approx(STD, rel=0.03)


@pytest.mark.slow
def test_the_tight_objective_has_its_own_closed_form():
    """The tight model is q ~ p V, with V(s') = exp(1.5 s') N(m + 1.5 s^2, s^2); its objective's value is log V."""

    def log_value(samples):
        return jnp.log(jnp.exp(1.5 * samples))

    mean, std = train_gaussian(log_value)
    assert mean - MEAN == pytest.approx(1.5 * STD**2, rel=0.1)
    assert std == pytest.approx(STD, rel=0.03)


@pytest.mark.slow
def test_the_tight_objective_with_a_linear_value():
    """q ~ p V with V(s') = 5 + s': the mean of p V / E_p[V] is m + s^2 / (5 + m)."""
    mean, _ = train_gaussian(lambda samples: jnp.log(jnp.maximum(5.0 + samples, 1e-3)))
    assert mean - MEAN == pytest.approx(STD**2 / (5.0 + MEAN), rel=0.1)
