"""What a deep figure is: sweeps of runs -> columns (CSV) -> picture (PNG, SVG) -> verdicts on the paper's claims.

All figures of a scale share one folder of runs, and a task has the same length in all of them: a run that two figures
need is made once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mnm.analysis.statistics import (
    MOST_SEEDS,
    bootstrap_interval,
    holm,
    interquartile_mean,
    is_significant,
    permutation_p_value,
    probability_of_improvement,
    seeds_to_tell,
)
from mnm.figures.base import Columns, Verdict, stacked, where, write_figure
from mnm.plotting.style import THIN, agent_name, legend_of_seeds, looks
from mnm.sweeps.request import Sweep
from mnm.training.runs import Run

HALF_CHEETAH, HOPPER, WALKER = "HalfCheetah-v4", "Hopper-v4", "Walker2d-v4"
PUSHER, PENDULUM, INVERTED_PENDULUM = "Pusher-v5", "Pendulum-v1", "InvertedPendulum-v5"
POSE, TURN = "mnm/DClawPoseRandom-v0", "mnm/DClawTurnRandom-v0"
SCREW_FIXED, SCREW_RANDOM = "mnm/DClawScrewFixed-v0", "mnm/DClawScrewRandom-v0"
DRAWER = "mnm/DrawerOpen-v0"


@dataclass(frozen=True)
class Size:
    """How much a scale runs."""

    steps: int
    seeds: tuple[int, ...]
    evaluations: int
    """Of a run."""
    evaluation_episodes: int
    steps_on: dict[str, int]
    """Tasks with another number of steps."""
    episodes_on: dict[str, int]
    """Tasks with another number of evaluation episodes."""


PAPER_STEPS = dict.fromkeys((HALF_CHEETAH, HOPPER, WALKER), 300_000) | dict.fromkeys(
    (PENDULUM, INVERTED_PENDULUM), 20_000
)
CLAW_EPISODES = dict.fromkeys((POSE, TURN, SCREW_RANDOM), 30) | {SCREW_FIXED: 1}
"""They have 40 to 80 steps, and returns that spread by hundreds: ten say little. But ScrewFixed has one start alone."""
SIZES = {
    "quick": Size(600, (0,), 2, 2, {}, {}),
    "cpu": Size(20_000, (0, 1, 2), 20, 10, {PENDULUM: 4_000, INVERTED_PENDULUM: 6_000}, CLAW_EPISODES),
    "paper": Size(200_000, (0, 1, 2, 3, 4), 40, 10, PAPER_STEPS, CLAW_EPISODES),
}
"""The paper's text prints no lengths of runs: those of its scale are the literature's."""


@dataclass(frozen=True)
class RunGrid:
    """Every agent on every task with every override, as in `mnm sweep`."""

    envs: tuple[str, ...]
    agents: tuple[str, ...]
    overrides: tuple[str, ...] = ("",)


@dataclass(frozen=True)
class Choice:
    """A part of a figure: some of its tasks, agents, seeds; empty means all."""

    envs: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()


def curves(runs: Sequence[Run]) -> Columns:
    """Every evaluation of every run: what the figures draw and judge."""
    return stacked(*(_curve(run) for run in runs))


MEASURED = (
    "return",
    "success",
    "q_at_start",
    "discounted_return",
    "model_error_1",
    "constant_error_1",
    "model_error_10",
    "bound",
    "log_return",
    "seconds",
)


def _curve(run: Run) -> dict[str, Any]:
    metrics = {name: np.asarray(values) for name, values in run.metrics.items()}
    unknown = np.full(len(metrics["step"]), np.nan)
    columns: dict[str, Any] = {"env": run.env, "agent": run.algorithm, "seed": run.seed}
    columns["rollout_length"] = run.config["settings"].get("rollout_length", 0)
    columns["step"] = metrics["step"].astype(int)
    return columns | {name: metrics.get(name, unknown) for name in MEASURED}


@dataclass(frozen=True)
class DeepFigure:
    """One figure of `mnm reproduce` that needs runs."""

    name: str
    grids: tuple[RunGrid, ...]
    draw: Callable[[Columns], Figure]
    judge: Callable[[Columns], list[Verdict]]
    measure: Callable[[Sequence[Run]], Columns] = curves
    video: Callable[[Sequence[Run], Path], list[Path]] | None = None
    """(runs, path without its ending) -> the further pictures that it wrote."""

    def sweeps(self, scale: str, choice: Choice, runs: Path) -> list[Sweep]:
        """The commands that make its runs, one for each task of each grid."""
        size = SIZES[scale]
        chosen = (
            (env, tuple(agent for agent in grid.agents if not choice.agents or agent in choice.agents), grid.overrides)
            for grid in self.grids
            for env in grid.envs
            if not choice.envs or env in choice.envs
        )
        return [
            Sweep(
                (env,),
                some,
                choice.seeds or size.seeds,
                steps,
                scale,
                steps // size.evaluations,
                size.episodes_on.get(env, size.evaluation_episodes),
                overrides,
                runs,
            )
            for env, some, overrides in chosen
            for steps in [size.steps_on.get(env, size.steps)]
            if some
        ]

    def write(self, runs: Sequence[Run], folder: Path, scale: str) -> tuple[list[Verdict], list[Path]]:
        """NAME-SCALE.csv, .png and .svg, and videos in the folder; the verdicts, and all pictures."""
        name = f"{self.name}-{scale}"
        columns = write_figure(folder, name, self.measure(runs), self.draw)
        videos = [] if self.video is None else self.video(runs, folder / name)
        return with_p_values(self.judge(columns)), [folder / f"{name}.png", *videos]


def tasks(columns: Columns) -> list[str]:
    """In the order of the runs."""
    return list(dict.fromkeys(columns["env"].tolist()))


def agents(columns: Columns) -> list[str]:
    """In the order of the runs."""
    return list(dict.fromkeys(columns["agent"].tolist()))


def seeds_of(columns: Columns, name: str) -> list[tuple[NDArray, NDArray]]:
    """The steps and values of each seed."""
    seeds = (where(columns, seed=seed) for seed in np.unique(columns["seed"]))
    return [(rows["step"], rows[name]) for rows in seeds]


def last(columns: Columns, name: str) -> NDArray:
    """The last value of each seed; of a run that failed, the last that it has."""
    return np.array([values[-1] for _, values in seeds_of(columns, name)])


def measured_mean(values: NDArray) -> float:
    """The mean of what has been measured; nan if nothing has."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def both(columns: Columns, first: str, second: str) -> list[tuple[str, Columns, Columns]]:
    """The tasks that two agents ran, and the rows of each there."""
    shared = [env for env in tasks(columns) if {first, second} <= set(agents(where(columns, env=env)))]
    return [(env, where(columns, env=env, agent=first), where(columns, env=env, agent=second)) for env in shared]


def panels(columns: Columns, width: float = 3.4) -> tuple[Figure, list[Axes]]:
    """One panel for each task, with its name."""
    figure, ((*axes,),) = rows_of_panels(columns, 1, (width, 3.0))
    return figure, axes


def rows_of_panels(columns: Columns, rows: int, size: tuple[float, float]) -> tuple[Figure, NDArray]:
    """A column of panels for each task, with its name; `size` is that of a column."""
    names = tasks(columns)
    figure = Figure(figsize=(size[0] * len(names) + 0.4, size[1]), layout="constrained")
    axes = figure.subplots(rows, len(names), squeeze=False, sharex="col")
    for column, env in zip(axes.T, names, strict=True):
        column[0].set_title(env.removeprefix("mnm/"))
        column[-1].set_xlabel("real steps")
    return figure, axes


def draw_lines(panel: Axes, columns: Columns, name: str, label: str, colour: str, linestyle: str = "-") -> None:
    """Every seed thin, and thick the mean over the seeds at the steps that all have."""
    lines = seeds_of(columns, name)
    for steps, values in lines:
        panel.plot(steps, values, color=colour, alpha=0.35, linewidth=THIN, linestyle=linestyle)
    shared = min((steps for steps, _ in lines), key=len)
    mean = np.mean([values[: len(shared)] for _, values in lines], axis=0)
    panel.plot(shared, mean, color=colour, label=label, linestyle=linestyle)


def draw_agents(panel: Axes, columns: Columns, name: str) -> None:
    """`draw_lines` for every agent."""
    look = looks(agents(columns))
    for agent in agents(columns):
        draw_lines(panel, where(columns, agent=agent), name, agent_name(agent), *look[agent])


def draw_reached(panel: Axes, columns: Columns) -> None:
    """Sample efficiency of every agent: the return that half of its seeds have had by a step.

    Read from left to right at one height, it tells who is first at a mark, and by how many steps.
    """
    look = looks(agents(columns))
    for agent in agents(columns):
        lines = seeds_of(where(columns, agent=agent), "return")
        shared = min((steps for steps, _ in lines), key=len)
        highest = [np.fmax.accumulate(returns[: len(shared)]) for _, returns in lines]
        reached = np.sort(highest, axis=0)[len(lines) // 2]
        panel.plot(shared, reached, color=look[agent].colour, linestyle=look[agent].line, drawstyle="steps-post")


def draw_returns(columns: Columns) -> Figure:
    """A column for each task, a colour for each agent: learning curves above, what half of the seeds have had below."""
    figure, axes = rows_of_panels(columns, 2, (3.4, 4.8))
    for (upper, lower), env in zip(axes.T, tasks(columns), strict=True):
        draw_agents(upper, where(columns, env=env), "return")
        draw_reached(lower, where(columns, env=env))
    axes[0, 0].set_ylabel("evaluation return")
    axes[1, 0].set_ylabel("reached by half of the seeds")
    legend_of_seeds(axes[0, 0])
    return figure


def means(values: NDArray, digits: int | None = None) -> str:
    """'mean (by seed)'; returns in the hundreds need no decimals, small ones need one."""
    if digits is None:
        digits = 0 if np.abs(values).max() >= 100 else 1
    listed = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{values.mean():.{digits}f} ({listed})"


class Compared(NamedTuple):
    """What the seeds of two agents say about whether the first is better."""

    holds: bool | None
    """Yes, no (it is worse), or they cannot tell, by one-sided permutation tests."""
    p_value: float
    measured: str
    """By how much, in how many pairs of seeds, and how many seeds would tell if these cannot."""


def compared(better: NDArray, worse: NDArray) -> Compared:
    """Whether the first is better than the second: larger scores are."""
    p, p_worse = permutation_p_value(better, worse), permutation_p_value(worse, better)
    holds = True if is_significant(p) else False if is_significant(p_worse) else None
    if np.isnan(p):
        return Compared(holds, p, "not every seed has a number")
    numbers = (float(iqm_difference(better, worse)), *bootstrap_interval([better, worse], iqm_difference))
    gain, low, high = (f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}" for number in numbers)
    measured = (
        f"difference of the interquartile means {gain} [{low}, {high}], better in"
        f" {probability_of_improvement(better, worse):.2f} of the pairs of seeds"
    )
    if holds is None and min(len(better), len(worse)) > 1:  # one seed alone says nothing about its spread
        first, second = (better, worse) if better.mean() >= worse.mean() else (worse, better)
        needed = seeds_to_tell(first, second)
        measured += "; " + (f"{needed} seeds of each would tell" if needed else f"{MOST_SEEDS} seeds would not tell")
    return Compared(holds, p, measured)


def iqm_difference(better: NDArray, worse: NDArray) -> NDArray:
    """Of the interquartile means."""
    return interquartile_mean(better) - interquartile_mean(worse)


def with_p_values(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Every verdict's p behind what was measured: the plain one, and beside it Holm's over the tests of the figure."""
    adjusted = holm(np.array([np.nan if one.p_value is None else one.p_value for one in verdicts]))
    number = np.isfinite(adjusted).sum()
    return [
        one
        if np.isnan(corrected)
        else replace(
            one,
            measured=f"{one.measured}; p = {one.p_value:.3f}"
            + (f" ({corrected:.3f} by Holm's correction for {number} tests)" if number > 1 else ""),
        )
        for one, corrected in zip(verdicts, adjusted, strict=True)
    ]


def steps_to(columns: Columns, mark: float) -> NDArray:
    """The real steps after which each seed's return is first at the mark; infinite for a seed that never is."""
    return np.array([min(steps[returns >= mark], default=np.inf) for steps, returns in seeds_of(columns, "return")])


def median_steps_to(columns: Columns, mark: float) -> float:
    """The steps after which half of the seeds have been at the mark; infinite if fewer ever are."""
    steps = np.sort(steps_to(columns, mark))
    return float(steps[(len(steps) - 1) // 2])


def at_equal_minutes(first: Columns, second: Columns) -> str:
    """The returns of two agents when the one that takes fewer minutes is done: of the other, the last ones by then.

    Nothing if the runs have not kept their time, or if the slower one has no evaluation by then.
    """
    took = [last(part, "seconds").mean() for part in (first, second)]
    seconds = min(took)
    returns = [
        last(part, "return") if own == seconds else returns_by(part, seconds)
        for part, own in zip((first, second), took, strict=True)
    ]
    if not np.isfinite([seconds, *returns[0], *returns[1]]).all():
        return ""
    return f"; after {seconds / 60:.1f} minutes of each {means(returns[0])} against {means(returns[1])}"


def returns_by(columns: Columns, seconds: float) -> NDArray:
    """Each seed's last return by that time; nan for one that has none."""
    lines = zip(seeds_of(columns, "return"), seeds_of(columns, "seconds"), strict=True)
    by_then = [returns[times <= seconds] for (_, returns), (_, times) in lines]
    return np.array([returns[-1] if len(returns) else np.nan for returns in by_then])


def outperforms(columns: Columns, better: str, worse: str, paper: str) -> list[Verdict]:
    """For each task that both agents ran: whether the first's last returns are above the second's."""
    verdicts = []
    for env, *rows in both(columns, better, worse):
        ours, theirs = (last(part, "return") for part in rows)
        result = compared(ours, theirs)
        steps = median_steps_to(rows[0], theirs.mean())
        when = f"by step {steps:.0f}" if np.isfinite(steps) else "at no step"
        verdicts.append(
            Verdict(
                f"{env.removeprefix('mnm/')}: {agent_name(better)} outperforms {agent_name(worse)}",
                paper,
                f"last return {means(ours)} against {means(theirs)}, {result.measured}; half of its seeds have had the"
                f" other's last mean {when}{at_equal_minutes(*rows)}",
                result.holds,
                result.p_value,
            )
        )
    return verdicts
