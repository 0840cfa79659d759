"""Fig. comparing objectives: the whole ladder of bounds while the policy and the model are being improved.

Left, the paper's joint iteration (averaging 0.5); then joint iteration for the tight bound, which ends on the
return; right, the gaps. VMBPO's objective and the return in the optimistic model are drawn as logarithms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mnm.figures.base import Columns, PaperFigure, Verdict, stacked, where
from mnm.plotting.style import COLOURS, DASHES
from mnm.tabular.bounds import LADDER, ladder, model_return, vmbpo_upper_bound
from mnm.tabular.mnm import joint_iteration_paper, joint_iteration_tight
from mnm.tabular.paper_tasks import comparing_objectives

RETURN = "log expected return"
VMBPO = "log of VMBPO's objective"
IN_MODEL = "log return in the model"
OBJECTIVES = (*LADDER, RETURN, VMBPO, IN_MODEL)


def run() -> Columns:
    """Per iteration: every objective at that iteration's policy and model."""
    mdp = comparing_objectives().mdp
    rows = []
    for algorithm, steps in (("paper", joint_iteration_paper(mdp)), ("tight", joint_iteration_tight(mdp))):
        for number, step in enumerate(steps):
            objectives = ladder(mdp, step.policy, step.model)
            objectives[VMBPO] = float(np.log(vmbpo_upper_bound(mdp, step.policy)))
            objectives[IN_MODEL] = float(np.log(model_return(mdp, step.policy, step.model)))
            rows.append(
                {
                    "algorithm": algorithm,
                    "iteration": number,
                    "objective": np.array(list(objectives)),
                    "value": np.array(list(objectives.values())),
                }
            )
    return stacked(*rows)


def draw(columns: Columns) -> Figure:
    """The two iterations, and how far each bound is from the return in the second one."""
    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _draw_objectives(left, where(columns, algorithm="paper"))
    left.set(title="MnM, as in the paper", ylabel="nats")
    tight = where(columns, algorithm="tight")
    _draw_objectives(middle, tight)
    middle.set(title="joint iteration for the tight bound", ylabel="nats", ylim=(2.29, 2.49))
    real = where(tight, objective=RETURN)["value"]
    for rung in LADDER:
        line = where(tight, objective=rung)
        gap = np.maximum(real - line["value"], 1e-16)
        right.semilogy(line["iteration"], gap, marker=".", label=rung, **_look(rung))
    right.set(title="gap to the log expected return", xlabel="iteration", ylabel="nats")
    for axes in (left, middle, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _draw_objectives(axes: Axes, rows: Columns) -> None:
    for objective in OBJECTIVES:
        line = where(rows, objective=objective)
        axes.plot(line["iteration"], line["value"], label=objective, **_look(objective))
    axes.set_xlabel("iteration")


def _look(objective: str) -> dict[str, Any]:
    return {"color": COLOURS[objective], "linestyle": DASHES.get(objective, "-")}


def judge(columns: Columns) -> list[Verdict]:
    """Theorem 3.1, VMBPO's overestimate, and tightness, at every iteration."""

    def values(algorithm: str, objective: str) -> np.ndarray:
        return where(columns, algorithm=algorithm, objective=objective)["value"]

    paper, real = values("paper", "paper's bound"), values("paper", RETURN)
    vmbpo, in_model = values("paper", VMBPO), values("paper", IN_MODEL)
    tight_gap = values("tight", RETURN)[-1] - values("tight", "tight bound")[-1]
    return [
        Verdict(
            "MnM's objective is always a lower bound on the log expected return",
            "always",
            f"at {int((paper <= real + 1e-12).sum())} of {len(paper)} iterations; ends at {paper[-1]:.4f} "
            f"against {real[-1]:.4f}",
            bool((paper <= real + 1e-12).all()),
        ),
        Verdict(
            "VMBPO's objective overestimates the expected return",
            "overestimates",
            f"by {np.exp(vmbpo[-1]) - np.exp(real[-1]):.2f} at the end (return {np.exp(real[-1]):.2f}); smallest "
            f"excess {np.min(np.exp(vmbpo) - np.exp(real)):.2g}",
            bool((vmbpo > real).all()),
        ),
        Verdict(
            "The plain return in the optimistic model overestimates the real one",
            "overestimates",
            f"{np.exp(in_model[-1]):.2f} against {np.exp(real[-1]):.2f} at the end",
            bool(in_model[-1] > real[-1]),
        ),
        Verdict(
            "A tight bound needs a non-Markovian model",
            "may be non-Markovian; no algorithm known",
            f"with a Markov model the gap is {abs(tight_gap):.1e} after {len(values('tight', RETURN)) - 1} iterations",
            bool(abs(tight_gap) > 1e-9),
        ),
    ]


FIGURE = PaperFigure("comparing_objectives", "The ladder of bounds during optimisation", run, draw, judge)
