"""Other libraries' updates, timed in an environment of their own: for each name on stdin, seconds per update on stdout.

Names: sbx (SBX's SAC) and mbrl (mbrl-lib's ensemble update plus its SAC update). Each samples its own batches, as in
its training loop; the first round of a name builds and warms up and is not timed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np

OBSERVATION_DIM, ACTION_DIM, BATCH, HIDDEN = 17, 6, 256, 256
STORED, UPDATES, THREADS = 50_000, 20, 2


class Spaces(gymnasium.Env[Any, Any]):
    """The sizes of HalfCheetah; never stepped."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION_DIM,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTION_DIM,))


def transitions() -> tuple[Any, ...]:
    """Random observations, actions, next observations and rewards."""
    rng = np.random.default_rng(0)
    observations, next_observations = rng.normal(size=(2, STORED, OBSERVATION_DIM)).astype(np.float32)
    actions = rng.uniform(-1, 1, (STORED, ACTION_DIM)).astype(np.float32)
    return observations, actions, next_observations, rng.normal(size=STORED).astype(np.float32)


def sbx() -> Callable[[], Any]:
    """SBX's compiled training loop, with LayerNorm in the critics: one call makes all updates."""
    from sbx import SAC
    from stable_baselines3.common.logger import Logger

    networks = {"net_arch": [HIDDEN, HIDDEN], "layer_norm": True}
    model = SAC("MlpPolicy", Spaces(), batch_size=BATCH, buffer_size=STORED, policy_kwargs=networks)
    model.set_logger(Logger(folder=None, output_formats=[]))
    observations, actions, next_observations, rewards = transitions()
    buffer = model.replay_buffer
    buffer.observations[:, 0], buffer.next_observations[:, 0] = observations, next_observations
    buffer.actions[:, 0], buffer.rewards[:, 0] = actions, rewards
    buffer.pos, buffer.full = 0, True
    return lambda: model.train(gradient_steps=UPDATES, batch_size=BATCH)


def mbrl() -> Callable[[], Any]:
    """mbrl-lib's MBPO: bootstrapped batches through its model trainer, then as many updates of its SAC."""
    import torch
    from mbrl.models import GaussianMLP, ModelTrainer, OneDTransitionRewardModel
    from mbrl.third_party.pytorch_sac_pranz24.sac import SAC
    from mbrl.util.replay_buffer import BootstrapIterator, ReplayBuffer

    torch.set_num_threads(THREADS)
    rng = np.random.default_rng(0)
    buffer = ReplayBuffer(STORED, (OBSERVATION_DIM,), (ACTION_DIM,), rng=rng)
    nowhere = np.zeros(STORED, dtype=bool)
    buffer.add_batch(*transitions(), nowhere, nowhere)
    ensemble = GaussianMLP(
        OBSERVATION_DIM + ACTION_DIM,
        OBSERVATION_DIM + 1,
        "cpu",
        num_layers=4,
        ensemble_size=5,
        hid_size=HIDDEN,
        propagation_method="random_model",
    )
    model = OneDTransitionRewardModel(ensemble, normalize=True)
    model.update_normalizer(buffer.get_all())
    trainer = ModelTrainer(model, optim_lr=1e-3)
    epoch = buffer.sample(UPDATES * BATCH)
    iterator = BootstrapIterator(epoch, BATCH, 5, shuffle_each_epoch=True, rng=rng)
    settings = {"gamma": 0.99, "tau": 0.005, "alpha": 0.2, "lr": 3e-4, "policy": "Gaussian", "device": "cpu"}
    automatic = {"automatic_entropy_tuning": True, "target_entropy": None, "target_update_interval": 1}
    arguments = SimpleNamespace(**settings, **automatic, hidden_size=HIDDEN)
    agent = SAC(OBSERVATION_DIM, Spaces.action_space, arguments)

    def run() -> None:
        trainer.train(iterator, num_epochs=1, evaluate=False, silent=True)
        for number in range(UPDATES):
            agent.update_parameters(buffer, BATCH, number, reverse_mask=True)

    return run


def main() -> None:
    """One timed round per line."""
    ready: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready[name] = {"sbx": sbx, "mbrl": mbrl}[name]()
            for _ in range(3):
                ready[name]()
        start = time.perf_counter()
        ready[name]()
        print((time.perf_counter() - start) / UPDATES, flush=True)


if __name__ == "__main__":
    main()
