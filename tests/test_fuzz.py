"""Random command lines and configurations: an exit code and a message, never a traceback."""

import json
import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mnm.commands.train
import mnm.training.driver
from mnm.agents import ALGORITHMS
from mnm.cli import COMMANDS, run
from mnm.commands.train import train
from mnm.training.options import SCALES, command_of

WORDS = """
Pendulum-v1 sac mnm_approx --env --steps --seed --seeds --scale quick cpu --name --runs --json --png
--baseline --at --metric --out --episodes --overrides --agents --envs --help -1 0 3 1e9 nan inf --batch-size
--hidden --discount --reward-offset -- ../x /proc/1 gym:FrozenLake-v1 gym: mnm/ThreeStates-v0 --list --dry-run
--jobs --checkpoint-minutes
""".split()  # noqa: SIM905 (a list of sixty strings is no easier to read)
WORD = st.one_of(st.sampled_from(WORDS), st.text(max_size=8).filter(lambda text: "\0" not in text))
LINE = st.tuples(st.sampled_from(list(COMMANDS)), st.lists(WORD, max_size=6)).map(lambda parts: [parts[0], *parts[1]])
FREE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
COUNTS = [100, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.apart])]


@pytest.fixture
def somewhere(tmp_path, monkeypatch):
    """An empty folder to stand in; what takes long is only begun."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mnm.commands.train, "run_training", lambda *_: 0)
    monkeypatch.setattr(mnm.commands.train, "Learner", Begun)
    monkeypatch.setattr(mnm.training.driver, "Learner", Begun)
    monkeypatch.setattr(mnm.training.driver, "run_training", lambda *_: 0)
    monkeypatch.setattr("mnm.sweeps.supervise.supervise", lambda *_: None)
    monkeypatch.setattr("mnm.cli.reproduce", lambda _: 0)
    return tmp_path


class Begun:
    """A learner that never learns."""

    def __init__(self, algorithm, config, task, seeds, longest):
        self.config, self.steps = config, 0


def code_of(arguments):
    try:
        return run(arguments)
    except SystemExit as stopped:  # the parser's way to stop
        return stopped.code


@pytest.mark.slow
@pytest.mark.parametrize("count", COUNTS)
def test_random_command_lines(somewhere, count):
    @settings(FREE, max_examples=count)
    @given(LINE)
    def a_line(arguments):
        assert code_of(arguments) in (0, 1, 2, None)
        for path in somewhere.iterdir():
            shutil.rmtree(path) if path.is_dir() else os.unlink(path)

    a_line()


VALUES = st.one_of(
    st.integers(-3, 5),
    st.floats(allow_nan=True, allow_infinity=True, width=32),
    st.text(max_size=4),
    st.none(),
    st.lists(st.integers(-1, 4), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@pytest.mark.parametrize("count", COUNTS)
def test_random_configurations(somewhere, count):
    @settings(FREE, max_examples=count)
    @given(st.sampled_from(list(ALGORITHMS)), st.data())
    def a_configuration(name, data):
        write_configuration(somewhere / "runs" / "Task-seed0", name, data)
        assert code_of(["resume", str(somewhere / "runs" / "Task-seed0")]) in (0, 1, 2)

    a_configuration()


def write_configuration(folder, name, data):
    """A run's config.json with one entry replaced, removed or the whole file spoilt."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    preset = ALGORITHMS[name].presets[data.draw(st.sampled_from(SCALES))]
    config = {
        "algorithm": name, "env": "Pendulum-v1", "seed": 0, "name": "Task", "seeds_together": [0], "steps": 100,
        "scale": "quick", "evaluate_every": 50, "evaluation_episodes": 1, "checkpoint_minutes": 2.0, "wandb": False,
        "settings": mnm.training.saving.config_as_json(preset),
    }  # fmt: skip
    place = data.draw(st.sampled_from([config, config["settings"]]))
    entry = data.draw(st.sampled_from([key for key in place if key != "settings"]))
    if data.draw(st.booleans()):
        place[entry] = data.draw(VALUES)
    else:
        del place[entry]
    text = json.dumps(config)
    if data.draw(st.integers(0, 9)) == 0:
        text = text[: data.draw(st.integers(0, len(text)))]
    (folder / "config.json").write_text(text)


def test_every_setting_is_a_flag_with_its_meaning():
    for algorithm in ALGORITHMS.values():
        assert command_of(algorithm, "cpu", "").__doc__


def test_the_nearest_flag_is_named(capsys):
    with pytest.raises(SystemExit):
        train(["sac", "--env", "Pendulum-v1", "--btch-size", "3"])
    assert "--batch-size" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([], "[], without the run's own seed 0"),
        ([1], "[1], without the run's own seed 0"),
        ([1, 2], "[1, 2], without the run's own seed 0"),
        (["0"], "['0'], which is not a list of whole numbers"),
    ],
)
def test_seeds_together_without_the_run_s_own_are_refused(somewhere, seeds, message, capsys):
    config = {
        "algorithm": "sac", "env": "Pendulum-v1", "seed": 0, "name": "Task", "seeds_together": seeds, "steps": 100,
        "scale": "quick", "evaluate_every": 50, "evaluation_episodes": 1, "checkpoint_minutes": 2.0, "wandb": False,
        "settings": {},
    }  # fmt: skip
    folder = somewhere / "Task-seed0"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    assert code_of(["resume", str(folder)]) == 2
    assert f"seeds_together is {message}" in capsys.readouterr().err
