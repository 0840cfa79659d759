"""Where JAX keeps what it has compiled, so that the second start of the same settings is quick."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import MutableMapping
from pathlib import Path

FLAG = "--no-compilation-cache"
LIMIT = 2 * 1024**3
"""Bytes. JAX can hold a limit itself, but stumbles over what a kill in the middle of a write leaves behind."""


def use_compilation_cache(arguments: list[str], environment: MutableMapping[str, str]) -> list[str]:
    """The arguments without the flag that turns the cache off; JAX, imported later, reads the environment.

    So do the processes of a sweep. What the user has set stays.
    """
    if FLAG in arguments:
        environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
        return [argument for argument in arguments if argument != FLAG]
    if "JAX_COMPILATION_CACHE_DIR" not in environment:
        place = folder(environment)
        trim(place, LIMIT)
        environment["JAX_COMPILATION_CACHE_DIR"] = str(place)
        environment.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")  # many of our programs are small
    return arguments


def folder(environment: MutableMapping[str, str]) -> Path:
    """In the user's cache folder, one for each kind of processor: programs of one may not run on another."""
    home = environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(home) / "mnm" / f"jax-{hashlib.sha256(processor().encode()).hexdigest()[:12]}"


def trim(place: Path, limit: int) -> None:
    """Delete the oldest files until the rest is within the limit. Another process that wants one compiles it again."""
    try:
        files = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in place.iterdir())
    except OSError:  # not there yet, or just being trimmed by another process
        return
    total = sum(size for _, size, _ in files)
    for _, size, path in files:
        if total <= limit:
            break
        path.unlink(missing_ok=True)
        total -= size


def processor() -> str:
    """What the machine's programs may use."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
    return f"{platform.machine()} {flags}"
