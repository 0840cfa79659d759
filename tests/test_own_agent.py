"""An agent from a file outside of the package can do all that ours can: that of examples/cautious_mbpo.py."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import killable
import mnm
from mnm.agents import find_algorithm
from mnm.agents.base import ConfigError
from mnm.plotting.style import AGENT_COLOURS, looks
from mnm.training.metrics import read_metrics

EXAMPLE = Path(__file__).parent.parent / "examples" / "cautious_mbpo.py"
NAME = "cautious_mbpo:cautious"
TINY = (
    *("--scale", "quick", "--hidden", "8", "--model-hidden", "8", "--head-hidden", "8", "--ensemble-size", "2"),
    *("--batch-size", "8", "--learning-starts", "20", "--warmup-updates", "5", "--model-buffer-capacity", "1000"),
)
SHORT = ("--steps", "30", "--evaluate-every", "30", "--evaluation-episodes", "1")


@pytest.fixture
def folder(tmp_path):
    """A user's folder with the agent's file in it."""
    shutil.copy(EXAMPLE, tmp_path)
    return tmp_path


def mnm_command(folder, *arguments):
    """The command in the folder, which finds the agent's module there by itself."""
    done = killable.finished(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.apart
def test_it_trains_saves_loads_resumes_sweeps_compares_and_draws(folder, monkeypatch):
    # Train, with the agent's own setting as a flag.
    real = [sys.executable, "-P", "-m", "mnm", "train", NAME, "--env", "Pendulum-v1", *SHORT, *TINY, "--penalty", "2.0"]
    done = subprocess.run(real, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = folder / "runs" / "Pendulum-v1-cautious-seed0"
    written = json.loads((run / "config.json").read_text())
    assert (written["algorithm"], written["settings"]["penalty"]) == (NAME, 2.0)
    metrics = read_metrics(run / "metrics.csv")
    assert metrics["step"] == [30]
    assert metrics["disagreement"][0] > 0

    # Resume: taken back to its specification, the run is made again, and again the same.
    for path in run.iterdir():
        if path.name != "config.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    mnm_command(folder, "resume", str(run), "--trust")
    again = read_metrics(run / "metrics.csv")
    assert again["critic_loss"] == metrics["critic_loss"]
    assert "cautious_mbpo:cautious after 30 steps" in mnm_command(
        folder, "evaluate", str(run), "--episodes", "1", "--trust"
    )

    # Load.
    monkeypatch.syspath_prepend(folder)
    agent = mnm.load(run / "agent.npz", trust=True)
    assert agent.config.penalty == 2.0
    assert agent.predict(np.array([1.0, 0.0, 0.0])).shape == (1,)
    agent.close()

    # Sweep, beside an agent of ours; compare and draw.
    chosen = ("--agents", NAME, "mbpo", "--envs", "Pendulum-v1", "--seeds", "1")
    mnm_command(folder, "sweep", *chosen, *SHORT, "--scale", "quick", "--overrides", " ".join(TINY[2:]))
    compared = mnm_command(folder, "compare", "runs", "--json", "--picture", "curves.png", "--baseline", "mbpo")
    assert {row["algorithm"] for env in json.loads(compared)["environments"] for row in env["agents"]} == {NAME, "mbpo"}
    assert (folder / "curves.png").stat().st_size > 10_000


@pytest.mark.slow
def test_it_is_made_in_python_and_saved(folder, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(folder)
    from cautious_mbpo import cautious

    small = {
        "hidden": (8,),
        "model_hidden": (8,),
        "head_hidden": (8,),
        "ensemble_size": 2,
        "model_buffer_capacity": 1000,
    }
    agent = mnm.make(cautious, "Pendulum-v1", scale="quick", penalty=3.0, **small)
    agent.save(tmp_path / "agent.npz")
    agent.close()
    with pytest.raises(ValueError, match="there is no agent 'cautious'"):
        mnm.load(tmp_path / "agent.npz")
    loaded = mnm.load(tmp_path / "agent.npz", algorithm=cautious)
    assert loaded.config.penalty == 3.0
    loaded.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mnm_aprox", r"there is no agent 'mnm_aprox' \(did you mean mnm_approx\?\)"),
        ("nowhere:agent", "No module named 'nowhere'; its module must be in the folder where the command is started"),
        ("math:pi", "the module math has no mnm.agents.Algorithm named 'pi'"),
        ("broken:agent", "importing broken failed with ZeroDivisionError: division by zero"),
        ("bare:agent", "its presets have no 'cpu'"),
    ],
)
def test_an_agent_that_is_none_is_refused_in_one_line(name, message, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "bare.py").write_text(
        "from mnm.agents.algorithm import Algorithm\nagent = Algorithm('a', 'A', {}, None, None, None)\n"
    )
    with pytest.raises(ConfigError, match=message):
        find_algorithm(name)


def test_every_agent_has_a_look_of_its_own_and_ours_always_the_same():
    names = [*AGENT_COLOURS, "sac:scale=quick", "one:agent", "two:agent"]
    look = looks(names)
    assert len(set(look.values())) == len(names)
    assert all(look[name] == (colour, "-") for name, colour in AGENT_COLOURS.items())
    assert look["sac:scale=quick"].colour == AGENT_COLOURS["sac"]
    alone = looks(["mnm", "one:agent"])
    assert alone["one:agent"].colour != alone["mnm"].colour == AGENT_COLOURS["mnm"]


@pytest.mark.slow
def test_an_agent_with_a_model_may_do_without_a_warm_up(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    from cautious_mbpo import cautious

    small = {"hidden": (8,), "model_hidden": (8,), "head_hidden": (8,), "ensemble_size": 2, "learning_starts": 5}
    agent = mnm.make(replace(cautious, warm_up=None), "Pendulum-v1", scale="quick", batch_size=8, **small)
    agent.learn(7, evaluation_episodes=1)
    assert agent.updates == 2 * agent.config.updates_per_step
    agent.close()
