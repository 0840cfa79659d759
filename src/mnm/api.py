"""Use as a library: mnm.MnM("Pendulum-v1", seed=0).learn(5_000), .predict(observation), .save(path), mnm.load(path)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import gymnasium as gym

from mnm.agents import find_algorithm
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import AgentConfig, ConfigError
from mnm.agents.scales import preset
from mnm.messages import nearest
from mnm.training.learner import Learner
from mnm.training.saving import load
from mnm.training.spec import RENAMED, with_new_names

__all__ = ["MBPO", "SAC", "VAML", "VMBPO", "MnM", "MnMApprox", "MnMTight", "ValueWeighted", "load", "make"]

Task = str | Callable[[], gym.Env]


def configured(algorithm: Algorithm, scale: str, task: Task, settings: dict[str, Any]) -> AgentConfig:
    """The algorithm's preset with some settings changed; unknown names are refused with the nearest known one."""
    config = preset(algorithm, scale, task if isinstance(task, str) else "")
    known = [field.name for field in fields(config)]
    for name in RENAMED.keys() & settings.keys():
        warnings.warn(f"{name} is now called {RENAMED[name]}", DeprecationWarning, stacklevel=4)
    settings = with_new_names(settings)
    for name in settings:
        if name not in known:
            hint = nearest(name, known) or f"; its settings are {', '.join(known)}"
            raise ConfigError(f"{algorithm.name} has no setting {name!r}{hint}")
    return replace(config, **settings)


def make(algorithm: str | Algorithm, task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:
    """An agent by its name, module:variable, or of an algorithm of your own."""
    if isinstance(algorithm, str):
        algorithm = find_algorithm(algorithm)
    return Learner(algorithm, configured(algorithm, scale, task, settings), task, (seed,))


def SAC(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """Soft actor-critic."""
    return make("sac", task, seed=seed, scale=scale, **settings)


def MBPO(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """A model trained for likelihood, a policy trained in it."""
    return make("mbpo", task, seed=seed, scale=scale, **settings)


def MnM(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """One lower bound on the log of the expected return for model and policy; rewards + reward_offset must be > 0."""
    return make("mnm", task, seed=seed, scale=scale, **settings)


def MnMApprox(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """MnM's model, the plain reward for the policy."""
    return make("mnm_approx", task, seed=seed, scale=scale, **settings)


def MnMTight(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """The tight bound: critics of log Q; rewards + reward_offset must be > 0."""
    return make("mnm_tight", task, seed=seed, scale=scale, **settings)


def VMBPO(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """MnM without the logarithm of the reward."""
    return make("vmbpo", task, seed=seed, scale=scale, **settings)


def VAML(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """A model trained for likelihood and the Bellman error of its predictions."""
    return make("vaml", task, seed=seed, scale=scale, **settings)


def ValueWeighted(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """A model trained for the likelihood weighted by Q."""
    return make("value_weighted", task, seed=seed, scale=scale, **settings)
