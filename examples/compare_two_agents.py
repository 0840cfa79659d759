"""Compare MnM-approx with SAC over several seeds, and say what the seeds can tell: a difference, or nothing.

The statistics are those of `mnm compare`: an interval of the interquartile mean, the probability that a run of one
agent beats a run of the other, and a permutation test on the means.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

import mnm
from mnm.analysis.statistics import (
    SIGNIFICANT,
    bootstrap_interval,
    interquartile_mean,
    is_significant,
    permutation_p_value,
    probability_of_improvement,
    smallest_possible_p,
)

TASK = "Pendulum-v1"


def scores(name: str, seeds: int, steps: int) -> NDArray[np.float64]:
    """The final evaluation's mean return, by seed."""
    # By default there are 1,000 random steps and then 3,000 updates of the model alone: too long for an example.
    settings = {"learning_starts": 300} | ({"warmup_updates": 500} if name == "MnMApprox" else {})
    found = []
    for seed in range(seeds):
        agent = getattr(mnm, name)(TASK, seed=seed, **settings).learn(steps, evaluate_every=steps)
        found.append(np.mean(agent.evaluated[0]))
        print(f"{name}, seed {seed}: {found[-1]:.1f}", flush=True)
    return np.array(found)


def main() -> None:
    """Train both agents with every seed, then judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=700, help="real steps of every run")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each agent, at least 2")
    args = parser.parse_args()

    ours, baseline = scores("MnMApprox", args.seeds, args.steps), scores("SAC", args.seeds, args.steps)
    print()
    for name, values in (("MnM-approx", ours), ("SAC", baseline)):
        low, high = bootstrap_interval([values], interquartile_mean)
        print(f"{name:<12} interquartile mean {float(interquartile_mean(values)):8.1f} [{low:.1f}, {high:.1f}]")
    print(f"probability that MnM-approx beats SAC: {float(probability_of_improvement(ours, baseline)):.2f}")

    # One-sided, so one test for each direction. Both are exact: they try every way to shuffle the seeds.
    better, worse = permutation_p_value(ours, baseline), permutation_p_value(baseline, ours)
    print(f"p that MnM-approx is above SAC by chance: {better:.3f}; below: {worse:.3f}")
    if is_significant(better):
        print("MnM-approx is better than SAC here.")
    elif is_significant(worse):
        print("SAC is better than MnM-approx here.")
    else:
        least = smallest_possible_p(args.seeds, args.seeds)
        print(f"Cannot tell: no p is at most {SIGNIFICANT}. With {args.seeds} seeds each the least is {least:.3f}.")


if __name__ == "__main__":
    main()
