"""ROBEL's four D'Claw tasks: follow a moving pose, turn a valve to an angle, keep it turning.

The action is a pose of the nine joints, which the claw approaches at a limited speed. Nothing terminates. Where an
episode starts is a plain object, so that any episode can be had again: `reset(options={"start": ...})`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import gymnasium as gym
import mujoco
import numpy as np
from numpy.typing import NDArray

from mnm.envs.dclaw_model import JOINTS, MARK_GROUP, TIMESTEP, claw_model

Floats = NDArray[np.float64]
Start = TypeVar("Start", "PoseStart", "ValveStart")

# ROBEL keeps these in single precision, and so must who would follow its episodes.
ACTION_RANGES = np.tile(np.array([0.48, np.pi / 3, np.pi / 2], np.float32), 3).astype(np.float64)
"""The pose that an action of 1 asks for."""
FASTEST = float(np.float32(2 * np.pi / 3))
"""How fast the commanded pose may leave the present one, rad/s."""
RESET_POSE = np.tile([0.0, -np.pi / 3, np.pi / 3], 3)


@dataclass(frozen=True)
class PoseStart:
    """The start of an episode of Pose, and the motion that is to be followed."""

    claw: Floats
    midpoint: Floats
    amplitude: Floats
    period: Floats
    """Angular frequency of each joint, rad/s."""


@dataclass(frozen=True)
class ValveStart:
    """The start of an episode with the valve."""

    claw: Floats
    valve: float
    target: float
    target_velocity: float = 0.0
    """rad/s"""


class DClaw(gym.Env[Floats, NDArray[np.floating]], Generic[Start]):
    """What the tasks share: the simulation, the limited commands, the pictures."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (as Gymnasium declares it)
    has_valve: ClassVar[bool] = True
    engine_steps: ClassVar[int] = 40
    observation_size: ClassVar[int] = 21
    start: Start

    def __init__(
        self, render_mode: str | None = None, reset_noise: float = 0.0, width: int = 480, height: int = 480
    ) -> None:
        """`reset_noise`: the joints' first positions are moved by up to this much, uniformly (rad)."""
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}: use 'rgb_array' or None")
        if not 0.0 <= reset_noise < np.inf:
            raise ValueError(f"reset_noise is {reset_noise}: it must be 0 or more")
        self.render_mode, self.reset_noise = render_mode, reset_noise
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (self.observation_size,), np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (JOINTS,), np.float32)
        self.dt = self.engine_steps * TIMESTEP
        self.model = claw_model(valve=self.has_valve)
        self.data = mujoco.MjData(self.model)
        self.last_action = np.zeros(JOINTS)
        self._ghost = mujoco.MjData(self.model)
        self._picture_size = (height, width)
        self._renderer: mujoco.Renderer | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """A new episode; options={"start": ...} says where it starts, then without noise."""
        super().reset(seed=seed)
        unknown = set(options or {}) - {"start"}
        if unknown:
            raise ValueError(f"unknown reset option {sorted(unknown)[0]!r}: there is only 'start'")
        self.start = options["start"] if options else self._noisy(self._random_start())
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = self._positions(self.start)
        mujoco.mj_forward(self.model, self.data)
        self.last_action = np.zeros(JOINTS)
        self._begin()
        _, info = self._outcome()
        return self._observation(), info

    def step(self, action: NDArray[np.floating]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Approach the pose that the action stands for during `dt` seconds."""
        self.last_action = np.clip(np.asarray(action, np.float64), -1.0, 1.0)
        if self.last_action.shape != (JOINTS,):
            raise ValueError(f"the action has shape {self.last_action.shape}, not ({JOINTS},)")
        present, reach = self.claw, FASTEST * self.dt
        self.data.ctrl[:] = np.clip(self.last_action * ACTION_RANGES, present - reach, present + reach)
        self._advance()
        mujoco.mj_step(self.model, self.data, self.engine_steps)
        reward, info = self._outcome()
        return self._observation(), reward, False, False, info

    @property
    def claw(self) -> Floats:
        """The nine joint positions."""
        return self.data.qpos[:JOINTS].copy()

    def render(self) -> NDArray[np.uint8] | None:
        """The claw, and what it should do as a ghost: the desired pose, or the mark of the valve at its target."""
        if self.render_mode is None:
            gym.logger.warn("render() without a render mode: make the environment with render_mode='rgb_array'")
            return None
        if self._renderer is None:
            self._renderer = mujoco.Renderer(self.model, *self._picture_size)
        self._renderer.update_scene(self.data, camera="front")
        scene, first = self._renderer.scene, self._renderer.scene.ngeom
        self._ghost.qpos[:] = self._desired()
        mujoco.mj_kinematics(self.model, self._ghost)
        options = mujoco.MjvOption()
        options.geomgroup[:] = 0
        options.geomgroup[MARK_GROUP if self.has_valve else 0] = 1
        moving = mujoco.mjtCatBit.mjCAT_DYNAMIC
        mujoco.mjv_addGeoms(self.model, self._ghost, options, mujoco.MjvPerturb(), moving, scene)
        for geom in scene.geoms[first : scene.ngeom]:
            geom.rgba = (0.1, 0.65, 0.3, 1.0 if self.has_valve else 0.3)
        return self._renderer.render()

    def show(self, observation: Floats) -> None:
        """The state that an observation tells of, for pictures: the claw at rest, and the valve if there is one."""
        self.data.qpos[:JOINTS] = observation[:JOINTS]
        if self.has_valve:
            self.data.qpos[JOINTS] = np.arctan2(observation[JOINTS + 1], observation[JOINTS])
        self.data.qvel[:] = 0.0
        mujoco.mj_forward(self.model, self.data)

    def close(self) -> None:
        """Free the picture's memory."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _noisy(self, start: Start) -> Start:
        """The start with every position moved a little."""
        if self.reset_noise == 0.0:
            return start
        return replace(start, claw=start.claw + self._noise(JOINTS))

    def _noise(self, count: int) -> Floats:
        return self.np_random.uniform(-self.reset_noise, self.reset_noise, count)

    def _fast_joints_cost(self, threshold: float) -> float:
        """The size of the joint velocities that reach the threshold."""
        velocities = self.data.qvel[:JOINTS]
        return float(np.linalg.norm(velocities[np.abs(velocities) >= threshold]))

    def _random_start(self) -> Start:
        raise NotImplementedError

    def _positions(self, start: Start) -> Floats:
        """qpos at the start."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Set the target of a new episode."""
        raise NotImplementedError

    def _advance(self) -> None:
        """Move the target on by one step."""
        raise NotImplementedError

    def _observation(self) -> Floats:
        raise NotImplementedError

    def _outcome(self) -> tuple[float, dict[str, Any]]:
        """The reward, and info: its terms and success."""
        raise NotImplementedError

    def _desired(self) -> Floats:
        """qpos as it should be, for the pictures."""
        raise NotImplementedError


class PoseRandom(DClaw[PoseStart]):
    """Follow a pose that swings between two random ones.

    Observation (27): joint positions, last action, desired minus actual positions.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012 (as Gymnasium declares it)
    has_valve = False
    engine_steps = 20
    observation_size = 27

    def _random_start(self) -> PoseStart:
        high = ACTION_RANGES.copy()
        high[1::3] = 0.0  # the middle joints
        one, other = self.np_random.uniform(-ACTION_RANGES, high, (2, JOINTS))
        period = self.np_random.uniform(0.5, 2.0, JOINTS)
        amplitude = np.minimum(np.abs(one - other) / 2, (np.pi / 6) / period)
        middle = (one + other) / 2
        return PoseStart(middle, middle, amplitude, period)

    def _positions(self, start: PoseStart) -> Floats:
        return start.claw

    def _begin(self) -> None:
        self._time = 0.0

    def _advance(self) -> None:
        self._time += self.dt

    def _desired(self) -> Floats:
        return self.start.midpoint + self.start.amplitude * np.sin(self.start.period * self._time)

    def _observation(self) -> Floats:
        return np.concatenate([self.claw, self.last_action, self._desired() - self.claw])

    def _outcome(self) -> tuple[float, dict[str, Any]]:
        error = self._desired() - self.claw
        terms = {
            "pose_error_cost": -float(np.linalg.norm(error)),
            "joint_velocity_cost": -0.1 * self._fast_joints_cost(np.pi),
        }
        return sum(terms.values()), terms | {"success": bool(np.abs(error).mean() < np.deg2rad(10.0))}


class Valve(DClaw[ValveStart]):
    """What the tasks with the valve share.

    Observation (21): claw positions, cosine and sine of the valve's angle, last action, target minus angle in
    [-pi, pi].
    """

    success_distance: ClassVar[float]

    def _positions(self, start: ValveStart) -> Floats:
        return np.append(start.claw, start.valve)

    def _noisy(self, start: ValveStart) -> ValveStart:
        if self.reset_noise == 0.0:
            return start
        moved = super()._noisy(start)
        return replace(moved, valve=start.valve + float(self._noise(1)[0]))

    def _begin(self) -> None:
        self._target = np.float32(self.start.target)

    def _advance(self) -> None:
        self._target = self._target + np.float32(self.start.target_velocity * self.dt)

    def _desired(self) -> Floats:
        return np.append(self.claw, float(self._target))

    def _error(self) -> float:
        """Target minus angle, in [-pi, pi]."""
        return float(wrapped(float(self._target) - self.data.qpos[JOINTS]))

    def _observation(self) -> Floats:
        angle = self.data.qpos[JOINTS]
        return np.concatenate([self.claw, [np.cos(angle), np.sin(angle)], self.last_action, [self._error()]])

    def _outcome(self) -> tuple[float, dict[str, Any]]:
        distance = abs(self._error())
        terms = {
            "target_distance_cost": -5.0 * distance,
            "pose_difference_cost": -float(np.linalg.norm(self.claw - RESET_POSE)),
            "joint_velocity_cost": -self._fast_joints_cost(0.5),
            "near_bonus": 10.0 * (distance < 0.25),
            "at_target_bonus": 50.0 * (distance < 0.10),
        }
        return sum(terms.values()), terms | {"success": distance < self.success_distance}


class TurnRandom(Valve):
    """Turn the valve to a random angle on the other side."""

    success_distance = 0.1

    def _random_start(self) -> ValveStart:
        valve, offset = self.np_random.uniform(-np.pi / 3, np.pi / 3, 2)
        return ValveStart(RESET_POSE, float(valve), float(wrapped(np.pi + offset)))


class ScrewFixed(Valve):
    """Keep the valve turning at 0.5 rad/s. Every episode starts alike: evaluate with reset noise."""

    success_distance = 0.2

    def _random_start(self) -> ValveStart:
        return ValveStart(RESET_POSE, 0.0, 0.0, 0.5)


class ScrewRandom(Valve):
    """Keep the valve turning at a random velocity, from a random angle."""

    success_distance = 0.2

    def _random_start(self) -> ValveStart:
        valve = float(self.np_random.uniform(-np.pi, np.pi))
        return ValveStart(RESET_POSE, valve, valve, float(self.np_random.uniform(-0.75, 0.75)))


def wrapped(angle: float) -> float:
    """The same angle in [-pi, pi)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi
