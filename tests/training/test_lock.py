"""A run has one process at a time, and a folder that a kill left half-made is no run."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import mnm.commands.train
from mnm.agents import ALGORITHMS
from mnm.commands.resume import Resume, resume
from mnm.commands.train import train
from mnm.training.lock import LOCK, locked
from mnm.training.runs import CONFIG, is_unmade, write_spec
from mnm.training.saving import config_as_json
from mnm.training.spec import RunError, RunSpec

HOLDER = """
import sys, time
from pathlib import Path
from mnm.training.lock import locked
with locked([Path(sys.argv[1])]):
    print("locked", flush=True)
    time.sleep(60)
"""


class Begun:
    """A learner that never learns."""

    def __init__(self, algorithm, config, task, seeds, longest, dataset):
        self.config, self.steps = config, 0


@pytest.fixture
def quick_train(monkeypatch):
    monkeypatch.setattr(mnm.commands.train, "Learner", Begun)
    monkeypatch.setattr(mnm.commands.train, "run_training", lambda *_: 0)


def spec():
    settings = config_as_json(ALGORITHMS["sac"].presets["quick"])
    return RunSpec("sac", "Pendulum-v1", 0, "one", (0,), 100, "quick", 50, 1, 2.0, False, settings)


def options(runs):
    return ["sac", "--env", "Pendulum-v1", "--name", "one", "--runs", str(runs)]


def test_the_second_is_refused_with_a_line_that_names_the_first(tmp_path):
    folder = tmp_path / "one-seed0"
    with locked([folder]):
        with pytest.raises(RunError, match=rf"{folder} is being trained by process {os.getpid()} on \S+ since 2"):
            locked([folder]).__enter__()
        assert (folder / LOCK).exists()
    assert not (folder / LOCK).exists()
    with locked([folder]):
        pass


def test_of_several_folders_all_are_locked_or_none(tmp_path):
    with locked([tmp_path / "b"]):
        with pytest.raises(RunError, match="b is being trained"):
            locked([tmp_path / "a", tmp_path / "b"]).__enter__()
        with locked([tmp_path / "a"]):
            pass


def test_a_killed_owner_s_lock_is_taken_over_at_once_whoever_has_its_number_now(tmp_path):
    owner = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    assert owner.stdout.readline() == b"locked\n"
    with pytest.raises(RunError, match=f"by process {owner.pid} on"):
        locked([tmp_path]).__enter__()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    left = json.loads((tmp_path / LOCK).read_text())
    (tmp_path / LOCK).write_text(json.dumps(left | {"pid": os.getpid()}))  # alive, and not the owner
    began = time.monotonic()
    with locked([tmp_path]):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    assert time.monotonic() - began < 1


def test_train_and_resume_leave_a_run_to_its_process(tmp_path, capsys, quick_train):
    folder = tmp_path / "one-seed0"
    write_spec(folder, spec())
    (folder / "metrics.csv").write_text("step\n100\n")
    (folder / "kept").touch()
    with locked([folder]):
        assert train([*options(tmp_path), "--overwrite"]) == 2
        (folder / "metrics.csv").unlink()
        assert resume(Resume(folder)) == 2
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2
        assert all("is being trained by process" in line for line in lines)
        assert (folder / "kept").exists()
    assert train([*options(tmp_path), "--overwrite"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG]


@pytest.mark.parametrize("left", [{}, {CONFIG: ""}, {CONFIG: '{"algorithm": "s', LOCK: ""}, {f"{CONFIG}.123": "{"}])
def test_a_folder_that_a_kill_left_half_made_is_started_again(left, tmp_path, quick_train):
    folder = tmp_path / "one-seed0"
    folder.mkdir()
    for name, text in left.items():
        (folder / name).write_text(text)
    assert is_unmade(folder)
    assert train(options(tmp_path)) == 0
    assert json.loads((folder / CONFIG).read_text())["algorithm"] == "sac"


@pytest.mark.parametrize("name", [CONFIG, "metrics.csv", "config.json.bak", "lock.txt"])
def test_a_folder_with_anything_of_its_owner_s_in_it_is_not(name, tmp_path, capsys, quick_train):
    folder = tmp_path / "one-seed0"
    folder.mkdir()
    (folder / name).write_text("{}")
    assert train(options(tmp_path)) == 2
    assert (folder / name).read_text() == "{}"
    assert capsys.readouterr().err.count("\n") == 1


def test_a_configuration_is_whole_or_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="No space left"):
        write_spec(tmp_path / "one-seed0", spec())
    assert not (tmp_path / "one-seed0" / CONFIG).exists()
    assert is_unmade(tmp_path / "one-seed0")
