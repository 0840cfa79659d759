"""When Gymnasium's own tasks end, as JAX functions of (observations, actions, next observations).

For model-based agents that should not learn it: `mnm/Hopper-v4` and its like are Gymnasium's tasks with the function
declared as the environment's attribute `termination_function`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Termination = Callable[[Array, Array, Array], Bool[Array, " batch"]]
"""(observations, actions, next observations) -> whether the episode ended there, in JAX."""


def hopper(_: Array, __: Array, after: Float[Array, "batch obs"]) -> Bool[Array, " batch"]:
    """Torso below 0.7, leaning by 0.2 or more, or anything but the height beyond 100."""
    height, lean = after[:, 0], after[:, 1]
    good = jnp.isfinite(after).all(axis=1) & (jnp.abs(after[:, 1:]) < 100.0).all(axis=1)
    return ~(good & (height > 0.7) & (jnp.abs(lean) < 0.2))


def walker2d(_: Array, __: Array, after: Float[Array, "batch obs"]) -> Bool[Array, " batch"]:
    """Torso not between 0.8 and 2, or leaning by 1 or more."""
    height, lean = after[:, 0], after[:, 1]
    return ~((height > 0.8) & (height < 2.0) & (jnp.abs(lean) < 1.0))


def inverted_pendulum(_: Array, __: Array, after: Float[Array, "batch obs"]) -> Bool[Array, " batch"]:
    """The pole leaning by more than 0.2."""
    return ~(jnp.isfinite(after).all(axis=1) & (jnp.abs(after[:, 1]) <= 0.2))


DECLARED: dict[str, Termination] = {
    f"{task}-v{version}": function
    for version in (4, 5)
    for task, function in (("Hopper", hopper), ("Walker2d", walker2d), ("InvertedPendulum", inverted_pendulum))
}


def declaring(task: str, **settings: Any) -> gym.Env:
    """One of Gymnasium's tasks, which declares its termination function."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that a newer version exists: our id has said so
        env = gym.make(task, disable_env_checker=True, **settings).unwrapped
    env.termination_function = DECLARED[task]  # type: ignore[attr-defined]
    return env
