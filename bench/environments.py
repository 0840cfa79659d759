"""Steps per second of the environments on one core. Usage: make bench, or python bench/environments.py"""

from __future__ import annotations

import gymnasium as gym

import mnm  # noqa: F401 (makes the ids known)
from measure import report, seconds

STEPS = 400
LEAST = {
    "mnm/DClawPoseRandom-v0": 3_000,
    "mnm/DClawTurnRandom-v0": 1_000,
    "mnm/DClawScrewFixed-v0": 1_000,
    "mnm/DClawScrewRandom-v0": 1_000,
    "mnm/DrawerOpen-v0": None,
}


def play(env: gym.Env) -> None:
    """Random actions, resets included."""
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(STEPS):
        *_, truncated, _ = env.step(env.action_space.sample())
        if truncated:
            env.reset()


if __name__ == "__main__":
    for task, least in LEAST.items():
        env = gym.make(task, disable_env_checker=True)
        taken, _ = seconds(lambda env=env: play(env), 5)  # type: ignore[misc]
        target = (f"at least {least}", STEPS / taken >= least) if least is not None else ()
        report(f"{task}: steps/s, random actions", f"{STEPS / taken:.0f}", *target)
