"""An agent's settings as people read them in Python: a signature, and a list with types, defaults and meanings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from itertools import pairwise
from typing import Any, get_type_hints

from mnm.agents.base import AgentConfig


def with_settings(init: Callable[..., None], config: AgentConfig) -> inspect.Signature:
    """A class's signature by its __init__, with one keyword for each setting in place of **settings."""
    _, *own = inspect.signature(init).parameters.values()
    if not own or own[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return inspect.Signature(own)
    kinds, named = get_type_hints(type(config)), {one.name for one in own}
    settings = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=getattr(config, field.name),
            annotation=kinds[field.name],
        )
        for field in fields(config)
        if field.name not in named
    ]
    return inspect.Signature([*own[:-1], *settings])


def settings_text(config: AgentConfig) -> str:
    """Every setting with its type, its value and what it means."""
    kinds, meanings = get_type_hints(type(config)), _meanings(type(config))
    lines = []
    for field in fields(config):
        kind = inspect.formatannotation(kinds[field.name])
        lines.append(f"{field.name}: {kind} = {getattr(config, field.name)!r}")
        lines += textwrap.wrap(meanings.get(field.name, ""), 100, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def _meanings(config: type) -> dict[str, str]:
    """The docstrings below the fields, those of the classes that it extends too."""
    return {name: text for base in reversed(config.__mro__) for name, text in _documented(base)}


@cache
def _documented(config: type) -> tuple[tuple[str, str], ...]:
    return tuple(_fields_with_text(config))


def _fields_with_text(config: type) -> Iterator[tuple[str, str]]:
    try:
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(config)))
    except (OSError, TypeError, SyntaxError):  # a class made elsewhere than in a file has no text
        return
    body = tree.body[0].body
    for field, text in pairwise(body):
        named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if named and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            yield field.target.id, " ".join(str(text.value.value).split())
