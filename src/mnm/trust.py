"""Modules that may be imported by name: those that the user has typed, never those that a file alone names.

A task or an agent of one's own is called module:name, and importing a module runs its code. A run's folder or a saved
agent can come from anybody: its names are looked up only when the user has typed the same, or has said --trust.
"""

from __future__ import annotations

import os
import sys

from mnm.messages import UserError

_trusted: set[str] = set()


class TrustError(UserError):
    """A file that names a module which its user has not."""


def trust(*names: str) -> None:
    """The user has typed these names of tasks or agents: their modules may be imported, from the present folder too."""
    modules = {name.rpartition(":")[0] for name in names if ":" in name}
    if modules and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that no file here hides a library
    _trusted.update(modules)


def check_trusted(place: object, *names: str, trusted: bool) -> None:
    """Refuse names of tasks or agents, read in a file, whose modules nobody has typed; unless the file is trusted."""
    if trusted:
        trust(*names)
    for name in names:
        module = name.rpartition(":")[0]
        if module and module not in _trusted:
            raise TrustError(
                f"{place} names {name}: to make it, the module {module} would be imported, which runs its code. If you"
                " trust the file: --trust, in Python trust=True"
            )
