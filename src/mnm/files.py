"""Reading files that can come from anybody: nothing in them is executed, and no size that they claim is believed.

Whatever is wrong with a file is a DamagedFileError, whose message says what, or an OSError.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TEXT_LIMIT = 2**28
"""Bytes of a text."""
UNPACKED_LIMIT = 2**30
"""Bytes of arrays that any packed file may hold; a larger one as many times its own size as UNPACKED_RATIO."""
UNPACKED_RATIO = 20


class DamagedFileError(ValueError):
    """A file that is not what it should be."""


def read_text(path: Path) -> str:
    """A text in UTF-8."""
    if _size(path) > TEXT_LIMIT:
        raise DamagedFileError(f"it has more than {TEXT_LIMIT / 1e6:.0f} MB")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"byte {error.start} is not UTF-8 text") from None


def parse_object(text: str | bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise DamagedFileError("not JSON that can be read: it is nested too deeply") from None
    except ValueError as error:  # a number with more digits than Python converts among them
        raise DamagedFileError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise DamagedFileError("it is no JSON object")
    return value


def read_npz(path: Path, *, packed: bool = False) -> dict[str, NDArray]:
    """The arrays of real numbers in a .npz by their names; with `packed`, compressed ones too.

    Sizes are checked against each other and against the file before anything is made.
    """
    size = _size(path)
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            _check_sizes(entries, size, packed)
            arrays = {}
            for entry in entries:
                name = entry.filename.removesuffix(".npy")
                with archive.open(entry) as opened:
                    arrays[name] = _read_array(opened, f"array {name!r:.100}", entry.file_size)
            if len(arrays) < len(entries):
                raise DamagedFileError("two of its arrays have the same name")
            return arrays
    except (DamagedFileError, MemoryError):
        raise
    except Exception as error:  # damage shows in as many ways as there are libraries below
        raise DamagedFileError(one_line(error)) from error


def one_line(error: Exception) -> str:
    """What a library below says, in as much as a line holds."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def _check_sizes(entries: list[zipfile.ZipInfo], size: int, packed: bool) -> None:
    kinds = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED} if packed else {zipfile.ZIP_STORED}
    limit = max(UNPACKED_LIMIT, UNPACKED_RATIO * size) if packed else size
    for entry in entries:
        if entry.compress_type not in kinds or entry.flag_bits & 1:
            raise DamagedFileError(f"{entry.filename!r} is packed or encrypted in a way that is not read")
    if (total := sum(entry.file_size for entry in entries)) > limit:
        raise DamagedFileError(f"it claims to hold {total:,} bytes, in a file of {size:,}")


def _read_array(file: Any, name: str, size: int) -> NDArray:
    """One array in NumPy's format, of `size` bytes with its header; `name` is for messages."""
    version = np.lib.format.read_magic(file)
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read_header is None:
        raise DamagedFileError(f"{name} is in NumPy's format {version}, which is not read")
    shape, fortran, dtype = read_header(file)
    if dtype.kind not in "biuf":
        raise DamagedFileError(f"{name} is of {dtype}, not of real numbers")
    left = size - file.tell()
    if min(shape, default=0) < 0 or max(shape, default=0) >= 2**31 or math.prod(shape) * dtype.itemsize != left:
        raise DamagedFileError(f"{name} claims the shape {shape} of {dtype}, but has {left:,} bytes")
    data = file.read(left)
    if len(data) != left:
        raise DamagedFileError(f"{name} is cut off")
    file.read(1)  # the end of the data is where its checksum is compared
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _size(path: Path) -> int:
    """Of a regular file: others may have no end, or wait for one who writes."""
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise DamagedFileError("it is not a regular file")
    return status.st_size
