"""The agents as classes: what they show of themselves, their environments, what is called while they learn."""

import inspect
import subprocess
import sys
import warnings
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import mnm
from mnm.agents import ALGORITHMS
from mnm.callbacks import (
    BaseCallback,
    CheckpointCallback,
    EvalCallback,
    MetricsLogger,
    StopTrainingOnRewardThreshold,
    WandbLogger,
)
from mnm.envs.adapter import TaskError
from mnm.messages import UserError
from mnm.training.learner import Learner
from mnm.training.metrics import read_metrics

NAMES = ("SAC", "MBPO", "MnM", "MnMApprox", "MnMTight", "VMBPO", "VAML", "ValueWeighted")
TINY = {"scale": "quick", "hidden": (8,), "batch_size": 8, "replay_capacity": 100}


class Short(gym.Env):
    """Episodes of 5 steps that pay what the action says; observes the step and a goal, drawn at the reset."""

    observation_space = gym.spaces.Dict(
        step=gym.spaces.Box(0.0, 5.0, (1,), np.float32), goal=gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    )
    action_space = gym.spaces.Box(-3.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.goal = 0, self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.seen(), {}

    def seen(self):
        return {"step": np.array([self.steps], np.float32), "goal": self.goal}

    def step(self, action):
        self.steps += 1
        return self.seen(), float(action[0]), False, self.steps == 5, {}


@pytest.fixture(scope="module")
def agent():
    """Never learns: all of its steps are random."""
    made = mnm.SAC(Short, seed=3, **TINY, learning_starts=10_000)
    yield made
    made.close()


@pytest.mark.slow
def test_the_package_shows_its_agents_without_importing_jax():
    code = "import sys, mnm; print(*dir(mnm)); assert 'jax' not in sys.modules; mnm.callbacks.EvalCallback; mnm.sb3"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {*NAMES, "Agent", "make", "load", "callbacks", "sb3"} <= set(shown)


@pytest.mark.parametrize("name", NAMES)
def test_a_class_shows_every_setting_with_type_value_and_meaning(name):
    kind = getattr(mnm, name)
    assert issubclass(kind, mnm.Agent)
    assert issubclass(mnm.Agent, Learner)
    config = kind.algorithm.presets["cpu"]
    parameters = inspect.signature(kind).parameters
    assert list(parameters)[:3] == ["env", "seed", "scale"]
    shown = {one: parameters[one].default for one in list(parameters)[3:]}
    assert shown == {one: getattr(config, one) for one in config.__dataclass_fields__}
    assert parameters["hidden"].annotation == tuple[int, ...]
    assert "\nbatch_size: int = 128\n" in kind.__doc__
    assert (
        "\nhidden: tuple[int, ...] = (128, 128)\n    Hidden layers of the policy and of each critic.\n" in kind.__doc__
    )


def test_every_algorithm_has_its_class():
    assert {getattr(mnm, name).algorithm for name in NAMES} == set(ALGORITHMS.values())


@pytest.mark.slow
def test_an_agent_says_what_it_is(agent, tmp_path):
    settings = "learning_starts=10000, replay_capacity=100, hidden=(8,), batch_size=8"
    assert repr(agent) == f"<SAC on Short, seed 3, scale quick, {settings}: {agent.steps} steps>"
    agent.save(tmp_path / "agent.npz")
    loaded = mnm.load(tmp_path / "agent.npz", env=Short)
    assert type(loaded) is mnm.SAC
    assert repr(loaded) == repr(agent)
    loaded.close()


@pytest.mark.slow
def test_an_algorithm_from_elsewhere_is_a_class_too(agent):
    assert type(mnm.make("sac", Short, **TINY)) is mnm.SAC
    own = replace(ALGORITHMS["sac"], name="module:greedy", title="My own")
    made = mnm.make(own, Short, **TINY)
    assert repr(made).startswith("<greedy on Short, seed 0, scale quick,")
    assert type(mnm.make(own, Short, **TINY)) is type(made)
    assert type(made).__doc__.startswith("My own.\n")

    class Greedy(mnm.Agent):
        algorithm = own

    assert Greedy(Short, **TINY).config == made.config

    class Fixed(mnm.SAC):
        def __init__(self, env, hidden):
            super().__init__(env, hidden=(hidden,))

    assert list(inspect.signature(Fixed).parameters) == ["env", "hidden"]


def test_the_spaces_are_the_task_s_own(agent):
    assert agent.observation_space == Short.observation_space
    assert agent.action_space == Short.action_space
    assert isinstance(agent.get_env(), Short)
    one, batch = agent.predict(agent.observation_space.sample()), agent.predict(np.zeros((4, 3)))
    assert agent.action_space.contains(one)
    assert batch.shape == (4, 1)
    with pytest.raises(ValueError, match="without 'goal', which Short's space declares"):
        agent.predict({"step": np.zeros(1)})


class Wider(Short):
    action_space = gym.spaces.Box(-3.0, 2.0, (1,), np.float32)


class Another(Short):
    termination_function = staticmethod(lambda before, actions, after: after[:, 0] > 0)


@pytest.mark.slow
def test_an_agent_moves_to_another_environment_with_the_same_spaces(agent):
    agent.learn(7, evaluation_episodes=1)
    before = agent.get_env()
    steps, episodes = agent.steps, agent.episodes[0]
    with pytest.raises(
        TaskError, match=r"^Wider has action high \[2.0\], but the agent was made for Short with \[1.0\]"
    ):
        agent.set_env(Wider)
    assert agent.get_env() is before
    instance = Short()
    agent.set_env(instance)
    assert agent.get_env() is not before
    assert agent.get_env() is not instance  # which stays as it is
    agent.learn(1, evaluation_episodes=1)
    assert (agent.steps, agent.episodes[0]) == (steps + 1, episodes + 1)
    assert agent.get_env().steps == 1


@pytest.mark.slow
def test_a_model_asks_the_new_environment_when_it_ends():
    small = {"model_hidden": (8,), "head_hidden": (8,), "ensemble_size": 1, "model_buffer_capacity": 64}
    agent = mnm.MBPO(Short, **TINY, **small)
    assert agent.config.termination is None
    agent.set_env(Another)
    assert agent.config.termination is Another.termination_function
    agent.set_env(Short())
    assert agent.config.termination is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the task's own bounds
        check_env(agent.model.as_env(), skip_render_check=True)  # a Dict comes back as one


class Recorder(BaseCallback):
    def __init__(self, stop_at=None):
        self.calls, self.stop_at = [], stop_at

    def on_training_start(self, agent):
        self.calls.append(("start", agent.steps))

    def on_step(self, agent):
        self.calls.append(("step", agent.steps))
        return agent.steps != self.stop_at

    def on_eval(self, agent, row):
        self.calls.append(("eval", agent.steps))
        assert row["return"] == agent.evaluated[0][0]

    def on_training_end(self, agent):
        self.calls.append(("end", agent.steps))


@pytest.fixture
def fresh():
    return mnm.SAC(Short, seed=1, **TINY, learning_starts=10_000)


def test_callbacks_are_called_in_order(fresh):
    recorder, seen = Recorder(), []
    fresh.learn(4, evaluate_every=2, evaluation_episodes=1, callback=[recorder, lambda agent: seen.append(agent.steps)])
    steps = [("step", step) for step in range(1, 5)]
    assert recorder.calls == [("start", 0), *steps[:2], ("eval", 2), *steps[2:], ("eval", 4), ("end", 4)]
    assert seen == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "callback", [Recorder(stop_at=3), lambda agent: agent.steps < 3, StopTrainingOnRewardThreshold(-50)]
)
def test_false_ends_the_training(fresh, callback):
    fresh.learn(10, callback=callback, evaluate_every=3, evaluation_episodes=1)
    assert fresh.steps == 3
    fresh.learn(1, evaluation_episodes=1)
    assert fresh.steps == 4


def test_callbacks_hear_of_the_end_after_an_error(fresh):
    def broken(agent):
        raise RuntimeError("mine")

    recorder = Recorder()
    with pytest.raises(RuntimeError, match="mine"):
        fresh.learn(5, callback=[recorder, broken])
    assert recorder.calls == [("start", 0), ("step", 1), ("end", 1)]
    with pytest.raises(UserError, match=r"^callback is 3, but must be a mnm.callbacks.BaseCallback or a function"):
        fresh.learn(5, callback=3)


def test_the_best_agent_is_kept(fresh, tmp_path):
    told = []

    class Tells(BaseCallback):
        def on_eval(self, agent, row):
            told.append(agent.steps)

    best = EvalCallback(tmp_path / "new", callback_on_new_best=Tells())
    returns = iter([-3.0, -5.0, -1.0, float("nan")])
    for step, value in enumerate(returns, 1):
        fresh.steps = step
        assert best.on_eval(fresh, {"return": value}) is None
    assert (best.best_mean_reward, best.best_step) == (-1.0, 3)
    assert told == [1, 3]
    assert mnm.load(tmp_path / "new" / "best_model.npz", env=Short).steps == 3
    assert EvalCallback(None, StopTrainingOnRewardThreshold(-2.0)).on_eval(fresh, {"return": -1.0}) is False


@pytest.mark.slow
def test_checkpoints_and_metrics(fresh, tmp_path):
    callbacks = [CheckpointCallback(2, tmp_path / "agents", "mine"), MetricsLogger(tmp_path)]
    fresh.learn(5, callback=callbacks, evaluate_every=2, evaluation_episodes=3)
    assert {path.name for path in (tmp_path / "agents").iterdir()} == {"mine_2_steps.npz", "mine_4_steps.npz"}
    assert mnm.load(tmp_path / "agents" / "mine_2_steps.npz", env=Short).steps == 2
    fresh.learn(1, callback=callbacks, evaluation_episodes=3)  # the files go on
    metrics = read_metrics(tmp_path / "metrics.csv")
    assert metrics["step"] == [2, 4, 5, 6]
    assert metrics["return"][-1] == np.mean(fresh.evaluated[0])
    assert len((tmp_path / "evaluations.csv").read_text().splitlines()) == 1 + 4 * 3
    assert list(tmp_path.glob("events.out.tfevents.*"))
    with pytest.raises(UserError, match="save_freq is 0"):
        CheckpointCallback(0, tmp_path)


def test_wandb_gets_the_rows(fresh, monkeypatch):
    sent = []

    class Run:
        class config:  # noqa: N801
            @staticmethod
            def update(about, allow_val_change):
                sent.append((about["algorithm"], about["env"], about["settings"]["hidden"]))

        def log(self, row, step):
            sent.append((step, row["return"]))

    class Wandb:
        @staticmethod
        def init(**settings):
            sent.append(settings)
            return Run()

    monkeypatch.setitem(sys.modules, "wandb", Wandb)
    fresh.learn(1, callback=WandbLogger(name="short"), evaluation_episodes=1)
    started = {"project": "mnm", "reinit": "create_new", "name": "short"}
    about = (fresh.algorithm.name, fresh.task_name, fresh.config.hidden)
    assert sent == [started, about, (1, fresh.evaluated[0][0])]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install 'mnm-rl\[wandb\]'"):
        WandbLogger()


def test_what_is_printed(fresh, capsys):
    fresh.learn(1, evaluation_episodes=1)
    assert capsys.readouterr().out == ""  # nobody watches
    fresh.learn(10, evaluation_episodes=1, verbose=1, log_every=5)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines] == ["step 6", "step 11", "step 11"]
    assert lines[1].split(" | ")[1] == f"episode return {fresh._last_returns[0]:.1f}"
    assert "return" in lines[2]
    fresh.learn(1, evaluation_episodes=1, verbose=0, log_every=1)
    assert capsys.readouterr().out == ""
    with pytest.raises(UserError, match="log_every is 0"):
        fresh.learn(1, log_every=0)
    fresh.learn(1, evaluation_episodes=1, progress_bar=True, verbose=0)
    assert "random steps" in capsys.readouterr().err


def test_the_tools_of_stable_baselines3_take_an_agent(agent):
    evaluation = pytest.importorskip(
        "stable_baselines3.common.evaluation", reason="pip install 'mnm-rl[sb3]' has stable-baselines3 (and PyTorch)"
    )
    returns, lengths = evaluation.evaluate_policy(
        mnm.sb3.SB3Policy(agent), Short(), n_eval_episodes=3, return_episode_rewards=True, warn=False
    )
    assert lengths == [5, 5, 5]
    assert all(-15 < value < 5 for value in returns)


@pytest.mark.slow
def test_the_adapter_s_predict(agent):
    policy, observation = mnm.sb3.SB3Policy(agent), {"step": np.zeros((2, 1)), "goal": np.ones((2, 2))}
    action, state = policy.predict(observation, state=("kept",), episode_start=np.ones(2, bool))
    np.testing.assert_array_equal(action, agent.predict(observation))
    assert state == ("kept",)
    assert not np.array_equal(policy.predict(observation, deterministic=False)[0], action)
    assert (policy.observation_space, policy.action_space) == (agent.observation_space, agent.action_space)
