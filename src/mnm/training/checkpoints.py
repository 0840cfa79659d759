"""Checkpoints: all of a run, written so that a kill at any moment costs at most what came after the last one.

Orbax writes the arrays. Beside its folder stands a manifest, written last: what the run is, its counters, and a digest
of every file; a checkpoint without a manifest, or with one that does not fit, does not count. Reading executes nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnm.messages import UserError
from mnm.training.learner import Learner, Snapshot
from mnm.training.saving import config_as_json, pack, unpack

FORMAT = 2
FOLDER = "checkpoints"
KEPT = 2


class CheckpointError(UserError):
    """A checkpoint that cannot be written or read; the message is one line."""


class Saved(NamedTuple):
    """What a checkpoint holds."""

    about: dict[str, Any]
    """What the run is (format, algorithm, task, settings, sizes, seed), and its counters."""
    arrays: list[NDArray]


def save_checkpoint(run: Path, learner: Learner, index: int) -> None:
    """Write the run of the seed with this index into its folder; all but the newest two are deleted after that."""
    snapshot = learner.snapshot(index)
    no_action = snapshot.action is None
    action = np.zeros(learner.dims[1], np.float32) if snapshot.action is None else snapshot.action
    arrays = [*pack((snapshot.agent, snapshot.replay)), snapshot.observation, action, snapshot.taken]
    about = identity(learner, index) | {"counters": dict(snapshot.counters), "no_action": no_action}
    try:
        _write(run / FOLDER, learner.steps, learner.updates, Saved(about, arrays))
    except (OSError, ValueError) as error:  # a full disk: Orbax wraps some of its errors
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(
            f"{run / FOLDER}: cannot write the checkpoint of step {learner.steps}: {reason};"
            " the one before is untouched: make room, then mnm resume"
        ) from error


def restore_checkpoints(runs: list[Path], learner: Learner) -> list[str]:
    """Bring the learner to where all its seeds' runs were last saved; warnings, one line each.

    A damaged checkpoint is passed over for the one before it.
    """
    warnings: list[str] = []
    for moment in _moments(runs):
        try:
            snapshots = [_read_snapshot(run, moment, learner, index) for index, run in enumerate(runs)]
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
    }


def _read_snapshot(run: Path, moment: tuple[int, int], learner: Learner, index: int) -> Snapshot:
    saved = _read(run / FOLDER, moment)
    where = run / FOLDER / _name(*moment)
    for name, own in json.loads(json.dumps(identity(learner, index))).items():
        if saved.about.get(name) != own:
            raise MismatchError(f"{where}: {_difference(name, saved.about.get(name), own)}")
    *packed, observation, action, taken = saved.arrays
    try:
        agent, replay = unpack((learner.agent(index), learner.empty_replay()), packed)
        counters = saved.about["counters"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{where} is damaged: {error}") from error
    return Snapshot(agent, replay, counters, observation, None if saved.about["no_action"] else action, taken)


class MismatchError(UserError):
    """A checkpoint of another run."""


def _difference(name: str, saved: Any, own: Any) -> str:
    if isinstance(saved, dict) and isinstance(own, dict):
        key = next(key for key in [*own, *saved] if saved.get(key) != own.get(key))
        return f"saved with {name} {key} = {saved.get(key)!r}, but this run has {own.get(key)!r}"
    return f"saved with {name} {saved!r}, but this run has {own!r}"


def _moments(runs: list[Path]) -> list[tuple[int, int]]:
    """(steps, updates) of the checkpoints that all runs have, the newest first."""
    found: list[set[tuple[int, int]]] = []
    for run in runs:
        names = [path.stem.split("-") for path in (run / FOLDER).glob("*-*.json")]
        found.append({(int(a), int(b)) for a, b in names if a.isdigit() and b.isdigit()})
    return sorted(set.intersection(*found), reverse=True)


def _name(steps: int, updates: int) -> str:
    """By both counts: the model's warm-up makes updates without steps."""
    return f"{steps:09d}-{updates:09d}"


def _write(folder: Path, steps: int, updates: int, saved: Saved) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = _name(steps, updates)
    tree = {_key(number): array for number, array in enumerate(saved.arrays) if array.size}
    with _checkpointer() as checkpointer:
        checkpointer.save((folder / name).absolute(), tree, force=True)
    shapes = [[str(array.dtype), list(array.shape)] for array in saved.arrays]
    content = json.dumps(saved.about | {"arrays": shapes, "files": _digests(folder / name)}).encode()
    temporary = folder / f"{name}.tmp"
    with temporary.open("wb") as file:
        file.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, folder / f"{name}.json")
    _prune(folder, {_name(*moment) for moment in _moments([folder.parent])[:KEPT]})


def _checkpointer() -> Any:
    import orbax.checkpoint as ocp  # two seconds

    logging.getLogger("absl").setLevel(logging.CRITICAL)  # Orbax logs the errors that it raises, with tracebacks
    return ocp.StandardCheckpointer()


def _read(folder: Path, moment: tuple[int, int]) -> Saved:
    place = folder / _name(*moment)
    try:
        digest, _, content = place.with_name(f"{place.name}.json").read_bytes().partition(b"\n")
        if hashlib.sha256(content).hexdigest().encode() != digest:
            raise ValueError("its manifest does not fit its digest")
        about = json.loads(content)
        _check_files(about["files"], _digests(place))
        with _checkpointer() as checkpointer:
            tree = checkpointer.restore(place.absolute())
        arrays = [
            np.asarray(tree[_key(number)]) if np.prod(shape) else np.zeros(shape, dtype)
            for number, (dtype, shape) in enumerate(about["arrays"])
        ]
    except Exception as error:  # damage shows in as many ways as there are libraries below
        raise CheckpointError(f"the checkpoint {place} is damaged: {' '.join(str(error).split())[:200]}") from error
    return Saved(about, arrays)


def _check_files(expected: Mapping[str, str], found: Mapping[str, str]) -> None:
    for name, digest in expected.items():
        if name not in found:
            raise ValueError(f"its file {name} is missing")
        if found[name] != digest:
            raise ValueError(f"its file {name} has changed")


def _digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file, by its path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _prune(folder: Path, kept: set[str]) -> None:
    """Delete all but the kept checkpoints, and what a kill has left; manifests first, so that none stands alone."""
    for path in sorted(folder.iterdir(), key=Path.is_dir):
        if path.name.partition(".")[0] not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _key(number: int) -> str:
    return f"array_{number:05d}"
