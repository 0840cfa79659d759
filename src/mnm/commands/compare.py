"""`mnm compare`: what the seeds of several agents say about them, per environment, and how surely."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mnm.analysis.comparison import (
    Aggregate,
    Comparison,
    aggregates,
    compare_runs,
    configuration,
    curve,
    different_versions,
    kept_apart,
    number_of_seeds,
    unmeasured,
)
from mnm.analysis.statistics import (
    is_exact,
    smallest_possible_p,
)
from mnm.commands.picture import check_picture, write
from mnm.messages import UserError, console, fail

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Table


TITLE = 40
"""Letters that a panel's title has room for in a line."""


@dataclass(frozen=True)
class Compare:
    """Compare agents over seeds: means, intervals, and tests against a baseline, per environment.

    Larger values of the metric count as better. Runs from data alone are compared per data set, apart from those with
    real steps. Example: mnm compare runs --baseline sac --picture curves.svg
    """

    paths: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders that hold runs (a sweep's)."""
    baseline: str | None = None
    """The agent that the others are tested against."""
    metric: str = "return"
    """A column of metrics.csv."""
    at: int | None = None
    """Compare at this step or update; by default at the last one that all runs of the environment have reached."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of tables: all numbers, and the curves."""
    picture: Path | None = None
    """Draw the sample-efficiency curves here, as .png, .svg or .pdf: one panel per environment."""


def compare(command: Compare) -> int:
    """The exit code: 0, 2 bad input."""
    from mnm.training.runs import find_runs

    if not command.paths:
        return fail("name run folders, or a folder that holds runs, as in mnm compare runs")
    try:
        check_picture(command.picture)
        runs = find_runs(command.paths)
        comparisons = compare_runs(runs, command.metric, command.at, command.baseline)
        notes = [*kept_apart(runs), *unmeasured(runs), *different_versions(runs)]
        if command.picture is not None:
            write(draw(comparisons, command.metric), command.picture)
    except UserError as error:
        return fail(str(error))
    if command.json:
        print(json.dumps(_without_nan(as_json(comparisons, command.metric, notes)), allow_nan=False))
        return 0
    print_report(console(markup=False), comparisons, command.metric, notes)
    if command.picture is not None:
        print(f"curves: {command.picture}")
    return 0


def as_json(comparisons: Sequence[Comparison], metric: str, notes: list[str]) -> dict[str, Any]:
    """All numbers."""
    return {
        "metric": metric,
        "environments": [_comparison_as_json(one) for one in comparisons],
        "aggregate": [asdict(one) for one in aggregates(comparisons)],
        "warnings": notes,
    }


def print_report(console: Console, comparisons: Sequence[Comparison], metric: str, notes: list[str]) -> None:
    """A table per environment, the aggregate, and below each what to beware of."""
    for one in comparisons:
        console.print(table(one, metric))
        _print_warnings(one.warnings)
        print()
    found = aggregates(comparisons)
    if found:
        console.print(aggregate_table(found, comparisons))
    _print_warnings(notes)


def table(one: Comparison, metric: str) -> Table:
    """The agents of one environment, or of one data set."""
    from rich.table import Table

    runs = sum(len(group.runs) for group in one.groups.values())
    last = f" (the last that all {runs} runs have reached)" if one.step == one.steps[-1] else ""
    title = f"{one.setting}: {metric} at {one.clock[:-1]} {one.step}{last}"
    rich_table = Table(title=title, title_justify="left", header_style="bold")
    rich_table.add_column("agent", overflow="fold")
    for heading in ("seeds", "mean", "IQM [95 % interval]"):
        rich_table.add_column(heading, justify="right")
    if one.baseline is not None:
        rich_table.add_column(f"P(better than {one.baseline.agent})", justify="right")
        rich_table.add_column("p, one-sided", justify="right")
    for row in one.scores:
        cells = [row.agent, str(row.seeds), _number(row.mean), _with_interval(row.iqm, row.low, row.high)]
        if one.baseline is not None:
            is_baseline = row.agent == one.baseline.agent
            cells += ["baseline", ""] if is_baseline else [_share(row.probability_of_improvement), _share(row.p_value)]
        rich_table.add_row(*cells)
    return rich_table


def aggregate_table(found: Sequence[Aggregate], comparisons: Sequence[Comparison]) -> Table:
    """The agents over all environments, and over all data sets."""
    from rich.table import Table

    rich_table = Table(title="Mean over environments", title_justify="left", header_style="bold")
    rich_table.add_column("agent", overflow="fold")
    rich_table.add_column("over", justify="right")
    rich_table.add_column("P(better than the baseline) [95 % interval]", justify="right")
    for one in found:
        interval = f" [{one.low:.2f}, {one.high:.2f}]" if isfinite(one.low) else ""
        from_data = one.learned_from == "data"
        number = sum((each.data is not None) == from_data for each in comparisons)
        places = f"{one.environments} of {number} {'data sets' if from_data else 'environments'}"
        cells = (places, f"{one.probability_of_improvement:.2f}{interval}")
        rich_table.add_row(one.agent, *cells)
    return rich_table


def draw(comparisons: Sequence[Comparison], metric: str) -> Figure:
    """Sample efficiency: the interquartile mean over seeds against real steps, or updates from data, with a band."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from mnm.plotting.style import STYLE, agent_name, looks

    look = looks({agent for one in comparisons for agent in one.groups})
    across = min(3, len(comparisons))
    down = -(-len(comparisons) // across)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.5 * across, 3.4 * down), layout="constrained")
        panels = figure.subplots(down, across, squeeze=False).ravel()
        for panel, one in zip(panels, comparisons, strict=False):
            for agent, group in one.groups.items():
                colour, dashes = look[agent]
                middle, low, high = curve(group)
                label = f"{agent_name(agent)} ({number_of_seeds(len(group.runs))})"
                panel.plot(one.steps, middle, label=label, color=colour, linestyle=dashes, marker="o", markersize=2.5)
                panel.fill_between(one.steps, low, high, color=colour, alpha=0.2, linewidth=0)
            panel.axvline(one.step, color="0.6", linewidth=1, linestyle=":")
            x = "real steps" if one.data is None else "updates from data"
            panel.set(title=fill(one.setting, TITLE), xlabel=x, ylabel=f"{metric}, IQM and 95 % interval")
            panel.legend()
        for panel in panels[len(comparisons) :]:
            panel.remove()
    return figure


def _comparison_as_json(one: Comparison) -> dict[str, Any]:
    rows = []
    for row, group in zip(one.scores, one.groups.values(), strict=True):
        middle, low, high = curve(group).tolist()
        found = asdict(row) | {
            "algorithm": group.runs[0].algorithm,
            "configuration": configuration(group.runs[0]),
            "runs": [
                {"folder": str(run.folder), "seed": run.seed, "score": float(value)}
                for run, value in zip(group.runs, group.scores, strict=True)
            ],
            "curve": {"step": one.steps, "iqm": middle, "low": low, "high": high},
        }
        if one.baseline is not None and group is not one.baseline:
            numbers = len(group.runs), len(one.baseline.runs)
            found |= {"p_value_is_exact": is_exact(*numbers), "smallest_possible_p": smallest_possible_p(*numbers)}
        rows.append(found)
    baseline = one.baseline.agent if one.baseline is not None else None
    return {
        "env": one.env,
        "data": one.data,
        "clock": one.clock,
        "step": one.step,
        "baseline": baseline,
        "agents": rows,
        "warnings": one.warnings,
    }


def _without_nan(value: Any) -> Any:
    """JSON has no nan and no infinity: they become null."""
    if isinstance(value, dict):
        return {name: _without_nan(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _print_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"warning: {warning}")


def _number(value: float) -> str:
    if not isfinite(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _with_interval(value: float, low: float, high: float) -> str:
    return f"{_number(value)} [{_number(low)}, {_number(high)}]" if isfinite(low) else _number(value)


def _share(value: float) -> str:
    """A probability with three digits, or more where it is small."""
    if not isfinite(value):
        return "-"
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.1e}"
