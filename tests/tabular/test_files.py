"""MDPs from files: what is written is read back, and what is wrong is one line that starts with the path."""

import contextlib
import gc
import io
import json
import os
import pickle
import re
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from mnm.tabular import from_gym, parse_map, random_mdp
from mnm.tabular.files import InputError, read_task

VALID = {
    "probs": [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.25, 0.75]]],
    "rewards": [[1.0, 2.0], [3.0, 4.0]],
    "discount": 0.9,
}


def write_json(folder, content):
    path = folder / "mdp.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def write_npz(folder, **changes):
    path = folder / "mdp.npz"
    np.savez(path, **{name: np.array(value) for name, value in (VALID | changes).items()})
    return path


def write_map(folder, text):
    path = folder / "map.txt"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(source):
    """The message of the one InputError: a single line that starts with the source."""
    with pytest.raises(InputError) as caught:
        read_task(str(source))
    message = str(caught.value)
    assert message.startswith(f"{source}:")
    assert len(message.splitlines()) == 1
    assert len(message) < len(str(source)) + 500
    if str(source).endswith(".npz"):
        del caught
        gc.collect()  # a file left open is noticed in this test, not in a later one
    return message.removeprefix(str(source))


def assert_same_mdp(read, expected):
    assert np.array_equal(read.dynamics.to_dense(), expected.dynamics.to_dense())
    np.testing.assert_allclose(read.expected_rewards, expected.expected_rewards, rtol=1e-14)
    assert np.array_equal(read.start, expected.start)
    assert read.discount == expected.discount


# --- round trips --------------------------------------------------------------------------------------------


def dense_arrays(mdp):
    probs, rewards = mdp.dense_arrays()
    return {"probs": probs, "rewards": rewards, "discount": mdp.discount, "start": mdp.start}


@pytest.mark.parametrize("successors", [2, 5])
def test_npz_round_trip(tmp_path, successors):
    mdp = random_mdp(5, 3, seed=1, successors=successors)
    np.savez_compressed(tmp_path / "a.npz", **dense_arrays(mdp))
    task = read_task(str(tmp_path / "a.npz"))
    assert task.name == str(tmp_path / "a.npz")
    assert task.grid is None
    assert_same_mdp(task.mdp, mdp)


@pytest.mark.parametrize("successors", [2, 5])
def test_json_round_trip(tmp_path, successors):
    mdp = random_mdp(5, 3, seed=2, successors=successors)
    arrays = {name: np.asarray(array).tolist() for name, array in dense_arrays(mdp).items()}
    assert_same_mdp(read_task(str(write_json(tmp_path, arrays))).mdp, mdp)


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_successor_lists_round_trip(tmp_path, suffix):
    mdp = random_mdp(6, 2, seed=3, successors=3)
    arrays = dense_arrays(mdp) | {"probs": mdp.dynamics.probs, "successors": mdp.dynamics.successors}
    if suffix == "npz":
        path = tmp_path / "mdp.npz"
        np.savez(path, **arrays)
    else:
        path = write_json(tmp_path, {name: np.asarray(array).tolist() for name, array in arrays.items()})
    assert_same_mdp(read_task(str(path)).mdp, mdp)


def test_text_maps_are_read_as_grids(tmp_path):
    text = "noise = 0.25\nreward = 0.5\nS.#\n..G\n"
    task = read_task(str(write_map(tmp_path, text)))
    assert_same_mdp(task.mdp, parse_map(text).mdp)
    assert task.grid.goals == ((1, 2),)


def test_gym_environments_are_read_by_their_id():
    task = read_task("gym:FrozenLake-v1")
    environment = gymnasium.make("FrozenLake-v1")
    assert_same_mdp(task.mdp, from_gym(environment, 0.99))
    environment.close()
    assert (task.name, task.grid) == ("gym:FrozenLake-v1", None)


def test_the_start_is_state_0_unless_given(tmp_path):
    assert read_task(str(write_json(tmp_path, VALID))).mdp.start.tolist() == [1.0, 0.0]
    assert read_task(str(write_json(tmp_path, VALID | {"start": 1}))).mdp.start.tolist() == [0.0, 1.0]
    assert read_task(str(write_npz(tmp_path, start=1))).mdp.start.tolist() == [0.0, 1.0]
    assert read_task(str(write_npz(tmp_path, start=[0.5, 0.5]))).mdp.start.tolist() == [0.5, 0.5]


def test_rewards_may_depend_on_the_state_alone(tmp_path):
    mdp = read_task(str(write_json(tmp_path, VALID | {"rewards": [1, 2]}))).mdp
    assert mdp.expected_rewards.tolist() == [[1.0, 1.0], [2.0, 2.0]]


def test_rewards_may_depend_on_the_next_state(tmp_path):
    mdp = read_task(str(write_json(tmp_path, VALID | {"rewards": [[[8, 16]] * 2] * 2}))).mdp
    assert mdp.expected_rewards.tolist() == [[12.0, 8.0], [16.0, 14.0]]


def test_successors_that_are_listed_twice_add_up(tmp_path):
    lists = {"successors": [[[1, 1]], [[0, 1]]], "probs": [[[0.5, 0.5]], [[1.0, 0.0]]], "rewards": [1, 2]}
    mdp = read_task(str(write_json(tmp_path, VALID | lists))).mdp
    assert mdp.dynamics.to_dense().tolist() == [[[0.0, 1.0]], [[1.0, 0.0]]]


def test_rewards_by_next_state_beside_successor_lists_follow_the_states(tmp_path):
    # Both readings of rewards[s][a][i], by next state i and by the i-th listed successor, agree on these rewards:
    # state 0 always moves to state 1, its second listed successor; state 1 tosses a coin.
    arrays = {
        "successors": [[[0, 1]], [[0, 1]]],
        "probs": [[[0.0, 1.0]], [[0.5, 0.5]]],
        "rewards": [[[1, 5]], [[1, 5]]],
    }
    mdp = read_task(str(write_json(tmp_path, VALID | arrays))).mdp
    assert mdp.expected_rewards.tolist() == [[5.0], [3.0]]


def test_rewards_of_shape_states_actions_states_are_read_beside_successor_lists(tmp_path):
    arrays = {
        "successors": [[[1]], [[2]], [[0]]],
        "probs": [[[1.0]], [[1.0]], [[1.0]]],
        "rewards": [[[10, 11, 12]], [[20, 21, 22]], [[30, 31, 32]]],
    }
    mdp = read_task(str(write_json(tmp_path, VALID | arrays))).mdp
    assert mdp.expected_rewards.tolist() == [[11.0], [22.0], [30.0]]


@pytest.mark.parametrize("source", ["mdp.json", "map.txt", "gym:FrozenLake-v1"])
def test_a_given_discount_replaces_the_tasks_own(tmp_path, source):
    write_json(tmp_path, VALID)
    write_map(tmp_path, "discount = 0.8\nS.G\n")
    source = source if source.startswith("gym:") else str(tmp_path / source)
    task = read_task(source, discount=0.25)
    assert task.mdp.discount == 0.25
    if task.grid:
        assert task.grid.discount == 0.25


@pytest.mark.parametrize("discount", [0.0, 1.0, float("nan")])
@pytest.mark.parametrize("source", ["mdp.json", "map.txt", "gym:FrozenLake-v1"])
def test_a_wrong_given_discount_is_an_input_error(tmp_path, source, discount):
    write_json(tmp_path, VALID)
    write_map(tmp_path, "S.G\n")
    source = source if source.startswith("gym:") else str(tmp_path / source)
    with pytest.raises(InputError, match="discount must lie strictly between 0 and 1") as caught:
        read_task(source, discount=discount)
    assert str(caught.value).startswith(f"{source}: ")


@pytest.mark.parametrize("dtype", [np.float16, ">f8", np.longdouble])
def test_npz_arrays_of_any_real_type_are_read(tmp_path, dtype):
    path = write_npz(tmp_path, probs=np.array([[[0, 1]], [[1, 0]]]).astype(dtype), rewards=[1, 2])
    assert read_task(str(path)).mdp.dynamics.to_dense().tolist() == [[[0.0, 1.0]], [[1.0, 0.0]]]


# --- files that are not what they should be -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["none.txt", "none.json", "none.npz", "no/such/folder.json"])
def test_missing_file(tmp_path, name):
    assert refusal(tmp_path / name) == ": No such file or directory"


@pytest.mark.parametrize("name", ["folder", "folder.json", "folder.npz"])
def test_folder_instead_of_a_file(tmp_path, name):
    (tmp_path / name).mkdir()
    assert refusal(tmp_path / name) == ": Is a directory"


def test_empty_files(tmp_path):
    for suffix in ("txt", "json", "npz"):
        (tmp_path / f"empty.{suffix}").touch()
    assert refusal(tmp_path / "empty.txt").startswith(":1:1: there is no map")
    assert refusal(tmp_path / "empty.json") == ":1:1: not JSON: Expecting value"
    assert "not a readable .npz archive" in refusal(tmp_path / "empty.npz")


@pytest.mark.slow
def test_truncated_npz(tmp_path):
    path = write_npz(tmp_path)
    whole = path.read_bytes()
    for length in range(1, len(whole), 97):
        path.write_bytes(whole[:length])
        assert "not a readable .npz archive" in refusal(path)


def test_a_broken_npz_is_closed_again(tmp_path):
    path = write_npz(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError):
        read_task(str(path))
    assert path.resolve() not in {Path(f"/proc/self/fd/{fd}").resolve() for fd in os.listdir("/proc/self/fd")}


@pytest.mark.parametrize("compress", [np.savez, np.savez_compressed])
def test_npz_with_any_one_byte_changed_is_read_or_refused(tmp_path, compress):
    path = tmp_path / "mdp.npz"
    compress(path, **{name: np.array(value) for name, value in VALID.items()})
    whole = path.read_bytes()
    for index in range(0, len(whole), 7):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0x41]) + whole[index + 1 :])
        with contextlib.suppress(InputError):
            assert read_task(str(path)).mdp.num_states == 2
    gc.collect()


def test_encrypted_npz(tmp_path):
    path = write_npz(tmp_path)
    content = bytearray(path.read_bytes())
    for header, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for found in re.finditer(re.escape(header), bytes(content)):
            content[found.start() + flags] |= 1
    path.write_bytes(content)
    assert "encrypted" in refusal(path)


def test_a_single_array_named_npz(tmp_path):
    path = tmp_path / "single.npz"
    with path.open("wb") as file:
        np.save(file, np.ones((2, 1, 2)))
    assert "not a readable .npz archive" in refusal(path)


def test_a_zip_of_other_files_named_npz(tmp_path):
    path = tmp_path / "other.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("probs", "text")
    assert "not a readable .npz archive" in refusal(path)


class TouchWhenUnpickled:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_npz_with_pickled_objects_is_refused_and_nothing_is_executed(tmp_path):
    marker = tmp_path / "executed"
    evil = np.array([TouchWhenUnpickled(marker)], dtype=object)
    assert "not a readable .npz archive of plain arrays" in refusal(write_npz(tmp_path, rewards=evil))
    assert not marker.exists()
    pickle.loads(pickle.dumps(TouchWhenUnpickled(marker)))
    assert marker.exists()


def test_a_pickle_named_npz_is_refused_and_nothing_is_executed(tmp_path):
    marker, path = tmp_path / "executed", tmp_path / "pickle.npz"
    path.write_bytes(pickle.dumps(TouchWhenUnpickled(marker)))
    assert "not a readable .npz archive of plain arrays" in refusal(path)
    assert not marker.exists()


def test_a_pickle_inside_an_archive_is_refused_and_nothing_is_executed(tmp_path):
    marker, path = tmp_path / "executed", write_npz(tmp_path)
    member = io.BytesIO()
    np.save(member, np.array([TouchWhenUnpickled(marker)], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("start.npy", member.getvalue())
    assert "not a readable .npz archive of plain arrays" in refusal(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("array", "name"),
    [
        (np.array([["a", "b"], ["c", "d"]]), "rewards"),
        (np.full((2, 2), 1j), "rewards"),
        (np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"), "rewards"),
        (np.array(b"x"), "start"),
    ],
)
def test_npz_arrays_of_other_things_than_numbers(tmp_path, array, name):
    assert f"array '{name}'" in refusal(write_npz(tmp_path, **{name: array}))


# --- JSON ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{", ":1:2: not JSON: "),
        ('{\n  "discount": 0.9,\n  "probs": [1, 2,, 3]\n}', ":3:18: not JSON: "),
        ('{"discount": 0.9}\nmore', ":2:1: not JSON: Extra data"),
        ('{"discount": .9}', ":1:14: not JSON: "),
        ("{'discount': 0.9}", ":1:2: not JSON: "),
        ('{"discount": "0.9\n"}', ":1:18: not JSON: "),
    ],
)
def test_json_syntax_errors_name_line_and_column(tmp_path, text, place):
    assert refusal(write_json(tmp_path, text)).startswith(place)


@pytest.mark.parametrize("text", ["[]", "3", '"probs"', "null", "[[1.0]]"])
def test_json_that_is_no_object(tmp_path, text):
    assert refusal(write_json(tmp_path, text)).startswith(":1:1: expected an object with the keys probs, rewards")


def test_json_that_is_not_utf8(tmp_path):
    path = tmp_path / "latin.json"
    path.write_bytes(b'{"pr\xf6bs": 1}')
    assert refusal(path) == ": byte 4 is not UTF-8 text"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"probs":' * 100_000, '{"probs": ' + "[" * 500 + "]" * 500 + "}"])
def test_json_that_is_nested_too_deeply(tmp_path, text):
    assert refusal(write_json(tmp_path, text))


def test_json_numbers_with_thousands_of_digits(tmp_path):
    text = json.dumps(VALID).replace("0.9", "9" * 5000)
    assert refusal(write_json(tmp_path, text))


def test_whole_numbers_beyond_64_bits_are_read_or_named(tmp_path):
    path = write_json(tmp_path, VALID | {"rewards": [1.0, 10**30]})
    try:
        assert read_task(str(path)).mdp.expected_rewards.tolist() == [[1.0, 1.0], [1e30, 1e30]]
    except InputError:
        assert "array 'rewards': entry [1]" in refusal(path)


@pytest.mark.parametrize("name", ["probs", "rewards", "discount"])
def test_a_missing_array_is_named_and_all_are_listed(tmp_path, name):
    arrays = {key: value for key, value in VALID.items() if key != name}
    message = refusal(write_json(tmp_path, arrays))
    assert message.startswith(f": array '{name}' is missing; an MDP file has probs, rewards, discount")


@pytest.mark.parametrize("name", ["reward", "gamma", "", "probs ", "a\nb"])
def test_an_unknown_array_is_named(tmp_path, name):
    assert f"unknown array {name!r}; an MDP file has probs" in refusal(write_json(tmp_path, VALID | {name: 1}))


def changed_probs(value):
    return [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.25, value]]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probs": [[[1.0, 0.0]], [[1.0]]]}, "array 'probs': its rows have unequal lengths"),
        ({"rewards": [[1.0, 2.0], [3.0]]}, "array 'rewards': its rows have unequal lengths"),
        ({"start": [[1.0], [0.0, 1.0]]}, "array 'start': its rows have unequal lengths"),
        ({"probs": changed_probs("0.75")}, "array 'probs': entry [1, 1, 1] = '0.75' is not a number"),
        ({"probs": changed_probs(None)}, "array 'probs': entry [1, 1, 1] = None is not a number"),
        ({"rewards": [1.0, {"a": 1}]}, "array 'rewards': entry [1] = {'a': 1} is not a number"),
        ({"discount": "0.9"}, "array 'discount': entry '0.9' is not a number"),
        ({"discount": None}, "array 'discount': entry None is not a number"),
        ({"discount": 10**400}, "discount"),
        ({"discount": [0.9]}, "discount must be one number; got an array of shape (1,)"),
        ({"discount": 1.0}, "discount must lie strictly between 0 and 1; got 1.0"),
        ({"discount": float("nan")}, "discount must lie strictly between 0 and 1; got nan"),
        ({"probs": changed_probs(float("nan"))}, "dynamics: state 1, action 1: nan is not a probability"),
        ({"probs": changed_probs(float("inf"))}, "dynamics: state 1, action 1: inf is not a probability"),
        ({"probs": changed_probs(-0.75)}, "dynamics: state 1, action 1: -0.75 is not a probability"),
        ({"probs": changed_probs(0.5)}, "dynamics: state 1, action 1: probabilities sum to 0.75, not 1"),
        ({"rewards": [[1.0, float("nan")], [1.0, 1.0]]}, "state 0, action 1: reward nan is not a finite number"),
        ({"rewards": [1.0, float("-inf")]}, "state 1, action 0: reward -inf is not a finite number"),
        ({"probs": [[0.5, 0.5]]}, "dense probabilities must have shape [S, A, S]; got (1, 2)"),
        ({"probs": []}, "dense probabilities must have shape [S, A, S]; got (0,)"),
        ({"rewards": [1.0, 2.0, 3.0]}, "rewards must have shape (2, 2)"),
        ({"rewards": 1.0}, "rewards must have shape (2, 2)"),
        ({"start": 2}, "start state 2 is not a state; states are 0 to 1"),
        ({"start": -1}, "start state -1 is not a state; states are 0 to 1"),
        ({"start": 0.5}, "start"),
        ({"start": float("nan")}, "start"),
        ({"start": float("inf")}, "start"),
        ({"start": 1e300}, "start"),
        ({"start": "first"}, "array 'start': entry 'first' is not a number"),
        ({"start": [0.5, 0.25]}, "start distribution: probabilities sum to 0.75, not 1"),
        ({"start": [1.0]}, "start must have one probability for each of the 2 states; got (1,)"),
        ({"start": [0.5, "0.5"]}, "array 'start': entry [1] = '0.5' is not a number"),
        ({"successors": [[[0, 1]]]}, "must be two non-empty arrays of one shape [S, A, K]"),
        ({"successors": [[[]]], "probs": [[[]]]}, "must be two non-empty arrays of one shape [S, A, K]"),
        ({"successors": [[[0]], [[2]]], "probs": [[[1]], [[1]]]}, "state 1, action 0, successor slot 0: successor 2"),
        ({"successors": [[[0]], [["1"]]], "probs": [[[1]], [[1]]]}, "array 'successors': entry [1, 0, 0] = '1'"),
        ({"successors": [[[0.5]], [[1]]], "probs": [[[1]], [[1]]], "rewards": [1, 2]}, "successor"),
        ({"successors": [[[float("nan")]], [[1]]], "probs": [[[1]], [[1]]], "rewards": [1, 2]}, "successor"),
        (
            {"successors": [[[0, 0]], [[1, 1]]], "probs": [[[1.5, -0.5]], [[1, 0]]], "rewards": [1, 2]},
            "state 0, action 0: -0.5 is not a probability",
        ),
    ],
)
def test_bad_json_values_are_named(tmp_path, changes, message):
    assert message in refusal(write_json(tmp_path, VALID | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"probs": np.ones((2, 2))}, "dense probabilities must have shape [S, A, S]; got (2, 2)"),
        ({"rewards": np.ones((2, 3))}, "rewards must have shape (2, 2)"),
        ({"rewards": np.full((2, 2), np.nan)}, "state 0, action 0: reward nan is not a finite number"),
        ({"discount": np.ones(1)}, "discount must be one number; got an array of shape (1,)"),
        ({"discount": 2.0}, "discount must lie strictly between 0 and 1; got 2.0"),
        ({"start": 5}, "start state 5 is not a state; states are 0 to 1"),
        ({"start": 1.5}, "start"),
        ({"gamma": 0.9}, "unknown array 'gamma'"),
        ({"probs": [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 0.9], [0.25, 0.75]]]}, "state 1, action 0: probabilities sum"),
    ],
)
def test_bad_npz_values_are_named(tmp_path, changes, message):
    assert message in refusal(write_npz(tmp_path, **changes))


# --- text maps and environments -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("S..\n.x.\n", ":2:2: unknown cell 'x'"),
        ("noise=2\nS\n", ":1:7: noise = 2 must be between 0 and 1"),
        ("nois=2\nS\n", ":1:1: unknown setting 'nois'"),
        ("\n\n...\n", ":3:1: the map has no start"),
        ("S..\n.\n", ":2:2: this row has 1 cells, the first has 3"),
        ("S\u2028.x\n", ":2:"),
    ],
)
def test_bad_maps_name_line_and_column(tmp_path, text, message):
    assert refusal(write_map(tmp_path, text)).startswith(message)


def test_a_map_that_is_not_text(tmp_path):
    path = tmp_path / "picture.txt"
    path.write_bytes(b"S..\n\xff\n")
    assert refusal(path) == ": byte 4 is not UTF-8 text; maps are text, arrays need .npz or .json"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nonesuch-v1", "doesn't exist"),
        ("", "Malformed environment ID"),
        ("not an id", "Malformed environment ID"),
        ("nonesuch_module:Thing-v0", "No module named 'nonesuch_module'"),
        ("CartPole-v1", "has no transition table P"),
    ],
)
def test_bad_environments(name, message):
    assert message in refusal(f"gym:{name}")
