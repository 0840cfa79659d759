"""An offline agent of d3rlpy on a data set of ours, played in the real task: one line of JSON, for bench/offline.py.

    .venv-bench/bin/python bench/offline_rivals.py TD3+BC replay-seed0.npz Pendulum-v1 --updates 5000 --starts 1 2 3

The settings are d3rlpy's defaults. Actions are scaled to [-1, 1] by their bounds, since d3rlpy's policies have no
other, and TD3+BC gets normalized observations, which its paper makes part of it.
"""

from __future__ import annotations

import argparse
import json
import warnings
from logging import WARNING
from pathlib import Path
from typing import Any

import numpy as np
import structlog
import torch
from numpy.typing import NDArray

with warnings.catch_warnings():  # of gym, which d3rlpy imports and which is not used here
    warnings.simplefilter("ignore")
    import d3rlpy
    import gymnasium as gym

AGENTS = {"TD3+BC": d3rlpy.algos.TD3PlusBCConfig, "IQL": d3rlpy.algos.IQLConfig}


def episodes(arrays: dict[str, NDArray]) -> list[Any]:
    """The rows as d3rlpy's episodes, each transition once.

    An episode goes on where a row begins with the observation that the row before it came to. d3rlpy has no next
    observations: where an episode did not end by itself, a row more holds the last, and is no transition.
    """
    observations, following = (arrays[name].astype(np.float32) for name in ("observations", "next_observations"))
    ended = arrays["terminations"].astype(bool)
    broken = ended[:-1] | (observations[1:] != following[:-1]).any(axis=1)
    found = []
    for rows in np.split(np.arange(len(ended)), np.flatnonzero(broken) + 1):
        over = bool(ended[rows[-1]])
        columns = [observations[rows], arrays["actions"][rows], arrays["rewards"][rows, None]]
        if not over:
            last = [following[rows[-1:]], np.zeros_like(columns[1][:1]), np.zeros_like(columns[2][:1])]
            columns = [np.concatenate(pair) for pair in zip(columns, last, strict=True)]
        found.append(d3rlpy.dataset.Episode(*(column.astype(np.float32) for column in columns), over))
    return found


def trained(name: str, arrays: dict[str, NDArray], seed: int, updates: int) -> Any:
    """An agent after so many updates."""
    d3rlpy.seed(seed)
    data = d3rlpy.dataset.ReplayBuffer(d3rlpy.dataset.InfiniteBuffer(), episodes=episodes(arrays))
    if data.transition_count != len(arrays["rewards"]):
        raise SystemExit(f"d3rlpy has {data.transition_count} transitions of {len(arrays['rewards'])}")
    low, high = (arrays[bound].astype(np.float32) for bound in ("action_low", "action_high"))
    scalers: dict[str, Any] = {"action_scaler": d3rlpy.preprocessing.MinMaxActionScaler(low, high)}
    if name == "TD3+BC":
        scalers["observation_scaler"] = d3rlpy.preprocessing.StandardObservationScaler()
    agent = AGENTS[name](**scalers).create(device="cpu")
    agent.fit(
        data,
        updates,
        n_steps_per_epoch=updates,
        show_progress=False,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )
    return agent


def value(agent: Any, observation: NDArray) -> float:
    """Q at the deterministic action."""
    rows = observation[None].astype(np.float32)
    return float(agent.predict_value(rows, agent.predict(rows))[0])


def played(agent: Any, env: gym.Env, start: int, discount: float) -> tuple[float, float, float]:
    """An episode's return, Q at its start, and the discounted return; if it was cut off, Q stands for the rest."""
    observation, _ = env.reset(seed=start)
    promised, rewards, over, terminated = value(agent, observation), [], False, False
    while not over:
        action = agent.predict(observation[None].astype(np.float32))[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        rewards.append(float(reward))
        over = terminated or truncated
    rest = 0.0 if terminated else value(agent, observation)
    obtained = sum(discount**step * reward for step, reward in enumerate(rewards)) + discount ** len(rewards) * rest
    return sum(rewards), promised, obtained


def main() -> None:
    """Train, play, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agent", choices=list(AGENTS))
    parser.add_argument("data", type=Path)
    parser.add_argument("env")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--starts", type=int, nargs="+", default=list(range(20)), help="the seeds of the episodes")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(WARNING))
    torch.set_num_threads(1)  # small networks: more threads wait for one another
    with np.load(options.data) as stored:
        arrays = {name: stored[name] for name in stored.files}
    agent = trained(options.agent, arrays, options.seed, options.updates)
    env = gym.make(options.env)
    results = [played(agent, env, start, agent.config.gamma) for start in options.starts]
    means = np.mean(results, axis=0)
    print(json.dumps(dict(zip(("return", "q_at_start", "discounted_return"), means.tolist(), strict=True))))


if __name__ == "__main__":
    main()
