"""The solver for large MDPs: policy iteration with sweeps in the order of the values.

The method is policy iteration with inexact evaluation. What makes it fast is the order of the states: they
are renumbered once, from the most to the least valuable (roughly, by a first guess). A good policy moves
towards valuable states, so in this order one Gauss-Seidel sweep carries values along whole paths, where a
Jacobi sweep carries them one step; and neighbours lie close together in memory. What Gauss-Seidel sweeps
damp slowly is removed by extrapolation.

Two Bellman operators are served, both maxima over actions of monotone convex functions of the next values:
    plain     r(s, a) + discount * sum_k p_k V(s_k)
    entropic  c(s, a) + discount * log sum_k p_k exp V(s_k),   c = (1 - discount) * log(r / (1 - discount)).
Everything after `_improve`, which linearises the operator at the current values, is the same for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

SWEEPS = (10, 20, 40, 80)
"""How many before each extrapolation: the slower it goes, the more must fade first."""
ENOUGH = 0.1
"""A policy is evaluated well enough once changes fall to this fraction of the first."""
PATIENCE = 50
"""Improvements without halving the error bound before turning cautious."""
HOPELESS = 1000
"""Improvements without halving it before giving up: only rounding errors are left."""
MAX_IMPROVEMENTS = 20_000


@njit(cache=True)
def _predecessors(successors, probs):
    """List the distinct predecessors of every state: those of state s are found[start[s]:start[s + 1]]."""
    states, actions, width = probs.shape
    start = np.zeros(states + 1, np.int64)
    found = np.empty(0, np.int32)
    for filling in (False, True):  # first count, then fill
        position = start[:-1].copy()
        latest = np.full(states, -1, np.int32)  # repeats come one after the other, so the latest tells them
        for s in range(states):
            for a in range(actions):
                for k in range(width):
                    successor = successors[s, a, k]
                    if probs[s, a, k] > 0.0 and latest[successor] != s:
                        latest[successor] = s
                        if filling:
                            found[position[successor]] = s
                            position[successor] += 1
                        else:
                            start[successor + 1] += 1
        if not filling:
            start = np.cumsum(start)
            found = np.empty(start[-1], np.int32)
    return start, found


@njit(cache=True)
def _optimistic_value(successors, probs, rewards, discount, values, s):
    """Best value of `s` if it could stay where it is whenever it would move to a state of less value."""
    best = values[s]
    for a in range(probs.shape[1]):
        total = rewards[s, a]
        leaving = 1.0 - discount
        for k in range(probs.shape[2]):
            value = values[successors[s, a, k]]
            if value > values[s]:
                total += discount * probs[s, a, k] * value
                leaving += discount * probs[s, a, k]
        best = max(best, total / leaving)
    return best


@njit(cache=True)
def _first_guess(successors, probs, rewards, discount):
    """Spread the values of the best states to the others, wave by wave.

    The optimistic value of a state depends on more valuable states only, so about one visit to each state is
    enough. The guess need not be exact: it gives the order of the states and a good first policy.
    """
    states = len(rewards)
    values = np.empty(states)
    for s in range(states):
        values[s] = rewards[s].max() / (1.0 - discount)
    # Only a rise of a tenth of the height above this floor counts. No height is 0, to hide rounding errors.
    floor = values.min() - 1e-9 * (values.max() - values.min())
    start, predecessors = _predecessors(successors, probs)
    queue = np.empty(states, np.int32)
    queued = np.zeros(states, np.bool_)
    head = size = 0
    for s in range(states):
        value = _optimistic_value(successors, probs, rewards, discount, values, s)
        if value - values[s] > 0.1 * (value - floor):
            queue[size] = s
            queued[s] = True
            size += 1
    visits = 0
    while size > 0 and visits < 4 * states:
        s = queue[head]
        head = (head + 1) % states
        size -= 1
        visits += 1
        queued[s] = False
        value = _optimistic_value(successors, probs, rewards, discount, values, s)
        rise = value - values[s]
        values[s] = value
        if rise > 0.1 * (value - floor):
            for i in range(start[s], start[s + 1]):
                before = predecessors[i]
                if not queued[before] and values[before] < value:
                    queue[(head + size) % states] = before
                    queued[before] = True
                    size += 1
    return values


@njit(cache=True)
def _renumber(successors, probs, rewards, order):
    """The same process with state order[i] called i."""
    states, actions, width = probs.shape
    rank = np.empty(states, np.int32)
    for i in range(states):
        rank[order[i]] = i
    new_successors = np.empty_like(successors)
    new_probs = np.empty_like(probs)
    new_rewards = np.empty_like(rewards)
    for i in range(states):
        for a in range(actions):
            new_rewards[i, a] = rewards[order[i], a]
            for k in range(width):
                new_successors[i, a, k] = rank[successors[order[i], a, k]]
                new_probs[i, a, k] = probs[order[i], a, k]
    return new_successors, new_probs, new_rewards


@njit(cache=True)
def _improve(successors, probs, rewards, discount, entropic, values, residual, actions, targets, weights, offsets):
    """Apply the Bellman operator and linearise it at `values`, filling the last five arrays.

    The residual is the operator's change. The correction x that makes it vanish, for the chosen actions and
    to first order, solves x = offsets + sum_k weights[:, k] * x[targets[:, k]]; the steps from a state to
    itself are solved for, so that they do not slow the sweeps down. In the entropic case the probabilities
    to first order are p_k exp V(s_k), normalised.
    """
    states, choices, width = probs.shape
    top = values.max()
    worth = np.exp(values - top) if entropic else values
    for s in range(states):
        best = -np.inf
        best_mean = 1.0
        chosen = 0
        for a in range(choices):
            mean = 0.0
            for k in range(width):
                mean += probs[s, a, k] * worth[successors[s, a, k]]
            score = rewards[s, a] + discount * (np.log(mean) + top if entropic else mean)
            if score > best:
                best = score
                best_mean = mean
                chosen = a
        residual[s] = best - values[s]
        actions[s] = chosen
        staying = 0.0
        for k in range(width):
            target = successors[s, chosen, k]
            weight = discount * probs[s, chosen, k]
            if entropic:
                weight *= worth[target] / best_mean
            if target == s:
                staying += weight
                weight = 0.0
            targets[s, k] = target
            weights[s, k] = weight
        for k in range(width):
            weights[s, k] /= 1.0 - staying
        offsets[s] = residual[s] / (1.0 - staying)
    return residual.min(), residual.max()


@njit(cache=True)
def _sweep(targets, weights, offsets, x, times):
    """Gauss-Seidel sweeps for x = offsets + weights x[targets], in place."""
    for _ in range(times):
        for s in range(len(x)):
            total = offsets[s]
            for k in range(targets.shape[1]):
                total += weights[s, k] * x[targets[s, k]]
            x[s] = total


@njit(cache=True)
def _extrapolate(before, middle, after, longest):
    """Move `after` on along the last change, as far as makes the next change smallest, at most `longest`."""
    product = square = 0.0
    for s in range(len(after)):
        change = middle[s] - before[s]
        decrease = change - (after[s] - middle[s])
        product += change * decrease
        square += decrease * decrease
    step = min(product / square - 1.0, longest) if square > 0.0 else 0.0
    if step > 0.0:
        for s in range(len(after)):
            after[s] += step * (after[s] - middle[s])


def _correction(targets: Any, weights: Any, offsets: Any, discount: float, extrapolating: bool) -> Any:
    """Solve x = offsets + weights x[targets] roughly: the next policy matters more than the last digits."""
    x = np.zeros_like(offsets)
    enough = ENOUGH * np.abs(offsets).max()
    longest = discount / (1.0 - discount)  # what removes a mode that shrinks by no more than the discount
    for sweeps in SWEEPS:
        _sweep(targets, weights, offsets, x, sweeps - 2)
        before = x.copy()
        _sweep(targets, weights, offsets, x, 1)
        middle = x.copy()
        _sweep(targets, weights, offsets, x, 1)
        change = np.abs(x - middle).max()
        if extrapolating:
            _extrapolate(before, middle, x, longest)
        if change <= enough:
            break
    return x


def sweep_to_fixed_point(
    successors: NDArray[np.int32],
    probs: NDArray[np.float64],
    rewards: NDArray[np.float64],
    discount: float,
    tolerance: float,
    *,
    entropic: bool,
) -> tuple[NDArray[np.float64], NDArray[np.int32], float, int]:
    """Values, greedy actions, error bound and iterations for the plain or the entropic Bellman operator.

    `successors` and `probs` have shape [states, actions, width], `rewards` (c in the entropic case) [states, actions].
    The error bound returned is above the tolerance only where rounding, or MAX_IMPROVEMENTS, forbids better.
    """
    states, _, width = probs.shape
    lowest, highest = rewards.min() / (1.0 - discount), rewards.max() / (1.0 - discount)
    horizon = discount / (1.0 - discount)
    rounding = 8.0 * np.finfo(float).eps * max(abs(lowest), abs(highest)) * horizon
    guess = _first_guess(successors, probs, rewards, discount)
    order = np.argsort(-guess)
    values = guess[order]
    process: Any = _renumber(successors, probs, rewards, order)
    residual, offsets, actions = np.empty(states), np.empty(states), np.empty(states, np.int32)
    targets, weights = np.empty((states, width), np.int32), np.empty((states, width))
    best_bound, best_count, cautious = np.inf, 0, False
    for count in range(MAX_IMPROVEMENTS):
        low, high = _improve(*process, discount, entropic, values, residual, actions, targets, weights, offsets)
        bound = horizon * (high - low) / 2.0
        if bound <= max(tolerance, rounding):
            break
        if bound < best_bound / 2.0:
            best_bound, best_count = bound, count
        if count - best_count > HOPELESS:
            break
        if count - best_count > PATIENCE and not cautious:
            # Nothing proves that extrapolated values converge. But from values that the operator nowhere lowers,
            # sweeps alone can only rise towards the solution; lowering all values by a constant gives such values.
            cautious = True
            values -= max(0.0, -low) / (1.0 - discount)
        else:
            values += _correction(targets, weights, offsets, discount, not cautious)
        np.clip(values, lowest, highest, out=values)  # the solution is in this range, so this takes values no further
    values += residual + horizon * (low + high) / 2.0
    original_values, original_actions = np.empty_like(values), np.empty_like(actions)
    original_values[order], original_actions[order] = values, actions
    return original_values, original_actions, float(bound), count + 1
