"""Networks: shapes, ensembles equal their members, LayerNorm, densities that integrate to one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnm.networks import MLP, Ensemble, GaussianDynamics, TanhGaussianPolicy, moved_target, standardized

pytestmark = pytest.mark.slow

KEY = jax.random.key(0)


def test_mlp_is_matrices_and_relu():
    network = MLP(KEY, (3, 5, 2))
    inputs = jax.random.normal(KEY, (7, 3))
    hidden = np.maximum(inputs @ network.weights[0] + network.biases[0], 0)
    np.testing.assert_allclose(network(inputs), hidden @ network.weights[1] + network.biases[1], atol=1e-6)


def test_silu_by_hand():
    network = MLP(KEY, (3, 5, 2), activation="silu")
    inputs = jax.random.normal(KEY, (7, 3))
    before = np.asarray(inputs @ network.weights[0] + network.biases[0])
    hidden = before / (1.0 + np.exp(-before))
    np.testing.assert_allclose(network(inputs), hidden @ network.weights[1] + network.biases[1], atol=1e-6)


def test_layer_norm_by_hand():
    """Two hidden layers: product and bias, rows standardized, scaled, shifted, ReLU; the last layer has none of it."""
    network = MLP(KEY, (3, 6, 5, 2), layer_norm=True)
    assert [len(scale) for scale in network.scales] == [6, 5]
    keys = iter(jax.random.split(jax.random.key(1), 7))
    network = eqx.tree_at(
        lambda n: (n.scales, n.shifts, n.biases),
        network,
        tuple(
            tuple(jax.random.normal(next(keys), array.shape) for array in arrays)
            for arrays in (network.scales, network.shifts, network.biases)
        ),
    )
    inputs = 10.0 + jax.random.normal(KEY, (7, 3))
    hidden = np.asarray(inputs, np.float64)
    layers = zip(network.weights, network.biases, network.scales, network.shifts, strict=False)
    for weight, bias, scale, shift in layers:
        product = hidden @ np.asarray(weight) + np.asarray(bias)
        product = (product - product.mean(axis=1, keepdims=True)) / product.std(axis=1, keepdims=True)
        hidden = np.maximum(product * np.asarray(scale) + np.asarray(shift), 0)
    expected = hidden @ np.asarray(network.weights[-1]) + np.asarray(network.biases[-1])
    np.testing.assert_allclose(network(inputs), expected, atol=1e-4)
    plain = MLP(KEY, (3, 6, 5, 2))
    assert plain.scales == ()
    assert np.abs(plain(inputs) - MLP(KEY, (3, 6, 5, 2), layer_norm=True)(inputs)).max() > 0.1


def test_standardized_rows():
    rows = jnp.array([[1.0, 3.0], [-7.0, 5.0]])
    np.testing.assert_allclose(standardized(rows), [[-1.0, 1.0], [-1.0, 1.0]], atol=1e-5)
    many = np.asarray(standardized(100.0 + 5.0 * jax.random.normal(KEY, (4, 300))))
    np.testing.assert_allclose(many.mean(axis=1), 0.0, atol=1e-4)
    np.testing.assert_allclose(many.std(axis=1), 1.0, atol=1e-4)


def test_a_row_without_spread_has_a_finite_gradient():
    value, gradient = jax.value_and_grad(lambda rows: (standardized(rows) ** 3).sum())(jnp.full((2, 4), 3.0))
    assert value == 0.0
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("layer_norm", [False, True])
def test_an_ensemble_is_its_members(layer_norm):
    ensemble = Ensemble(KEY, (3, 5, 2), members=4, layer_norm=layer_norm)
    assert all(bool(member.scales) == layer_norm for member in ensemble.members)
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


def test_every_row_goes_through_one_member():
    model = GaussianDynamics(KEY, 3, 2, (16,), members=5)
    # Without noise, row i is member i modulo 5's mean; 22 rows are no multiple of 5.
    inputs = jax.random.normal(KEY, (22, 5))
    means, log_stds = model.distribution(inputs)
    own_means, own_log_stds = (np.stack([by[row % 5, row] for row in range(22)]) for by in (means, log_stds))
    for found, expected in zip(model.one_each(inputs), (own_means, own_log_stds), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(model.sample(inputs, KEY, noise_scale=0.0), own_means, atol=1e-5)


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


def test_a_target_network_moves_towards_its_online_network():
    online, target = MLP(KEY, (2, 2)), MLP(jax.random.key(1), (2, 2))
    moved = moved_target(target, online, 0.25)
    np.testing.assert_allclose(moved.weights[0], 0.75 * target.weights[0] + 0.25 * online.weights[0], atol=1e-6)
