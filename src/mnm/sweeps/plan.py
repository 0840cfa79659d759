"""From a sweep's command to its trials. Everything is checked here, before anything runs."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
from dataclasses import fields, replace
from functools import cache
from typing import Any, NamedTuple

import tyro

from mnm.agents import find_algorithm
from mnm.agents.base import ConfigError
from mnm.envs.adapter import make
from mnm.messages import short
from mnm.schema import Seed, refused
from mnm.sweeps.request import Sweep
from mnm.sweeps.trials import Trial
from mnm.training.options import Options, check, command_of, preset_of, run_spec, with_new_settings
from mnm.training.runs import is_unmade, read_run, task_name
from mnm.training.spec import RunError, RunSpec
from mnm.trust import trust

LABEL_LENGTH = 40
OURS = ("env", "seed", "seeds", "runs", "name", "overwrite")
"""The options of `mnm train` that the sweep sets itself."""


class Variant(NamedTuple):
    """An agent on a task with its flags, and the command of `mnm train` that they make."""

    agent: str
    flags: tuple[str, ...]
    command: Any

    def spec(self, seed: int) -> RunSpec:
        """The variant's run with a seed."""
        algorithm = find_algorithm(self.agent)
        name = f"{task_name(self.command.env)}-{algorithm.short_name}" + (f"-{label(self.flags)}" if self.flags else "")
        options = replace(self.command, seed=seed)
        return run_spec(algorithm, options, name, self.command.config, seed)


def plan(command: Sweep) -> list[Trial]:
    """All trials in the order of their start: every variant with the first seed first, so that all soon compare."""
    trust(*command.envs, *command.agents)
    check_lists(command)
    chosen = [variant for env in command.envs for variant in variants(command, env)]
    tell_left_out(command)
    for env in command.envs:
        make(env).close()
    trials: dict[str, Trial] = {}
    for seed in command.seeds:
        for variant in chosen:
            spec = variant.spec(seed)
            trial = Trial(command.runs / spec.folder_name, spec)
            if trial.name in trials:
                raise RunError(f"{trial.name} is asked for twice: name every task, agent, seed and override once")
            if not is_unmade(trial.folder):
                refuse_other(trial)
            trials[trial.name] = trial
    return list(trials.values())


def check_lists(command: Sweep) -> None:
    """What needs no parser."""
    for name in ("envs", "agents", "seeds", "overrides"):
        if not getattr(command, name):
            raise RunError(f"--{name} is empty: name at least one")
    for agent in command.agents:
        try:
            find_algorithm(agent)
        except ConfigError as error:
            raise RunError(f"--agents: {error}") from error
    for seed in command.seeds:
        if why := refused(seed, Seed):
            raise RunError(f"--seeds holds {short(seed)}, but must be {why}")
    if command.jobs is not None and command.jobs < 1:
        raise RunError(f"--jobs is {command.jobs}, but must be at least 1")
    if command.jobs is not None and command.ray is not None:
        raise RunError("--jobs does not go with --ray: there the cluster's CPUs decide how many run at once")


def variants(command: Sweep, env: str) -> list[Variant]:
    """Every agent with every override whose flags it has; no two that are the same."""
    chosen: list[Variant] = []
    for override in command.overrides:
        flags = split(override)
        agents = [agent for agent in command.agents if not unknown(agent, flags)]
        for agent in agents or command.agents[:1]:  # flags that no agent has: the parser says what is wrong
            variant = parsed(agent, flags, command, env)
            for other in chosen:
                if other.agent == agent and other.spec(0).deciding() == variant.spec(0).deciding():
                    raise RunError(f"--overrides {quoted(other.flags)} and {quoted(flags)} are the same for {agent}")
            chosen.append(variant)
    return chosen


def tell_left_out(command: Sweep) -> None:
    """Which agents do not have an override's flags."""
    for flags in map(split, command.overrides):
        for agent in command.agents:
            if missing := unknown(agent, flags):
                print(f"mnm: {agent} has no {missing[0]}: not run with {quoted(flags)}", file=sys.stderr)


@cache  # what it says of old names, it says once
def split(override: str) -> tuple[str, ...]:
    """The flags of one override."""
    try:
        return tuple(with_new_settings(shlex.split(override)))
    except ValueError as error:
        raise RunError(f"--overrides {override!r}: {error}") from error


def quoted(flags: tuple[str, ...]) -> str:
    """An override as its user writes it."""
    return f'"{shlex.join(flags)}"'


def settings(flags: tuple[str, ...]) -> dict[str, str]:
    """The settings that the flags name, each with its flag."""
    names = [flag.partition("=")[0] for flag in flags if flag.startswith("--")]
    return {name[2:].replace("-", "_"): name for name in names}


def unknown(agent: str, flags: tuple[str, ...]) -> list[str]:
    """The flags that `mnm train` does not have for this agent."""
    preset = find_algorithm(agent).presets["cpu"]
    known = {field.name for kind in (Options, type(preset)) for field in fields(kind)}
    known |= {f"no_{field.name}" for field in fields(preset) if isinstance(getattr(preset, field.name), bool)}
    return [flag for name, flag in settings(flags).items() if name not in known]


def parsed(agent: str, flags: tuple[str, ...], command: Sweep, env: str) -> Variant:
    """The variant, its flags read as `mnm train` reads them."""
    for name in OURS:
        if name in settings(flags):
            raise RunError(f"--overrides {quoted(flags)} sets --{name}, which the sweep sets itself")
    if "dataset" in settings(flags):
        raise RunError(f"--overrides {quoted(flags)}: a sweep's runs take real steps; from data, mnm train learns")
    own = {name: getattr(command, name) for name in ("steps", "scale", "evaluate_every", "evaluation_episodes", "runs")}
    arguments = []
    for name, value in own.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    arguments += flags
    argv = ["--env", env, *arguments]
    kind = command_of(find_algorithm(agent), *preset_of(argv))
    try:
        read = tyro.cli(kind, args=argv, prog=f"mnm train {agent}", config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit:  # the parser has explained what it refuses
        raise RunError(f"--overrides {quoted(flags)}: mnm train {agent} does not take it") from None
    check(read)
    return Variant(agent, flags, read)


def label(flags: tuple[str, ...]) -> str:
    """A folder's name for an override: readable where that is short and safe, else cut and told apart by a digest."""
    plain = "_".join(flag.removeprefix("--") for flag in flags)
    safe = re.sub(r"[^A-Za-z0-9_.+-]", "_", plain)[:LABEL_LENGTH]
    return safe if safe == plain else f"{safe}-{hashlib.sha256(plain.encode()).hexdigest()[:6]}"


def refuse_other(trial: Trial) -> None:
    """A run that is there already must be the one that is asked for: it would be skipped, or go on as it is."""
    config = read_run(trial.folder).config
    existing = {**config, **config.get("settings", {})}
    asked = json.loads(json.dumps(trial.spec.deciding()))  # as a file has it: lists for tuples
    for name, value in asked.items():
        if name in existing and existing[name] != value:
            raise RunError(
                f"{trial.folder} has {name} {existing[name]!r}, but the sweep asks for {value!r}: choose another"
                " --runs, or delete it"
            )
