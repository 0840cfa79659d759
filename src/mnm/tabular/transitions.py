"""Transitions (s, a, r, s') of a finite MDP: drawn, read from files, counted.

Every failure is one InputError whose message starts with the place.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mnm.files import DamagedFileError, read_npz, read_text
from mnm.messages import short
from mnm.schema import Count, Rate, wrong_entry
from mnm.tabular.files import InputError
from mnm.tabular.mdp import (
    LARGEST_REWARD,
    Floats,
    Ints,
    MDPError,
    TabularMDP,
    check_policy,
    first_index,
    real_array,
)

COLUMNS = ("state", "action", "reward", "next_state")
MOST_ENTRIES = 2**25
"""Of an [S, A, K] array: a quarter of a gigabyte."""
FACTS = {"num_states?": Count, "num_actions?": Count, "discount?": Rate}
"""What a file of transitions may say of the MDP in one number, and of what kind it is."""
KNOWN = ("num_states", "num_actions", "discount", "reward_range", "start")
"""All that it may say."""


@dataclass(frozen=True, eq=False)
class TransitionData:
    """N transitions of a finite MDP, in the order in which they were made."""

    state: NDArray[np.int64]
    action: NDArray[np.int64]
    reward: Floats
    next_state: NDArray[np.int64]

    def __post_init__(self) -> None:
        columns = {name: real_array(getattr(self, name), name) for name in COLUMNS}
        if any(column.ndim != 1 for column in columns.values()) or len({len(each) for each in columns.values()}) != 1:
            shapes = ", ".join(f"{name} {column.shape}" for name, column in columns.items())
            raise MDPError(f"transitions are four columns of one length; got {shapes}")
        if len(columns["state"]) == 0:
            raise MDPError("there are no transitions")
        for name, column in columns.items():
            good = np.isfinite(column) & (np.abs(column) <= LARGEST_REWARD)
            if name != "reward":
                good &= (column >= 0) & (column < 2**31) & (column == np.floor(column))
            if not good.all():
                (row,) = first_index(~good)
                what = "a number of reasonable size" if name == "reward" else "a whole number from 0 on"
                raise MDPError(f"transition {row}: {name} is {column[row]:g}, but must be {what}")
            object.__setattr__(self, name, column.astype(np.float64 if name == "reward" else np.int64))

    def __len__(self) -> int:
        return len(self.state)

    def save(self, path: str | Path) -> None:
        """To a file that `mnm certify` reads: .npz, or CSV."""
        path = Path(path)
        columns = {name: getattr(self, name) for name in COLUMNS}
        if path.suffix == ".npz":
            np.savez(path, **columns)
            return
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each pair (s, a) was followed by which state, and what it paid, as successor lists."""

    successors: Ints
    """[S, A, K] state numbers."""
    counts: Floats
    """[S, A, K] how often; 0 marks padding."""
    reward_sums: Floats
    """[S, A] of all rewards of the pair."""
    lowest_rewards: Floats
    """[S, A] the smallest reward of the pair; inf where it was never tried."""
    highest_rewards: Floats
    """[S, A] the largest; -inf where it was never tried."""

    @property
    def visits(self) -> Floats:
        """How often each pair was tried, [S, A]."""
        return self.counts.sum(axis=-1)

    def times(self, factor: int) -> Counts:
        """The same data several times over."""
        return replace(self, counts=factor * self.counts, reward_sums=factor * self.reward_sums)

    @property
    def mean_rewards(self) -> Floats:
        """What each pair paid on average, [S, A]; nan where it was never tried."""
        with np.errstate(invalid="ignore"):
            means: Floats = self.reward_sums / self.visits
        return means


def count_transitions(data: TransitionData, num_states: int, num_actions: int) -> Counts:
    """The counts N(s, a, s') and the rewards of every pair, of an MDP with so many states and actions."""
    limits = {"state": num_states, "action": num_actions, "next_state": num_states}
    for name, limit in limits.items():
        column = getattr(data, name)
        if column.max() >= limit:
            (row,) = first_index(column >= limit)
            what = name.removeprefix("next_")
            raise MDPError(f"transition {row}: {name} is {column[row]}, but {what}s are 0 to {limit - 1}")
    pairs = data.state * num_actions + data.action
    triples, numbers = np.unique(pairs * num_states + data.next_state, return_counts=True)
    rows, successors = np.divmod(triples, num_states)
    slots = np.arange(len(rows)) - np.searchsorted(rows, rows)
    shape = (num_states, num_actions, int(slots.max()) + 1)
    if math.prod(shape) > MOST_ENTRIES:
        raise MDPError(f"{shape[0]} states, {shape[1]} actions and {shape[2]} successors of one pair are too many")
    states, counts = np.zeros((shape[0] * shape[1], shape[2]), np.int32), np.zeros((shape[0] * shape[1], shape[2]))
    states[rows, slots], counts[rows, slots] = successors, numbers
    lowest, highest = np.full(shape[0] * shape[1], np.inf), np.full(shape[0] * shape[1], -np.inf)
    np.minimum.at(lowest, pairs, data.reward)
    np.maximum.at(highest, pairs, data.reward)
    return Counts(
        states.reshape(shape),
        counts.reshape(shape),
        np.bincount(pairs, weights=data.reward, minlength=len(lowest)).astype(np.float64).reshape(shape[:2]),
        lowest.reshape(shape[:2]),
        highest.reshape(shape[:2]),
    )


def sample_transitions(mdp: TabularMDP, policy: Floats, number: int, *, seed: int) -> TransitionData:
    """`number` transitions of a policy, in episodes that go on with probability `discount` after every step.

    Rewards that depend on the next state are that transition's own.
    """
    check_policy(mdp, policy)
    generator = np.random.default_rng(seed)
    chances = generator.random((number, 4))
    start, actions, outcomes = (np.cumsum(probs, axis=-1) for probs in (mdp.start, policy, mdp.dynamics.probs))
    state, columns = _drawn(start, generator.random()), np.empty((number, 4))
    for row, (for_action, for_outcome, for_end, for_start) in enumerate(chances):
        action = _drawn(actions[state], for_action)
        slot = _drawn(outcomes[state, action], for_outcome)
        following = int(mdp.dynamics.successors[state, action, slot])
        reward = mdp.rewards[state, action] if mdp.rewards.ndim == 2 else mdp.rewards[state, action, slot]
        columns[row] = state, action, reward, following
        state = following if for_end < mdp.discount else _drawn(start, for_start)
    return TransitionData(*columns.T)


def _drawn(cumulated: Floats, chance: float) -> int:
    """The outcome of a chance in [0, 1), by the cumulated probabilities; never one of probability 0."""
    return int(np.searchsorted(cumulated, chance * cumulated[-1], side="right"))


def sample_counts(mdp: TabularMDP, visits: ArrayLike, *, seed: int) -> Counts:
    """Counts of `visits` [S, A] independent draws from every pair: what a simulator that can be set anywhere gives."""
    visits = np.broadcast_to(np.asarray(visits, np.int64), mdp.expected_rewards.shape)
    shares = np.minimum(mdp.dynamics.probs, 1.0)  # rounding can leave a sum of shares above 1
    counts = np.random.default_rng(seed).multinomial(visits, shares).astype(np.float64)
    rewards = mdp.expected_rewards
    tried = visits > 0
    return Counts(
        mdp.dynamics.successors,
        counts,
        visits * rewards,
        np.where(tried, rewards, np.inf),
        np.where(tried, rewards, -np.inf),
    )


def read_transitions(source: str | Path) -> tuple[TransitionData, dict[str, Any]]:
    """Transitions from a file, and what the file says of the MDP.

    A CSV file has the columns state, action, reward, next_state, named in its first line. An .npz has arrays of these
    names, and may have num_states, num_actions, discount, reward_range (two numbers) and start (a state, or the
    probability of every state).
    """
    path = Path(source)
    try:
        arrays = read_npz(path, packed=True) if path.suffix == ".npz" else _read_csv(path)
        facts = {name: _fact(array) for name, array in arrays.items() if name not in COLUMNS}
        for name in COLUMNS:
            if name not in arrays:
                raise MDPError(f"there is no column {name!r}; transitions have {', '.join(COLUMNS)}")
        for name in facts:
            if name not in KNOWN:
                raise MDPError(
                    f"unknown entry {short(name)}; beside {', '.join(COLUMNS)} there may be {', '.join(KNOWN)}"
                )
        if why := wrong_entry(facts, FACTS):
            raise MDPError(why)
        return TransitionData(*(arrays[name] for name in COLUMNS)), facts
    except (MDPError, DamagedFileError) as error:
        raise InputError(f"{path}: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _fact(array: NDArray) -> Any:
    return array.item() if array.ndim == 0 else array


def _read_csv(path: Path) -> Mapping[str, NDArray]:
    """The columns of a CSV file by name."""
    names, *lines = read_text(path).splitlines() or [""]
    head = [name.strip() for name in names.split(",")]
    if sorted(head) != sorted(COLUMNS):
        raise DamagedFileError(f"line 1 is {short(names)}, but must name the columns {','.join(COLUMNS)}")
    rows = [line for line in lines if line.strip()]
    if not rows:
        raise DamagedFileError("there are no transitions")
    try:
        table = np.loadtxt(rows, delimiter=",", ndmin=2, comments=None)
        if table.shape[1] == len(head):
            return dict(zip(head, table.T, strict=True))
    except ValueError:
        pass
    wrong = (number for number, line in enumerate(lines, 2) if line.strip() and not _is_row(line))
    number = next(wrong, 2)
    raise DamagedFileError(f"line {number} is {short(lines[number - 2])}, but must be {len(head)} plain numbers")


def _is_row(line: str) -> bool:
    """Whether the line is as many numbers as there are columns."""
    try:
        return len([float(cell) for cell in line.split(",")]) == len(COLUMNS)
    except ValueError:
        return False
