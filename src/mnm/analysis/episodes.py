"""A certificate for a trained agent: a number that its expected return exceeds with a stated probability, by episodes.

The returns of independent episodes lie in a declared range; betting.py does the rest. Nothing is assumed of the task
but that it stays as it is, and nothing of the agent, whose model and Q are only shown beside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from mnm.analysis.betting import betting_lower_bound
from mnm.analysis.certificates import PROMISES
from mnm.diagnostics import KEPT_BYTES, Episode, diagnose
from mnm.messages import UserError
from mnm.training.learner import Learner

DIAGNOSED = 100
"""Of so many episodes, the first, the agent's own promises are made."""
ROUNDING = 1e-6
"""Of the range, which is so much wider at both ends: rewards are kept in 32 bits."""


@dataclass(frozen=True)
class EpisodeCertificate:
    """What fresh episodes say of an agent's expected return, undiscounted."""

    returns: list[float]
    return_range: tuple[float, float]
    confidence: float
    planned: int
    at_least: float | None
    promises: dict[str, float]
    """Those of PROMISES that the agent has."""

    @property
    def lower(self) -> float:
        """With probability `confidence` the expected return is no less."""
        return lower_return(self.returns, self.return_range, self.confidence, self.planned)

    @property
    def upper(self) -> float:
        """With probability `confidence` the expected return is no more."""
        return upper_return(self.returns, self.return_range, self.confidence, self.planned)

    @property
    def certified(self) -> bool:
        """Whether what was asked for is shown: a return of at least so much, or anything above the declared range."""
        low, high = self.return_range
        asked = low + ROUNDING * (high - low) if self.at_least is None else self.at_least
        return self.lower >= asked

    @property
    def why_not(self) -> str:
        """Why nothing is certified; empty if something is."""
        if self.certified:
            return ""
        if self.at_least is None:
            return f"{len(self.returns)} episodes show no more than the declared range: play more, or declare less"
        if self.upper < self.at_least:
            return f"the expected return is at most {self.upper:.6g}, below the {self.at_least:g} asked for"
        return f"between {self.lower:.6g} and {self.upper:.6g}: {len(self.returns)} episodes cannot tell; play more"


def scaled(returns: list[float], return_range: tuple[float, float]) -> np.ndarray:
    """Returns as shares of the range, which is wider by ROUNDING at both ends."""
    low, high = return_range
    width = high - low
    return (np.asarray(returns) - (low - ROUNDING * width)) / (width * (1 + 2 * ROUNDING))


def lower_return(returns: list[float], return_range: tuple[float, float], confidence: float, planned: int) -> float:
    """The betting bound in the returns' own unit."""
    low, high = return_range
    share = float(betting_lower_bound(scaled(returns, return_range), 1.0 - confidence, planned))
    return max(low - ROUNDING * (high - low) + (high - low) * (1 + 2 * ROUNDING) * share, low)


def upper_return(returns: list[float], return_range: tuple[float, float], confidence: float, planned: int) -> float:
    """The same from above: a lower bound for the returns with their sign turned."""
    low, high = return_range
    return -lower_return([-each for each in returns], (-high, -low), confidence, planned)


def range_of_returns(reward_range: tuple[float, float], time_limit: int) -> tuple[float, float]:
    """Between which an episode of 1 to `time_limit` rewards in the range must return."""
    low, high = reward_range
    return min(low, low * time_limit), max(high, high * time_limit)


def certify_agent(
    learner: Learner,
    episodes: int,
    return_range: tuple[float, float],
    *,
    confidence: float = 0.95,
    at_least: float | None = None,
    seed: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
) -> EpisodeCertificate:
    """Play up to `episodes` fresh episodes of the deterministic policy; fewer if `at_least` is decided before.

    They start where no episode of the training, of an evaluation or of `mnm evaluate` started. A return outside of
    `return_range` is an error: the range was no truth.
    """
    check_request(episodes, return_range, confidence, at_least)
    low, high = return_range
    slack = ROUNDING * (high - low)
    room = KEPT_BYTES // DIAGNOSED
    kept: list[Episode] = []
    returns: list[float] = []
    for episode in islice(learner.play(0, seed, should_stop, "certificate", room=room), episodes):
        total = episode.total
        if not low - slack <= total <= high + slack:
            raise UserError(
                f"{learner.task_name}: episode {len(returns) + 1} returned {total:g}, outside of the declared range "
                f"{low:g} to {high:g}; declare a range that no episode can leave"
            )
        returns.append(total)
        if len(kept) < DIAGNOSED:
            kept.append(episode)
        if at_least is not None and (
            lower_return(returns, return_range, confidence, episodes) >= at_least
            or upper_return(returns, return_range, confidence, episodes) < at_least
        ):
            break
    if not returns:
        raise UserError("no episode was played")
    limit = learner.adapter.time_limit
    measured = diagnose(learner.algorithm, learner.settings, learner.agent(0), kept, limit, seed)
    promises = {name: measured[name] for name in PROMISES if name in measured}
    return EpisodeCertificate(returns, return_range, confidence, episodes, at_least, promises)


def check_request(episodes: int, return_range: tuple[float, float], confidence: float, at_least: float | None) -> None:
    """Numbers that make sense, or an error that names the one that does not."""
    low, high = return_range
    if episodes < 1:
        raise UserError(f"--episodes is {episodes}, but must be 1 or more")
    if not 0.0 < confidence < 1.0:
        raise UserError(f"--confidence is {confidence:g}, but must lie strictly between 0 and 1")
    if not (np.isfinite([low, high]).all() and low < high):
        raise UserError(
            f"the range of returns is {low:g} to {high:g}, but must be two finite numbers, the smaller first"
        )
    if at_least is not None and not low <= at_least <= high:
        raise UserError(f"--at-least is {at_least:g}, but returns are declared to lie between {low:g} and {high:g}")


def as_json(certificate: EpisodeCertificate, about: dict[str, Any]) -> dict[str, Any]:
    """For programs."""
    return about | {
        "certified": certificate.certified,
        "certificate": certificate.lower,
        "upper_bound": certificate.upper,
        "confidence": certificate.confidence,
        "reason": certificate.why_not,
        "at_least": certificate.at_least,
        "return_range": list(certificate.return_range),
        "episodes": len(certificate.returns),
        "planned_episodes": certificate.planned,
        "mean": float(np.mean(certificate.returns)),
        "promises": {name: value if np.isfinite(value) else None for name, value in certificate.promises.items()},
        "returns": certificate.returns,
    }
