"""The certificates of a run, kept beside it: what was asked of its episodes, and what came out, good or bad.

All are kept, for who asks until one is certified has no certificate, and a reader shall see how often was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mnm.files import DamagedFileError, parse_object, read_text
from mnm.schema import Count, CountOrZero, Rate, Seed, wrong_entry
from mnm.training.runs import write_json
from mnm.training.spec import RunError

CERTIFICATES = "certificates.json"
PROMISES = {
    "model_return": "return in the model",
    "q_at_start": "Q at the start (discounted)",
    "discounted_return": "discounted return obtained",
    "bound": "MnM's bound (nats)",
    "log_return": "log of the discounted return (nats)",
}
"""What is shown of the agent's diagnostics, in words."""
ASKED = ("env", "agent", "steps", "seed", "confidence", "at_least", "return_range", "planned_episodes")
"""The question: of the agent after so many steps."""
KINDS = {
    "env": str,
    "agent": str,
    "steps": CountOrZero,
    "seed": Seed,
    "confidence": Rate,
    "at_least": float | None,
    "return_range": list[float],
    "planned_episodes": Count,
    "certified": bool,
    "certificate": float,
    "upper_bound": float,
    "reason": str,
    "episodes": Count,
    "mean": float,
    "promises": dict[str, float | None],
    "returns": list[float],
}
"""Of a certificate's entries in JSON."""

Kept = Mapping[str, Any]


def read_certificates(folder: Path) -> list[Kept]:
    """Those of a run, the latest last; none if nothing was asked."""
    path = folder / CERTIFICATES
    try:
        content = parse_object(read_text(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    except DamagedFileError as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    why = wrong_entry(content, {"certificates": list[dict]})
    for number, one in enumerate(() if why else content["certificates"]):
        why = why or (f"number {number + 1}: {wrong}" if (wrong := _wrong(one)) else "")
    if why:
        raise RunError(f"{path} holds no certificates of a run: {why}")
    return list(content["certificates"])


def keep_certificate(folder: Path, certificate: Kept) -> None:
    """One more; the same question asked again has the same answer, and stands there once."""
    before = [one for one in read_certificates(folder) if any(one[name] != certificate[name] for name in ASKED)]
    entries = {name: certificate[name] for name in KINDS}
    write_json(folder / CERTIFICATES, {"certificates": [*before, entries]})


def _wrong(one: Kept) -> str:
    """What is wrong with a certificate; nothing if all is right."""
    if why := wrong_entry(one, KINDS):
        return why
    low, high = one["return_range"] if len(one["return_range"]) == 2 else (0.0, 0.0)
    if low >= high:
        return f"return_range is {one['return_range']}, but must be two numbers, the smaller first"
    if len(one["returns"]) != one["episodes"]:
        return f"it has {len(one['returns'])} returns of {one['episodes']} episodes"
    return ""
