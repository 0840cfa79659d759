"""The paper's tasks as Gymnasium environments. `import mnm` makes their ids known to `gymnasium.make`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Any

from gymnasium.envs.registration import register, registry


@dataclass(frozen=True)
class TaskEntry:
    """One task of the paper, as `mnm envs` lists it."""

    id: str
    horizon: int
    observation: str
    action: str
    reward: str
    source: str
    entry_point: str | None = None
    """What makes it; None for Gymnasium's own tasks, which are used as they are."""
    settings: dict[str, Any] = field(default_factory=dict)


VALVE = "-5 distance - posture - speed + 10 near + 50 there"
GYMNASIUM = "Gymnasium"
ROBEL = "ROBEL's D'Claw, rebuilt"
GRID = "the exact part's gridworld (mnm solve)"


def _claw(name: str, horizon: int, observation: str, reward: str) -> TaskEntry:
    return TaskEntry(f"mnm/DClaw{name}-v0", horizon, observation, "9", reward, ROBEL, f"mnm.envs.dclaw:{name}")


def _finite(name: str, function: str, states: int, actions: int, reward: str, source: str = GRID) -> TaskEntry:
    entry_point = f"mnm.envs.finite:{function}"
    return TaskEntry(f"mnm/{name}-v0", 200, f"{states} states", f"{actions} choices", reward, source, entry_point)


def _declaring(task: str, observation: str, action: str, reward: str) -> TaskEntry:
    source, entry_point = "Gymnasium, declares when it ends", "mnm.envs.terminations:declaring"
    return TaskEntry(f"mnm/{task}", 1000, observation, action, reward, source, entry_point, {"task": task})


RUNNING = "forward velocity - control"
WALKING = "forward velocity + 1 alive - control"
BALANCING = "1 while the pole stands"

TASKS = (
    TaskEntry("HalfCheetah-v4", 1000, "17", "6", RUNNING, GYMNASIUM),
    TaskEntry("Hopper-v4", 1000, "11", "3", WALKING, GYMNASIUM),
    TaskEntry("Walker2d-v4", 1000, "17", "6", WALKING, GYMNASIUM),
    TaskEntry("Pusher-v5", 100, "23", "7", "-distances hand, object, goal - control", GYMNASIUM),
    _declaring("Hopper-v4", "11", "3", WALKING),
    _declaring("Hopper-v5", "11", "3", WALKING),
    _declaring("Walker2d-v4", "17", "6", WALKING),
    _declaring("Walker2d-v5", "17", "6", WALKING),
    _declaring("InvertedPendulum-v4", "4", "1", BALANCING),
    _declaring("InvertedPendulum-v5", "4", "1", BALANCING),
    _claw("PoseRandom", 80, "27", "-distance to a moving pose - speed"),
    _claw("TurnRandom", 40, "21", VALVE),
    _claw("ScrewFixed", 80, "21", VALVE),
    _claw("ScrewRandom", 80, "21", VALVE),
    TaskEntry(
        "mnm/DrawerOpen-v0",
        500,
        "39",
        "4",
        "5 x how far the drawer is open, in (0, 5]",
        "metaworld's drawer-open",
        "mnm.envs.drawer_open:DrawerOpen",
    ),
    _finite("StochasticGridworld", "stochastic_gridworld", 88, 4, "0.001, 10 at the goal"),
    _finite("ComparingObjectives", "comparing_objectives", 88, 4, "1, 10 at the goal"),
    _finite("OptimisticGridworld", "optimistic_gridworld", 88, 4, "0.001, 1.001 or 2.001: away, none, closer"),
    _finite("AliasedGridworld", "aliased_gridworld", 217, 5, "1, 100 at the goal"),
    _finite("ThreeStates", "three_states", 3, 2, "50, 1 or 51", "the exact part's three states (mnm solve)"),
)


def register_tasks() -> None:
    """Tell Gymnasium about the tasks; on a machine without a display, have MuJoCo draw without one."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")
    for task in TASKS:
        if task.entry_point is not None and task.id not in registry:
            register(task.id, entry_point=task.entry_point, max_episode_steps=task.horizon, kwargs=dict(task.settings))
