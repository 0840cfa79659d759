"""`mnm evaluate` and `mnm render`, and how observations become pictures."""

import json
import warnings

import gymnasium as gym
import numpy as np
import pytest

import mnm  # noqa: F401 (makes the ids known)
from mnm.agents import ALGORITHMS
from mnm.api import configured
from mnm.cli import run
from mnm.commands.train import train
from mnm.envs.set_state import state_setter
from mnm.training.learner import Learner
from mnm.training.video import BAND, DIVIDER, GAP, imagine, play, side_by_side

SMALL = ["--scale", "quick", "--learning-starts", "30", "--evaluate-every", "20", "--evaluation-episodes", "1"]


def made(task, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that a newer version of the task exists
        return gym.make(task, **settings)


@pytest.mark.parametrize(
    "task",
    [
        "HalfCheetah-v4",
        "Hopper-v5",
        "Walker2d-v4",
        "InvertedPendulum-v5",
        "Pusher-v5",
        "Pendulum-v1",
        "mnm/DClawPoseRandom-v0",
        "mnm/DClawTurnRandom-v0",
    ],
)
def test_a_pose_is_observed_again(task):
    """Of another episode's state, as far as observations tell of it."""
    source, shown = made(task), made(task)
    source.reset(seed=1)
    shown.reset(seed=1 if task.startswith(("Pusher", "mnm")) else 2)  # the goal is no part of a pose
    source.action_space.seed(0)
    for _ in range(8):
        observation, *_ = source.step(source.action_space.sample())
    inner = shown.unwrapped
    state_setter(shown)(inner, observation)
    again = inner._observation() if task.startswith("mnm") else inner._get_obs()
    # Of the claw only positions; not the hand of the pusher, which its simulator observes one step of the engine late.
    compared = {
        "mnm/DClawTurnRandom-v0": np.r_[0:11],
        "mnm/DClawPoseRandom-v0": np.r_[0:9],
        "Pusher-v5": np.r_[0:14, 17:23],
    }
    compared = compared.get(task, np.r_[0 : len(observation)])
    np.testing.assert_allclose(again[compared], observation[compared], atol=1e-6)


def test_nobody_has_said_how_to_pose_everything():
    assert state_setter(made("mnm/ThreeStates-v0")) is None


@pytest.mark.slow
@pytest.mark.parametrize("task", ["InvertedPendulum-v5", "mnm/DrawerOpen-v0"])
def test_a_film_has_the_imagined_one_beside_it_where_that_can_be_drawn(task):
    algorithm = ALGORITHMS["mbpo"]
    small = {"hidden": (4,), "model_hidden": (4,), "head_hidden": (4,), "ensemble_size": 2, "replay_capacity": 50}
    learner = Learner(algorithm, configured(algorithm, "quick", task, small | {"model_buffer_capacity": 50}), task)
    take = play(learner, 3, seed=0)
    real, imagined = take.frames, imagine(learner, take)
    assert len(real) == 4
    if task == "mnm/DrawerOpen-v0":
        assert imagined == []
    else:
        assert len(imagined) == 4
        np.testing.assert_array_equal(real[0], imagined[0])
        assert (real[3] != imagined[3]).any()
    learner.close()


def test_a_film_says_what_is_seen_and_at_which_step():
    left, right = (np.full((280, 200, 3), shade, np.uint8) for shade in (200, 100))
    frames = side_by_side({"real": [left] * 3, "imagined by the model": [right] * 2})
    assert [frame.shape for frame in frames] == [(280 + 2 * 20, 400 + GAP, 3)] * 2  # as long as the shorter one
    above, pictures, below = np.split(frames[0], (20, 300))
    np.testing.assert_array_equal(pictures[:, :200], left)
    np.testing.assert_array_equal(pictures[:, 200 + GAP :], right)
    assert (frames[0][:300, 200 : 200 + GAP] == DIVIDER).all()
    assert all((band != BAND).any() for band in (above[:, :200], above[:, 200 + GAP :], below))
    np.testing.assert_array_equal(frames[0][:300], frames[1][:300])
    assert (frames[0][300:] != frames[1][300:]).any()


def test_a_long_name_is_made_to_fit():
    (frame,) = side_by_side({"a name that is much longer than its picture is wide": [np.zeros((40, 60, 3), np.uint8)]})
    assert (frame[:20, [0, -1]] == BAND).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    assert train(["sac", "--env", "Pendulum-v1", "--steps", "40", "--runs", str(runs), *SMALL]) == 0
    return runs / "Pendulum-v1-sac-seed0"


@pytest.mark.slow
def test_evaluation_is_reproducible_and_the_checkpoint_s_is_the_agent_s(folder, capsys):
    found = []
    for _ in range(2):
        assert run(["evaluate", str(folder), "--episodes", "2", "--seeds", "7", "8", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
        (folder / "agent.npz").rename(folder / "moved") if (folder / "agent.npz").exists() else None
    (folder / "moved").rename(folder / "agent.npz")
    assert found[0] == found[1]
    assert found[0]["agent"] == "sac"
    assert found[0]["steps"] == 40
    assert found[0]["lengths"] == [200] * 4
    assert len(set(found[0]["returns"])) == 4
    assert found[0]["mean"] == pytest.approx(np.mean(found[0]["returns"]))
    assert run(["evaluate", str(folder), "--episodes", "2"]) == 0
    assert "sac after 40 steps on Pendulum-v1: return -" in capsys.readouterr().out


@pytest.mark.slow
def test_a_film_is_written(folder, tmp_path, capsys):
    out = tmp_path / "videos" / "run.gif"
    assert run(["render", str(folder), "--steps", "3", "--out", str(out)]) == 0
    assert "4 frames" in capsys.readouterr().out
    assert out.read_bytes()[:4] == b"GIF8"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate", "{}", "--episodes", "0"], "--episodes is 0"),
        (["evaluate", "{}", "--seeds", "-1"], "--seeds is (-1,)"),
        (["evaluate", "{}/nowhere"], "nowhere does not exist: name a run's folder"),
        (["evaluate", "{}/checkpoints"], "checkpoints is not a run: it has no config.json"),
        (["render", "{}", "--out", "x.png"], "a video ends in .gif or .mp4"),
        (["render", "{}", "--steps", "0"], "--steps is 0"),
        (["render", "{}", "--steps", "1", "--out", "/proc/x/y.gif"], "/proc/x"),
    ],
)
def test_bad_input_is_one_line(arguments, said, folder, capsys):
    capsys.readouterr()
    assert run([argument.replace("{}", str(folder)) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
