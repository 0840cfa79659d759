"""Joint model-policy optimisation for model-based reinforcement learning (Mismatched No More)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mnm.envs import register_tasks

if TYPE_CHECKING:
    from mnm import callbacks, sb3
    from mnm.api import MBPO, SAC, VAML, VMBPO, Agent, MnM, MnMApprox, MnMTight, ValueWeighted, load, make

__version__ = "0.2.0"
__all__ = [
    "MBPO",
    "SAC",
    "VAML",
    "VMBPO",
    "Agent",
    "MnM",
    "MnMApprox",
    "MnMTight",
    "ValueWeighted",
    "__version__",
    "callbacks",
    "load",
    "make",
    "sb3",
]

register_tasks()


def __getattr__(name: str) -> Any:
    """The agents, imported when first used: JAX takes a second, and the exact part does not need it."""
    if name in ("callbacks", "sb3"):
        return import_module(f"mnm.{name}")
    if name in __all__:
        return getattr(import_module("mnm.api"), name)
    raise AttributeError(f"module 'mnm' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What there is, whether it has been imported or not."""
    return sorted({*globals(), *__all__})
