"""The learning runs of docs/results.md. Usage: python bench/learning.py [run] [draw]

`run` makes the runs that are missing in results/learning, two at a time, one thread each, in an hour or more; `draw`
turns them into docs/learning.csv, docs/learning.png and a table.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mnm.figures.base import write_csv
from mnm.figures.style import AGENT_COLOURS, STYLE
from mnm.sweeping.trials import ONE_THREAD
from mnm.training.metrics import read_metrics

RUNS = Path("results/learning")
DOCS = Path("docs")
PENDULUM, INVERTED = "Pendulum-v1", "InvertedPendulum-v5"
STEPS = {PENDULUM: 3_000, INVERTED: 6_000}
SOLVED = {PENDULUM: -200.0, INVERTED: 900.0}
FIVE, ONE = range(5), range(1)
# Task, agent, seeds, settings beside the cpu preset.
EXPERIMENTS = (
    (PENDULUM, "mnm_approx", FIVE, ()),
    (PENDULUM, "mnm", ONE, ("--reward-offset", "17")),
    (PENDULUM, "mnm_tight", ONE, ("--reward-offset", "17")),
    (PENDULUM, "vmbpo", ONE, ()),
    (PENDULUM, "vaml", ONE, ()),
    (PENDULUM, "value_weighted", ONE, ()),
    (PENDULUM, "mbpo", FIVE, ()),
    (PENDULUM, "sac", FIVE, ()),
    (INVERTED, "mnm_approx", FIVE, ()),
)


def folder(task: str, agent: str, seed: int) -> Path:
    return RUNS / f"{task}-{agent}-seed{seed}"


def finished(task: str, agent: str, seed: int) -> bool:
    return (folder(task, agent, seed) / "agent.npz").exists()


def run() -> None:
    """Two single-threaded runs side by side, each on a core of its own."""
    cores: Queue[int] = Queue()
    for core in sorted(os.sched_getaffinity(0))[:2]:
        cores.put(core)

    def one(task: str, agent: str, seed: int, settings: tuple[str, ...]) -> None:
        core = cores.get()
        command = [
            "taskset",
            "-c",
            str(core),
            f"{sys.prefix}/bin/mnm",
            "train",
            agent,
            "--env",
            task,
            "--seed",
            str(seed),
        ]
        command += ["--steps", str(STEPS[task]), "--runs", str(RUNS), "--overwrite", *settings]
        done = subprocess.run(
            command, env=os.environ | {"XLA_FLAGS": ONE_THREAD}, stdout=subprocess.DEVNULL, check=False
        )
        print(f"{folder(task, agent, seed)}: {'done' if done.returncode == 0 else 'failed'}", flush=True)
        cores.put(core)

    with ThreadPoolExecutor(2) as pool:
        for task, agent, seeds, settings in EXPERIMENTS:
            for seed in seeds:
                if not finished(task, agent, seed):
                    pool.submit(one, task, agent, seed, settings)


def draw() -> None:
    """All seeds' curves, their table, and for each run the step at which its evaluation first reached the mark."""
    columns: dict[str, list[str | float]] = {name: [] for name in ("env", "agent", "seed", "step", "return")}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 3.4), layout="constrained")
        panels = figure.subplots(1, 3)
        print(
            "| task | agent | at the mark | first step there, by seed | last return, mean (by seed) | minutes a run |"
        )
        print("|---|---|---|---|---|---|")
        for task, agent, seeds, _ in EXPERIMENTS:
            panel = panels[2] if task == INVERTED else panels[0 if len(seeds) > 1 else 1]
            done = [seed for seed in seeds if finished(task, agent, seed)]
            if len(done) < len(seeds):
                print(f"{task}, {agent}: {len(done)} of {len(seeds)} seeds have run", file=sys.stderr)
            if not done:
                continue
            tables = [read_metrics(folder(task, agent, seed) / "metrics.csv") for seed in done]
            draw_agent(panel, agent, [(np.array(t["step"]), np.array(t["return"])) for t in tables])
            for seed, table in zip(done, tables, strict=True):
                for step, value in zip(table["step"], table["return"], strict=True):
                    cells: tuple[str | float, ...] = (task, agent, seed, int(step), value)
                    for name, cell in zip(columns, cells, strict=True):
                        columns[name].append(cell)
            print(table_row(task, agent, tables))
        for panel, title, task in zip(
            panels,
            (f"{PENDULUM}, 5 seeds", f"{PENDULUM}, 1 seed", f"{INVERTED}, 5 seeds"),
            (PENDULUM, PENDULUM, INVERTED),
            strict=True,
        ):
            panel.axhline(SOLVED[task], color="0.6", linewidth=1, linestyle=":")
            panel.set(title=title, xlabel="real steps (the first 1,000 at random)", ylabel="evaluation return")
            if panel.lines[:-1]:
                panel.legend(frameon=True, framealpha=0.9)
        figure.savefig(DOCS / "learning.png", dpi=120)
    write_csv(DOCS / "learning.csv", {name: np.array(column) for name, column in columns.items()})


def draw_agent(panel: Axes, agent: str, curves: list[tuple[np.ndarray, np.ndarray]]) -> None:
    """Every seed thin, their mean thick."""
    for steps, returns in curves:
        panel.plot(steps, returns, color=AGENT_COLOURS[agent], alpha=0.3, linewidth=0.8)
    panel.plot(curves[0][0], np.mean([r for _, r in curves], axis=0), color=AGENT_COLOURS[agent], label=agent)


def table_row(task: str, agent: str, tables: list[dict[str, list[float]]]) -> str:
    """One line of the table in docs/results.md."""
    reached = [
        next((int(s) for s, r in zip(t["step"], t["return"], strict=True) if r >= SOLVED[task]), None) for t in tables
    ]
    firsts = ", ".join(str(step) if step is not None else "never" for step in reached)
    last = [table["return"][-1] for table in tables]
    by_seed = ", ".join(f"{value:.0f}" for value in last)
    minutes = np.mean([table["seconds"][-1] for table in tables]) / 60
    count = sum(step is not None for step in reached)
    return (
        f"| {task} | {agent} | {count} of {len(tables)} | {firsts} | {np.mean(last):.0f} ({by_seed}) | {minutes:.1f} |"
    )


if __name__ == "__main__":
    for part in sys.argv[1:] or ("run", "draw"):
        {"run": run, "draw": draw}[part]()
