"""Learning curves of other libraries' agents, in an environment of their own: one CSV with a row for each evaluation.

    .venv-bench/bin/python bench/rival_curves.py sac HalfCheetah-v4 0 --updates 10 --out docs/results/rivals

Agents: SBX's sac (its defaults but for the updates a step), crossq (its defaults: one update a step) and droq (SBX's
recipe: dropout and LayerNorm in the critics, 20 updates of the critics a step, one of the policy); mbrl-lib's mbpo (its
settings for the task but for the updates a step). Each is evaluated as ours: the deterministic policy, as many
episodes, outside of the training's steps and not counted in its minutes, which are the processor's: on one thread, the
minutes of a core that nothing else shares.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
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


Report = Callable[[int, float, float], None]
"""(real steps so far, mean return of the evaluation, the processor's seconds of training so far)"""


def sbx_curve(options: argparse.Namespace, report: Report) -> None:
    """Train an agent of SBX."""
    agent = make_agent(options.agent, gym.make(options.env), options.seed, options.updates)
    evaluation, seconds = gym.make(options.env), 0.0
    for step in range(options.evaluate_every, options.steps + 1, options.evaluate_every):
        start = time.process_time()
        agent.learn(options.evaluate_every, reset_num_timesteps=False)
        seconds += time.process_time() - start
        report(step, evaluate(agent, evaluation, options.episodes), seconds)


class Evaluation(gym.Wrapper):
    """mbrl-lib's test environment, the only place where its loop lets others in: it reports after the last episode."""

    def __init__(self, env: gym.Env, episodes: int, first: int, every: int, report: Report) -> None:
        super().__init__(env)
        self.episodes, self.next, self.every, self.report = episodes, first + every, every, report
        self.returns: list[float] = []
        self.training, self.resumed = 0.0, time.process_time()

    def reset(self, **_: Any) -> Any:
        """Begin an episode, always from the same starts; the first of an evaluation stops the watch."""
        if not self.returns:
            self.training += time.process_time() - self.resumed
        self.returns.append(0.0)
        return self.env.reset(seed=10_000 + len(self.returns) - 1)

    def step(self, action: Any) -> Any:
        """One step; after the last one of the last episode training goes on."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.returns[-1] += float(reward)
        if (terminated or truncated) and len(self.returns) == self.episodes:
            self.report(self.next, float(np.mean(self.returns)), self.training)
            self.next, self.returns, self.resumed = self.next + self.every, [], time.process_time()
        return observation, reward, terminated, truncated, info


def mbrl_curve(options: argparse.Namespace, report: Report) -> None:
    """Train mbrl-lib's MBPO, by its settings for the task but for the updates a step."""
    import mbrl
    import torch
    from mbrl.algorithms import mbpo
    from mbrl.env.termination_fns import hopper, no_termination, walker2d
    from omegaconf import OmegaConf

    torch.manual_seed(options.seed)
    name, ends = {
        "HalfCheetah": ("halfcheetah", no_termination),
        "Hopper": ("hopper", hopper),
        "Walker2d": ("walker", walker2d),
    }[options.env.partition("-")[0]]
    folder = Path(mbrl.__file__).parent / "examples/conf"
    files = {"algorithm": "mbpo", "overrides": f"mbpo_{name}", "dynamics_model": "gaussian_mlp_ensemble"}
    parts = {part: OmegaConf.load(folder / part / f"{file}.yaml") for part, file in files.items()}
    config = OmegaConf.create({"seed": options.seed, "device": "cpu", "log_frequency_agent": 1000, **parts})
    before = config.algorithm.initial_exploration_steps
    config.algorithm.num_eval_episodes = options.episodes
    config.overrides.num_steps, config.overrides.epoch_length = options.steps - before, options.evaluate_every
    config.overrides.num_sac_updates_per_step = options.updates
    env = gym.make(options.env)
    env.reset(seed=options.seed)
    # mbrl-lib's file names gym.env.Box, which no gym has. All actions of these tasks have the same range.
    space: Any = env.action_space
    ranges = {"low": float(space.low.min()), "high": float(space.high.max()), "shape": list(space.shape)}
    config.algorithm.agent.action_space = {"_target_": "gymnasium.spaces.Box", **ranges}
    config.dynamics_model["_recursive_"] = False  # it makes its activations from their names by itself
    evaluation = Evaluation(gym.make(options.env), options.episodes, before, options.evaluate_every, report)
    with TemporaryDirectory() as work:
        mbpo.train(env, evaluation, ends, config, silent=True, work_dir=work)


def main() -> None:
    """Train, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent", choices=("sac", "crossq", "droq", "mbpo"))
    parser.add_argument("env")
    parser.add_argument("seed", type=int)
    parser.add_argument("--updates", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--evaluate-every", type=int, default=1_000)
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    curve = mbrl_curve if options.agent == "mbpo" else sbx_curve
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.env}-{options.agent}-{options.updates}-seed{options.seed}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)

        def report(step: int, mean: float, seconds: float) -> None:
            who = (options.agent, options.env, options.seed, options.updates)
            writer.writerow([*who, step, f"{mean:.4f}", f"{seconds / 60:.2f}"])
            file.flush()
            print(step, f"{mean:.1f}", f"{seconds / 60:.1f} min", flush=True)

        curve(options, report)


if __name__ == "__main__":
    main()
