"""How long an agent takes to start: a run of one learning step, in a fresh process, without and with the cache.

    python bench/start.py

Process start, imports, compilation, one update of the model, one learning step, an evaluation, a checkpoint.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import report

AGENTS = ("sac", "mnm_approx")
RUN = (
    "--env",
    "HalfCheetah-v4",
    "--learning-starts",
    "10",
    "--steps",
    "11",
    "--evaluation-episodes",
    "1",
    "--overwrite",
)


def seconds(agent: str, folder: Path) -> float:
    """Of one run that keeps what it compiles in this folder."""
    model = () if agent == "sac" else ("--warmup-updates", "1")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "mnm", "train", agent, *RUN, *model],
        cwd=folder,
        env=environment | {"XDG_CACHE_HOME": str(folder)},
        check=True,
        capture_output=True,
    )
    return time.monotonic() - began


def main() -> None:
    for agent in AGENTS:
        with tempfile.TemporaryDirectory() as name:
            first, second = seconds(agent, Path(name)), seconds(agent, Path(name))
        report(f"{agent}: first start, second start", f"{first:.1f} s, {second:.1f} s", "second <= 6 s", second <= 6.0)


if __name__ == "__main__":
    main()
