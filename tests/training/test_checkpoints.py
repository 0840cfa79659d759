"""Runs that stop and go on: bit for bit as if they had not, whatever was damaged; and why, where they cannot."""

import errno
import json
import os
import random
import re
import shutil
import signal
import time

import gymnasium as gym
import jax
import numpy as np
import pytest

import killable
from mnm.agents import ALGORITHMS
from mnm.api import configured
from mnm.commands.resume import Resume, resume
from mnm.commands.train import train
from mnm.training import checkpoints, saving
from mnm.training.checkpoints import CheckpointError, MismatchError, restore_checkpoints, save_checkpoint
from mnm.training.learner import Learner
from mnm.training.saving import config_as_json, read_arrays
from training.kills import arrays, assert_same_run, kill_and_resume, measured

pytestmark = pytest.mark.slow

TINY = {"hidden": (8,), "batch_size": 16, "learning_starts": 12, "updates_per_step": 1, "replay_capacity": 100}
MODEL = {
    "model_hidden": (8,),
    "head_hidden": (8,),
    "ensemble_size": 2,
    "model_buffer_capacity": 64,
    "warmup_updates": 600,
}
ADVERSARIAL = {"classifier_hidden": (8,), "value_term_start": 610}
STEPS = 30


class Corridor(gym.Env):
    """Noisy steps along a line; episodes end at its right and are cut off after 7 steps."""

    observation_space = gym.spaces.Box(-10.0, 10.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.count = self.np_random.normal(), 0
        return self._see(), {}

    def step(self, action):
        self.place += float(action[0]) + 0.3 * self.np_random.normal()
        self.count += 1
        return self._see(), -abs(self.place), self.place > 1.5, self.count == 7, {}

    def _see(self):
        return np.array([self.place, self.count], np.float32)


class Restless(Corridor):
    """Does not repeat itself: what happens depends on how often it was reset at all."""

    resets = 0

    def reset(self, *, seed=None, options=None):
        Restless.resets += 1
        return super().reset(seed=None if seed is None else seed + Restless.resets, options=options)


def learner(name="sac", task=Corridor, seeds=(0,), **more):
    settings = TINY | ({} if name == "sac" else MODEL) | (ADVERSARIAL if name == "mnm_approx" else {}) | more
    algorithm = ALGORITHMS[name]
    return Learner(algorithm, configured(algorithm, "quick", task, settings), task, seeds)


def go(agent, until=STEPS, pauses=None):
    """Learn up to a step, or through so many pauses; the rows without what depends on the clock."""
    rows = []
    left = [pauses]

    def on_eval(seed, step, row):
        rows.append((seed, step, {k: v for k, v in row.items() if k not in ("seconds", "updates_per_s")}))

    def on_step():
        if left[0] is not None:
            left[0] -= 1

    def should_stop():
        return left[0] == 0

    hooks = {"on_eval": on_eval, "on_step": on_step, "should_stop": should_stop}
    agent.learn(until - agent.steps, evaluate_every=5, evaluation_episodes=1, **hooks)
    return rows


def bits(agent):
    leaves = jax.tree.leaves((agent.state, agent.replay))
    keys = [jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    return [np.asarray(jax.random.key_data(leaf) if key else leaf) for leaf, key in zip(leaves, keys, strict=True)]


def assert_same(one, two):
    for a, b in zip(bits(one), bits(two), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def unbroken():
    """The runs that are never stopped, by algorithm."""
    made = {}

    def of(name):
        if name not in made:
            agent = learner(name)
            made[name] = agent, go(agent)
        return made[name]

    return of


# In the random steps, in the model's warm-up (chunks of 250 updates), before and after an episode's end.
@pytest.mark.parametrize(
    ("name", "pauses"),
    [("sac", 3), ("sac", 12), ("sac", 20), ("mnm_approx", 13), ("mnm_approx", 15), ("mnm_approx", 25)],
)
def test_a_run_goes_on_bit_by_bit(name, pauses, unbroken, tmp_path):
    whole, rows = unbroken(name)
    stopped = learner(name)
    before = go(stopped, pauses=pauses)
    save_checkpoint(tmp_path, stopped, 0)
    later = learner(name)
    assert restore_checkpoints([tmp_path], later) == []
    assert_same(stopped, later)
    np.testing.assert_equal(before + go(later), rows)
    assert_same(later, whole)
    assert later.seconds > stopped.seconds > 0


def test_seeds_that_learn_together_go_on_together(tmp_path):
    folders = [tmp_path / str(seed) for seed in (3, 4)]
    whole, stopped, later = (learner(seeds=(3, 4)) for _ in range(3))
    rows = go(whole)
    before = go(stopped, pauses=17)
    for index, folder in enumerate(folders):
        save_checkpoint(folder, stopped, index)
    restore_checkpoints(folders, later)
    np.testing.assert_equal(before + go(later), rows)
    assert_same(later, whole)


def test_a_task_that_does_not_repeat_itself_is_named(tmp_path):
    stopped, later = (learner(task=Restless) for _ in range(2))
    go(stopped, pauses=17)
    save_checkpoint(tmp_path, stopped, 0)
    (warning,) = restore_checkpoints([tmp_path], later)
    assert "Restless does not repeat itself" in warning
    go(later)
    assert later.steps == STEPS


def saved_twice(folder):
    """A run with checkpoints of steps 10 and 20."""
    agent = learner()
    for step in (10, 20):
        go(agent, until=step)
        save_checkpoint(folder, agent, 0)
    return agent


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def flip(path):
    """In more places than a date or an attribute has bytes: those decide nothing."""
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 2, len(content) // 2 + 64):
        content[place] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, empty])
def test_a_damaged_checkpoint_is_passed_over_and_named(damage, tmp_path):
    saved_twice(tmp_path)
    newest = max((tmp_path / "checkpoints").iterdir())
    damage(newest)
    later = learner()
    (warning,) = restore_checkpoints([tmp_path], later)
    assert later.steps == 10
    assert newest.name in warning
    assert "damaged" in warning


def test_no_flipped_bit_goes_unseen(tmp_path):
    """Anywhere in the file: it is refused, or what is read is what was written."""
    saved_twice(tmp_path)
    newest = max((tmp_path / "checkpoints").iterdir())
    header, arrays = read_arrays(newest)
    content = newest.read_bytes()
    seen = 0
    for place in range(0, len(content), 53):
        newest.write_bytes(content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :])
        try:
            found, read = read_arrays(newest)
        except ValueError:
            seen += 1
            continue
        assert found == header
        for one, two in zip(read, arrays, strict=True):
            np.testing.assert_array_equal(one, two)
    assert seen > 100  # the rest stands where it decides nothing: dates, attributes


def test_without_any_good_checkpoint_the_error_says_what_to_do(tmp_path):
    saved_twice(tmp_path)
    for path in (tmp_path / "checkpoints").iterdir():
        empty(path)
    with pytest.raises(CheckpointError, match=r"no checkpoint to go on from .*damaged.*--overwrite"):
        restore_checkpoints([tmp_path], learner())


def test_only_the_newest_two_are_kept_and_remains_are_swept_away(tmp_path):
    folder = tmp_path / "checkpoints"
    agent = saved_twice(tmp_path)
    (folder / "000000025-000000013.npz.tmp").touch()  # a kill while it was written
    go(agent)
    save_checkpoint(tmp_path, agent, 0)
    assert sorted(path.name[:9] for path in folder.iterdir()) == ["000000020", "000000030"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"name": "mbpo"}, "saved with algorithm 'sac', but this run has 'mbpo'"),
        ({"batch_size": 17}, "saved with settings batch_size = 16, but this run has 17"),
        ({"seeds": (1,)}, "saved with seed 0, but this run has 1"),
        ({"task": "Pendulum-v1"}, "saved with task 'Corridor', but this run has 'Pendulum-v1'"),
    ],
)
def test_another_run_s_checkpoint_is_refused_with_the_difference(other, said, tmp_path):
    saved_twice(tmp_path)
    with pytest.raises(MismatchError, match=said):
        restore_checkpoints([tmp_path], learner(**other))


def test_a_checkpoint_from_before_a_setting_is_refused_with_a_remedy(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        without = lambda config: {k: v for k, v in config_as_json(config).items() if k != "batch_size"}  # noqa: E731
        patched.setattr(checkpoints, "config_as_json", without)
        saved_twice(tmp_path)
    with pytest.raises(
        MismatchError, match=r"by a version without settings batch_size: .*mnm train \.\.\. --overwrite"
    ):
        restore_checkpoints([tmp_path], learner())


def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "FORMAT", 0)
        saved_twice(tmp_path)
    with pytest.raises(MismatchError, match="saved with format 0, but this run has 5"):
        restore_checkpoints([tmp_path], learner())


def test_a_run_with_checkpoints_of_version_0_1_is_neither_started_again_nor_resumed(tmp_path, capsys):
    assert train(arguments("Pendulum-v1", 20, tmp_path)) == 0
    folder = tmp_path / "Pendulum-v1-sac-seed0"
    (old,) = (folder / "checkpoints").iterdir()
    old.with_suffix("").mkdir()  # the arrays; beside them stood a manifest
    old.rename(old.with_suffix(".json"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"steps": 25}))
    before = measured(folder)
    assert resume(Resume(folder)) == 2
    assert "holds checkpoints of format 2, which version 0.1 wrote" in capsys.readouterr().err
    np.testing.assert_equal(measured(folder), before)


class Explosive:
    """Pickled, it would run a command when it is loaded."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_hostile_files_execute_nothing(tmp_path):
    import pickle

    saved_twice(tmp_path)
    mark = tmp_path / "executed"
    newest = max((tmp_path / "checkpoints").iterdir())
    hostile = pickle.dumps(Explosive(mark))
    newest.write_bytes(hostile)
    later = learner()
    restore_checkpoints([tmp_path], later)
    assert later.steps == 10
    assert not mark.exists()
    pickle.loads(hostile)
    assert mark.exists()  # the trap does work


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    saved_twice(tmp_path)
    agent = learner()
    restore_checkpoints([tmp_path], agent)
    go(agent)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(saving.os, "fsync", full)
        with pytest.raises(CheckpointError, match=r"step 30: .*No space left on device; the one before is untouched"):
            save_checkpoint(tmp_path, agent, 0)
    later = learner()
    assert restore_checkpoints([tmp_path], later) == []
    assert later.steps == 20
    save_checkpoint(tmp_path, agent, 0)


# The commands.

SMALL = [
    "--scale",
    "quick",
    "--hidden",
    "8",
    "--batch-size",
    "16",
    "--learning-starts",
    "40",
    "--updates-per-step",
    "1",
    "--replay-capacity",
    "5000",
]
OFTEN = ["--evaluate-every", "30", "--evaluation-episodes", "1"]


def arguments(env, steps, runs, *more):
    return ["sac", "--env", env, "--steps", str(steps), "--runs", str(runs), *SMALL, *OFTEN, *more]


@pytest.mark.apart
@pytest.mark.parametrize(("kills", "seeds"), [(3, 1), pytest.param(20, 25, marks=pytest.mark.long)])
@pytest.mark.parametrize("env", ["Pendulum-v1", "InvertedPendulum-v5"])
def test_a_run_killed_again_and_again_ends_as_one_never_killed(env, kills, seeds, tmp_path):
    """By SIGKILL, at random moments, also while a checkpoint is being written: every pause writes one.

    However few, some kills come before the agent learns and the last one after. Of each seed a run, killed so often.
    """
    for seed in range(seeds):
        steps, chance, place = 240, random.Random(f"{env} {seed}"), tmp_path / str(seed)
        assert train(arguments(env, steps, place / "whole", "--seed", str(seed))) == 0
        (whole,) = (place / "whole").iterdir()
        killed = place / "killed" / whole.name
        often = ["--checkpoint-minutes", "0", "--seed", str(seed)]
        command = ["train", *arguments(env, steps, place / "killed", *often)]
        kill_and_resume(command, killed, [(number * steps // (2 * kills), 0) for number in range(kills)], chance)
        assert_same_run(killed, whole)


@pytest.mark.apart
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops(number, tmp_path):
    said = tmp_path / "stderr"
    process = killable.started("train", *arguments("Pendulum-v1", 1_000_000, tmp_path / "runs"), stderr=said)
    folder = tmp_path / "runs" / "Pendulum-v1-sac-seed0"
    while process.is_alive() and not (folder / "evaluations.csv").exists():
        time.sleep(0.02)
    os.kill(process.pid, number)
    process.join(timeout=60)
    assert process.exitcode == 128 + number, said.read_text()
    assert "Traceback" not in said.read_text()
    assert len(list((folder / "checkpoints").glob("*.npz"))) == 1


def test_an_unfinished_run_is_offered_and_a_finished_one_is_left(tmp_path, capsys):
    short = arguments("Pendulum-v1", 20, tmp_path)
    assert train(short) == 0
    folder = tmp_path / "Pendulum-v1-sac-seed0"
    assert resume(Resume(folder)) == 0
    assert "is finished" in capsys.readouterr().out
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"steps": 25}))
    assert train(short) == 2
    assert f"{folder} is unfinished: mnm resume {folder} goes on with it" in capsys.readouterr().err
    assert resume(Resume(folder)) == 0
    assert measured(folder)["step"] == [20, 25]


def test_a_finished_run_trained_further_is_one_that_was_longer_from_the_start(tmp_path, capsys):
    """Also where its replay was just full, and the longer run has a larger one."""
    rare = ["--learning-starts", "1016", "--evaluate-every", "512", "--replay-capacity", "5000"]
    assert train([*arguments("Pendulum-v1", 1024, tmp_path / "further"), *rare]) == 0
    assert train([*arguments("Pendulum-v1", 1040, tmp_path / "whole"), *rare]) == 0
    further, whole = (tmp_path / name / "Pendulum-v1-sac-seed0" for name in ("further", "whole"))
    assert resume(Resume(further, steps=1023)) == 2
    assert f"--steps is 1023, but {further} has done 1024: name as many or more" in capsys.readouterr().err
    assert resume(Resume(further, steps=0)) == 2
    assert resume(Resume(further, steps=1024)) == 0
    assert "is finished: 1024 steps" in capsys.readouterr().out
    assert resume(Resume(further, steps=1040)) == 0
    assert json.loads((further / "config.json").read_text())["steps"] == 1040
    np.testing.assert_equal(measured(further), measured(whole))
    for one, two in zip(arrays(further), arrays(whole), strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of 20 steps."""
    runs = tmp_path_factory.mktemp("runs")
    assert train(arguments("Pendulum-v1", 20, runs)) == 0
    return runs / "Pendulum-v1-sac-seed0"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda config: config | {"algorithm": "sax"}, "sax"),
        (lambda config: config | {"settings": config["settings"] | {"batch_size": 0}}, "batch_size is 0"),
        (
            lambda config: config | {"settings": config["settings"] | {"hidden": [9]}},
            "hidden = .8., but this run has .9.",
        ),
        (lambda config: config | {"env": "InvertedPendulum-v5"}, "saved with task 'Pendulum-v1'"),
        (lambda config: {}, "it has no 'algorithm'"),
    ],
)
def test_a_changed_configuration_is_refused_in_one_line(change, said, finished, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / finished.name)
    path = folder / "config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()) | {"steps": 25})))
    capsys.readouterr()
    assert resume(Resume(folder)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error)


def test_resume_of_nothing(tmp_path, capsys):
    assert resume(Resume(tmp_path)) == 2
    assert "is not a run" in capsys.readouterr().err
