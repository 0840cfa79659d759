"""Two runs of one thread each, side by side, against one run of two threads. Usage: python bench/threads.py

For each agent at the cpu scale, on HalfCheetah's sizes: updates per second of all that runs, three rounds in turns.
"""

from __future__ import annotations

import subprocess
import sys
import time

import jax

from deep import ACTION_DIM, LATE, OBSERVATION_DIM, first_rows, full_replay, observed
from measure import report
from mnm.agents import ALGORITHMS
from mnm.sweeps.pools import cores
from mnm.sweeps.trials import one_thread_environment
from mnm.training.programs import new_agents, update_many

ROUNDS, STORED, SECONDS = 3, 10_000, 15.0


def updates_per_second(name: str) -> float:
    """Of one agent in this process."""
    algorithm = ALGORITHMS[name]
    config = algorithm.presets["cpu"]
    state = new_agents(algorithm, config, OBSERVATION_DIM, ACTION_DIM, jax.random.key(0))
    replay = full_replay(STORED, jax.random.key(1))
    state = observed(algorithm, config, state, first_rows(replay))
    done, began = -1, 0.0
    while done < 0 or time.perf_counter() - began < SECONDS:
        count = config.updates_per_step
        state, metrics = update_many(algorithm.update, config, state, replay, LATE, count, many=False)
        jax.block_until_ready((state, metrics))  # type: ignore[no-untyped-call]
        if done < 0:  # it has been compiled
            done, began = 0, time.perf_counter()
        else:
            done += count
    return done / (time.perf_counter() - began)


def total(name: str, processes: int) -> float:
    """Updates per second of so many processes, each with its share of two cores."""
    two = cores()[:2]
    env = one_thread_environment() if processes == 2 else None
    started = []
    for number in range(processes):
        own = two if processes == 1 else two[number : number + 1]
        command = ["taskset", "-c", ",".join(map(str, own)), sys.executable, __file__, name]
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    return sum(float(process.communicate()[0]) for process in started)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(updates_per_second(sys.argv[1]))
    else:
        for agent in ("mnm_approx", "mbpo", "sac"):
            rounds = [(total(agent, 2), total(agent, 1)) for _ in range(ROUNDS)]
            side_by_side, two_threads = (max(rates) for rates in zip(*rounds, strict=True))
            report(
                f"{agent}: two runs of one thread / one run of two",
                f"{side_by_side:.0f} / {two_threads:.0f} updates a second = {side_by_side / two_threads:.2f}",
            )
