"""From an observation back to a state, so that what a model imagines can be drawn by the task's own simulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.floating]
Pose = Callable[[Any, Observation], None]
"""(the unwrapped environment, an observation) -> the environment shows that state."""


def walker(env: Any, observation: Observation) -> None:
    """HalfCheetah, Hopper, Walker2d: all of the state but the place along the track, which goes on by its velocity."""
    positions = len(env.data.qpos) - 1
    place = env.data.qpos[0] + env.dt * observation[positions]
    env.set_state(np.append(place, observation[:positions]), observation[positions:])


def inverted_pendulum(env: Any, observation: Observation) -> None:
    """Observed as it is."""
    env.set_state(observation[:2], observation[2:4])


def pusher(env: Any, observation: Observation) -> None:
    """The arm's joints, and the object moved to where its centre is observed."""
    qpos, qvel = env.data.qpos.copy(), env.data.qvel.copy()
    qpos[:7], qvel[:7] = observation[:7], observation[7:14]
    moved = observation[17:20] - env.get_body_com("object")
    qpos[-4:-2] += moved[[1, 0]]  # the object slides along y, then x
    env.set_state(qpos, qvel)


def pendulum(env: Any, observation: Observation) -> None:
    """Cosine, sine and velocity."""
    env.state = np.array([np.arctan2(observation[1], observation[0]), observation[2]])
    env.last_u = None


def claw(env: Any, observation: Observation) -> None:
    """The joints, and the valve by its cosine and sine."""
    env.show(observation)


POSES: dict[str, Pose] = {
    "HalfCheetahEnv": walker,
    "HopperEnv": walker,
    "Walker2dEnv": walker,
    "InvertedPendulumEnv": inverted_pendulum,
    "PusherEnv": pusher,
    "PendulumEnv": pendulum,
    "PoseRandom": claw,
    "TurnRandom": claw,
    "ScrewFixed": claw,
    "ScrewRandom": claw,
}
"""By the environment's class."""


def state_setter(env: gym.Env) -> Pose | None:
    """How to show a state of this environment; None if nobody has said how."""
    return POSES.get(type(env.unwrapped).__name__)
