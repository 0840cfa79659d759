"""What a figure is: run -> columns (CSV) -> picture (PNG, SVG) -> verdicts on the paper's claims.

Everything drawn or judged comes from the columns, so the CSV holds all that a figure shows.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.figure
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from mnm.files import read_text
from mnm.plotting.picture import save_picture
from mnm.plotting.style import BLACK, COLOURS, STYLE, draw_seeds

Columns = dict[str, NDArray]
"""A table in long format: columns of one length by name."""


ANSWERS = {True: "yes", False: "no", None: "cannot tell"}
"""Whether a claim holds, in words."""


@dataclass(frozen=True)
class Verdict:
    """A claim, what the paper says, what was measured here, and whether the claim holds."""

    claim: str
    paper: str
    measured: str
    holds: bool | None
    """None: what was measured cannot tell."""
    p_value: float | None = None
    """Of the test that decides it, if one does."""

    @property
    def answer(self) -> str:
        """The same in words."""
        return ANSWERS[self.holds]


@dataclass(frozen=True)
class PaperFigure:
    """One figure of `mnm reproduce`."""

    name: str
    title: str
    run: Callable[[], Columns]
    draw: Callable[[Columns], matplotlib.figure.Figure]
    judge: Callable[[Columns], list[Verdict]]

    def reproduce(self, folder: Path) -> list[Verdict]:
        """Run, write NAME.csv, NAME.png and NAME.svg to the folder, and judge."""
        columns = write_figure(folder, self.name, self.run(), self.draw)
        return self.judge(columns)


def write_figure(
    folder: Path, name: str, columns: Columns, draw: Callable[[Columns], matplotlib.figure.Figure]
) -> Columns:
    """Columns to NAME.csv, the picture of what that file holds to NAME.png and NAME.svg; what it holds is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / f"{name}.csv", columns)
    kept = read_csv(folder / f"{name}.csv")
    with mpl.rc_context(STYLE):
        save_picture(draw(kept), folder / name)
    return kept


def write_csv(path: Path, columns: Columns) -> None:
    """Columns to a CSV file; floats keep all their digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def read_csv(path: Path) -> Columns:
    """Columns from a CSV file: numbers where all entries are numbers, text otherwise."""
    names, *rows = csv.reader(StringIO(read_text(path)))
    return {name: _parsed(entries) for name, entries in zip(names, zip(*rows, strict=True), strict=True)}


def _parsed(entries: tuple[str, ...]) -> NDArray:
    try:
        return np.array([float(entry) for entry in entries])
    except ValueError:
        return np.array(entries)


def stacked(*tables: dict[str, Any]) -> Columns:
    """Tables below one another; a value that is not an array is repeated along its table."""
    columns: dict[str, list[NDArray]] = {}
    for table in tables:
        length = max(np.size(value) for value in table.values())
        for name, value in table.items():
            columns.setdefault(name, []).append(np.broadcast_to(np.asarray(value).ravel(), (length,)))
    return {name: np.concatenate(parts) for name, parts in columns.items()}


def where(columns: Columns, **values: Any) -> Columns:
    """The rows in which each named column has the given value."""
    keep = np.logical_and.reduce([columns[name] == value for name, value in values.items()])
    return {name: column[keep] for name, column in columns.items()}


def draw_learning(axes: Axes, columns: Columns, by: str, x: str) -> None:
    """Learning curves: the median and quartiles over seeds of every method, and the optimal return."""
    for name in dict.fromkeys(columns[by].tolist()):
        draw_seeds(axes, *by_seed(where(columns, **{by: name}), x, "return"), name, COLOURS[name])
    axes.axhline(columns["optimal"][0], color=BLACK, linestyle=":", linewidth=1, label="optimal")
    axes.set_ylabel("return of the greedy policy")
    axes.legend()


def by_seed(columns: Columns, x: str, y: str) -> tuple[NDArray, NDArray]:
    """The x axis and a [seeds, points] array of y, from long format with a `seed` column."""
    seeds = np.unique(columns["seed"])
    return np.unique(columns[x]), columns[y].reshape(len(seeds), -1)
