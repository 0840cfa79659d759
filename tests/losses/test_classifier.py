"""The classifier's loss and its reading: by hand, at extremes, and trained against known densities."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import TypeCheckError

from mnm.losses.classifier import (
    FORGIVEN,
    SMALLEST_SHARE,
    bounded_log_ratio,
    calibration_step,
    classifier_accuracy,
    classifier_loss,
    expected_log_ratio,
    log_ratio,
    pessimistic_log_ratio,
)
from mnm.networks import MLP
from mnm.tabular import random_mdp, random_model


def test_by_hand():
    # Logits log 3 (C = 3/4) and 0 (C = 1/2).
    real, model = jnp.array([jnp.log(3.0)]), jnp.array([0.0])
    assert classifier_loss(real, model) == pytest.approx(-np.log(0.75) - np.log(0.5), abs=1e-6)
    smoothed = -np.log(0.75) - 0.9 * np.log(0.5) - 0.1 * np.log(0.5)
    assert classifier_loss(real, model, 0.1) == pytest.approx(smoothed, abs=1e-6)


def test_only_the_negatives_are_smoothed():
    real, model = jnp.array([2.0]), jnp.array([-2.0])
    plain, smoothed = classifier_loss(real, model), classifier_loss(real, model, 0.1)
    # 0.1 of the negative's loss moves from softplus(-2) to softplus(2): a difference of 2.
    assert smoothed - plain == pytest.approx(0.2, abs=1e-6)


@pytest.mark.slow
def test_extreme_logits_are_finite_with_finite_gradients():
    for logits in ([1e4, -1e4], [-1e4, 1e4]):
        loss, gradient = jax.value_and_grad(lambda x: classifier_loss(x[:1], x[1:], 0.1))(jnp.array(logits))
        assert np.isfinite(loss)
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("ratio", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_best_logit_reads_as_the_log_ratio(ratio, smoothing):
    best = (ratio + smoothing) / (1 - smoothing)
    assert log_ratio(jnp.log(jnp.array(best)), smoothing) == pytest.approx(np.log(ratio), abs=1e-5)


def test_without_smoothing_the_logit_is_the_ratio():
    logits = jnp.array([-30.0, -1.0, 0.0, 50.0])
    np.testing.assert_allclose(log_ratio(logits), logits, atol=1e-6)


@pytest.mark.slow
def test_ratio_at_extreme_logits_keeps_a_finite_gradient():
    values, gradients = jax.vmap(jax.value_and_grad(lambda x: log_ratio(x, 0.1)))(jnp.array([-1e4, -3.0, 0.0, 1e4]))
    assert np.isfinite(values).all()
    assert np.isfinite(gradients).all()
    assert (gradients >= 1.0).all()


@pytest.mark.slow
def test_the_ratio_s_gradient_is_bounded_where_the_logarithm_s_is_not():
    """At the lowest logits that smoothing by 0.1 allows, from log(1/9) on: no step of a model may be thrown away."""
    gradients = jax.vmap(jax.grad(lambda x: log_ratio(x, 0.1)))(jnp.linspace(-3.0, 3.0, 1001))
    assert 8.0 < float(gradients.max()) < 9.1


@pytest.mark.slow
@pytest.mark.parametrize("smoothing", [0.1, 0.3])
def test_the_ratio_of_a_reward_follows_no_logit_that_labels_never_ask_for(smoothing):
    lowest = np.log(smoothing / (1 - smoothing))
    logits = jnp.array([lowest - 30.0, lowest - 1.0, lowest, lowest + 0.5, 2.0])
    bounded, free = bounded_log_ratio(logits, smoothing), log_ratio(logits, smoothing)
    np.testing.assert_allclose(bounded[:3], np.full(3, lowest + np.log(SMALLEST_SHARE)), rtol=1e-5)
    np.testing.assert_array_equal(bounded[3:], free[3:])
    np.testing.assert_array_equal(bounded_log_ratio(logits, 0.0), logits)


def test_accuracy():
    assert classifier_accuracy(jnp.array([1.0, -1.0]), jnp.array([-1.0, -2.0, 3.0, -4.0])) == pytest.approx(0.625)


@pytest.mark.slow
def test_the_expected_ratio_is_minus_the_divergence():
    # p = N(0, 1), q = N(0.5, 1): log p/q = 1/8 - x/2, KL(q || p) = 1/8; whatever is added to every sample of a row,
    # but for what calls them all fake.
    samples = 0.5 + jax.random.normal(jax.random.key(0), (20_000, 3))
    ratios = 0.125 - 0.5 * samples + jnp.array([0.0, 7.0, -0.5 * FORGIVEN])
    np.testing.assert_allclose(expected_log_ratio(ratios), -0.125, atol=0.02)


@pytest.mark.slow
def test_a_model_that_misses_all_that_happens_pays_for_it():
    """Where no sample of the model could be real, what they have in common is no error of the classifier."""
    far = jnp.full((8, 2), -4.0).at[:, 1].set(-1e4)
    np.testing.assert_allclose(expected_log_ratio(far), [FORGIVEN - 4.0, FORGIVEN - 1e4], rtol=1e-5)


@pytest.mark.slow
def test_the_expected_ratio_is_never_above_0():
    ratios = 5.0 * jax.random.normal(jax.random.key(0), (8, 500))
    assert (expected_log_ratio(ratios) < 1e-5).all()
    # log p/q of (log 2, log 1/2): the mean is 0, and log of the mean ratio log 5/4.
    by_hand = expected_log_ratio(jnp.log(jnp.array([[2.0], [0.5]])))
    np.testing.assert_allclose(by_hand, -np.log(1.25), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.5, 0.01])
def test_a_calibration_step_is_newton_s(rate):
    """On the cross-entropy of sigmoid(trust log p/q), with derivatives by finite differences."""
    real, fake = np.array([2.0, -0.5, 1.0]), np.array([-1.0, 0.3])

    def loss(trust):
        return np.log1p(np.exp(-trust * real)).mean() + np.log1p(np.exp(trust * fake)).mean()

    left, middle, right = (loss(0.6 + change) for change in (-1e-3, 0.0, 1e-3))
    expected = 0.6 - rate * ((right - left) / 2e-3) / ((right - 2 * middle + left) / 1e-6)
    assert 0 < expected < 1
    step = calibration_step(jnp.array(0.6), jnp.asarray(real, jnp.float32), jnp.asarray(fake, jnp.float32), rate)
    assert step == pytest.approx(expected, abs=1e-5)


def calibrated(ratios, start=1.0, steps=3000):
    """The trust after many steps on fresh batches of p = N(0, 1) and q = N(1, 1), averaged over the last third."""

    def step(trust, key):
        real_key, fake_key, ratio_key = jax.random.split(key, 3)
        real, fake = jax.random.normal(real_key, (256,)), 1.0 + jax.random.normal(fake_key, (256,))
        trust = calibration_step(trust, *ratios(real, fake, ratio_key), 0.01)
        return trust, trust

    keys = jax.random.split(jax.random.key(0), steps)
    return float(jax.jit(lambda trust: jax.lax.scan(step, trust, keys)[1])(jnp.array(start))[-steps // 3 :].mean())


def true_ratios(samples):
    """log N(x; 0, 1) / N(x; 1, 1)."""
    return 0.5 - samples


@pytest.mark.slow
@pytest.mark.parametrize("start", [0.0, 1.0])
@pytest.mark.parametrize(("times", "expected"), [(1.0, 1.0), (2.0, 0.5), (5.0, 0.2), (0.5, 1.0), (-1.0, 0.0)])
def test_trust_undoes_what_ratios_overstate(times, expected, start):
    """Right ratios are believed, doubled ones by half, halved ones no more than they claim, reversed ones never."""
    found = calibrated(lambda real, fake, _: (times * true_ratios(real), times * true_ratios(fake)), start)
    assert found == pytest.approx(expected, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_ratios_that_say_nothing_are_not_believed(start):
    def noise(real, fake, key):
        return tuple(2.0 * jax.random.normal(part, (256,)) for part in jax.random.split(key))

    assert calibrated(noise, start) < 0.05


@pytest.mark.slow
def test_right_ratios_with_noise_are_believed_in_part():
    """l = log p/q + noise of variance v: the best factor is that of a regression, var / (var + v) with var = 1."""

    def noisy(real, fake, key):
        noises = (jax.random.normal(part, (256,)) for part in jax.random.split(key))
        return tuple(true_ratios(samples) + noise for samples, noise in zip((real, fake), noises, strict=True))

    # Both are Gaussians with means 1/2 and -1/2 and variance 2: their true log ratio is l / 2.
    assert calibrated(noisy) == pytest.approx(0.5, abs=0.05)


def test_trust_stays_between_0_and_1_at_extreme_ratios():
    for size in (0.0, 1e-6, 50.0, 1e4):
        for sign in (1.0, -1.0):
            for start in (0.0, 0.3, 1.0):
                trust = calibration_step(jnp.array(start), sign * size * jnp.ones(3), -sign * size * jnp.ones(3), 0.5)
                assert 0.0 <= float(trust) <= 1.0


def test_shapes_are_checked():
    with pytest.raises(TypeCheckError):
        log_ratio(jnp.array([1, 2]))


def train(loss, parameters, steps, rate=3e-3):
    optimiser = optax.adam(optax.cosine_decay_schedule(rate, steps))

    def step(carry, key):
        parameters, state = carry
        updates, state = optimiser.update(jax.grad(loss)(parameters, key), state)
        return (optax.apply_updates(parameters, updates), state), None

    keys = jax.random.split(jax.random.key(0), steps)
    (parameters, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, keys))(
        (parameters, optimiser.init(parameters))
    )
    return parameters


@pytest.mark.slow
def test_on_a_finite_mdp_the_trained_logit_approaches_log_p_over_q():
    mdp = random_mdp(4, 2, seed=0)
    model = random_model(mdp, seed=1)
    real, fake = (jnp.asarray(dynamics.to_dense().reshape(8, 4), jnp.float32) for dynamics in (mdp.dynamics, model))
    one_hot = jnp.eye(4)

    def loss(network, key):
        pair_key, real_key, fake_key = jax.random.split(key, 3)
        pairs = jax.random.randint(pair_key, (256,), 0, 8)

        def logits(probs, key):
            next_states = jax.random.categorical(key, jnp.log(probs[pairs]))
            return network(jnp.concatenate([jnp.eye(8)[pairs], one_hot[next_states]], axis=-1))[:, 0]

        return classifier_loss(logits(real, real_key), logits(fake, fake_key), smoothing=0.1)

    network = train(loss, MLP(jax.random.key(1), (12, 64, 64, 1)), 3000)
    inputs = jnp.concatenate([jnp.repeat(jnp.eye(8), 4, axis=0), jnp.tile(one_hot, (8, 1))], axis=-1)
    estimates = np.asarray(log_ratio(network(inputs)[:, 0], 0.1)).reshape(8, 4)
    errors = np.abs(estimates - np.log(real / fake))
    assert (np.asarray(real) * errors).sum(axis=-1).mean() < 0.15


@pytest.mark.slow
def test_on_a_gaussian_pair_the_trained_logit_approaches_log_p_over_q():
    # p = N(0, 1), q = N(0.5, 1): log p/q = 1/8 - x/2.
    def loss(network, key):
        real_key, fake_key = jax.random.split(key)
        real, fake = jax.random.normal(real_key, (256, 1)), 0.5 + jax.random.normal(fake_key, (256, 1))
        return classifier_loss(network(real)[:, 0], network(fake)[:, 0])

    network = train(loss, MLP(jax.random.key(2), (1, 32, 32, 1)), 2000)
    points = jax.random.normal(jax.random.key(3), (1000, 1))
    errors = np.abs(network(points)[:, 0] - (0.125 - 0.5 * points[:, 0]))
    assert errors.mean() < 0.15


@pytest.mark.slow
def test_the_pessimistic_ratio_keeps_what_is_said_of_the_pair_alone():
    """Three pairs: all samples are doubted alike, two samples cancel, none is doubted."""
    log_ratios = jnp.array([[-2.0, 1.0, 0.5], [-2.0, -1.0, 1.5]])
    np.testing.assert_allclose(pessimistic_log_ratio(log_ratios), [-2.0, 0.0, 0.0])
    np.testing.assert_allclose(expected_log_ratio(log_ratios)[0], -1.8, atol=1e-6)  # it forgives 0.2 of such doubt
