"""An agent's settings for a run: those of its scale; at the paper's, with the updates per real step of its task."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from mnm.agents.algorithm import Algorithm
from mnm.agents.base import AgentConfig, ConfigError


class Updates(NamedTuple):
    """Updates per real step; None where the paper prints none, and the preset's own number stays."""

    sac: int | None
    mbpo: int
    mnm: int


UPDATES_PER_STEP = {
    "HalfCheetah-v4": Updates(None, 40, 20),
    "Hopper-v4": Updates(None, 40, 20),
    "Walker2d-v4": Updates(None, 40, 20),
    "mnm/DrawerOpen-v0": Updates(40, 40, 40),
    "mnm/DClawPoseRandom-v0": Updates(20, 20, 20),
    "mnm/DClawTurnRandom-v0": Updates(40, 40, 40),
    "mnm/DClawScrewFixed-v0": Updates(40, 40, 40),
    "mnm/DClawScrewRandom-v0": Updates(40, 40, 40),
}
"""The paper's table, "separately tuned for each method and each environment"; v4 stands for its v2."""


def preset(algorithm: Algorithm, scale: str, env: str, *, offline: bool = False) -> AgentConfig:
    """The agent's settings at this scale on this task; `offline`: when it learns from a data set alone."""
    if scale not in algorithm.presets:
        raise ConfigError(f"scale is {scale!r}, but must be one of {', '.join(algorithm.presets)}")
    config: AgentConfig = algorithm.presets[scale]
    if offline:
        config = replace(config, **algorithm.offline)
    name = env.rpartition(":")[2]
    names = (name, name.removeprefix("mnm/"))  # mnm/Hopper-v4 is Hopper-v4 that declares when it ends
    if scale != "paper":
        return config
    column = "mnm" if algorithm.has_classifier else "mbpo" if algorithm.has_model else "sac"
    number = next((getattr(UPDATES_PER_STEP[one], column) for one in names if one in UPDATES_PER_STEP), None)
    return config if number is None else replace(config, updates_per_step=number)
