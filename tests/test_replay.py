"""The ring buffer: what goes in comes out, the oldest go first, and nothing else is ever sampled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnm.replay import Replay, Transitions


def numbered(numbers):
    numbers = jnp.asarray(numbers, jnp.float32)
    rows = numbers[:, None]
    return Transitions(rows * jnp.ones(3), -rows * jnp.ones(2), numbers, rows * jnp.ones(3) + 0.5, numbers % 2)


@settings(max_examples=20)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=12))
def test_it_holds_the_last_ones(batches):
    replay, count = Replay.empty(10, 3, 2), 0
    for size in batches:
        replay = replay.add(numbered(np.arange(count, count + size)))
        count += size
    assert int(replay.size) == min(count, 10)
    stored = np.sort(np.asarray(replay.storage.rewards)[: int(replay.size)])
    np.testing.assert_array_equal(stored, np.arange(max(count - 10, 0), count))


def test_transitions_stay_together():
    replay = Replay.empty(10, 3, 2).add(numbered(range(7)))
    batch = replay.sample(jax.random.key(0), 500)
    np.testing.assert_array_equal(batch.observations[:, 0], batch.rewards)
    np.testing.assert_array_equal(batch.actions[:, 1], -batch.rewards)
    np.testing.assert_array_equal(batch.next_observations[:, 2], batch.rewards + 0.5)
    np.testing.assert_array_equal(batch.continues, batch.rewards % 2)


def test_samples_are_uniform_over_what_is_stored():
    replay = Replay.empty(100, 3, 2).add(numbered(range(4)))
    shares = np.bincount(np.asarray(replay.sample(jax.random.key(0), 40_000).rewards, int)) / 40_000
    np.testing.assert_allclose(shares, [0.25] * 4, atol=0.01)


def test_a_batch_that_does_not_fit():
    with pytest.raises(ValueError, match="11 transitions do not fit into a replay of 10"):
        Replay.empty(10, 3, 2).add(numbered(range(11)))


def test_a_million_half_cheetah_transitions_take_less_than_half_a_gigabyte():
    shapes = jax.eval_shape(lambda: Replay.empty(1_000_000, 17, 6))
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)) < 500e6


def test_adding_to_a_donated_buffer_copies_nothing():
    replay = Replay.empty(100_000, 17, 6)
    add = jax.jit(lambda replay, new: replay.add(new), donate_argnums=0)
    new = Transitions(jnp.ones((1, 17)), jnp.ones((1, 6)), jnp.ones(1), jnp.ones((1, 17)), jnp.ones(1))
    compiled = add.lower(replay, new).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 1e6
