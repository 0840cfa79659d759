"""Ours: what can be certified of a return, and what is only promised.

Left: the stochastic gridworld with as many transitions of every pair (s, a) as the axis says. For each data set, the
certificate of the policy that maximises it, that policy's true return, and what the plug-in model promises of the
policy that is best in it, against what that one returns. Middle: how far the certificate is below the return. Right:
episodes of an agent that mostly succeeds: how often 95 % lower bounds on its success rate exceed it.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from mnm.analysis.betting import betting_lower_bound, bootstrap_lower_bound, hoeffding_lower_bound
from mnm.figures.base import Columns, PaperFigure, Verdict, stacked, where
from mnm.plotting.style import BLACK, BLUE, GREEN, ORANGE, RED, draw_seeds
from mnm.tabular.bounds import average
from mnm.tabular.certificate import certify
from mnm.tabular.evaluation import evaluate_policy
from mnm.tabular.mdp import Floats, TabularMDP
from mnm.tabular.paper_tasks import stochastic_gridworld
from mnm.tabular.solvers import optimal_return, solve
from mnm.tabular.transitions import sample_counts

SEEDS = range(5)
SAMPLES = np.round(np.logspace(1, 6, 11)).astype(int)
"""Of every pair."""
CONFIDENCE = 0.95
NEIGHBOURS = 5
"""A move leads to one of four neighbours, or stays."""
EPISODES = (5, 10, 20, 50, 100, 200)
SUCCESS = 0.9
DATA_SETS = 2_000
CURVES = {
    "certificate": BLUE,
    "return of its policy": GREEN,
    "plug-in promise": RED,
    "return of the plug-in's": ORANGE,
}
METHODS = {
    "betting": (betting_lower_bound, BLUE),
    "Hoeffding": (hoeffding_lower_bound, GREEN),
    "bootstrap": (bootstrap_lower_bound, RED),
}


def run() -> Columns:
    """Per number of samples and seed: certificates, promises, returns; per number of episodes: how often a miss."""
    mdp = stochastic_gridworld().mdp
    optimal = optimal_return(mdp)
    rows = [
        {"part": "data", "curve": name, "seed": seed, "number": number, "value": value, "optimal": optimal}
        for seed in SEEDS
        for number in SAMPLES
        for name, value in certified_and_promised(mdp, int(number), seed).items()
    ]
    generator = np.random.default_rng(0)
    for number in EPISODES:
        draws = (generator.random((DATA_SETS, number)) < SUCCESS).astype(float)
        for name, (bound, _) in METHODS.items():
            missed = float((bound(draws, 1 - CONFIDENCE) > SUCCESS).mean())
            rows.append(
                {"part": "episodes", "curve": name, "seed": 0, "number": number, "value": missed, "optimal": np.nan}
            )
    return stacked(*rows)


def certified_and_promised(mdp: TabularMDP, samples: int, seed: int) -> dict[str, float]:
    """What one data set gives, by the name of the curve."""
    counts = sample_counts(mdp, samples, seed=seed)
    rewards = float(mdp.rewards.min()), float(mdp.rewards.max())
    made = certify(
        counts,
        "best",
        confidence=CONFIDENCE,
        discount=mdp.discount,
        reward_range=rewards,
        start=mdp.start,
        successors=NEIGHBOURS,
    )
    solution = solve(made.plug_in)
    return {
        "certificate": made.value,
        "return of its policy": average(mdp.start, evaluate_policy(mdp, made.policy)),
        "plug-in promise": average(mdp.start, solution.values),
        "return of the plug-in's": average(mdp.start, evaluate_policy(mdp, solution.policy(mdp.num_actions))),
    }


def curve(columns: Columns, name: str) -> tuple[Floats, Floats]:
    """The numbers of samples, and [seeds, numbers] values."""
    rows = where(columns, part="data", curve=name)
    return np.unique(rows["number"]), rows["value"].reshape(len(SEEDS), -1)


def gaps(columns: Columns) -> tuple[Floats, Floats]:
    """The numbers of samples, and how far the certificate is below its policy's return, [seeds, numbers]."""
    numbers, certificates = curve(columns, "certificate")
    return numbers, curve(columns, "return of its policy")[1] - certificates


def draw(columns: Columns) -> Figure:
    """Three panels."""
    figure = Figure(figsize=(9.6, 3.2), layout="constrained")
    values, rate, episodes = figure.subplots(1, 3)
    for name, colour in CURVES.items():
        draw_seeds(values, *curve(columns, name), name, colour)
    values.axhline(columns["optimal"][0], color=BLACK, linestyle=":", linewidth=1, label="optimal")
    values.set(xscale="log", xlabel="samples of every pair", ylabel="return", title="certified and promised")
    values.legend()
    numbers, apart = gaps(columns)
    draw_seeds(rate, numbers, apart, "return - certificate", BLUE)
    guide = np.median(apart[:, -1]) * np.sqrt(numbers[-1] / numbers)
    rate.plot(numbers, guide, color=BLACK, linestyle=":", linewidth=1, label=r"$\sim 1 / \sqrt{n}$")
    rate.set(
        xscale="log", yscale="log", xlabel="samples of every pair", ylabel="return", title="how much is not certified"
    )
    rate.legend()
    for name, (_, colour) in METHODS.items():
        rows = where(columns, part="episodes", curve=name)
        episodes.plot(rows["number"], 100 * rows["value"], marker="o", markersize=4, color=colour, label=name)
    episodes.axhline(100 * (1 - CONFIDENCE), color=BLACK, linestyle=":", linewidth=1, label="allowed")
    episodes.set(xscale="log", xlabel="episodes", ylabel="bounds that exceed the truth (%)", title="by episodes")
    episodes.legend()
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """Whether certificates hold, how fast they grow, and what promises are worth."""
    certificates, kept = curve(columns, "certificate")[1], curve(columns, "return of its policy")[1]
    promises, returned = curve(columns, "plug-in promise")[1], curve(columns, "return of the plug-in's")[1]
    broken, total = int((certificates > kept).sum()), certificates.size
    numbers, apart = gaps(columns)
    late = numbers >= 10_000
    slopes = [float(np.polyfit(np.log(numbers[late]), np.log(gap[late]), 1)[0]) for gap in apart]
    by_episodes = where(columns, part="episodes")
    worst = {name: float(where(by_episodes, curve=name)["value"].max()) for name in METHODS}
    optimal = float(columns["optimal"][0])
    return [
        Verdict(
            "The certificate is never above the return of its policy (ours)",
            "-",
            f"above in {broken} of {total} data sets at confidence {CONFIDENCE:g}; "
            f"{np.median(certificates[:, -1]):.4f} of the optimal {optimal:.4f} with {numbers[-1]:,.0f} samples a pair",
            broken == 0,
        ),
        Verdict(
            "The plug-in model promises more than its policy returns (ours)",
            "-",
            f"more in {int((promises > returned).sum())} of {total} data sets, by up to "
            f"{float((promises - returned).max()):.3f}",
            bool((promises > returned).mean() > 0.5),
        ),
        Verdict(
            "The certificate comes to the true return as 1 / sqrt(n), but for a logarithm (ours)",
            "-",
            f"slope {min(slopes):.2f} to {max(slopes):.2f} from 10,000 samples of a pair on",
            bool(min(slopes) >= -0.55 and max(slopes) <= -0.4),
        ),
        Verdict(
            "Of an agent by episodes, the betting bound holds, the bootstrap's does not (ours)",
            "-",
            "; ".join(f"{name} above the truth in up to {100 * share:.1f}%" for name, share in worst.items()),
            worst["betting"] <= 1 - CONFIDENCE < worst["bootstrap"],
        ),
    ]


FIGURE = PaperFigure("certificate", "What can be certified of a return", run, draw, judge)
