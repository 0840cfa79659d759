"""One file per algorithm: its settings, its update, its presets; `ALGORITHMS` names them all."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib import import_module

from mnm.agents import mbpo, mnm, mnm_approx, mnm_tight, sac, value_weighted, vaml, vmbpo
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import ConfigError
from mnm.messages import nearest

MODULES = (sac, mbpo, mnm, mnm_approx, mnm_tight, vmbpo, vaml, value_weighted)
ALGORITHMS: dict[str, Algorithm] = {module.ALGORITHM.name: module.ALGORITHM for module in MODULES}


@cache  # programs are compiled for an algorithm by its identity
def find_algorithm(name: str) -> Algorithm:
    """One of ours by its name, or one of the user's by module:variable; it is then known by that."""
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    module, colon, variable = name.partition(":")
    if not colon:
        raise ConfigError(
            f"there is no agent {name!r}{nearest(name, ALGORITHMS)}; there are {', '.join(ALGORITHMS)}, and your own"
            " as module:variable"
        )
    try:
        imported = getattr(import_module(module), variable, None)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"agent {name}: {error}; its module must be in the folder where the command is started, or on PYTHONPATH"
        ) from error
    except Exception as error:  # whatever the user's file does
        raise ConfigError(f"agent {name}: importing {module} failed with {type(error).__name__}: {error}") from error
    if not isinstance(imported, Algorithm):
        raise ConfigError(f"agent {name}: the module {module} has no mnm.agents.Algorithm named {variable!r}")
    if "cpu" not in imported.presets:
        raise ConfigError(f"agent {name}: its presets have no 'cpu', the scale that a run has by default")
    return replace(imported, name=name)
