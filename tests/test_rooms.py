"""The package's rooms stand in layers: a module may import only from its own room and from those above it."""

import ast
from pathlib import Path

import mnm

LAYERS = (
    ("messages",),
    ("trust", "schema", "files", "compiled"),
    ("tabular",),
    ("envs",),
    ("networks", "normalizer", "replay", "losses"),
    ("agents",),
    ("diagnostics",),
    ("training",),
    ("callbacks", "learned_model", "sb3"),
    ("sweeps",),
    ("analysis",),
    ("plotting",),
    ("figures",),
    ("report",),
    ("api",),
    ("commands",),
    ("cli",),
    ("__main__",),
)
"""From the ground up."""
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}
PACKAGE = Path(mnm.__file__).parent


def imported(path):
    """The modules of the package that a file imports anywhere in it, lazily too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names if node.module == "mnm")


def room(module):
    return module.split(".")[1]


def test_every_module_stands_in_a_room():
    tops = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    assert tops - {"__pycache__", "__init__"} == set(HEIGHT)


def test_no_room_imports_from_one_that_stands_on_it():
    upward = [
        f"{'.'.join(parts)} -> {module}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if (parts := path.relative_to(PACKAGE).with_suffix("").parts) != ("__init__",)
        for module in imported(path)
        if module.startswith("mnm.") and HEIGHT[room(module)] > HEIGHT[parts[0]]
    ]
    assert upward == []


def test_the_commands_are_the_command_line_s_alone():
    for path in sorted(PACKAGE.rglob("*.py")):
        importers = path.relative_to(PACKAGE).parts[0]
        if importers not in ("commands", "cli.py"):
            assert not [module for module in imported(path) if module.startswith("mnm.commands")], path
