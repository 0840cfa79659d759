"""Curves as Plotly figures: plain dictionaries that the page's script draws.

A colour is the name of a CSS variable, so that curves follow the page from light to dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnm.analysis.comparison import by_setting
from mnm.figures.base import Columns, where
from mnm.plotting import style
from mnm.training.runs import Run

HUES = {
    style.BLUE: "--blue",
    style.ORANGE: "--orange",
    style.GREEN: "--green",
    style.RED: "--red",
    style.SKY: "--sky",
    style.PURPLE: "--purple",
    style.YELLOW: "--yellow",
    style.BLACK: "--ink",
}
"""The printed figures' palette, as the page's."""
PALETTE = [*HUES.values()]
DASHES = ("solid", "dash", "dot", "dashdot")
"""In the order of `style.LINES`."""
DIGITS = 6
"""Significant digits of what is drawn: more cannot be seen and only make the file larger."""


@dataclass(frozen=True)
class Plot:
    """A Plotly figure with what it shows in words."""

    title: str
    figure: Mapping[str, Any]

    @property
    def names(self) -> list[str]:
        """The curves in its legend."""
        return [trace["name"] for trace in self.figure["data"] if trace.get("showlegend", True)]


Curve = tuple[Sequence[float], Sequence[float]]
"""The points' x and y."""


def literal(text: str) -> str:
    """Text that Plotly shows as it stands: it reads some HTML in names and titles."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def numbers(values: Iterable[float]) -> list[float | None]:
    """Values as JSON has them: what is not finite is a gap. Whole numbers, such as steps, keep all digits."""
    floats = (float(value) for value in values)
    return [
        (value if value.is_integer() else float(f"{value:.{DIGITS}g}")) if math.isfinite(value) else None
        for value in floats
    ]


def line(name: str, curve: Curve, colour: str, *, dash: str = "solid") -> dict[str, Any]:
    """One curve. Few points are marked, so that a single one between gaps is seen."""
    x, y = curve
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(x) <= 60 else "lines",
        "name": literal(name),
        "x": numbers(x),
        "y": numbers(y),
        "line": {"color": colour, "dash": dash, "width": 2.5},
        "marker": {"color": colour, "size": 6},
    }


def seed_lines(
    name: str, curves: Sequence[tuple[int, Curve]], centre: Callable[..., NDArray], colour: str, dash: str
) -> list[dict[str, Any]]:
    """The centre of all seeds, thick, and every seed, thin; a click on the legend hides them together.

    The centre is drawn where every seed has been measured: further on it would jump when a seed drops out.
    """
    by_step = [dict(zip(*curve, strict=True)) for _, curve in curves]
    steps = sorted(set.intersection(*(set(curve) for curve in by_step)))
    with np.errstate(invalid="ignore"):  # of infinities
        middle = centre([[curve[step] for step in steps] for curve in by_step], axis=0)
    group = {"legendgroup": literal(name)}
    thin = [
        line(f"{name}, seed {seed}", curve, colour, dash=dash)
        | group
        | {"mode": "lines", "showlegend": False, "opacity": 0.35, "line": {"color": colour, "width": 1}}
        for seed, curve in curves
    ]
    return [*(thin if len(curves) > 1 else []), line(name, (steps, middle.tolist()), colour, dash=dash) | group]


def layout(x: str, y: str, *, height: int, log: bool = False) -> dict[str, Any]:
    """A plot without a background of its own, its legend below it."""
    axis = {"gridcolor": "--grid", "zeroline": False, "linecolor": "--axis", "automargin": True}
    ticks = {"nticks": 6, "exponentformat": "power"} if log else {}
    return {
        "height": height,
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "paper_bgcolor": "--clear",
        "plot_bgcolor": "--clear",
        "font": {"color": "--text", "size": 13, "family": "system-ui, sans-serif"},
        "hoverlabel": {"namelength": -1, "bgcolor": "--card", "bordercolor": "--axis", "font": {"color": "--text"}},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "xanchor": "left"},
        "xaxis": axis | {"title": {"text": x}, "showline": True},
        "yaxis": axis | {"title": {"text": y}, "type": "log" if log else "linear"} | ticks,
        "showlegend": True,
        "modebar": {"bgcolor": "--clear", "color": "--axis", "activecolor": "--text"},
        "uirevision": "kept",  # what the reader has hidden or enlarged stays so when the colours change
    }


# -- the runs ---------------------------------------------------------------------------------------------------------


def return_plots(runs: Sequence[Run], labels: Mapping[Any, str]) -> list[Plot]:
    """For every task the return of every agent against real steps; for every data set, against updates."""
    looks = {
        name: (HUES[look.colour], DASHES[style.LINES.index(look.line)])
        for name, look in style.looks(labels[run.folder] for run in runs).items()
    }
    plots = []
    for setting, same in by_setting(runs).items():
        measured = [run for run in same if _has(run, "return")]
        traces = []
        for name in sorted({labels[run.folder] for run in measured}):
            curves = [
                (run.seed, (run.metrics["step"], run.metrics["return"]))
                for run in measured
                if labels[run.folder] == name
            ]
            traces += seed_lines(style.agent_name(name), curves, np.mean, *looks[name])
        if traces:
            axes = layout(time_axis(same[0]), "return", height=460)
            clock = "real steps" if same[0].data is None else "updates"
            plots.append(Plot(f"{setting}: return against {clock}", {"data": traces, "layout": axes}))
    return plots


def time_axis(run: Run) -> str:
    """What a run's steps are, below a curve; a run from data takes no real ones."""
    return "real environment steps" if run.data is None else "updates from data"


@dataclass(frozen=True)
class Diagnostic:
    """Columns of a run that belong in one plot, with their names there."""

    title: str
    unit: str
    columns: Mapping[str, str]
    log: bool = False
    from_data: bool = False
    """Whether only runs from data measure it."""


DIAGNOSTICS = (
    Diagnostic("The bound against the return", "nats", {"bound": "lower bound", "log_return": "log return"}),
    Diagnostic(
        "Q against the return", "discounted return", {"q_at_start": "Q at the start", "discounted_return": "obtained"}
    ),
    Diagnostic("The return in the model", "return", {"model_return": "in the model", "return": "in the task"}),
    Diagnostic(
        "Model error on held-out transitions",
        "squared error",
        {
            "model_error_1": "model, 1 step",
            "constant_error_1": "constant change, 1 step",
            "model_error_10": "model, 10 steps",
            "constant_error_10": "constant change, 10 steps",
        },
        log=True,
    ),
    Diagnostic(
        "The classifier on held-out transitions",
        "share",
        {"held_out_accuracy": "accuracy (0.5: perfect model)", "calibration_error": "calibration error"},
    ),
    Diagnostic(
        "Q where the data are and where the policy goes",
        "Q",
        {"q_policy": "at the policy's actions", "q_data": "at the data's"},
        from_data=True,
    ),
    Diagnostic(
        "The classifier's log p/q there",
        "nats",
        {"log_ratio_policy": "at the policy's actions", "log_ratio_data": "at the data's"},
        from_data=True,
    ),
)


def diagnostic_plots(run: Run) -> list[Plot]:
    """The diagnostics that the run has measured: what is claimed in one colour, what it is held against dashed."""
    plots = []
    for diagnostic in DIAGNOSTICS:
        first = next(iter(diagnostic.columns))
        if not _has(run, first):
            continue
        traces = []
        for number, (column, name) in enumerate(diagnostic.columns.items()):
            if _has(run, column):
                colour = PALETTE[number // 2] if len(diagnostic.columns) > 2 else PALETTE[number]
                dash = DASHES[number % 2]
                traces.append(line(name, (run.metrics["step"], run.metrics[column]), colour, dash=dash))
        axes = layout(time_axis(run), diagnostic.unit, height=320, log=diagnostic.log)
        plots.append(Plot(diagnostic.title, {"data": traces, "layout": axes}))
    return plots


def not_measured(run: Run) -> list[str]:
    """The titles of the other diagnostics."""
    expected = [diagnostic for diagnostic in DIAGNOSTICS if run.data is not None or not diagnostic.from_data]
    return [diagnostic.title for diagnostic in expected if not _has(run, next(iter(diagnostic.columns)))]


def _has(run: Run, column: str) -> bool:
    return any(math.isfinite(value) for value in run.metrics.get(column, []))


def certificate_plot(certificate: Mapping[str, Any]) -> Plot:
    """The returns of a certificate's fresh episodes, and what is guaranteed, asked for and promised of their mean."""
    returns, promised = certificate["returns"], certificate["promises"].get("model_return")
    ends = [1, max(2, len(returns))]
    levels = [
        ("mean", certificate["mean"], "--blue", "dash"),
        (f"{100 * certificate['confidence']:g} % lower bound", certificate["certificate"], "--green", "solid"),
        ("asked for", certificate["at_least"], "--ink", "dot"),
        ("mean return in the model", promised, "--orange", "dashdot"),
    ]
    episodes = line("episodes", (range(1, len(returns) + 1), returns), "--blue") | {"mode": "markers"}
    traces = [episodes] + [
        line(name, (ends, [value, value]), colour, dash=dash) | {"mode": "lines"}
        for name, value, colour, dash in levels
        if value is not None
    ]
    return Plot("Returns of fresh episodes", {"data": traces, "layout": layout("episode", "return", height=320)})


# -- the exact figures ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curves:
    """Which columns of a figure's CSV are its curves."""

    by: str
    x: str
    y: str = "return"
    panel: str | None = None
    titles: Mapping[str, str] = field(default_factory=dict)
    """Of panels whose name in the CSV does not say enough."""


CURVES = {
    "stochastic_gridworld": Curves("method", "iteration"),
    "gridworld_ablation": Curves("method", "iteration"),
    "comparing_objectives": Curves(
        "objective",
        "iteration",
        "value",
        "algorithm",
        {"paper": "MnM, as in the paper", "tight": "Joint iteration for the tight bound"},
    ),
    "dynamics_transfer": Curves("dynamics", "iteration", panel="task"),
    "from_real_data": Curves("learner", "real_steps"),
}
"""The figures that are curves; the others are maps and pictures."""


def figure_plots(name: str, columns: Columns) -> list[Plot]:
    """A figure's curves, one plot for each of its panels; none if the figure has no curves."""
    if name not in CURVES or not columns:
        return []
    curves = CURVES[name]
    missing = [column for column in (curves.by, curves.x, curves.y, curves.panel) if column and column not in columns]
    if missing:
        raise ValueError(f"it has no column {missing[0]!r}")
    if curves.panel is None:
        return [Plot("", panel_figure(curves, columns))]
    panels = dict.fromkeys(columns[curves.panel].tolist())
    return [
        Plot(
            curves.titles.get(panel, f"{curves.panel.capitalize()} {panel}"),
            panel_figure(curves, where(columns, **{curves.panel: panel})),
        )
        for panel in panels
    ]


def printed_look(name: str, number: int) -> tuple[str, str]:
    """Colour and dashes: the printed figure's for its methods, else the next; neighbours may lie on one another."""
    if name not in style.COLOURS:
        return PALETTE[number % len(PALETTE)], DASHES[number % 2]
    _, lengths = style.DASHES.get(name, (0, ()))
    return HUES[style.COLOURS[name]], ",".join(f"{2 * length}px" for length in lengths) or "solid"


def panel_figure(curves: Curves, columns: Columns) -> dict[str, Any]:
    """The median over seeds, as in the printed figure, and every seed."""
    x, y = columns[curves.x].astype(float), columns[curves.y].astype(float)
    seeds = columns.get("seed", np.zeros(len(x)))
    traces = []
    for number, name in enumerate(dict.fromkeys(columns[curves.by].tolist())):
        own = columns[curves.by] == name
        by_seed = [
            (int(seed), (x[own & (seeds == seed)].tolist(), y[own & (seeds == seed)].tolist()))
            for seed in np.unique(seeds[own])
        ]
        traces += seed_lines(str(name), by_seed, np.median, *printed_look(str(name), number))
    if "optimal" in columns:
        ends, best = [float(x.min()), float(x.max())], float(columns["optimal"][0])
        traces.append(line("optimal", (ends, [best, best]), "--ink", dash="dot") | {"mode": "lines"})
    label = curves.x.replace("_", " ")
    return {"data": traces, "layout": layout(label, "nats" if curves.y == "value" else curves.y, height=420)}
