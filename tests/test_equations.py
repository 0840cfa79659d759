"""docs/equations.md: every function it names exists, and so does every test."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = re.findall(r"^\| (.+?) \| `(mnm[\w.]+)` \| `([\w/.:]+)` \|$", (ROOT / "docs/equations.md").read_text(), re.M)


def test_the_table_was_read():
    lines = [line for line in (ROOT / "docs/equations.md").read_text().splitlines() if line.startswith("| ")]
    assert len(ROWS) == len(lines) - 1  # all but the head
    assert len(ROWS) >= 25


@pytest.mark.parametrize(("function", "test"), [row[1:] for row in ROWS], ids=[row[1] for row in ROWS])
def test_function_and_test_exist(function, test):
    module, name = function.rsplit(".", 1)
    assert callable(getattr(import_module(module), name))
    path, *names = test.split("::")
    text = (ROOT / "tests" / path).read_text()
    for part in names:
        assert re.search(rf"^\s*(class|def) {part}\b", text, re.M), f"{test} does not exist"


def test_every_bound_opens_with_its_formula():
    bounds = import_module("mnm.tabular.bounds")
    for name in dir(bounds):
        function = getattr(bounds, name)
        if name.endswith(("_bound", "_objective", "_return")) and callable(function):
            opening = function.__doc__.splitlines()[0]
            assert any(symbol in opening for symbol in ("E_q[", "E_{q,h}[", "E_pi[", "E[", "log sum")), (
                f"{name}: {opening}"
            )
