"""Running statistics: row by row they are those of all rows, and what they do to data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnm.normalizer import FURTHEST, JUMP, Normalizer, squash, unsquash

pytestmark = pytest.mark.slow

OFFSETS = jnp.array([0.0, 1e3, -1e3, 0.5])
SCALES = jnp.array([1.0, 1.0, 10.0, 1e-3])


@jax.jit
def after(normalizer, rows):
    """With these rows added one by one."""
    return jax.lax.scan(lambda seen, row: (seen.add(row), None), normalizer, rows)[0]


@jax.jit
def after_jumps(normalizer, rows):
    """The same, jumps limited."""
    return jax.lax.scan(lambda seen, row: (seen.add(row, most=JUMP), None), normalizer, rows)[0]


def added(rows):
    return after(Normalizer.empty(rows.shape[1]), rows)


def rows_of(count):
    """Four coordinates, skewed, of very different offsets and scales."""
    skewed = jax.random.exponential(jax.random.key(0), (count, 4))
    return OFFSETS + SCALES * (skewed - 1.0)


@pytest.mark.parametrize("make", [added, Normalizer.of])
@pytest.mark.parametrize("count", [1, 2, 10, 10_000])
def test_statistics_are_numpy_s(make, count):
    """In float32, of a few rows and of many, also far from 0, where a mean of squares would have lost the variance.

    There every new mean is rounded to 6e-5, which adds up to a hundredth of the standard deviation.
    """
    rows = rows_of(count)
    seen, exact = make(rows), np.asarray(rows, np.float64)
    assert {array.dtype for array in jax.tree.leaves(seen)} == {np.dtype("float32")}
    assert float(seen.count) == count
    spread = exact.std(axis=0)
    assert (np.abs(seen.mean - exact.mean(axis=0)) <= 0.01 * spread + 1e-6).all()
    np.testing.assert_allclose(np.sqrt(seen.variance), spread, rtol=3e-3, atol=1e-6)
    np.testing.assert_array_equal(seen.lowest, exact.min(axis=0))
    np.testing.assert_array_equal(seen.highest, exact.max(axis=0))


def test_rows_can_be_added_to_what_was_seen_at_once():
    rows = rows_of(1000)
    first, all_of_them = Normalizer.of(rows[:400]), Normalizer.of(rows)
    for one, other in zip(jax.tree.leaves(after(first, rows[400:])), jax.tree.leaves(all_of_them), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=1e-4)


def test_normalized_data_have_mean_0_and_std_1_and_come_back():
    rows = rows_of(10_000)
    seen = added(rows)
    normalized = np.asarray(seen.normalize(rows), np.float64)
    np.testing.assert_allclose(normalized.mean(axis=0), 0.0, atol=0.01)
    np.testing.assert_allclose(normalized.std(axis=0), 1.0, rtol=0.01)
    np.testing.assert_allclose(seen.restore(seen.normalize(rows)), rows, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(seen.std, seen.unit)


def test_after_n_rows_the_next_one_moves_the_mean_by_its_share():
    seen = Normalizer.of(jnp.array([[1.0], [3.0], [5.0]]))
    assert seen.add(jnp.array([11.0])).mean[0] == pytest.approx(3.0 + 8.0 / 4)
    assert seen.add(jnp.array([11.0])).variance[0] == pytest.approx(np.var([1, 3, 5, 11]))


def test_nothing_seen_changes_nothing():
    nothing = Normalizer.empty(3)
    data = jnp.array([[1.0, -1e6, 0.0], [0.1, 3.0, 1e9]])
    for unchanged in (nothing.normalize(data), nothing.clip(data), nothing.clip(data, 0.1)):
        np.testing.assert_array_equal(unchanged, data)
    np.testing.assert_array_equal(nothing.unit, 1.0)
    gradient = jax.grad(lambda x: nothing.clip(nothing.normalize(x)).sum())(data)
    np.testing.assert_array_equal(gradient, 1.0)


@pytest.mark.parametrize("value", [0.0, 0.1, 1000.1, -1e6])
def test_what_never_varied_is_predicted_exactly_and_keeps_its_units(value):
    rows = jnp.stack([jnp.full(10_000, value), jax.random.normal(jax.random.key(0), (10_000,))], axis=1)
    seen = added(rows)
    assert float(seen.std[0]) == 0.0
    assert float(seen.unit[0]) == 1.0
    guesses = jax.random.normal(jax.random.key(1), (50, 2))
    np.testing.assert_array_equal(seen.restore(guesses)[:, 0], np.float32(value))
    assert np.std(seen.restore(guesses)[:, 1]) > 0.5
    # Had it varied by then, it would count in its own units, and never in units of next to nothing.
    np.testing.assert_allclose(seen.normalize(jnp.array([[value + 2.0, 0.0]]))[0, 0], 2.0, rtol=1e-4, atol=0.07)


def test_a_coordinate_that_begins_to_vary_is_normalized_from_then_on():
    seen = added(jnp.concatenate([jnp.full((50, 1), 7.0), jnp.full((50, 1), 9.0)]))
    assert seen.std[0] == pytest.approx(1.0, rel=1e-5)
    assert seen.normalize(jnp.array([[9.0]]))[0, 0] == pytest.approx(1.0, rel=1e-5)


def test_clip_by_hand():
    seen = Normalizer.of(jnp.array([[0.0, -1.0], [2.0, 3.0]]))
    data = jnp.array([[-9.0, -9.0], [1.0, 1.5], [9.0, 9.0]])
    np.testing.assert_allclose(seen.clip(data), [[0.0, -1.0], [1.0, 1.5], [2.0, 3.0]])
    np.testing.assert_allclose(seen.clip(data, 0.5), [[-1.0, -3.0], [1.0, 1.5], [3.0, 5.0]])


def test_several_normalizers_as_one_program():
    rows = jnp.stack([rows_of(20), 2.0 * rows_of(20)])
    together = jax.vmap(added)(rows)
    for index in range(2):
        for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(added(rows[index])), strict=True):
            np.testing.assert_allclose(one[index], other, rtol=1e-6)


def test_an_empty_normalizer_restores_what_it_gets():
    np.testing.assert_array_equal(Normalizer.empty(2).restore(jnp.array([[3.0, -1.0]])), [[3.0, -1.0]])


def test_a_mean_far_from_0_does_not_stall():
    """Values of 1000 with a spread of 1, and a drift after many rows that float32 could not add to such a mean."""
    rows = 1000.0 + jax.random.normal(jax.random.key(3), (100_000, 1)) + (jnp.arange(100_000) > 50_000)[:, None]
    seen, _ = jax.lax.scan(lambda seen, row: (seen.add(row), None), Normalizer.empty(1), rows)
    exact = np.asarray(rows, np.float64)
    assert float(seen.mean[0]) == pytest.approx(exact.mean(), abs=0.01)
    assert float(seen.std[0]) == pytest.approx(exact.std(), rel=0.01)


def test_rare_jumps_do_not_drown_what_varies_the_rest_of_the_time():
    """An angle that moves by 0.05 a step and wraps around in one step of a hundred; and one that never wraps."""
    noise = np.random.default_rng(0)
    changes = noise.normal(0.02, 0.05, (20_000, 2))
    jumps = noise.random(20_000) < 0.01
    jumps[:50] = False
    wrapped = changes - np.outer(jumps, [2 * np.pi, 0.0])
    limited, plain = (one(Normalizer.empty(2), jnp.asarray(wrapped, jnp.float32)) for one in (after_jumps, after))
    assert (
        0.05 <= float(limited.std[0]) < 0.1
    )  # what came before any row could be told to be a jump is forgotten as 1/n
    np.testing.assert_allclose(limited.std[1], 0.05, rtol=0.02)
    np.testing.assert_allclose(limited.mean, [0.02, 0.02], atol=0.01)
    np.testing.assert_allclose(plain.std, [0.63, 0.05], rtol=0.1)
    assert float(limited.lowest[0]) == pytest.approx(wrapped[:, 0].min())


def test_a_coordinate_that_stood_still_is_not_kept_from_varying():
    """Limited to a standard deviation of 0 it would stay at 0 for ever."""
    rows = jnp.concatenate([jnp.zeros((500, 1)), jnp.ones((1, 1)), jnp.zeros((499, 1))])
    assert float(after_jumps(Normalizer.empty(1), rows).std[0]) == pytest.approx(np.sqrt(1e-3 - 1e-6), rel=1e-3)


def test_jumps_are_squashed_to_their_logarithm_and_come_back():
    units = jnp.concatenate([jnp.linspace(-JUMP, JUMP, 9), jnp.array([-5.0, 50.0, -2e4])])
    squashed = squash(units)
    np.testing.assert_array_equal(squashed[:9], units[:9])
    np.testing.assert_allclose(squashed[9:], [-4 - np.log(2), 4 + np.log(47), -4 - np.log(2e4 - 3)], rtol=1e-6)
    np.testing.assert_allclose(unsquash(squashed), units, rtol=1e-4)
    slopes = jax.vmap(jax.grad(lambda unit: squash(unit[None])[0]))(jnp.array([JUMP - 1e-3, JUMP + 1e-3]))
    np.testing.assert_allclose(slopes, 1.0, atol=2e-3)


def test_what_no_jump_could_be_comes_back_finite_with_its_gradient():
    far = jnp.array([-1e30, 1e30])
    np.testing.assert_allclose(unsquash(far), [-JUMP - np.expm1(FURTHEST), JUMP + np.expm1(FURTHEST)], rtol=1e-6)
    np.testing.assert_array_equal(jax.vmap(jax.grad(lambda unit: unsquash(unit[None])[0]))(far), 0.0)
