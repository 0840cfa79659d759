"""Settings are checked by their types when they are made."""

import json
from dataclasses import dataclass, fields, replace
from typing import Annotated, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from mnm.agents import ALGORITHMS
from mnm.agents.base import AgentConfig, Bounds, ConfigError, Layers
from mnm.training.saving import config_as_json

CONFIG = ALGORITHMS["mnm_approx"].presets["cpu"]


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("hidden", 64, "hidden is 64, but must be several whole numbers, such as (64, 64)"),
        ("hidden", (64, 0), "hidden is (64, 0), but must be several, each above 0"),
        ("hidden", (64, "64"), "hidden is (64, '64'), but must be several, each a whole number"),
        ("learning_rate", "0.1", "learning_rate is '0.1', but must be a finite number"),
        ("learning_rate", 0.0, "learning_rate is 0.0, but must be above 0"),
        ("learning_rate", float("nan"), "learning_rate is nan, but must be a finite number"),
        ("learning_rate", True, "learning_rate is True, but must be a finite number"),
        ("hidden", (8,) * 101, f"hidden is ({'8, ' * 38}8,..., but must be at most 100 numbers"),
        ("replay_capacity", 10**12, "replay_capacity is 1000000000000, but must be below 2,147,483,648"),
        ("learning_rate", 10**400, f"learning_rate is 1{'0' * 116}..., but must be a finite number"),
        ("batch_size", 12.5, "batch_size is 12.5, but must be a whole number"),
        ("batch_size", True, "batch_size is True, but must be a whole number"),
        ("batch_size", 0, "batch_size is 0, but must be above 0"),
        ("discount", 1.0, "discount is 1.0, but must be 0 or more and below 1"),
        ("target_rate", 0, "target_rate is 0, but must be above 0 and below 1"),
        ("warmup_updates", -1, "warmup_updates is -1, but must be 0 or more"),
        ("random_episode_steps", "100", "random_episode_steps is '100', but must be a whole number or None"),
        ("random_episode_steps", 0, "random_episode_steps is 0, but must be above 0 or None"),
        ("layer_norm", 1, "layer_norm is 1, but must be True or False"),
        ("value_term", "large", "value_term is 'large', but must be one of 'relative', 'raw'"),
    ],
)
def test_a_value_that_a_setting_cannot_have_is_refused_with_what_it_must_be(setting, value, message):
    with pytest.raises(ConfigError) as caught:
        replace(CONFIG, **{setting: value})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("setting", "value"),
    [("hidden", (8,)), ("learning_rate", 1), ("batch_size", np.int64(8)), ("random_episode_steps", None)],
)
def test_a_value_that_a_setting_can_have_is_kept(setting, value):
    assert getattr(replace(CONFIG, **{setting: value}), setting) == value


@pytest.mark.parametrize("value", [[64, 64], np.array([64, 64]), (np.int64(64), 64)])
def test_several_numbers_become_a_tuple(value):
    assert replace(CONFIG, hidden=value).hidden == (64, 64)


def test_numpy_s_numbers_become_python_s_own():
    config = replace(
        CONFIG, hidden=np.array([8]), batch_size=np.int64(8), discount=np.float64(0.5), layer_norm=np.True_
    )
    assert json.loads(json.dumps(config_as_json(config)))["batch_size"] == 8
    assert (type(config.discount), config.discount, config.layer_norm) == (float, 0.5, True)


def test_every_number_among_the_settings_of_every_agent_says_what_it_may_be():
    """But the target entropy, which may be any number."""
    for algorithm in ALGORITHMS.values():
        kind = type(algorithm.presets["cpu"])
        hints = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            hint = hints[field.name]
            inner = [hint, *get_args(hint)] if get_origin(hint) is not Annotated else [hint]
            assert field.name == "target_entropy" or (int not in inner and float not in inner), field.name


def test_a_setting_of_one_s_own_is_checked_too():
    @dataclass(frozen=True)
    class OwnConfig(AgentConfig):
        even: Annotated[int, Bounds(low=10, below=20)] = 12
        layers: Layers = (4,)

    with pytest.raises(ConfigError, match="even is 20, but must be above 10 and below 20"):
        OwnConfig(even=20)
