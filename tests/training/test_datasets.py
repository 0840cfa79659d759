"""Data to learn from: every kind is read as the same rows, and what cannot be learned from is refused in one line."""

import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest

from mnm.envs.adapter import make
from mnm.envs.recorded import Recorded
from mnm.training import datasets
from mnm.training.datasets import COLUMNS, DatasetError, checked, open_dataset, transitions

ROWS = 30


def columns(rows=ROWS):
    """Three numbers seen, one torque in [-2, 2]; the second episode ends, the others are cut off."""
    noise = np.random.default_rng(0)
    observations, next_observations = noise.normal(size=(2, rows, 3)).astype(np.float32)
    return {
        "observations": observations,
        "actions": noise.uniform(-2, 2, (rows, 1)),
        "rewards": noise.normal(size=rows),
        "next_observations": next_observations,
        "terminations": np.arange(rows) == 19,
    }


BOUNDS = {"action_low": np.array([-2.0]), "action_high": np.array([2.0])}


def write(path, arrays):
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    return str(path)


def read_all(dataset, task=None):
    environment = make(dataset.task(None) if task is None else task)
    checked(dataset, environment)
    return transitions(dataset, environment, 0, dataset.rows)


@pytest.mark.parametrize("kind", [".npz", ".h5", ".hdf5"])
@pytest.mark.parametrize("ends", ["terminations", "terminals"])
def test_a_file_s_rows(kind, ends, tmp_path):
    arrays = columns()
    stored = {ends if name == "terminations" else name: array for name, array in arrays.items()}
    dataset = open_dataset(write(tmp_path / f"data{kind}", stored | BOUNDS))
    assert (dataset.rows, dataset.label, dataset.env) == (ROWS, "data", None)
    rows = read_all(dataset)
    np.testing.assert_array_equal(rows.observations, arrays["observations"])
    np.testing.assert_array_equal(rows.next_observations, arrays["next_observations"])
    np.testing.assert_allclose(rows.actions, arrays["actions"] / 2, atol=1e-6)
    np.testing.assert_allclose(rows.rewards, arrays["rewards"], rtol=1e-6)
    np.testing.assert_array_equal(rows.continues, 1.0 - arrays["terminations"])
    part = transitions(dataset, make(dataset.task(None)), 7, 12)
    np.testing.assert_array_equal(part.observations, arrays["observations"][7:12])


def test_a_minari_data_set_s_rows_blocks_and_spaces(tmp_path, monkeypatch, capsys):
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    space = gym.spaces.Dict({"b": gym.spaces.Box(-9, 9, (2,)), "a": gym.spaces.Box(-9, 9, (1,))})
    buffers = []
    for number, length in enumerate((4, 3, 5)):
        times = np.arange(length + 1, dtype=np.float32)
        seen = {"a": np.full((length + 1, 1), number, np.float32), "b": np.stack([times, times], axis=1)}
        ended = [False] * (length - 1) + [number == 1]
        cut = [False] * (length - 1) + [number != 1]
        actions = [np.full(1, t / 10, np.float32) for t in range(length)]
        buffers.append(EpisodeBuffer(number, None, None, seen, actions, [1.0] * length, ended, cut))
    spaces = {"observation_space": space, "action_space": gym.spaces.Box(-1, 1, (1,))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it could name an author
        minari.create_dataset_from_buffers("task/made-v0", buffers, **spaces)
    dataset = open_dataset("task/made-v0")
    assert (dataset.rows, dataset.label) == (12, "task_made-v0")
    assert isinstance(dataset.task(None), Recorded)
    rows = read_all(dataset)
    order = list(space.spaces)  # Gymnasium sorts the keys of a Dict
    expected = {"a": [0] * 4 + [1] * 3 + [2] * 5, "b": [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4]}
    np.testing.assert_array_equal(rows.observations[:, 0], expected[order[0]])
    np.testing.assert_array_equal(
        rows.next_observations[:, -1] - rows.observations[:, -1], 1 if order[-1] == "b" else 0
    )
    np.testing.assert_array_equal(np.flatnonzero(rows.continues == 0), [6])  # the second episode's last
    part = transitions(dataset, make(dataset.task(None)), 3, 8)
    np.testing.assert_array_equal(part.observations, rows.observations[3:8])
    with pytest.raises(DatasetError, match=r"neither a run's folder, nor .* nor a Minari data set"):
        open_dataset("task/other-v0")


def changed(**changes):
    arrays = columns() | BOUNDS | changes
    return {name: array for name, array in arrays.items() if array is not None}


def with_entry(name, place, value):
    array = np.array(columns()[name], np.float64)
    array[place] = value
    return {name: array}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (changed(rewards=None), "has no rewards: a data set has observations, actions"),
        (changed(terminations=None, dones=np.zeros(ROWS)), "has dones in place of terminations"),
        (changed(actions=np.zeros((ROWS - 1, 1))), f"different numbers of rows: {ROWS} of observations, {ROWS - 1} of"),
        (
            changed(actions=np.zeros((ROWS, 2))),
            f"actions has the shape ({ROWS}, 2), but a row of Recorded has 1 of them",
        ),
        (changed(next_observations=np.zeros((ROWS, 4))), f"next_observations has the shape ({ROWS}, 4)"),
        (changed(**with_entry("observations", (7, 1), np.nan)), "row 7 of observations is not of finite float32"),
        (changed(**with_entry("rewards", 29, np.inf)), "row 29 of rewards is not of finite float32"),
        (changed(**with_entry("rewards", 3, 1e39)), "row 3 of rewards is not of finite float32"),
        (changed(**with_entry("actions", 5, 2.1)), "row 5 of actions is [2.1], but those of Recorded lie between"),
        (changed(**with_entry("terminations", 2, 0.5)), "row 2 of terminations is 0.5, but must be 0 or 1"),
        ({name: array[:0] for name, array in columns().items()} | BOUNDS, "is empty: it has no transitions"),
        (changed(action_low=None), "does not say what actions may be: name its task, --env ID"),
        (changed(action_low=np.array([3.0])), "actions between [3.0] and [2.0]"),
        (changed(rewards=np.array(1.0)), "rewards has the shape (), not rows of numbers"),
    ],
)
@pytest.mark.parametrize("kind", [".npz", ".h5"])
def test_bad_data_are_one_line(arrays, message, kind, tmp_path):
    path = write(tmp_path / f"data{kind}", arrays)
    with pytest.raises(DatasetError) as refused:
        read_all(open_dataset(path))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no.npz", "there is no such file"),
        ("no.h5", "there is no such file"),
        ("text.npz", "is no data set, or a damaged one"),
        ("text.h5", "is no HDF5 file, or a damaged one"),
        ("folder", "is no data set: name a run's folder"),
    ],
)
def test_what_is_no_data_set(name, message, tmp_path):
    (tmp_path / "folder").mkdir()
    for text in ("text.npz", "text.h5"):
        (tmp_path / text).write_text("hello")
    with pytest.raises(DatasetError) as refused:
        open_dataset(str(tmp_path / name))
    assert message in str(refused.value)


def test_what_needs_the_extra_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    monkeypatch.setitem(sys.modules, "h5py", None)
    for name in ("some/data-v0", str(tmp_path / "data.h5")):
        with pytest.raises(DatasetError, match=r"pip install 'mnm-rl\[offline\]'"):
            open_dataset(name)


def test_an_archive_larger_than_the_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = write(tmp_path / "data.npz", columns())
    monkeypatch.setattr(datasets, "MEMORY", 1000)
    with pytest.raises(DatasetError, match=r"store it as \.h5, which is sampled from the disk"):
        open_dataset(path)


def test_links_of_an_hdf5_file_to_others_are_not_followed(tmp_path):
    h5py = pytest.importorskip("h5py")
    write(tmp_path / "other.h5", columns() | BOUNDS)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        for name in COLUMNS:
            file[name] = h5py.ExternalLink("other.h5", name)
    with pytest.raises(DatasetError, match="has no observations"):
        open_dataset(str(tmp_path / "data.h5"))


def test_the_digest_knows_a_changed_number_and_not_the_kind_of_file(tmp_path):
    def digest(name, arrays):
        dataset = open_dataset(write(tmp_path / name, arrays))
        return checked(dataset, make(dataset.task(None)))

    first = digest("a.npz", columns() | BOUNDS)
    assert digest("b.h5", columns() | BOUNDS) == first
    assert digest("c.npz", changed(**with_entry("rewards", 3, 0.25))) != first


def test_ends_like_a_clock_s_are_told_of(tmp_path, capsys):
    arrays = columns() | BOUNDS | {"terminations": np.arange(ROWS) % 10 == 9}
    read_all(open_dataset(write(tmp_path / "data.npz", arrays)))
    assert "every episode ends after 10 steps: if that is a time limit" in capsys.readouterr().err


def test_a_task_that_a_module_makes_is_not_imported_because_data_name_it(tmp_path):
    from dataclasses import replace

    from mnm.trust import TrustError

    dataset = open_dataset(write(tmp_path / "data.npz", columns() | BOUNDS))
    with pytest.raises(TrustError):
        replace(dataset, env="never_typed:Task-v0").task(None)
    assert isinstance(replace(dataset, env="NoSuchTask-v0").task(None), Recorded)
