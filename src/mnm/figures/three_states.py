"""Fig. risk seeking: on three states MnM maximises the return, VMBPO prefers variance."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mnm.figures.base import Columns, PaperFigure, Verdict, stacked, where
from mnm.plotting.style import BLUE, COLOURS, GREEN, ORANGE, RED
from mnm.tabular.evaluation import evaluate_policy, return_variance
from mnm.tabular.mdp import Floats, deterministic_policy
from mnm.tabular.mnm import joint_iteration_paper
from mnm.tabular.paper_tasks import three_states
from mnm.tabular.solvers import solve
from mnm.tabular.vmbpo import joint_iteration_vmbpo

MIDDLE = 1
TEMPERATURES = np.logspace(-4, 1, 26)


def run() -> Columns:
    """Per agent (and VMBPO's temperature): what it does in the middle, its exact return and standard deviation."""
    mdp = three_states()

    def row(agent: str, temperature: float, policy: Floats) -> dict[str, object]:
        policy = deterministic_policy(policy.argmax(axis=1), mdp.num_actions)
        return {
            "agent": agent,
            "temperature": temperature,
            "goes": ("left", "right")[policy[MIDDLE].argmax()],
            "return": evaluate_policy(mdp, policy)[MIDDLE],
            "deviation": np.sqrt(return_variance(mdp, policy)[MIDDLE]),
        }

    q_learning = deterministic_policy(solve(mdp).actions, mdp.num_actions)
    return stacked(
        row("Q-learning", np.nan, q_learning),
        row("MnM", np.nan, joint_iteration_paper(mdp)[-1].policy),
        row("VMBPO", 1.0, joint_iteration_vmbpo(mdp)[-1].policy),
        *(row("VMBPO, other", t, joint_iteration_vmbpo(mdp, t)[-1].policy) for t in TEMPERATURES),
    )


def draw(columns: Columns) -> Figure:
    """The MDP, the agents' returns, and VMBPO's return against its temperature."""
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    drawing, bars, sweep = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
    _draw_states(drawing)
    agents = ("Q-learning", "MnM", "VMBPO")
    rows = [where(columns, agent=agent) for agent in agents]
    returns, deviations = ([float(row[name][0]) for row in rows] for name in ("return", "deviation"))
    bars.bar(agents, returns, yerr=deviations, color=[COLOURS[agent] for agent in agents], capsize=4)
    bars.set(ylabel="return", title="exact return ± its\nstandard deviation")
    other = where(columns, agent="VMBPO, other")
    sweep.semilogx(other["temperature"], other["return"], color=GREEN, label="VMBPO")
    sweep.axhline(returns[1], color=BLUE, linestyle="--", label="MnM")
    sweep.set(xlabel="temperature (1 / reward)", ylabel="return", title="VMBPO by temperature")
    sweep.legend()
    return figure


def _draw_states(axes: Axes) -> None:
    for x, (name, reward) in enumerate((("left", 50), ("middle", 1), ("right", 51))):
        axes.plot(x, 0, marker="o", markersize=34, color="0.93", markeredgecolor="0.4")
        axes.annotate(f"{name}\n{reward}", (x, 0), ha="center", va="center", fontsize=8)
    moves = {"arrowstyle": "<->", "color": "0.4"}
    for x in (0, 1):
        axes.annotate("", (x + 0.78, 0), (x + 0.22, 0), arrowprops=moves)
    wind = {"arrowstyle": "->", "color": RED, "connectionstyle": "arc3,rad=0.45", "linewidth": 1.6}
    axes.annotate("", (1.08, 0.13), (1.92, 0.13), arrowprops=wind)
    axes.annotate("wind, 50%", (1.5, 0.5), ha="center", color=RED)
    axes.annotate("start", (1, -0.45), ha="center", color=ORANGE)
    axes.set(xlim=(-0.4, 2.4), ylim=(-0.8, 0.8), title="reward per state")
    axes.axis("off")


def judge(columns: Columns) -> list[Verdict]:
    """Who goes where."""
    q_learning, mnm, vmbpo = (where(columns, agent=agent) for agent in ("Q-learning", "MnM", "VMBPO"))
    best, reached, risky = (float(row["return"][0]) for row in (q_learning, mnm, vmbpo))
    deviation = float(vmbpo["deviation"][0])
    return [
        Verdict(
            "MnM learns the reward-maximising strategy",
            "moves to the left state",
            f"goes {mnm['goes'][0]}, return {reached:.1f}, optimal {best:.1f}",
            bool(np.isclose(reached, best)),
        ),
        Verdict(
            "VMBPO goes right, with lower return and higher variance",
            "lower rewards, higher variance",
            f"goes {vmbpo['goes'][0]}, return {risky:.1f}, deviation {deviation:.1f} (MnM's {mnm['deviation'][0]:.1f})",
            bool(risky < reached and deviation > mnm["deviation"][0]),
        ),
    ]


FIGURE = PaperFigure("three_states", "Risk seeking on three states", run, draw, judge)
