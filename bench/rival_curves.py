"""Learning curves of SBX's agents, in an environment of their own: one CSV with a row for each evaluation.

    .venv-bench/bin/python bench/rival_curves.py sac HalfCheetah-v4 0 --updates 4 --out docs/results/rivals

Agents: sac (SBX's defaults but for the updates a step), crossq (its defaults: one update a step), droq (SBX's recipe:
dropout and LayerNorm in the critics, 20 updates of the critics a step, one of the policy). Each is evaluated as ours:
the deterministic policy, as many episodes, outside of the training's steps and not counted in its minutes.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

COLUMNS = ("agent", "env", "seed", "updates_per_step", "step", "return", "minutes")


def make_agent(name: str, env: gym.Env, seed: int, updates: int) -> Any:
    """An agent of SBX."""
    from sbx import SAC, CrossQ

    if name == "sac":
        return SAC("MlpPolicy", env, seed=seed, gradient_steps=updates)
    if name == "crossq":
        return CrossQ("MlpPolicy", env, seed=seed, gradient_steps=updates)
    critics = {"dropout_rate": 0.01, "layer_norm": True}
    return SAC("MlpPolicy", env, seed=seed, gradient_steps=updates, policy_delay=updates, policy_kwargs=critics)


def evaluate(agent: Any, env: gym.Env, episodes: int) -> float:
    """The mean return of the deterministic policy, always from the same starts."""
    returns = []
    for number in range(episodes):
        observation, _ = env.reset(seed=10_000 + number)
        total, over = 0.0, False
        while not over:
            action, _ = agent.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def main() -> None:
    """Train, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent", choices=("sac", "crossq", "droq"))
    parser.add_argument("env")
    parser.add_argument("seed", type=int)
    parser.add_argument("--updates", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--evaluate-every", type=int, default=1_000)
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    agent = make_agent(options.agent, gym.make(options.env), options.seed, options.updates)
    evaluation = gym.make(options.env)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.env}-{options.agent}-{options.updates}-seed{options.seed}.csv"
    seconds = 0.0
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for step in range(options.evaluate_every, options.steps + 1, options.evaluate_every):
            start = time.monotonic()
            agent.learn(options.evaluate_every, reset_num_timesteps=False)
            seconds += time.monotonic() - start
            mean = evaluate(agent, evaluation, options.episodes)
            who = (options.agent, options.env, options.seed, options.updates)
            writer.writerow([*who, step, f"{mean:.4f}", f"{seconds / 60:.2f}"])
            file.flush()
            print(step, f"{mean:.1f}", f"{seconds / 60:.1f} min", flush=True)


if __name__ == "__main__":
    main()
