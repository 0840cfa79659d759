"""Saved agents: they predict and go on as before; damaged, hostile and foreign files are refused by name."""

import json
import pickle

import gymnasium as gym
import jax
import numpy as np
import pytest

import mnm
from mnm.messages import UserError
from mnm.training.saving import SavedAgentError, read_arrays, write_arrays

pytestmark = pytest.mark.slow

SETTINGS = {"scale": "quick", "learning_starts": 20, "replay_capacity": 50, "hidden": (8, 8), "batch_size": 16}
OBSERVATION = np.array([0.5, -0.5, 1.0])


@pytest.fixture(scope="module")
def agent():
    return mnm.SAC("Pendulum-v1", seed=3, **SETTINGS).learn(30, evaluation_episodes=1)


@pytest.fixture
def path(agent, tmp_path):
    agent.save(tmp_path / "agent.npz")
    return tmp_path / "agent.npz"


def leaves(learner):
    keyless = (learner.state.actor_critic, jax.random.key_data(learner.state.key), learner.replay)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(keyless)]


def test_a_loaded_agent_is_the_agent(agent, path):
    loaded = mnm.load(path)
    assert (loaded.steps, loaded.updates, loaded.seeds, loaded.config) == (30, 20, (3,), agent.config)
    assert all(np.array_equal(a, b) for a, b in zip(leaves(agent), leaves(loaded), strict=True))
    assert np.array_equal(loaded.predict(OBSERVATION), agent.predict(OBSERVATION))


def test_two_loaded_agents_go_on_alike(path):
    first, second = (mnm.load(path).learn(40, evaluation_episodes=1) for _ in range(2))
    assert first.steps == 70
    assert int(first.replay.size) == 50  # full, and wrapped around
    assert all(np.array_equal(a, b) for a, b in zip(leaves(first), leaves(second), strict=True))
    first.save(path)
    assert all(np.array_equal(a, b) for a, b in zip(leaves(first), leaves(mnm.load(path)), strict=True))


def test_a_model_based_agent_comes_back(tmp_path):
    agent = mnm.MnMApprox(
        "Pendulum-v1", **SETTINGS, warmup_updates=5, ensemble_size=2, model_hidden=(8,), model_buffer_capacity=100
    )
    agent.learn(22, evaluation_episodes=1)
    agent.save(tmp_path / "agent.npz")
    loaded = mnm.load(tmp_path / "agent.npz")
    pairs = zip(jax.tree.leaves(agent.state.world), jax.tree.leaves(loaded.state.world), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert int(loaded.state.model_buffer.size) == int(agent.state.model_buffer.size) > 0


def test_a_missing_file(tmp_path):
    with pytest.raises(SavedAgentError, match="no such file"):
        mnm.load(tmp_path / "none.npz")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_cut_file(path, share):
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(SavedAgentError, match=str(path)):
        mnm.load(path)


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


def test_pickles_are_not_executed(path):
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(SavedAgentError):
        mnm.load(path)
    np.savez(path, header=np.array([Bomb()], dtype=object))
    with pytest.raises(SavedAgentError):
        mnm.load(path)


def changed(path, change):
    """The same file with its header or arrays changed by `change(header, arrays)`."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(bytes(arrays.pop("header")).decode())
    change(header, arrays)
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header, arrays: header.update(format=99), "format 99"),
        (lambda header, arrays: header.update(algorithm="dqn"), "dqn"),
        (lambda header, arrays: header["config"].update(discount=2.0), "discount is 2.0"),
        (lambda header, arrays: header["config"].update(hidden=[8, 9]), "belongs"),
        (lambda header, arrays: header["config"].update(unknown=1), "sac has no setting 'unknown'"),
        (lambda header, arrays: header["config"].update(termination=1), "no setting 'termination'"),
        (lambda header, arrays: header["config"].update(hidden=[8] * 5_000), "at most 100 numbers"),
        (lambda header, arrays: header["config"].update(hidden=[10**6, 10**6]), "need 480.. GB, and the machine has"),
        (lambda header, arrays: header["config"].update(hidden=[2_000, 2_000]), "belongs"),
        (lambda header, arrays: header["config"].update(replay_capacity=10**12), "must be below 2,147,483,648"),
        (lambda header, arrays: header["config"].update(learning_rate=10**400), "must be a finite number"),
        (lambda header, arrays: header.update(dims=[3]), "not enough values"),
        (lambda header, arrays: header.update(seed=-1), "seed is -1, but must be 0 or more"),
        (lambda header, arrays: header.update(seed=float("inf")), "seed is inf, but must be a whole number"),
        (lambda header, arrays: header.update(task="x" * 9_999), "a name of at most 300 printable characters"),
        (lambda header, arrays: header["counters"].update(steps="7"), "steps is '7', but must be a whole number"),
        (lambda header, arrays: header["counters"].update(losses=[1]), "losses is .1., but must be an object"),
        (lambda header, arrays: header["counters"]["random"].update(state=7), "an object with state, inc"),
        (lambda header, arrays: header.pop("counters"), "counters"),
        (lambda header, arrays: header["counters"].pop("steps"), "steps"),
        (lambda header, arrays: arrays.update(array_0=np.zeros((2, 2), np.float32)), "belongs"),
        (lambda header, arrays: arrays.update({f"array_{len(arrays)}": np.zeros(1)}), r"it has \d+ arrays instead of"),
    ],
)
def test_a_file_that_does_not_fit_says_where(path, change, message):
    changed(path, change)
    with pytest.raises(SavedAgentError, match=message):
        mnm.load(path)


def test_another_task_names_the_difference(path):
    with pytest.raises(SavedAgentError, match=r"saved for Pendulum-v1 .*\[3, 1\].*InvertedPendulum-v5 has \[4, 1\]"):
        mnm.load(path, "InvertedPendulum-v5")


def test_an_unknown_setting_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean batch_size"):
        mnm.SAC("Pendulum-v1", batchsize=3)
    with pytest.raises(ValueError, match="must be one of paper, cpu, quick"):
        mnm.SAC("Pendulum-v1", scale="huge")


class Pendulum(gym.Env):
    """Has the name of another task, and other spaces."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {}


def test_an_agent_of_a_function_s_environment_is_not_put_on_another_task(tmp_path):
    path = tmp_path / "agent.npz"
    mnm.SAC(Pendulum, **SETTINGS).save(path)
    with pytest.raises(
        SavedAgentError, match=r"an environment that a function made: give that function, .* env=Pendulum"
    ):
        mnm.load(path)
    assert mnm.load(path, env=Pendulum).task is Pendulum
    with pytest.raises(SavedAgentError, match=r"with action low \[-1.0\], but Pendulum-v1 has \[-2.0\]"):
        mnm.load(path, env="Pendulum-v1")
    mnm.SAC(lambda: gym.make("Pendulum-v1"), **SETTINGS).save(path)
    with pytest.raises(SavedAgentError, match=r"trained on Pendulum-v1, .* env=make_env\)"):
        mnm.load(path)


def test_a_file_alone_imports_no_module(tmp_path, monkeypatch):
    """Neither for its task nor for its algorithm; with trust it does."""
    monkeypatch.syspath_prepend(tmp_path)
    mark = tmp_path / "executed"
    (tmp_path / "hostile.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    agent = mnm.SAC("Pendulum-v1", **SETTINGS)
    for change in ({"env": "hostile:Task-v0"}, {"algorithm": "hostile:agent"}):
        path = tmp_path / "agent.npz"
        agent.save(path)
        header, arrays = read_arrays(path)
        write_arrays(path, header | change, arrays)
        with pytest.raises(UserError, match="the module hostile would be imported, which runs its code"):
            mnm.load(path)
        assert not mark.exists()
    with pytest.raises(UserError, match="hostile"):
        mnm.load(path, trust=True)
    assert mark.exists()
