"""The ladder of bounds on the log of the expected return, exact, for any policy and any model.

For every MDP with positive rewards, every policy pi and every model q,

    paper_bound <= sharper_bound <= best_hazard_bound <= tight_bound <= log_expected_return,
    paper_bound <= learned_discount_bound <= best_hazard_bound.

In symbols: p(s'|s,a) the real dynamics (`mdp.dynamics`), q(s'|s,a) the model, r(s,a) > 0 the reward, E_q the
expectation over trajectories of pi in q that start from `mdp.start`. Every function returns one number.

A model that puts mass where p has none makes log p/q = -inf on paths that it can take. The bounds that average
log p/q over those paths are then -inf, and a ModelSupportWarning names the transition. The two sharpest bounds
stay finite: they can stop the trajectory before.
"""

from __future__ import annotations

import warnings

import numpy as np
import scipy.sparse as sparse
from numpy.typing import NDArray

from mnm.tabular.evaluation import (
    can_reach,
    chain,
    evaluate,
    evaluate_policy,
    newton_fixed_point,
    occupancy,
)
from mnm.tabular.mdp import Dynamics, Floats, MDPError, TabularMDP, at, check_model, check_policy, first_index

TAIL = 1e-13
"""Series over time are cut where what is left is below this share of the sum."""
SETTLED = 1e-15
"""A distribution over states has settled when a step changes it by less than this."""


class ModelSupportWarning(UserWarning):
    """A model puts probability where the real dynamics have none, so a bound is -inf."""


# --- the ratio p / q ---------------------------------------------------------------------------------------


def real_probs_at(dynamics: Dynamics, model: Dynamics) -> Floats:
    """p(s'|s,a) at the model's successors, an [S, A, K of the model] array."""
    if np.array_equal(model.successors, dynamics.successors):
        return dynamics.probs
    probs = np.zeros(model.probs.shape)
    for slot in range(dynamics.probs.shape[2]):
        same = model.successors == dynamics.successors[:, :, slot, None]
        probs += same * dynamics.probs[:, :, slot, None]
    return probs


def log_ratio(dynamics: Dynamics, model: Dynamics) -> Floats:
    """log p(s'|s,a) / q(s'|s,a) at the model's successors: -inf where only q has mass, 0 where q has none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(real_probs_at(dynamics, model)) - np.log(model.probs)
    return np.where(model.probs > 0, ratio, 0.0)


def kl_divergence(model: Dynamics, dynamics: Dynamics) -> Floats:
    """KL(q || p)(s, a) = -E_q[log p/q], an [S, A] array; +inf where q has mass and p has none."""
    return -expected_log_ratio(dynamics, model)


def expected_log_ratio(dynamics: Dynamics, model: Dynamics) -> Floats:
    """E_{s'~q}[ log p/q ], an [S, A] array."""
    ratio = log_ratio(dynamics, model)
    expected: Floats = np.where(model.probs > 0, model.probs * ratio, 0.0).sum(axis=-1)
    return expected


def average(distribution: Floats, values: Floats) -> float:
    """E[values], where what has probability 0 does not count even if it is infinite."""
    return float(distribution @ np.where(distribution > 0, values, 0.0))


# --- what is bounded ----------------------------------------------------------------------------------------


def log_expected_return(mdp: TabularMDP, policy: Floats) -> float:
    """log E_pi[ sum_t discount^t r(s_t, a_t) ] in the real dynamics: what every bound is below."""
    expected = average(mdp.start, evaluate_policy(mdp, policy))
    if expected < 0:
        raise MDPError(f"the expected return is {expected:g}: it has no logarithm; add a reward offset")
    with np.errstate(divide="ignore"):
        return float(np.log(expected))


def model_return(mdp: TabularMDP, policy: Floats, model: Dynamics) -> float:
    """E_q[ sum_t discount^t r(s_t, a_t) ]: the return in the model with the plain reward. No bound at all."""
    _check(mdp, policy, model)
    return average(mdp.start, evaluate(model, mdp.expected_rewards, policy, mdp.discount))


# --- the paper's bound and the sharper one ------------------------------------------------------------------


def penalised_values(mdp: TabularMDP, policy: Floats, model: Dynamics, rewards: Floats, ratio_weight: float) -> Floats:
    """V(s) = E_q[ sum_t discount^t ( rewards(s_t, a_t) + ratio_weight log p/q ) | s_0 = s ].

    -inf for the states from which the policy and the model can take a transition that p cannot.
    """
    _check(mdp, policy, model)
    ratios = expected_log_ratio(mdp.dynamics, model)
    impossible = np.isneginf(ratios)
    penalised = rewards + ratio_weight * np.where(impossible, 0.0, ratios)
    values = evaluate(model, penalised, policy, mdp.discount)
    taken = np.any((policy > 0) & impossible, axis=1)
    if not taken.any():
        return values
    lost = can_reach(chain(model, policy), taken)
    if average(mdp.start, lost.astype(float)) > 0:
        _warn_of_missing_support(mdp, policy, model)
    # A state that is not lost never moves into a lost one, so its value does not depend on theirs.
    return np.where(lost, -np.inf, values)


def augmented_rewards(mdp: TabularMDP) -> Floats:
    """(1-discount) log r - (1-discount) log(1-discount): the augmented reward but for the ratio (Eq. aug-reward)."""
    rest = 1.0 - mdp.discount
    return rest * (mdp.log_rewards - np.log(rest))


def transition_augmented_rewards(mdp: TabularMDP) -> Floats:
    """The same with r(s, a, s') inside the logarithm, [S, A, K]; padding slots are 0."""
    if mdp.rewards.ndim == 2:
        return np.repeat(augmented_rewards(mdp)[:, :, None], mdp.dynamics.probs.shape[2], axis=2)
    possible = mdp.dynamics.probs > 0
    missing = possible & (mdp.rewards <= 0)
    if missing.any():
        index = first_index(missing)
        raise MDPError(f"{at(*index)}: reward {mdp.rewards[index]:g} has no logarithm; add an explicit reward offset")
    rest = 1.0 - mdp.discount
    return np.where(possible, rest * np.log(np.where(possible, mdp.rewards, 1.0) / rest), 0.0)


def paper_bound(mdp: TabularMDP, policy: Floats, model: Dynamics) -> float:
    """E_q[ sum_t discount^t ( (1-discount) log r + log p/q - (1-discount) log(1-discount) ) ]  (Eq. lb).

    Departs from Eq. augmented-reward, which drops the factor (1-discount) and the constant.
    """
    return average(mdp.start, penalised_values(mdp, policy, model, augmented_rewards(mdp), 1.0))


def sharper_bound(mdp: TabularMDP, policy: Floats, model: Dynamics) -> float:
    """E_q[ sum_t discount^t ( (1-discount) log r + discount log p/q - (1-discount) log(1-discount) ) ].

    The paper's proof also counts the transition out of the rewarded state, which the return does not depend
    on. Left out, the ratio has weight `discount`: never below the paper's bound, as E_q log p/q <= 0.
    """
    return average(mdp.start, penalised_values(mdp, policy, model, augmented_rewards(mdp), mdp.discount))


def best_sharper_bound(mdp: TabularMDP, policy: Floats) -> float:
    """max_q E_q[ sum_t discount^t ( (1-discount) log r + discount log p/q - (1-discount) log(1-discount) ) ].

    The sharper bound at MnM's model for a fixed policy, q ~ p exp(V), V = E_pi[ c + discount log E_p exp(V(s')) ] with
    c the augmented rewards.
    """
    check_policy(mdp, policy)
    rewards = augmented_rewards(mdp)

    def operator(values: Floats) -> tuple[Floats, sparse.csr_matrix]:
        image = (policy * (rewards + mdp.discount * log_mean_exp(mdp.dynamics, values))).sum(axis=1)
        return image, mdp.discount * chain(exponentially_tilted(mdp.dynamics, values), policy)

    return average(mdp.start, newton_fixed_point(operator, np.full(mdp.num_states, rewards.min() / (1 - mdp.discount))))


# --- learned discounts and hazards --------------------------------------------------------------------------


def learned_discount_bound(mdp: TabularMDP, policy: Floats, model: Dynamics) -> float:
    """log sum_H discount^H exp( E_q[ log r(s_H, a_H) + sum_{t<=H} log p/q ] ): Eq. lb2 with the best gamma(t).

    Eq. lb2 is sum_H gamma(H) ( c_H - log gamma(H) ) with c_H = H log discount + E_q[log r_H + sum_{t<=H}
    log p/q] and gamma a distribution over time; its maximum is at gamma(H) = softmax(c)_H. As printed, the
    transition out of the rewarded state counts. The sum is cut where the rest is negligible.
    """
    _check(mdp, policy, model)
    # Per state, so that a step in time costs one product with the chain.
    ratios = np.where(policy > 0, policy * expected_log_ratio(mdp.dynamics, model), 0.0).sum(axis=1)
    log_rewards = (policy * mdp.log_rewards).sum(axis=1)
    transposed = chain(model, policy).T.tocsr()
    largest_log_reward = float(mdp.log_rewards.max())
    log_sum = -np.inf
    states, path_ratio, time = mdp.start, 0.0, 0
    while True:
        path_ratio += average(states, ratios)
        log_discount = time * np.log(mdp.discount)
        log_sum = np.logaddexp(log_sum, log_discount + average(states, log_rewards) + path_ratio)
        log_tail = log_discount + largest_log_reward + path_ratio - np.log(1.0 - mdp.discount)
        if log_tail < log_sum + np.log(TAIL) or np.isneginf(path_ratio):
            break
        next_states = transposed @ states
        if np.abs(next_states - states).sum() < SETTLED:  # then the rest is a geometric series
            log_factor = np.log(mdp.discount) + average(states, ratios)
            log_term = log_discount + average(states, log_rewards) + path_ratio
            log_sum = np.logaddexp(log_sum, log_term + log_factor - np.log(-np.expm1(log_factor)))
            break
        states = next_states
        time += 1
    if np.isneginf(log_sum):
        _warn_of_missing_support(mdp, policy, model)
    return float(log_sum)


def best_hazard_values(mdp: TabularMDP, policy: Floats, model: Dynamics) -> Floats:
    """l(s) = E_pi[ log( r + discount exp( E_q[ log p/q + l(s') ] ) ) ], per state; see `best_hazard_bound`."""
    _check(mdp, policy, model)
    log_rewards = mdp.log_rewards
    ratios = expected_log_ratio(mdp.dynamics, model)
    log_discount = np.log(mdp.discount)

    def operator(values: Floats) -> tuple[Floats, sparse.csr_matrix]:
        log_go_on = log_discount + ratios + model.expect(values)
        log_totals = np.logaddexp(log_rewards, log_go_on)
        return (policy * log_totals).sum(axis=1), chain(model, policy * np.exp(log_go_on - log_totals))

    return newton_fixed_point(operator, np.full(mdp.num_states, log_rewards.min()))


def best_hazard_bound(mdp: TabularMDP, policy: Floats, model: Dynamics) -> float:
    """max_h E_{q,h}[ sum_{t<H} ( log discount - log(1-h_t) + log p/q ) + log r_H - log h_H ], h_t = h(s_t, a_t).

    The model also chooses when to stop: h(s, a) is the probability that (s, a) is the rewarded step H. The
    best hazard for given q is h = r / (r + discount exp(E_q[log p/q + l(s')])), which leaves
    l(s,a) = log( r + discount exp(E_q[log p/q + l(s')]) ), l(s) = E_pi l(s,a). h = 1-discount gives the
    sharper bound. Where q leaves p's support, the best hazard stops at once (h = 1, l = log r).
    """
    return average(mdp.start, best_hazard_values(mdp, policy, model))


def best_hazard(mdp: TabularMDP, policy: Floats, model: Dynamics) -> Floats:
    """h(s, a) = r / (r + discount exp(E_q[log p/q + l(s')])): where the best stopping rule stops, [S, A]."""
    values = best_hazard_values(mdp, policy, model)
    ratios = expected_log_ratio(mdp.dynamics, model)
    log_go_on = np.log(mdp.discount) + ratios + model.expect(values)
    return np.exp(mdp.log_rewards - np.logaddexp(mdp.log_rewards, log_go_on))


# --- tight bound the logarithm: tight at q ~ p V -------------------------------------------------------


def tight_values(mdp: TabularMDP, policy: Floats, model: Dynamics) -> Floats:
    """l(s) = E_pi E_q[ log( r + discount (p/q) exp l(s') ) ], per state; see `tight_bound`.

    Rewards may be 0 here: l is -inf only where the model can lead to a place with nothing more to gain.
    """
    _check(mdp, policy, model)
    mdp.check_no_negative_rewards()
    rewards = mdp.expected_rewards
    ratios = log_ratio(mdp.dynamics, model)
    lost = _without_gain(policy, model, rewards, ratios)
    with np.errstate(divide="ignore"):
        log_rewards = np.log(rewards)[:, :, None]
    reachable = ~lost[model.successors] & (model.probs > 0)
    log_weights = np.where(reachable, np.log(mdp.discount) + ratios, -np.inf)
    weights = np.where(lost, 0.0, 1.0)[:, None, None] * policy[:, :, None] * model.probs
    used = weights > 0
    rows = np.nonzero(used)[0]
    columns, log_reward, log_weight, weight = (
        model.successors[used],
        np.broadcast_to(log_rewards, used.shape)[used],
        log_weights[used],
        weights[used],
    )
    row_starts = np.searchsorted(rows, np.arange(mdp.num_states + 1))

    def operator(values: Floats) -> tuple[Floats, sparse.csr_matrix]:
        log_go_on = log_weight + values[columns]
        log_total = np.logaddexp(log_reward, log_go_on)
        image = np.bincount(rows, weights=weight * log_total, minlength=mdp.num_states).astype(np.float64)
        derivative = weight * np.exp(log_go_on - log_total)
        return image, sparse.csr_matrix((derivative, columns, row_starts), shape=(mdp.num_states,) * 2)

    # From below: there the derivative is well below one, however large the largest reward is.
    first_guess = np.log(rewards.min(where=rewards > 0, initial=max(float(rewards.max()), 1e-300)))
    values = newton_fixed_point(operator, np.where(lost, 0.0, first_guess))
    return np.where(lost, -np.inf, values)


def _without_gain(policy: Floats, model: Dynamics, rewards: Floats, ratios: Floats) -> NDArray[np.bool_]:
    """The states whose averaged-outside value is -inf: with zero rewards only, they can end in a trap.

    A trap is a transition that p cannot make, or a set of states that unrewarded steps never leave.
    """
    unrewarded = policy * (rewards == 0)
    steps = chain(model, unrewarded)
    impossible = ((unrewarded[:, :, None] * model.probs > 0) & np.isneginf(ratios)).any(axis=(1, 2))
    can_gain = can_reach(steps, np.any((policy > 0) & (rewards > 0), axis=1))
    return can_reach(steps, impossible | ~can_gain)


def tight_bound(mdp: TabularMDP, policy: Floats, model: Dynamics) -> float:
    """E[l(s_0)] with l(s,a) = E_{s'~q} log( r + discount (p/q)(s'|s,a) exp l(s') ), l(s) = E_pi l(s,a).

    Averaging outside the logarithm is sharper than any hazard and needs none. The best model is q ~ p V with V
    the policy's own value function, and then l = log Q: for a deterministic policy and start state the bound
    equals log_expected_return. Rewards of 0 are allowed.
    """
    return average(mdp.start, tight_values(mdp, policy, model))


def tight_model(mdp: TabularMDP, values: Floats) -> Dynamics:
    """q(s'|s,a) ~ p(s'|s,a) V(s'): the zero-variance importance sampler of the Bellman backup.

    With V the policy's value function, the averaged-outside bound is tight. Rows without any value stay p.
    """
    return tilted(mdp.dynamics, values[mdp.dynamics.successors])


def tilted(dynamics: Dynamics, tilt: Floats) -> Dynamics:
    """The model q ~ p * tilt on the same successors, for tilt >= 0 of shape [S, A, K]. Rows of zeros stay p."""
    weights = dynamics.probs * tilt
    totals = weights.sum(axis=-1, keepdims=True)
    hopeless = totals[..., 0] == 0
    totals[hopeless] = 1.0
    weights /= totals
    weights[hopeless] = dynamics.probs[hopeless]
    return dynamics.with_probs(weights)


def exponentially_tilted(dynamics: Dynamics, values: Floats) -> Dynamics:
    """The model q(s'|s,a) ~ p(s'|s,a) exp(values(s')): MnM's best model. Rows whose values are all -inf stay p."""
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        return dynamics
    if np.ptp(finite) < 600:  # then one exponential per state is enough: none underflows
        return tilted(dynamics, np.exp(values - finite.max())[dynamics.successors])
    return tilted_by_exponents(dynamics, values[dynamics.successors])


def tilted_by_exponents(dynamics: Dynamics, exponents: Floats) -> Dynamics:
    """The model q ~ p * exp(exponents) on the same successors, for exponents of shape [S, A, K] and any size."""
    exponents = np.where(dynamics.probs > 0, exponents, -np.inf)
    largest = exponents.max(axis=-1, keepdims=True)
    return tilted(dynamics, np.exp(exponents - np.where(np.isneginf(largest), 0.0, largest)))


# --- VMBPO: above the return --------------------------------------------------------------------------------


def vmbpo_objective(mdp: TabularMDP, policy: Floats, model: Dynamics, temperature: float = 1.0) -> float:
    """E_q[ sum_t discount^t ( r + (1/temperature) log p/q ) ]: what VMBPO maximises over policy and model.

    At q = p it is the return, so its maximum over models, `vmbpo_upper_bound`, is never below the return.
    """
    check_temperature(temperature)
    return average(mdp.start, penalised_values(mdp, policy, model, mdp.expected_rewards, 1.0 / temperature))


def vmbpo_upper_values(mdp: TabularMDP, policy: Floats, temperature: float = 1.0) -> Floats:
    """V(s) = E_pi[ r + (1/temperature) log E_p exp(temperature discount V(s')) ], per state."""
    check_policy(mdp, policy)
    check_temperature(temperature)

    def operator(values: Floats) -> tuple[Floats, sparse.csr_matrix]:
        scaled = temperature * mdp.discount * values
        model = exponentially_tilted(mdp.dynamics, scaled)
        entropic = log_mean_exp(mdp.dynamics, scaled) / temperature
        return (policy * (mdp.expected_rewards + entropic)).sum(axis=1), mdp.discount * chain(model, policy)

    return newton_fixed_point(operator, evaluate_policy(mdp, policy))


def vmbpo_upper_bound(mdp: TabularMDP, policy: Floats, temperature: float = 1.0) -> float:
    """max_q E_q[ sum_t discount^t ( r + (1/temperature) log p/q ) ] >= E_pi[ sum_t discount^t r ].

    The fixed point of V = E_pi[ r + (1/temperature) log E_p exp(temperature discount V(s')) ].
    """
    return average(mdp.start, vmbpo_upper_values(mdp, policy, temperature))


def exponentiated_return(mdp: TabularMDP, policy: Floats, temperature: float = 1.0) -> float:
    """(1/temperature) log E_pi[ exp( temperature sum_t discount^t r ) ] >= E_pi[ sum_t discount^t r ].

    The risk-seeking objective that VMBPO's is derived from (appendix). For a deterministic policy and start it
    lies below `vmbpo_upper_bound`, which discounts the KL terms too (a random action or start is risk that only
    this one seeks). As u_eta(s) = log E_pi[ exp(eta r) E_p exp
    u_{eta discount}(s') ], the recursion is over the temperature; where it has become tiny, u_eta = eta V up to
    eta^2 terms, which starts it.
    """
    check_policy(mdp, policy)
    check_temperature(temperature)
    values = evaluate_policy(mdp, policy)
    spread = max(float(np.ptp(mdp.expected_rewards)) / (1.0 - mdp.discount), 1.0)
    # The second-order term left out at the end is below eta^2 spread^2 / 8.
    steps = int(np.ceil(np.log(1e-9 / (temperature * spread)) / np.log(mdp.discount)))
    exponents = temperature * mdp.discount ** max(steps, 0) * values
    for time in range(max(steps, 0) - 1, -1, -1):
        reward_exponents = temperature * mdp.discount**time * mdp.expected_rewards
        exponents = log_weighted_sum(reward_exponents + log_mean_exp(mdp.dynamics, exponents), policy)
    return float(log_weighted_sum(exponents, mdp.start)) / temperature


def log_mean_exp(dynamics: Dynamics, values: Floats) -> Floats:
    """log E_{s'~p(.|s,a)}[ exp values(s') ], an [S, A] array, without overflow."""
    return log_weighted_sum(values[dynamics.successors], dynamics.probs)


def log_weighted_sum(exponents: Floats, weights: Floats) -> Floats:
    """log sum weights exp(exponents) along the last axis; what has weight 0 does not count."""
    exponents = np.where(weights > 0, exponents, -np.inf)
    largest = exponents.max(axis=-1, keepdims=True)
    summed: Floats = largest[..., 0] + np.log((weights * np.exp(exponents - largest)).sum(axis=-1))
    return summed


# --- reaching a goal ----------------------------------------------------------------------------------------


def goal_mdp(mdp: TabularMDP, goal: int) -> TabularMDP:
    """The MDP whose return is rho(goal): its reward is r(s, a) = (1-discount) p(goal | s, a)."""
    rewards = (1.0 - mdp.discount) * goal_probs(mdp.dynamics, goal)
    return TabularMDP(mdp.dynamics, rewards, mdp.start, mdp.discount)


def goal_probs(dynamics: Dynamics, goal: int) -> Floats:
    """p(goal | s, a), an [S, A] array."""
    if not 0 <= goal < dynamics.num_states:
        raise MDPError(f"goal {goal} is not a state; states are 0 to {dynamics.num_states - 1}")
    return dynamics.expect(np.asarray(np.arange(dynamics.num_states) == goal, dtype=np.float64))


def log_goal_occupancy(mdp: TabularMDP, policy: Floats, goal: int) -> float:
    """log rho(goal), rho(goal) = (1-discount) sum_t discount^t P(s_{t+1} = goal): what goal reaching maximises."""
    return log_expected_return(goal_mdp(mdp, goal), policy)


def printed_goal_bound(mdp: TabularMDP, policy: Floats, model: Dynamics, goal: int) -> float:
    """E_q[ sum_t discount^t ( (1-discount)(log p(g|s,a) - log q(g|s,a) - log(1-discount)) + log p/q ) ].

    Lemma goals as printed. It is NOT a bound: at q = p it is -log(1-discount) > 0, above the log of any
    probability, because its proof counts the constant twice and drops q(g|s,a). Kept to show that.
    """
    _check(mdp, policy, model)
    rest = 1.0 - mdp.discount
    with np.errstate(divide="ignore"):
        log_real, log_model = np.log(goal_probs(mdp.dynamics, goal)), np.log(goal_probs(model, goal))
    neither = np.isneginf(log_real) & np.isneginf(log_model)
    with np.errstate(invalid="ignore"):
        goal_ratio = np.where(neither, 0.0, log_real - log_model)
    rewards = rest * (goal_ratio - np.log(rest)) + expected_log_ratio(mdp.dynamics, model)
    visits = occupancy(mdp, policy, model) / rest
    return average(visits.ravel(), rewards.ravel())


def corrected_goal_bound(mdp: TabularMDP, policy: Floats, model: Dynamics, goal: int) -> float:
    """E_q[ sum_t discount^t ( (1-discount) log p(g|s,a) + log p/q ) ] <= log rho(g).

    The paper's bound for the reward (1-discount) p(g|s,a), whose return is rho(g). -inf if the model visits a
    pair from which the goal cannot be the next state; the averaged-outside bound of `goal_mdp` is finite there.
    """
    _check(mdp, policy, model)
    visits = occupancy(mdp, policy, model) / (1.0 - mdp.discount)
    with np.errstate(divide="ignore"):
        log_goal = np.log(goal_probs(mdp.dynamics, goal))
    rewards = (1.0 - mdp.discount) * log_goal + expected_log_ratio(mdp.dynamics, model)
    return average(visits.ravel(), rewards.ravel())


# --- the whole ladder ---------------------------------------------------------------------------------------

LADDER = {
    "paper's bound": paper_bound,
    "sharper bound": sharper_bound,
    "learned discount": learned_discount_bound,
    "best hazard": best_hazard_bound,
    "tight bound": tight_bound,
}
"""The lower bounds by name, from the loosest up."""


def ladder(
    mdp: TabularMDP, policy: Floats, model: Dynamics, rungs: tuple[str, ...] = tuple(LADDER)
) -> dict[str, float]:
    """Every lower bound (or some of them), then the log expected return, by name and in order."""
    bounds = {name: LADDER[name](mdp, policy, model) for name in rungs}
    return bounds | {"log expected return": log_expected_return(mdp, policy)}


def _check(mdp: TabularMDP, policy: Floats, model: Dynamics) -> None:
    check_policy(mdp, policy)
    check_model(mdp, model)


def check_temperature(temperature: float) -> None:
    """VMBPO's temperature is a positive number."""
    if not (np.isfinite(temperature) and temperature > 0):
        raise MDPError(f"temperature must be a positive number; got {temperature}")


def _warn_of_missing_support(mdp: TabularMDP, policy: Floats, model: Dynamics) -> None:
    ratios = log_ratio(mdp.dynamics, model)
    visited = occupancy(mdp, policy, model) > 0
    state, action, slot = first_index(np.isneginf(ratios) & visited[:, :, None])
    warnings.warn(
        f"the bound is -inf: after {at(state, action)} the model moves to state "
        f"{model.successors[state, action, slot]} with probability {model.probs[state, action, slot]:.3g}, "
        "which the real dynamics never do; restrict the model to the real successors, or use "
        "best_hazard_bound or tight_bound, which stay finite",
        ModelSupportWarning,
        stacklevel=4,
    )
