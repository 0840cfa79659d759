"""metaworld's drawer-open, paid for the opening alone: the robot must find the handle by itself."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

OPENING_SCALE = 5.0
"""What metaworld multiplies its reward by."""


class DrawerOpen(gym.Env[NDArray[np.float64], NDArray[np.floating]]):
    """The Sawyer arm before a drawer. The goal is observed; where the drawer stands depends on the seed.

    Observation (39) and action (4: three directions of the hand, the gripper's effort) are metaworld's.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 80}  # noqa: RUF012 (as Gymnasium declares it)

    def __init__(self, render_mode: str | None = None, width: int = 480, height: int = 480) -> None:
        try:
            from metaworld.envs.sawyer_drawer_open_v3 import SawyerDrawerOpenEnvV3
        except ImportError as error:
            raise gym.error.DependencyNotInstalled(
                "mnm/DrawerOpen-v0 needs metaworld: pip install 'mnm-rl[metaworld]'"
            ) from error
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode is {render_mode!r}: use 'rgb_array' or None")
        self.render_mode = render_mode
        self._robot: Any = SawyerDrawerOpenEnvV3(
            render_mode="rgb_array", camera_name="corner", width=width, height=height
        )
        # What metaworld's own benchmarks do when they choose a task: the goal is seen, and the drawer stays put.
        self._robot._partially_observable = False
        self._robot._set_task_called = True
        self._robot._freeze_rand_vec = True
        del self._robot.sawyer_observation_space  # a cached property, with the goal hidden
        self._space = self._robot.sawyer_observation_space
        self.observation_space = gym.spaces.Box(self._space.low, self._space.high, dtype=np.float64)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """A new place of the drawer, drawn from this environment's own generator."""
        super().reset(seed=seed)
        places = self._robot._random_reset_space
        self._robot._last_rand_vec = self.np_random.uniform(places.low, places.high)
        observation, _ = self._robot.reset()
        return np.clip(observation, self._space.low, self._space.high), {}

    def step(self, action: NDArray[np.floating]) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """The reward is metaworld's term for opening, times its scale."""
        observation, _, _, truncated, found = self._robot.step(np.asarray(action, np.float32))
        opening = OPENING_SCALE * float(found["in_place_reward"])
        info = {
            "success": bool(found["success"]),
            "opening_reward": opening,
            "handle_to_target": float(found["obj_to_target"]),
            "near_handle": bool(found["near_object"]),
        }
        return observation, opening, False, truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """The arm and the drawer. (metaworld's camera hangs upside down.)"""
        if self.render_mode is None:
            gym.logger.warn("render() without a render mode: make the environment with render_mode='rgb_array'")
            return None
        return np.ascontiguousarray(self._robot.render()[::-1, ::-1])

    def close(self) -> None:
        """Free the simulator."""
        self._robot.close()
