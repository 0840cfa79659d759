"""Exact evaluation of a fixed policy: values, occupancies, and fixed points of monotone operators.

With P^pi(s, s') = sum_a pi(a|s) p(s'|s,a) and r^pi(s) = sum_a pi(a|s) r(s,a),

    V = r^pi + discount * P^pi V,

a sparse linear system. The same solver serves every model q in place of p and every augmented reward in
place of r, and, through Newton's method, the bounds whose recursion is not linear.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sparse
import scipy.sparse.linalg
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order

from mnm.tabular.mdp import Dynamics, Floats, TabularMDP, check_model, check_policy

DIRECT_STATES = 500
"""Up to here an LU decomposition is quick for any chain; beyond, it is for those that mix slowly, such as grids."""
SMALL = 2000
"""Beyond this many states the compiled sweeps of gauss_seidel.py solve and evaluate MDPs."""
NEWTON_STEPS = 200


class ConvergenceError(RuntimeError):
    """An iteration stopped short of the accuracy asked for; the message says how short."""


def chain(dynamics: Dynamics, weights: Floats) -> sparse.csr_matrix:
    """The [S, S] matrix sum_a weights(s, a) p(s'|s, a); with a policy as weights, its Markov chain."""
    states = dynamics.num_states
    data = weights[:, :, None] * dynamics.probs
    used = data > 0
    row_starts = np.concatenate([[0], np.cumsum(used.reshape(states, -1).sum(axis=1))])
    return sparse.csr_matrix((data[used], dynamics.successors[used], row_starts), shape=(states, states))


def solve_linear(weights: sparse.csr_matrix, constants: Floats) -> Floats:
    """The x with x = constants + weights x, for weights >= 0 whose spectral radius is below one."""
    states = len(constants)
    system = (sparse.identity(states, format="csr") - weights).tocsc()
    if states > DIRECT_STATES:
        # A few iterations are enough where the chain mixes fast, which is also where LU would fill in.
        with np.errstate(all="ignore"):  # it can break down, and is checked
            solution, _ = scipy.sparse.linalg.bicgstab(system, constants, x0=constants, rtol=1e-14, maxiter=200)
            residual = np.abs(constants + weights @ solution - solution).max()
        if residual <= 1e-11 * max(1.0, float(np.abs(solution).max())):
            return solution
    # I - W is diagonally dominant: elimination needs no pivoting, so the pattern stays symmetric.
    try:
        return scipy.sparse.linalg.splu(system, diag_pivot_thresh=0.0).solve(constants)
    except RuntimeError:  # SuperLU's word for a zero pivot
        raise ConvergenceError("a linear system is singular to rounding: the rewards differ by too much") from None


def evaluate(dynamics: Dynamics, rewards: Floats, policy: Floats, discount: float) -> Floats:
    """V(s) = E[ sum_t discount^t rewards(s_t, a_t) | s_0 = s ] under the dynamics and the policy, per state."""
    policy_rewards: Floats = (policy * rewards).sum(axis=1)
    if dynamics.num_states <= SMALL:
        return solve_linear(discount * chain(dynamics, policy), policy_rewards)
    # A chain is an MDP with one action: the sweeps that solve large MDPs evaluate it.
    from mnm.tabular.gauss_seidel import sweep_to_fixed_point

    states = dynamics.num_states
    if (policy.max(axis=1) == 1.0).all():
        chosen = (np.arange(states), policy.argmax(axis=1))
        successors, probs = dynamics.successors[chosen][:, None], dynamics.probs[chosen][:, None]
    else:
        successors = dynamics.successors.reshape(states, 1, -1)
        probs = (policy[:, :, None] * dynamics.probs).reshape(states, 1, -1)
    tolerance = 1e-11 * max(float(np.abs(policy_rewards).max()), 1e-300) / (1.0 - discount)
    values, _, error, _ = sweep_to_fixed_point(
        successors, probs, policy_rewards[:, None], discount, tolerance, entropic=False
    )
    if error > 100 * tolerance:
        raise ConvergenceError(f"the policy's values are known only to {error:.3g} ({states} states)")
    return values


def evaluate_policy(mdp: TabularMDP, policy: Floats) -> Floats:
    """The policy's expected discounted return from every state, exactly."""
    check_policy(mdp, policy)
    return evaluate(mdp.dynamics, mdp.expected_rewards, policy, mdp.discount)


def return_variance(mdp: TabularMDP, policy: Floats) -> Floats:
    """Var[ sum_t discount^t r(s_t, a_t) | s_0 = s ], per state, by the law of total variance.

    Var(s) = Var_{a,s'}[ r(s,a) + discount V(s') ] + discount^2 E[ Var(s') ].
    """
    values = evaluate_policy(mdp, policy)
    outcomes = mdp.expected_rewards[:, :, None] + mdp.discount * values[mdp.dynamics.successors]
    weights = policy[:, :, None] * mdp.dynamics.probs
    one_step = (weights * (outcomes - values[:, None, None]) ** 2).sum(axis=(1, 2))
    return solve_linear(mdp.discount**2 * chain(mdp.dynamics, policy), one_step)


def action_values(mdp: TabularMDP, values: Floats) -> Floats:
    """Q(s, a) = r(s, a) + discount * E_p[V(s')]."""
    return mdp.expected_rewards + mdp.discount * mdp.dynamics.expect(values)


def occupancy(mdp: TabularMDP, policy: Floats, model: Dynamics | None = None) -> Floats:
    """rho(s, a) = (1 - discount) sum_t discount^t P(s_t = s, a_t = a), an [S, A] distribution.

    Under the real dynamics, or under a model of them.
    """
    check_policy(mdp, policy)
    dynamics = mdp.dynamics if model is None else model
    check_model(mdp, dynamics)
    flow = sparse.csr_matrix(mdp.discount * chain(dynamics, policy).T)
    visits = solve_linear_transposed(flow, (1.0 - mdp.discount) * mdp.start)
    return visits[:, None] * policy


def solve_linear_transposed(flow: sparse.csr_matrix, sources: Floats) -> Floats:
    """The x with x = sources + flow x, where the columns of flow, not its rows, sum to less than one."""
    states = len(sources)
    if states <= DIRECT_STATES:
        return solve_linear(flow, sources)
    # Power series: its error is known without a residual check, as mass is conserved.
    total, term = sources.copy(), sources
    while term.sum() > 1e-14 * sources.sum():
        term = flow @ term
        total += term
    return total


def can_reach(edges: sparse.csr_matrix, targets: NDArray) -> NDArray:
    """The states from which some path of positive weight leads to a target (targets included)."""
    if not targets.any():
        return targets
    # Breadth first, backwards, from one extra node that stands before every target.
    backwards = sparse.block_array([[edges.T, None], [sparse.csr_matrix(targets.astype(float)), [[0.0]]]])
    visited = breadth_first_order(backwards.tocsr(), len(targets), return_predecessors=False)
    reached = np.zeros(len(targets) + 1, dtype=bool)
    reached[visited] = True
    return reached[:-1]


def newton_fixed_point(
    operator: Callable[[Floats], tuple[Floats, sparse.csr_matrix]], values: Floats, tolerance: float = 1e-13
) -> Floats:
    """The fixed point of a monotone operator, given the operator and its derivative at a point.

    Newton's method is policy iteration in disguise: solve values = F(v) + F'(v) (values - v), repeat. It stops
    when a step is below `tolerance` relative to the values' size.
    """
    smallest_step = np.inf
    for _ in range(NEWTON_STEPS):
        image, derivative = operator(values)
        step = solve_linear(derivative, image - values)
        values = values + step
        size = float(np.abs(step).max(initial=0.0))
        if size <= tolerance * max(1.0, float(np.abs(values).max(initial=0.0))):
            return values
        if size >= smallest_step and size < 1e-9:  # rounding, not progress
            return values
        smallest_step = min(smallest_step, size)
    raise ConvergenceError(f"Newton's method still moved by {size:.3g} after {NEWTON_STEPS} steps")
