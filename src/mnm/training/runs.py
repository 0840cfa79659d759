"""Run folders: what is in them, where they are, whether they are finished.

A run is a folder with config.json (everything that it depends on), metrics.csv, evaluations.csv (every evaluation
episode's return), TensorBoard events, checkpoints and, at the end, agent.npz; certificates.json if one was asked for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mnm.files import DamagedFileError, parse_object, read_text
from mnm.messages import short
from mnm.training.lock import LOCK
from mnm.training.metrics import FILE as METRICS
from mnm.training.metrics import read_metrics
from mnm.training.spec import KINDS, NAME, RunError, RunSpec, check_entries, with_new_names

CONFIG = "config.json"
AGENT = "agent.npz"
NEEDED = {name: KINDS[name] for name in ("algorithm", "env", "seed", "steps", "scale", "offline?")} | {
    "settings?": KINDS["settings"]
}
"""What a run's configuration must have so that the run can be shown, and of what kind."""
PACKAGES = ("mnm-rl", "jax", "jaxlib", "equinox", "optax", "gymnasium", "mujoco", "numpy")


@dataclass(frozen=True)
class Run:
    """One run's folder and configuration."""

    folder: Path
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The folder's own name."""
        return self.folder.name

    @property
    def spec(self) -> RunSpec:
        """What was asked for, in full."""
        return RunSpec.from_json(self.config, self.folder / CONFIG)

    @property
    def algorithm(self) -> str:
        """The agent's name, such as mnm_approx."""
        return str(self.config["algorithm"])

    @property
    def env(self) -> str:
        """The task's id; empty if it learned from data that name none."""
        return str(self.config["env"])

    @property
    def data(self) -> Mapping[str, Any] | None:
        """What it learned from, if that was data alone: their name, number of rows and digest."""
        return self.config.get("offline")

    @property
    def clock(self) -> str:
        """What its steps are: real steps, or updates from data."""
        return "steps" if self.data is None else "updates"

    @property
    def setting(self) -> str:
        """What runs must have in common to be compared: the task, and the data if they learned from data alone."""
        if self.data is None:
            return self.env
        whole = Path(self.data["dataset"])
        name = f"{whole.name if whole.is_absolute() else whole} ({self.data['digest'][:8]})"
        return f"{self.env} from data, {name}" if self.env else f"data {name}"

    @property
    def seed(self) -> int:
        """The run's seed."""
        return int(self.config["seed"])

    @cached_property
    def metrics(self) -> dict[str, list[float]]:
        """The columns of metrics.csv; none if nothing has been measured yet."""
        path = self.folder / METRICS
        return read_metrics(path) if path.exists() else {}

    @property
    def finished(self) -> bool:
        """Whether the last step has been measured."""
        steps = self.metrics.get("step", [])
        return bool(steps) and steps[-1] >= int(self.config["steps"])


def read_run(folder: Path) -> Run:
    """The run in a folder."""
    path = folder / CONFIG
    if folder.is_file():
        hint = f": name its folder, {folder.parent}" if (folder.parent / CONFIG).exists() else ""
        raise RunError(f"{folder} is a file, not a run's folder{hint}")
    try:
        config = parse_object(read_text(path))
    except FileNotFoundError:
        why = f"is not a run: it has no {CONFIG}" if folder.exists() else "does not exist: name a run's folder"
        raise RunError(f"{folder} {why}") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    except DamagedFileError as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    check_entries(path, config, NEEDED)
    if "settings" in config:
        config["settings"] = with_new_names(config["settings"])
    return Run(folder, config)


def find_runs(paths: Iterable[Path]) -> list[Run]:
    """The runs that the paths name: a run's own folder, or a folder that holds runs, however deep. Each run once."""
    found: dict[Path, Run] = {}
    for path in paths:
        if not path.is_dir():
            raise RunError(f"{path} is not a folder")
        folders = [path] if (path / CONFIG).exists() else sorted(file.parent for file in path.rglob(CONFIG))
        if not folders:
            raise RunError(f"{path} holds no runs: no {CONFIG} in it")
        for folder in folders:
            found.setdefault(folder.resolve(), read_run(folder))
    return list(found.values())


def task_name(env: str) -> str:
    """The task's id as part of a folder's name: without the module that makes it known, and without slashes."""
    return env.rpartition(":")[2].replace("/", "_")


def checked_folder(runs: Path, name: str, overwrite: bool) -> Path:
    """A folder inside `runs` that may be made; an existing run is never overwritten without being told to."""
    if not re.fullmatch(NAME, name):
        raise RunError(f"a run cannot be named {short(name)}: use up to 150 letters, digits, and _ . + - (not first)")
    folder = runs / name
    if is_unmade(folder):
        return folder
    if not overwrite:
        unfinished = (folder / CONFIG).exists() and not read_run(folder).finished
        remedy = f"mnm resume {folder} goes on with it; or " if unfinished else ""
        state = "is unfinished" if unfinished else "exists"
        raise RunError(f"{folder} {state}: {remedy}choose another --name or --runs, or delete it with --overwrite")
    if not (folder / CONFIG).exists():
        raise RunError(f"{folder} is not a run (it has no {CONFIG}): --overwrite does not delete it")
    return folder


def is_unmade(folder: Path) -> bool:
    """Whether there is no such folder, or only what a kill left before its configuration was whole."""
    if not folder.is_dir():
        return not folder.exists()
    if not all(re.fullmatch(rf"{LOCK}|{CONFIG}(\.\d+)?", path.name) for path in folder.iterdir()):
        return False
    try:
        json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return True
    except OSError:
        return False
    return False


def revision() -> str | None:
    """The source's commit, with a + if it has been changed since; None outside a checkout of its own repository."""
    package = Path(__file__).parents[1]
    git = ["git", "-C", str(package)]
    try:
        top, name = (
            subprocess.run([*git, *words], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for words in (["rev-parse", "--show-toplevel"], ["describe", "--always", "--dirty=+", "--abbrev=12"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return name if Path(top) / "src" / "mnm" == package else None


@cache
def provenance() -> dict[str, Any]:
    """With what a run is made: the versions of the packages that decide its numbers, and the source's commit."""
    return {"versions": installed_versions(), "revision": revision()}


def installed_versions() -> dict[str, str]:
    """Of PACKAGES; one that is not installed, as MuJoCo may be, decides nothing."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def write_spec(folder: Path, spec: RunSpec) -> None:
    """A run's folder with its configuration."""
    write_config(folder, spec.as_json() | provenance())


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """A run's config.json."""
    write_json(folder / CONFIG, config)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """A file of a run, which is whole or not there at all; an old one is replaced."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        raise RunError(f"{path.parent}: {error.strerror}") from error


def delete(folder: Path) -> None:
    """All that a run has learned, if it is there; its lock stays."""
    try:
        for path in folder.iterdir() if folder.exists() else ():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
    except OSError as error:
        raise RunError(f"{folder}: {error.strerror}") from error
