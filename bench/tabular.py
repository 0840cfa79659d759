"""Speed of the exact part, side by side in one run, as ratios. Usage: make bench, or python bench/tabular.py [PART ...]

Parts: q_learning, quantecon, million, states. Writes results/bench/states.csv and .png.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from measure import report, seconds
from mnm.figures.base import write_csv
from mnm.plotting.style import BLUE, ORANGE, STYLE
from mnm.tabular import TabularMDP, random_grid, solve
from mnm.tabular.mnm import solve_mnm
from mnm.tabular.paper_tasks import stochastic_gridworld
from mnm.tabular.q_learning import METHODS, Run, Schedule, learn
from obvious_q_learning import learn_obviously

TOLERANCE = 1e-6
FOLDER = Path("results/bench")


def q_learning() -> None:
    """The figure's 15 runs, compilation included, against the obvious version: 3 of its runs, times 5."""
    mdp, schedule = stochastic_gridworld().mdp, Schedule()
    methods = ("Q-learning", "MnM", "VMBPO")
    ours, _ = seconds(lambda: learn([Run(mdp, METHODS[name], seed) for name in methods for seed in range(5)], schedule))
    obvious, _ = seconds(lambda: [learn_obviously(mdp, METHODS[name], 0, schedule) for name in methods])
    ratio = 5 * obvious / ours
    measured = f"{5 * obvious:.0f} s / {ours:.1f} s = {ratio:.0f} times"
    report("Q-learning figure: obvious / ours (15 runs)", measured, "at least 20", ratio >= 20)


def quantecon() -> None:
    """A 300x300 noisy grid with walls, values to 1e-6."""
    from quantecon.markov import DiscreteDP

    mdp = random_grid(300, seed=0, noise=0.5, discount=0.99).mdp
    warm_up()
    states = np.repeat(np.arange(mdp.num_states), mdp.num_actions)
    actions = np.tile(np.arange(mdp.num_actions), mdp.num_states)
    matrix = mdp.dynamics.matrix.copy()
    matrix.eliminate_zeros()
    problem = DiscreteDP(np.array(mdp.expected_rewards).ravel(), matrix, mdp.discount, states, actions)
    problem.solve(method="mpi", epsilon=1.0)
    theirs, their_solution = seconds(lambda: problem.solve(method="mpi", epsilon=TOLERANCE), 3)
    plain, solution = seconds(lambda: solve(mdp, TOLERANCE), 3)
    joint, _ = seconds(lambda: solve_mnm(mdp, TOLERANCE), 3)
    difference = float(np.abs(their_solution.v - solution.values).max())
    measured = f"{theirs:.2f} s / {plain:.2f} s = {theirs / plain:.1f} times"
    report(f"300x300 grid ({mdp.num_states} states): QuantEcon / ours", measured, "at least 3", theirs / plain >= 3)
    report("  largest difference of the values", f"{difference:.1e}", "below 2e-6", difference < 2 * TOLERANCE)
    measured = f"{joint:.2f} s / {plain:.2f} s = {joint / plain:.2f}"
    report("  MnM's joint solution / plain solution", measured, "at most 2", joint / plain <= 2)


def warm_up() -> None:
    """Load or compile the kernels."""
    small = random_grid(60, seed=0).mdp
    solve(small)
    solve_mnm(small)


def million() -> None:
    """A 1000x1000 grid, in a process of its own for its memory."""
    command = [sys.executable, __file__, "million_here"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    states, plain, joint, memory = (float(number) for number in output)
    measured = f"plain {plain:.1f} s, MnM {joint:.1f} s, {memory:.2f} GB"
    report(f"1000x1000 grid ({states:.0f} states): peak memory", measured, "below 2 GB", memory < 2)


def million_here() -> None:
    warm_up()
    mdp = random_grid(1000, seed=0, noise=0.5, discount=0.99).mdp
    plain, _ = seconds(lambda: solve(mdp, TOLERANCE))
    joint, _ = seconds(lambda: solve_mnm(mdp, TOLERANCE))
    print(mdp.num_states, plain, joint, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)


def states() -> None:
    """Cost against the number of states, from 1e2 to 1e6."""
    warm_up()
    rows = []
    for size in (10, 18, 32, 56, 100, 178, 316, 562, 1000):
        mdp: TabularMDP = random_grid(size, seed=0, wall_share=0.0, noise=0.5, discount=0.99).mdp
        repeats = 3 if size < 300 else 1
        plain, _ = seconds(lambda mdp=mdp: solve(mdp, TOLERANCE), repeats)  # type: ignore[misc]
        joint, _ = seconds(lambda mdp=mdp: solve_mnm(mdp, TOLERANCE), repeats)  # type: ignore[misc]
        rows.append((mdp.num_states, plain, joint))
        print(f"  {mdp.num_states:>8} states: plain {plain:8.3f} s, MnM {joint:8.3f} s", flush=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    table = np.array(rows)
    write_csv(FOLDER / "states.csv", dict(zip(("states", "plain_seconds", "mnm_seconds"), table.T, strict=True)))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.6, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.loglog(table[:, 0], table[:, 1], marker="o", color=ORANGE, label="plain solution")
        axes.loglog(table[:, 0], table[:, 2], marker="s", color=BLUE, label="MnM's joint solution")
        axes.loglog(table[:, 0], table[-1, 1] * table[:, 0] / table[-1, 0], ":", color="0.5", label="proportional")
        axes.set(xlabel="states (open noisy grid)", ylabel="seconds", title="Values to 1e-6, discount 0.99")
        axes.legend()
        figure.savefig(FOLDER / "states.png")
    print(f"  plotted in {FOLDER / 'states.png'}")


PARTS = {"q_learning": q_learning, "quantecon": quantecon, "million": million, "states": states}

if __name__ == "__main__":
    chosen = sys.argv[1:] or list(PARTS)
    for name in chosen:
        (PARTS | {"million_here": million_here})[name]()
