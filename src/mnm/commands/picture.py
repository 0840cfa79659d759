"""`--picture FILE`, of several commands: what it may be called, and how it is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mnm.messages import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
"""What Matplotlib's drawings are written as."""


def check_picture(path: Path | None, endings: Sequence[str] = ENDINGS) -> None:
    """Refuse a name that says no kind of picture, before anything is computed."""
    if path is not None and path.suffix.lower() not in endings:
        *others, last = endings
        named = f"{', '.join(others)} or {last}" if others else last
        raise UserError(f"--picture {path}: a picture's name ends in {named}")


def write(figure: Figure, path: Path) -> None:
    """The picture, in the format that its name says; folders that are missing are made."""
    from mnm.plotting.picture import write_picture

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_picture(figure, path)
    except OSError as error:
        raise UserError(f"--picture {path}: {error.strerror or error}") from None
