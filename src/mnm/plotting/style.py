"""How the figures look: one palette that colour-blind readers can tell apart, and how to draw a grid."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from mnm.tabular.grids import Grid

STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.8,
    "savefig.dpi": 200,
}

# Okabe and Ito's palette.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip

ON_MAP = "#fffffe"
"""White, but no grey: on a dark page greys change places, and what lies on a map's colours must not."""

COLOURS = {
    "MnM": BLUE,
    "Q-learning": ORANGE,
    "VMBPO": GREEN,
    "MnM, no logarithm": RED,
    "MnM, no classifier": SKY,
    "Q-learning, log reward": PURPLE,
    "Maximum likelihood": RED,
    "Maximum likelihood, log reward": PURPLE,
    "paper's bound": BLUE,
    "sharper bound": SKY,
    "learned discount": ORANGE,
    "best hazard": PURPLE,
    "tight bound": RED,
    "log expected return": BLACK,
    "log of VMBPO's objective": GREEN,
    "log return in the model": GREEN,
}

AGENT_COLOURS = {
    "sac": ORANGE,
    "mbpo": GREEN,
    "mnm_approx": BLUE,
    "mnm": BLACK,
    "mnm_tight": RED,
    "vmbpo": SKY,
    "vaml": PURPLE,
    "value_weighted": YELLOW,
}

AGENT_NAMES = {
    "sac": "SAC",
    "mbpo": "MBPO",
    "mnm_approx": "MnM-approx",
    "mnm": "MnM",
    "mnm_tight": "MnM-tight",
    "vmbpo": "VMBPO",
    "vaml": "VAML",
    "value_weighted": "value-weighted",
}
"""Our agents as people write them."""


def agent_name(label: str) -> str:
    """An agent, or agent:settings, as people write it; one that is not ours as it is."""
    agent, _, settings = label.partition(":")
    if agent not in AGENT_NAMES:
        return label
    return ", ".join([AGENT_NAMES[agent], *filter(None, [settings])])


PALETTE = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK, YELLOW)
THIN = 0.8
"""The width of a single seed's line."""
LINES = ("-", "--", ":", "-.")


class Look(NamedTuple):
    """Of a curve."""

    colour: str
    line: str
    """As Matplotlib names it: one of LINES."""


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """How every curve of a plot looks, by its label: an agent, or agent:settings. Pictures and pages all ask here.

    An agent of ours always has its own colour, others take those that are left; curves of one colour differ in their
    lines.
    """
    labels = sorted(set(labels))
    own = {label: AGENT_COLOURS.get(label.partition(":")[0]) for label in labels}
    free = [colour for colour in PALETTE if colour not in own.values()] or PALETTE
    left = itertools.cycle(free)
    used: Counter[str] = Counter()
    assigned = {}
    for label in labels:
        colour = own[label] or next(left)
        assigned[label] = Look(colour, LINES[used[colour] % len(LINES)])
        used[colour] += 1
    return assigned


DASHES = {
    "Q-learning": (0, (5, 3)),
    "VMBPO": (4, (2, 6)),
    "MnM, no logarithm": (1, (1, 3)),
    "Maximum likelihood": (1, (1, 3)),
    "Q-learning, log reward": (0, (3, 1)),
    "Maximum likelihood, log reward": (0, (3, 1)),
    "sharper bound": (0, (4, 3)),
    "tight bound": (0, (4, 3)),
    "log expected return": (2, (3, 2)),
    "log of VMBPO's objective": (0, (6, 2, 1, 2)),
    "log return in the model": (0, (1, 2)),
}
"""Methods that can lie on top of one another are drawn with different dashes."""


def draw_seeds(axes: Axes, x: NDArray, y: NDArray, label: str, colour: str) -> None:
    """The median over seeds (rows of y), with the quartiles shaded."""
    low, middle, high = np.quantile(y, [0.25, 0.5, 0.75], axis=0)
    axes.plot(x, middle, label=label, color=colour, linestyle=DASHES.get(label, "-"))
    axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)


def legend_of_seeds(axes: Axes, **options: Any) -> None:
    """The panel's legend, which tells thick lines from thin ones too."""
    handles, _ = axes.get_legend_handles_labels()
    thick = Line2D([], [], color="0.4", label="thick: mean over seeds")
    thin = Line2D([], [], color="0.4", linewidth=THIN, label="thin: one seed each")
    axes.legend(handles=[*handles, thick, thin], **options)


LARGEST_DETAIL = 50
"""Rows or columns up to which cells are outlined and every arrow is drawn."""


def draw_values(axes: Axes, grid: Grid, values: NDArray, largest: float | None = None) -> AxesImage:
    """A heat map of one value per state."""
    return axes.imshow(grid.picture(values), cmap="cividis", alpha=0.85, vmin=0, vmax=largest)


def draw_grid(axes: Axes, grid: Grid, *, goal_names: tuple[str, ...] = ()) -> None:
    """Walls, start and goals."""
    rows, columns = grid.walls.shape
    axes.imshow(np.where(grid.walls, 0.25, np.nan), cmap="gray", vmin=0, vmax=1, zorder=2)
    for row, column in grid.starts:
        axes.plot(column, row, marker="o", color=RED, markersize=7, linestyle="", zorder=4)
    for number, (row, column) in enumerate(grid.goals):
        axes.plot(
            column,
            row,
            marker="*",
            color=GREEN,
            markersize=13,
            linestyle="",
            zorder=4,
            markeredgecolor="white",
        )
        if goal_names:
            axes.annotate(goal_names[number], (column, row), (5, 4), textcoords="offset points", zorder=5)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal", xlabel="column", ylabel="row")
    axes.locator_params(integer=True)
    axes.grid(visible=False, which="major")
    if max(rows, columns) <= LARGEST_DETAIL:
        axes.set_xticks(np.arange(-0.5, columns), minor=True)
        axes.set_yticks(np.arange(-0.5, rows), minor=True)
        axes.grid(visible=True, which="minor", color="0.85", linewidth=0.5)
        axes.tick_params(which="minor", length=0)


def draw_arrows(axes: Axes, grid: Grid, steps: NDArray, length: float, colour: str) -> float:
    """An arrow for each state's step (rows, columns); the longest is `length` cells long. Returns the longest step.

    All of a small grid's; of a large one's, those of every n-th row and column, n times as long.
    """
    stride = -(-max(grid.walls.shape) // LARGEST_DETAIL)
    drawn = (grid.cells % stride == stride // 2).all(axis=1)
    rows, columns = grid.cells[drawn].T
    longest = float(np.hypot(*steps[drawn].T).max(initial=0.0))
    if longest > 1e-12:
        axes.quiver(
            columns, rows, steps[drawn, 1], steps[drawn, 0], color=colour, scale=longest / (length * stride),
            angles="xy", scale_units="xy", pivot="mid", width=0.007, zorder=3,
        )  # fmt: skip
    return longest


def grid_legend(*, arrows: bool = False) -> list[Line2D]:
    """Legend entries for the marks of `draw_grid`, and for arrows that show what a model adds."""
    added = Line2D(
        [], [], color=BLUE, marker=r"$\rightarrow$", linestyle="", markersize=10, label="what the model adds"
    )
    return [
        Line2D([], [], marker="o", color=RED, linestyle="", label="start"),
        Line2D([], [], marker="*", color=GREEN, linestyle="", markersize=10, label="goal"),
        *([added] if arrows else []),
    ]
