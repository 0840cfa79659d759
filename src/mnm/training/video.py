"""Videos: a policy in the real task, and what a model imagines from the same start with the same actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnm.agents.rollout import mean_rollout
from mnm.envs.adapter import Environment, close_env, episode_seed, make_env, picture
from mnm.envs.set_state import state_setter
from mnm.training.learner import Learner, mode

Frames = list[NDArray[np.uint8]]
REAL, IMAGINED = "real", "imagined by the model"
BAND, INK, DIVIDER = (32, 36, 40), (255, 255, 255), (138, 146, 156)
"""Colours: of the bands above and below the pictures, the words on them, the line between two pictures."""
GAP = 6
"""Pixels of that line."""


OnStep = Callable[[], None]


def nothing() -> None:
    """What is done after a step when nobody asks."""


class Take(NamedTuple):
    """The beginning of a real episode: a frame more than there are actions."""

    start: int
    """The episode's seed."""
    first: NDArray[np.float32]
    """The first observation."""
    actions: NDArray[np.float32]
    frames: Frames


def play(learner: Learner, steps: int, seed: int, on_step: OnStep = nothing) -> Take:
    """The first steps of the deterministic policy's evaluation episode with this seed."""
    env = _drawing(learner)
    environment, policy = Environment(env), learner.policy(0)
    start = episode_seed(seed, "evaluation", 0)
    observation = first = environment.reset(start)
    actions, frames = [], [picture(env)]
    for _ in range(steps):
        actions.append(np.asarray(mode(policy, observation[None])[0]))
        step = environment.step(actions[-1])
        observation = step.observation
        frames.append(picture(env))
        on_step()
        if step.terminated or step.truncated:
            break
    close_env(env)
    return Take(start, first, np.stack(actions), frames)


def imagine(learner: Learner, take: Take, on_step: OnStep = nothing) -> Frames:
    """The same by the learner's model, up to where that leaves the range of numbers.

    Nothing if it has none, or if the task cannot be drawn from an observation.
    """
    env = _drawing(learner)
    pose = state_setter(env)
    frames: Frames = []
    if pose is not None and learner.algorithm.has_model:
        world = learner.world(0)
        Environment(env).reset(take.start)
        frames.append(picture(env))
        for (after,) in np.asarray(mean_rollout(world, take.first[None], take.actions[:, None]), np.float64):
            if not np.isfinite(after).all():
                break
            pose(env.unwrapped, after)
            frames.append(picture(env))
            on_step()
    close_env(env)
    return frames


def side_by_side(videos: Mapping[str, Frames]) -> Frames:
    """Videos beside one another, as long as the shortest: above each picture its name, below all of them the step."""
    length = min(map(len, videos.values()))
    return [
        _labelled({name: frames[step] for name, frames in videos.items()}, f"step {step} of {length - 1}")
        for step in range(length)
    ]


def _labelled(pictures: Mapping[str, NDArray[np.uint8]], below: str) -> NDArray[np.uint8]:
    from PIL import Image, ImageDraw

    widths, heights = zip(*(shown.shape[1::-1] for shown in pictures.values()), strict=True)
    tallest = max(heights)
    band = max(20, tallest // 14)
    frame = Image.new("RGB", (sum(widths) + GAP * (len(widths) - 1), tallest + 2 * band), BAND)
    draw = ImageDraw.Draw(frame)
    left = 0
    for (name, shown), width in zip(pictures.items(), widths, strict=True):
        if left:
            draw.rectangle((left - GAP, 0, left - 1, band + tallest - 1), DIVIDER)
        frame.paste(Image.fromarray(shown), (left, band))
        _write(draw, name, (left + width / 2, band / 2), width, band)
        left += width + GAP
    _write(draw, below, (frame.width / 2, frame.height - band / 2), frame.width, band)
    return np.asarray(frame)


def _write(draw: Any, text: str, middle: tuple[float, float], width: int, height: int) -> None:
    """As large as the room allows."""
    from PIL import ImageFont

    size = 0.6 * height
    size *= min(1.0, 0.95 * width / draw.textlength(text, font=ImageFont.load_default(size)))
    draw.text(middle, text, fill=INK, font=ImageFont.load_default(size), anchor="mm")


def write_video(path: Path, frames: Frames) -> None:
    """A .gif, or an .mp4."""
    import imageio.v3 as iio

    if path.suffix == ".gif":
        iio.imwrite(path, np.stack(frames), extension=".gif", duration=50, loop=0)
    else:
        try:
            iio.imwrite(path, np.stack(frames), extension=".mp4", fps=20)
        except (ImportError, OSError, RuntimeError) as error:
            raise OSError("an .mp4 needs pip install imageio-ffmpeg; a .gif needs nothing more") from error


def _drawing(learner: Learner) -> Any:
    """The task, ready to be drawn; by the camera that follows, where a MuJoCo task has one."""
    task = learner.task
    env = make_env(task, render_mode="rgb_array") if isinstance(task, str) else make_env(task)
    renderer, model = (getattr(env.unwrapped, name, None) for name in ("mujoco_renderer", "model"))
    if renderer is not None:
        import mujoco

        camera = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
        renderer.camera_id = camera if camera >= 0 else renderer.camera_id
    return env
