"""Networks: shapes, ensembles equal their members, densities that integrate to one, whitening."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnm.networks import (
    MLP,
    Ensemble,
    GaussianDynamics,
    TanhGaussianPolicy,
    Whitening,
    rewhitened_inputs,
    rewhitened_outputs,
    slow_copy,
)

KEY = jax.random.key(0)


def test_mlp_is_matrices_and_relu():
    network = MLP(KEY, (3, 5, 2))
    inputs = jax.random.normal(KEY, (7, 3))
    hidden = np.maximum(inputs @ network.weights[0] + network.biases[0], 0)
    np.testing.assert_allclose(network(inputs), hidden @ network.weights[1] + network.biases[1], atol=1e-6)


def test_an_ensemble_is_its_members():
    ensemble = Ensemble(KEY, (3, 5, 2), members=4)
    own = jax.random.normal(KEY, (4, 7, 3))
    together, apart = ensemble(own[0]), ensemble(own)
    assert together.shape == apart.shape == (4, 7, 2)
    for member, network in enumerate(ensemble.members):
        np.testing.assert_allclose(together[member], network(own[0]), atol=1e-6)
        np.testing.assert_allclose(apart[member], network(own[member]), atol=1e-6)
    assert np.abs(together[0] - together[1]).max() > 1e-3


def test_policy_density_integrates_to_one():
    policy = TanhGaussianPolicy(KEY, 2, 1, (8,))
    observations = jnp.tile(jnp.array([[0.3, -1.0]]), (20_000, 1))
    actions, log_probs = policy.sample(observations, jax.random.key(1))
    assert np.abs(actions).max() < 1
    # E_{a ~ pi}[ 1 / pi(a) ] over an interval is its length.
    inside = np.abs(actions[:, 0]) < 0.5
    assert (inside * np.exp(-log_probs)).mean() == pytest.approx(1.0, rel=0.05)


def test_policy_at_the_edge_of_its_range_is_finite():
    policy = TanhGaussianPolicy(KEY, 2, 3, (8,))
    far = jax.tree.map(lambda array: 1e3 * array, policy)

    def loss(policy):
        actions, log_probs = policy.sample(jnp.ones((16, 2)), KEY)
        return actions.sum() + log_probs.sum()

    value, gradients = jax.value_and_grad(loss)(far)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


def test_the_mode_is_the_deterministic_action():
    policy = TanhGaussianPolicy(KEY, 2, 1, (8,))
    observations = jnp.ones((1, 2))
    actions, _ = policy.sample(jnp.tile(observations, (5001, 1)), KEY)
    assert float(jnp.median(actions)) == pytest.approx(float(policy.mode(observations)[0, 0]), abs=0.05)


def test_whitening_goes_there_and_back():
    data = jax.random.normal(KEY, (100, 3)) * jnp.array([1.0, 10.0, 0.1]) + jnp.array([5.0, 0.0, -3.0])
    whitening = Whitening.of(data)
    np.testing.assert_allclose(whitening.whiten(data).mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(whitening.whiten(data).std(axis=0), 1, atol=1e-4)
    np.testing.assert_allclose(whitening.restore(whitening.whiten(data)), data, atol=1e-4)


def test_whitening_of_part_of_the_rows_and_of_a_constant():
    data = jnp.array([[1.0, 7.0], [3.0, 7.0], [100.0, 100.0]])
    whitening = Whitening.of(data, used=jnp.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose(whitening.mean, [2.0, 7.0])
    np.testing.assert_allclose(whitening.std, [1.0, 0.0])
    np.testing.assert_allclose(whitening.whiten(data), [[-1.0, 0.0], [1.0, 0.0], [98.0, 93.0]])
    np.testing.assert_allclose(whitening.restore(jnp.array([[-1.0, 5.0]])), [[1.0, 7.0]])


def test_rewhitening_of_what_had_never_varied_and_of_what_no_longer_does():
    network, data = MLP(KEY, (2, 8, 2)), jax.random.normal(KEY, (10, 2))
    still, varied = Whitening(jnp.zeros(2), jnp.array([0.0, 2.0])), Whitening(jnp.ones(2), jnp.array([0.5, 0.0]))
    there = rewhitened_inputs(network, still, varied)
    np.testing.assert_allclose(there(varied.whiten(data)), network(still.whiten(data)), atol=1e-4)
    there = rewhitened_outputs(network, still, varied)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(there))
    before, after = network(data)[:, 0], varied.restore(there(data))[:, 0]
    np.testing.assert_allclose(after, before, atol=1e-4)  # in its own units the network had said nothing, or noise


def test_every_row_goes_through_one_member():
    model = GaussianDynamics(KEY, 3, 2, (16,), members=5)
    # Without noise, row i is member i modulo 5's mean; 22 rows are no multiple of 5.
    inputs = jax.random.normal(KEY, (22, 5))
    means, _ = model.distribution(inputs)
    expected = np.stack([means[row % 5, row] for row in range(22)])
    np.testing.assert_allclose(model.sample(inputs, KEY, noise_scale=0.0), expected, atol=1e-5)


def test_samples_have_the_model_s_spread_and_no_std_is_below_its_floor():
    model = GaussianDynamics(KEY, 1, 1, (4,), members=2)
    inputs = jnp.zeros((20_000, 2))
    means, log_stds = model.distribution(inputs[:1])
    drawn = np.asarray(model.sample(inputs, jax.random.key(1)))
    for member in range(2):
        assert drawn[member::2].mean() == pytest.approx(float(means[member, 0, 0]), abs=0.05)
        assert drawn[member::2].std() == pytest.approx(float(jnp.exp(log_stds[member, 0, 0])), rel=0.05)
    narrow = eqx.tree_at(lambda m: [n.biases[-1] for n in m.network.members], model, [jnp.array([0.0, -100.0])] * 2)
    assert float(narrow.distribution(inputs)[1].max()) == pytest.approx(np.log(1e-5))


def test_rewhitening_keeps_the_function_of_the_data():
    network = MLP(KEY, (4, 8, 6))
    data = 3.0 + 2.0 * jax.random.normal(KEY, (10, 4))
    before, after = (Whitening(m + jnp.arange(4.0), s + jnp.arange(4.0)) for m, s in ((0.0, 1.0), (2.0, 0.5)))
    there = rewhitened_inputs(network, before, after)
    np.testing.assert_allclose(there(after.whiten(data)), network(before.whiten(data)), atol=1e-4)

    before, after = (Whitening(m + jnp.arange(3.0), s + jnp.arange(3.0)) for m, s in ((0.0, 1.0), (2.0, 0.5)))
    there = rewhitened_outputs(network, before, after)
    means, log_stds = jnp.split(network(data), 2, axis=-1)
    new_means, new_log_stds = jnp.split(there(data), 2, axis=-1)
    np.testing.assert_allclose(after.restore(new_means), before.restore(means), atol=1e-4)
    np.testing.assert_allclose(jnp.exp(new_log_stds) * after.std, jnp.exp(log_stds) * before.std, rtol=1e-4)


def test_slow_copy():
    online, target = MLP(KEY, (2, 2)), MLP(jax.random.key(1), (2, 2))
    moved = slow_copy(target, online, 0.25)
    np.testing.assert_allclose(moved.weights[0], 0.75 * target.weights[0] + 0.25 * online.weights[0], atol=1e-6)
