"""`mnm envs`: the tasks in a table, one task's facts, its picture."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import tyro

from mnm.commands.picture import check_picture
from mnm.envs import TASKS
from mnm.envs.adapter import TaskError, close_env, make_env, picture
from mnm.messages import UserError, console, fail

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Envs:
    """List the paper's tasks, describe one, or draw it.

    Examples: mnm envs; mnm envs mnm/DClawTurnRandom-v0 --picture claw.png
    """

    id: tyro.conf.Positional[str | None] = None
    """One task: any id that Gymnasium knows."""
    picture: Path | None = None
    """Write a picture of the task's first state here: .png."""


def envs(command: Envs) -> int:
    """The exit code: 0, 1 failed, 2 bad input."""
    task, path = command.id, command.picture
    if task is None:
        if path is not None:
            return fail("--picture draws one task: name it, as in mnm envs mnm/DClawTurnRandom-v0 --picture claw.png")
        console().print(table())
        print("Those of states and choices are finite: mnm solve gym:ID solves them, mnm train does not take them.")
        print("Any other Gymnasium id whose actions are a Box works too: mnm envs ID, mnm train AGENT --env ID")
        return 0
    check_picture(path, (".png",))  # pixels
    try:
        env = make_env(task, **({"render_mode": "rgb_array"} if path is not None else {}))
    except TaskError as error:
        return fail(str(error))
    try:
        for name, fact in facts(task, env).items():
            print(f"{name:12} {fact}")
        if path is not None:
            draw(env, path)
            print(f"{'picture':12} {path}")
    except (OSError, UserError) as error:
        return fail(f"--picture {path}: {error}")
    finally:
        close_env(env)
    return 0


def table() -> Table:
    """All tasks of the paper."""
    from rich.table import Table

    listing = Table(box=None, header_style="bold")
    for heading in ("id", "observation", "action", "horizon", "reward", "from"):
        listing.add_column(heading, no_wrap=heading == "id")
    for task in TASKS:
        listing.add_row(task.id, task.observation, task.action, str(task.horizon), task.reward, task.source)
    return listing


def facts(task: str, env: gym.Env) -> dict[str, Any]:
    """What there is to know about a task."""
    known = {one.id: one for one in TASKS}
    found: dict[str, Any] = {
        "id": task,
        "observation": _space(env.observation_space),
        "action": _space(env.action_space),
        "horizon": (env.spec.max_episode_steps if env.spec is not None else None) or "none",
    }
    if task in known:
        found |= {"reward": known[task].reward, "from": known[task].source}
    return found


def _space(space: gym.Space) -> str:
    if not isinstance(space, gym.spaces.Box):
        return str(space)
    bounds = f"{space.low.min():g} to {space.high.max():g}" if space.is_bounded() else "unbounded"
    return f"{space.dtype} {space.shape}, {bounds}"


def draw(env: gym.Env, path: Path) -> None:
    """The first state of the episode with seed 0, as a PNG file."""
    from matplotlib.image import imsave

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            env.reset(seed=0)
        except Exception as error:  # a task can raise anything
            raise TaskError(f"cannot be drawn: reset raised {type(error).__name__}: {error}") from error
        drawn = picture(env)
    path.parent.mkdir(parents=True, exist_ok=True)
    imsave(path, drawn, format="png")
