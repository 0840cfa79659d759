"""Certificates by episodes: the range is checked, what was asked for is decided early, promises are beside."""

import numpy as np
import pytest

from mnm.analysis.episodes import EpisodeCertificate, certify_agent, range_of_returns
from mnm.diagnostics import Recorder
from mnm.messages import UserError


class Player:
    """A learner whose episodes are one reward each."""

    task_name = "Task-v0"
    algorithm = settings = None

    def __init__(self, rewards):
        self.rewards = rewards
        self.adapter = self
        self.time_limit = 1

    def agent(self, index):
        return None

    def play(self, index, seed, should_stop, stream, room):
        assert stream == "certificate"
        for reward in self.rewards:
            recorder = Recorder(np.zeros(1), 0.9, 0.0, room)
            recorder.add(np.zeros(1), reward, np.zeros(1))
            yield recorder.episode(True)


@pytest.fixture(autouse=True)
def _promises(monkeypatch):
    monkeypatch.setattr("mnm.analysis.episodes.diagnose", lambda *_: {"model_return": 5.0, "other": 1.0})


def test_the_bound_is_in_the_returns_unit():
    made = certify_agent(Player([-20.0, -30.0] * 50), 100, (-100.0, 0.0))
    assert made.certified
    assert -40 < made.lower < -25 < made.upper < -15
    assert made.promises == {"model_return": 5.0}
    assert len(made.returns) == 100


def test_what_was_asked_for_is_decided_early():
    player = Player([-20.0, -30.0] * 50)
    high, low, between = (certify_agent(player, 100, (-100.0, 0.0), at_least=r) for r in (-60.0, -5.0, -25.0))
    assert high.certified
    assert high.why_not == ""
    assert len(high.returns) < 20
    assert not low.certified
    assert len(low.returns) < 40
    assert "at most" in low.why_not
    assert len(between.returns) == 100
    assert "cannot tell" in between.why_not


def test_a_return_outside_of_the_range_is_an_error():
    with pytest.raises(UserError, match=r"Task-v0: episode 3 returned 1, outside of the declared range -1 to 0\.5"):
        certify_agent(Player([0.0, -1.0, 1.0]), 10, (-1.0, 0.5))


def test_rewards_in_32_bits_may_round_over_the_end_of_the_range():
    assert certify_agent(Player([np.float32(-0.1)] * 5), 5, (-0.1, 1.0)).returns[0] < -0.1


def test_one_episode_at_the_bottom_certifies_nothing():
    made = certify_agent(Player([0.0]), 1, (0.0, 1.0))
    assert not made.certified
    assert "no more than the declared range" in made.why_not


def test_returns_of_short_and_long_episodes_lie_in_their_range():
    assert range_of_returns((-16.3, 0.0), 200) == (pytest.approx(-3260.0), 0.0)
    assert range_of_returns((1.0, 2.0), 10) == (1.0, 20.0)
    assert range_of_returns((-2.0, -1.0), 10) == (-20.0, -1.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"episodes": 0}, "--episodes is 0"),
        ({"confidence": 0.0}, "--confidence is 0"),
        ({"return_range": (1.0, 1.0)}, "the range of returns is 1 to 1"),
        ({"at_least": 2.0}, "--at-least is 2"),
    ],
)
def test_what_makes_no_sense_is_refused(changed, message):
    asked = {"episodes": 5, "return_range": (0.0, 1.0)} | changed
    with pytest.raises(UserError, match=message):
        certify_agent(Player([0.5] * 5), asked.pop("episodes"), asked.pop("return_range"), **asked)


def test_confidence_sequences_of_the_two_sides_meet_around_the_mean():
    returns = np.random.default_rng(0).random(2_000).tolist()
    made = EpisodeCertificate(returns, (0.0, 1.0), 0.95, 2_000, None, {})
    assert made.lower < np.mean(returns) < made.upper < made.lower + 0.05
