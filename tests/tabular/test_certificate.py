"""Certificates hold as often as they say, grow to the true return, and say so when nothing can be said."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from conftest import cases
from mnm.tabular import (
    TransitionData,
    certify,
    deterministic_policy,
    evaluate_policy,
    random_mdp,
    random_policy,
    sample_counts,
    sample_transitions,
    solve,
    uniform_policy,
)
from mnm.tabular.bounds import average, best_sharper_bound, exponentially_tilted, sharper_bound
from mnm.tabular.certificate import Counts, Known, uncertain_mdp
from mnm.tabular.mdp import MDPError, TabularMDP
from mnm.tabular.random_mdps import random_model
from mnm.tabular.robust import best_policy, lower_values

RANGE = (0.1, 10.0)
LEVELS = (0.5, 0.8, 0.95)


def true_return(mdp, policy):
    return average(mdp.start, evaluate_policy(mdp, policy))


def certificate(mdp, counts, policy, confidence=0.95, **more):
    return certify(
        counts, policy, confidence=confidence, discount=mdp.discount, reward_range=RANGE, start=mdp.start, **more
    )


def flattering_counts(mdp, policy, longest, generator):
    """Each pair is tried until its successors look best, so far as `longest` draws allow: data that stop on purpose."""
    values = evaluate_policy(mdp, policy)
    states, actions, slots = mdp.dynamics.probs.shape
    cumulated = mdp.dynamics.probs.cumsum(axis=-1)
    drawn = (generator.random((states, actions, longest, 1)) > cumulated[:, :, None, :-1]).sum(axis=-1)
    gained = np.take_along_axis(values[mdp.dynamics.successors], drawn, axis=-1)
    best = (gained.cumsum(axis=-1) / np.arange(1, longest + 1)).argmax(axis=-1)
    kept = np.arange(longest) <= best[:, :, None]
    counts = ((drawn[:, :, :, None] == np.arange(slots)) & kept[..., None]).sum(axis=2).astype(float)
    rewards = mdp.rewards
    return Counts(mdp.dynamics.successors, counts, counts.sum(axis=-1) * rewards, rewards, rewards)


@pytest.fixture(scope="module")
def exceeded():
    """By confidence, in how many of 1,000 data sets the certificate exceeds the true return; and the plug-in's promise.

    Of random MDPs; half of the data sets are made to flatter the policy, by when their sampling stops.
    """
    generator = np.random.default_rng(0)
    exceeded, promised = dict.fromkeys(LEVELS, 0), 0
    for number in range(1_000):
        mdp = random_mdp(3, 2, seed=number // 20, discount=0.8)
        policy = random_policy(mdp, seed=number // 20)
        if number % 2:
            counts = flattering_counts(mdp, policy, 40, generator)
        else:
            counts = sample_counts(mdp, generator.integers(0, 40, (3, 2)), seed=number)
        certificates = {LEVELS[0]: certificate(mdp, counts, policy, LEVELS[0])}
        truth = true_return(mdp, policy)
        if certificates[LEVELS[0]].value > truth:  # else none does: they fall as the confidence grows
            certificates |= {level: certificate(mdp, counts, policy, level) for level in LEVELS[1:]}
        for level, one in certificates.items():
            exceeded[level] += one.value > truth
        promised += certificates[LEVELS[0]].promise > truth
    return exceeded, promised


class TestCoverage:
    @pytest.mark.slow
    @pytest.mark.parametrize("level", LEVELS)
    def test_the_certificate_holds_as_often_as_it_says(self, exceeded, level):
        interval = binomtest(exceeded[0][level], 1_000).proportion_ci(0.95)
        assert interval.high <= 1 - level + 0.01

    def test_the_promise_does_not(self, exceeded):
        assert exceeded[1] > 500

    def test_more_confidence_certifies_less(self):
        mdp = random_mdp(4, 2, seed=1)
        counts = sample_counts(mdp, 50, seed=0)
        values = [certificate(mdp, counts, uniform_policy(mdp), level).value for level in LEVELS]
        assert values == sorted(values, reverse=True)


class TestRobustEvaluation:
    @pytest.mark.slow
    @settings(max_examples=30)
    @given(cases(), st.integers(1, 200))
    def test_no_dynamics_of_the_sets_return_less(self, case, draws):
        """Random models of the sets, and the adversary's own, are never below the certificate."""
        mdp = case.mdp
        known = Known(mdp.discount, (1e-3, 10.0), mdp.num_states, random_rewards=False)
        uncertain = uncertain_mdp(sample_counts(mdp, draws, seed=0), known, 0.9)
        lower = lower_values(uncertain, case.policy, np.full(mdp.num_states, known.worst_return))
        adversary = uncertain.worst_dynamics(lower)
        worst = evaluate_policy(TabularMDP(adversary, mdp.rewards, mdp.start, mdp.discount), case.policy)
        size = np.abs(worst).max()
        assert (worst >= lower - 1e-12 * size).all()
        assert np.allclose(worst, lower, atol=1e-6 * size)
        inside = np.where(uncertain.probs > 0, np.log(np.where(uncertain.probs > 0, uncertain.probs, 1.0)), 0.0)
        for seed in range(5):
            model = random_model(mdp, seed=seed)
            mixed = mdp.dynamics.with_probs(0.9 * uncertain.probs + 0.1 * model.probs)
            with np.errstate(divide="ignore"):
                apart = (uncertain.probs * (inside - np.log(np.where(mixed.probs > 0, mixed.probs, 1.0)))).sum(axis=-1)
            if (apart <= uncertain.radius).all():
                other = evaluate_policy(TabularMDP(mixed, mdp.rewards, mdp.start, mdp.discount), case.policy)
                assert (other >= lower - 1e-9 * size).all()

    def test_the_fixed_point_of_plain_iteration_is_the_same(self):
        mdp = random_mdp(5, 2, seed=3)
        policy = random_policy(mdp, seed=4)
        known = Known(mdp.discount, RANGE, 5, random_rewards=False)
        uncertain = uncertain_mdp(sample_counts(mdp, 30, seed=5), known, 0.9)
        values = np.zeros(5)
        for _ in range(400):
            values = (policy * uncertain.action_values(values)).sum(axis=1)
        lower = lower_values(uncertain, policy, np.zeros(5))
        assert np.allclose(lower, values, rtol=1e-9)
        assert (lower <= values).all()

    def test_by_hand_on_one_state_after_another(self):
        """State 0 leads to 1 three times in three, 1 to itself: V(0) = 0 + 0.5 (e^-b V(1) + (1 - e^-b) min V)."""
        data = TransitionData([0, 0, 0, *[1] * 50], [0] * 53, [0.0] * 3 + [1.0] * 50, [1] * 53)
        made = certify(data, [[1.0], [1.0]], discount=0.5, reward_range=(0.0, 1.0), successors=2, confidence=0.9)
        radius = {n: (2 * np.log(2) + np.log(2 / 0.1)) / n for n in (3, 50)}
        first, second = np.exp(-radius[3]), np.exp(-radius[50])
        matrix = np.array([[1 - 0.5 * (1 - first), -0.5 * first], [-0.5 * (1 - second), 1 - 0.5 * second]])
        assert np.allclose(made.values, np.linalg.solve(matrix, [0.0, 1.0]), rtol=1e-9)

    def test_deterministic_dynamics_need_one_sample(self):
        """If only one state can follow a pair, one transition says all."""
        mdp = random_mdp(4, 2, seed=0, successors=1)
        made = certificate(mdp, sample_counts(mdp, 1, seed=0), uniform_policy(mdp), successors=1)
        assert made.value == pytest.approx(true_return(mdp, uniform_policy(mdp)), rel=1e-9)


class TestBest:
    @pytest.mark.parametrize("seed", range(5))
    def test_no_policy_has_a_larger_certificate(self, seed):
        mdp = random_mdp(3, 2, seed=seed)
        counts = sample_counts(mdp, np.random.default_rng(seed).integers(1, 60, (3, 2)), seed=seed)
        best = certificate(mdp, counts, "best")
        for number in range(8):
            policy = deterministic_policy((number >> np.arange(3)) & 1, 2)
            assert (certificate(mdp, counts, policy).values <= best.values + 1e-8).all()
        assert best.value <= true_return(mdp, best.policy)

    def test_it_avoids_what_was_never_tried(self):
        """One pair never tried, and it would be the best: the policy of the largest certificate does without it."""
        mdp = random_mdp(4, 2, seed=2, successors=2)
        visits = np.full((4, 2), 2_000)
        best = solve(mdp).actions
        visits[0, best[0]] = 0
        made = certificate(mdp, sample_counts(mdp, visits, seed=0), "best")
        assert made.policy.argmax(axis=1)[0] != best[0]
        assert RANGE[0] / 0.1 < made.value <= true_return(mdp, made.policy)

    def test_with_many_data_it_is_the_optimal_policy(self):
        mdp = random_mdp(5, 3, seed=1)
        made = certificate(mdp, sample_counts(mdp, 10**7, seed=0), "best")
        assert made.value == pytest.approx(average(mdp.start, solve(mdp).values), rel=5e-3)

    @pytest.mark.slow
    def test_large_mdps_go_the_compiled_way(self):
        mdp = random_mdp(2_500, 2, seed=0, successors=3)
        counts = sample_counts(mdp, 400, seed=0)
        made = certificate(mdp, counts, "best", successors=3)
        assert RANGE[0] / 0.1 < made.value <= true_return(mdp, made.policy)
        assert made.bounds == {}
        assert len(made.costliest(3)) == 3


def test_it_grows_to_the_true_return_at_the_rate_of_a_square_root():
    mdp = random_mdp(5, 2, seed=0)
    policy = uniform_policy(mdp)
    numbers = 10 ** np.arange(2, 8)
    gaps = [true_return(mdp, policy) - certificate(mdp, sample_counts(mdp, n, seed=1), policy).value for n in numbers]
    assert gaps == sorted(gaps, reverse=True)
    slope = np.polyfit(np.log(numbers[2:]), np.log(gaps[2:]), 1)[0]
    assert -0.6 < slope < -0.4


class TestNotCertified:
    def test_a_pair_never_tried_at_the_start(self):
        mdp = random_mdp(4, 2, seed=0)
        visits = np.full((4, 2), 1_000)
        visits[0, 1] = 0
        counts = sample_counts(mdp, visits, seed=0)
        policy = deterministic_policy(np.array([1, 0, 0, 0]), 2)
        made = certify(counts, policy, discount=0.9, reward_range=RANGE)
        assert not made.certified
        assert made.value == pytest.approx(1.0)
        assert "state 0, action 1 was never tried" in made.why_not
        (cost,) = made.costliest(1)
        assert (cost.state, cost.action, cost.samples) == (0, 1, 0)
        assert np.isnan(cost.gain)

    def test_a_pair_never_tried_that_is_not_needed(self):
        mdp = random_mdp(4, 2, seed=0)
        visits = np.full((4, 2), 1_000)
        visits[3, 1] = 0
        made = certificate(mdp, sample_counts(mdp, visits, seed=0), deterministic_policy(np.zeros(4, int), 2))
        assert made.certified
        assert made.why_not == ""

    def test_a_pair_never_tried_on_the_way_costs_its_share(self):
        """State 1 is where all roads lead, and what the policy does there was never tried."""
        mdp = TabularMDP.from_dense([[[0.1, 0.9]] * 2, [[0.1, 0.9]] * 2], [[5.0, 5.0], [5.0, 5.0]], 0.9)
        visits = np.array([[10**6, 10**6], [0, 10**6]])
        counts = sample_counts(mdp, visits, seed=0)
        tried, untried = (certify(counts, deterministic_policy(np.array([0, a]), 2), discount=0.9, reward_range=RANGE)
                          for a in (1, 0))  # fmt: skip
        assert tried.value == pytest.approx(50.0, rel=0.01)
        # Worst: state 1 stays for ever and pays 0.1, so V(0) = 5 + 0.9 (0.1 V(0) + 0.9 * 1).
        assert untried.value == pytest.approx((5 + 0.81) / 0.91, rel=0.01)


class TestRewards:
    def test_random_rewards_are_refused_unless_declared(self):
        data = TransitionData([0, 0], [0, 0], [1.0, 2.0], [0, 0])
        with pytest.raises(MDPError, match=r"state 0, action 0: the rewards 1 and 2 differ; .*--random-rewards"):
            certify(data, [[1.0]], discount=0.5, reward_range=(0.0, 2.0))

    def test_random_rewards_are_covered_and_tighten(self):
        generator = np.random.default_rng(0)
        for draws, loosest in ((50, 1.5), (5_000, 0.15)):
            rewards = generator.choice([0.0, 2.0], draws)
            zeros = np.zeros(draws, int)
            made = certify(
                TransitionData(zeros, zeros, rewards, zeros), [[1.0]],
                discount=0.5, reward_range=(0.0, 2.0), random_rewards=True,
            )  # fmt: skip
            assert 2.0 - loosest < made.value < made.promise

    def test_a_reward_outside_of_its_range_is_refused(self):
        data = TransitionData([0], [0], [3.0], [0])
        with pytest.raises(MDPError, match=r"reward 3 is outside of the declared range 0 to 2"):
            certify(data, [[1.0]], discount=0.5, reward_range=(0.0, 2.0))

    def test_negative_rewards_have_certificates_and_no_bounds(self):
        mdp = random_mdp(3, 2, seed=0).with_reward_offset(-5.0)
        made = certify(sample_counts(mdp, 200, seed=0), uniform_policy(mdp), discount=0.9, reward_range=(-5.0, 5.0))
        assert -50 < made.value < made.promise
        assert made.bounds == {}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"confidence": 1.0}, "confidence must lie strictly between 0 and 1"),
        ({"discount": 1.0}, "discount must lie strictly between 0 and 1"),
        ({"reward_range": (1.0, 1.0)}, "reward range must be two finite numbers"),
        ({"reward_range": (1.0,)}, "reward range must be two finite numbers"),
        ({"start": 4}, "start state 4 is not a state"),
        ({"start": [0.5, 0.5]}, "one probability for each of the 3 states"),
        ({"successors": 1}, "different states followed, but at most 1"),
        ({"successors": 4}, "must be 1 to 3"),
        ({"policy": "good"}, "the policy is 'good'"),
        ({"policy": [[1.0, 0.0]]}, r"the policy's shape is \(1, 2\)"),
    ],
)
def test_what_makes_no_sense_is_refused(changed, message):
    mdp = random_mdp(3, 2, seed=0)
    settings = {"policy": uniform_policy(mdp), "discount": 0.9, "reward_range": RANGE} | changed
    with pytest.raises(MDPError, match=message):
        certify(sample_counts(mdp, 20, seed=0), settings.pop("policy"), **settings)


def test_best_needs_the_numbers_of_states_and_actions():
    with pytest.raises(MDPError, match="how many states and actions there are must be said"):
        certify(TransitionData([0], [0], [1.0], [0]), "best", discount=0.5, reward_range=(0.0, 1.0))


def test_costs_predict_what_more_samples_bring():
    """The gain of doubling one pair's samples is what a new certificate shows, to first order."""
    mdp = random_mdp(4, 2, seed=5)
    policy = uniform_policy(mdp)
    counts = sample_counts(mdp, 20_000, seed=0)
    made = certificate(mdp, counts, policy)
    cost = made.costliest(1)[0]
    numbers = counts.counts.copy()
    numbers[cost.state, cost.action] *= 2
    more = Counts(counts.successors, numbers, numbers.sum(-1) * mdp.rewards, mdp.rewards, mdp.rewards)
    assert certificate(mdp, more, policy).value - made.value == pytest.approx(cost.gain, rel=0.05)
    assert cost.cost > cost.gain > 0


def test_the_bound_of_the_best_model_is_the_largest():
    mdp = random_mdp(4, 2, seed=0)
    policy = random_policy(mdp, seed=1)
    best = best_sharper_bound(mdp, policy)
    assert best <= np.log(true_return(mdp, policy))
    assert all(sharper_bound(mdp, policy, random_model(mdp, seed=seed)) <= best for seed in range(20))
    values = np.zeros(4)
    for _ in range(300):
        rewards = (1 - mdp.discount) * np.log(mdp.rewards / (1 - mdp.discount))
        values = (policy * (rewards + mdp.discount * np.log(mdp.dynamics.expect(np.exp(values))))).sum(axis=1)
    assert sharper_bound(mdp, policy, exponentially_tilted(mdp.dynamics, values)) == pytest.approx(best, abs=1e-9)


def test_from_transitions_as_from_counts():
    mdp = random_mdp(4, 2, seed=0)
    policy = uniform_policy(mdp)
    data = sample_transitions(mdp, policy, 3_000, seed=0)
    made = certify(data, policy, discount=mdp.discount, reward_range=RANGE, start=mdp.start)
    assert 1.0 < made.value < true_return(mdp, policy)
    assert made.promise == pytest.approx(true_return(mdp, policy), rel=0.1)
    assert set(made.bounds) == {"MnM's bound", "tight bound"}
    assert made.bounds["MnM's bound"] <= made.bounds["tight bound"] <= made.promise + 1e-9


def test_the_greedy_policy_of_a_flat_set_is_any():
    mdp = random_mdp(3, 2, seed=0)
    known = Known(0.9, RANGE, 3, random_rewards=False)
    nothing = sample_counts(mdp, 0, seed=0)
    policy = best_policy(uncertain_mdp(nothing, known, 0.9), mdp.start, np.ones(3))
    assert policy.sum() == 3
    assert not certificate(mdp, nothing, "best").certified
