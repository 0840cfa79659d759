"""Optimistic dynamics, deep: how much further towards the reward a model moves than the real dynamics do.

Both models, MnM-approx's and MBPO's of the same seed, start in the same real states and take the same real actions:
segments of evaluation episodes of both agents, which no model has learned from. Whose actions they are is kept: a
policy likes what its own model promises too much of, so that on its actions every model looks optimistic. What is
counted is what the task pays for: metres forward (HalfCheetah), metres by which the hand and the goal come closer to
the object (Pusher).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from mnm.diagnostics import WINDOW, windows
from mnm.figures.base import Columns, Verdict, stacked, where
from mnm.figures.deep import HALF_CHEETAH, PUSHER, DeepFigure, RunGrid, agents, tasks
from mnm.figures.progress import ahead, ahead_by_seed, interval, progress, sign
from mnm.plotting.style import AGENT_COLOURS, STYLE, agent_name
from mnm.training.driver import load_trained
from mnm.training.runs import Run
from mnm.training.spec import RunError
from mnm.training.video import REAL, Frames, imagine, play, side_by_side, write_video

OPTIMIST, RIVAL = "mnm_approx", "mbpo"
EPISODES = 3
"""Of each agent's evaluation, from which the segments are drawn."""
VIDEO_STEPS = 60
SHOWN = 6
"""Moments of the video that the picture shows."""


def measure(runs: Sequence[Run]) -> Columns:
    """For every segment: the real progress, and the progress in each model."""
    tables = []
    for env, seed, pair in pairs(runs):
        learners = {run.algorithm: load_trained(run.folder) for run in pair}
        for actor, acting in learners.items():
            segments = windows(acting.evaluate(0, EPISODES), np.random.default_rng(seed))
            if segments is None:
                continue
            for agent, learner in learners.items():
                labels = {"env": env, "agent": agent, "seed": seed, "actions_of": actor}
                tables.append(labels | progress(env, learner.world(0), *segments))
        for learner in learners.values():
            learner.close()
    if not tables:
        raise RunError("imagined_rollouts: no run has finished, so there is no model to look at")
    return stacked(*tables)


def pairs(runs: Sequence[Run]) -> list[tuple[str, int, list[Run]]]:
    """Task, seed, and the finished runs with it: a model is compared with that of its own seed."""
    finished = [run for run in runs if run.finished]
    keys = dict.fromkeys((run.env, run.seed) for run in finished)
    return [(*key, [run for run in finished if (run.env, run.seed) == key]) for key in keys]


def draw(columns: Columns) -> Figure:
    """For each task: the distribution over segments of how far the models run ahead, with the means' intervals."""
    names = tasks(columns)
    figure = Figure(figsize=(3.8 * len(names) + 0.4, 3.2), layout="constrained")
    for panel, env in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        task_rows = where(columns, env=env)
        edge = np.nanquantile(np.abs(ahead(task_rows)), 0.98)
        for agent in agents(task_rows):
            gains = ahead(where(task_rows, agent=agent))
            low, high = interval(gains)
            label = f"{agent_name(agent)}: {gains.mean():+.2g} [{low:+.2g}, {high:+.2g}] m"
            bins = np.linspace(-edge, edge, 41)
            clipped = np.clip(gains[np.isfinite(gains)], -edge, edge)
            panel.hist(clipped, bins, histtype="step", color=AGENT_COLOURS[agent], label=label)
            panel.axvline(gains.mean(), color=AGENT_COLOURS[agent], linestyle="--", linewidth=1)
        panel.axvline(0.0, color="0.6", linewidth=1, linestyle=":")
        panel.set(title=env, xlabel=f"metres ahead of reality after {WINDOW} steps", ylabel="segments")
        panel.margins(y=0.3)
        panel.legend(loc="upper left", frameon=True, framealpha=1.0, edgecolor="none")  # above the means' lines
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """Ahead of reality: on all segments, on those of the rival's actions, and compared with the rival's model."""
    verdicts = []
    for env in tasks(columns):
        task_rows = where(columns, env=env)
        ours, theirs = (where(task_rows, agent=agent) for agent in (OPTIMIST, RIVAL))
        gains, rival_gains = ahead_by_seed(ours), ahead_by_seed(theirs)
        on_rival_actions = ahead_by_seed(where(ours, actions_of=RIVAL))
        more = {seed: gains[seed] - rival_gains[seed] for seed in gains if seed in rival_gains}  # a run may be missing
        claims = {
            f"{agent_name(OPTIMIST)}'s model moves further towards the reward": gains,
            f"it does so on {agent_name(RIVAL)}'s actions too": on_rival_actions,
            f"it moves further than {agent_name(RIVAL)}'s model does": more,
        }
        verdicts += [sign(claim, env, list(found.values())) for claim, found in claims.items() if found]
    return verdicts


def video(runs: Sequence[Run], path: Path) -> list[Path]:
    """For each task, with the first seed: a GIF of reality and both models side by side, and moments of it."""
    written = []
    first_seeds = {env: pair for env, _, pair in reversed(pairs(runs))}
    for env, pair in first_seeds.items():
        learners = {run.algorithm: load_trained(run.folder) for run in pair}
        first = next(iter(learners.values()))
        take = play(first, VIDEO_STEPS, pair[0].seed)
        rows = {REAL: take.frames}
        for agent, learner in learners.items():
            frames = imagine(learner, take)
            lost = len(take.frames) - len(frames)
            name = f"{agent_name(agent)}'s model" + (f" (ends at step {len(frames) - 1})" if lost else "")
            rows[name] = frames + frames[-1:] * lost
        for learner in learners.values():
            learner.close()
        name = f"{path.name}-{env.partition('-')[0]}"
        gif, png = path.with_name(f"{name}.gif"), path.with_name(f"{name}.png")
        write_video(gif, side_by_side({name: [frame[::2, ::2] for frame in frames] for name, frames in rows.items()}))
        with mpl.rc_context(STYLE):
            _moments(rows).savefig(png, dpi=100)
        written += [gif, png]
    return written


def _moments(rows: dict[str, Frames]) -> Figure:
    """A row of pictures for reality and for each model."""
    length = len(next(iter(rows.values())))
    moments = np.linspace(0, length - 1, SHOWN).astype(int)
    figure = Figure(figsize=(1.6 * SHOWN, 1.7 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), SHOWN, squeeze=False)
    for row, (name, frames) in zip(axes, rows.items(), strict=True):
        for panel, moment in zip(row, moments, strict=True):
            panel.imshow(frames[moment])
            panel.set(xticks=[], yticks=[])
            panel.grid(visible=False)
        row[0].set_ylabel(name.replace(" (", "\n("), fontsize="small")
    for panel, moment in zip(axes[0], moments, strict=True):
        panel.set_title(f"step {moment}")
    return figure


FIGURE = DeepFigure(
    "imagined_rollouts",
    (RunGrid((PUSHER, HALF_CHEETAH), (OPTIMIST, RIVAL)),),
    draw,
    judge,
    measure,
    video,
)
