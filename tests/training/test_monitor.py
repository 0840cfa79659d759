"""What goes wrong is said early, once, with the part and what to try."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnm.agents.actor_critic import ActorCriticConfig
from mnm.agents.sac import init
from mnm.training.monitor import DivergedError, DivergenceMonitor, check_losses, check_numbers

GOOD = {"critic_loss": 1.0, "model_error_1": 0.1, "constant_error_1": 1.0, "classifier_accuracy": 0.6}


def said(rows):
    watch = DivergenceMonitor()
    return [watch.warnings(row) for row in rows]


def test_a_good_run_gives_no_warning():
    assert said([GOOD] * 10) == [[]] * 10


def test_an_exploded_loss_is_named_once_and_again_after_it_had_passed():
    exploded = GOOD | {"critic_loss": -1e6}
    found = said([GOOD] * 4 + [exploded, exploded, GOOD, exploded])
    assert [len(texts) for texts in found] == [0, 0, 0, 0, 1, 0, 0, 1]
    assert found[4][0].startswith("the critics: critic_loss is -1e+06, usually 1: try a smaller --learning-rate")


def test_the_first_rows_are_nothing_to_compare_with():
    assert said([GOOD, GOOD | {"critic_loss": 1e9}]) == [[], []]


@pytest.mark.parametrize("error", [1.5, np.nan])
def test_a_model_worse_than_the_mean_change_is_named(error):
    ((text,),) = said([GOOD | {"model_error_1": error}])
    assert text.startswith("the dynamics model: its error on held-out transitions")
    assert "--warmup-updates" in text


def test_a_classifier_that_is_always_right_is_named_after_five_rows():
    found = said([GOOD | {"classifier_accuracy": 0.995}] * 6)
    assert [len(texts) for texts in found] == [0, 0, 0, 0, 1, 0]
    assert "the classifier" in found[4][0]
    assert said(([GOOD | {"classifier_accuracy": 0.995}] * 4 + [GOOD]) * 3) == [[]] * 15


@pytest.mark.parametrize("loss", [np.nan, np.inf])
def test_a_loss_that_is_no_number_stops_the_run(loss):
    check_losses(GOOD)
    with pytest.raises(DivergedError, match=f"the critics: critic_loss is {loss}: try"):
        check_losses(GOOD | {"critic_loss": loss})


@pytest.mark.slow
def test_a_parameter_that_is_no_number_is_found_and_named():
    state = init(ActorCriticConfig(hidden=(4,)), 2, 1, jax.random.key(0))
    check_numbers(state)
    broken = jax.tree.map(lambda leaf: leaf, state)
    object.__setattr__(
        broken.actor_critic.policy.network, "biases", (jnp.array([0.0, jnp.nan, 0.0, 0.0]), jnp.zeros(2))
    )
    with pytest.raises(DivergedError, match=r"actor_critic\.policy\.network\.biases\.0 is nan"):
        check_numbers(broken)
