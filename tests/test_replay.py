"""The ring buffer: what goes in comes out, the oldest go first, nothing else is ever sampled, a tenth is held out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnm.replay import HELD_OUT_EVERY, Replay, Transitions

pytestmark = pytest.mark.slow


def numbered(numbers):
    numbers = np.asarray(numbers, np.float32)
    rows = numbers[:, None]
    columns = (rows * np.ones(3), -rows * np.ones(2), numbers, rows * np.ones(3) + 0.5, numbers % 2)
    return Transitions(*(jnp.asarray(column, jnp.float32) for column in columns))


add = jax.jit(Replay.add)
"""One program for each size of a batch."""


@settings(max_examples=20)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=12))
def test_it_holds_the_last_ones(batches):
    replay, count = Replay.empty(10, 3, 2), 0
    for size in batches:
        replay = add(replay, numbered(np.arange(count, count + size)))
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


@jax.jit
def drawn(replay):
    """The numbers of many rows, with training and with held-out ones."""
    training_key, held_out_key = jax.random.split(jax.random.key(0))
    return (
        replay.sample_training(training_key, 3000).rewards,
        replay.sample_held_out(held_out_key, 3000).rewards,
    )


def held_out_and_training_rows_are_all_rows(replay):
    """No row is in both, none is left out, and of every ten that are stored one is held out."""
    training, held_out = (set(np.asarray(rewards).tolist()) for rewards in drawn(replay))
    size = int(replay.size)
    assert not training & held_out
    assert training | held_out == set(np.asarray(replay.storage.rewards)[:size].tolist())
    assert len(held_out) == -(-size // HELD_OUT_EVERY)


def of_size(replay, size):
    """With its first rows alone."""
    return eqx.tree_at(lambda r: r.size, replay, jnp.asarray(size, jnp.int32))


def test_rows_are_held_out_or_for_training():
    replay = Replay.empty(30, 3, 2).add(numbered(np.arange(1, 26)))
    for size in range(2, 26):
        held_out_and_training_rows_are_all_rows(of_size(replay, size))


@pytest.mark.parametrize("capacity", [2, 9, 10, 25])
def test_rows_are_held_out_or_for_training_in_a_full_ring(capacity):
    replay = Replay.empty(capacity, 3, 2)
    for start in range(1, 3 * capacity, capacity // 2 + 1):
        replay = add(replay, numbered(np.arange(start, start + capacity // 2 + 1)))
    assert int(replay.size) == capacity
    assert float(replay.storage.rewards.min()) > capacity  # every place was written more than once
    held_out_and_training_rows_are_all_rows(replay)


def test_the_first_row_is_held_out():
    replay = Replay.empty(30, 3, 2).add(numbered([5]))
    np.testing.assert_array_equal(replay.sample_held_out(jax.random.key(0), 20).rewards, 5.0)


def test_a_row_stays_held_out_while_the_replay_grows():
    replay = Replay.empty(30, 3, 2).add(numbered(np.arange(1, 26)))
    before = set()
    for size in range(1, 26):
        held_out = set(np.asarray(drawn(of_size(replay, size))[1]).tolist())
        assert before <= held_out
        before = held_out


def test_training_and_held_out_rows_are_drawn_uniformly():
    replay = Replay.empty(30, 3, 2).add(numbered(np.arange(23)))
    training = replay.sample_training(jax.random.key(0), 60_000).rewards
    held_out = replay.sample_held_out(jax.random.key(0), 60_000).rewards
    for rewards, rows in ((training, 20), (held_out, 3)):
        shares = np.bincount(np.asarray(rewards, int), minlength=23) / 60_000
        np.testing.assert_allclose(shares[shares > 0], [1 / rows] * rows, atol=0.01)


def test_a_batch_that_does_not_fit():
    with pytest.raises(ValueError, match="11 transitions do not fit into a replay of 10"):
        Replay.empty(10, 3, 2).add(numbered(range(11)))


def test_a_million_half_cheetah_transitions_take_less_than_half_a_gigabyte():
    shapes = jax.eval_shape(lambda: Replay.empty(1_000_000, 17, 6))
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes)) < 500e6


def test_adding_to_a_donated_buffer_copies_nothing():
    replay = Replay.empty(100_000, 17, 6)
    donating = jax.jit(Replay.add, donate_argnums=0)
    new = Transitions(jnp.ones((1, 17)), jnp.ones((1, 6)), jnp.ones(1), jnp.ones((1, 17)), jnp.ones(1))
    compiled = donating.lower(replay, new).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 1e6
