"""Use as a library: mnm.MnM("Pendulum-v1", seed=0).learn(5_000), .predict(observation), .save(path), mnm.load(path)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import gymnasium as gym

from mnm.agents import ALGORITHMS
from mnm.agents.algorithm import AgentConfig, Algorithm, ConfigError
from mnm.agents.scales import preset
from mnm.messages import nearest
from mnm.training.learner import Learner
from mnm.training.saving import load

__all__ = ["MBPO", "SAC", "VAML", "VMBPO", "MnM", "MnMApprox", "MnMTight", "ValueWeighted", "load"]

Task = str | Callable[[], gym.Env]


def configured(algorithm: Algorithm, scale: str, task: Task, settings: dict[str, Any]) -> AgentConfig:
    """The algorithm's preset with some settings changed; unknown names are refused with the nearest known one."""
    if scale not in algorithm.presets:
        raise ConfigError(f"scale is {scale!r}, but must be one of {', '.join(algorithm.presets)}")
    config = preset(algorithm, scale, task if isinstance(task, str) else "")
    known = [field.name for field in fields(config)]
    for name in settings:
        if name not in known:
            hint = nearest(name, known) or f"; its settings are {', '.join(known)}"
            raise ConfigError(f"{algorithm.name} has no setting {name!r}{hint}")
    return replace(config, **settings)


def _new(name: str, task: Task, seed: int, scale: str, settings: dict[str, Any]) -> Learner:
    algorithm = ALGORITHMS[name]
    return Learner(algorithm, configured(algorithm, scale, task, settings), task, (seed,))


def SAC(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """Soft actor-critic."""
    return _new("sac", task, seed, scale, settings)


def MBPO(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """A model trained for likelihood, a policy trained in it."""
    return _new("mbpo", task, seed, scale, settings)


def MnM(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """One lower bound on the log of the expected return for model and policy; rewards + reward_offset must be > 0."""
    return _new("mnm", task, seed, scale, settings)


def MnMApprox(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """MnM's model, the plain reward for the policy."""
    return _new("mnm_approx", task, seed, scale, settings)


def MnMTight(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """The tight bound: critics of log Q; rewards + reward_offset must be > 0."""
    return _new("mnm_tight", task, seed, scale, settings)


def VMBPO(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """MnM without the logarithm of the reward."""
    return _new("vmbpo", task, seed, scale, settings)


def VAML(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """A model trained for likelihood and the Bellman error of its predictions."""
    return _new("vaml", task, seed, scale, settings)


def ValueWeighted(task: Task, *, seed: int = 0, scale: str = "cpu", **settings: Any) -> Learner:  # noqa: N802
    """A model trained for the likelihood weighed by Q."""
    return _new("value_weighted", task, seed, scale, settings)
