"""A certificate: a number that a policy's true return exceeds with a stated probability, from transitions alone.

With probability 1 - delta the true dynamics of all pairs (s, a) lie in their confidence sets at once (confidence.py,
with delta / (S A) for each pair), and then no policy's return is below the smallest over the sets (robust.py). As that
holds for all policies at once, the policy may have been chosen by the same data, and `best` chooses the one with the
largest certificate. A pair that was never tried can lead anywhere and pays the smallest reward of the declared range.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from mnm.messages import short
from mnm.tabular.bounds import average, best_sharper_bound, tight_bound, tight_model
from mnm.tabular.confidence import kl_radius, mean_radius, worst_means
from mnm.tabular.evaluation import SMALL, evaluate_policy, occupancy
from mnm.tabular.mdp import (
    Dynamics,
    Floats,
    MDPError,
    TabularMDP,
    at,
    check_probabilities,
    first_index,
    start_distribution,
)
from mnm.tabular.robust import UncertainMDP, best_policy, lower_values
from mnm.tabular.transitions import MOST_ENTRIES, Counts, TransitionData, count_transitions

SAME_REWARD = 1e-9
"""Of the range: rewards of a pair that differ by less are one reward, written with fewer digits."""
SAYS_NOTHING = 1e-9
"""Of the range of returns: a certificate that is above the worst return by less says nothing."""


@dataclass(frozen=True)
class Known:
    """What must be known of the MDP beside the data."""

    discount: float
    reward_range: tuple[float, float]
    """No reward is outside of it, of pairs that were never tried neither."""
    successors: int
    """How many states can follow a pair at most."""
    random_rewards: bool
    """Whether a pair's rewards may differ from time to time."""

    def __post_init__(self) -> None:
        low, high = self.reward_range
        if not 0.0 < self.discount < 1.0:
            raise MDPError(f"discount must lie strictly between 0 and 1; got {self.discount}")
        if not (np.isfinite([low, high]).all() and low < high and max(abs(low), abs(high)) <= 1e150):
            raise MDPError(f"reward range must be two finite numbers, the smaller first; got {low:g} and {high:g}")

    @property
    def worst_return(self) -> float:
        """What any policy returns at least: lowest reward / (1 - discount)."""
        return self.reward_range[0] / (1.0 - self.discount)


@dataclass(frozen=True)
class Cost:
    """What the doubt about one pair (s, a) costs the certificate."""

    state: int
    action: int
    samples: int
    visits: float
    """E[ sum_t discount^t 1(s_t = s, a_t = a) ] in the worst dynamics."""
    cost: float
    """How much higher the certificate were, to first order, if the pair's data were the whole truth."""
    gain: float
    """How much higher, to first order, if as many samples again came out alike; nan if there is none yet."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """What can be said of a policy's return from the data, and what not."""

    known: Known
    counts: Counts
    policy: Floats
    """[S, A]"""
    start: Floats
    """[S]"""
    confidence: float
    values: Floats
    """[S] the certificate from every state: all of them hold at once."""

    @property
    def value(self) -> float:
        """The certificate: with probability `confidence` the true return is no less."""
        return average(self.start, self.values)

    @property
    def certified(self) -> bool:
        """Whether it says more than the declared range of rewards does."""
        low, high = self.known.reward_range
        return self.value > self.known.worst_return + SAYS_NOTHING * (high - low) / (1.0 - self.known.discount)

    @cached_property
    def plug_in(self) -> TabularMDP:
        """The MDP that the data show, p_hat and the mean rewards; a pair never tried stays and pays the least."""
        return plug_in_mdp(self.counts, self.known, self.start)

    @cached_property
    def promise(self) -> float:
        """The policy's return in the plug-in model: no bound at all."""
        return average(self.start, evaluate_policy(self.plug_in, self.policy))

    @cached_property
    def bounds(self) -> dict[str, float]:
        """MnM's (the sharper) and the tight bound at their best models for the plug-in model, as returns, exp of nats.

        Lower bounds on `promise`, not on the true return. None where a reward is not positive, or the MDP so large that
        they would take longer than the certificate.
        """
        mdp = self.plug_in
        if mdp.expected_rewards.min() <= 0 or mdp.num_states > SMALL:
            return {}
        tight = tight_model(mdp, evaluate_policy(mdp, self.policy))
        return {
            "MnM's bound": float(np.exp(best_sharper_bound(mdp, self.policy))),
            "tight bound": float(np.exp(tight_bound(mdp, self.policy, tight))),
        }

    @cached_property
    def costs(self) -> tuple[Floats, Floats, Floats]:
        """visits, cost and gain of every pair, see `Cost`: [S, A] each."""
        known, counts = self.known, self.counts
        now = uncertain_mdp(counts, known, self.confidence)
        worst = TabularMDP(now.worst_dynamics(self.values), now.rewards, self.start, known.discount)
        visits = occupancy(worst, self.policy) / (1.0 - known.discount)
        lower = now.action_values(self.values)
        hoped = np.where(
            counts.visits > 0,
            self.plug_in.expected_rewards + known.discount * self.plug_in.dynamics.expect(self.values),
            known.reward_range[1] + known.discount * self.values.max(),
        )
        doubled = uncertain_mdp(counts.times(2), known, self.confidence).action_values(self.values)
        gain = np.where(counts.visits > 0, visits * (doubled - lower), np.nan)
        most = known.reward_range[1] / (1.0 - known.discount) - self.value
        return visits, np.minimum(visits * (hoped - lower), most), gain

    def costliest(self, number: int) -> list[Cost]:
        """The pairs whose doubt costs most, the worst first; those that cost nothing are left out."""
        samples, (visits, cost, gain) = self.counts.visits, self.costs
        order = np.argsort(-cost, axis=None, kind="stable")[:number]
        pairs = [np.unravel_index(int(index), cost.shape) for index in order if cost.flat[index] > 0]
        return [
            Cost(int(s), int(a), int(samples[s, a]), float(visits[s, a]), float(cost[s, a]), float(gain[s, a]))
            for s, a in pairs
        ]

    @property
    def why_not(self) -> str:
        """Why nothing is certified; empty if something is."""
        if self.certified:
            return ""
        first = self.costliest(1)
        never = "was never tried, so it may pay the least for ever"
        few = "was tried too rarely to say where it leads"
        pair = f": {at(first[0].state, first[0].action)} {few if first[0].samples else never}" if first else ""
        return f"nothing better than the worst return {self.known.worst_return:.6g} can be said{pair}"

    def as_json(self, number: int) -> dict[str, Any]:
        """For programs; what is not a number is null."""
        return {
            "certified": self.certified,
            "certificate": self.value,
            "confidence": self.confidence,
            "reason": self.why_not,
            "plug_in_return": self.promise,
            "plug_in_bounds": self.bounds,
            "worst_return": self.known.worst_return,
            "num_states": len(self.policy),
            "num_actions": self.policy.shape[1],
            "transitions": int(self.counts.visits.sum()),
            "pairs_never_tried": int((self.counts.visits == 0).sum()),
            "discount": self.known.discount,
            "reward_range": list(self.known.reward_range),
            "most_successors": self.known.successors,
            "actions": self.policy.argmax(axis=1).tolist(),
            "costliest": [
                vars(cost) | {"gain": cost.gain if np.isfinite(cost.gain) else None} for cost in self.costliest(number)
            ],
        }


def certify(
    data: TransitionData | Counts,
    policy: ArrayLike | Literal["best"],
    *,
    discount: float,
    reward_range: tuple[float, float],
    num_states: int | None = None,
    num_actions: int | None = None,
    confidence: float = 0.95,
    start: ArrayLike | int = 0,
    successors: int | None = None,
    random_rewards: bool = False,
) -> Certificate:
    """min over all dynamics in the confidence sets of E_pi[ sum_t discount^t r(s_t, a_t) ]: with probability
    `confidence` the policy's true return is no less.

    policy: [S, A] action probabilities, or "best" for the policy with the largest certificate. reward_range: between
    which no reward lies outside, of pairs that were never tried neither. num_states, num_actions: of the MDP, by
    default the policy's; "best" needs them. start: a state, or the probability of each. successors: how many states can
    follow a pair at most, by default any number. random_rewards: whether a pair's rewards may differ; without it, such
    data are refused.
    """
    given = None if isinstance(policy, str) else np.asarray(policy, dtype=np.float64)
    if given is None and policy != "best":
        raise MDPError(f"the policy is {policy!r}: give an array of action probabilities, or 'best'")
    counts = data if isinstance(data, Counts) else _counted(data, given, num_states, num_actions)
    states, actions = counts.visits.shape
    most = states if successors is None else successors
    if not 1 <= most <= states:
        raise MDPError(f"most successors of a pair: {most}, but must be 1 to {states}, the number of states")
    if np.shape(reward_range) != (2,):
        raise MDPError(f"reward range must be two finite numbers, the smaller first; got {short(reward_range)}")
    known = Known(float(discount), (float(reward_range[0]), float(reward_range[1])), most, random_rewards)
    check_data(counts, known)
    if not 0.0 < confidence < 1.0:
        raise MDPError(f"confidence must lie strictly between 0 and 1; got {confidence}")
    distribution = start_distribution(start, states)
    if distribution.shape != (states,):
        raise MDPError(f"start must be a state, or one probability for each of the {states} states")
    check_probabilities(distribution, "start distribution")
    if given is not None and given.shape != (states, actions):
        raise MDPError(f"the policy's shape is {given.shape}, but there are {states} states and {actions} actions")
    uncertain, guess = uncertain_mdp(counts, known, confidence), np.full(states, known.worst_return)
    chosen = best_policy(uncertain, distribution, guess) if given is None else given
    check_probabilities(chosen, "policy")
    values = np.maximum(lower_values(uncertain, chosen, guess), known.worst_return)
    return Certificate(known, counts, chosen, distribution, confidence, values)


def _counted(data: TransitionData, policy: Floats | None, num_states: int | None, num_actions: int | None) -> Counts:
    """The data's counts, for as many states and actions as are declared or as the policy has."""
    if policy is not None and policy.ndim == 2:
        num_states = policy.shape[0] if num_states is None else num_states
        num_actions = policy.shape[1] if num_actions is None else num_actions
    if num_states is None or num_actions is None:
        raise MDPError("how many states and actions there are must be said: the data may not show all of them")
    if min(num_states, num_actions) < 1 or num_states * num_actions > MOST_ENTRIES:
        raise MDPError(f"{num_states} states and {num_actions} actions: both must be 1 or more, and not too many")
    return count_transitions(data, num_states, num_actions)


def check_data(counts: Counts, known: Known) -> None:
    """What is declared must not be what the data refute."""
    low, high = known.reward_range
    tried = counts.visits > 0
    for outside, rewards in (
        (tried & (counts.lowest_rewards < low), counts.lowest_rewards),
        (tried & (counts.highest_rewards > high), counts.highest_rewards),
    ):
        if outside.any():
            index = first_index(outside)
            raise MDPError(
                f"{at(*index)}: the reward {rewards[index]:g} is outside of the declared range {low:g} to {high:g}; "
                "declare a range that no reward ever leaves"
            )
    seen = (counts.counts > 0).sum(axis=-1)
    if seen.max() > known.successors:
        index = first_index(seen > known.successors)
        raise MDPError(
            f"{at(*index)}: {seen[index]} different states followed, but at most {known.successors} were said to; "
            "declare as many as can follow"
        )
    differ = tried & (counts.highest_rewards > counts.lowest_rewards + SAME_REWARD * (high - low))
    if differ.any() and not known.random_rewards:
        index = first_index(differ)
        raise MDPError(
            f"{at(*index)}: the rewards {counts.lowest_rewards[index]:g} and {counts.highest_rewards[index]:g} differ; "
            "say that rewards are random: --random-rewards, in Python random_rewards=True"
        )


def uncertain_mdp(counts: Counts, known: Known, confidence: float) -> UncertainMDP:
    """The confidence sets of all pairs, and lower bounds on their rewards, which hold all at once.

    Each of the S A pairs may fail with probability delta / (S A); with random rewards, half of that each for its
    dynamics and its mean reward.
    """
    visits = counts.visits
    failure = (1.0 - confidence) / visits.size / (2 if known.random_rewards else 1)
    means = np.where(visits > 0, counts.mean_rewards, known.reward_range[0])
    return UncertainMDP(
        counts.successors,
        counts.counts / np.maximum(visits, 1.0)[:, :, None],
        kl_radius(counts.counts, known.successors, failure),
        (counts.counts > 0).sum(axis=-1) < known.successors,
        lowest_mean_rewards(means, visits, known.reward_range, failure) if known.random_rewards else means,
        known.discount,
    )


def lowest_mean_rewards(means: Floats, visits: Floats, reward_range: tuple[float, float], failure: float) -> Floats:
    """min { r : KL(coin with mean r_hat || coin with mean r) <= radius }, in units of the range: [S, A].

    The same dual as that of the dynamics, for a coin that pays the lowest or the highest reward.
    """
    low, high = reward_range
    shares = np.clip((means - low) / (high - low), 0.0, 1.0).ravel()
    radius = mean_radius(shares * visits.ravel(), visits.ravel(), failure)
    coins = np.stack([shares, 1.0 - shares], axis=-1)
    lowest, _ = worst_means(np.broadcast_to([1.0, 0.0], coins.shape), coins, radius, np.zeros(len(shares)))
    return low + (high - low) * lowest.reshape(means.shape)


def plug_in_mdp(counts: Counts, known: Known, start: Floats) -> TabularMDP:
    """p_hat and the mean rewards; a pair never tried stays where it is and pays the least."""
    visits = counts.visits
    never = visits == 0
    first_slot = np.arange(counts.counts.shape[2]) == 0
    own_states = np.broadcast_to(np.arange(len(visits), dtype=np.int32)[:, None, None], counts.successors.shape)
    return TabularMDP(
        Dynamics(
            np.where(never[:, :, None], own_states, counts.successors),
            np.where(never[:, :, None], first_slot, counts.counts / np.maximum(visits, 1.0)[:, :, None]),
        ),
        np.where(never, known.reward_range[0], counts.mean_rewards),
        start,
        known.discount,
    )
