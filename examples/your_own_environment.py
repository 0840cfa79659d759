"""Train on your own environment, a sled on ice; compare with random actions and with a controller written by hand."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import mnm

Floats = NDArray[np.float32]


class Sled(gym.Env[Floats, Floats]):
    """Push a sled until it rests at 0. The ice ends at -2 and 2, and with it the episode."""

    observation_space = gym.spaces.Box(-4.0, 4.0, (2,))  # position, velocity
    action_space = gym.spaces.Box(-5.0, 5.0, (1,))  # force; any finite bounds will do

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Floats, dict]:
        """Start somewhere, at rest."""
        super().reset(seed=seed)  # all randomness comes from self.np_random: a run can then be repeated
        self.state = np.array([self.np_random.uniform(-1.5, 1.5), 0.0], np.float32)
        return self.state.copy(), {}

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict]:
        """A tenth of a second."""
        position, velocity = self.state
        velocity += 0.1 * action[0]
        position += 0.1 * velocity
        self.state = np.array([position, velocity], np.float32).clip(-4, 4)
        fell = bool(abs(position) > 2)
        reward = float(np.exp(-(position**2)))  # at most 1; who falls earns nothing more
        # The clock is not ours: `terminated` says that nothing follows, and the time limit below says when to stop.
        return self.state.copy(), reward, fell, False, {}


gym.register("Sled-v0", entry_point=f"{__name__}:Sled", max_episode_steps=100)


def mean_return(policy: Callable[[Floats], Floats], episodes: int = 20) -> float:
    """Of a policy over episodes with the same starts each time."""
    env, total = gym.make("Sled-v0"), 0.0
    for seed in range(episodes):
        (observation, _), over = env.reset(seed=seed), False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, over = total + float(reward), terminated or truncated
    return total / episodes


def main() -> None:
    """Train, and compare with what is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=800, help="real steps; the first 300 have random actions")
    steps = parser.parse_args().steps

    random = Sled.action_space
    random.seed(0)
    print(f"random actions    {mean_return(lambda _: random.sample()):6.1f}")
    print(f"written by hand   {mean_return(lambda state: np.clip(-4 * state.sum(keepdims=True), -5, 5)):6.1f}")
    # The registered id brings the time limit with it; the class alone would have none.
    agent = mnm.MnMApprox("Sled-v0", learning_starts=300, warmup_updates=500).learn(steps)
    print(f"MnM-approx        {mean_return(agent.predict):6.1f}   after {steps} real steps")


if __name__ == "__main__":
    main()
