"""`mnm solve FILE`: a finite MDP's solution in words, and as a picture."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mnm.commands.picture import check_picture, write
from mnm.messages import UserError, console, fail

if TYPE_CHECKING:
    from rich.console import Console

    from mnm.tabular.solution import Solution


@dataclass(frozen=True)
class Solve:
    """Solve a finite MDP: the optimal value, MnM's policy and its value, and the ladder of bounds.

    FILE is a grid as text, an MDP as .npz or .json, or gym:ID for a Gymnasium environment with a transition table.
    Examples: mnm solve grid.txt --picture grid.svg; mnm solve gym:FrozenLake-v1 --reward-offset 0.001
    """

    file: tyro.conf.Positional[str]
    """The file, or gym:ID."""
    discount: float | None = None
    """Use this discount instead of the task's own (gym: default 0.99)."""
    reward_offset: float = 0.0
    """Add this to every reward: MnM's bounds need rewards above 0. No policy's rank changes."""
    picture: Path | None = None
    """Write the picture here, as .png, .svg or .pdf: policy arrows and optimistic dynamics."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of tables."""


def solve(command: Solve) -> int:
    """`mnm solve`."""
    import json

    from rich.console import Console
    from rich.text import Text

    from mnm.tabular.evaluation import ConvergenceError
    from mnm.tabular.files import read_task
    from mnm.tabular.solution import solve_task

    progress = Console(stderr=True)
    try:
        check_picture(command.picture)
        with progress.status(Text(f"solving {command.file} ...")):
            report = solve_task(read_task(command.file, command.discount), command.reward_offset)
            answer = report.as_json() if command.json else None
            _ = report.ladders  # what can fail to converge is computed here, for either output
        if command.picture is not None:
            from mnm.plotting.solution import draw_report

            write(draw_report(report), command.picture)
    except UserError as error:
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

    from mnm.tabular.solution import policy_lines

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
