"""Train MnM-approx to swing a pendulum up, evaluate it, and write a GIF of the final policy.

1,500 real steps reach a return of about -150; an untrained policy gets about -1,100.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio.v3 as iio
import numpy as np
from numpy.typing import NDArray

import mnm

TASK = "Pendulum-v1"


def video(agent: mnm.Agent, seed: int) -> NDArray[np.uint8]:
    """One episode as pictures, [frames, height, width, colours]."""
    env = gym.make(TASK, render_mode="rgb_array")
    observation, _ = env.reset(seed=seed)
    frames: list[Any] = [env.render()]
    over = False
    while not over:
        observation, _, terminated, truncated, _ = env.step(agent.predict(observation))
        frames.append(env.render())
        over = terminated or truncated
    env.close()
    return np.stack(frames)


def main() -> None:
    """Train, evaluate, video."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_500, help="real steps; the first 1,000 have random actions")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("pendulum.gif"), help="the GIF")
    args = parser.parse_args()

    def show(seed: int, step: int, row: Mapping[str, float]) -> None:
        print(f"step {step:>5}: return {row['return']:8.1f}", flush=True)

    agent = mnm.MnMApprox(TASK, seed=args.seed).learn(args.steps, evaluate_every=250, on_eval=show)

    # The evaluations above start where the run's seed says; these start elsewhere.
    returns = [episode.total for episode in agent.evaluate(0, 20, seed=args.seed + 1)]
    print(f"20 new episodes: return {np.mean(returns):.1f} on average, {min(returns):.1f} to {max(returns):.1f}")

    iio.imwrite(args.out, video(agent, args.seed), duration=50, loop=0)
    print(f"the policy's episode: {args.out}")


if __name__ == "__main__":
    main()
