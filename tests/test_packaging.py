"""What is imported is declared, and the core does without the extras."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import mnm
from mnm.messages import EXTRAS, missing_extra
from mnm.training import runs

ROOT = Path(__file__).parents[1]
PACKAGE = Path(mnm.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {"PIL": "pillow", "minari": "minari[hdf5]", "pygame": "gymnasium[classic-control]"}
"""Of modules that are called otherwise, or come with another one."""
CORE_ONLY = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sorted(EXTRAS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
from mnm.cli import main
main()
"""


def names(requirements):
    """Of the packages, with their extras."""
    return {re.split(r"[<>=!~; ]", requirement)[0].lower() for requirement in requirements}


def imported(*, everywhere):
    """The other packages that the library imports: at the top of a module, or everywhere in it."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree) if everywhere else tree.body:
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"mnm"}


@pytest.mark.slow
def test_every_import_is_declared_and_every_dependency_is_imported():
    core = names(PROJECT["dependencies"]) - {"flatbuffers"}  # which JAX imports for us
    extras = {DISTRIBUTIONS.get(module, module).lower(): extra for module, extra in EXTRAS.items()}
    assert {module.lower() for module in imported(everywhere=True) - set(EXTRAS)} == {name.lower() for name in core}
    for package, extra in extras.items():
        assert package in names(PROJECT["optional-dependencies"][extra]), package
    assert imported(everywhere=True) >= set(EXTRAS) - {"pygame"}  # which Gymnasium draws with


def test_the_extra_all_has_all_and_the_tests_have_what_needs_no_account():
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(re.findall(r"\w+", everything)) - {"mnm", "rl"} == set(EXTRAS.values())
    assert f"mnm-rl[{everything.partition('[')[2]}".replace(",wandb", "") in extras["dev"]


@pytest.mark.parametrize(
    ("said", "extra"),
    [
        ("No module named 'matplotlib.figure'", "figures"),
        ("No module named 'mujoco'. (HINT: you need to install mujoco)", "mujoco"),
        ('MuJoCo is not installed, run `pip install "gymnasium[mujoco]"`', "mujoco"),
        ('pygame is not installed, run `pip install "gymnasium[classic-control]"`', "video"),
        ("No module named 'mujoco_like'", None),
        ("something else", None),
    ],
)
def test_an_error_says_which_extra_is_missing(said, extra):
    found = missing_extra(ImportError(said))
    assert found is None if extra is None else found.endswith(f"pip install 'mnm-rl[{extra}]'")


def core_only(*arguments, cwd=ROOT):
    """The command as after `pip install mnm-rl` alone."""
    done = subprocess.run(
        [sys.executable, "-c", CORE_ONLY, *arguments], capture_output=True, text=True, check=False, cwd=cwd, timeout=200
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_the_core_solves(tmp_path):
    code, out, err = core_only("solve", "docs/gridworld.txt")
    assert (code, err) == (0, "")
    assert "optimal value" in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["reproduce", "three_states", "--out", "{}"], "figures"),
        (["report", "--results", "{}", "--out", "{}/report.html"], "figures"),
        (["solve", "docs/gridworld.txt", "--picture", "{}/picture.png"], "figures"),
        (["train", "sac", "--env", "HalfCheetah-v5", "--runs", "{}"], "mujoco"),
    ],
)
def test_what_needs_an_extra_says_so_in_one_line(arguments, extra, tmp_path):
    code, _, err = core_only(*(argument.replace("{}", str(tmp_path)) for argument in arguments))
    assert code == 2
    assert err.startswith("mnm: ")
    assert err.endswith(f"pip install 'mnm-rl[{extra}]'\n")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_the_core_trains(tmp_path):
    small = "--scale quick --steps 40 --learning-starts 30 --evaluate-every 20 --evaluation-episodes 1 --hidden 4"
    code, _, err = core_only("train", "sac", "--env", "Pendulum-v1", *small.split(), cwd=tmp_path)
    assert (code, err) == (0, "")
    run = "runs/Pendulum-v1-sac-seed0"
    code, _, err = core_only("render", run, "--steps", "2", cwd=tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert err.endswith("pip install 'mnm-rl[video]'\n")


def test_a_run_is_written_where_mujoco_is_not_installed(monkeypatch):
    def without_mujoco(name):
        if name == "mujoco":
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(runs, "version", without_mujoco)
    assert set(runs.installed_versions()) == set(runs.PACKAGES) - {"mujoco"}
