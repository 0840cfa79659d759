"""The ladder of bounds: its inequalities over random MDPs, its equalities, and cases worked by hand."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import logsumexp

from conftest import cases
from mnm.tabular import Dynamics, MDPError, TabularMDP, deterministic_policy, evaluate_policy, random_mdp
from mnm.tabular.bounds import (
    ModelSupportWarning,
    augmented_rewards,
    best_hazard,
    best_hazard_bound,
    best_hazard_values,
    corrected_goal_bound,
    expected_log_ratio,
    exponentially_tilted,
    exponentiated_return,
    goal_mdp,
    kl_divergence,
    ladder,
    learned_discount_bound,
    log_expected_return,
    log_goal_occupancy,
    log_mean_exp,
    log_ratio,
    model_return,
    paper_bound,
    penalised_values,
    printed_goal_bound,
    sharper_bound,
    tight_bound,
    tight_model,
    tight_values,
    vmbpo_objective,
    vmbpo_upper_bound,
)
from mnm.tabular.evaluation import newton_fixed_point, occupancy
from mnm.tabular.mdp import start_distribution
from mnm.tabular.random_mdps import random_model, random_policy

ROUNDING = 1e-9


def from_state(mdp, state):
    return replace(mdp, start=start_distribution(state, mdp.num_states))


def two_state_mdp(discount=0.5):
    """State 0 pays 2 and moves to either state with probability 1/2; state 1 pays 4 for ever."""
    return TabularMDP.from_dense([[[0.5, 0.5]], [[0.0, 1.0]]], [2.0, 4.0], discount)


def two_state_model(mdp, stay):
    return Dynamics.from_dense([[[stay, 1.0 - stay]], [[0.0, 1.0]]])


ONLY = np.ones((2, 1))


class TestLadder:
    @pytest.mark.slow
    @given(cases())
    def test_every_rung_is_below_the_next(self, case):
        for state in range(case.mdp.num_states):
            rungs = ladder(from_state(case.mdp, state), case.policy, case.model)
            assert rungs["paper's bound"] <= rungs["sharper bound"] + ROUNDING
            assert rungs["sharper bound"] <= rungs["best hazard"] + ROUNDING
            assert rungs["paper's bound"] <= rungs["learned discount"] + ROUNDING
            assert rungs["learned discount"] <= rungs["best hazard"] + ROUNDING
            assert rungs["best hazard"] <= rungs["tight bound"] + ROUNDING
            assert rungs["tight bound"] <= rungs["log expected return"] + ROUNDING

    @given(cases())
    def test_holds_from_a_start_distribution_too(self, case):
        rungs = list(ladder(case.mdp, case.policy, case.model).values())
        assert max(rungs[:-1]) <= rungs[-1] + ROUNDING

    @given(cases(deterministic=True))
    def test_the_last_rung_is_tight_at_q_proportional_to_p_times_value(self, case):
        mdp = from_state(case.mdp, 0)
        model = tight_model(mdp, evaluate_policy(mdp, case.policy))
        gap = log_expected_return(mdp, case.policy) - tight_bound(mdp, case.policy, model)
        assert abs(gap) < 1e-10

    @given(cases(deterministic=True))
    def test_the_best_hazard_is_tight_there_too(self, case):
        mdp = from_state(case.mdp, 0)
        model = tight_model(mdp, evaluate_policy(mdp, case.policy))
        gap = log_expected_return(mdp, case.policy) - best_hazard_bound(mdp, case.policy, model)
        assert abs(gap) < 1e-10

    def test_with_a_random_policy_or_start_it_is_not_tight(self):
        """Correction 4 of the paper: its lemma also maximises over actions and the start state."""
        mdp = random_mdp(5, 3, seed=0)
        policy = random_policy(mdp, seed=1)
        model = tight_model(mdp, evaluate_policy(mdp, policy))
        assert log_expected_return(mdp, policy) - tight_bound(mdp, policy, model) > 1e-3
        chosen = deterministic_policy(policy.argmax(axis=1), 3)
        model = tight_model(mdp, evaluate_policy(mdp, chosen))
        assert log_expected_return(mdp, chosen) - tight_bound(mdp, chosen, model) > 1e-4

    @given(cases())
    def test_all_bounds_agree_when_the_reward_is_constant_and_the_model_exact(self, case):
        mdp = replace(case.mdp, rewards=np.full_like(case.mdp.expected_rewards, 3.0))
        expected = np.log(3.0 / (1.0 - mdp.discount))
        assert list(ladder(mdp, case.policy, mdp.dynamics).values()) == pytest.approx([expected] * 6, abs=1e-9)

    def test_some_inequalities_are_strict(self):
        case_mdp = random_mdp(5, 2, seed=3)
        rungs = list(ladder(case_mdp, random_policy(case_mdp, seed=4), random_model(case_mdp, seed=5)).values())
        order = np.argsort(rungs)
        assert order.tolist() == list(range(6))
        assert np.diff(rungs).min() > 1e-3


class TestByHand:
    """Two states, discount 1/2: V(1) = 8 and V(0) = 2 + (V(0) + V(1)) / 4 give V(0) = 16/3."""

    def test_return(self):
        assert log_expected_return(two_state_mdp(), ONLY) == pytest.approx(np.log(16 / 3))

    def test_paper_and_sharper_bounds(self):
        # c(s) = log(2 r) / 2: c(0) = log(4)/2, c(1) = log(8)/2. q stays with 1/4: KL = (1/4) log(1/2) + (3/4) log(3/2).
        mdp = two_state_mdp()
        kl = 0.25 * np.log(0.5) + 0.75 * np.log(1.5)
        value_1 = np.log(8)
        for bound, weight in ((paper_bound, 1.0), (sharper_bound, 0.5)):
            value_0 = (np.log(4) / 2 - weight * kl + 0.5 * 0.75 * value_1) / (1 - 0.5 * 0.25)
            assert bound(mdp, ONLY, two_state_model(mdp, 0.25)) == pytest.approx(value_0, abs=1e-12)

    def test_best_hazard_and_averaged_outside(self):
        # From state 1: l = log(4 + 4) = log 8. From state 0, with q always moving on: p/q = 1/2,
        # l = log(2 + 1/2 * exp(log(1/2) + log 8)) = log(2 + 2), the same for both.
        mdp = two_state_mdp()
        model = two_state_model(mdp, 0.0)
        assert best_hazard_bound(mdp, ONLY, model) == pytest.approx(np.log(4), abs=1e-12)
        assert tight_bound(mdp, ONLY, model) == pytest.approx(np.log(4), abs=1e-12)
        assert best_hazard(mdp, ONLY, model)[:, 0] == pytest.approx([0.5, 0.5])

    def test_learned_discount(self):
        # q always moves on: E[log r_H] = log 2, then log 4; the ratio log(1/2) is paid at t = 0 only.
        # sum_H = 2/2 + sum_{H>=1} (1/2)^H 4/2 = 1 + 2 = 3.
        mdp = two_state_mdp()
        assert learned_discount_bound(mdp, ONLY, two_state_model(mdp, 0.0)) == pytest.approx(np.log(3), abs=1e-10)

    def test_tight_model(self):
        # q(stay) = V(0) / (V(0) + V(1)) = (16/3) / (40/3) = 0.4.
        mdp = two_state_mdp()
        model = tight_model(mdp, evaluate_policy(mdp, ONLY))
        assert model.to_dense()[0, 0] == pytest.approx([0.4, 0.6])

    def test_return_in_the_model(self):
        # V(1) = 8, V(0) = 2 + 4 when q always moves on.
        mdp = two_state_mdp()
        assert model_return(mdp, ONLY, two_state_model(mdp, 0.0)) == pytest.approx(6.0)


class TestBruteForce:
    """The bounds against sums over explicit trajectories, not against another linear solver."""

    @given(st.integers(0, 1000))
    def test_paper_bound_is_a_sum_over_time(self, seed):
        mdp = random_mdp(4, 2, seed=seed, discount=0.7)
        policy, model = random_policy(mdp, seed=seed + 1), random_model(mdp, seed=seed + 2)
        rest = 1 - mdp.discount
        rewards = rest * np.log(mdp.expected_rewards) - rest * np.log(rest) - kl_divergence(model, mdp.dynamics)
        states, total = mdp.start, 0.0
        for time in range(200):
            pairs = states[:, None] * policy
            total += mdp.discount**time * (pairs * rewards).sum()
            states = np.einsum("sa,sat->t", pairs, model.to_dense())
        assert paper_bound(mdp, policy, model) == pytest.approx(total, abs=1e-10)

    @given(st.integers(0, 1000))
    def test_hazard_recursion_beats_random_hazards(self, seed):
        """The best hazard is the best: the evidence bound with any other hazard is lower."""
        mdp = random_mdp(4, 2, seed=seed)
        policy, model = random_policy(mdp, seed=seed + 1), random_model(mdp, seed=seed + 2)
        hazard = np.random.default_rng(seed).uniform(0.05, 0.95, (4, 2))
        # l(s,a) = h (log r - log h) + (1-h) (log discount - log(1-h) + E_q[log p/q + l(s')])
        stop = hazard * (np.log(mdp.expected_rewards) - np.log(hazard))
        resume_run = (1 - hazard) * (np.log(mdp.discount) - np.log1p(-hazard) + expected_log_ratio(mdp.dynamics, model))
        weights = np.einsum("sa,sa,sat->st", policy, 1 - hazard, model.to_dense())
        values = np.linalg.solve(np.eye(4) - weights, (policy * (stop + resume_run)).sum(axis=1))
        assert (values <= best_hazard_values(mdp, policy, model) + ROUNDING).all()

    @given(cases())
    def test_hazard_one_minus_discount_gives_the_sharper_bound(self, case):
        mdp, hazard = case.mdp, 1 - case.mdp.discount
        stop = hazard * (np.log(mdp.expected_rewards) - np.log(hazard))
        resume_run = mdp.discount * expected_log_ratio(mdp.dynamics, case.model)
        weights = mdp.discount * np.einsum("sa,sat->st", case.policy, case.model.to_dense())
        values = np.linalg.solve(np.eye(mdp.num_states) - weights, (case.policy * (stop + resume_run)).sum(axis=1))
        assert sharper_bound(mdp, case.policy, case.model) == pytest.approx(mdp.start @ values, abs=1e-8)

    @given(cases())
    def test_no_time_only_discount_beats_the_learned_one(self, case):
        mdp, policy, model = case.mdp, case.policy, case.model
        assume(mdp.discount <= 0.9)
        ratios, horizon = expected_log_ratio(mdp.dynamics, model), 400
        states, ratio_sum, exponents = mdp.start, 0.0, []
        for time in range(horizon):
            pairs = states[:, None] * policy
            ratio_sum += (pairs * ratios).sum()
            exponents.append(time * np.log(mdp.discount) + (pairs * np.log(mdp.expected_rewards)).sum() + ratio_sum)
            states = np.einsum("sa,sat->t", pairs, model.to_dense())
        exponents = np.array(exponents)
        bound = learned_discount_bound(mdp, policy, model)
        for shape in (0.3, mdp.discount, 0.97):
            log_weights = np.arange(horizon) * np.log(shape)
            log_weights -= logsumexp(log_weights)
            assert np.exp(log_weights) @ (exponents - log_weights) <= bound + ROUNDING
        best = exponents - logsumexp(exponents)
        assert np.exp(best) @ (exponents - best) == pytest.approx(bound, abs=1e-8)


class TestHorizonLemmas:
    """Appendix: sums over a geometric horizon."""

    @given(st.floats(0.05, 0.95), st.integers(0, 1000))
    def test_expected_partial_sums_are_discounted_sums(self, discount, seed):
        terms = np.random.default_rng(seed).normal(size=2000)
        horizon = (1 - discount) * discount ** np.arange(2000)
        assert horizon @ np.cumsum(terms) == pytest.approx((discount ** np.arange(2000)) @ terms, abs=1e-9)

    @given(cases())
    def test_return_is_the_expected_terminal_reward_over_one_minus_discount(self, case):
        mdp, states, terminal = case.mdp, case.mdp.start, 0.0
        assume(mdp.discount <= 0.9)
        for time in range(600):
            pairs = states[:, None] * case.policy
            terminal += (1 - mdp.discount) * mdp.discount**time * (pairs * mdp.expected_rewards).sum()
            states = np.einsum("sa,sat->t", pairs, mdp.dynamics.to_dense())
        expected = np.exp(log_expected_return(mdp, case.policy))
        assert terminal / (1 - mdp.discount) == pytest.approx(expected, rel=1e-9)


SHARES = st.sampled_from([0.0, 0.05, 0.5, 0.95, 1.0])
"""Of real transitions among those that the backup averages over."""


def sharper_mixture(mdp, model, share, values):
    """share E_p[ V(s') ] + (1-share) E_q[ log p/q + V(s') ], an [S, A] array: a real row is a sample of q = p."""
    real = mdp.dynamics.expect(values)
    return share * real + (1 - share) * (expected_log_ratio(mdp.dynamics, model) + model.expect(values))


def sharper_mixture_values(mdp, policy, model, share):
    """V(s) = E_pi[ (1-discount) log( r / (1-discount) ) + discount * the mixture of V ], a linear equation."""
    penalties = mdp.discount * (1 - share) * expected_log_ratio(mdp.dynamics, model)
    mixed = share * mdp.dynamics.to_dense() + (1 - share) * model.to_dense()
    steps = mdp.discount * np.einsum("sa,sat->st", policy, mixed)
    gains = (policy * (augmented_rewards(mdp) + penalties)).sum(axis=1)
    return np.linalg.solve(np.eye(mdp.num_states) - steps, gains)


def tight_parts(mdp, model, share):
    """(weight, dynamics, log p/q at their successors) of the real rows and of the model's."""
    real = (share, mdp.dynamics, np.zeros_like(mdp.dynamics.probs))
    return real, (1 - share, model, log_ratio(mdp.dynamics, model))


def tight_mixture(mdp, model, share, values):
    """share E_p[ log(r + discount e^l) ] + (1-share) E_q[ log(r + discount (p/q) e^l) ], [S, A]; and its derivative."""
    mean, derivative = np.zeros_like(mdp.expected_rewards), np.zeros((*mdp.expected_rewards.shape, mdp.num_states))
    for weight, dynamics, ratios in tight_parts(mdp, model, share):
        log_go_on = np.log(mdp.discount) + ratios + values[dynamics.successors]
        log_total = np.logaddexp(mdp.log_rewards[:, :, None], log_go_on)
        mean += weight * (dynamics.probs * log_total).sum(axis=-1)
        places = (*np.indices(dynamics.successors.shape)[:2], dynamics.successors)
        np.add.at(derivative, places, weight * dynamics.probs * np.exp(log_go_on - log_total))
    return mean, derivative


def tight_mixture_values(mdp, policy, model, share):
    """l(s) = E_pi[ the mixture of l ]."""

    def operator(values):
        mean, derivative = tight_mixture(mdp, model, share, values)
        return (policy * mean).sum(axis=1), sparse.csr_matrix(np.einsum("sa,sat->st", policy, derivative))

    return newton_fixed_point(operator, np.full(mdp.num_states, mdp.log_rewards.min()))


class TestRealRows:
    """Backups that average over real next states too, with log p/q = 0 there, leave both bounds lower bounds."""

    @given(cases(), SHARES, st.integers(0, 1000))
    def test_a_mixed_backup_is_below_the_log_of_the_expectation(self, case, share, seed):
        """For any values, not only for fixed points: Jensen's inequality, for p and for q."""
        mdp = case.mdp
        values = np.random.default_rng(seed).normal(scale=5.0, size=mdp.num_states)
        log_mean = log_mean_exp(mdp.dynamics, values)
        assert (sharper_mixture(mdp, case.model, share, values) <= log_mean + ROUNDING).all()
        log_total = np.logaddexp(mdp.log_rewards, np.log(mdp.discount) + log_mean)
        assert (tight_mixture(mdp, case.model, share, values)[0] <= log_total + ROUNDING).all()

    @given(cases(), SHARES)
    def test_the_mixed_sharper_bound_is_below_the_log_return_from_every_state(self, case, share):
        mdp, policy, model = case.mdp, case.policy, case.model
        values = sharper_mixture_values(mdp, policy, model, share)
        backup = augmented_rewards(mdp) + mdp.discount * sharper_mixture(mdp, model, share, values)
        np.testing.assert_allclose((policy * backup).sum(axis=1), values, atol=1e-8)
        assert (values <= np.log(evaluate_policy(mdp, policy)) + ROUNDING).all()
        assert mdp.start @ values <= log_expected_return(mdp, policy) + ROUNDING

    @given(cases(), SHARES)
    def test_the_mixed_tight_bound_is_below_the_log_return_from_every_state(self, case, share):
        mdp, policy, model = case.mdp, case.policy, case.model
        values = tight_mixture_values(mdp, policy, model, share)
        backup, _ = tight_mixture(mdp, model, share, values)
        np.testing.assert_allclose((policy * backup).sum(axis=1), values, atol=1e-8)
        assert (values <= np.log(evaluate_policy(mdp, policy)) + ROUNDING).all()
        assert mdp.start @ values <= log_expected_return(mdp, policy) + ROUNDING

    @given(cases())
    def test_all_or_no_real_rows_are_the_bounds_of_p_and_of_q(self, case):
        mdp, policy = case.mdp, case.policy
        for share, model in ((0.0, case.model), (1.0, mdp.dynamics)):
            sharper = penalised_values(mdp, policy, model, augmented_rewards(mdp), mdp.discount)
            np.testing.assert_allclose(sharper_mixture_values(mdp, policy, case.model, share), sharper, atol=1e-8)
            tight = tight_values(mdp, policy, model)
            np.testing.assert_allclose(tight_mixture_values(mdp, policy, case.model, share), tight, atol=1e-8)

    @given(cases(), SHARES)
    def test_a_model_that_is_the_mixture_has_a_bound_that_is_no_lower(self, case, share):
        """KL(share p + (1-share) q || p) <= (1-share) KL(q || p): a second way to the sharper bound's inequality."""
        mdp, policy = case.mdp, case.policy
        mixture = Dynamics.from_dense(share * mdp.dynamics.to_dense() + (1 - share) * case.model.to_dense())
        mixed = mdp.start @ sharper_mixture_values(mdp, policy, case.model, share)
        assert mixed <= sharper_bound(mdp, policy, mixture) + ROUNDING

    def test_by_hand(self):
        """V = (0, 10), reached with 1/2 each in p, q surely moves on: E_p[V] = 5, E_q[V] + log p/q = 10 - log 2."""
        mdp = two_state_mdp()
        model, values = two_state_model(mdp, 0.0), np.array([0.0, 10.0])
        mixed = sharper_mixture(mdp, model, 0.5, values)[0, 0]
        assert mixed == pytest.approx((5 + 10 - np.log(2)) / 2)
        log_mean = np.log((1 + np.exp(10)) / 2)
        assert log_mean_exp(mdp.dynamics, values)[0, 0] == pytest.approx(log_mean)
        assert mixed < log_mean < model.expect(values)[0, 0]  # without its price, the model's promise is no bound
        # From state 1, which pays 4 for ever, l = log(4 + e^l / 2) = log 8, however many rows are real.
        assert tight_mixture_values(mdp, ONLY, model, 0.5)[1] == pytest.approx(np.log(8))


class TestMissingSupport:
    def outside(self, mdp):
        return Dynamics.from_dense(np.full((mdp.num_states, mdp.num_actions, mdp.num_states), 1 / mdp.num_states))

    def test_bounds_are_minus_infinity_and_the_warning_names_the_transition(self):
        mdp = TabularMDP.from_dense([[[0.0, 1.0]], [[1.0, 0.0]]], [1.0, 2.0], 0.9)
        for bound in (paper_bound, sharper_bound, learned_discount_bound):
            with pytest.warns(ModelSupportWarning, match="after state 0, action 0 the model moves to state 0"):
                assert bound(mdp, ONLY, self.outside(mdp)) == -np.inf

    def test_the_two_sharpest_bounds_stay_finite_and_below_the_return(self):
        mdp = random_mdp(6, 2, seed=0, successors=2)
        policy = random_policy(mdp, seed=1)
        hazard, outside = (f(mdp, policy, self.outside(mdp)) for f in (best_hazard_bound, tight_bound))
        assert np.isfinite(hazard)
        assert hazard <= outside <= log_expected_return(mdp, policy)

    def test_states_that_never_reach_the_impossible_transition_keep_their_values(self):
        # State 0 leads to 1 for ever; only in state 2 does the model do what p cannot.
        mdp = TabularMDP.from_dense([[[0, 1, 0]], [[0, 1, 0]], [[0, 0, 1]]], [1.0, 2.0, 3.0], 0.5)
        model = Dynamics.from_dense([[[0, 1, 0]], [[0, 1, 0]], [[0.5, 0, 0.5]]])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert paper_bound(mdp, np.ones((3, 1)), model) == paper_bound(mdp, np.ones((3, 1)), mdp.dynamics)

    def test_actions_that_are_never_taken_do_not_matter(self):
        mdp = TabularMDP.from_dense([[[0, 1], [0, 1]], [[0, 1], [0, 1]]], [1.0, 2.0], 0.5)
        model = Dynamics.from_dense([[[0, 1], [1, 0]], [[0, 1], [1, 0]]])
        first = deterministic_policy(np.array([0, 0]), 2)
        assert np.isfinite(paper_bound(mdp, first, model))
        with pytest.warns(ModelSupportWarning):
            assert paper_bound(mdp, 1 - first, model) == -np.inf

    def test_a_model_with_less_support_is_fine(self):
        mdp = two_state_mdp()
        assert np.isfinite(paper_bound(mdp, ONLY, two_state_model(mdp, 0.0)))


class TestZeroRewards:
    def test_logarithms_are_refused_with_the_state_action_and_remedy(self):
        mdp = TabularMDP.from_dense(np.eye(2)[:, None], [0.0, 1.0], 0.9)
        with pytest.raises(MDPError, match=r"state 0, action 0: reward 0 .*with_reward_offset"):
            paper_bound(mdp, ONLY, mdp.dynamics)

    def test_averaged_outside_needs_no_positive_rewards(self):
        # State 0 pays nothing and leads to state 1, which pays 1 for ever: V(0) = discount / (1 - discount) = 9.
        mdp = TabularMDP.from_dense([[[0, 1]], [[0, 1]]], [0.0, 1.0], 0.9)
        assert tight_bound(mdp, ONLY, mdp.dynamics) == pytest.approx(np.log(9.0))

    def test_it_is_minus_infinity_where_the_model_can_end_with_nothing(self):
        # State 0 goes to a paying or to a dead state; the model that avoids the dead one is finite and tight.
        mdp = TabularMDP.from_dense([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]], [0.0, 1.0, 0.0], 0.5)
        policy = np.ones((3, 1))
        values = tight_values(mdp, policy, mdp.dynamics)
        assert values == pytest.approx([-np.inf, np.log(2.0), -np.inf])
        model = tight_model(mdp, evaluate_policy(mdp, policy))
        assert tight_bound(mdp, policy, model) == pytest.approx(np.log(0.5 * 0.5 * 2.0))

    def test_negative_rewards_are_refused(self):
        mdp = TabularMDP.from_dense(np.eye(2)[:, None], [-1.0, 1.0], 0.9)
        with pytest.raises(MDPError, match="state 0, action 0: reward -1 is negative"):
            tight_bound(mdp, ONLY, mdp.dynamics)


class TestVMBPO:
    @given(cases(), st.sampled_from([0.01, 0.3, 1.0]))
    def test_upper_bounds_are_above_the_return(self, case, temperature):
        expected = np.exp(log_expected_return(case.mdp, case.policy))
        assert vmbpo_upper_bound(case.mdp, case.policy, temperature) >= expected * (1 - 1e-9)
        assert exponentiated_return(case.mdp, case.policy, temperature) >= expected * (1 - 1e-9)

    @given(cases(), st.sampled_from([0.1, 1.0]))
    def test_no_model_beats_the_upper_bound(self, case, temperature):
        objective = vmbpo_objective(case.mdp, case.policy, case.model, temperature)
        assert objective <= vmbpo_upper_bound(case.mdp, case.policy, temperature) * (1 + 1e-9)

    @given(cases(deterministic=True), st.sampled_from([0.1, 1.0]))
    def test_exponentiated_return_lies_between(self, case, temperature):
        mdp = from_state(case.mdp, 0)
        upper = vmbpo_upper_bound(mdp, case.policy, temperature)
        assert exponentiated_return(mdp, case.policy, temperature) <= upper * (1 + 1e-9)

    @given(cases())
    def test_at_the_real_dynamics_it_is_the_return(self, case):
        objective = vmbpo_objective(case.mdp, case.policy, case.mdp.dynamics)
        assert objective == pytest.approx(np.exp(log_expected_return(case.mdp, case.policy)))

    def test_exponentiated_return_by_hand(self):
        # One coin flip between 0 for ever and 2 for ever from the next step, discount 1/2: returns 0 or 2.
        mdp = TabularMDP.from_dense([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]], [0.0, 0.0, 2.0], 0.5)
        expected = np.log((1 + np.exp(2.0)) / 2)
        assert exponentiated_return(mdp, np.ones((3, 1))) == pytest.approx(expected, rel=1e-8)

    def test_mean_variance_expansion(self):
        """(1/eta) log E exp(eta R) = E[R] + eta/2 Var[R] + O(eta^2): the coin flip has variance 1."""
        mdp = TabularMDP.from_dense([[[0, 0.5, 0.5]], [[0, 1, 0]], [[0, 0, 1]]], [0.0, 0.0, 2.0], 0.5)
        assert exponentiated_return(mdp, np.ones((3, 1)), 1e-3) == pytest.approx(1.0 + 0.5e-3, abs=1e-6)

    @pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf])
    def test_bad_temperatures(self, temperature):
        mdp = two_state_mdp()
        with pytest.raises(MDPError, match="temperature must be a positive number"):
            vmbpo_upper_bound(mdp, ONLY, temperature)

    def test_large_values_do_not_overflow(self):
        mdp = two_state_mdp(0.9).with_reward_offset(1e5)
        assert np.isfinite(vmbpo_upper_bound(mdp, ONLY))


class TestGoals:
    def test_counter_example_to_the_printed_bound(self):
        """At q = p the printed bound is -log(1 - discount) > 0, above the logarithm of any probability."""
        for seed in range(50):
            mdp = random_mdp(5, 2, seed=seed)
            policy = random_policy(mdp, seed=seed)
            printed = printed_goal_bound(mdp, policy, mdp.dynamics, goal=0)
            assert printed == pytest.approx(-np.log(1 - mdp.discount))
            assert printed > 0 > log_goal_occupancy(mdp, policy, 0)

    @given(cases(), st.integers(0, 6))
    def test_corrected_bound_holds(self, case, goal):
        goal %= case.mdp.num_states
        occupied = log_goal_occupancy(case.mdp, case.policy, goal)
        assert corrected_goal_bound(case.mdp, case.policy, case.model, goal) <= occupied + ROUNDING

    @given(cases(), st.integers(0, 6))
    def test_goal_occupancy_is_the_share_of_time_after_the_start(self, case, goal):
        mdp, goal = case.mdp, goal % case.mdp.num_states
        shares = occupancy(mdp, case.policy).sum(axis=1)
        # sum_t discount^t P(s_t = g) = P(s_0 = g) + discount * sum_t discount^t P(s_{t+1} = g)
        expected = (shares[goal] - (1 - mdp.discount) * mdp.start[goal]) / mdp.discount
        assert np.exp(log_goal_occupancy(mdp, case.policy, goal)) == pytest.approx(expected, abs=1e-10)

    @given(cases(deterministic=True))
    def test_goal_reaching_has_a_tight_bound(self, case):
        mdp = goal_mdp(from_state(case.mdp, 0), goal=0)
        values = evaluate_policy(mdp, case.policy)
        assume(values[0] > 1e-12)
        gap = log_expected_return(mdp, case.policy) - tight_bound(mdp, case.policy, tight_model(mdp, values))
        assert abs(gap) < 1e-10

    def test_a_goal_that_is_no_state(self):
        with pytest.raises(MDPError, match="goal 7 is not a state"):
            goal_mdp(two_state_mdp(), 7)


def test_exponential_tilt_maximises_value_minus_kl():
    mdp = random_mdp(5, 2, seed=1)
    values = np.random.default_rng(0).normal(size=5)

    def objective(model):
        return model.expect(values) - kl_divergence(model, mdp.dynamics)

    best = objective(exponentially_tilted(mdp.dynamics, values))
    for seed in range(20):
        assert (objective(random_model(mdp, seed=seed)) < best).all()
    assert best == pytest.approx(np.log(mdp.dynamics.expect(np.exp(values))))


@pytest.mark.parametrize("shape", [(2, 2), (3, 1), (2,)])
def test_a_policy_of_the_wrong_shape_is_named(shape):
    mdp = two_state_mdp()
    with pytest.raises(MDPError, match=r"a policy is an array of action probabilities of shape \(2, 1\)"):
        paper_bound(mdp, np.ones(shape) / shape[-1], mdp.dynamics)


def test_a_model_of_another_mdp_is_named():
    with pytest.raises(MDPError, match="the model has 3 states and 2 actions, the MDP 2 and 1"):
        paper_bound(two_state_mdp(), ONLY, random_mdp(3, 2, seed=0).dynamics)
