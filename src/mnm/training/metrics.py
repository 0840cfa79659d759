"""What a run measures, row by row: metrics.csv, exact and complete, and TensorBoard events beside it."""

from __future__ import annotations

import contextlib
import csv
import io
import logging
import math
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tensorboardX import SummaryWriter

from mnm.files import DamagedFileError, read_text
from mnm.messages import short
from mnm.training.spec import RunError

FILE = "metrics.csv"
RETURNS = "evaluations.csv"
STEP = "step"


@contextlib.contextmanager
def silent_event_threads() -> Iterator[None]:
    """TensorBoard's events are written by a thread; on a full disk it dies silently, and the run says so by itself."""
    usual = threading.excepthook

    def hook(failure: threading.ExceptHookArgs) -> None:
        if not isinstance(failure.exc_value, OSError):
            usual(failure)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = usual


class MetricsWriter:
    """Writes rows of scalars into a folder; where it holds a metrics.csv already, the new rows go below the old.

    Beside it, evaluations.csv has every evaluation episode's return.
    """

    def __init__(self, folder: Path, after: int | None = None) -> None:
        """`after`: old rows of later steps are dropped; the run goes on from there."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._returns = folder / FILE, folder / RETURNS
        if self._returns.exists():
            columns, rows = _read(self._returns)
            _replace(self._returns, columns, _until(rows, after))
        self._columns, rows = _read(self._path) if self._path.exists() else ([], [])
        rows = _until(rows, after)
        self._columns = self._columns or [STEP]
        _replace(self._path, self._columns, rows)  # without a row that a crash left unfinished
        self._file = self._path.open("a", newline="", encoding="utf-8")
        runs = len(list(folder.glob("events.out.tfevents.*")))  # names differ by the second only
        purge = None if after is None else after + 1
        logging.getLogger("tensorboardX.x2num").setLevel(
            logging.ERROR
        )  # it warns at every NaN; the row says it already
        self._events = SummaryWriter(str(folder), purge_step=purge, filename_suffix=f".{runs}")

    def write(self, step: int, row: Mapping[str, float]) -> None:
        """Add one row, on disk when this returns. New names become new columns; a slash in a name makes a group."""
        if STEP in row:
            raise ValueError(f"the row has a metric {STEP!r}, which is the name of the first column: rename it")
        values = {name: float(value) for name, value in row.items()}
        new = [name for name in row if name not in self._columns]
        if new:
            self._file.close()
            self._columns += new
            _replace(self._path, self._columns, _read(self._path)[1])
            self._file = self._path.open("a", newline="", encoding="utf-8")
        cells = [repr(values[name]) if name in values else "" for name in self._columns[1:]]
        csv.writer(self._file, lineterminator="\n").writerow([int(step), *cells])
        self._file.flush()
        for name, value in values.items():
            self._events.add_scalar(name, value, step)

    def write_returns(self, step: int, returns: Sequence[float]) -> None:
        """Add the returns of one evaluation's episodes."""
        new = not self._returns.exists()
        with self._returns.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow([STEP, "episode", "return"])
            writer.writerows([step, number, repr(float(value))] for number, value in enumerate(returns))

    def close(self) -> None:
        """Finish both files, as far as the disk lets them."""
        with contextlib.suppress(OSError):  # a full disk has stopped the run already
            self._file.close()
        writer = self._events.file_writer.event_writer
        try:
            self._events.close()
        except OSError:
            writer.close = lambda: None  # it would try again, and fail, when Python ends

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: Path) -> dict[str, list[float]]:
    """The columns of a metrics.csv, `step` first; an empty cell is nan, an unfinished last row is left out."""
    columns, rows = _read(path)
    table: dict[str, list[float]] = {name: [] for name in columns}
    for number, row in enumerate(rows, start=2):
        for name, cell in zip(columns, row, strict=True):
            try:
                table[name].append(float(cell) if cell else math.nan)
            except ValueError:
                raise RunError(f"{path}: row {number}, column {short(name)}: {short(cell)} is not a number") from None
    return table


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows, padded with empty cells to the header's length; no header if the file is empty."""
    try:
        text = read_text(path)
        columns, *rows = [row for row in csv.reader(io.StringIO(text[: text.rfind("\n") + 1])) if row] or [[]]
    except (OSError, DamagedFileError, csv.Error) as error:
        raise RunError(f"{path}: {error}") from error
    if columns and columns[0] != STEP:
        raise RunError(f"{path}: no file of metrics: its first column is {short(columns[0])}, not {STEP!r}")
    if len(set(columns)) < len(columns):
        raise RunError(f"{path}: two of its columns have the same name")
    for number, row in enumerate(rows, start=2):
        if len(row) > len(columns):
            raise RunError(f"{path}: row {number} has {len(row)} cells, the header {len(columns)}")
        if not re.fullmatch("[0-9]{1,10}", row[0]):
            raise RunError(f"{path}: row {number} has the step {short(row[0])}, which is not a whole number")
    return columns, [row + [""] * (len(columns) - len(row)) for row in rows]


def _until(rows: list[list[str]], step: int | None) -> list[list[str]]:
    """The rows of steps up to this one."""
    return rows if step is None else [row for row in rows if int(row[0]) <= step]


def _replace(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write the whole file, so that a reader sees the old one or the new one and never a part."""
    temporary = path.with_name(f"{path.name}.tmp")
    with temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([*row, *[""] * (len(columns) - len(row))] for row in rows)
    os.replace(temporary, path)
