"""`mnm train`: the real command's first steps for every agent, what it writes, and how it fails."""

import json
import sys

import gymnasium as gym
import numpy as np
import pytest

import killable
import mnm
from mnm.agents import ALGORITHMS
from mnm.api import configured
from mnm.commands.train import train
from mnm.training.metrics import read_metrics
from mnm.training.options import with_new_settings
from mnm.training.runs import read_run
from mnm.training.saving import config_as_json, config_from_json
from mnm.training.spec import RENAMED

SMALL = ["--scale", "quick", "--learning-starts", "60", "--evaluate-every", "50", "--evaluation-episodes", "1"]
MODEL = ["--warmup-updates", "20", "--ensemble-size", "2", "--model-buffer-capacity", "2000"]
LOSSES = {"critic_loss", "actor_loss", "entropy", "temperature"}


def command(name, runs, *more):
    """The first 100 steps, 60 of them random."""
    model = [] if name == "sac" else MODEL
    offset = ["--reward-offset", "17"] if ALGORITHMS[name].log_returns else []
    return [name, "--env", "Pendulum-v1", "--steps", "100", "--runs", str(runs), *SMALL, *model, *offset, *more]


@pytest.mark.slow
@pytest.mark.apart
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_first_hundred_steps(name, tmp_path, capsys):
    assert train(command(name, tmp_path)) == 0
    folder = tmp_path / f"Pendulum-v1-{name}-seed0"
    assert "step 100 | seed 0 | return -" in capsys.readouterr().out
    written = json.loads((folder / "config.json").read_text())
    assert (written["algorithm"], written["scale"], written["settings"]["learning_starts"]) == (name, "quick", 60)
    assert list(folder.glob("events.out.tfevents.*"))

    metrics = read_metrics(folder / "metrics.csv")
    assert metrics["step"] == [50, 100]
    warm_up = 0 if name == "sac" else 20
    assert metrics["updates"] == [0, warm_up + 40 * 2]
    expected = LOSSES | {"return", "q_at_start", "discounted_return"}
    if name != "sac":
        expected |= {"model_loss", "model_return", "model_error_1", "constant_error_1", "model_error_10"}
    if hasattr(ALGORITHMS[name].presets["quick"], "classifier_hidden"):
        expected |= {"classifier_accuracy", "held_out_accuracy", "calibration_error"}
    if ALGORITHMS[name].log_returns:
        expected |= {"bound", "log_return"}
    assert expected <= set(metrics)
    assert all(np.isfinite(metrics[column][-1]) for column in expected - {"model_return", "bound", "model_error_10"})

    agent = mnm.load(folder / "agent.npz")
    assert agent.steps == 100
    assert agent.predict(np.array([1.0, 0.0, 0.0])).shape == (1,)


@pytest.mark.slow
def test_a_task_in_a_module_of_the_present_folder(tmp_path):
    """Through the real command: its own start-up decides where modules are looked for."""
    (tmp_path / "tank.py").write_text(
        "import gymnasium as gym\n"
        "class Tank(gym.Env):\n"
        "    observation_space = action_space = gym.spaces.Box(-1.0, 1.0, (1,))\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return self.observation_space.sample(), {}\n"
        "    def step(self, action):\n"
        "        return self.observation_space.sample(), 1.0, False, False, {}\n"
        "gym.register('made/Tank-v0', entry_point=Tank, max_episode_steps=5)\n"
    )
    arguments = ["train", "sac", "--env", "tank:made/Tank-v0", "--steps", "6", *SMALL]
    done = killable.finished(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/made_Tank-v0-sac-seed0/agent.npz").exists()


@pytest.mark.slow
def test_seeds_together_have_a_folder_each(tmp_path):
    assert train(command("sac", tmp_path, "--seeds", "2", "--seed", "3")) == 0
    returns = [read_metrics(tmp_path / f"Pendulum-v1-sac-seed{seed}" / "metrics.csv")["return"] for seed in (3, 4)]
    assert returns[0] != returns[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("sac --env Pendulm-v1", "nearest ids: Pendulum-v1"),
        ("sac --env CartPole-v1", "supported are Box actions"),
        ("sac --env Pendulum-v1 --scale large", "must be one of paper, cpu, quick"),
        ("sac --env Pendulum-v1 --name ../away", "cannot be named"),
        ("sac --env Pendulum-v1 --steps 0", "--steps is 0"),
        ("sac --env Pendulum-v1 --seeds 0", "--seeds is 0"),
        ("sac --env Pendulum-v1 --seed -1", "--seed is -1"),
        ("sac", "no task: name one, --env Pendulum-v1, or data to learn from, --dataset D"),
        ("sax --env Pendulum-v1", "there is no agent 'sax' (did you mean sac?)"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(arguments, message, tmp_path, capsys):
    assert train([*arguments.split(), "--runs", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_what_the_parser_refuses_ends_with_code_2():
    with pytest.raises(SystemExit) as stopped:
        train(["sac", "--env", "Pendulum-v1", "--btch-size", "3"])
    assert stopped.value.code == 2


def test_an_impossible_setting_is_named(capsys):
    with pytest.raises(SystemExit) as stopped:
        train(["sac", "--env", "Pendulum-v1", "--batch-size", "0"])
    assert stopped.value.code == 2
    assert "batch_size is 0" in "".join(capsys.readouterr())


@pytest.mark.slow
def test_a_reward_without_logarithm_stops_the_run_and_names_it(tmp_path, capsys):
    arguments = ["mnm", "--env", "Pendulum-v1", "--steps", "10", "--runs", str(tmp_path), *SMALL, *MODEL]
    assert train(arguments) == 1
    error = capsys.readouterr().err
    assert "the reward -" in error
    assert "set reward_offset above" in error


class Breaks(gym.Env):
    """Pays 1 a step, and breaks at the 7th step of its 3rd episode of 10."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))
    episodes = steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes, self.steps = self.episodes + 1, 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        broken = self.episodes == 3 and self.steps == 7
        return np.full(2, np.nan if broken else 0.5, np.float32), 1.0, self.steps == 10, False, {}


@pytest.mark.slow
def test_a_run_on_a_task_that_breaks_keeps_what_it_had(tmp_path, capsys):
    gym.register("Breaks-v0", entry_point=Breaks)
    quick = ["--scale", "quick", "--learning-starts", "5", "--evaluate-every", "10", "--evaluation-episodes", "1"]
    assert train(["sac", "--env", "Breaks-v0", "--steps", "50", "--runs", str(tmp_path), *quick]) == 1
    error = capsys.readouterr().err
    assert (
        error == "mnm: Breaks-v0: episode 3, step 7: entry 0 of the observation is nan, which is not a finite float32\n"
    )
    folder = tmp_path / "Breaks-v0-sac-seed0"
    assert read_metrics(folder / "metrics.csv")["step"] == [10, 20]
    assert mnm.load(folder / "agent.npz").steps == 26


@pytest.mark.slow
def test_weights_and_biases_get_every_row(tmp_path, monkeypatch):
    """By a package of that name that writes down what it is told."""
    (tmp_path / "wandb.py").write_text(
        "told = []\n"
        "class Run:\n"
        "    def log(self, row, step):\n"
        "        told.append((step, row['return']))\n"
        "def init(**settings):\n"
        "    told.append(settings['name'])\n"
        "    return Run()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    short = ["sac", "--env", "Pendulum-v1", "--steps", "5", "--runs", str(tmp_path / "runs"), *SMALL]
    assert train([*short, "--wandb"]) == 0
    import wandb

    folder = tmp_path / "runs" / "Pendulum-v1-sac-seed0"
    assert wandb.told == ["Pendulum-v1-sac-seed0", (5, read_metrics(folder / "metrics.csv")["return"][0])]
    monkeypatch.delitem(sys.modules, "wandb")


def test_without_wandb_it_is_an_error_before_anything_begins(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mnm.training.options.find_spec", lambda _: None)
    assert train(["sac", "--env", "Pendulum-v1", "--runs", str(tmp_path / "runs"), "--wandb"]) == 2
    assert "pip install 'mnm-rl[wandb]'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_an_existing_run_is_kept_unless_told(tmp_path, capsys):
    short = ["sac", "--env", "Pendulum-v1", "--steps", "5", "--runs", str(tmp_path), *SMALL]
    assert train(short) == 0
    mark = tmp_path / "Pendulum-v1-sac-seed0" / "mark"
    mark.touch()
    assert train(short) == 2
    assert "exists" in capsys.readouterr().err
    assert mark.exists()
    assert train([*short, "--overwrite"]) == 0
    assert not mark.exists()
    (tmp_path / "precious-seed0").mkdir()
    (tmp_path / "precious-seed0" / "letters").touch()
    assert train([*short, "--overwrite", "--name", "precious"]) == 2


def test_old_names_of_settings_work_for_one_version_with_a_warning(tmp_path, capsys):
    old = ["--random-steps", "5", "--hidden=8", "--slow_model_rate=0.1", "--members", "2"]
    parsed = with_new_settings(["mbpo", "--env", "Pendulum-v1", *old])
    assert parsed == [
        *("mbpo", "--env", "Pendulum-v1", "--learning-starts", "5", "--hidden=8"),
        *("--model-target-rate=0.1", "--ensemble-size", "2"),
    ]
    error = capsys.readouterr().err
    assert error.splitlines()[0] == "mnm: --random-steps is now --learning-starts; the old name goes with version 0.3"
    assert error.count("\n") == 3
    with pytest.warns(DeprecationWarning, match="members is now called ensemble_size"):
        config = configured(ALGORITHMS["mbpo"], "quick", "Pendulum-v1", {"members": 3})
    assert config.ensemble_size == 3
    settings = config_as_json(config)
    before = {old: settings.pop(new) for old, new in RENAMED.items() if new in settings}
    assert config_from_json(ALGORITHMS["mbpo"], settings | before) == config


def test_a_run_of_version_0_1_is_read_by_the_new_names(tmp_path):
    config = {"algorithm": "mbpo", "env": "Pendulum-v1", "seed": 0, "steps": 100, "scale": "cpu"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"settings": {"members": 7, "hidden": [8]}}))
    assert read_run(tmp_path).config["settings"] == {"ensemble_size": 7, "hidden": [8]}
