"""What a sweep is asked to do. Light, so that `mnm --help` is quick."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Sweep:
    """Train every agent on every task with every seed and every override, several runs at once.

    Each run is a process with one thread on a core of its own. The same sweep started again skips what is finished and
    goes on with what is not. A run that fails stops no other.
    Example: mnm sweep --envs Pendulum-v1 --agents sac mnm_approx --seeds 0 1 2 --steps 3000
    """

    envs: tuple[str, ...]
    """The tasks' Gymnasium ids."""
    agents: tuple[str, ...]
    """The agents' names; mnm train --help lists them."""
    seeds: tuple[int, ...] = (0,)
    """The seeds, one run each."""
    steps: int = 10_000
    """Real steps of a run."""
    scale: str = "cpu"
    """Which preset the agents' settings start from: paper, cpu, quick."""
    evaluate_every: int = 500
    """Real steps between two evaluations of the deterministic policy."""
    evaluation_episodes: int = 10
    """Episodes per evaluation."""
    overrides: tuple[str, ...] = ("",)
    """More flags of mnm train; every string is one more variant: --overrides "" "--value-weight 0". Agents that do not
    have a string's flags are left out of its variant."""
    runs: Path = Path("runs/sweep")
    """Folder of the runs, and beside each run its NAME.log."""
    jobs: int | None = None
    """How many runs at once; by default one per core."""
    ray: str | None = None
    """Run on a Ray cluster: its address, or auto for the one on this machine (started if there is none). The runs'
    folder must be on a filesystem that all workers share. Needs pip install 'mnm-rl[ray]'."""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Check everything, print what would be run, and stop."""
