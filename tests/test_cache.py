"""What is compiled is kept for the next start."""

import os
import subprocess
import sys

import pytest

from mnm.commands.cache import FLAG, folder, trim, use_compilation_cache


def test_the_cache_is_the_user_s_and_what_is_set_stays(tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert use_compilation_cache(["envs"], environment) == ["envs"]
    assert environment["JAX_COMPILATION_CACHE_DIR"] == str(folder(environment))
    assert folder(environment).parent == tmp_path / "mnm"
    own = {"JAX_COMPILATION_CACHE_DIR": "mine"}
    use_compilation_cache(["envs"], own)
    assert own == {"JAX_COMPILATION_CACHE_DIR": "mine"}


def test_a_flag_turns_it_off():
    environment = {}
    assert use_compilation_cache(["train", FLAG, "sac"], environment) == ["train", "sac"]
    assert environment == {"JAX_ENABLE_COMPILATION_CACHE": "false"}


def test_the_oldest_entries_go_first(tmp_path):
    for number in range(4):
        (tmp_path / str(number)).write_bytes(bytes(10))
        os.utime(tmp_path / str(number), (number, number))
    trim(tmp_path, 25)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]
    trim(tmp_path / "nowhere", 25)


@pytest.mark.slow
def test_a_command_leaves_its_programs_there_unless_told_not_to(tmp_path):
    tiny = ("--scale", "quick", "--hidden", "8", "--batch-size", "8", "--learning-starts", "5", "--steps", "2")
    command = [sys.executable, "-m", "mnm", "train", "sac", "--env", "Pendulum-v1", "--evaluation-episodes", "1", *tiny]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([*command, FLAG], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert not (tmp_path / "cache").exists()
    subprocess.run([*command, "--overwrite"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert any(folder(environment).iterdir())
