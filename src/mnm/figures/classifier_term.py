"""What the classifier term in the policy's reward costs: MnM against MnM-approx on DrawerOpen."""

from __future__ import annotations

from mnm.figures.base import Columns, Verdict
from mnm.figures.deep import DRAWER, DeepFigure, RunGrid, draw_returns, outperforms


def judge(columns: Columns) -> list[Verdict]:
    """Without the term it is better, the paper found."""
    return outperforms(columns, "mnm_approx", "mnm", "the term significantly hurts")


FIGURE = DeepFigure(
    "classifier_term",
    (RunGrid((DRAWER,), ("mnm_approx", "mnm")),),
    draw_returns,
    judge,
)
