"""Learning from data alone, with and without pessimism, on the same data: a table, and a CSV with every seed.

    python bench/offline.py --env HalfCheetah-v4 --steps 10000 --seeds 0 1 2 --updates 20000 --out results/offline

For each seed SAC is trained with real steps. `replay` is all that it has seen, `medium` episodes of its policy after
half of its steps, a tenth of the actions random. From each, with no real step more: MnM-approx with the classifier's
term and without it, MBPO and SAC, which have nothing that holds them back, MBPO with the penalty of the ensemble's
disagreement (MOPO's; the example cautious_mbpo), and behaviour cloning. All with the settings that they have anyway:
none was chosen by these returns.

    python bench/offline.py --rivals .venv-bench/bin/python

adds TD3+BC and IQL of d3rlpy (bench/offline_rivals.py), on the same data, played from the same starts. That Python is
one that has d3rlpy; `make .venv-bench/.installed` builds it.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

import mnm
from mnm.agents import ALGORITHMS, find_algorithm, sac
from mnm.agents.actor_critic import Actor, ActorCriticConfig, adam_step, moved_average
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import Metrics
from mnm.api import agent_class
from mnm.diagnostics import value_diagnostics
from mnm.envs.adapter import episode_seed, make
from mnm.networks import TanhGaussianPolicy
from mnm.replay import Replay
from mnm.training.export import policy_arrays, replay_arrays, write_file

sys.path.append(str(Path(__file__).parents[1] / "examples"))
COLUMNS = ("data", "agent", "seed", "rows", "updates", "return", "q_at_start", "discounted_return", "data_return")
NOISE = 0.1
"""The share of random actions in a medium policy's data."""
PLAYED = 20
"""Episodes that an agent is played at the end, from starts that no training had."""
RIVALS = ("TD3+BC", "IQL")
"""Of d3rlpy."""


def clone(config: ActorCriticConfig, state: sac.SACState, replay: Replay, _: Array) -> tuple[sac.SACState, Metrics]:
    """One step of the policy towards the data's actions; nothing else is learned."""
    key, batch_key = jax.random.split(state.key)
    batch, parts = replay.sample(batch_key, config.batch_size), state.actor_critic

    def objective(policy: TanhGaussianPolicy) -> Float[Array, ""]:
        return ((Actor(parts.observations, policy).mode(batch.observations) - batch.actions) ** 2).mean()

    loss, gradient = jax.value_and_grad(objective)(parts.policy)
    policy, optimiser = adam_step(config.learning_rate, parts.policy, parts.policy_optimiser, gradient)
    averaged = moved_average(config.policy_average_rate, parts.averaged_policy, policy, optimiser)
    moved = eqx.tree_at(
        lambda a: (a.policy, a.averaged_policy, a.policy_optimiser), parts, (policy, averaged, optimiser)
    )
    return sac.SACState(moved, key), {"actor_loss": loss}


CLONING = Algorithm("cloning", "behaviour cloning", sac.PRESETS, sac.init, sac.observe, clone)
WITHOUT = {"ratio_weight": 0.0, "policy_negatives": 0.0, "calibrate": False}


def contenders() -> dict[str, tuple[Algorithm, Mapping[str, Any]]]:
    """What is compared, by the name in the table."""
    approx = ALGORITHMS["mnm_approx"]
    return {
        "MnM-approx": (approx, {}),
        "MnM-approx, without the term": (approx, WITHOUT),
        "MBPO": (ALGORITHMS["mbpo"], {}),
        "MBPO, disagreement": (find_algorithm("cautious_mbpo:cautious"), {}),
        "SAC": (ALGORITHMS["sac"], {}),
        "cloning": (CLONING, {}),
    }


def make_data(folder: Path, env: str, scale: str, steps: int, seed: int) -> dict[str, Path]:
    """The data sets of a seed, of so many rows or more; those that are there are kept."""
    paths = {name: folder / f"{name}-seed{seed}.npz" for name in ("replay", "medium")}
    if all(path.exists() for path in paths.values()):
        return paths
    agent = mnm.SAC(env, seed=seed, scale=scale).learn(steps // 2, evaluate_every=steps)
    episodes = -(-steps // agent.adapter.time_limit)
    write_file(policy_arrays(agent, episodes, seed, noise=NOISE), paths["medium"], agent)
    agent.learn(steps - steps // 2, evaluate_every=steps)
    write_file(replay_arrays(agent), paths["replay"], agent)
    agent.close()
    return paths


def data_return(path: Path, limit: int) -> float:
    """The data's own return, for as many steps as an episode has."""
    with np.load(path) as arrays:
        return float(arrays["rewards"].mean()) * limit


def measured(data: str, path: Path, agent: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One row of the table: an agent trained on one data set, then played."""
    algorithm, settings = contenders()[agent]
    kind = agent_class(algorithm)
    learner = kind.from_dataset(path, options.env, seed=seed, scale=options.scale, **settings)
    learner.learn(options.updates, evaluate_every=options.updates)
    played = learner.evaluate(0, PLAYED, stream="test")
    values = value_diagnostics(algorithm, learner.config, learner.agent(0).actor_critic, played)
    limit = learner.adapter.time_limit
    row = {
        "data": data,
        "agent": agent,
        "seed": seed,
        "rows": int(learner.replay.size),
        "updates": options.updates,
        "return": float(np.mean([episode.total for episode in played])),
        "data_return": data_return(path, limit),
        **{name: values[name] for name in ("q_at_start", "discounted_return")},
    }
    learner.close()
    return row


def measured_rival(data: str, path: Path, agent: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """The same of an agent of d3rlpy, in a process of its own."""
    starts = [str(episode_seed(seed, "test", number)) for number in range(PLAYED)]
    script = Path(__file__).with_name("offline_rivals.py")
    command = [options.rivals, script, agent, path, options.env, "--seed", str(seed), "--updates", str(options.updates)]
    said = subprocess.run([*command, "--starts", *starts], capture_output=True, text=True)
    if said.returncode:
        raise SystemExit(f"{agent} on {path} failed: {said.stderr.strip()[-500:]}")
    environment = make(options.env)
    limit = environment.time_limit
    environment.close()
    with np.load(path) as arrays:
        rows = len(arrays["rewards"])
    about = {"data": data, "agent": agent, "seed": seed, "rows": rows, "updates": options.updates}
    return about | json.loads(said.stdout.splitlines()[-1]) | {"data_return": data_return(path, limit)}


def table(rows: list[dict[str, Any]]) -> str:
    """Means over the seeds, with the lowest and the highest."""
    lines = [
        f"{'data':8} {'agent':30} {'return':>8} {'lowest':>8} {'highest':>8} {'Q':>8} {'obtained':>9} {'Q - it':>8}"
    ]
    for data, agent in dict.fromkeys((row["data"], row["agent"]) for row in rows):
        own = [row for row in rows if (row["data"], row["agent"]) == (data, agent)]
        returns, values, obtained = (
            np.array([row[name] for row in own]) for name in ("return", "q_at_start", "discounted_return")
        )
        said = f"{data:8} {agent:30} {returns.mean():8.0f} {returns.min():8.0f} {returns.max():8.0f}"
        if agent != "cloning":  # it has no Q
            said += f" {values.mean():8.0f} {obtained.mean():8.0f} {(values - obtained).mean():8.0f}"
        lines.append(said)
    for data in dict.fromkeys(row["data"] for row in rows):
        themselves = {row["seed"]: row["data_return"] for row in rows if row["data"] == data}
        lines.append(f"{data:8} {'the data themselves':30} {np.mean(list(themselves.values())):8.0f}")
    return "\n".join(lines)


def main() -> None:
    """Every agent on every data set of every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--steps", type=int, default=3_000, help="real steps of the agents that make the data")
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--scale", default="cpu", choices=["cpu", "quick"])
    parser.add_argument("--agents", nargs="*", default=list(contenders()))
    parser.add_argument("--rivals", type=Path, help="a Python that has d3rlpy: its TD3+BC and IQL take part")
    parser.add_argument("--out", type=Path, default=Path("results/offline"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    jobs = [(agent, measured) for agent in options.agents]
    jobs += [(agent, measured_rival) for agent in RIVALS if options.rivals is not None]
    rows: list[dict[str, Any]] = []
    with (options.out / "offline.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for seed in options.seeds:
            for data, path in make_data(options.out, options.env, options.scale, options.steps, seed).items():
                for agent, measure in jobs:
                    rows.append(measure(data, path, agent, seed, options))
                    writer.writerow(rows[-1])
                    file.flush()
                    print(f"{data}, seed {seed}, {agent}: {rows[-1]['return']:.0f}", file=sys.stderr, flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
