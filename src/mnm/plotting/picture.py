"""Pictures as files: PNG, PDF, and SVG, which follows its reader's light or dark theme."""

from __future__ import annotations

import io
import re
from pathlib import Path
from textwrap import wrap

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from mnm.plotting.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY, STYLE, YELLOW

DARK_PAGE, LIGHT_INK = 0x14, 0xE6
"""What white and black become on a dark page."""
ON_DARK = {
    BLUE: "#4aa3df",
    ORANGE: "#f0b040",
    GREEN: "#35c79a",
    RED: "#f5803e",
    SKY: "#8ccdf5",
    PURPLE: "#dd95bd",
    YELLOW: "#f0e442",
    BLACK: "#e6e6e6",
}
"""The palette on a dark page."""
NEAR, MOSTLY = 0.008, 0.75
"""Lines closer than this share of their panel's height cannot be told apart; if so at this share of their points, the
panel says so."""
LETTERS_PER_INCH = 16
"""Of the words below a panel."""


def save_picture(figure: Figure, path: Path) -> None:
    """PATH.png and PATH.svg; where lines cover one another, the panel says so."""
    _finish(figure)
    for ending in (".png", ".svg"):
        _write(figure, path.with_name(f"{path.name}{ending}"))


def write_picture(figure: Figure, path: Path) -> None:
    """The same in one format, by the name: .png, .svg or .pdf."""
    _finish(figure)
    _write(figure, path)


def _finish(figure: Figure) -> None:
    figure.draw_without_rendering()  # sets limits and sizes
    for axes in figure.axes:
        _tell_of_covered_lines(axes)


def _write(figure: Figure, path: Path) -> None:
    """Without the time of writing: the same picture is the same file."""
    ending = path.suffix.lower()
    with mpl.rc_context({"svg.hashsalt": "mnm", "savefig.dpi": STYLE["savefig.dpi"]}):
        if ending == ".svg":
            drawn = io.StringIO()
            figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
            path.write_text(themed(drawn.getvalue()), encoding="utf-8")
        else:
            figure.savefig(path, format=ending[1:], metadata={"CreationDate": None} if ending == ".pdf" else None)


def themed(svg: str) -> str:
    """Matplotlib's SVG with rules for a dark theme: greys change places, the palette has lighter colours."""
    colours = sorted(set(re.findall(r"#[0-9a-f]{6}", svg)))
    rules = [
        f'[style*="{part}: {colour}"]{{{part}:{dark}!important}}'
        for colour in colours
        if (dark := on_dark(colour)) != colour
        for part in ("fill", "stroke")
    ]
    # What names no colour, such as letters, is black.
    style = "@media (prefers-color-scheme:dark){:root{fill:" + on_dark("#000000") + "}" + "".join(rules) + "}"
    return svg.replace("<defs>", f"<defs><style>{style}</style>", 1)


def on_dark(colour: str) -> str:
    """A colour (#rrggbb) as it is on a dark page."""
    known = {one.lower(): other for one, other in ON_DARK.items()}
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    if colour in known or not red == green == blue:
        return known.get(colour, colour)
    grey = round(LIGHT_INK + (DARK_PAGE - LIGHT_INK) * red / 255)
    return f"#{grey:02x}{grey:02x}{grey:02x}"


def _tell_of_covered_lines(axes: Axes) -> None:
    """Name below a panel the lines that lie on one another."""
    width = axes.get_window_extent().width / axes.figure.dpi * LETTERS_PER_INCH
    notes = [line for names in covered(axes) for line in wrap(f"on one line: {'; '.join(names)}", int(width))]
    if notes:
        axes.set_xlabel("\n".join([axes.get_xlabel(), *notes]).strip())


def covered(axes: Axes) -> list[list[str]]:
    """The names of lines that can hardly be told apart, in groups."""
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    groups: list[list[Line2D]] = []
    for line in lines:
        group = next((group for group in groups if _lie_together(axes, group[0], line)), None)
        groups.append([line]) if group is None else group.append(line)
    return [[str(line.get_label()) for line in group] for group in groups if len(group) > 1]


def _lie_together(axes: Axes, one: Line2D, other: Line2D) -> bool:
    if not np.array_equal(one.get_xdata(), other.get_xdata()):
        return False
    heights: list[NDArray] = []
    for line in (one, other):
        points = axes.transData.transform(np.column_stack([line.get_xdata(), line.get_ydata()]))
        heights.append(axes.transAxes.inverted().transform(points)[:, 1])
    seen = np.isfinite(heights).all(axis=0) & (np.abs(heights[0]) < 2)  # not what lies far outside of the panel
    near = np.abs(heights[0] - heights[1])[seen] < NEAR
    return len(near) > 1 and bool(near.mean() >= MOSTLY)
