"""Joint model-policy optimisation for model-based reinforcement learning (Mismatched No More)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mnm.envs import register_tasks

if TYPE_CHECKING:
    from mnm.api import MBPO, SAC, VAML, VMBPO, MnM, MnMApprox, MnMTight, ValueWeighted, load, make

__version__ = "0.2.0"
__all__ = [
    "MBPO",
    "SAC",
    "VAML",
    "VMBPO",
    "MnM",
    "MnMApprox",
    "MnMTight",
    "ValueWeighted",
    "__version__",
    "load",
    "make",
]

register_tasks()


def __getattr__(name: str) -> Any:
    """The agents, imported when first used: JAX takes a second, and the exact part does not need it."""
    if name in __all__:
        from mnm import api

        return getattr(api, name)
    raise AttributeError(f"module 'mnm' has no attribute {name!r}")
