"""Find where a learned model is wrong, and see who knows it: the ensemble's disagreement, the classifier's log p/q.

A model of the pendulum is learned from random torques, which hardly ever make it fast. Then full torque swings it up,
and every real transition is compared with what the model says of it.
"""

from __future__ import annotations

import argparse
from itertools import pairwise

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

import mnm

TASK = "Pendulum-v1"
SPEEDS = ("0 to 2", "2 to 4", "4 to 6", "6 to 8", "8")
EDGES = (0.0, 2.0, 4.0, 6.0, 7.999, np.inf)

Floats = NDArray[np.float32]


def swings(episodes: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """Real transitions of a pendulum that full torque drives the way it goes: observations, actions, what followed."""
    env = gym.make(TASK)
    rows = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed + episode)
        for _ in range(100):
            torque = np.array([2.0 if observation[2] >= 0 else -2.0], np.float32)
            after, *_ = env.step(torque)
            rows.append((observation, torque, after))
            observation = after
    env.close()
    observations, torques, afters = map(np.stack, zip(*rows, strict=True))
    return observations, torques, afters


def main() -> None:
    """Learn, compare, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000, help="real steps, all with random torques")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    # After `learning_starts` steps come the model's own 3,000 updates; the policy has learned nothing yet.
    agent = mnm.MnMApprox(TASK, seed=args.seed, learning_starts=1_000)
    agent.learn(args.steps, evaluate_every=args.steps, evaluation_episodes=1)
    seen = np.abs(np.asarray(agent.replay.storage.observations[: agent.steps, 2]))

    observations, torques, afters = swings(10, args.seed)
    predicted = agent.model.predict(observations, torques)
    errors = np.linalg.norm(predicted.mean.mean(axis=0) - afters, axis=1)
    disagreement = np.linalg.norm(predicted.disagreement, axis=1)
    ratios = np.mean([agent.log_ratio(observations, torques, afters, seed=draw) for draw in range(8)], axis=0)

    print("speed      learned from   asked about   error   disagreement   log p/q of what happened")
    speeds = np.abs(observations[:, 2])
    for name, (low, high) in zip(SPEEDS, pairwise(EDGES), strict=True):
        rows = (low <= speeds) & (speeds < high)
        known = int(((low <= seen) & (seen < high)).sum())
        print(
            f"{name:<6} {known:>15} {rows.sum():>13} {errors[rows].mean():>7.3f}"
            f" {disagreement[rows].mean():>14.3f} {ratios[rows].mean():>26.1f}"
        )
    print(
        f"rank correlation of the error with the disagreement {spearmanr(errors, disagreement).statistic:.2f},", end=""
    )
    print(f" with log p/q {spearmanr(errors, ratios).statistic:.2f}")
    worst = int(errors.argmax())
    print(
        f"worst: at {observations[worst].round(2)} torque {torques[worst].round(2)} leads to {afters[worst].round(2)};"
    )
    print(f"       the members say {' '.join(str(mean.round(2)) for mean in predicted.mean[:, worst])}")


if __name__ == "__main__":
    main()
