"""What a value may be, said by a type: of settings, and of what is read from files.

`Count` is 1, 2, 3, ...; `Share` is 0 or more and below 1; `list[Count]`, `dict[str, Real]`, `Literal`, `... | None` are
what they say; a mapping from names to types is an object with these entries, of which "name?" may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np

from mnm.messages import UserError, short

LARGEST = 2**31
"""Whole numbers lie below, unless their bounds say otherwise: arrays, counters and indices have 32 bits."""
MOST_LAYERS = 100
LONGEST_NAME = 300
"""Of tasks, agents, scales: all text that files hold is names."""


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
Seed = Annotated[int, Bounds(low_included=True, below=2**63)]
Positive = Annotated[float, Bounds()]
NonNegative = Annotated[float, Bounds(low_included=True)]
Rate = Annotated[float, Bounds(below=1.0)]
"""Above 0 and below 1."""
Share = Annotated[float, Bounds(low_included=True, below=1.0)]
"""0 or more and below 1."""
Layers = tuple[Count, ...]
"""The sizes of hidden layers."""


def wrong_entry(entries: Mapping[str, Any], kinds: Mapping[str, Any]) -> str:
    """What is wrong with an object that should have entries of these kinds; nothing if all is right."""
    for entry, kind in kinds.items():
        name = entry.removesuffix("?")
        if name not in entries:
            if name == entry:
                return f"it has no {name!r}"
        elif why := refused(entries[name], kind):
            return f"{name} is {short(entries[name])}, but must be {why}"
    return ""


def require(name: str, value: Any, kind: Any) -> Any:
    """An argument in Python's own numbers; UserError if it is not what it must be."""
    value = as_python(value)
    if why := refused(value, kind):
        raise UserError(f"{name} is {short(value)}, but must be {why}")
    return value


def as_python(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's own, lists as tuples."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(item.item() if isinstance(item, np.generic) else item for item in value)
    return value


def refused(value: Any, kind: Any) -> str | None:
    """What the value must be, if it is not; None if it is."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, Mapping):
        if not isinstance(value, Mapping):
            return f"an object with {', '.join(kind)}"
        return f"right: {why}" if (why := wrong_entry(value, kind)) else None
    if origin is Annotated:
        return refused(value, arguments[0]) or _outside(value, *arguments)
    if origin in (Union, UnionType):
        if value is None and NoneType in arguments:
            return None
        reasons = [refused(value, each) for each in arguments if each is not NoneType]
        none = " or None" if NoneType in arguments else ""
        return None if None in reasons else f"{reasons[0]}{none}"
    if origin is Literal:
        return None if value in arguments else f"one of {', '.join(map(repr, arguments))}"
    if origin is tuple:
        if not isinstance(value, tuple):
            return "several whole numbers, such as (64, 64)"
        return f"at most {MOST_LAYERS} numbers" if len(value) > MOST_LAYERS else _items(value, arguments[0])
    if origin is list:
        return _items(value, arguments[0]) if isinstance(value, list) else "a list"
    if origin is dict:
        return _items(value.values(), arguments[1]) if isinstance(value, dict) else "an object"
    return _plain(value, kind)


def _outside(value: Any, base: Any, *extras: Any) -> str | None:
    """The bounds of a number that lies outside of them."""
    for bounds in (extra for extra in extras if isinstance(extra, Bounds)):
        if not bounds.hold(value):
            return str(bounds)
        if base is int and bounds.below == math.inf and value >= LARGEST:
            return f"below {LARGEST:,}"
    return None


def _items(values: Iterable[Any], kind: Any) -> str | None:
    return next((f"several, each {why}" for value in values if (why := refused(value, kind))), None)


def _plain(value: Any, kind: Any) -> str | None:
    if kind is bool:
        return None if isinstance(value, bool) else "True or False"
    if kind is int:
        return "a whole number" if isinstance(value, bool) or not isinstance(value, Integral) else None
    if kind is float:
        return "a finite number" if isinstance(value, bool) or not _is_finite(value) else None
    if kind is Real:  # nan and infinity too
        return None if isinstance(value, float) or _plain(value, float) is None else "a number"
    if kind is str:
        good = isinstance(value, str) and len(value) <= LONGEST_NAME and value.isprintable()
        return None if good else f"a name of at most {LONGEST_NAME} printable characters"
    if kind is dict:
        return None if isinstance(value, dict) else "an object"
    return None  # a function, say: it shows when it is called


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # a whole number beyond the range of floats
        return False
