"""`mnm render`: a video of a trained agent."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from mnm.commands.run_folder import RunFolder
from mnm.messages import UserError, fail


@dataclass(frozen=True)
class Render(RunFolder):
    """Write a video of a run's policy; beside it, for an agent with a model, what the model imagines.

    The imagined video starts in the same state and takes the same actions: where it runs ahead of the real one, the
    dynamics are optimistic.
    Example: mnm render runs/HalfCheetah-v4-mnm_approx-seed0 --out cheetah.gif
    """

    out: Path = Path("run.gif")
    """The video: .gif, or .mp4 (which needs pip install imageio-ffmpeg)."""
    steps: int = 200
    """The video's length."""
    seed: int = 0
    """Decides where the episode starts."""


def render(command: Render) -> int:
    """`mnm render`."""
    if command.steps < 1 or command.seed < 0:
        return fail(f"--steps is {command.steps} and --seed {command.seed}: at least 1, and 0 or more")
    if command.out.suffix not in (".gif", ".mp4"):
        return fail(f"--out {command.out}: a video ends in .gif or .mp4")

    from mnm.training.driver import load_trained
    from mnm.training.progress import COMPILING, Activity
    from mnm.training.video import IMAGINED, REAL, imagine, play, side_by_side, write_video

    try:
        with Activity() as activity:
            activity.begin(f"loading {command.run}")
            learner = load_trained(command.run, trusted=command.trust)
            activity.begin(f"filming {learner.task_name}", COMPILING)
            take = play(learner, command.steps, command.seed, activity.step)
            activity.begin("filming what the model imagines", COMPILING)
            imagined = imagine(learner, take, activity.step)
    except UserError as error:
        return fail(str(error))
    frames = side_by_side({REAL: take.frames} | ({IMAGINED: imagined} if imagined else {}))
    try:
        command.out.parent.mkdir(parents=True, exist_ok=True)
        with Activity() as activity:
            activity.begin(f"writing {command.out}")
            write_video(command.out, frames)
    except (OSError, ValueError) as error:
        return fail(f"--out {command.out}: {' '.join(str(error).split())}")
    note = ", real left, imagined right" if imagined else ""
    print(f"{command.out}: {len(frames)} frames{note}")
    if len(frames) < len(take.frames):
        print(
            f"mnm: the model left the range of numbers after {len(frames)} steps: the video ends there", file=sys.stderr
        )
    if not imagined and learner.algorithm.has_model:
        print(f"mnm: {learner.task_name} cannot be drawn from an observation: the real video alone", file=sys.stderr)
    learner.close()
    return 0
