"""`mnm train AGENT --env ID`, or `--dataset D`: one run, or several seeds at once, each in a folder of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import tyro

from mnm.agents import ALGORITHMS, find_algorithm
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import AgentConfig
from mnm.messages import UserError, fail, short
from mnm.schema import refused
from mnm.training.datasets import Dataset, open_dataset
from mnm.training.driver import run_training
from mnm.training.learner import Learner
from mnm.training.lock import locked
from mnm.training.options import Options, check, command_of, preset_of, run_spec, with_new_settings
from mnm.training.runs import checked_folder, delete, task_name, write_spec
from mnm.training.spec import RunError, RunSpec
from mnm.trust import trust


def train(arguments: list[str]) -> int:
    """Parse, check, run; the exit code: 0, 1 failed, 2 bad input."""
    arguments = with_new_settings(arguments)
    try:
        command = parsed(arguments)
        return run(command.algorithm, command, command.config)
    except UserError as error:
        return fail(str(error))


def parsed(arguments: list[str]) -> Any:
    """The command of the agent that the first argument names, ours or the user's own; without one, the help of all."""
    name, config = "".join(arguments[:1]), (tyro.conf.OmitArgPrefixes,)
    if name and not name.startswith("-"):
        trust(name)
        command = command_of(find_algorithm(name), *preset_of(arguments))
        return tyro.cli(command, prog=f"mnm train {name}", args=arguments[1:], config=config)
    if name not in ("", "-h", "--help"):
        raise RunError(
            f"the agent comes before {short(name)}: mnm train AGENT --env ID; there are {', '.join(ALGORITHMS)}"
        )
    return tyro.extras.subcommand_cli_from_dict(
        {name: command_of(algorithm, *preset_of(arguments)) for name, algorithm in ALGORITHMS.items()},
        prog="mnm train",
        description="Train an agent on a Gymnasium task with continuous observations and bounded actions, or from"
        " data alone (--dataset, docs/offline.md)."
        " An agent of your own is named module:variable (docs/agents.md).",
        args=arguments,
        config=config,
    )


def run(algorithm: Algorithm, options: Options, config: AgentConfig) -> int:
    """Make the folders, train."""
    check(options)
    trust(options.env)
    dataset = None if options.dataset is None else open_dataset(options.dataset, download=True)
    if dataset is not None and (why := refused(dataset.name, str)):  # config.json could not be read again
        raise RunError(f"--dataset {short(dataset.name)}: its whole path must be {why}: move the data elsewhere")
    task = options.env if dataset is None else dataset.task(options.env or None)
    if options.evaluate and not isinstance(task, str):
        raise RunError(f"--evaluate needs an environment, and {options.dataset} names none: name it, --env ID")
    about = task_name(options.env) if dataset is None else dataset.label
    name = options.name if options.name is not None else f"{about}-{algorithm.short_name}"
    seeds = tuple(range(options.seed, options.seed + options.seeds))

    def check_folders() -> list[Path]:
        return [checked_folder(options.runs, f"{name}-seed{seed}", options.overwrite) for seed in seeds]

    folders = check_folders()
    learner = Learner(algorithm, config, task, seeds, options.steps, dataset=dataset)
    specs = [run_spec(algorithm, options, name, learner.config, seed) for seed in seeds]
    if dataset is not None:
        env = task if isinstance(task, str) else ""
        specs = [on_data(spec, options, env, dataset, learner.digest) for spec in specs]
    with locked(folders):
        check_folders()  # once more: another process may have come first
        for folder, spec in zip(folders, specs, strict=True):
            delete(folder)
            write_spec(folder, spec)
        return run_training(learner, folders, specs[0])


def on_data(spec: RunSpec, options: Options, env: str, dataset: Dataset, digest: str | None) -> RunSpec:
    """The run that learns from data instead; `env` is empty where there is none."""
    offline = {"dataset": dataset.name, "rows": dataset.rows, "digest": digest, "evaluate": options.evaluate}
    return replace(spec, env=env, steps=options.updates, offline=offline)
