"""What a run needs besides the agent's settings; from flags, or an override of a sweep, to a run's specification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import tyro

from mnm.agents.algorithm import Algorithm
from mnm.agents.base import AgentConfig
from mnm.agents.scales import preset
from mnm.messages import short, with_new_flags
from mnm.schema import Count, Seed, refused
from mnm.training.saving import config_as_json
from mnm.training.spec import RENAMED, RunError, RunSpec

SCALES = ("paper", "cpu", "quick")


SCALE = "cpu"


@dataclass(frozen=True)
class Options:
    """What a run needs besides the agent's settings."""

    env: str = ""
    """The task's Gymnasium id, such as Pendulum-v1; with --dataset needed only where the data do not name it."""
    steps: int = 10_000
    """Real steps, the random ones included."""
    dataset: str | None = None
    """Learn from data, without a real step: a run's folder (its replay), a .npz, a .h5, or a Minari data set
    (docs/offline.md)."""
    updates: int = 20_000
    """With --dataset, in place of --steps: updates after the model's own (--warmup-updates)."""
    evaluate: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """With --dataset: play the policy in the real environment too, every --evaluate-every updates. Nothing is learned
    or chosen by it."""
    seed: int = 0
    """The (first) seed: of networks, actions and every episode."""
    seeds: int = 1
    """How many seeds to train at once, from --seed on, as one vmapped program."""
    scale: str = SCALE
    """Which preset the agent's settings start from: paper (for a GPU), cpu, quick (a first look)."""
    evaluate_every: int = 500
    """Real steps between two evaluations of the deterministic policy; with --dataset, updates between two rows."""
    evaluation_episodes: int = 10
    """Episodes per evaluation."""
    checkpoint_minutes: float = 2.0
    """Minutes between two checkpoints, from which mnm resume goes on; one is also written at the end."""
    runs: Path = Path("runs")
    """Folder of all runs."""
    name: str | None = None
    """Name of the run's folder; by default ENV-AGENT, then -seedN."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Delete a finished or broken run of the same name first."""
    wandb: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Send the metrics to Weights & Biases too (needs the package wandb)."""


def check(options: Options) -> None:
    """Refuse options that no run can have."""
    if not options.env and options.dataset is None:
        raise RunError("no task: name one, --env Pendulum-v1, or data to learn from, --dataset D")
    if options.evaluate and options.dataset is None:
        raise RunError("--evaluate goes with --dataset: a run with real steps is always evaluated")
    for name in ("steps", "updates", "seeds", "evaluate_every", "evaluation_episodes"):
        if getattr(options, name) < 1:
            raise RunError(f"--{name.replace('_', '-')} is {getattr(options, name)}, but must be at least 1")
        if why := refused(getattr(options, name), Count):
            raise RunError(f"--{name.replace('_', '-')} is {short(getattr(options, name))}, but must be {why}")
    if why := refused(options.seed, Seed) or refused(options.seed + options.seeds, Seed):
        raise RunError(f"--seed is {short(options.seed)}, but must be {why}")
    if not options.checkpoint_minutes >= 0:
        raise RunError(f"--checkpoint-minutes is {options.checkpoint_minutes}, but must be 0 or more")
    if options.wandb and find_spec("wandb") is None:
        raise RunError("--wandb needs the package wandb, which is not installed: pip install 'mnm-rl[wandb]'")


def run_spec(algorithm: Algorithm, options: Options, name: str, config: AgentConfig, seed: int) -> RunSpec:
    """The run with real steps that the options ask for, with one of their seeds."""
    own = ("env", "steps", "scale", "evaluate_every", "evaluation_episodes", "checkpoint_minutes", "wandb")
    return RunSpec(
        algorithm=algorithm.name,
        seed=seed,
        name=name,
        seeds_together=tuple(range(options.seed, options.seed + options.seeds)),
        settings=config_as_json(config),
        **{each: getattr(options, each) for each in own},
    )


def with_new_settings(arguments: Sequence[str]) -> list[str]:
    """The arguments, old names of settings replaced; a line for each says so."""
    return with_new_flags(
        arguments, {f"--{old.replace('_', '-')}": f"--{new.replace('_', '-')}" for old, new in RENAMED.items()}
    )


def preset_of(arguments: list[str]) -> tuple[str, str, bool]:
    """The values of --scale and --env, and whether there is a --dataset: they set the other flags' defaults."""
    scale = _value(arguments, "--scale", SCALE)
    if scale not in SCALES:
        raise RunError(f"--scale is {scale!r}, but must be one of {', '.join(SCALES)}")
    offline = bool(_value(arguments, "--dataset", ""))
    if offline and _value(arguments, "--steps", ""):
        raise RunError("--steps does not go with --dataset: no real step is taken; name --updates")
    return scale, _value(arguments, "--env", ""), offline


def _value(arguments: list[str], flag: str, default: str) -> str:
    """A flag's last value."""
    value = default
    for position, argument in enumerate(arguments):
        if argument == flag and position + 1 < len(arguments):
            value = arguments[position + 1]
        elif argument.startswith(f"{flag}="):
            value = argument.partition("=")[2]
    return value


def command_of(algorithm: Algorithm, scale: str, env: str, offline: bool = False) -> Any:
    """The subcommand of one agent: the options of any run, then the agent's settings, as preset for scale and task."""
    defaults = preset(algorithm, scale, env, offline=offline)
    command = make_dataclass(
        "Command",
        [("config", type(defaults), field(default=defaults))],
        bases=(Options,),
        namespace={"algorithm": algorithm},
        frozen=True,
        kw_only=True,
    )
    offset = " --reward-offset 17" if algorithm.log_returns else ""
    example = f"mnm train {algorithm.name} --env Pendulum-v1 --steps 4000{offset}"
    command.__doc__ = f"{algorithm.title}.\n\nExample: {example}"
    return command
