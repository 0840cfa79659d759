"""Random command lines and files: an exit code and a message, never a traceback, never a wait, nothing executed."""

import io
import json
import os
import random
import shutil
import signal
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mnm
import mnm.commands.train
import mnm.training.driver
from mnm.agents import ALGORITHMS
from mnm.analysis.certificates import read_certificates
from mnm.cli import COMMANDS, run
from mnm.commands.train import train
from mnm.envs.adapter import make
from mnm.messages import UserError
from mnm.tabular.files import read_task
from mnm.training.checkpoints import restore_checkpoints, save_checkpoint
from mnm.training.datasets import checked, open_dataset
from mnm.training.learner import Learner, agent_shapes
from mnm.training.options import SCALES, command_of
from mnm.training.saving import config_as_json
from mutations import MARK, mutated_bytes, mutated_csv, mutated_json, mutated_npz, pickled, written_json

WORDS = """
Pendulum-v1 sac mnm_approx --env --steps --seed --seeds --scale quick cpu --name --runs --json --png --picture x.svg
--baseline --at --metric --out --episodes --overrides --agents --envs --help -1 0 3 1e9 nan inf --batch-size
--hidden --discount --reward-offset -- ../x /proc/1 gym:FrozenLake-v1 gym: mnm/ThreeStates-v0 --list --dry-run
--jobs --checkpoint-minutes 9223372036854775808 -9223372036854775809 /dev/full /dev/null NAME_TOO_LONG /dev/full/x
--episodes --overwrite --results --dataset --updates --evaluate --noise --minari x.npz x.h5 some/data-v0
--policy best --states --actions --reward-range --confidence --at-least
""".replace("NAME_TOO_LONG", 300 * "x").split()
WORD = st.one_of(st.sampled_from(WORDS), st.text(max_size=8).filter(lambda text: "\0" not in text))
LINE = st.tuples(st.sampled_from(list(COMMANDS)), st.lists(WORD, max_size=6)).map(lambda parts: [parts[0], *parts[1]])
FREE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
COUNTS = [100, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.apart])]


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
    # No file has a say in these: Plotly's own script, 5 MB in every page, and what git says of this checkout.
    monkeypatch.setattr("mnm.report.page.get_plotlyjs", lambda: "")
    monkeypatch.setattr("mnm.report.page.revision", lambda: None)
    return tmp_path


class Begun:
    """A learner that never learns."""

    def __init__(self, algorithm, config, task, seeds, longest=None, dataset=None):
        self.config, self.steps, self.digest = config, 0, "0"

    def close(self):
        pass


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
        assert code_of(arguments) in (0, 1, 2, 3, None)
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        (["0"], "['0'], but must be several, each a whole number"),
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


# Files. Each kind has a good one, what changes it, and what reads it.

TINY = {"hidden": (4,), "batch_size": 4, "replay_capacity": 20, "learning_starts": 10, "episode_limit": 5}
MODEL = {"model_hidden": (4,), "head_hidden": (4,), "ensemble_size": 2, "model_buffer_capacity": 16}
PATIENCE = 30
"""Seconds that a file may take; a good one takes a tenth of one."""


class HungError(BaseException):
    """Nobody catches it."""


@contextmanager
def patience():
    def stop(*_):
        raise HungError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def blank(name, **settings):
    """A learner whose agent is all zeros: nothing is compiled."""
    algorithm = ALGORITHMS[name]
    config = replace(algorithm.presets["quick"], **TINY, **settings)
    shapes = agent_shapes(algorithm, config, (3, 1), config.replay_capacity)
    zeros = jax.tree.map(zero, shapes)
    return Learner(algorithm, config, "Pendulum-v1", (0,), start=zeros)


def zero(place):
    return (
        jax.random.key(0) if jnp.issubdtype(place.dtype, jax.dtypes.prng_key) else jnp.zeros(place.shape, place.dtype)
    )


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A folder with a good file of every kind, and the learner of the checkpoint."""
    folder = tmp_path_factory.mktemp("good")
    learner = blank("sac").learn(3, evaluation_episodes=1)
    learner.save(folder / "agent.npz")
    blank("mnm_approx", **MODEL).save(folder / "model.npz")
    save_checkpoint(folder, learner, 0)
    next((folder / "checkpoints").iterdir()).rename(folder / "checkpoint.npz")
    config = {
        "algorithm": "sac", "env": "Pendulum-v1", "seed": 0, "name": "Task", "seeds_together": [0], "steps": 100,
        "scale": "quick", "evaluate_every": 50, "evaluation_episodes": 1, "checkpoint_minutes": 2.0, "wandb": False,
        "settings": config_as_json(learner.config), "versions": {"jax": "0.5"}, "revision": None,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "metrics.csv").write_text("step,return,q_value\n50,-3.5,0.1\n100,-2.5,nan\n")
    (folder / "evaluations.csv").write_text("step,episode,return\n50,0,-3.5\n100,0,-2.5\n")
    certificate = {
        "env": "Task", "agent": "sac", "steps": 100, "seed": 0, "confidence": 0.95, "at_least": None,
        "return_range": [-9.0, 0.0], "planned_episodes": 2, "certified": True, "certificate": -8.0, "upper_bound": -1.0,
        "reason": "", "episodes": 2, "mean": -3.0, "promises": {"model_return": -2.0}, "returns": [-2.0, -4.0],
    }  # fmt: skip
    (folder / "certificates.json").write_text(json.dumps({"certificates": [certificate]}))
    (folder / "verdicts.csv").write_text("figure,claim,paper,measured,holds\nthree_states,a claim,1,1.0,yes\n")
    (folder / "three_states.csv").write_text("method,value\nmnm,1.5\nvmbpo,2.5\n")
    data = {"observations": np.ones((4, 3)), "actions": np.zeros((4, 1)), "rewards": np.ones(4)}
    data |= {
        "next_observations": np.ones((4, 3)),
        "terminations": np.zeros(4),
        "action_low": [-2.0],
        "action_high": [2.0],
    }
    np.savez(folder / "dataset.npz", **data)
    with h5py.File(folder / "dataset.h5", "w") as file:
        for name, array in data.items():
            file[name] = array
    mdp = {"probs": np.full((2, 2, 2), 0.5), "rewards": np.ones((2, 2)), "discount": np.array(0.9)}
    np.savez(folder / "mdp.npz", **mdp)
    np.savez_compressed(folder / "packed.npz", **mdp)
    (folder / "mdp.json").write_text(json.dumps({name: array.tolist() for name, array in mdp.items()}))
    transitions = {"state": [0, 0, 1], "action": [0, 1, 0], "reward": [1.0, 0.5, 0.0], "next_state": [1, 0, 1]}
    rows = [",".join(map(str, row)) for row in zip(*transitions.values(), strict=True)]
    (folder / "transitions.csv").write_text("\n".join([",".join(transitions), *rows, ""]))
    facts = {"num_states": 2, "num_actions": 2, "discount": 0.9, "reward_range": [0.0, 1.0], "start": 0}
    np.savez(folder / "transitions.npz", **transitions, **facts)
    np.savez(folder / "policy.npz", policy=[[0.5, 0.5], [0.0, 1.0]])
    (folder / "policy.json").write_text('{"actions": [1, 0]}')
    (folder / "map.txt").write_text("noise = 0.5\ndiscount = 0.9\n\nS..#...\n...#..G\n.......\n")
    return folder, learner


RUN_FILES = ("config.json", "metrics.csv", "evaluations.csv", "certificates.json")


def read_run_folder(place, changed):
    """All that is done with a run's folder: it is the changed file with good ones beside it."""
    run_folder = place / "runs" / "Task-seed0"
    run_folder.mkdir(parents=True, exist_ok=True)
    for name in RUN_FILES:
        shutil.copy(changed if changed.name == name else place / "good" / name, run_folder / name)
    (run_folder / "lock").unlink(missing_ok=True)
    said = [command_line(["compare", "runs", "--json"]), command_line(["report", "--out", "page.html"])]
    if changed.name == "config.json":
        (run_folder / "metrics.csv").unlink()
        said.append(command_line(["resume", str(run_folder)]))
    elif changed.name == "evaluations.csv":
        mnm.training.metrics.MetricsWriter(run_folder, after=60).close()
    elif changed.name == "certificates.json":
        read_certificates(run_folder)
    if any(code for code in said):
        raise UserError("refused")


def read_results(place, changed):
    results = place / "results"
    results.mkdir(exist_ok=True)
    for name in ("verdicts.csv", "three_states.csv"):
        shutil.copy(changed if changed.name == name else place / "good" / name, results / name)
    if command_line(["report", "--results", str(results), "--out", str(place / "page.html")]):
        raise UserError("refused")


def parsed_once(parse):
    """The parser, which need not read the same line ten thousand times."""
    known = {}

    def parsed(commands, *, args, **texts):
        line = tuple(args)
        if line not in known:
            known[line] = parse(commands, args=args, **texts)
        return known[line]

    return parsed


def command_line(arguments):
    """The exit code; a refusal must be one line."""
    err = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(err):
        code = code_of(arguments)
    assert code in (0, 1, 2, 3), err.getvalue()
    assert code in (0, 3) or err.getvalue().count("\n") == 1, err.getvalue()
    return code


def read_dataset(_, changed):
    dataset = open_dataset(str(changed))
    checked(dataset, make(dataset.task(None)))


def read_certificate_input(place, changed):
    """`mnm certify` of the changed file, data or policy, with a good one beside it."""
    data, policy = (
        (changed, "best") if changed.name.startswith("transitions") else (place / "good" / "transitions.npz", changed)
    )
    facts = ["--states", "2", "--actions", "2", "--discount", "0.9", "--reward-range", "0", "1"]
    said = command_line(
        ["certify", str(data), "--policy", str(policy), *(facts if data.suffix == ".csv" or policy != "best" else [])]
    )
    if said == 2:
        raise UserError("refused")


def read_checkpoint(place, changed, learner):
    target = place / "checkpoints" / "000000003-000000000.npz"
    target.parent.mkdir(exist_ok=True)
    shutil.copy(changed, target)
    restore_checkpoints([place], learner)


FILES = {
    "agent.npz": mutated_npz,
    "model.npz": mutated_npz,
    "checkpoint.npz": mutated_npz,
    "dataset.npz": mutated_npz,
    "dataset.h5": mutated_bytes,
    "mdp.npz": mutated_npz,
    "packed.npz": mutated_npz,
    "transitions.npz": mutated_npz,
    "policy.npz": mutated_npz,
    "policy.json": lambda content, rng: written_json(mutated_json(json.loads(content), rng), rng),
    "transitions.csv": mutated_csv,
    "config.json": lambda content, rng: written_json(mutated_json(json.loads(content), rng), rng),
    "mdp.json": lambda content, rng: written_json(mutated_json(json.loads(content), rng), rng),
    "certificates.json": lambda content, rng: written_json(mutated_json(json.loads(content), rng), rng),
    "metrics.csv": mutated_csv,
    "evaluations.csv": mutated_csv,
    "verdicts.csv": mutated_csv,
    "three_states.csv": mutated_csv,
    "map.txt": mutated_bytes,
}


def reader(name, learner):
    """What reads a file of this name, as (place, file)."""
    if name in ("agent.npz", "model.npz"):
        return lambda _, file: mnm.load(file).close()
    if name == "checkpoint.npz":
        return lambda place, file: read_checkpoint(place, file, learner)
    if name in ("dataset.npz", "dataset.h5"):
        return read_dataset
    if name in RUN_FILES:
        return read_run_folder
    if name.partition(".")[0] in ("transitions", "policy"):
        return read_certificate_input
    return read_results if name in ("verdicts.csv", "three_states.csv") else lambda _, file: read_task(str(file))


@pytest.mark.slow
@pytest.mark.parametrize("count", [25, pytest.param(10_000, marks=[pytest.mark.long, pytest.mark.apart])])
@pytest.mark.parametrize("name", FILES)
def test_changed_files_are_read_or_refused(name, count, good, somewhere, monkeypatch, capsys):
    folder, learner = good
    shutil.copytree(folder, somewhere / "good")
    (somewhere / "hostile.py").write_text(f"open({MARK!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(somewhere)
    monkeypatch.setattr(tyro.extras, "subcommand_cli_from_dict", parsed_once(tyro.extras.subcommand_cli_from_dict))
    content, read = (folder / name).read_bytes(), reader(name, learner)
    file = somewhere / name
    file.write_bytes(content)
    read(somewhere, file)  # the good one is read
    refusals = []
    for number in range(count):
        rng = random.Random(f"{name} {number}")
        changed = (FILES[name] if rng.random() < 0.8 else mutated_bytes)(content, rng)
        changed = pickled() if rng.random() < 0.01 else changed
        file.write_bytes(changed)
        try:
            with patience():
                read(somewhere, file)
        except UserError as error:
            refusals.append(str(error))
        except BaseException as error:
            raise AssertionError(f"{name}, change {number}: {type(error).__name__}: {error}") from error
        assert not Path(MARK).exists(), number
    with capsys.disabled():
        if count > 1_000:
            print(f"{name}: {count} changed, {len(refusals)} refused", file=sys.stderr)
    assert [refusal for refusal in refusals if "\n" in refusal or len(refusal) > 2_000] == []
    assert refusals or read is read_results  # a report names what it cannot read, and shows the rest
