"""From a sweep's command to its trials. Everything is checked here, before anything runs."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import tyro

from mnm.agents import ALGORITHMS
from mnm.messages import nearest
from mnm.sweep import Sweep
from mnm.sweeping.trials import Trial
from mnm.train import Options, check, command_of, described, preset_of
from mnm.training.environments import make
from mnm.training.runs import RunError, read_run, task_name

LABEL_LENGTH = 40
OURS = ("env", "seed", "seeds", "runs", "name", "overwrite")
"""The options of `mnm train` that the sweep sets itself."""


class Arm(NamedTuple):
    """An agent on a task with its flags, and what `mnm train` is told for it: as written and as read."""

    agent: str
    flags: tuple[str, ...]
    arguments: tuple[str, ...]
    command: Any

    def trial(self, seed: int) -> Trial:
        """The arm's run with a seed."""
        env, runs = self.command.env, self.command.runs
        name = f"{task_name(env)}-{self.agent}" + (f"-{label(self.flags)}" if self.flags else "")
        begin = ("train", self.agent, "--env", env, "--seed", str(seed), *self.arguments, "--name", name)
        return Trial(runs / f"{name}-seed{seed}", begin, self.command.steps)

    def config(self, seed: int) -> dict[str, Any]:
        """What that run writes into its config.json, as far as it decides the results."""
        options = replace(self.command, seed=seed)
        config = described(ALGORITHMS[self.agent], options, "", self.command.config, seed)
        for name in ("name", "seeds_together", "checkpoint_minutes", "wandb", "versions", "revision"):
            del config[name]
        return json.loads(json.dumps(config | config.pop("settings")))


def plan(command: Sweep) -> list[Trial]:
    """All trials in the order of their start: first every arm with the first seed, so that all can soon be compared."""
    check_lists(command)
    chosen = [arm for env in command.envs for arm in arms(command, env)]
    tell_left_out(command)
    for env in command.envs:
        make(env).close()
    trials: dict[str, Trial] = {}
    for seed in command.seeds:
        for arm in chosen:
            trial = arm.trial(seed)
            if trial.name in trials:
                raise RunError(f"{trial.name} is asked for twice: name every task, agent, seed and override once")
            if trial.folder.exists():
                refuse_other(trial, arm.config(seed))
            trials[trial.name] = trial
    return list(trials.values())


def check_lists(command: Sweep) -> None:
    """What needs no parser."""
    for name in ("envs", "agents", "seeds", "overrides"):
        if not getattr(command, name):
            raise RunError(f"--{name} is empty: name at least one")
    for agent in command.agents:
        if agent not in ALGORITHMS:
            raise RunError(
                f"--agents: there is no agent {agent!r}{nearest(agent, ALGORITHMS)}; there are {', '.join(ALGORITHMS)}"
            )
    if min(command.seeds) < 0:
        raise RunError(f"--seeds holds {min(command.seeds)}, but must be 0 or more")
    if command.jobs is not None and command.jobs < 1:
        raise RunError(f"--jobs is {command.jobs}, but must be at least 1")
    if command.jobs is not None and command.ray is not None:
        raise RunError("--jobs does not go with --ray: there the cluster's CPUs decide how many run at once")


def arms(command: Sweep, env: str) -> list[Arm]:
    """Every agent with every override whose flags it has; no two that are the same."""
    chosen: list[Arm] = []
    for override in command.overrides:
        flags = split(override)
        agents = [agent for agent in command.agents if not unknown(agent, flags)]
        for agent in agents or command.agents[:1]:  # flags that no agent has: the parser says what is wrong
            arm = parsed(agent, flags, command, env)
            for other in chosen:
                if other.agent == agent and other.config(0) == arm.config(0):
                    raise RunError(f"--overrides {shown(other.flags)} and {shown(flags)} are the same for {agent}")
            chosen.append(arm)
    return chosen


def tell_left_out(command: Sweep) -> None:
    """Which agents do not have an override's flags."""
    for flags in map(split, command.overrides):
        for agent in command.agents:
            if missing := unknown(agent, flags):
                print(f"mnm: {agent} has no {missing[0]}: not run with {shown(flags)}", file=sys.stderr)


def split(override: str) -> tuple[str, ...]:
    """The flags of one override."""
    try:
        return tuple(shlex.split(override))
    except ValueError as error:
        raise RunError(f"--overrides {override!r}: {error}") from error


def shown(flags: tuple[str, ...]) -> str:
    """An override as its user writes it."""
    return f'"{shlex.join(flags)}"'


def settings(flags: tuple[str, ...]) -> dict[str, str]:
    """The settings that the flags name, each with its flag."""
    names = [flag.partition("=")[0] for flag in flags if flag.startswith("--")]
    return {name[2:].replace("-", "_"): name for name in names}


def unknown(agent: str, flags: tuple[str, ...]) -> list[str]:
    """The flags that `mnm train` does not have for this agent."""
    preset = ALGORITHMS[agent].presets["cpu"]
    known = {field.name for kind in (Options, type(preset)) for field in fields(kind)}
    known |= {f"no_{field.name}" for field in fields(preset) if isinstance(getattr(preset, field.name), bool)}
    return [flag for name, flag in settings(flags).items() if name not in known]


def parsed(agent: str, flags: tuple[str, ...], command: Sweep, env: str) -> Arm:
    """The arm, its flags read as `mnm train` reads them."""
    for name in OURS:
        if name in settings(flags):
            raise RunError(f"--overrides {shown(flags)} sets --{name}, which the sweep sets itself")
    own = {name: getattr(command, name) for name in ("steps", "scale", "evaluate_every", "evaluation_episodes", "runs")}
    arguments = []
    for name, value in own.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    arguments += flags
    told = ["--env", env, *arguments]
    kind = command_of(ALGORITHMS[agent], *preset_of(told))
    try:
        read = tyro.cli(kind, args=told, prog=f"mnm train {agent}", config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit:  # the parser has explained what it refuses
        raise RunError(f"--overrides {shown(flags)}: mnm train {agent} does not take it") from None
    check(read)
    return Arm(agent, flags, tuple(arguments), read)


def label(flags: tuple[str, ...]) -> str:
    """A folder's name for an override: readable where that is short and safe, else cut and told apart by a digest."""
    plain = "_".join(flag.removeprefix("--") for flag in flags)
    safe = re.sub(r"[^A-Za-z0-9_.+-]", "_", plain)[:LABEL_LENGTH]
    return safe if safe == plain else f"{safe}-{hashlib.sha256(plain.encode()).hexdigest()[:6]}"


def refuse_other(trial: Trial, asked: Mapping[str, Any]) -> None:
    """A run that is there already must be the one that is asked for: it would be skipped, or go on as it is."""
    config = read_run(trial.folder).config
    there = {**config, **config.get("settings", {})}
    for name, value in asked.items():
        if name in there and there[name] != value:
            raise RunError(
                f"{trial.folder} has {name} {there[name]!r}, but the sweep asks for {value!r}: choose another --runs,"
                " or delete it"
            )
