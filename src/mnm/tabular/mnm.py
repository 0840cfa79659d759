"""Joint model-policy iteration: MnM's objective maximised exactly, over the policy and the model together.

With ratio weight w, the bound of a policy pi and a model q is V = E_q^pi[ sum_t discount^t ( c(s,a) + w log p/q ) ],
c = (1-discount) log( r / (1-discount) ). For given V the best model maximises E_q[ w log p/q + discount V(s') ]:

    q(s'|s,a) ~ p(s'|s,a) exp( (discount / w) V(s') ),

and leaves the joint Bellman operator

    (T V)(s) = max_a [ c(s,a) + w log E_p exp( (discount / w) V(s') ) ].

So the ratio's weight fixes the value's tilt. The consistent pairs of interest are w = 1 with tilt discount V (the
paper's bound) and w = discount with tilt V (the sharper bound). Choosing (a, q) together is an MDP with larger
actions, joint iteration is its policy iteration, and it is monotone without any averaging.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mnm.tabular.bounds import (
    augmented_rewards,
    expected_log_ratio,
    exponentially_tilted,
    log_mean_exp,
    penalised_values,
    tight_model,
    tight_values,
    tilted_by_exponents,
    transition_augmented_rewards,
)
from mnm.tabular.evaluation import SMALL, ConvergenceError
from mnm.tabular.mdp import Dynamics, Floats, TabularMDP, uniform_policy
from mnm.tabular.solvers import improved_policy, solve, solve_by_sweeps

MAX_ITERATIONS = 10_000


@dataclass(frozen=True, eq=False)
class JointStep:
    """One iterate of a joint iteration."""

    policy: Floats
    """[S, A] action probabilities."""
    model: Dynamics
    values: Floats
    """[S] the bound from every start state, of this policy in this model."""


def joint_action_values(mdp: TabularMDP, values: Floats, rewards: Floats, ratio_weight: float) -> Floats:
    """rewards(s,a) + w log E_p exp( (discount/w) V(s') ): the objective if a is taken now, with the best model."""
    return rewards + ratio_weight * log_mean_exp(mdp.dynamics, (mdp.discount / ratio_weight) * values)


def joint_iteration(mdp: TabularMDP, ratio_weight: float, tolerance: float = 1e-10) -> list[JointStep]:
    """MnM with a consistent pair (ratio weight w, tilt discount/w): monotone, no averaging.

    w = 1 maximises the paper's bound, w = discount the sharper one.
    """
    return maximise_jointly(mdp, augmented_rewards(mdp), ratio_weight, tolerance)


def maximise_jointly(
    mdp: TabularMDP, rewards: Floats, ratio_weight: float, tolerance: float = 1e-10
) -> list[JointStep]:
    """Policy iteration over (action, model) for E_q[ sum_t discount^t ( rewards + w log p/q ) ].

    From the uniform policy in the real dynamics, until no state improves by more than `tolerance`. The last
    step's values are then within `tolerance` (relative to their size) * discount / (1 - discount) of the optimum.
    """
    policy, model = uniform_policy(mdp), mdp.dynamics
    steps = [JointStep(policy, model, penalised_values(mdp, policy, model, rewards, ratio_weight))]
    while len(steps) < MAX_ITERATIONS:
        values = steps[-1].values
        policy = improved_policy(policy, joint_action_values(mdp, values, rewards, ratio_weight))
        model = exponentially_tilted(mdp.dynamics, (mdp.discount / ratio_weight) * values)
        steps.append(JointStep(policy, model, penalised_values(mdp, policy, model, rewards, ratio_weight)))
        if np.max(steps[-1].values - values) <= tolerance * max(1.0, float(np.abs(values).max())):
            return steps
    raise ConvergenceError(f"joint iteration did not settle within {MAX_ITERATIONS} iterations")


def solve_mnm(mdp: TabularMDP, tolerance: float | None = None) -> JointStep:
    """The optimum of the sharper bound (ratio weight `discount`, q ~ p exp V), for MDPs of any size.

    The values are those of the joint Bellman operator's fixed point, within `tolerance` (see solvers.py).
    """
    rewards = augmented_rewards(mdp)
    if mdp.num_states <= SMALL:
        return maximise_jointly(mdp, rewards, mdp.discount, tolerance=1e-12)[-1]
    solution = solve_by_sweeps(mdp, rewards, tolerance, entropic=True)
    model = exponentially_tilted(mdp.dynamics, solution.values)
    return JointStep(solution.policy(mdp.num_actions), model, solution.values)


def solve_tight(mdp: TabularMDP, tolerance: float | None = None) -> JointStep:
    """The optimum of the tight bound, for MDPs of any size: its values are log V* and its model is q ~ p V*."""
    mdp.check_no_negative_rewards()
    solution = solve(mdp, tolerance)
    values = np.where(solution.values > 2 * solution.error_bound, solution.values, 0.0)
    with np.errstate(divide="ignore"):
        return JointStep(solution.policy(mdp.num_actions), tight_model(mdp, values), np.log(values))


def joint_iteration_paper(mdp: TabularMDP, averaging: float = 0.5, tolerance: float = 1e-6) -> list[JointStep]:
    """The paper's iteration: ratio weight 1 but tilt V (an inconsistent pair), kept stable by averaging.

    Evaluate (policy, model) exactly; take the greedy policy in the model and the model q ~ p exp(c + V); average
    both with the old ones; stop when no entry of the model changes by more than `tolerance`.

    Rewards that depend on the next state stay inside the logarithm here, c = (1-discount) log(r(s,a,s') /
    (1-discount)), and so bend the model. That is still a lower bound, as the ratio's weight 1 also pays for the
    rewarded transition; rewards that do not depend on it cancel from the tilt.
    """
    policy, model, augmented = uniform_policy(mdp), mdp.dynamics, transition_augmented_rewards(mdp)
    steps = [_paper_step(mdp, policy, model, augmented)]
    while len(steps) < MAX_ITERATIONS:
        values = steps[-1].values
        rewards = (model.probs * augmented).sum(axis=-1) + expected_log_ratio(mdp.dynamics, model)
        greedy = improved_policy(policy, rewards + mdp.discount * model.expect(values))
        objective = augmented + values[mdp.dynamics.successors]
        best = tilted_by_exponents(mdp.dynamics, objective)
        change = averaging * float(np.abs(best.probs - model.probs).max())
        policy = (1.0 - averaging) * policy + averaging * greedy
        model = model.with_probs((1.0 - averaging) * model.probs + averaging * best.probs)
        steps.append(_paper_step(mdp, policy, model, augmented))
        if change < tolerance:
            return steps
    raise ConvergenceError(f"the paper's iteration did not settle within {MAX_ITERATIONS} iterations")


def _paper_step(mdp: TabularMDP, policy: Floats, model: Dynamics, augmented: Floats) -> JointStep:
    rewards = (model.probs * augmented).sum(axis=-1)
    return JointStep(policy, model, penalised_values(mdp, policy, model, rewards, ratio_weight=1.0))


def joint_iteration_tight(mdp: TabularMDP, tolerance: float = 1e-10) -> list[JointStep]:
    """Joint iteration for the averaged-outside bound: q ~ p exp(l), pi greedy in log( r + discount E_p exp l ).

    Each step is the best choice for the present l, so l never falls; its limit is log V of the best policy:
    with a deterministic start the bound is the log expected return. Rewards may be 0.
    """
    policy, model = uniform_policy(mdp), mdp.dynamics
    steps = [JointStep(policy, model, tight_values(mdp, policy, model))]
    while len(steps) < MAX_ITERATIONS:
        values = steps[-1].values
        with np.errstate(divide="ignore"):
            totals = mdp.expected_rewards + mdp.discount * mdp.dynamics.expect(np.exp(values))
            policy = improved_policy(policy, np.log(totals))
        model = exponentially_tilted(mdp.dynamics, values)
        steps.append(JointStep(policy, model, tight_values(mdp, policy, model)))
        if _largest_gain(values, steps[-1].values) <= tolerance:
            return steps
    raise ConvergenceError(f"the tight iteration did not settle within {MAX_ITERATIONS} iterations")


def _largest_gain(old: Floats, new: Floats) -> float:
    known = np.isfinite(old)
    newly_finite = np.isfinite(new) & ~known
    return np.inf if newly_finite.any() else float(np.max(new[known] - old[known], initial=0.0))
