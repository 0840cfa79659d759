"""What every agent's settings have in common, and what a setting may be.

A setting's type says which values it may have: `discount: Share = 0.99`. They are checked when the settings are made,
by whichever way they came: flags, Python, a file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from jaxtyping import Array, Float

from mnm.messages import UserError

Metrics = dict[str, Float[Array, ""]]


class ConfigError(UserError):
    """A setting with a value that it cannot have."""


@dataclass(frozen=True)
class Bounds:
    """Which numbers a setting may be."""

    low: float = 0.0
    low_included: bool = False
    below: float = math.inf

    def hold(self, value: float) -> bool:
        """Whether the number lies inside."""
        return (value >= self.low if self.low_included else value > self.low) and value < self.below

    def __str__(self) -> str:
        low = f"{self.low:g} or more" if self.low_included else f"above {self.low:g}"
        return low if self.below == math.inf else f"{low} and below {self.below:g}"


Count = Annotated[int, Bounds()]
"""1, 2, 3, ..."""
CountOrZero = Annotated[int, Bounds(low_included=True)]
Positive = Annotated[float, Bounds()]
NonNegative = Annotated[float, Bounds(low_included=True)]
Rate = Annotated[float, Bounds(below=1.0)]
"""Above 0 and below 1."""
Share = Annotated[float, Bounds(low_included=True, below=1.0)]
"""0 or more and below 1."""
Layers = tuple[Count, ...]
"""The sizes of hidden layers."""


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

    def __post_init__(self) -> None:
        """Refuse values that no run can have; lists become tuples."""
        own: Any = type(self)
        kinds = _kinds(own)
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, list):
                value = tuple(value)
                object.__setattr__(self, field.name, value)
            if why := _refused(value, kinds[field.name]):
                raise ConfigError(f"{field.name} is {value!r}, but must be {why}")


@cache
def _kinds(config: type) -> dict[str, Any]:
    return get_type_hints(config, include_extras=True)


def _refused(value: Any, kind: Any) -> str | None:
    """What the value must be, if it is not; None if it is."""
    if get_origin(kind) is Annotated:
        base, *extras = get_args(kind)
        bounds = next((extra for extra in extras if isinstance(extra, Bounds)), None)
        if why := _refused(value, base):
            return why
        return str(bounds) if bounds is not None and not bounds.hold(value) else None
    if get_origin(kind) in (Union, UnionType):
        if value is None and NoneType in get_args(kind):
            return None
        reasons = [_refused(value, each) for each in get_args(kind) if each is not NoneType]
        none = " or None" if NoneType in get_args(kind) else ""
        return None if None in reasons else f"{reasons[0]}{none}"
    if get_origin(kind) is Literal:
        return None if value in get_args(kind) else f"one of {', '.join(map(repr, get_args(kind)))}"
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        if not isinstance(value, tuple):
            return "several whole numbers, such as (64, 64)"
        whys = [why for each in value if (why := _refused(each, inner))]
        return f"whole numbers, each {Bounds()}" if whys else None
    if kind is bool:
        return None if isinstance(value, bool) else "True or False"
    if kind is int:
        return "a whole number" if isinstance(value, bool) or not isinstance(value, Integral) else None
    if kind is float:
        good = isinstance(value, Real) and math.isfinite(value)
        return "a finite number" if isinstance(value, bool) or not good else None
    return None  # a function, say: it shows when it is called
