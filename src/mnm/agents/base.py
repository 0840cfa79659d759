"""What every agent's settings have in common, and what a setting may be.

A setting's type says which values it may have: `discount: Share = 0.99`. They are checked when the settings are made,
by whichever way they came: flags, Python, a file.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, TypeVar, get_type_hints

from jaxtyping import Array, Float

from mnm.messages import UserError, short
from mnm.schema import Bounds, Count, CountOrZero, Layers, NonNegative, Positive, Rate, Share, as_python, refused

__all__ = [
    "AgentConfig",
    "Bounds",
    "ConfigError",
    "Count",
    "CountOrZero",
    "Layers",
    "Metrics",
    "NonNegative",
    "Positive",
    "Rate",
    "Share",
    "settings_after",
]

Metrics = dict[str, Float[Array, ""]]
Config = TypeVar("Config", bound="AgentConfig")


class ConfigError(UserError):
    """A setting with a value that it cannot have."""


@dataclass(frozen=True)
class AgentConfig:
    """What the loop needs to know; every algorithm's settings begin with it."""

    learning_starts: Count = 10_000
    """Real steps with uniformly random actions before anything is learned."""
    random_episode_steps: Count | None = 100
    """Episodes of random actions are cut off after so many steps, so that there are many starts among them; none: they
    are as long as the task's."""
    episode_limit: Count = 1_000
    """Episodes of a task without a time limit of its own are cut off after so many steps."""
    updates_per_step: Count = 20
    """Updates after every real step."""
    replay_capacity: Count = 1_000_000
    """How many real transitions are kept."""
    discount: Share = 0.99
    final_discount: Share | None = 0.995
    """The discount from `final_discount_start` on, in tasks whose episodes end: so that a fall counts that comes after
    hundreds of steps. None: it stays what it was."""
    final_discount_start: Count = 5_000
    """In real steps. An agent that sees far from the start on learns to survive, and nothing else."""

    def __post_init__(self) -> None:
        """Refuse values that no run can have; lists become tuples, NumPy's numbers Python's own."""
        own: Any = type(self)
        kinds = _kinds(own)
        for field in fields(self):
            value = as_python(getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            if why := refused(value, kinds[field.name]):
                raise ConfigError(f"{field.name} is {short(value)}, but must be {why}")


def settings_after(config: Config, steps: int) -> Config:
    """The settings that hold after so many real steps: `discount` is the one of then."""
    later = config.final_discount is not None and steps > config.final_discount_start
    return _with_discount(config, config.final_discount if later else config.discount)


@cache
def _with_discount(config: Config, discount: Any) -> Config:
    """Without a word of what it was or will be: the programs that are compiled for the settings do not depend on it."""
    return replace(config, discount=discount, final_discount=None)


@cache
def _kinds(config: type) -> dict[str, Any]:
    return get_type_hints(config, include_extras=True)
