"""Runs in processes of their own, killed and gone on with; and what must then be equal to the bit."""

import json
import random
import time
from pathlib import Path

import numpy as np

import killable
from mnm.commands.resume import Resume, resume
from mnm.training.metrics import read_metrics


def newest(folder: Path) -> tuple[int, int]:
    """The steps and the updates of a run's last checkpoint, 0 without any."""
    names = [path.stem.split("-") for path in (folder / "checkpoints").glob("*.npz")]
    return max(((int(steps), int(updates)) for steps, updates in names), default=(0, 0))


def kill_and_resume(command: list, folder: Path, moments: list[tuple[int, int]], chance: random.Random) -> None:
    """Start a run; for each moment, kill it by SIGKILL soon after a checkpoint beyond it; go on; at last let it end.

    The command writes a checkpoint at every pause, so that some kills come while one is being written.
    """
    said = folder.with_name("stderr")
    said.parent.mkdir(parents=True, exist_ok=True)
    for number, moment in enumerate(moments):
        passed = max(newest(folder), moment)
        process = killable.started(*command, stderr=said)
        while process.is_alive() and newest(folder) <= passed:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))
        assert process.is_alive(), (number, said.read_text())
        process.kill()
        process.join()
        command = ["resume", folder]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"checkpoint_minutes": 2.0}))
    assert resume(Resume(folder)) == 0


def measured(folder: Path) -> dict[str, list[float]]:
    """The metrics without what depends on the clock."""
    table = read_metrics(folder / "metrics.csv")
    return {name: column for name, column in table.items() if name not in ("seconds", "updates_per_s")}


def arrays(folder: Path) -> list:
    """Of the saved agent, its replay's among them."""
    with np.load(folder / "agent.npz") as file:
        return [file[name] for name in file.files if name != "header"]


def assert_same_run(one: Path, two: Path) -> None:
    """Metrics, evaluations and agent."""
    np.testing.assert_equal(measured(one), measured(two))
    assert (one / "evaluations.csv").read_text() == (two / "evaluations.csv").read_text()
    for a, b in zip(arrays(one), arrays(two), strict=True):
        np.testing.assert_array_equal(a, b)
