"""A run's replay as arrays and as a Minari data set."""

import sys

import numpy as np
import pytest

import mnm
from mnm.cli import run
from mnm.training.export import episodes, replay_arrays
from mnm.training.runs import write_spec
from mnm.training.saving import config_as_json
from mnm.training.spec import RunSpec

pytestmark = pytest.mark.slow
SETTINGS = {"scale": "quick", "hidden": (4,), "batch_size": 4, "learning_starts": 100, "replay_capacity": 20}


@pytest.fixture(scope="module")
def learner():
    """Has seen 25 steps, of which the replay keeps the last 20; episodes of random actions are of 8."""
    return mnm.SAC("Pendulum-v1", **SETTINGS, random_episode_steps=8).learn(25, evaluation_episodes=1)


@pytest.fixture
def folder(learner, tmp_path):
    settings = config_as_json(learner.config)
    write_spec(tmp_path / "a", RunSpec("sac", "Pendulum-v1", 0, "a", (0,), 25, "quick", 50, 1, 2.0, False, settings))
    learner.save(tmp_path / "a" / "agent.npz")
    return tmp_path / "a"


def test_the_arrays_are_the_last_transitions_in_their_order_and_the_task_s_units(learner, folder, tmp_path):
    assert run(["export", str(folder), "--out", str(tmp_path / "out" / "replay.npz")]) == 0
    with np.load(tmp_path / "out" / "replay.npz") as file:
        arrays = dict(file)
    names = ["observations", "actions", "rewards", "next_observations", "terminations", "action_low", "action_high"]
    shapes = [(20, 3), (20, 1), (20,), (20, 3), (20,), (1,), (1,)]
    assert [(name, arrays[name].shape) for name in arrays] == list(zip(names, shapes, strict=True))
    last = np.asarray(learner.replay.storage.actions)[int(learner.replay.position) - 1]
    np.testing.assert_allclose(arrays["actions"][-1], 2 * last, rtol=1e-6)  # Pendulum's torque is in [-2, 2]
    cuts = [rows.stop for rows in episodes(arrays)]
    assert cuts == [3, 11, 19, 20]  # step 5 is the oldest; episodes are cut off after 8, 16 and 24
    for rows in episodes(arrays):
        np.testing.assert_array_equal(arrays["next_observations"][rows][:-1], arrays["observations"][rows][1:])
    assert not arrays["terminations"].any()


def test_a_minari_data_set_has_the_same_episodes(learner, folder, tmp_path, monkeypatch, capsys):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    assert run(["export", str(folder), "--minari", "pendulum/sac-v0"]) == 0
    assert "pendulum/sac-v0: 4 episodes, 20 steps" in capsys.readouterr().out
    arrays = replay_arrays(learner)
    dataset = minari.load_dataset("pendulum/sac-v0")
    assert dataset.total_steps == 20
    found = list(dataset.iterate_episodes())
    assert [len(episode.rewards) for episode in found] == [3, 8, 8, 1]
    np.testing.assert_array_equal(np.concatenate([episode.actions for episode in found]), arrays["actions"])
    np.testing.assert_array_equal(
        np.concatenate([episode.observations[:-1] for episode in found]), arrays["observations"]
    )
    assert all(episode.truncations[-1] and not episode.terminations.any() for episode in found)
    assert run(["export", str(folder), "--minari", "pendulum/sac-v0"]) == 2  # it is there already
    assert capsys.readouterr().err.startswith("mnm: --minari pendulum/sac-v0: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "name a file"),
        (["--out", "a.csv"], "written to a .npz or a .h5"),
        (["--minari", "pendulum/sac-v0"], "pip install 'mnm-rl[offline]'"),
        (["--out", "/dev/full/a.npz"], "File exists"),
    ],
)
def test_what_cannot_be_is_one_line(options, message, folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "minari", None)
    assert run(["export", str(folder), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_end_parts_episodes_even_where_the_next_starts_in_the_same_place():
    same = np.zeros((4, 2), np.float32)
    arrays = {"observations": same, "next_observations": same, "terminations": np.array([False, True, False, False])}
    assert episodes(arrays) == [slice(0, 2), slice(2, 4)]
