"""Draw a grid as text, solve it exactly, and print the ladder of lower bounds on the log of the expected return.

The map below is yours to change; a file with another one can be named instead. docs/solve.md describes the format.
"""

from __future__ import annotations

import argparse
from math import exp
from pathlib import Path

from mnm.tabular import Grid, JointStep, joint_iteration, joint_iteration_tight, ladder, optimal_return, parse_map
from mnm.tabular.grids import ARROWS

MAP = """
noise = 0.3        // this share of the actions is replaced by a random one
discount = 0.9
reward = 0.1       // MnM takes the logarithm of the reward, so every cell must pay something
G = 10
a = 2              // a smaller reward, close by

S...#....
.##.#.##.
....#..G.
.a.....#.
"""


def arrows(grid: Grid, step: JointStep) -> list[str]:
    """The policy, a line for each row of the map."""
    rows = [["#"] * len(row) for row in grid.walls]
    for (row, column), action in zip(grid.cells, step.policy.argmax(axis=1), strict=True):
        rows[row][column] = "G" if (row, column) in grid.goals else ARROWS[action]
    return [" ".join(row) for row in rows]


def main() -> None:
    """Solve the grid twice: for MnM's bound and for the tight one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("map", nargs="?", type=Path, help="a text file with a map (default: the one in this script)")
    path = parser.parse_args().map
    grid = parse_map(path.read_text() if path else MAP)
    mdp = grid.mdp

    # Both choose policy and model together. MnM's best model is q ~ p exp(V), the tight bound's is q ~ p V.
    mnm = joint_iteration(mdp, ratio_weight=mdp.discount)[-1]
    tight = joint_iteration_tight(mdp)[-1]
    print(f"{mdp.num_states} cells; the policy that is best for MnM's bound, and for the tight one:")
    for left, right in zip(arrows(grid, mnm), arrows(grid, tight), strict=True):
        print(f"  {left}      {right}")

    at_mnm, at_tight = (ladder(mdp, step.policy, step.model) for step in (mnm, tight))
    print(f"\n{'lower bounds, in nats':<24}{'MnM':>12}{'tight':>12}")
    for name in at_mnm:
        print(f"{name:<24}{at_mnm[name]:>12.6f}{at_tight[name]:>12.6f}")

    # A lower bound on the log of the return is a promise: the real return is at least its exponential.
    promised, earned = exp(at_mnm["sharper bound"]), exp(at_mnm["log expected return"])
    best = optimal_return(mdp)
    print(f"\nMnM's policy is promised a return of {promised:.3f} and earns {earned:.3f}; the best is {best:.3f}.")
    gap = abs(at_tight["log expected return"] - at_tight["tight bound"])
    print(f"At q ~ p V the last bound meets the log return (gap {gap:.0e}), so that its best policy is the best one:")
    print(f"it earns {exp(at_tight['log expected return']):.3f}.")


if __name__ == "__main__":
    main()
