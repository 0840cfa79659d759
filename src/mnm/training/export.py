"""Transitions for other programs: a run's replay, or episodes of its policy, as arrays and as a Minari data set."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import jax
import numpy as np
from numpy.typing import NDArray

from mnm.diagnostics import Episode
from mnm.messages import UserError
from mnm.training.datasets import Arrays
from mnm.training.learner import Learner, deterministic_action, never

HDF5 = (".h5", ".hdf5")


class ExportError(UserError):
    """Transitions that cannot be had or written as asked for; the message is one line."""


def replay_arrays(learner: Learner) -> Arrays:
    """The real transitions of a learner's (first) seed, oldest first; actions in the task's own units.

    `terminations` is true where an episode ended, not where it was cut off.
    """
    replay = jax.tree.map(lambda array: array[0], learner.replay) if learner.many else learner.replay
    size, position = int(replay.size), int(replay.position)
    rows = (np.arange(size) + (position if size == replay.capacity else 0)) % replay.capacity
    stored = jax.tree.map(lambda column: np.asarray(column)[rows], replay.storage)
    if not size:
        raise ExportError("the replay is empty: nothing has been seen yet")
    return {
        "observations": stored.observations,
        "actions": learner.in_task_units(stored.actions),
        "rewards": stored.rewards,
        "next_observations": stored.next_observations,
        "terminations": stored.continues == 0,
    }


def policy_arrays(learner: Learner, episodes: int, seed: int, noise: float) -> Arrays:
    """The same of episodes of the deterministic policy; a share `noise` of the actions is uniformly random.

    They start where neither training nor evaluations do.
    """
    policy, generator = learner.policy(0), np.random.default_rng((seed, 5))

    def act(observation: NDArray) -> NDArray:
        if generator.random() < noise:
            return generator.uniform(-1, 1, learner.dims[1]).astype(np.float32)
        return deterministic_action(policy, observation)

    return joined([_rows(learner, one) for one in islice(learner.play(0, seed, never, "data", act), episodes)])


def _rows(learner: Learner, episode: Episode) -> Arrays:
    """The transitions of one episode, of which all were kept."""
    (steps,) = episode.pieces
    last = np.arange(episode.length) == episode.length - 1
    return {
        "observations": steps.observations[:-1],
        "actions": learner.in_task_units(steps.actions),
        "rewards": steps.rewards,
        "next_observations": steps.observations[1:],
        "terminations": last & episode.terminated,
    }


def joined(parts: Sequence[Arrays]) -> Arrays:
    """Several episodes' or runs' transitions, one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check_file(path: Path) -> None:
    """Refuse a name that says no kind of file that is written."""
    if path.suffix not in (".npz", *HDF5):
        raise ExportError(f"--out {path}: arrays are written to a .npz or a .h5")


def write_file(arrays: Arrays, path: Path, learner: Learner) -> None:
    """The arrays, and the bounds of the actions, as a .npz or, by its name, as HDF5; both compressed."""
    bounds = {name: np.asarray(learner.spaces[name]) for name in ("action_low", "action_high")}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix not in HDF5:
        with path.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays, **bounds)
        return
    try:
        import h5py
    except ImportError:
        raise ExportError(f"--out {path} needs h5py: pip install 'mnm-rl[offline]'") from None
    with h5py.File(path, "w") as file:
        for name, array in (arrays | bounds).items():
            file.create_dataset(name, data=array, compression="gzip")


def episodes(arrays: Arrays) -> list[slice]:
    """The rows of each episode: it is over where it ended, or where the next row starts elsewhere."""
    elsewhere = (arrays["next_observations"][:-1] != arrays["observations"][1:]).any(axis=1)
    ends = np.flatnonzero([*(arrays["terminations"][:-1] | elsewhere), True]) + 1
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def write_minari(arrays: Arrays, name: str, learner: Learner, said: str) -> int:
    """A Minari data set of this name, such as pendulum/mnm-v0, in Minari's own folder; the number of its episodes."""
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
    except ImportError:
        raise ExportError("--minari needs Minari: pip install 'mnm-rl[offline]'") from None
    buffers = []
    for number, rows in enumerate(episodes(arrays)):
        ended = arrays["terminations"][rows]
        buffers.append(
            EpisodeBuffer(
                id=number,
                observations=[*arrays["observations"][rows], arrays["next_observations"][rows][-1]],
                actions=list(arrays["actions"][rows]),
                rewards=arrays["rewards"][rows].tolist(),
                terminations=ended.tolist(),
                truncations=[*[False] * (len(ended) - 1), not ended[-1]],
            )
        )
    observation_space, action_space = learner.flat_spaces
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it could name an author and a link to the code
            minari.create_dataset_from_buffers(
                name,
                buffers,
                env=learner.task if isinstance(learner.task, str) else None,
                observation_space=observation_space,
                action_space=action_space,
                algorithm_name=learner.algorithm.name,
                description=said,
            )
    except (ValueError, AssertionError, OSError) as error:
        raise ExportError(f"--minari {name}: {' '.join(str(error).split())}") from error
    return len(buffers)
