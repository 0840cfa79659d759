"""The diagnostics by hand: worlds whose predictions are set, critics whose values are known."""

from dataclasses import replace
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnm.agents import ALGORITHMS
from mnm.agents.classifier import ratio_terms
from mnm.agents.sac import SACState
from mnm.agents.world_model import Statistics
from mnm.diagnostics import (
    PIECE,
    REWARD_BLOCK,
    ROWS,
    WINDOW,
    Recorder,
    calibration_error,
    diagnose,
    held_out,
    imagined_returns,
    model_errors,
    value_diagnostics,
    windows,
)
from mnm.networks import Ensemble
from mnm.normalizer import Normalizer
from mnm.replay import Transitions

pytestmark = pytest.mark.slow

SMALL = {"hidden": (4,), "model_hidden": (4,), "head_hidden": (4,), "ensemble_size": 2, "discount": 0.5}
CONFIG = replace(ALGORITHMS["mnm"].presets["quick"], **SMALL, classifier_hidden=(4,), reward_offset=0.25)
OFFSET = CONFIG.reward_offset


@cache
def new_agent():
    return jax.jit(partial(ALGORITHMS["mnm"].init, CONFIG, 1, 1))(jax.random.key(0))


def constant(network, outputs):
    """The network, or every member of an ensemble, with one output whatever the inputs."""
    if isinstance(network, Ensemble):
        members = tuple(constant(member, outputs) for member in network.members)
        return eqx.tree_at(lambda n: n.members, network, members)
    silent = jax.tree.map(jnp.zeros_like, network)
    return eqx.tree_at(lambda n: n.biases[-1], silent, jnp.asarray(outputs, jnp.float32))


def spread(mean=0.0, std=1.0, lowest=-1e6, highest=1e6):
    """Statistics of one coordinate."""
    return Normalizer(jnp.ones(()), *(jnp.array([float(value)]) for value in (mean, 0.0, std**2, lowest, highest)))


def world(changes, reward=0.0, logit=0.0, log_std=-20.0, lowest=0.0):
    """A world that always changes by so much, pays so much, goes on with so much probability; one dimension.

    Its statistics change nothing. An episode has ended, and the lowest reward was this.
    """
    made = new_agent().world
    parts = (made.dynamics.network, made.target_dynamics.network, made.reward_head, made.termination_head)
    outputs = ([99.0, 0.0], [changes, log_std], [reward], [logit])  # the online network must not be asked
    statistics = Statistics(spread(), spread(), spread(lowest=lowest), jnp.ones(()))
    return eqx.tree_at(
        lambda w: (w.dynamics.network, w.target_dynamics.network, w.reward_head, w.termination_head, w.statistics),
        made,
        (*(constant(part, output) for part, output in zip(parts, outputs, strict=True)), statistics),
    )


def walk(length, terminated=False, step=2.0, start=0.0, offset=0.0, room=None, rewards=None):
    """An episode in which every observation lies a step further; all rewards are 1, the discount is 1/2."""
    observations = (start + step * np.arange(length + 1, dtype=np.float32))[:, None]
    recorder = Recorder(observations[0], 0.5, offset, room)
    for t in range(length):
        recorder.add(np.zeros(1, np.float32), 1.0 if rewards is None else float(rewards[t]), observations[t + 1])
    return recorder.episode(terminated)


BYTES = 8
"""Of a step of `walk`: an observation and an action, of one number each."""


def test_an_episode_that_fits_is_kept_whole_with_the_sums_of_its_rewards():
    rewards = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    episode = walk(1000, offset=0.25, room=1000 * BYTES, rewards=rewards)
    (piece,) = episode.pieces
    np.testing.assert_array_equal(piece.observations[:, 0], 2.0 * np.arange(1001))
    np.testing.assert_array_equal(piece.rewards, rewards)
    assert (episode.first, episode.last, episode.length) == (0.0, 2000.0, 1000)
    assert episode.total == float(rewards.sum(dtype=np.float64))
    assert episode.discounted == 0.5 ** np.arange(1000) @ (rewards + 0.25)


@pytest.mark.parametrize("length", [1001, 3210, 2 * REWARD_BLOCK + 5])
def test_of_a_longer_episode_pieces_from_its_begin_to_its_end_are_kept(length):
    room = 1000 * BYTES
    episode = walk(length, room=room)
    kept = np.concatenate([piece.observations[:-1, 0] for piece in episode.pieces]) / 2
    assert 400 <= len(kept) <= 1000  # never less than about half of the room
    assert max(len(piece.actions) for piece in episode.pieces) == PIECE
    gaps = np.diff([piece.observations[0, 0] for piece in episode.pieces])
    assert len(set(gaps)) == 1  # evenly spread
    assert kept[0] == 0
    assert kept[-1] > length - gaps[0]
    np.testing.assert_array_equal(np.diff(episode.pieces[-1].observations[:, 0]), 2.0)
    assert (episode.length, episode.total, episode.last) == (length, length, 2.0 * length)
    assert episode.discounted == pytest.approx(2.0)
    observations, _ = windows([episode], np.random.default_rng(0))
    np.testing.assert_array_equal(np.diff(observations[..., 0], axis=0), 2.0)


def test_two_pieces_are_kept_where_there_is_room_for_none():
    assert [len(piece.actions) for piece in walk(1000, room=0).pieces] == [PIECE, PIECE]


def test_calibration_error_by_hand():
    # Bin 9: three rows, two of them real, probabilities 0.9, 0.95, 0.95; bin 2: one row, fake, 0.25.
    real, fake = jnp.array([0.9, 0.95]), jnp.array([0.95, 0.25])
    expected = (abs(2 - (0.9 + 0.95 + 0.95)) + 0.25) / 4
    assert calibration_error(real, fake) == pytest.approx(expected, abs=1e-6)


def test_calibration_error_of_perfect_and_of_worst_probabilities():
    ones, zeros = jnp.ones(5), jnp.zeros(5)
    assert calibration_error(ones, zeros) == 0.0
    assert calibration_error(zeros, ones) == 1.0
    assert calibration_error(0.5 * ones, 0.5 * ones) == 0.0


def test_a_perfect_model_has_no_error():
    generator = np.random.default_rng(0)
    episodes = [walk(WINDOW), walk(15, start=3.0)]
    found = model_errors(world(2.0), held_out(episodes, generator), windows(episodes, generator), jax.random.key(0))
    assert found["model_error_1"] == pytest.approx(0.0, abs=1e-9)
    assert found["model_error_10"] == pytest.approx(0.0, abs=1e-9)
    # The mean change is 0: the constant predictor stays where it is.
    assert found["constant_error_1"] == pytest.approx(4.0)
    assert found["constant_error_10"] == pytest.approx(400.0)


def test_a_model_that_predicts_the_mean_change_is_the_constant_predictor():
    """Normalized by mean 2 and std 0.5, the output 0 is the mean change; the noise is left out of the errors."""
    made = eqx.tree_at(lambda w: w.statistics.changes, world(0.0, log_std=1.0), spread(mean=2.0, std=0.5))
    generator = np.random.default_rng(0)
    episodes = [walk(12, step=3.0)]
    found = model_errors(made, held_out(episodes, generator), windows(episodes, generator), jax.random.key(0))
    assert found["model_error_1"] == found["constant_error_1"] == pytest.approx((1 / 0.5) ** 2)
    assert found["model_error_10"] == found["constant_error_10"] == pytest.approx((10 / 0.5) ** 2)


def test_episodes_shorter_than_the_window_have_no_error_after_ten_steps():
    generator = np.random.default_rng(0)
    episodes = [walk(WINDOW - 1), walk(1)]
    assert windows(episodes, generator) is None
    found = model_errors(world(0.0), held_out(episodes, generator), None, jax.random.key(0))
    assert set(found) == {"model_error_1", "constant_error_1"}


def test_held_out_rows_are_steps_of_the_episodes():
    rows = held_out([walk(3, step=2.0), walk(2, step=-5.0, start=100.0)], np.random.default_rng(0))
    assert len(rows.rewards) == ROWS
    steps = {(float(s), float(n)) for s, n in zip(rows.observations[:, 0], rows.next_observations[:, 0], strict=True)}
    assert steps == {(0.0, 2.0), (2.0, 4.0), (4.0, 6.0), (100.0, 95.0), (95.0, 90.0)}


def test_windows_stay_within_their_episodes():
    observations, actions = windows([walk(12), walk(11, start=500.0)], np.random.default_rng(0))
    assert observations.shape == (WINDOW + 1, 256, 1)
    assert actions.shape == (WINDOW, 256, 1)
    np.testing.assert_array_equal(np.diff(observations[..., 0], axis=0), 2.0)


@pytest.fixture(scope="module")
def critic_of_the_state():
    """Critics with Q(s, a) = s and s + 1, of which the lesser counts."""
    critics = Ensemble(jax.random.key(1), (2, 1), members=2)
    weight = jnp.array([[1.0], [0.0]])
    layers = [weight, weight, jnp.array([0.0]), jnp.array([1.0])]
    critics = eqx.tree_at(
        lambda n: [m.weights[0] for m in n.members] + [m.biases[0] for m in n.members], critics, layers
    )
    return eqx.tree_at(lambda a: a.critics, new_agent().actor_critic, critics)


def test_returns_with_an_end_and_with_a_cut(critic_of_the_state):
    """Two steps that pay 1, discount 1/2: 1.5 if the episode ended; 1.5 + Q/4 at the last state if it was cut off."""
    config = replace(ALGORITHMS["sac"].presets["quick"], hidden=(4,), discount=0.5)
    ended, cut_off = walk(2, terminated=True, start=1.0), walk(2, start=4.0)
    found = value_diagnostics(ALGORITHMS["sac"], config, critic_of_the_state, [ended, cut_off])
    assert found == {
        "q_at_start": pytest.approx((1.0 + 4.0) / 2),
        "discounted_return": pytest.approx((1.5 + (1.5 + 8.0 / 4)) / 2),
    }


def test_returns_of_agents_whose_q_is_a_logarithm(critic_of_the_state):
    """With the offset 1/4 the steps pay 1.25, an end leads to 0.25 / (1 - 0.5) and a cut to exp Q."""
    ended, cut_off = walk(2, True, start=1.0, offset=OFFSET), walk(2, step=0.5, start=0.0, offset=OFFSET)
    found = value_diagnostics(ALGORITHMS["mnm"], CONFIG, critic_of_the_state, [ended, cut_off])
    mean = 1.25 * 1.5 + (0.5 + np.exp(1.0)) / 2 / 4
    assert found == {
        "q_at_start": pytest.approx((np.exp(1.0) + 1.0) / 2, rel=1e-6),
        "discounted_return": pytest.approx(mean, rel=1e-6),
        "log_return": pytest.approx(np.log(mean), rel=1e-6),
    }


@pytest.fixture(scope="module")
def agent():
    return new_agent()


def test_the_imagined_return_weighs_steps_with_the_probability_to_be_alive(agent):
    """Reward 2, going on with probability 3/4, three steps: 2 (1 + 3/4 + 9/16); no discount."""
    starts = jnp.zeros((3, 1))
    made = world(0.0, reward=2.0, logit=np.log(3.0))
    found = imagined_returns(CONFIG, False, OFFSET, agent.actor_critic, made, None, starts, 3, jax.random.key(0))
    assert set(found) == {"model_return"}
    assert found["model_return"] == pytest.approx(2 * (1 + 0.75 + 0.75**2), rel=1e-5)


def bound(agent, reward, logit, ratio):
    """The bound in a world that pays `reward`, by a classifier whose log p/q is always `ratio`."""
    smoothed = np.log((np.exp(ratio) + CONFIG.smoothing) / (1 - CONFIG.smoothing))
    classifier = eqx.tree_at(lambda c: c.network, agent.classifier, constant(agent.classifier.network, [smoothed]))
    made = world(0.0, reward=reward, logit=logit)
    found = imagined_returns(
        CONFIG, True, OFFSET, agent.actor_critic, made, classifier, jnp.zeros((2, 1)), 3, jax.random.key(0)
    )
    return float(found["bound"])


def rows_at(observations, actions):
    """Transitions that stay where they are."""
    return Transitions(observations, actions, jnp.zeros(len(actions)), observations, jnp.ones(len(actions)))


def test_the_bound_without_ends_is_the_log_return_less_the_price_of_the_ratio(agent):
    """Reward 0.75 and offset 0.25 for ever: log(1 / (1 - 0.5)), and 0.5 log p/q in every step, discounted."""
    assert bound(agent, reward=0.75, logit=50.0, ratio=0.0) == pytest.approx(np.log(2.0), abs=1e-4)

    # A classifier that says much of the noise on its inputs; the states stay where they are.
    network = agent.classifier.network
    loud = eqx.tree_at(lambda n: n.weights[-1], network, 20.0 * network.weights[-1])
    classifier = eqx.tree_at(lambda c: c.network, agent.classifier, loud)
    made, key = world(0.0, reward=0.75, logit=50.0), jax.random.key(0)
    starts = jnp.zeros((256, 1))
    found = imagined_returns(CONFIG, True, OFFSET, agent.actor_critic, made, classifier, starts, 3, key)
    starts = jnp.zeros((20_000, 1))
    price = ratio_terms(CONFIG, made, classifier, rows_at(starts, agent.actor_critic.actor.mode(starts)), key).mean()
    assert abs(float(price)) > 0.2
    assert found["bound"] == pytest.approx(np.log(2.0) + float(price), abs=0.05)


def test_the_bound_takes_no_logarithm_of_a_reward_below_the_lowest_seen(agent):
    """The model pays -5, but nothing below -0.05 was ever seen: with the offset, 0.2 for ever."""
    made = world(0.0, reward=-5.0, logit=50.0, lowest=-0.05)
    silent = eqx.tree_at(lambda c: c.network, agent.classifier, constant(agent.classifier.network, [0.0]))
    found = imagined_returns(
        CONFIG, True, OFFSET, agent.actor_critic, made, silent, jnp.zeros((2, 1)), 3, jax.random.key(0)
    )
    price = ratio_terms(CONFIG, made, silent, rows_at(*jnp.zeros((2, 2, 1))), jax.random.key(0)).mean()
    assert found["bound"] == pytest.approx(np.log(0.2 / 0.5) + float(price), abs=1e-4)
    assert found["model_return"] == pytest.approx(-15.0, rel=1e-3)


def test_the_first_actions_are_those_of_normalized_observations(agent):
    """Q at the starts, for a policy and critics that see normalized observations: it is that of the agent itself."""
    actor_critic = eqx.tree_at(lambda a: a.observations, agent.actor_critic, spread(mean=10.0, std=5.0))
    found = value_diagnostics(ALGORITHMS["sac"], CONFIG, actor_critic, [walk(2, terminated=True, start=20.0)])
    plain = agent.actor_critic
    normalized = jnp.array([[2.0]])
    expected = plain.q_values(plain.critics, normalized, plain.policy.mode(normalized)).min()
    assert found["q_at_start"] == pytest.approx(float(expected), rel=1e-5)


def test_the_bound_where_every_episode_ends_pays_the_offset_for_ever(agent):
    """(1/2) log(1 / 0.5) + (1/2) log(0.25 / 0.5): one reward of 1, then 0.25 for ever."""
    expected = 0.5 * np.log(2.0) + 0.5 * np.log(0.5)
    assert bound(agent, reward=0.75, logit=-50.0, ratio=0.0) == pytest.approx(expected, abs=1e-4)


def test_diagnose_gives_every_agent_what_it_allows(agent):
    episodes = [walk(12), walk(3, terminated=True)]
    without_model = {"q_at_start", "discounted_return"}
    with_model = {"model_error_1", "constant_error_1", "model_error_10", "constant_error_10", "model_return"}
    with_classifier = {"held_out_accuracy", "calibration_error"}

    sac = ALGORITHMS["sac"]
    found = diagnose(sac, sac.presets["quick"], SACState(agent.actor_critic, agent.key), episodes, 20)
    assert set(found) == without_model

    mnm = ALGORITHMS["mnm"]
    found = diagnose(mnm, CONFIG, prepared(agent, lowest=0.5), episodes, 20)
    assert set(found) == without_model | with_model | with_classifier | {"bound", "log_return"}
    assert all(np.isfinite(value) for value in found.values())
    # Rewards that the offset does not make positive have no logarithm, and so no bound.
    assert "bound" not in diagnose(mnm, CONFIG, prepared(agent, lowest=-0.5), episodes, 20)


def prepared(agent, lowest):
    """The agent with a model that stays where it is, and a lowest reward."""
    return eqx.tree_at(lambda s: s.world, agent, world(0.0, reward=1.0, lowest=lowest))
