"""Checkpoints: all of a run, written so that a kill at any moment costs at most what came after the last one.

A checkpoint is one .npz, as a saved agent is: arrays beside a JSON header that says what the run is, with its counters.
It gets its name when all of it is on the disk, and its checksums tell a damaged one. Reading executes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnm.files import DamagedFileError
from mnm.messages import UserError, short
from mnm.schema import Count, CountOrZero, wrong_entry
from mnm.training.learner import Learner, Snapshot
from mnm.training.saving import COUNTERS, config_as_json, pack, read_arrays, unpack, write_arrays

FORMAT = 5

FOLDER = "checkpoints"
KEPT = 2


class CheckpointError(UserError):
    """A checkpoint that cannot be written or read; the message is one line."""


class MismatchError(UserError):
    """A checkpoint of another run."""


def kinds(learner: Learner) -> dict[str, Any]:
    """Of a header's entries besides what must be that of the run; who learns from data has begun no episode."""
    return {"counters": COUNTERS | {"episodes": CountOrZero if learner.offline else Count}, "no_action": bool}


def save_checkpoint(run: Path, learner: Learner, index: int) -> None:
    """Write the run of the seed with this index into its folder; all but the newest two are deleted after that."""
    snapshot = learner.snapshot(index)
    action = np.zeros(learner.dims[1], np.float32) if snapshot.action is None else snapshot.action
    arrays = [*pack((snapshot.agent, snapshot.replay)), snapshot.observation, action, snapshot.taken]
    state = {"counters": dict(snapshot.counters), "no_action": snapshot.action is None}
    try:
        write_arrays(_path(run, (learner.steps, learner.updates)), identity(learner, index) | state, arrays)
        _prune(run)
    except OSError as error:
        raise CheckpointError(
            f"{run / FOLDER}: cannot write the checkpoint of step {learner.steps}: {error.strerror or error};"
            " the one before is untouched: make room, then mnm resume"
        ) from error


def restore_checkpoints(runs: list[Path], learner: Learner) -> list[str]:
    """Bring the learner to where all its seeds' runs were last saved; warnings, one line each.

    A damaged checkpoint is passed over for the one before it.
    """
    warnings: list[str] = []
    for moment in _moments(runs):
        try:
            snapshots = [_read_snapshot(_path(run, moment), learner, index) for index, run in enumerate(runs)]
        except CheckpointError as error:
            warnings.append(f"{error}; trying the one before")
            continue
        if not learner.restore(snapshots):
            warnings.append(
                f"{learner.task_name} does not repeat itself from its seed: a new episode begins, and the run will"
                " differ from one that was never stopped"
            )
        return warnings
    said = f" ({warnings[-1]})" if warnings else ""
    raise CheckpointError(f"{runs[0]}: no checkpoint to go on from{said}: start again with mnm train ... --overwrite")


def has_checkpoints(runs: list[Path]) -> bool:
    """Whether there is one that all the runs have, good or damaged."""
    return bool(_moments(runs))


def identity(learner: Learner, index: int) -> dict[str, Any]:
    """What a checkpoint must have in common with the run that goes on from it."""
    return {
        "format": FORMAT,
        "algorithm": learner.algorithm.name,
        "task": learner.task_name,
        "dims": list(learner.dims),
        "seed": learner.seeds[index],
        "settings": config_as_json(learner.config),
        "dataset": learner.digest,
    }


def _read_snapshot(path: Path, learner: Learner, index: int) -> Snapshot:
    try:
        header, arrays = read_arrays(path)
    except (OSError, DamagedFileError) as error:
        raise CheckpointError(f"the checkpoint {path} is damaged: {error}") from error
    for name, own in json.loads(json.dumps(identity(learner, index))).items():
        if header.get(name) != own:
            raise MismatchError(f"{path}: {_difference(name, header.get(name), own)}")
    try:
        if why := wrong_entry(header, kinds(learner)):
            raise ValueError(why)
        agent, replay = unpack((learner.agent(index), learner.empty_replay()), arrays[:-3])
        observation, action, taken = _episode(arrays[-3:], *learner.dims)
    except ValueError as error:
        raise CheckpointError(f"the checkpoint {path} is damaged: {error}") from error
    return Snapshot(agent, replay, header["counters"], observation, None if header["no_action"] else action, taken)


def _episode(arrays: Sequence[NDArray], observation_dim: int, action_dim: int) -> Sequence[NDArray]:
    """The observation, the next action and the actions taken, [steps, act]."""
    shapes = [array.shape for array in arrays]
    if shapes[:2] != [(observation_dim,), (action_dim,)] or len(shapes[2]) != 2 or shapes[2][1] != action_dim:
        raise ValueError(f"an episode's arrays have the shapes {shapes}")
    if not all(array.dtype == np.float32 and np.isfinite(array).all() for array in arrays):
        raise ValueError("an episode's arrays hold what is not a finite float32")
    return arrays


def _difference(name: str, saved: Any, own: Any) -> str:
    if isinstance(saved, dict) and isinstance(own, dict):
        key = next(key for key in [*own, *saved] if key not in own or saved.get(key) != own[key])
        if key not in saved:
            return (
                f"saved by a version without {name} {key}: go on with it, or start again with mnm train ... --overwrite"
            )
        return f"saved with {name} {key:.60} = {short(saved.get(key))}, but this run has {short(own.get(key))}"
    return f"saved with {name} {short(saved)}, but this run has {short(own)}"


def _moments(runs: list[Path]) -> list[tuple[int, int]]:
    """(steps, updates) of the checkpoints that all runs have, the newest first."""
    moments: list[set[tuple[int, int]]] = []
    for run in runs:
        names = [path.stem.split("-") for path in (run / FOLDER).glob("*-*.npz")]
        moments.append({(int(a), int(b)) for a, b in names if a.isdigit() and b.isdigit()})
        if not moments[-1] and list((run / FOLDER).glob("*-*.json")):
            raise CheckpointError(
                f"{run / FOLDER} holds checkpoints of format 2, which version 0.1 wrote; this version reads format"
                f" {FORMAT}: go on with version 0.1, or start again with mnm train ... --overwrite"
            )
    return sorted(set.intersection(*moments), reverse=True)


def _path(run: Path, moment: tuple[int, int]) -> Path:
    """By both counts: the model's warm-up makes updates without steps."""
    steps, updates = moment
    return run / FOLDER / f"{steps:09d}-{updates:09d}.npz"


def _prune(run: Path) -> None:
    """Delete all but the newest checkpoints, and what a kill has left of one."""
    kept = {_path(run, moment) for moment in _moments([run])[:KEPT]}
    for path in (run / FOLDER).iterdir():
        if path not in kept:
            path.unlink()
