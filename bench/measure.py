"""Timing and printing that the benchmarks share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def seconds(function: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """The shortest of a few timings, and the last result."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return min(times), result


def side_by_side(rounds: int, *timed: Callable[[], float]) -> list[float]:
    """The shortest of each function's own timings, taken in turns: a slow minute then meets all of them."""
    return [min(times) for times in zip(*([function() for function in timed] for _ in range(rounds)), strict=True)]


def report(what: str, measured: str, target: str = "", met: bool | None = None) -> None:
    """One line; without a target, nothing is judged."""
    verdict = {None: "", True: "ok", False: "MISSED"}[met]
    print(f"{what:58} {measured:42} {target:18} {verdict}".rstrip(), flush=True)
