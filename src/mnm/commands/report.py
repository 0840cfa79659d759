"""`mnm report`: one HTML file that holds every result and needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mnm.messages import fail, nearest


@dataclass(frozen=True)
class Report:
    """Write figures, verdicts, runs and comparisons to one HTML file that needs no network.

    Example: mnm report --runs runs/Pendulum-v1-sac-seed0 runs/Pendulum-v1-mnm-seed0
    """

    results: Path | None = None
    """Folder that `mnm reproduce` wrote; by default `results`, if it is there."""
    runs: tuple[Path, ...] = ()
    """Runs, or folders that hold runs however deep; by default all in `runs` and in the results."""
    baseline: str | None = None
    """The agent that the others are tested against."""
    out: Path = Path("report.html")
    """The file to write."""


def report(command: Report) -> int:
    """The exit code: 0, or 2 for bad input."""
    named = [("--results", command.results)] if command.results is not None else []
    for flag, path in [*named, *(("--runs", path) for path in command.runs)]:
        if path is not None and not path.is_dir():
            return fail(f"{flag} {path}: there is no such folder")

    from mnm.report.contents import read_contents
    from mnm.report.page import rendered

    results = command.results or Path("results")
    contents = read_contents(results, command.runs or (Path("runs"), results))
    agents = {name for run in contents.runs for name in (run.algorithm, contents.labels[run.folder])}
    if command.baseline is not None and command.baseline not in agents:
        return fail(f"--baseline {command.baseline}: no run is of this agent{nearest(command.baseline, agents)}")
    flags = {
        "--results": [command.results],
        "--runs": command.runs,
        "--baseline": [command.baseline],
        "--out": [command.out],
    }
    try:
        command.out.parent.mkdir(parents=True, exist_ok=True)
        # A folder's name may hold bytes that are no UTF-8: they are written as question marks.
        size = command.out.write_bytes(rendered(contents, command.baseline, flags).encode("utf-8", errors="replace"))
    except OSError as error:
        return fail(f"--out {command.out}: {error.strerror}")
    print(f"{command.out}: {len(contents.figures)} figures, {len(contents.runs)} runs, {size / 1e6:.1f} MB")
    return 0
