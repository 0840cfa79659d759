"""Finite MDPs from files: a grid as text, arrays as .npz or JSON, or a Gymnasium environment by its id.

Every failure is one InputError whose message starts with the place: file, line and column, or array entry.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnm.files import DamagedFileError, parse_object, read_text
from mnm.files import read_npz as read_array_file
from mnm.messages import UserError, short
from mnm.tabular.grids import Grid, MapError, parse_map
from mnm.tabular.gym_tables import from_gym, map_of
from mnm.tabular.mdp import (
    Dynamics,
    MDPError,
    TabularMDP,
    check_probabilities,
    deterministic_policy,
    first_index,
)

ARRAYS = "probs, rewards, discount, and optionally start and successors"


class InputError(UserError):
    """Input that cannot be used; the message is one line that names the place, the cause and the remedy."""


@dataclass(frozen=True, eq=False)
class FiniteTask:
    """A finite MDP that was read, and the grid it was drawn as, if it was."""

    name: str
    mdp: TabularMDP
    grid: Grid | None = None
    letters: NDArray[np.str_] | None = None
    """[rows, columns] a Gymnasium task's own map, if it has one: its first states, row by row."""


def read_task(source: str, discount: float | None = None) -> FiniteTask:
    """The task that `source` names: gym:ID, or a file. `discount` replaces the task's own.

    .npz and .json files hold `probs` [S, A, S] (or [S, A, K] beside `successors` [S, A, K]), `rewards` [S], [S, A]
    or [S, A, S], `discount`, and optionally `start`, a state or a distribution (default: state 0). Any other file
    is read as a text map.
    """
    if source.startswith("gym:"):
        return read_gym(source, 0.99 if discount is None else discount)
    if not source:
        raise InputError("FILE is empty: name a file, or gym:ID")
    path = Path(source)
    readers = {".npz": read_npz, ".json": read_json}
    try:
        if path.suffix in readers:
            mdp = readers[path.suffix](path)
            return FiniteTask(source, mdp if discount is None else replace(mdp, discount=discount))
        grid = read_map(path)
        grid = grid if discount is None else replace(grid, discount=discount)
        return FiniteTask(source, grid.mdp, grid)
    except MDPError as error:
        raise InputError(f"{source}: {error}") from None
    except OSError as error:
        raise InputError(f"{source}: {error.strerror or error}") from None


def read_policy(source: str, num_actions: int | None = None) -> NDArray[np.float64]:
    """A policy [S, A] from an .npz or .json: `policy` [S, A], action probabilities, or `actions` [S], their numbers.

    `num_actions` is needed for the latter: the policy may not take the last one.
    """
    path = Path(source)
    try:
        arrays: Mapping[str, Any] = (
            read_array_file(path, packed=True) if path.suffix == ".npz" else parse_object(read_text(path))
        )
        if set(arrays) == {"policy"}:
            policy = np.asarray(_array(arrays["policy"], "policy"), dtype=np.float64)
            if policy.ndim != 2 or 0 in policy.shape:
                raise MDPError(f"array 'policy' has shape {policy.shape}, but must be [states, actions]")
            check_probabilities(policy, "policy")
            return policy
        if set(arrays) != {"actions"}:
            raise MDPError("a policy file has one array: policy [states, actions], or actions [states]")
        actions = _array(arrays["actions"], "actions")
        if num_actions is None:
            raise MDPError("it has numbers of actions; how many there are to choose from must be said: --actions")
        if actions.ndim != 1 or len(actions) == 0:
            raise MDPError(f"array 'actions' has shape {actions.shape}, but must be [states]")
        wrong = ~np.isin(actions, np.arange(num_actions))
        if wrong.any():
            (state,) = first_index(wrong)
            raise MDPError(f"state {state}: action {actions[state]} is none; actions are 0 to {num_actions - 1}")
        return deterministic_policy(actions.astype(np.int64), num_actions)
    except (MDPError, DamagedFileError) as error:
        raise InputError(f"{source}: {error}") from None
    except OSError as error:
        raise InputError(f"{source}: {error.strerror or error}") from None


def read_map(path: Path) -> Grid:
    """A text map; see `parse_map`."""
    try:
        return parse_map(read_text(path))
    except MapError as error:
        raise InputError(f"{path}:{error.line}:{error.column}: {error}") from None
    except DamagedFileError as error:
        raise InputError(f"{path}: {error}; maps are text, arrays need .npz or .json") from None


def read_json(path: Path) -> TabularMDP:
    """An MDP from a JSON object of nested lists."""
    try:
        data = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{path}: the lists are nested too deeply for an MDP") from None
    except ValueError as error:  # no text, or a number with more digits than Python converts
        raise InputError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}:1:1: expected an object with the keys {ARRAYS}")
    return mdp_from_arrays(data)


def read_npz(path: Path) -> TabularMDP:
    """An MDP from NumPy's archive of arrays; pickled objects are refused."""
    try:
        return mdp_from_arrays(read_array_file(path, packed=True))
    except DamagedFileError as error:
        raise InputError(f"{path}: not a readable .npz archive of plain arrays: {error}") from None


def mdp_from_arrays(arrays: Mapping[str, Any]) -> TabularMDP:
    """An MDP from arrays by name; the names are those of the files."""
    known = {"probs", "successors", "rewards", "discount", "start"}
    for name in ("probs", "rewards", "discount"):
        if name not in arrays:
            raise MDPError(f"array {name!r} is missing; an MDP file has {ARRAYS}")
    for name in arrays:
        if name not in known:
            raise MDPError(f"unknown array {short(name)}; an MDP file has {ARRAYS}")
    discount = _number(arrays["discount"], "discount")
    start = _array(arrays.get("start", 0), "start")
    probs, rewards = _array(arrays["probs"], "probs"), _array(arrays["rewards"], "rewards")
    if "successors" not in arrays:
        return TabularMDP.from_dense(probs, rewards, discount, start)
    dynamics = Dynamics.from_lists(_array(arrays["successors"], "successors"), probs)
    return TabularMDP.from_dynamics(dynamics, rewards, discount, start)


def _array(values: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise MDPError(f"array {name!r}: its rows have unequal lengths") from None
    if array.dtype.kind not in "biuf":
        if isinstance(values, np.ndarray):
            raise MDPError(f"array {name!r}: expected real numbers, got entries of type {array.dtype}")
        raise MDPError(f"array {name!r}: entry {_first_odd_entry(values)} is not a number")
    return array


def _first_odd_entry(values: Any, index: tuple[int, ...] = ()) -> str:
    """The place and value of the first entry of nested lists that is not a number."""
    if isinstance(values, list):
        for number, entry in enumerate(values):
            if found := _first_odd_entry(entry, (*index, number)):
                return found
        return ""
    if isinstance(values, float) or (isinstance(values, int) and abs(values) < 2**63):
        return ""
    return f"{list(index)} = {short(values)}" if index else short(values)


def _number(value: Any, name: str) -> float:
    array = _array(value, name)
    if array.ndim != 0:
        raise MDPError(f"{name} must be one number; got an array of shape {array.shape}")
    return float(array)


def read_gym(source: str, discount: float) -> FiniteTask:
    """gym:ID, a Gymnasium environment that publishes its transition table."""
    import gymnasium

    environment_id = source.removeprefix("gym:")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that an environment is out of date is said by the error, if it is one
            environment = gymnasium.make(environment_id)
    except Exception as error:  # an environment's constructor can raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{source}: {reason}") from None
    try:
        return FiniteTask(source, from_gym(environment, discount), letters=map_of(environment))
    except MDPError as error:
        raise InputError(f"{source}: {error}") from None
    finally:
        environment.close()
