"""Transitions to learn from without a real step: a run's replay, arrays in a file, a Minari data set.

Whatever it is, it is read in blocks of rows with the same five columns, checked once from its first row to its last,
and known by its digest from then on. What does not fit into the replay is sampled from the disk: see `Learner`.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from mnm.envs.adapter import Environment, Task, TaskError, make
from mnm.envs.recorded import WIDEST, Recorded, recorded
from mnm.files import DamagedFileError, one_line, read_npz
from mnm.messages import UserError, short
from mnm.replay import Transitions
from mnm.training.runs import CONFIG
from mnm.trust import check_trusted

Arrays = dict[str, NDArray]
Read = Callable[[int, int], Arrays]
"""(first row, row after the last) -> the columns of these rows."""

COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminations")
"""Row by row: s, a in the task's own units, r, s', and whether the episode ended there by itself."""
ALIASES = {"terminals": "terminations"}
"""As d4rl's files have it."""
BOUNDS = ("action_low", "action_high")
"""Of the actions, where a file says them."""
BLOCK = 20_000
"""Rows that are looked at at once."""
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
"""Bytes that the machine has."""
OUTSIDE = 1e-3
"""How far outside of its bounds an action may lie, in widths: rounding."""


class DatasetError(UserError):
    """Data that cannot be had, or cannot be learned from; the message is one line."""


@dataclass(frozen=True)
class Dataset:
    """Transitions of one task, wherever they are."""

    name: str
    """As a run's configuration names it: a whole path, or a Minari data set's name."""
    rows: int
    read: Read
    env: str | None = None
    """The task that the data name, if they do."""
    spaces: tuple[gym.Space, gym.Space] | None = None
    """Of observations and actions, if the data say."""

    @property
    def label(self) -> str:
        """What a run from it is called by default: the file's or folder's own name, or a Minari data set's."""
        last = Path(self.name).name if Path(self.name).is_absolute() else self.name
        return re.sub(r"[^A-Za-z0-9_.+-]", "_", last.removesuffix(".npz").removesuffix(".hdf5").removesuffix(".h5"))

    def task(self, env: str | None) -> Task:
        """What the agent is made for: the task that is named here, the data's own, or else their spaces alone."""
        if env is not None:
            return env
        if self.env is not None:
            check_trusted(self.name, self.env, trusted=False)
            try:
                make(self.env).close()
            except TaskError as error:
                if self.spaces is None:
                    raise
                print(f"mnm: {error}; there will be no evaluation on {self.name}", file=sys.stderr)
            else:
                return self.env
        return self.recorded()

    def recorded(self) -> Recorded:
        """The task as far as the data alone know it."""
        if self.spaces is None:
            raise DatasetError(f"{self.name} does not say what actions may be: name its task, --env ID, in Python env=")
        return Recorded(*self.spaces)


def open_dataset(name: str, *, download: bool = False) -> Dataset:
    """The data set of this name: a run's folder, a .npz, a .h5 or .hdf5, else a Minari data set.

    `download`: whether a Minari data set that is not on this machine is fetched from the hub.
    """
    path = Path(name)
    if path.suffix == ".npz":
        return _of_npz(path)
    if path.suffix in (".h5", ".hdf5"):
        return _of_hdf5(path)
    if (path / CONFIG).exists():
        return _of_run(path)
    if path.exists():
        raise DatasetError(f"{name} is no data set: name a run's folder, a .npz, a .h5, or a Minari data set")
    return _of_minari(name, download)


def checked(dataset: Dataset, environment: Environment, take: Callable[[Transitions], None] | None = None) -> str:
    """The digest of a data set that can be learned from as that environment's; refused where it cannot.

    All rows are read once, in blocks: `take` gets each block after it has been checked.
    """
    if dataset.rows < 1:
        raise DatasetError(f"{dataset.name} is empty: it has no transitions")
    digest, ends = hashlib.sha256(), []
    for start, arrays in _blocks(dataset):
        _check_block(dataset.name, arrays, start, environment)
        if take is not None:
            take(as_transitions(arrays, environment))
        ends.append(start + np.flatnonzero(arrays["terminations"]))
        for name in COLUMNS:
            digest.update(np.ascontiguousarray(arrays[name], np.float64 if name != "terminations" else bool).tobytes())
    _tell_of_time_limit(dataset.name, np.concatenate(ends))
    return digest.hexdigest()[:32]


def transitions(dataset: Dataset, environment: Environment, start: int, stop: int) -> Transitions:
    """These rows, which have been checked."""
    return as_transitions(dataset.read(start, stop), environment)


def as_transitions(arrays: Arrays, environment: Environment) -> Transitions:
    """Checked rows as an agent sees them: actions in [-1, 1]."""
    rows = len(arrays["rewards"])
    columns: tuple[Any, ...] = (
        arrays["observations"].reshape(rows, -1).astype(np.float32),
        environment.unscale(arrays["actions"].reshape(rows, *environment.action_space.shape)),
        arrays["rewards"].reshape(rows).astype(np.float32),
        arrays["next_observations"].reshape(rows, -1).astype(np.float32),
        (arrays["terminations"].reshape(rows) == 0).astype(np.float32),
    )
    return Transitions(*columns)


def _blocks(dataset: Dataset) -> Iterator[tuple[int, Arrays]]:
    for start in range(0, dataset.rows, BLOCK):
        yield start, dataset.read(start, min(start + BLOCK, dataset.rows))


def _check_block(name: str, arrays: Arrays, start: int, environment: Environment) -> None:
    """Shapes, numbers and bounds; rows are counted from 0, `start` is the block's first."""
    rows = len(arrays["rewards"])
    sizes = {
        "observations": environment.observation_dim,
        "actions": environment.action_dim,
        "rewards": 1,
        "next_observations": environment.observation_dim,
        "terminations": 1,
    }
    for column, size in sizes.items():
        array = arrays[column]
        if array.size != rows * size or len(array) != rows:
            raise DatasetError(
                f"{name}: {column} has the shape {array.shape}, but a row of {environment.name} has {size} of them"
            )
        with np.errstate(over="ignore"):
            wrong = ~np.isfinite(array.astype(np.float32)).reshape(rows, -1).all(axis=1)
        if wrong.any():
            raise DatasetError(
                f"{name}: row {start + int(wrong.argmax())} of {column} is not of finite float32 numbers"
            )
    flags = arrays["terminations"].reshape(rows)
    wrong = (flags != 0) & (flags != 1)
    if wrong.any():
        place, value = start + int(wrong.argmax()), flags[wrong.argmax()]
        raise DatasetError(f"{name}: row {place} of terminations is {value:g}, but must be 0 or 1")
    space = environment.action_space
    low, high = (bound.reshape(-1).astype(np.float64) for bound in (space.low, space.high))
    actions, slack = arrays["actions"].reshape(rows, -1), OUTSIDE * (high - low)
    outside = ((actions < low - slack) | (actions > high + slack)).any(axis=1)
    if outside.any():
        place = int(outside.argmax())
        raise DatasetError(
            f"{name}: row {start + place} of actions is {short(actions[place].tolist())}, but those of"
            f" {environment.name} lie between {short(low.tolist())} and {short(high.tolist())}: store them in its units"
        )


def _tell_of_time_limit(name: str, ends: NDArray) -> None:
    """Ends that come like a clock's are probably those of a time limit, which ends nothing."""
    apart = np.diff(ends)
    if len(apart) >= 2 and apart[0] > 1 and (apart == apart[0]).all():
        print(
            f"mnm: {name}: every episode ends after {apart[0]} steps: if that is a time limit, terminations must be 0"
            " there, or the agent learns that nothing comes after it",
            file=sys.stderr,
        )


def _of_arrays(name: str, arrays: Mapping[str, NDArray], rows: int, read: Read) -> Dataset:
    """Of columns in memory or on the disk that have been found in a file."""
    spaces = None
    if all(bound in arrays for bound in BOUNDS):
        try:
            known = recorded(math.prod(arrays["observations"].shape[1:]), *(arrays[bound] for bound in BOUNDS))
        except ValueError as error:
            raise DatasetError(f"{name}: {error}") from error
        spaces = known.observation_space, known.action_space
    return Dataset(name, rows, read, spaces=spaces)


def _check_columns(name: str, arrays: Mapping[str, Any]) -> int:
    """How many rows there are in a file's columns."""
    for column in COLUMNS:
        if column not in arrays:
            if column == "terminations" and "dones" in arrays:
                raise DatasetError(
                    f"{name} has dones in place of terminations: an episode that was cut off is not over; store where"
                    " it ended by itself, as terminations"
                )
            raise DatasetError(f"{name} has no {column}: a data set has {', '.join(COLUMNS)}")
        if not arrays[column].shape or math.prod(arrays[column].shape[1:]) > WIDEST:
            raise DatasetError(f"{name}: {column} has the shape {arrays[column].shape}, not rows of numbers")
    rows = {column: arrays[column].shape[0] for column in COLUMNS}
    if len(set(rows.values())) > 1:
        said = ", ".join(f"{count} of {column}" for column, count in rows.items())
        raise DatasetError(f"{name}: its columns have different numbers of rows: {said}")
    return rows["rewards"]


def _of_npz(path: Path) -> Dataset:
    """Its columns are read into memory."""
    try:
        if (needed := _unpacked(path)) > MEMORY / 2:
            raise DatasetError(
                f"{path} holds {needed / 1e9:.1f} GB, and the memory {MEMORY / 1e9:.1f}: store it as .h5,"
                " which is sampled from the disk"
            )
        stored = read_npz(path, packed=True)
    except FileNotFoundError:
        raise DatasetError(f"{path}: there is no such file") from None
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror}") from error
    except DamagedFileError as error:
        raise DatasetError(f"{path} is no data set, or a damaged one: {error}") from error
    arrays = {ALIASES.get(name, name): array for name, array in stored.items()}
    name = str(path.resolve())
    return _of_arrays(name, arrays, _check_columns(name, arrays), _in_memory(arrays))


def _unpacked(path: Path) -> int:
    """Bytes that an archive says it holds; 0 if it is none, which its reader then says."""
    if not zipfile.is_zipfile(path):
        return 0
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return 0


def _in_memory(arrays: Mapping[str, NDArray]) -> Read:
    return lambda start, stop: {name: arrays[name][start:stop] for name in COLUMNS}


def _of_hdf5(path: Path) -> Dataset:
    """Its columns stay on the disk."""
    try:
        import h5py
    except ImportError:
        raise DatasetError(f"{path} needs h5py: pip install 'mnm-rl[offline]'") from None
    if not path.is_file():
        raise DatasetError(f"{path}: there is no such file")
    name = str(path.resolve())
    found: dict[str, Any] = {}
    try:
        file = h5py.File(path, "r")
        for column in (*COLUMNS, *ALIASES, *BOUNDS, "dones"):
            link = file.get(column, getlink=True)
            stored = file.get(column) if isinstance(link, h5py.HardLink) else None  # no link leads to another file
            if isinstance(stored, h5py.Dataset) and not stored.is_virtual and not stored.external:
                if stored.dtype.kind not in "biuf":
                    raise DatasetError(f"{path}: {column} is of {stored.dtype}, not of real numbers")
                found[ALIASES.get(column, column)] = stored
        bounds = {bound: found[bound][()] for bound in BOUNDS if bound in found}
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        if isinstance(error, DatasetError):
            raise
        raise DatasetError(f"{path} is no HDF5 file, or a damaged one: {one_line(error)}") from error
    rows = _check_columns(name, found)

    def read(start: int, stop: int) -> Arrays:
        try:
            return {column: found[column][start:stop] for column in COLUMNS}
        except (OSError, RuntimeError, ValueError) as error:
            raise DatasetError(f"{path}: rows {start} to {stop} cannot be read: {one_line(error)}") from error

    return _of_arrays(name, found | bounds, rows, read)


def _of_run(folder: Path) -> Dataset:
    """The replay of a run, as it was last saved."""
    from mnm.training.driver import load_trained
    from mnm.training.export import replay_arrays

    learner = load_trained(folder)
    try:
        arrays, spaces = replay_arrays(learner), learner.flat_spaces
    finally:
        learner.close()
    env = learner.task if isinstance(learner.task, str) else None
    return Dataset(str(folder.resolve()), len(arrays["rewards"]), _in_memory(arrays), env, spaces)


def _of_minari(name: str, download: bool) -> Dataset:
    """Its episodes stay on the disk; the last observation of each is the next one of its last row."""
    try:
        import minari
    except ImportError:
        raise DatasetError(
            f"{name} is neither a run's folder nor a file .npz or .h5, and a Minari data set needs Minari:"
            " pip install 'mnm-rl[offline]'"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = minari.load_dataset(name, download=download)
            lengths = [int(one["total_steps"]) for one in found.storage.get_episode_metadata(found.episode_indices)]
            spaces, spec = (found.observation_space, found.action_space), found.env_spec
    except Exception as error:  # of a name, a network, a file: Minari lets all of them through
        raise DatasetError(
            f"{name} is neither a run's folder, nor a .npz or .h5, nor a Minari data set that can be had:"
            f" {one_line(error)}"
        ) from error
    firsts = np.concatenate([[0], np.cumsum(lengths)]).astype(int)

    def read(start: int, stop: int) -> Arrays:
        first, last = np.searchsorted(firsts, start, "right") - 1, np.searchsorted(firsts, stop, "left")
        try:
            parts = [_episode(one, spaces[0]) for one in found.storage.get_episodes(found.episode_indices[first:last])]
        except (OSError, RuntimeError, ValueError, KeyError, AssertionError) as error:
            raise DatasetError(f"{name}: episodes {first} to {last} cannot be read: {one_line(error)}") from error
        columns = {column: np.concatenate([part[column] for part in parts]) for column in COLUMNS}
        return {column: array[start - firsts[first] : stop - firsts[first]] for column, array in columns.items()}

    return Dataset(name, int(firsts[-1]), read, None if spec is None else spec.id, spaces)


def _episode(episode: Mapping[str, Any], space: gym.Space) -> Arrays:
    rows = len(episode["rewards"])
    observations = _flat(space, episode["observations"], rows + 1)
    return {
        "observations": observations[:-1],
        "actions": np.asarray(episode["actions"]),
        "rewards": np.asarray(episode["rewards"]),
        "next_observations": observations[1:],
        "terminations": np.asarray(episode["terminations"]),
    }


def _flat(space: gym.Space, values: Any, rows: int) -> NDArray:
    """Observations as the agents see them: the parts of a Dict side by side, in its order."""
    if isinstance(space, gym.spaces.Dict):
        return np.concatenate([_flat(part, values[key], rows) for key, part in space.spaces.items()], axis=1)
    return np.asarray(values).reshape(rows, -1)
