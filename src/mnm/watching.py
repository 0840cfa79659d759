"""`mnm evaluate RUN` and `mnm render RUN`: how good a trained policy is, and what it looks like."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray

from mnm.messages import fail

if TYPE_CHECKING:
    from mnm.training.learner import Learner

Frames = list[NDArray[np.uint8]]


@dataclass(frozen=True)
class Evaluate:
    """Play episodes with a run's deterministic policy, from its agent or its last checkpoint.

    Example: mnm evaluate runs/Pendulum-v1-sac-seed0 --episodes 20 --json
    """

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    episodes: int = 10
    """How many episodes for each seed."""
    seeds: tuple[int, ...] = (0,)
    """Decide where the episodes start."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of a line."""


@dataclass(frozen=True)
class Render:
    """Write a film of a run's policy; beside it, for an agent with a model, what the model imagines.

    The imagined film starts in the same state and takes the same actions: where it runs ahead of the real one, the
    dynamics are optimistic.
    Example: mnm render runs/HalfCheetah-v4-mnm_approx-seed0 --out cheetah.gif
    """

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    out: Path = Path("run.gif")
    """The film: .gif, or .mp4 (which needs pip install imageio-ffmpeg)."""
    steps: int = 200
    """The film's length."""
    seed: int = 0
    """Decides where the episode starts."""


def evaluate(command: Evaluate) -> int:
    """`mnm evaluate`."""
    if command.episodes < 1:
        return fail(f"--episodes is {command.episodes}, but must be 1 or more")
    if not command.seeds or min(command.seeds) < 0:
        return fail(f"--seeds is {command.seeds}: name at least one, each 0 or more")
    try:
        learner = _trained(command.run)
        played = [episode for seed in command.seeds for episode in learner.evaluate(0, command.episodes, seed)]
    except ValueError as error:  # of runs, checkpoints, saved agents and tasks: all one line
        return fail(str(error))
    returns = [episode.total for episode in played]
    found = {
        "run": str(command.run),
        "env": learner.task_name,
        "agent": learner.algorithm.name,
        "steps": learner.steps,
        "seeds": list(command.seeds),
        "episodes": command.episodes,
        "mean": float(np.mean(returns)),
        "std": float(np.std(returns)),
        "returns": returns,  # all of the first seed, then all of the next
        "lengths": [len(episode.rewards) for episode in played],
        "terminated": [episode.terminated for episode in played],
        "success": [episode.success for episode in played],
    }
    successes = [episode.success for episode in played if episode.success is not None]
    told = f", success {np.mean(successes):.0%}" if successes else ""
    if command.json:
        print(json.dumps(found, indent=2))
    else:
        print(
            f"{command.run}: {found['agent']} after {found['steps']} steps on {found['env']}:"
            f" return {found['mean']:.1f} +- {found['std']:.1f} over {len(returns)} episodes,"
            f" {min(returns):.1f} to {max(returns):.1f}{told}"
        )
    learner.close()
    return 0


def render(command: Render) -> int:
    """`mnm render`."""
    if command.steps < 1 or command.seed < 0:
        return fail(f"--steps is {command.steps} and --seed {command.seed}: at least 1, and 0 or more")
    if command.out.suffix not in (".gif", ".mp4"):
        return fail(f"--out {command.out}: a film ends in .gif or .mp4")
    try:
        learner = _trained(command.run)
        real, imagined = film(learner, command.steps, command.seed)
    except ValueError as error:
        return fail(str(error))
    frames = [np.hstack([left, right]) for left, right in zip(real, imagined, strict=True)] if imagined else real
    try:
        command.out.parent.mkdir(parents=True, exist_ok=True)
        _write(command.out, frames)
    except (OSError, ValueError, ImportError) as error:
        return fail(f"--out {command.out}: {' '.join(str(error).split())}")
    told = ", real left, imagined right" if imagined else ""
    print(f"{command.out}: {len(frames)} frames{told}")
    if not imagined and hasattr(learner.state, "world"):
        print(f"mnm: {learner.task_name} cannot be drawn from an observation: the real film alone", file=sys.stderr)
    learner.close()
    return 0


def film(learner: Learner, steps: int, seed: int) -> tuple[Frames, Frames]:
    """The frames of one real episode, and of the model's from the same start with the same actions, if it has one."""
    from mnm.envs.posing import pose_of
    from mnm.training.environments import Environment, TaskError, episode_seed, make_env, picture
    from mnm.training.learner import mode

    env = make_env(learner.task, render_mode="rgb_array") if isinstance(learner.task, str) else make_env(learner.task)
    environment, policy = Environment(env), learner.policy(0)
    start = episode_seed(seed, "evaluation", 0)
    observation = first = environment.reset(start)
    actions, real = [], [picture(env)]
    for _ in range(steps):
        actions.append(np.asarray(mode(policy, observation[None])[0]))
        step = environment.step(actions[-1])
        observation = step.observation
        real.append(picture(env))
        if step.terminated or step.truncated:
            break
    pose, agent = pose_of(env), learner.agent(0)
    if pose is None or not hasattr(agent, "world"):
        env.close()
        return real, []
    environment.reset(start)
    imagined = [picture(env)]
    for after in _imagined(agent.world, first, actions):
        if not np.isfinite(after).all():
            raise TaskError(f"{learner.task_name}: the model left the range of numbers after {len(imagined)} steps")
        pose(env.unwrapped, after)
        imagined.append(picture(env))
    env.close()
    return real, imagined


def _imagined(world: Any, first: NDArray[np.float32], actions: list[NDArray]) -> NDArray[np.float64]:
    """The means of the model's next observations, step after step on its own predictions."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def predicted(observation: jax.Array, action: jax.Array) -> jax.Array:
        # Every member once; their mean, so that the film does not flicker between members.
        rows = [jnp.tile(part[None], (world.slow_dynamics.members, 1)) for part in (observation, action)]
        changes = world.slow_dynamics.sample(world.inputs(*rows), jax.random.key(0), noise_scale=0.0)
        return world.next_observations(rows[0], changes).mean(axis=0)

    found, observation = [], jnp.asarray(first)
    for action in actions:
        observation = predicted(observation, jnp.asarray(action))
        found.append(np.asarray(observation, np.float64))
    return np.stack(found)


def _trained(folder: Path) -> Learner:
    """The run's agent: the saved one, or the last checkpoint's."""
    from mnm.training.runs import AGENT, read_run
    from mnm.training.saving import load
    from mnm.training.work import from_checkpoint

    run = read_run(folder)
    return load(folder / AGENT, run.env) if (folder / AGENT).exists() else from_checkpoint(run)


def _write(path: Path, frames: Frames) -> None:
    import imageio.v3 as iio

    if path.suffix == ".gif":
        iio.imwrite(path, np.stack(frames), extension=".gif", duration=50, loop=0)
    else:
        try:
            iio.imwrite(path, np.stack(frames), extension=".mp4", fps=20)
        except (ImportError, OSError, RuntimeError) as error:
            raise OSError("an .mp4 needs pip install imageio-ffmpeg; a .gif needs nothing more") from error
