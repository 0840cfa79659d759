"""Small results and runs to report on."""

import csv
import json
from base64 import b64decode
from pathlib import Path

HOSTILE = "<img src=x onerror=alert(1)>"
PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==")
COLUMNS = {
    "step": [500, 1000, 1500],
    "return": [1.0, 2.0, 3.0],
    "return_std": [0.5, 0.5, 0.5],
    "q_at_start": ["", 1.0, 2.0],
    "discounted_return": ["", 1.5, 2.5],
    "bound": ["", "nan", 0.5],
    "log_return": ["", 0.5, 1.0],
    "model_error_1": ["", 0.1, 0.01],
    "constant_error_1": ["", 1.0, 1.0],
    "model_error_10": ["", 1.0, 0.1],
    "constant_error_10": ["", 30.0, 40.0],
    "held_out_accuracy": ["", 0.6, 0.5],
    "calibration_error": ["", 0.1, 0.05],
}


DATA = {"dataset": "/data/replay.npz", "rows": 3_000, "digest": "0123456789abcdef", "evaluate": True}
"""What a run from data learned from."""


CERTIFICATE = {
    "env": "Task-v0",
    "agent": "mnm",
    "steps": 1500,
    "seed": 0,
    "confidence": 0.9,
    "at_least": 1.0,
    "return_range": [0.0, 10.0],
    "planned_episodes": 5,
    "certified": True,
    "certificate": 1.25,
    "upper_bound": 7.5,
    "reason": "",
    "episodes": 3,
    "mean": 4.5,
    "promises": {"model_return": 8.75, "q_at_start": 6.25, "discounted_return": None},
    "returns": [4.0, 4.5, 5.0],
}
"""As `mnm certify RUN` keeps it."""


def make_run(
    folder: Path,
    agent: str,
    seed: int,
    *,
    env: str = "Task-v0",
    settings: dict | None = None,
    data: dict | None = None,
) -> Path:
    """A finished run; with `data`, one that learned from them alone."""
    folder.mkdir(parents=True)
    config = {
        "algorithm": agent,
        "env": env,
        "seed": seed,
        "steps": 1500,
        "scale": "cpu",
        "settings": settings or {"hidden": [64, 64]},
        "versions": {"jax": "0.10.2"},
    }
    if data is not None:
        config["offline"] = data
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_table(folder / "metrics.csv", COLUMNS | {"return": [value + seed for value in COLUMNS["return"]]})
    return folder


def make_results(folder: Path) -> Path:
    """One figure of `mnm reproduce`, with two verdicts."""
    folder.mkdir()
    (folder / "stochastic_gridworld.png").write_bytes(PNG)
    rows = [(method, seed, step) for method in ("MnM", "VMBPO") for seed in (0, 1) for step in (0, 20, 40)]
    curves = dict(zip(("method", "seed", "iteration"), zip(*rows, strict=True), strict=True))
    write_table(
        folder / "stochastic_gridworld.csv",
        curves | {"return": [0.1 * step + seed for _, seed, step in rows], "optimal": [5.0] * len(rows)},
    )
    write_table(
        folder / "verdicts.csv",
        {
            "figure": ["stochastic_gridworld"] * 2,
            "claim": ["MnM outperforms Q-learning", "MnM outperforms VMBPO"],
            "paper": ["outperforms"] * 2,
            "measured": ["1.36 against 0.01", "1.36 against 1.37"],
            "holds": ["yes", "no"],
        },
    )
    return folder


def write_table(path: Path, columns: dict) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *zip(*columns.values(), strict=True)])
