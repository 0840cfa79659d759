"""Other objectives for the model, on ScrewFixed: likelihood (MBPO), VAML, value-weighted likelihood."""

from __future__ import annotations

from mnm.figures.base import Columns, Verdict
from mnm.figures.deep import SCREW_FIXED, DeepFigure, RunGrid, draw_returns, outperforms

RIVALS = ("mbpo", "vaml", "value_weighted")


def judge(columns: Columns) -> list[Verdict]:
    """MnM-approx against each."""
    return [
        verdict
        for rival in RIVALS
        for verdict in outperforms(columns, "mnm_approx", rival, "MnM-approx outperforms these alternatives")
    ]


FIGURE = DeepFigure(
    "model_objectives",
    (RunGrid((SCREW_FIXED,), ("mnm_approx", *RIVALS)),),
    draw_returns,
    judge,
)
