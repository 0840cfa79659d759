"""What the tests share: hypothesis profiles, and random MDPs as a strategy."""

import gc
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from mnm.tabular import (
    Dynamics,
    TabularMDP,
    deterministic_policy,
    random_mdp,
    random_model,
    random_policy,
)

settings.register_profile("project", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("fast", settings.get_profile("project"), max_examples=20)
settings.register_profile("long", settings.get_profile("project"), max_examples=500)
settings.load_profile("project")


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this hook too
def pytest_collection_modifyitems(items):
    """A file's tests share a worker, and so what they compile; those marked `apart` may go to any, side by side.

    What takes long starts first, so that at the end no worker is alone with it: tests that are apart, then the files
    with the most slow tests.
    """
    groups = {}
    for item in items:
        group = item.nodeid if marked("apart")(item) else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
        groups.setdefault(group, []).append(item)
    ordered = sorted(groups.values(), key=length, reverse=True)
    items[:] = [item for group in ordered for item in group]


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command in this process: its exit code, standard output and standard error."""
    from mnm.cli import main

    monkeypatch.setenv("COLUMNS", "80")

    def run_command(*arguments):
        monkeypatch.setattr(sys, "argv", ["mnm", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code or 0, *capsys.readouterr()

    return run_command


MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000
"""Linux lets a process have 65,530 mappings of memory, and a compiled program takes hundreds: beyond, XLA crashes."""


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """After a file's tests, forget what they compiled if that has become too much; the cache on the disk keeps it.

    The garbage collector need not look through what earlier files and the libraries have left, a second at a time.
    """
    gc.freeze()
    yield
    if "jax" in sys.modules and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        gc.unfreeze()
        sys.modules["jax"].clear_caches()
        if "mnm.compiled" in sys.modules:
            for program in sys.modules["mnm.compiled"].PROGRAMS:
                program.forget()
        gc.collect()


def length(group):
    """How long a group of tests takes, as far as their marks tell."""
    return any(map(marked("apart"), group)), sum(map(marked("slow"), group))


def marked(name):
    return lambda item: item.get_closest_marker(name) is not None


@dataclass(frozen=True)
class Case:
    """An MDP with a policy and a model."""

    mdp: TabularMDP
    policy: np.ndarray
    model: Dynamics


@st.composite
def cases(draw, *, deterministic: bool = False) -> Case:
    """Random MDPs of 1 to 7 states, with discounts up to 0.99 and rewards over four orders of magnitude."""
    states = draw(st.integers(1, 7))
    seed = draw(st.integers(0, 2**31))
    mdp = random_mdp(
        states,
        draw(st.integers(1, 3)),
        seed=seed,
        successors=draw(st.integers(1, states)),
        discount=draw(st.sampled_from([0.1, 0.5, 0.9, 0.99])),
        smallest_reward=draw(st.sampled_from([1e-3, 0.1, 1.0])),
        largest_reward=draw(st.sampled_from([1.0, 10.0])),
    )
    policy = random_policy(mdp, seed=seed + 1)
    if deterministic:
        policy = deterministic_policy(policy.argmax(axis=1), mdp.num_actions)
    return Case(mdp, policy, random_model(mdp, seed=seed + 2))
