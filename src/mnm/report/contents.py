"""What a report is made of: verdicts, figures and runs as they are found. What cannot be read says why."""

from __future__ import annotations

import csv
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mnm.analysis.certificates import Kept, read_certificates
from mnm.analysis.comparison import by_setting, label_agents
from mnm.figures import EXACT, titles
from mnm.figures.base import ANSWERS, Columns, Verdict, read_csv
from mnm.training.runs import CONFIG, Run, read_run

UNREADABLE = (OSError, ValueError, TypeError, OverflowError, csv.Error)
SIGNATURES = {".svg": b"<?xml", ".png": b"\x89PNG\r\n\x1a\n", ".gif": b"GIF8"}
"""How a picture's file begins, by its ending; the best is first."""
MIME = {".svg": "image/svg+xml", ".png": "image/png", ".gif": "image/gif"}


@dataclass(frozen=True)
class FoundFigure:
    """One figure of `mnm reproduce`, as far as it is there."""

    name: str
    verdicts: Sequence[Verdict]
    picture: str | None
    """A data URI: the SVG, which follows the page's theme, or else the PNG."""
    videos: Mapping[str, str]
    """Its further pictures, videos among them: data URIs by name."""
    columns: Columns
    problems: Sequence[str]

    @property
    def title(self) -> str:
        """What it shows."""
        return titles().get(self.name, self.name)

    @property
    def heading(self) -> str:
        """Its name in words; the scale is in the title."""
        return self.name.partition("-")[0].replace("_", " ").capitalize()

    @property
    def alt(self) -> str:
        """The picture for those who do not see it: what it shows and what came out."""
        results = (f"{row.claim}: {row.answer}, {row.measured}" for row in self.verdicts)
        return ". ".join([self.title, *results])


@dataclass(frozen=True)
class Contents:
    """Everything that a report shows."""

    figures: Sequence[FoundFigure]
    missing: Sequence[str]
    """The exact figures that have not been made."""
    runs: Sequence[Run]
    labels: Mapping[Path, str]
    """By a run's folder: its agent, told apart from the same agent with other settings."""
    videos: Mapping[Path, Sequence[str]]
    """By a run's folder: the videos in it, as data URIs."""
    certificates: Mapping[Path, Sequence[Kept]]
    """By a run's folder: what `mnm certify` found, the latest last."""
    problems: Sequence[str]
    """What was found and could not be read."""


def read_contents(results: Path, run_folders: Iterable[Path]) -> Contents:
    """All that is in the folders."""
    problems: list[str] = []
    verdicts: dict[str, list[Verdict]] = {}
    try:
        verdicts = read_verdicts(results / "verdicts.csv")
    except UNREADABLE as error:
        problems.append(f"{results / 'verdicts.csv'}: {error}")
    figures = [read_figure(results, name, verdicts.get(name, [])) for name in dict.fromkeys([*titles(), *verdicts])]
    present = [figure for figure in figures if figure.picture or figure.verdicts or figure.problems]
    missing = [name for name in EXACT if name not in {figure.name for figure in present}]
    runs, unreadable = read_runs(run_folders)
    videos, undrawn = read_videos(runs)
    certificates, unproven = read_all_certificates(runs)
    found = [*problems, *unreadable, *undrawn, *unproven]
    return Contents(present, missing, runs, agent_labels(runs), videos, certificates, found)


def read_verdicts(path: Path) -> dict[str, list[Verdict]]:
    """The verdicts of every figure; none if the file is not there."""
    if not path.exists():
        return {}
    columns = read_csv(path)
    missing = {"figure", "claim", "paper", "measured", "holds"} - set(columns)
    if missing:
        raise ValueError(f"no table of verdicts: it has no column {min(missing)!r}")
    verdicts: dict[str, list[Verdict]] = {}
    meant = {answer: holds for holds, answer in ANSWERS.items()}
    texts = (columns[name].astype(str).tolist() for name in ("figure", "claim", "paper", "measured", "holds"))
    for figure, claim, paper, measured, holds in zip(*texts, strict=True):
        verdicts.setdefault(figure, []).append(Verdict(claim, paper, measured, meant.get(holds, False)))
    return verdicts


def read_figure(results: Path, name: str, verdicts: Sequence[Verdict]) -> FoundFigure:
    """A figure's picture and columns."""
    if name not in titles():  # a name out of a file is no path
        return FoundFigure(name, verdicts, None, {}, {}, [f"there is no figure {name!r}"])
    problems: list[str] = []
    pictures: dict[str, str] = {}
    columns: Columns = {}
    further = (path for ending in SIGNATURES for path in results.glob(f"{name}-*{ending}") if path.stem not in titles())
    for picture in (results / f"{name}.svg", results / f"{name}.png", *sorted(further)):
        try:
            if picture.exists():
                pictures[picture.name] = data_uri(picture)
        except UNREADABLE as error:
            problems.append(f"{picture}: {error}")
    svg, png = (pictures.pop(f"{name}{ending}", None) for ending in (".svg", ".png"))
    table = results / f"{name}.csv"
    try:
        columns = read_csv(table) if table.exists() else {}
    except UNREADABLE as error:
        problems.append(f"{table}: {error}")
    return FoundFigure(name, verdicts, svg or png, pictures, columns, problems)


def data_uri(picture: Path) -> str:
    """The picture as an address that holds it."""
    content, ending = picture.read_bytes(), picture.suffix
    if not content.startswith(SIGNATURES[ending]):
        raise ValueError(f"no {ending[1:].upper()} picture")
    return f"data:{MIME[ending]};base64," + b64encode(content).decode("ascii")


def read_runs(folders: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """The runs in the folders, each once, and what is wrong with those that cannot be read."""
    configs = (config for folder in folders if folder.is_dir() for config in sorted(folder.rglob(CONFIG)))
    found = {config.parent.resolve(): config.parent for config in configs}
    runs, problems = [], []
    for folder in found.values():
        try:
            run = read_run(folder)
            _ = run.metrics  # read, before anything is made of them
            runs.append(run)
        except UNREADABLE as error:
            problems.append(f"{folder}: {error}")
    return runs, problems


def read_videos(runs: Sequence[Run]) -> tuple[dict[Path, list[str]], list[str]]:
    """The videos in the runs' folders, as `mnm render RUN --out RUN/video.gif` puts them there; and what is none."""
    videos: dict[Path, list[str]] = {}
    problems = []
    for run in runs:
        for video in sorted(run.folder.glob("*.gif")):
            try:
                videos.setdefault(run.folder, []).append(data_uri(video))
            except UNREADABLE as error:
                problems.append(f"{video}: {error}")
    return videos, problems


def read_all_certificates(runs: Sequence[Run]) -> tuple[dict[Path, list[Kept]], list[str]]:
    """The certificates in the runs' folders, and which cannot be read."""
    certificates, problems = {}, []
    for run in runs:
        try:
            certificates[run.folder] = read_certificates(run.folder)
        except UNREADABLE as error:
            problems.append(str(error))
    return certificates, problems


def agent_labels(runs: Sequence[Run]) -> dict[Path, str]:
    """The agent of each run; where it ran on a task, or on data, with different settings, with what differs."""
    groups = (label_agents(same) for same in by_setting(runs).values())
    return {run.folder: label for group in groups for label, same in group.items() for run in same}
