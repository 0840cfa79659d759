"""Finite Markov decision processes as successor lists.

A row of the dynamics p(s' | s, a) is stored as at most K successors and their probabilities, so that a grid
of a million cells fits in memory: `successors` and `probs` are [S, A, K] arrays. Slots with probability 0 are
padding. Within a row the successors with positive probability are distinct, so that p(s' | s, a) is one entry
and the ratio p / q of two dynamics on the same successors is elementwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike, NDArray

from mnm.messages import UserError

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

ROW_SUM_TOLERANCE = 1e-8
LARGEST_REWARD = 1e150
"""Squares of returns must not overflow."""


class MDPError(UserError):
    """A finite MDP, policy or model that does not make sense; the message names the place and the remedy."""


def freeze(array: ArrayLike, dtype: type) -> NDArray[Any]:
    """A read-only array: a copy, unless whoever made it has frozen it already."""
    given = np.asarray(array)
    if given.dtype == dtype and not given.flags.writeable and given.base is None:
        return given
    frozen: NDArray[Any] = np.array(given, dtype=dtype, order="C")
    frozen.setflags(write=False)
    return frozen


def real_array(values: Any, name: str) -> NDArray[Any]:
    """`values` as an array of real numbers, or an error that names the array."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise MDPError(f"{name}: rows of unequal length do not make an array ({error})") from None
    if array.dtype.kind not in "biuf":
        raise MDPError(f"{name}: expected real numbers, got entries of type {array.dtype}")
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64, copy=False)


def first_index(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """The first True entry of a mask, for error messages."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))


def at(*index: int) -> str:
    """How error messages name an entry: 'state 3, action 1, successor slot 0'."""
    return ", ".join(f"{name} {i}" for name, i in zip(("state", "action", "successor slot"), index, strict=False))


@dataclass(frozen=True, eq=False)
class Dynamics:
    """Transition probabilities p(s' | s, a), or a model q(s' | s, a) of them, as successor lists."""

    successors: Ints
    """[S, A, K] state numbers."""
    probs: Floats
    """[S, A, K] probabilities; 0 marks padding."""

    def __post_init__(self) -> None:
        successors = real_array(self.successors, "successors")
        probs = real_array(self.probs, "probs")
        check_lists(successors, probs)
        object.__setattr__(self, "successors", freeze(successors, np.int32))
        object.__setattr__(self, "probs", freeze(probs, np.float64))
        if repeated := self._first_repeated_successor():
            state, action, successor = repeated
            raise MDPError(
                f"{at(state, action)}: successor {successor} is listed twice with positive probability; "
                "build with Dynamics.from_lists, which adds them up"
            )

    def _first_repeated_successor(self) -> tuple[int, int, int] | None:
        slots = self.probs.shape[2]
        numbers = np.where(self.probs > 0, self.successors, np.arange(-slots, 0, dtype=np.int32))  # padding: its own
        if slots > 8:
            numbers = np.sort(numbers, axis=-1)
        # Sorted, only neighbours can be equal; for a few slots, comparing all pairs is ten times quicker than sorting.
        for distance in range(1, slots if slots <= 8 else 2):
            repeated = numbers[..., distance:] == numbers[..., :-distance]
            if repeated.any():
                state, action, slot = first_index(repeated)
                return state, action, int(numbers[state, action, slot])
        return None

    @classmethod
    def from_lists(cls, successors: ArrayLike, probs: ArrayLike) -> Dynamics:
        """Dynamics from lists in which a successor may occur more than once in a row: its shares add up."""
        successors, probs = real_array(successors, "successors"), real_array(probs, "probs")
        check_lists(successors, probs)
        states, actions, slots = probs.shape
        row_starts = np.arange(0, probs.size + 1, slots)
        data = (probs.ravel().astype(float), successors.ravel().astype(np.int32), row_starts)
        matrix = sparse.csr_matrix(data, shape=(states * actions, states))
        return cls._from_matrix(matrix, states, actions)

    @classmethod
    def from_dense(cls, probs: ArrayLike) -> Dynamics:
        """Dynamics from a dense array p[s, a, s']."""
        dense = real_array(probs, "probs")
        if dense.ndim != 3 or dense.shape[0] != dense.shape[2] or 0 in dense.shape:
            raise MDPError(f"dense probabilities must have shape [S, A, S]; got {dense.shape}")
        check_probabilities(dense, "dynamics")
        states, actions, _ = dense.shape
        return cls._from_matrix(sparse.csr_matrix(dense.reshape(-1, states)), states, actions)

    @classmethod
    def _from_matrix(cls, matrix: sparse.csr_matrix, states: int, actions: int) -> Dynamics:
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        counts = np.diff(matrix.indptr)
        slots = max(int(counts.max()), 1)
        used = np.arange(slots) < counts[:, None]
        successors = np.zeros((states * actions, slots), np.int32)
        probs = np.zeros((states * actions, slots))
        successors[used], probs[used] = matrix.indices, matrix.data
        shape = (states, actions, slots)
        return cls(successors.reshape(shape), probs.reshape(shape))

    @property
    def num_states(self) -> int:
        """S."""
        return self.probs.shape[0]

    @property
    def num_actions(self) -> int:
        """A."""
        return self.probs.shape[1]

    @cached_property
    def matrix(self) -> sparse.csr_matrix:
        """The [S*A, S] matrix whose row s*A + a is p(. | s, a); it shares the arrays' memory."""
        states, actions, slots = self.probs.shape
        row_starts = np.arange(0, self.probs.size + 1, slots, dtype=np.int32 if self.probs.size < 2**31 else None)
        return sparse.csr_matrix(
            (self.probs.ravel(), self.successors.ravel(), row_starts),
            shape=(states * actions, states),
            copy=False,
        )

    def expect(self, values: Floats) -> Floats:
        """E_{s' ~ p(.|s,a)}[ values(s') ] as an [S, A] array."""
        expected: Floats = (self.matrix @ values).reshape(self.num_states, self.num_actions)
        return expected

    def to_dense(self) -> Floats:
        """The dense array p[s, a, s']."""
        dense: Floats = self.matrix.toarray().reshape(self.num_states, self.num_actions, self.num_states)
        return dense

    def with_probs(self, probs: Floats) -> Dynamics:
        """Other probabilities on the same successors."""
        return Dynamics(self.successors, probs)


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """A finite MDP: dynamics, rewards, start distribution and discount. Immutable and validated.

    Rewards may depend on the next state: r(s, a, s') as an [S, A, K] array beside the successors. Everything
    exact uses r(s, a) = E_p[r(s, a, s')] (`expected_rewards`): no policy's return changes, and the logarithm
    of the average is never below the average of the logarithms, so no bound becomes looser.
    """

    dynamics: Dynamics
    rewards: Floats
    """[S, A], or [S, A, K] for rewards that depend on the next state."""
    start: Floats
    """[S] probabilities of the first state."""
    discount: float

    def __post_init__(self) -> None:
        shape = self.dynamics.probs.shape
        rewards = real_array(self.rewards, "rewards")
        if rewards.shape not in (shape[:2], shape):
            raise MDPError(f"rewards must have shape {shape[:2]} or {shape}; got {rewards.shape}")
        if not np.isfinite(rewards).all():
            index = first_index(~np.isfinite(rewards))
            raise MDPError(f"{at(*index)}: reward {rewards[index]} is not a finite number")
        if np.abs(rewards).max() > LARGEST_REWARD:
            index = first_index(np.abs(rewards) == np.abs(rewards).max())
            raise MDPError(
                f"{at(*index)}: reward {rewards[index]:g} is too large to compute with; scale the rewards down"
            )
        start = real_array(self.start, "start")
        if start.shape != shape[:1]:
            raise MDPError(f"start must have one probability for each of the {shape[0]} states; got {start.shape}")
        check_probabilities(start, "start distribution")
        discount = float(self.discount)
        if not 0.0 < discount < 1.0:
            raise MDPError(f"discount must lie strictly between 0 and 1; got {discount}")
        object.__setattr__(self, "rewards", freeze(rewards, np.float64))
        object.__setattr__(self, "start", freeze(start, np.float64))
        object.__setattr__(self, "discount", discount)

    @classmethod
    def from_dense(
        cls, probs: ArrayLike, rewards: ArrayLike, discount: float, start: ArrayLike | int = 0
    ) -> TabularMDP:
        """From dense arrays: p[s, a, s'], r[s] or r[s, a] or r[s, a, s'], and a start state or distribution."""
        return cls.from_dynamics(Dynamics.from_dense(probs), rewards, discount, start)

    @classmethod
    def from_dynamics(
        cls, dynamics: Dynamics, rewards: ArrayLike, discount: float, start: ArrayLike | int = 0
    ) -> TabularMDP:
        """From dynamics, rewards r[s] or r[s, a] or r[s, a, s'] by state number, and a start state or distribution."""
        given = real_array(rewards, "rewards")
        states, actions = dynamics.num_states, dynamics.num_actions
        if given.shape == (states, actions, states):
            if not np.isfinite(given).all():
                index = first_index(~np.isfinite(given))
                raise MDPError(f"state {index[0]}, action {index[1]}: reward {given[index]} is not a finite number")
            given = np.take_along_axis(given, dynamics.successors.astype(np.int64), axis=2)
        elif given.shape == (states,):
            given = np.broadcast_to(given[:, None], (states, actions))
        return cls(dynamics, given, start_distribution(start, states), discount)

    @property
    def num_states(self) -> int:
        """S."""
        return self.dynamics.num_states

    @property
    def num_actions(self) -> int:
        """A."""
        return self.dynamics.num_actions

    @cached_property
    def expected_rewards(self) -> Floats:
        """r(s, a) as an [S, A] array: rewards that depend on the next state are averaged over p."""
        if self.rewards.ndim == 2:
            return self.rewards
        return freeze((self.dynamics.probs * self.rewards).sum(axis=-1), np.float64)

    @cached_property
    def log_rewards(self) -> Floats:
        """log r(s, a), or an error that names the first reward that has no logarithm."""
        rewards = self.expected_rewards
        if (rewards <= 0).any():
            state, action = first_index(rewards <= 0)
            raise MDPError(
                f"state {state}, action {action}: reward {rewards[state, action]:g} has no logarithm, and MnM's "
                "bounds need rewards > 0; add an explicit offset to every reward, for instance "
                f"mdp.with_reward_offset({suggested_offset(rewards):.12g})"
            )
        return freeze(np.log(rewards), np.float64)

    def check_no_negative_rewards(self) -> None:
        """An error that names the first reward below 0: then the return may have no logarithm."""
        rewards = self.expected_rewards
        if (rewards < 0).any():
            index = first_index(rewards < 0)
            raise MDPError(
                f"{at(*index)}: reward {rewards[index]:g} is negative, and rewards below 0 have no logarithm; "
                "add an explicit offset to every reward, for instance "
                f"mdp.with_reward_offset({suggested_offset(rewards):.12g})"
            )

    def with_reward_offset(self, offset: float) -> TabularMDP:
        """The same MDP with `offset` added to every reward.

        Every policy's return grows by the same offset / (1 - discount), so the best policy stays the best.
        """
        return replace(self, rewards=self.rewards + float(offset))

    def dense_arrays(self) -> tuple[Floats, Floats]:
        """p[s, a, s'] and the expected r[s, a]: what `from_dense` takes."""
        return self.dynamics.to_dense(), np.array(self.expected_rewards)


def suggested_offset(rewards: Floats) -> float:
    """A round offset that makes the smallest reward positive but small against the spread of the rewards."""
    lowest = float(rewards.min())
    spread = float(np.ptp(rewards)) or abs(lowest) or 1.0
    small = max(10.0 ** np.floor(np.log10(spread) - 2), 1e-8 * abs(lowest), 1e-300)
    return float(np.ceil((small - lowest) / small) * small)


def start_distribution(start: ArrayLike | int, num_states: int) -> Floats:
    """A start state's number as a distribution; a distribution as it is."""
    if np.ndim(start) > 0:
        return real_array(start, "start")
    number = start if isinstance(start, int) else real_array(start, "start")[()]  # an int may exceed 64 bits
    if not (0 <= number < num_states and number == int(number)):
        raise MDPError(f"start state {number} is not a state; states are 0 to {num_states - 1}")
    return np.asarray(np.arange(num_states) == number, dtype=np.float64)


def check_lists(successors: NDArray[Any], probs: NDArray[Any]) -> None:
    """Successor lists are whole state numbers and probabilities of one shape [S, A, K]."""
    if successors.ndim != 3 or probs.shape != successors.shape or 0 in probs.shape:
        raise MDPError(
            f"successors and probs must be two non-empty arrays of one shape [S, A, K]; "
            f"got {successors.shape} and {probs.shape}"
        )
    with np.errstate(invalid="ignore"):
        outside = ~((successors >= 0) & (successors < len(successors)) & (successors == np.floor(successors)))
    if outside.any():
        index = first_index(outside)
        raise MDPError(
            f"{at(*index)}: successor {successors[index]} is not a state; states are 0 to {len(successors) - 1}"
        )
    check_probabilities(probs, "dynamics")


def check_probabilities(probs: NDArray[Any], what: str) -> None:
    """Probabilities are finite, not negative, and sum to one along the last axis."""
    wrong = ~(np.isfinite(probs) & (probs >= 0))
    if wrong.any():
        index = first_index(wrong)
        place = at(*index[:2]) if probs.ndim == 3 else at(*index)
        raise MDPError(f"{what}: {place}: {float(probs[index])} is not a probability")
    with np.errstate(over="ignore"):
        sums = probs.sum(axis=-1)
    wrong = np.abs(sums - 1.0) > ROW_SUM_TOLERANCE
    if wrong.any():
        index = first_index(np.atleast_1d(wrong))
        place = f"{at(*index)}: " if probs.ndim > 1 else ""
        raise MDPError(
            f"{what}: {place}probabilities sum to {float(np.atleast_1d(sums)[index]):.10g}, not 1; "
            "normalise them or add the missing outcome"
        )


def deterministic_policy(actions: NDArray[np.integer[Any]], num_actions: int) -> Floats:
    """The [S, A] policy that takes actions[s] in state s."""
    return np.asarray(actions[:, None] == np.arange(num_actions), dtype=np.float64)


def uniform_policy(mdp: TabularMDP) -> Floats:
    """The [S, A] policy that takes every action with the same probability."""
    return np.full((mdp.num_states, mdp.num_actions), 1.0 / mdp.num_actions)


def check_policy(mdp: TabularMDP, policy: Floats) -> None:
    """A policy is an [S, A] array of action probabilities."""
    if np.shape(policy) != (mdp.num_states, mdp.num_actions):
        raise MDPError(
            f"a policy is an array of action probabilities of shape {(mdp.num_states, mdp.num_actions)}; "
            f"got {np.shape(policy)} (for action numbers, use deterministic_policy)"
        )
    check_probabilities(np.asarray(policy), "policy")


def check_model(mdp: TabularMDP, model: Dynamics) -> None:
    """A model has the MDP's states and actions; its successors may be others."""
    if model.probs.shape[:2] != mdp.dynamics.probs.shape[:2]:
        raise MDPError(
            f"the model has {model.num_states} states and {model.num_actions} actions, "
            f"the MDP {mdp.num_states} and {mdp.num_actions}"
        )
