"""`mnm sweep`: every task x agent x seed x override, several at once, each run a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from mnm.messages import UserError, fail
from mnm.sweeps.request import Sweep
from mnm.sweeps.supervise import MNM, train_all


def shield_overrides(arguments: Sequence[str]) -> list[str]:
    """The arguments with a space before each override that starts with a dash: else it is taken for a flag of ours."""
    ours = {f"--{field.name.replace('_', '-')}" for field in fields(Sweep)} | {"-h", "--help"}
    shielded, inside = [], False
    for argument in arguments:
        if argument.partition("=")[0].replace("_", "-") in ours:
            inside = argument == "--overrides"
        elif inside and argument.startswith("-"):
            argument = f" {argument}"
        shielded.append(argument)
    return shielded


def sweep(command: Sweep, program: tuple[str, ...] = MNM) -> int:
    """Check, run, report; the exit code: 0 all finished, 1 some failed, 2 bad input, 128 + the signal that stopped it.

    `program` is what Python runs, followed by the arguments of `mnm`.
    """
    from mnm.sweeps.plan import plan
    from mnm.sweeps.pools import LocalPool, RayPool, cores
    from mnm.sweeps.trials import TrialStatus

    try:
        trials = plan(command)
        if command.dry_run:
            for trial in trials:
                print(f"{'finished' if trial.finished else 'to train'}: {trial.folder}, {trial.spec.steps} steps")
            return 0
        records = [TrialStatus(trial) for trial in trials]
        command.runs.mkdir(parents=True, exist_ok=True)
        jobs = min(command.jobs or len(cores()), len(cores()) + len(records))  # more are never used
        pool = LocalPool(program, jobs) if command.ray is None else RayPool(program, command.ray)
    except UserError as error:
        return fail(str(error))
    except OSError as error:
        return fail(f"--runs {command.runs}: {error.strerror}")
    return train_all(records, pool)
