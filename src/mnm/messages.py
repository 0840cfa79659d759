"""How commands and functions tell their user what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches

BAD_INPUT = 2
"""The exit code."""


def nearest(name: str, known: Iterable[str]) -> str:
    """' (did you mean X?)' or nothing."""
    matches = get_close_matches(name, list(known), n=1)
    return f" (did you mean {matches[0]}?)" if matches else ""


def fail(message: str) -> int:
    """Say what is wrong with the input, in one line."""
    print(f"mnm: {' '.join(message.split())}", file=sys.stderr)
    return BAD_INPUT
