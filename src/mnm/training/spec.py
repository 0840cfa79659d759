"""All that a run is asked to be, as one value: what its config.json holds, in both directions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Real
from pathlib import Path
from typing import Annotated, Any

from mnm.messages import UserError, short
from mnm.schema import Bounds, Count, Seed, wrong_entry

NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,150}"
"""What a run may be called: part of a path, and nothing that leads elsewhere."""
RENAMED = {
    "random_steps": "learning_starts",
    "members": "ensemble_size",
    "outcome_hidden": "head_hidden",
    "slow_model_rate": "model_target_rate",
    "model_buffer": "model_buffer_capacity",
    "value_delay": "value_term_start",
}
"""Settings that version 0.1 called otherwise. Up to version 0.3 the old names do; who types one is warned."""


def with_new_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the names that they have now."""
    return {RENAMED.get(name, name): value for name, value in settings.items()}


class RunError(UserError):
    """A run that cannot be had or read as asked for; the message is one line."""


@dataclass(frozen=True)
class RunSpec:
    """One run of one seed. Its settings are the agent's, as JSON: reading them needs no agent."""

    algorithm: str
    env: str
    seed: int
    name: str
    """Of its folder, without the seed."""
    seeds_together: tuple[int, ...]
    """The seeds that are trained as one program, this one among them."""
    steps: int
    """Real steps; of a run from data, updates after the model's warm-up."""
    scale: str
    evaluate_every: int
    evaluation_episodes: int
    checkpoint_minutes: float
    wandb: bool
    settings: Mapping[str, Any]
    offline: Mapping[str, Any] | None = None
    """Of a run from data: which, and whether its policy is played all the same."""

    @property
    def clock(self) -> str:
        """What its steps are."""
        return "steps" if self.offline is None else "updates"

    @property
    def evaluates(self) -> bool:
        """Whether the policy is played in the real environment while it learns."""
        return self.offline is None or bool(self.offline["evaluate"])

    @property
    def folder_name(self) -> str:
        """The name of the run's folder."""
        return f"{self.name}-seed{self.seed}"

    def as_json(self) -> dict[str, Any]:
        """What config.json holds."""
        config = asdict(self) | {"seeds_together": list(self.seeds_together)}
        if self.offline is None:
            del config["offline"]
        return config

    @classmethod
    def from_json(cls, config: Mapping[str, Any], path: Path) -> RunSpec:
        """The inverse; what config.json holds besides is left out. `path` is its place, for messages."""
        check_entries(path, config, KINDS)
        entries = {name: config[name] for kind in KINDS if (name := kind.removesuffix("?")) in config}
        seeds = entries["seeds_together"]
        if entries["seed"] not in seeds:
            raise RunError(f"{path}: seeds_together is {short(seeds)}, without the run's own seed {entries['seed']}")
        if not re.fullmatch(NAME, entries["name"]):
            raise RunError(f"{path}: a run cannot be named {short(entries['name'])}")
        return cls(**entries | {"seeds_together": tuple(seeds)})

    def deciding(self) -> dict[str, Any]:
        """What decides the results, the settings among the rest."""
        config = self.as_json()
        for name in ("name", "seeds_together", "checkpoint_minutes", "wandb"):
            del config[name]
        return config | config.pop("settings")


KINDS: dict[str, Any] = {
    "algorithm": str,
    "env": str,
    "seed": Seed,
    "name": str,
    "seeds_together": list[Seed],
    "steps": Count,
    "scale": str,
    "evaluate_every": Count,
    "evaluation_episodes": Count,
    "checkpoint_minutes": Annotated[Real, Bounds(low_included=True)],
    "wandb": bool,
    "settings": dict,
    "offline?": {"dataset": str, "rows": Count, "digest": str, "evaluate": bool},
}
"""Of a specification's entries in JSON."""


def check_entries(path: Path, config: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Refuse a configuration that lacks an entry, or has one of another kind."""
    if why := wrong_entry(config, kinds):
        raise RunError(f"{path} is not a run's configuration: {why}")
