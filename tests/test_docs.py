"""What README and the pages of docs/ say to type works: commands are parsed, cheap ones and all Python are run."""

import re
import shlex
import tomllib
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import tyro

import mnm.commands.train
from mnm.cli import COMMANDS, run
from mnm.commands.certify import Certify
from mnm.commands.envs import Envs
from mnm.commands.reproduce import Reproduce
from mnm.commands.solve import Solve
from mnm.commands.sweep import shield_overrides
from mnm.tabular import random_mdp, sample_transitions, uniform_policy
from mnm.training.learner import Learner

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PLACEHOLDER = re.compile(r"\[|\.\.\.|\b(AGENT|COMMAND|FILE|ID|NAME|PATH|RUN)\b")
"""What a line has that shows a command's form and is not to be typed."""
FEW = 5
"""Steps that an agent learns here, however many a page says: the first are random, and nothing is compiled for them."""


def python_blocks(page):
    """What a page says to run in Python, in order: a block goes on from the ones before it."""
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def typed(page, program):
    """The lines of a program in indented or fenced blocks, without comments and redirections."""
    text = page.read_text(encoding="utf-8")
    shell = "\n".join(re.findall(r"```(?:bash|console|sh)\n(.*?)```", text, re.DOTALL))
    lines = re.findall(rf"^    ({program} .*)$", text, re.MULTILINE) + re.findall(
        rf"^({program} .*)$", shell, re.MULTILINE
    )
    return [re.sub(r"\s+(#|>) .*$", "", line).strip() for line in lines]


LINES = list(dict.fromkeys(line for page in PAGES for line in typed(page, "mnm")))
FORMS = [line for line in LINES if PLACEHOLDER.search(line)]
COMMAND_LINES = [line for line in LINES if line not in FORMS]
PYTHON = [pytest.param(python_blocks(page), id=page.name) for page in PAGES if python_blocks(page)]


def test_there_is_something_to_try():
    assert len(COMMAND_LINES) > 20
    assert len(FORMS) > 3
    assert len(PYTHON) > 3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder as the pages assume it: the repository's, with an MDP as arrays and transitions of another."""
    for name in ("docs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    np.savez(tmp_path / "mdp.npz", probs=np.full((2, 1, 2), 0.5), rewards=[2.0, 4.0], discount=0.5)
    mdp = random_mdp(6, 2, seed=0, successors=3)
    sample_transitions(mdp, uniform_policy(mdp), 2_000, seed=0).save(tmp_path / "data.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    known = set(gym.registry)
    yield tmp_path
    for name in set(gym.registry) - known:  # a page's own task
        del gym.registry[name]


def parsed(arguments, monkeypatch):
    """The command that the line means, as the command line itself reads it."""
    if arguments[0] != "train":
        args = shield_overrides(arguments) if arguments[0] == "sweep" else arguments
        return tyro.extras.subcommand_cli_from_dict(COMMANDS, args=args)
    read = []
    monkeypatch.setattr(mnm.commands.train, "run", lambda *command: read.append(command) or 0)
    assert run(arguments) == 0
    return read[0]


def is_cheap(command):
    """Whether it is run here: it neither trains nor needs a run, and draws nothing with a simulator."""
    if isinstance(command, Reproduce):
        return command.list or command.figures == ("three_states",)
    if isinstance(command, Certify):
        return command.source.suffix == ".csv"
    return isinstance(command, Solve) or (isinstance(command, Envs) and command.picture is None)


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMAND_LINES)
def test_a_command_line_is_understood_and_a_cheap_one_runs(line, folder, monkeypatch, capsys):
    _, *arguments = shlex.split(line)
    if arguments[0] == "--tyro-print-completion":
        with pytest.raises(SystemExit) as stopped:
            run(arguments)
        assert stopped.value.code in (0, None)
        assert "mnm" in capsys.readouterr().out
        return
    if is_cheap(parsed(arguments, monkeypatch)):
        assert run(arguments) == 0
        assert capsys.readouterr().out


@pytest.mark.parametrize("line", FORMS)
def test_the_flags_of_a_command_s_form_exist(line, capsys):
    words = line.replace("AGENT", "sac").split()
    with pytest.raises(SystemExit):
        run([*words[1 : 3 if words[1] == "train" else 2], "--help"])
    text = capsys.readouterr().out
    assert [flag for flag in re.findall(r"--[a-z][a-z-]*", line) if flag not in text] == []


@pytest.mark.slow
@pytest.mark.parametrize("blocks", PYTHON)
def test_python_runs_as_written(blocks, folder, monkeypatch):
    learn = Learner.learn
    monkeypatch.setattr(Learner, "learn", lambda agent, steps, *rest, **more: learn(agent, FEW, *rest, **more))
    page = {"__name__": "__main__"}
    for block in blocks:
        if "stable_baselines3" not in block or find_spec("stable_baselines3"):  # it brings PyTorch: an extra of its own
            exec(compile(block, "a page", "exec"), page)


def test_extras_and_targets_that_are_named_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = {extra for some in re.findall(r"(?:mnm-rl|'\.)\[([\w,]+)\]", text) for extra in some.split(",")}
        assert named <= set(extras), page.name
        assert {line.split()[1] for line in typed(page, "make")} <= {*targets, "test-fast", "test-long"}, page.name
    assert "make run" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make test" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_extra_is_explained():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    explained = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/install.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(explained) == set(extras) - {"bench", "dev", "docs"}
