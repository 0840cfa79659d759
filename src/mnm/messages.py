"""How commands and functions tell their user what is wrong."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

FAILED, BAD_INPUT, NOT_CERTIFIED = 1, 2, 3
"""The exit codes."""
WIDTH = 160
"""Of tables that do not go to a terminal."""
_tracebacks = False


EXTRAS = {
    "imageio": "video",
    "jinja2": "figures",
    "markupsafe": "figures",
    "matplotlib": "figures",
    "metaworld": "metaworld",
    "h5py": "offline",
    "minari": "offline",
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


def short(value: object) -> str:
    """The value in one line that is not long."""
    try:
        text = " ".join(repr(value).split())
    except (ValueError, RecursionError):  # a whole number of thousands of digits, lists within lists
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= 120 else f"{text[:117]}..."


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


def with_new_flags(arguments: Iterable[str], renamed: Mapping[str, str]) -> list[str]:
    """The arguments, old flags replaced; a line for each says so."""
    found = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        new = renamed.get(flag.replace("_", "-")) if flag.startswith("--") else None
        if new is not None:
            print(f"mnm: {flag} is now {new}; the old name goes with version 0.3", file=sys.stderr)
        found.append(argument if new is None else f"{new}{equals}{value}")
    return found


def show_tracebacks() -> None:
    """From now on errors that are their user's to mend are shown in full too."""
    global _tracebacks
    _tracebacks = True


def print_traceback() -> None:
    """That of the error at hand, with what caused it, if the user has asked for it."""
    if _tracebacks and sys.exc_info()[1] is not None:
        traceback.print_exc()


def fail(message: str) -> int:
    """Say what is wrong with the input, in one line."""
    print_traceback()
    print(f"mnm: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT


def console(*, markup: bool = True) -> Console:
    """For tables: as wide as the terminal; in a file or a pipe wide enough for all of them."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=markup)
