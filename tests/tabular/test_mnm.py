"""Joint iteration: monotone with a consistent pair, optimal at the end, and the paper's own version."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import cases
from mnm.tabular import (
    MDPError,
    TabularMDP,
    joint_iteration,
    joint_iteration_paper,
    joint_iteration_tight,
    joint_iteration_vmbpo,
    log_expected_return,
    optimal_return,
    random_mdp,
)
from mnm.tabular.bounds import average, ladder, paper_bound, sharper_bound, tight_bound, vmbpo_upper_bound
from mnm.tabular.mdp import start_distribution
from mnm.tabular.paper_tasks import comparing_objectives, optimistic_text, stochastic_gridworld, three_states
from mnm.tabular.random_mdps import random_model, random_policy


def gains(steps):
    return [after.values - before.values for before, after in pairwise(steps)]


class TestConsistentPairs:
    @given(cases(), st.booleans())
    def test_every_iteration_improves_every_state(self, case, sharper):
        weight = case.mdp.discount if sharper else 1.0
        for gain in gains(joint_iteration(case.mdp, weight)):
            assert gain.min() >= -1e-10

    @given(cases(), st.booleans())
    def test_no_policy_and_model_beat_the_result(self, case, sharper):
        weight, bound = (case.mdp.discount, sharper_bound) if sharper else (1.0, paper_bound)
        best = average(case.mdp.start, joint_iteration(case.mdp, weight)[-1].values)
        assert bound(case.mdp, case.policy, case.model) <= best + 1e-8

    @given(cases(), st.booleans())
    def test_the_result_is_a_fixed_point_of_the_joint_bellman_operator(self, case, sharper):
        mdp = case.mdp
        weight = mdp.discount if sharper else 1.0
        values = joint_iteration(mdp, weight)[-1].values
        rest = 1 - mdp.discount
        inner = np.log(mdp.dynamics.expect(np.exp(mdp.discount / weight * values)))
        expected = (rest * np.log(mdp.expected_rewards / rest) + weight * inner).max(axis=1)
        assert values == pytest.approx(expected, abs=1e-7)

    def test_the_inconsistent_pair_without_averaging_is_not_monotone(self):
        worst = min(
            gain.min()
            for seed in range(30)
            for gain in gains(joint_iteration_paper(random_mdp(6, 3, seed=seed, smallest_reward=1e-3), averaging=1.0))
        )
        assert worst < -1e-6

    def test_it_needs_fewer_iterations_than_the_paper_with_averaging(self):
        mdp = comparing_objectives().mdp
        assert len(joint_iteration(mdp, mdp.discount)) - 1 <= 6
        assert len(joint_iteration_paper(mdp)) - 1 == 20


class TestPaper:
    def test_numbers_on_comparing_objectives(self):
        mdp = comparing_objectives().mdp
        steps = joint_iteration_paper(mdp)
        first, last = (ladder(mdp, step.policy, step.model) for step in (steps[0], steps[-1]))
        assert first["paper's bound"] == pytest.approx(np.log(10), abs=1e-4)
        assert last["paper's bound"] == pytest.approx(2.3404, abs=5e-5)
        assert last["log expected return"] == pytest.approx(2.4195, abs=5e-5)

    def test_values_are_the_paper_bound(self):
        mdp = stochastic_gridworld().mdp
        step = joint_iteration_paper(mdp)[-1]
        assert average(mdp.start, step.values) == pytest.approx(paper_bound(mdp, step.policy, step.model))

    def test_rewards_that_depend_on_the_next_state_stay_a_lower_bound(self):
        _, mdp = optimistic_text()
        for step in joint_iteration_paper(mdp):
            assert average(mdp.start, step.values) <= log_expected_return(mdp, step.policy) + 1e-12

    def test_a_reward_without_logarithm_on_a_transition_is_named(self):
        _, mdp = optimistic_text()
        with pytest.raises(MDPError, match=r"reward -0\.999 has no logarithm"):
            joint_iteration_paper(mdp.with_reward_offset(-1.0))

    def test_three_states(self):
        mdp = three_states()
        step = joint_iteration_paper(mdp)[-1]
        assert step.policy.argmax(axis=1)[1] == 0
        assert np.exp(log_expected_return(mdp, step.policy)) == pytest.approx(451.0, abs=1e-3)


class TestTight:
    @pytest.mark.slow
    @given(cases())
    def test_monotone_and_tight_at_the_optimal_return(self, case):
        mdp = replace(case.mdp, start=start_distribution(0, case.mdp.num_states))
        steps = joint_iteration_tight(mdp)
        for gain in gains(steps):
            assert gain.min() >= -1e-10
        bound = average(mdp.start, steps[-1].values)
        assert bound == pytest.approx(np.log(optimal_return(mdp)), abs=1e-8)
        assert bound == pytest.approx(log_expected_return(mdp, steps[-1].policy), abs=1e-10)

    @given(cases())
    def test_no_policy_and_model_beat_the_result(self, case):
        best = average(case.mdp.start, joint_iteration_tight(case.mdp)[-1].values)
        assert tight_bound(case.mdp, case.policy, case.model) <= best + 1e-9

    def test_sparse_rewards_without_offset(self):
        """Rewards of 0 almost everywhere: the bound becomes finite layer by layer, from the goal outwards."""
        chain = np.zeros((5, 2, 5))
        for state in range(4):
            chain[state, 0, state] = 1.0
            chain[state, 1, state + 1] = 1.0
        chain[4, :, 4] = 1.0
        mdp = TabularMDP.from_dense(chain, [0, 0, 0, 0, 1.0], 0.9)
        step = joint_iteration_tight(mdp)[-1]
        assert step.policy.argmax(axis=1)[:4].tolist() == [1, 1, 1, 1]
        assert step.values[0] == pytest.approx(np.log(0.9**4 * 10))


class TestVMBPO:
    def test_risk_seeking_on_three_states(self):
        mdp = three_states()
        step = joint_iteration_vmbpo(mdp)[-1]
        assert step.policy.argmax(axis=1).tolist() == [0, 1, 1]
        # Right: V_R = 51 + 0.9 (V_R + V_M) / 2, V_M = 1 + 0.9 V_R, so V_M = 1 + 0.9 (51 + 0.45) / (1 - 0.45 - 0.405).
        expected = 1 + 0.9 * (51 + 0.45) / (1 - 0.45 - 0.405)
        assert np.exp(log_expected_return(mdp, step.policy)) == pytest.approx(expected)

    def test_a_small_temperature_is_risk_neutral(self):
        mdp = three_states()
        step = joint_iteration_vmbpo(mdp, temperature=1e-3)[-1]
        assert np.exp(log_expected_return(mdp, step.policy)) == pytest.approx(451.0)

    @given(cases(), st.sampled_from([0.1, 1.0]))
    def test_monotone_and_above_the_optimal_return(self, case, temperature):
        steps = joint_iteration_vmbpo(case.mdp, temperature)
        for gain in gains(steps):
            assert gain.min() >= -1e-9 * np.abs(steps[-1].values).max()
        best = average(case.mdp.start, steps[-1].values)
        assert best >= optimal_return(case.mdp) * (1 - 1e-9)
        assert best >= vmbpo_upper_bound(case.mdp, case.policy, temperature) * (1 - 1e-9)

    def test_bad_temperature(self):
        with pytest.raises(MDPError, match="temperature must be a positive number; got 0"):
            joint_iteration_vmbpo(three_states(), temperature=0.0)


def test_a_random_model_and_policy_are_valid():
    mdp = random_mdp(5, 2, seed=0, successors=3)
    assert random_model(mdp, seed=1).probs.sum(axis=-1) == pytest.approx(1.0)
    assert random_policy(mdp, seed=1).sum(axis=-1) == pytest.approx(1.0)
