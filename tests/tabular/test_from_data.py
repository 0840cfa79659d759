"""Learning from real transitions: the classifier is a logistic regression, the model's optimum is p exp V."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnm.tabular.from_data import (
    LEARNERS,
    HonestSchedule,
    improve_model,
    learn_from_data,
    train_classifier,
)
from mnm.tabular.paper_tasks import stochastic_gridworld


def test_classifier_finds_the_log_ratio_of_its_data():
    positives, negatives = jnp.array([30.0, 5.0, 1.0]), jnp.array([10.0, 20.0, 1.0])
    logits = jnp.zeros(3)
    for _ in range(10):
        logits = train_classifier(logits, positives, negatives)
    assert np.asarray(logits) == pytest.approx(np.log([3.0, 0.25, 1.0]), abs=1e-5)


@pytest.mark.slow
def test_classifier_maximises_the_cross_entropy():
    positives, negatives = jnp.array([7.0, 2.0]), jnp.array([3.0, 9.0])

    def cross_entropy(logits):
        return (positives * jax.nn.log_sigmoid(logits) + negatives * jax.nn.log_sigmoid(-logits)).sum()

    logits = jnp.zeros(2)
    for _ in range(10):
        logits = train_classifier(logits, positives, negatives)
    assert np.asarray(jax.grad(cross_entropy)(logits)) == pytest.approx([0.0, 0.0], abs=1e-4)


def test_classifier_without_data_does_not_move_and_without_negatives_stays_finite():
    logits = jnp.array([0.7, 0.0])
    for _ in range(100):
        logits = train_classifier(logits, jnp.array([0.0, 5.0]), jnp.array([0.0, 0.0]))
    assert float(logits[0]) == pytest.approx(0.7)
    assert np.isfinite(logits).all()
    assert float(logits[1]) > 10


def test_one_model_step_with_the_exact_logit_reaches_p_exp_v():
    real, model = jnp.array([0.5, 0.3, 0.2]), jnp.array([0.1, 0.1, 0.8])
    values = jnp.array([1.0, -2.0, 0.5])
    improved = improve_model(jnp.log(model), jnp.log(real / model) + values, jnp.array([True, True, True]))
    expected = np.asarray(real) * np.exp(values)
    assert np.asarray(jnp.exp(improved)) == pytest.approx(expected / expected.sum(), abs=1e-6)


def test_the_model_has_no_mass_on_what_was_never_seen():
    improved = improve_model(jnp.log(jnp.array([0.5, 0.5, 0.0])), jnp.zeros(3), jnp.array([True, True, False]))
    assert np.asarray(jnp.exp(improved)) == pytest.approx([0.5, 0.5, 0.0])


@pytest.fixture(scope="module")
def runs():
    schedule = HonestSchedule(real_episodes=150, model_rounds=2)
    return learn_from_data(stochastic_gridworld().mdp, list(LEARNERS.values()), [0, 1], schedule)


@pytest.mark.slow
def test_counts_are_the_real_steps(runs):
    assert runs.counts.sum(axis=(2, 3, 4)) == pytest.approx(150 * 200)
    assert runs.real_steps[[0, -1]].tolist() == [200, 30000]


def test_counts_stay_within_the_real_successors(runs):
    probs = stochastic_gridworld().mdp.dynamics.probs
    assert not runs.counts[..., probs == 0].any()


def test_the_learned_classifier_estimates_the_ratio(runs):
    probs = stochastic_gridworld().mdp.dynamics.probs
    learner = list(LEARNERS).index("MnM")
    counts, model, logits = runs.counts[learner, 0], runs.model_probs[learner, 0], runs.logits[learner, 0]
    often = (counts >= 50) & (model > 0)
    assert often.sum() > 50
    error = np.abs(logits[often] - np.log(probs[often] / model[often]))
    assert error.mean() < 0.15


def test_the_model_s_rows_are_distributions_where_there_are_data(runs):
    learner = list(LEARNERS).index("MnM")
    tried = runs.counts[learner].sum(axis=-1) > 0
    totals = runs.model_probs[learner].sum(axis=-1)
    assert totals[tried] == pytest.approx(1.0)
    assert not totals[~tried].any()


@pytest.mark.slow
def test_the_same_seed_is_bit_equal():
    mdp = stochastic_gridworld().mdp
    schedule = HonestSchedule(real_episodes=5, model_rounds=2)
    first, again = (learn_from_data(mdp, [LEARNERS["MnM"]], [7], schedule).model_probs for _ in range(2))
    np.testing.assert_array_equal(first, again)
