"""The paper's comparison on Gym's running tasks: MnM-approx on par with MBPO, above VMBPO."""

from __future__ import annotations

from mnm.figures.base import Columns, Verdict
from mnm.figures.deep import (
    HALF_CHEETAH,
    HOPPER,
    WALKER,
    DeepFigure,
    RunGrid,
    both,
    compared,
    draw_returns,
    last,
    means,
    outperforms,
)

PAPER_P = "p = 0.04, 0.00, 0.03 on the three tasks"


def judge(columns: Columns) -> list[Verdict]:
    """On par with MBPO, better than VMBPO; SAC is ours to compare."""
    return [
        *on_par(columns),
        *outperforms(columns, "mnm_approx", "vmbpo", PAPER_P),
        *outperforms(columns, "mnm_approx", "sac", "-"),
    ]


def on_par(columns: Columns) -> list[Verdict]:
    """MnM-approx against MBPO: no if it is worse by the test, yes if its mean is as high, else cannot tell."""
    verdicts = []
    for env, *rows in both(columns, "mnm_approx", "mbpo"):
        ours, theirs = (last(part, "return") for part in rows)
        worse = compared(theirs, ours)
        verdicts.append(
            Verdict(
                f"{env}: MnM-approx is on par with MBPO",
                "roughly on par",
                f"last return {means(ours)} against {means(theirs)}; tested: that MBPO is better, {worse.measured}",
                False if worse.holds else True if ours.mean() >= theirs.mean() else None,
                worse.p_value,
            )
        )
    return verdicts


FIGURE = DeepFigure(
    "gym_benchmark",
    (RunGrid((HALF_CHEETAH, HOPPER, WALKER), ("mnm_approx", "mbpo", "vmbpo", "sac")),),
    draw_returns,
    judge,
)
