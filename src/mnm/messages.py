"""How commands and functions tell their user what is wrong."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

BAD_INPUT = 2
"""The exit code."""
WIDTH = 160
"""Of tables that do not go to a terminal."""


EXTRAS = {
    "imageio": "video",
    "jinja2": "figures",
    "markupsafe": "figures",
    "matplotlib": "figures",
    "metaworld": "metaworld",
    "mujoco": "mujoco",
    "numba": "large",
    "PIL": "video",
    "plotly": "figures",
    "pygame": "video",
    "ray": "ray",
    "wandb": "wandb",
}
"""By the module that is imported: the extra of mnm-rl that brings it."""


class UserError(ValueError):
    """An error that is its user's to mend: the message is one line with the cause, the value and the remedy."""


def nearest(name: str, known: Iterable[str]) -> str:
    """' (did you mean X?)' or nothing."""
    matches = get_close_matches(name, list(known), n=1)
    return f" (did you mean {matches[0]}?)" if matches else ""


def missing_extra(error: BaseException) -> str | None:
    """What to install, if the error, ours or a library's, is that one of EXTRAS is missing."""
    for module, extra in EXTRAS.items():
        if re.search(rf"No module named '{module}\b|\b{module} is not installed", str(error), re.IGNORECASE):
            return f"needs {module}, which is not installed: pip install 'mnm-rl[{extra}]'"
    return None


def fail(message: str) -> int:
    """Say what is wrong with the input, in one line."""
    print(f"mnm: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT


def console(*, markup: bool = True) -> Console:
    """For tables: as wide as the terminal; in a file or a pipe wide enough for all of them."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=markup)
