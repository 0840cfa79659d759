"""Use as a library: mnm.MnM("Pendulum-v1", seed=0).learn(5_000), .predict(observation), .save(path), mnm.load(path)."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mnm import learned_model
from mnm.agents import ALGORITHMS, find_algorithm
from mnm.agents.algorithm import Algorithm, State
from mnm.agents.base import AgentConfig, ConfigError
from mnm.agents.describe import settings_text, with_settings
from mnm.agents.scales import preset
from mnm.callbacks import Callbacks, as_callback
from mnm.diagnostics import Episode
from mnm.envs.adapter import Task, TaskError
from mnm.envs.adapter import make as make_environment
from mnm.learned_model import Bound, LearnedModel
from mnm.messages import nearest
from mnm.replay import Replay
from mnm.schema import Count, require
from mnm.training import saving
from mnm.training.datasets import open_dataset
from mnm.training.learner import Learner, Progress, Row
from mnm.training.progress import ProgressDisplay, watched
from mnm.training.spec import RENAMED, with_new_names

__all__ = ["MBPO", "SAC", "VAML", "VMBPO", "Agent", "MnM", "MnMApprox", "MnMTight", "ValueWeighted", "load", "make"]

ARGUMENTS = """env: a Gymnasium id; a function that makes a new environment; or an environment, which is copied:
    training and evaluation each have their own, and yours stays as it is.
seed: of networks, actions and every episode.
scale: which preset the settings start from: paper (for a GPU), cpu, quick (a first look).

Settings, with their values at the scale cpu:
"""


class Agent(Learner):
    """One agent of one algorithm on one task: what `learn`, `predict` and `save` belong to.

    A class of your own needs the algorithm alone (docs/agents.md): `class Mine(mnm.Agent): algorithm = my_algorithm`.
    """

    algorithm: Algorithm
    """Of the whole class."""

    def __init__(self, env: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> None:
        super().__init__(self.algorithm, configured(self.algorithm, scale, env, settings), env, (seed,))

    @classmethod
    def from_dataset(
        cls, dataset: str | Path, env: Task | None = None, *, seed: int = 0, scale: str = "cpu", **settings: Any
    ) -> Self:
        """An agent that learns from data, without a real step; then `learn` takes updates: docs/offline.md.

        dataset: a run's folder, a .npz, a .h5, or a Minari data set by its name.
        env: the task, where the data do not name it; also what `evaluate` plays in.
        """
        data = open_dataset(str(dataset), download=True)
        task = data.task(env) if env is None or isinstance(env, str) else env
        agent = cls.__new__(cls)
        config = configured(cls.algorithm, scale, task, settings, offline=True)
        Learner.__init__(agent, cls.algorithm, config, task, (seed,), dataset=data)
        return agent

    def __init_subclass__(cls) -> None:
        """Let help() and editors show every setting with its type, its value and what it means."""
        if not hasattr(cls, "algorithm"):
            return  # a base of others
        config = cls.algorithm.presets["cpu"]
        cls.__signature__ = with_settings(cls.__init__, config)  # type: ignore[attr-defined]
        about = inspect.cleandoc(cls.__doc__) if "__doc__" in vars(cls) and cls.__doc__ else f"{cls.algorithm.title}."
        cls.__doc__ = f"{about}\n\n{ARGUMENTS}\n{settings_text(config)}"

    def __repr__(self) -> str:
        scale, changed = self._nearest_preset()
        what = [f"seed {self.seeds[0]}", f"scale {scale}", *(f"{name}={value!r}" for name, value in changed.items())]
        done = f"{self.steps} {'updates from data' if self.offline else 'steps'}"
        return f"<{type(self).__name__} on {self.task_name}, {', '.join(what)}: {done}>"

    def _nearest_preset(self) -> tuple[str, dict[str, Any]]:
        """The scale that the settings are nearest to, and those that differ from it."""
        task = self.task if isinstance(self.task, str) else ""
        names = [field.name for field in fields(self.config) if field.name != "termination"]  # the task's own
        changed = {}
        for scale in sorted(self.algorithm.presets, key=lambda scale: scale != "cpu"):
            config = preset(self.algorithm, scale, task, offline=self.offline)
            own = {name: getattr(self.config, name) for name in names}
            changed[scale] = {name: value for name, value in own.items() if value != getattr(config, name)}
        return min(changed.items(), key=lambda item: len(item[1]))

    def learn(
        self,
        steps: int,
        *,
        callback: Callbacks = None,
        progress_bar: bool | None = None,
        verbose: bool | int | None = None,
        log_every: int | None = None,
        evaluate_every: int = 1_000,
        evaluation_episodes: int = 5,
        evaluate: bool = False,
        on_eval: Callable[[int, int, Row], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_step: Callable[[], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Self:
        """Take `steps` more real steps; every `evaluate_every` of them, and at the end, the policy is evaluated.

        callback: what is called meanwhile, see `mnm.callbacks`; several as a list.
        progress_bar: whether a bar is shown; None: in a terminal or a notebook, unless on_eval or on_progress is given.
        verbose: whether every evaluation prints a line; None: where there is a bar.
        log_every: real steps between two lines about the training, with the last episode's return; None: none.
        evaluate: of an agent that learns from data, whether its policy is played too; others always are.

        An agent from `from_dataset` makes `steps` more updates instead, and no real step.

        on_eval(seed, step, row), on_progress(progress), on_step(), should_stop(): the loop's own hooks, see `Learner`.
        """
        log_every = require("log_every", log_every, Count | None)
        calls, hooks_given = as_callback(callback), on_eval is not None or on_progress is not None
        bar = watched() and not hooks_given if progress_bar is None else progress_bar
        lines = bar if verbose is None else bool(verbose)
        logged, stopped = self.steps, False

        def after_eval(seed: int, step: int, row: Row) -> None:
            nonlocal stopped
            if lines:
                display.row(seed, step, row)
            if on_eval is not None:
                on_eval(seed, step, row)
            stopped = calls.on_eval(self, row) is False or stopped

        def after_progress(progress: Progress) -> None:
            display.progress(progress)
            if on_progress is not None:
                on_progress(progress)

        def after_step() -> None:
            nonlocal stopped, logged
            if log_every and (verbose is None or verbose) and self.steps >= logged + log_every:
                logged = self.steps
                last = self._last_returns[0]
                print(
                    f"step {self.steps} | episode return {last:.1f} | {self.updates} updates | {self.seconds:.0f} s",
                    flush=True,
                )
            if on_step is not None:
                on_step()
            stopped = calls.on_step(self) is False or stopped

        with ProgressDisplay(bar) as display:
            try:
                calls.on_training_start(self)
                super().learn(
                    steps,
                    evaluate_every=evaluate_every,
                    evaluation_episodes=evaluation_episodes,
                    evaluate=evaluate,
                    on_eval=after_eval,
                    on_progress=after_progress,
                    on_step=after_step,
                    should_stop=lambda: stopped or (should_stop is not None and should_stop()),
                )
            finally:
                calls.on_training_end(self)
        return self

    @property
    def model(self) -> LearnedModel:
        """The learned model, for an agent that has one: predictions, rollouts, an environment."""
        return LearnedModel(self)

    def q_values(self, observations: Any, actions: ArrayLike) -> NDArray[np.float32]:
        """Q(s, a) by each of the two critics, [critics, rows], actions in the task's own units.

        The policy climbs their minimum. For MnM and MnM-tight it is a bound on the logarithm of a return.
        """
        return learned_model.q_values(self, observations, actions)

    def log_ratio(
        self, observations: Any, actions: ArrayLike, next_observations: Any, seed: int | None = None
    ) -> NDArray[np.float32]:
        """log p/q of transitions, [rows], by the classifier: below 0, the model makes them more often than the task.

        As far as the agent believes it (`calibrate`), at one draw of the noise that the classifier was trained with: a
        new one each time, or the one of `seed`.
        """
        return learned_model.log_ratio(self, observations, actions, next_observations, seed)

    def bound(self, episodes: list[Episode]) -> Bound:
        """The lower bound on the log of the expected return from the episodes' starts, against the return obtained.

        The episodes are those of `evaluate`; agents with a classifier and positive rewards have a bound.
        """
        return learned_model.bound(self, episodes)

    def get_env(self) -> gym.Env:
        """The environment that the agent is trained in. Who steps it disturbs the episode that goes on there.

        Of an agent that learns from data, the one that it is evaluated in.
        """
        return (*self._environments, self._evaluation)[0].env

    def set_env(self, env: Task) -> None:
        """Go on in another environment with the same spaces, from a new episode on; the replay is kept.

        The agent's old environments are closed.
        """
        training, evaluation = (make_environment(env, self.config.episode_limit) for _ in range(2))
        for name, own in self.spaces.items():
            if (other := evaluation.spaces[name]) != own:
                training.close()
                evaluation.close()
                raise TaskError(
                    f"{evaluation.name} has {name.replace('_', ' ')} {other}, but the agent was made for"
                    f" {self.task_name} with {own}: set an environment with the same spaces, or make a new agent"
                )
        self.close()
        settings: Any = self.config
        if self.algorithm.has_model and settings.termination is self._evaluation.termination:
            self.config = replace(settings, termination=evaluation.termination)
        self._environments, self._evaluation = [] if self.offline else [training], evaluation
        self.task, self.task_name = env, evaluation.name
        self._observations = self._actions = None  # `learn` begins an episode


class SAC(Agent):
    """Soft actor-critic, without a model."""

    algorithm = ALGORITHMS["sac"]


class MBPO(Agent):
    """A model trained for likelihood, a policy trained in it."""

    algorithm = ALGORITHMS["mbpo"]


class MnM(Agent):
    """One lower bound on the log of the expected return for model and policy; rewards + reward_offset must be > 0."""

    algorithm = ALGORITHMS["mnm"]


class MnMApprox(Agent):
    """MnM's model, the plain reward for the policy."""

    algorithm = ALGORITHMS["mnm_approx"]


class MnMTight(Agent):
    """The tight bound: critics of log Q; rewards + reward_offset must be > 0."""

    algorithm = ALGORITHMS["mnm_tight"]


class VMBPO(Agent):
    """MnM without the logarithm of the reward."""

    algorithm = ALGORITHMS["vmbpo"]


class VAML(Agent):
    """A model trained for likelihood and the Bellman error of its predictions."""

    algorithm = ALGORITHMS["vaml"]


class ValueWeighted(Agent):
    """A model trained for the likelihood weighted by Q."""

    algorithm = ALGORITHMS["value_weighted"]


CLASSES = {kind.algorithm: kind for kind in (SAC, MBPO, MnM, MnMApprox, MnMTight, VMBPO, VAML, ValueWeighted)}


@cache
def agent_class(algorithm: Algorithm) -> type[Agent]:
    """The class of an algorithm's agents: one of ours, or a new one for an algorithm from elsewhere."""
    return CLASSES.get(algorithm) or type(algorithm.short_name, (Agent,), {"algorithm": algorithm})


def make(algorithm: str | Algorithm, env: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Agent:
    """An agent by its name, module:variable, or of an algorithm of your own."""
    if isinstance(algorithm, str):
        algorithm = find_algorithm(algorithm)
    return agent_class(algorithm)(env, seed=seed, scale=scale, **settings)


def load(
    path: str | Path, env: Task | None = None, *, algorithm: Algorithm | None = None, trust: bool = False
) -> Agent:
    """The agent saved in a file, ready to predict and to go on learning at the start of a new episode.

    `env` is needed where the agent's own was no Gymnasium id, `algorithm` where it was made of one that is neither
    ours nor named module:variable. A task or an algorithm of a module is imported, which runs its code, only with
    `trust`, or if its name is given here.
    """
    agent = saving.load(path, env, algorithm=algorithm, trust=trust, create=_with_config)
    assert isinstance(agent, Agent)
    return agent


def _with_config(
    algorithm: Algorithm,
    config: AgentConfig,
    env: Task,
    seeds: tuple[int, ...],
    start: tuple[State, Replay],
    offline: bool,
) -> Agent:
    kind = agent_class(algorithm)
    agent = kind.__new__(kind)
    Learner.__init__(agent, algorithm, config, env, seeds, start=start, offline=offline)
    return agent


def configured(
    algorithm: Algorithm, scale: str, env: Task, settings: dict[str, Any], *, offline: bool = False
) -> AgentConfig:
    """The algorithm's preset with some settings changed; unknown names are refused with the nearest known one."""
    config = preset(algorithm, scale, env if isinstance(env, str) else "", offline=offline)
    known = [field.name for field in fields(config)]
    for name in RENAMED.keys() & settings.keys():
        warnings.warn(f"{name} is now called {RENAMED[name]}", DeprecationWarning, stacklevel=3)
    settings = with_new_names(settings)
    for name in settings:
        if name not in known:
            hint = nearest(name, known) or f"; its settings are {', '.join(known)}"
            raise ConfigError(f"{algorithm.name} has no setting {name!r}{hint}")
    return replace(config, **settings)
