"""The command line. Heavy imports wait until a command needs them, so that --help is quick."""

from __future__ import annotations

import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mnm.compare import Compare, compare
from mnm.messages import console, fail
from mnm.report import Report, report
from mnm.reproduce import Reproduce, reproduce
from mnm.sweep import Sweep, shield_overrides, sweep
from mnm.watching import Evaluate, Render, evaluate, render

if TYPE_CHECKING:
    from rich.console import Console

    from mnm.solve import Report as Solution


@dataclass(frozen=True)
class Solve:
    """Solve a finite MDP: the optimal value, MnM's policy and its value, and the ladder of bounds.

    FILE is a grid as text, an MDP as .npz or .json, or gym:ID for a Gymnasium environment with a transition table.
    Examples: mnm solve grid.txt --png grid.png; mnm solve gym:FrozenLake-v1 --reward-offset 0.001
    """

    file: tyro.conf.Positional[str]
    """The file, or gym:ID."""
    discount: float | None = None
    """Use this discount instead of the task's own (gym: default 0.99)."""
    reward_offset: float = 0.0
    """Add this to every reward: MnM's bounds need rewards above 0. No policy's rank changes."""
    png: Path | None = None
    """Write the picture here: policy arrows and optimistic dynamics."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of tables."""


@dataclass(frozen=True)
class Resume:
    """Go on with an unfinished run from its last checkpoint, exactly as if it had never stopped.

    Example: mnm resume runs/Pendulum-v1-mnm_approx-seed0
    """

    run: tyro.conf.Positional[Path]
    """The run's folder."""


@dataclass(frozen=True)
class Envs:
    """List the paper's tasks, describe one, or draw it.

    Examples: mnm envs; mnm envs mnm/DClawTurnRandom-v0 --png claw.png
    """

    id: tyro.conf.Positional[str | None] = None
    """One task: any id that Gymnasium knows."""
    png: Path | None = None
    """Write a picture of the task's first state here."""


@dataclass(frozen=True)
class Train:
    """Train an agent on a Gymnasium task: mnm train AGENT --env ID. See mnm train --help, mnm train AGENT --help.

    Example: mnm train mnm_approx --env Pendulum-v1 --steps 4000
    """


COMMANDS: dict[str, Any] = {
    "train": Train,
    "resume": Resume,
    "evaluate": Evaluate,
    "render": Render,
    "sweep": Sweep,
    "compare": Compare,
    "report": Report,
    "envs": Envs,
    "reproduce": Reproduce,
    "solve": Solve,
}
"""In the order in which one needs them."""


def main() -> None:
    """The `mnm` command."""
    for stream in (sys.stdout, sys.stderr):  # a terminal without arrows shows question marks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.path.append(os.getcwd())  # for --env module:Task-v0; last, so that no file here hides a library
    try:
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, head say, has gone
        sys.stderr.close()
        sys.exit(1)


def run(arguments: list[str]) -> int:
    """Parse the arguments and do what they say; the exit code: 0, 1 failed, 2 bad input."""
    if arguments[:1] == ["train"]:  # its flags are the agents' settings: only now are the agents imported
        from mnm.train import train

        return train(arguments[1:])
    command = tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="mnm",
        description="Joint model-policy optimisation: deep agents, exact on finite MDPs, the paper's figures.",
        args=shield_overrides(arguments) if arguments[:1] == ["sweep"] else arguments,
    )
    match command:
        case Resume():
            from mnm.train import resume

            return resume(command.run)
        case Evaluate():
            return evaluate(command)
        case Render():
            return render(command)
        case Sweep():
            return sweep(command)
        case Compare():
            return compare(command)
        case Report():
            return report(command)
        case Envs():
            from mnm.envs.catalogue import describe

            return describe(command.id, command.png)
        case Reproduce():
            return reproduce(command)
        case Solve():
            return solve(command)
    return fail("the agent is missing; mnm train --help names them")


def solve(command: Solve) -> int:
    """`mnm solve`."""
    import json

    from rich.console import Console
    from rich.text import Text

    from mnm.solve import draw_report, solve_task
    from mnm.tabular.evaluation import ConvergenceError
    from mnm.tabular.files import InputError, read_task
    from mnm.tabular.mdp import MDPError

    progress = Console(stderr=True)
    try:
        with progress.status(Text(f"solving {command.file} ...")):
            report = solve_task(read_task(command.file, command.discount), command.reward_offset)
            answer = report.as_json() if command.json else None
            _ = report.ladders  # what can fail to converge is computed here, for either output
        if command.png is not None:
            draw_report(report, command.png)
    except (InputError, MDPError) as error:
        return fail(str(error))
    except ConvergenceError as error:
        print(f"mnm: {command.file}: {error}", file=sys.stderr)
        return 1
    if answer is not None:
        print(json.dumps(answer, allow_nan=False))
    else:
        print_report(console(), report)
    return 0


def print_report(console: Console, report: Solution) -> None:
    """What `mnm solve` prints."""
    from rich.table import Table

    from mnm.solve import policy_lines

    mdp = report.task.mdp
    print(f"{report.task.name}: {mdp.num_states} states, {mdp.num_actions} actions, discount {mdp.discount:g}")
    print(f"optimal value from the start: {report.optimal_return:.6g}")
    name = "MnM's policy" if report.mnm else "MnM's policy (tight bound)"
    print(f"{name}, value from the start: {report.return_of(report.best):.6g}")
    for line in policy_lines(report.task, report.best.policy.argmax(axis=1)):
        print(f"  {line}")
    ladders = report.ladders
    table = Table(title="The ladder of bounds on the log expected return (nats)")
    table.add_column("bound")
    titles = {"mnm": "at MnM's optimum, q ~ p exp(V)", "tight": "at the tight optimum, q ~ p V"}
    for agent in ladders:
        table.add_column(titles[agent], justify="right")
    for rung in ladders["tight"]:
        table.add_row(rung, *(f"{ladder[rung]:.6f}" for ladder in ladders.values()))
    console.print(table)
    if report.why_not:
        print(f"note: {report.why_not}")
