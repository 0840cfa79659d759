"""What a run has seen, for other programs: its replay as arrays, and as a Minari data set."""

from __future__ import annotations

import warnings
from pathlib import Path

import jax
import numpy as np
from numpy.typing import NDArray

from mnm.messages import UserError
from mnm.training.learner import Learner

Arrays = dict[str, NDArray]


class ExportError(UserError):
    """A replay that cannot be written as asked for; the message is one line."""


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


def write_npz(arrays: Arrays, path: Path) -> None:
    """The arrays as a .npz, compressed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def episodes(arrays: Arrays) -> list[slice]:
    """The rows of each episode: it is over where it ended, or where the next row starts elsewhere."""
    elsewhere = (arrays["next_observations"][:-1] != arrays["observations"][1:]).any(axis=1)
    ends = np.flatnonzero([*(arrays["terminations"][:-1] | elsewhere), True]) + 1
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def write_minari(arrays: Arrays, name: str, learner: Learner) -> int:
    """A Minari data set of this name, such as pendulum/mnm-v0, in Minari's own folder; the number of its episodes."""
    try:
        import minari
        from minari.data_collector import EpisodeBuffer
    except ImportError:
        raise ExportError("--minari needs Minari: pip install 'mnm-rl[minari]'") from None
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
    said = f"The replay of {learner.algorithm.name} after {learner.steps} steps on {learner.task_name}."
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
