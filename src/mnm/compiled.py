"""Programs that are kept from one process to the next: a second start neither traces nor compiles them.

JAX's own cache spares the compilation, but not the tracing and the lowering before it, which for our updates take
longer than the rest of a start. Here the compiled program is kept as it is, in the folder of JAX's cache and only if
there is one. Kept is what is made of this package's own functions alone. A small file is named by all that a call
depends on: this package's sources, the settings and the shapes, the libraries' versions, JAX's configuration, the
processor. It names the file of the program, which is named by what was lowered: calls that differ in nothing that
counts share it. As with JAX's cache, who can write into the folder can run code in the processes that read it.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
import platform
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from jax.experimental.serialize_executable import deserialize_and_load, serialize

PACKAGE = __name__.partition(".")[0]
LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy")
IMPORTED = time.time()
SETTLED = 10.0
"""Seconds that the sources must have been as they are before they were imported: else who knows which ones were."""
SETTINGS_OF_THE_CACHE = ("cache", "log", "traceback")
"""Words in the names of JAX's settings that change no program."""

PROGRAMS: list[Program] = []
"""All that there are."""


class UnnamedError(Exception):
    """Something has no name that would be the same in another process and mean the same there."""


class Lowered(NamedTuple):
    """A program that is traced, but not compiled, and what its result looks like."""

    lowered: jax.stages.Lowered
    shapes: Any


class Kept(NamedTuple):
    """A compiled program of arrays alone."""

    run: Callable[..., list[Any]]
    shapes: Any
    """Of the result."""
    structure: Any
    """Of the result."""


class Call(NamedTuple):
    """The arguments of a program that may be kept."""

    folder: Path
    static: dict[str, Any]
    dynamic: dict[str, Any]
    leaves: list[Any]
    """Of the dynamic ones."""
    types: tuple[Any, ...]
    """Shape and dtype of the leaves."""
    structure: Any
    case: tuple[Any, ...]
    """What it has in common with all calls of the same program."""


class Program:
    """A jitted function, read from the cache where it can be."""

    def __init__(self, function: Callable[..., Any], static: tuple[str, ...], donate: tuple[str, ...]) -> None:
        self.jitted = jax.jit(function, static_argnames=static, donate_argnames=donate)
        self._function = function
        self._name = f"{function.__module__}.{function.__qualname__}"
        self._signature = inspect.signature(function)
        self._static, self._donate = static, donate
        self._lowered: dict[Hashable, Lowered] = {}
        self._kept: dict[Hashable, Kept | None] = {}
        self._prepared: dict[Hashable, Future[None]] = {}
        PROGRAMS.append(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the function."""
        call = self._call(args, kwargs)
        kept = call and self._read_or_make(call)
        if not (call and kept):
            return self.jitted(*args, **kwargs)
        return jax.tree.unflatten(kept.structure, kept.run(*call.leaves))

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Begin to read the program of such arguments, if it is kept, so that a call need not wait for it.

        What is not kept is made only when it is called: a process that is told to end would have to wait for it.
        """
        call = self._call(args, kwargs)
        if call and call.case not in self._kept and call.case not in self._prepared:
            self._prepared[call.case] = _reader().submit(self._read, call)

    def shapes(self, *args: Any, **kwargs: Any) -> Any:
        """Those of the result; nothing is compiled."""
        call = self._call(args, kwargs)
        with suppress(UnnamedError):
            if call:
                self._read(call)
                kept = self._kept.get(call.case)
                return kept.shapes if kept else self._lower(call).shapes
        shapes_of: Any = self.jitted.eval_shape
        return shapes_of(*args, **kwargs)

    def forget(self) -> None:
        """Whatever this process has read or compiled; the cache keeps it."""
        self._lowered.clear()
        self._kept.clear()
        self._prepared.clear()

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """None if there is no cache, or if this is a part of a larger program."""
        folder = _folder()
        if folder is None:
            return None
        dynamic = self._signature.bind(*args, **kwargs).arguments
        static = {name: dynamic.pop(name) for name in self._static}
        leaves, structure = jax.tree.flatten(dynamic)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return None
        types = tuple(map(_type, leaves))
        case = (tuple(static.values()), structure, types, _watched())
        return Call(folder, static, dynamic, leaves, types, structure, case)

    def _read_or_make(self, call: Call) -> Kept | None:
        """None if it is not to be kept."""
        try:
            return self._kept[call.case]  # asked once: to hash hundreds of types takes a while
        except KeyError:
            pass
        try:
            if call.case in self._prepared:
                self._prepared.pop(call.case).result()
            self._read(call)
            if call.case not in self._kept:
                self._kept[call.case] = self._make(call)
        except UnnamedError:
            self._kept[call.case] = None
        return self._kept[call.case]

    def _read(self, call: Call) -> None:
        if call.case not in self._kept:
            kept = _read(self._path(call))
            if kept:
                self._kept[call.case] = kept

    def _make(self, call: Call) -> Kept:
        path = self._path(call)
        lowered, shapes = self._lower(call)
        del self._lowered[call.case]
        name = f"program-{_hash(_machine(), lowered.as_text())}"
        run = _load(path.with_name(name), len(call.leaves), shapes) or _compile(path.with_name(name), lowered)
        _write(path, pickle.dumps((name, len(call.leaves), shapes)))
        return Kept(run, shapes, jax.tree.structure(shapes))

    def _lower(self, call: Call) -> Lowered:
        if call.case not in self._lowered:
            self._path(call)  # or UnnamedError
            traced = []

            def flat(*leaves: Any) -> list[Any]:
                result = self._function(**jax.tree.unflatten(call.structure, leaves), **call.static)
                traced.append(jax.tree.map(lambda array: _shape(jax.typeof(array)), result))
                return jax.tree.leaves(result)

            # By the arguments' types: as another process lowers it, whatever arrays it has.
            lowered = jax.jit(flat, donate_argnums=self._donated_leaves(call)).lower(*map(_shape, call.types))
            self._lowered[call.case] = Lowered(lowered, traced[-1])
        return self._lowered[call.case]

    def _path(self, call: Call) -> Path:
        return call.folder / f"{self._name}-{_digest(self._name, *call.case)}"

    def _donated_leaves(self, call: Call) -> tuple[int, ...]:
        """The places of what is donated among the leaves."""
        named = jax.tree_util.tree_leaves_with_path(call.dynamic)
        return tuple(place for place, (path, _) in enumerate(named) if path[0].key in self._donate)


def program(*, static: tuple[str, ...] = (), donate: tuple[str, ...] = ()) -> Callable[[Callable[..., Any]], Program]:
    """Decorates as jax.jit does, with the names of static and of donated arguments."""
    return lambda function: Program(function, static, donate)


def _folder() -> Path | None:
    """That of JAX's cache, if it has one and uses it; None too where a user looks into programs."""
    settings: Any = jax.config
    name = settings.jax_compilation_cache_dir if settings.jax_enable_compilation_cache else None
    looks = settings.jax_disable_jit or settings.jax_debug_nans or settings.jax_debug_infs
    return Path(name) if name and not looks else None


def _type(leaf: Any) -> Any:
    """Shape and dtype. jax.typeof gives the same, but for hundreds of arrays takes a millisecond."""
    return leaf.aval if isinstance(leaf, jax.Array) else jax.typeof(leaf)


def _watched() -> tuple[Any, ...]:
    """JAX's settings that may change within a process and make another program of the same arguments."""
    settings: Any = jax.config
    precision, generator = settings.jax_default_matmul_precision, settings.jax_default_prng_impl
    return jax.default_backend(), settings.jax_enable_x64, precision, generator


@cache
def _reader() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="mnm-reads-programs")


def _shape(kind: Any) -> Any:
    shape: Any = jax.ShapeDtypeStruct
    return shape(kind.shape, kind.dtype, weak_type=kind.weak_type)


@contextmanager
def _no_jax_cache() -> Iterator[None]:
    settings: Any = jax.config
    try:
        settings.update("jax_enable_compilation_cache", False)
        reset_cache()  # or JAX goes by what was set when it first asked
        yield
    finally:
        settings.update("jax_enable_compilation_cache", True)
        reset_cache()


def _read(path: Path) -> Kept | None:
    """None if there is none, or none that can be read."""
    try:
        name, arguments, shapes = pickle.loads(path.read_bytes())
        run = _load(path.with_name(name), arguments, shapes)
    except Exception:  # whatever is wrong with a file of the cache, the program can be made again
        return None
    return Kept(run, shapes, jax.tree.structure(shapes)) if run else None


def _load(path: Path, arguments: int, shapes: Any) -> Callable[..., list[Any]] | None:
    """The compiled program in a file, if there is one that can be read."""
    try:
        results = len(jax.tree.leaves(shapes))
        structures = jax.tree.structure(((0,) * arguments, {})), jax.tree.structure([0] * results)
        return deserialize_and_load(path.read_bytes(), *structures)
    except Exception:
        return None


def _compile(path: Path, lowered: jax.stages.Lowered) -> Callable[..., list[Any]]:
    """Without JAX's cache: what that has read from its files cannot be written a second time."""
    with _no_jax_cache():
        compiled = lowered.compile()
    with suppress(Exception):  # what cannot be written is not kept
        _write(path, serialize(compiled)[0])
    return compiled


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, beside other processes that write the same; a cache that cannot be written is none."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(content)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()


def _digest(name: str, static: tuple[Any, ...], structure: Any, *rest: Any) -> str:
    check_nodes(structure)
    return _hash(_sources(), _machine(), name, *map(described, static), str(structure), *map(str, rest))


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def described(value: Any) -> str:
    """A static argument as a text that is the same in every process, and tells it from every other; or UnnamedError.

    A function stands for its code, and of that only this package's is known.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(described, value))})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{described(key)}: {described(one)}' for key, one in value.items())}}}"
    if is_dataclass(value) and not isinstance(value, type):
        entries = (f"{field.name}={described(getattr(value, field.name))}" for field in fields(value))
        return f"{_place_of(type(value))}({', '.join(entries)})"
    return _place_of(value)


def check_nodes(structure: Any) -> None:
    """Raise UnnamedError if a PyTree has a class of others in it, whose methods a program may call."""
    kind, _ = structure.node_data() or (tuple, None)
    if kind.__module__.partition(".")[0] not in {PACKAGE, "builtins", "collections", *LIBRARIES}:
        raise UnnamedError(f"{kind} is not {PACKAGE}'s")
    for child in structure.children():
        check_nodes(child)


def _place_of(value: Any) -> str:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "<none>")
    if module is None or module.partition(".")[0] != PACKAGE or "<" in name:
        raise UnnamedError(f"{value} is nothing of {PACKAGE}'s that has a name")
    return f"{module}.{name}"


@cache
def _sources() -> str:
    """This package's."""
    sources = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.stat().st_mtime > IMPORTED - SETTLED:
            raise UnnamedError(f"{path} has just been changed")
        sources.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return sources.hexdigest()


@cache
def _machine() -> str:
    """What else programs depend on besides their arguments."""
    versions = (f"{library} {version(library)}" for library in LIBRARIES)
    settings = (
        f"{name} {value}"
        for name, value in sorted(jax.config.values.items())
        if not any(word in name for word in SETTINGS_OF_THE_CACHE)
    )
    return "\n".join((sys.version, os.environ.get("XLA_FLAGS", ""), _processor(), *versions, *settings))


def _processor() -> str:
    """What it can do: a folder may be shared by machines, and a program made for one would crash on another."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    return f"{platform.machine()} {platform.processor()}"
