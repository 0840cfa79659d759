"""What the commands that open a run's folder ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class RunFolder:
    """A run, and whether its files are trusted."""

    run: tyro.conf.Positional[Path]
    """The run's folder."""
    trust: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Import the module of a task or agent that the run's files name as module:name: it runs that module's code."""
