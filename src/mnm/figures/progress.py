"""What a task pays for, in its own unit, and how much further a model goes towards it than reality does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnm.agents.rollout import mean_rollout
from mnm.agents.world_model import World
from mnm.analysis.statistics import bootstrap_interval
from mnm.diagnostics import WINDOW
from mnm.figures.base import Columns, Verdict, where
from mnm.figures.deep import HALF_CHEETAH, PUSHER, SCREW_FIXED

CHEETAH_DT = 0.05
FORWARD_VELOCITY = 8
HAND, OBJECT, GOAL = slice(14, 17), slice(17, 20), slice(20, 23)
SCREW_ERROR = 20


def forward(observations: NDArray) -> NDArray:
    """Metres that the cheetah moves forward; observations are [time, rows, obs]."""
    return CHEETAH_DT * observations[1:, :, FORWARD_VELOCITY].sum(axis=0)


def closer(observations: NDArray) -> NDArray:
    """Metres by which the distances that Pusher's reward counts shrink: object to goal, and half of hand to object."""

    def distance(moment: NDArray) -> NDArray:
        to_goal = np.linalg.norm(moment[:, OBJECT] - moment[:, GOAL], axis=-1)
        return to_goal + 0.5 * np.linalg.norm(moment[:, HAND] - moment[:, OBJECT], axis=-1)

    return distance(observations[0]) - distance(observations[-1])


def screwed(observations: NDArray) -> NDArray:
    """Radians by which the valve comes closer to its moving target."""
    return np.abs(observations[0, :, SCREW_ERROR]) - np.abs(observations[-1, :, SCREW_ERROR])


class Progress(NamedTuple):
    """Of a task."""

    measure: Callable[[NDArray], NDArray]
    unit: str


PROGRESS = {
    HALF_CHEETAH: Progress(forward, "m"),
    PUSHER: Progress(closer, "m"),
    SCREW_FIXED: Progress(screwed, "rad"),
}


def progress(env: str, world: World, real: NDArray, actions: NDArray) -> dict[str, NDArray]:
    """Of every segment: the real progress, and the model's from the same state with the same actions."""
    model = np.concatenate([real[:1], np.asarray(mean_rollout(world, real[0], actions))])
    measure = PROGRESS[env].measure
    return {"segment": np.arange(len(real[0])), "real": measure(real), "model": measure(model)}


def ahead(columns: Columns) -> NDArray:
    """Of each segment, how much further the model moves than reality."""
    return columns["model"] - columns["real"]


def ahead_by_seed(columns: Columns) -> dict[int, NDArray]:
    """The same for each seed."""
    return {int(seed): ahead(where(columns, seed=seed)) for seed in np.unique(columns["seed"])}


def interval(gains: NDArray) -> tuple[float, float]:
    """Of the mean, over states."""
    return bootstrap_interval([gains], lambda drawn: drawn.mean(axis=-1))


def sign(claim: str, env: str, seeds: Sequence[NDArray]) -> Verdict:
    """Whether these numbers, of many states of each seed, are above 0.

    Told only if the interval over states excludes 0 and no seed says otherwise: many states are no more seeds.
    """
    gains, means = np.concatenate(seeds), [one.mean() for one in seeds]
    low, high = interval(gains)
    measured = (
        f"{gains.mean():+.3g} {PROGRESS[env].unit} [{low:+.3g}, {high:+.3g}] in {WINDOW} steps, over {len(gains)}"
        f" states; by seed {', '.join(f'{mean:+.3g}' for mean in means)}"
    )
    holds = True if min(low, *means) > 0 else False if max(high, *means) < 0 else None
    return Verdict(f"{env.removeprefix('mnm/')}: {claim}", "seen in pictures", measured, holds)
