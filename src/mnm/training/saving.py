"""Agents as files: arrays in a .npz beside a JSON header. Loading executes nothing: no pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from mnm.agents import find_algorithm
from mnm.agents.algorithm import Algorithm
from mnm.agents.base import AgentConfig, ConfigError
from mnm.envs.adapter import Task
from mnm.envs.recorded import Recorded, recorded
from mnm.files import DamagedFileError, parse_object, read_npz
from mnm.messages import UserError, nearest, short
from mnm.replay import Replay
from mnm.schema import Bounds, Count, CountOrZero, NonNegative, Seed, wrong_entry
from mnm.training.learner import Learner, agent_shapes, check_memory, replay_rows
from mnm.training.spec import with_new_names
from mnm.trust import check_trusted

FORMAT = 4
HEADER = "header"
BITS = {bits: Annotated[int, Bounds(low_included=True, below=2.0**bits)] for bits in (1, 32, 128)}
COUNTERS = {
    "steps": CountOrZero,
    "updates": CountOrZero,
    "seconds": NonNegative,
    "episodes": CountOrZero,
    "ends?": CountOrZero,
    "evaluated_step?": CountOrZero,
    "last_return": Real,
    "episode_return": Real,
    "losses": dict[str, Real],
    "random": {
        "bit_generator": Literal["PCG64"],
        "state": {"state": BITS[128], "inc": BITS[128]},
        "has_uint32": BITS[1],
        "uinteger": BITS[32],
    },
}
"""What a learner's counters are, in a saved agent and in a checkpoint."""
HEADER_KINDS = {
    "format": int,
    "algorithm": str,
    "config": dict,
    "task": str,
    "env?": str | None,
    "dims": list[Count],
    "seed": Seed,
    "counters": COUNTERS,
    "offline?": bool,
    "observation_shape?": list[Count] | dict[str, list[Count]],
    "action_low?": list[float],
    "action_high?": list[float],
}
"""Of a saved agent; what may be missing was not saved before version 0.2."""


class SavedAgentError(UserError):
    """A file that is no saved agent, or not the one that was asked for; the message says which and why."""


def save(learner: Learner, path: str | Path, index: int = 0) -> None:
    """Write all that the seed with this index needs to act and to go on learning. An old file is replaced whole."""
    state, replay = learner.agent(index), learner.replay
    if learner.many:
        replay = jax.tree.map(lambda array: array[index], replay)
    header = {
        "format": FORMAT,
        "algorithm": learner.algorithm.name,
        "config": config_as_json(learner.config),
        "task": learner.task_name,
        "env": learner.task if isinstance(learner.task, str) else None,
        "dims": list(learner.dims),
        "seed": learner.seeds[index],
        "counters": learner.counters(index),
        "offline": learner.offline,
        **learner.spaces,
    }
    write_arrays(Path(path), header, pack((state, replay)))


def load(
    path: str | Path,
    env: Task | None = None,
    *,
    algorithm: Algorithm | None = None,
    trust: bool = False,
    create: Callable[..., Learner] = Learner,
) -> Learner:
    """The agent saved in a file, ready to predict and to go on learning at the start of a new episode.

    `env` is needed where the agent's own was made by a function, `algorithm` where it was made of one that is neither
    ours nor named module:variable. A task or an algorithm of a module is imported, which runs its code, only with
    `trust`, or if its name is given here.
    """
    path = Path(path)
    try:
        header, arrays = read_arrays(path)
    except FileNotFoundError:
        raise SavedAgentError(f"{path}: there is no such file") from None
    except OSError as error:
        raise SavedAgentError(f"{path}: cannot be read: {error.strerror}") from error
    except DamagedFileError as error:
        raise SavedAgentError(f"{path}: not a saved agent, or a damaged one: {error}") from error
    if "format" in header and header["format"] != FORMAT:
        raise SavedAgentError(
            f"{path}: saved in format {short(header['format'])} by another version; this one reads format {FORMAT}:"
            " load it with that version, or train again"
        )
    if why := wrong_entry(header, HEADER_KINDS):
        raise SavedAgentError(f"{path}: a damaged agent: {why}")
    if env is None:
        env = _saved_env(path, header)
        check_trusted(path, *(name for name in (env,) if isinstance(name, str)), trusted=trust)
    if algorithm is None:
        check_trusted(path, header["algorithm"], trusted=trust)
    try:
        algorithm = algorithm or find_algorithm(header["algorithm"])
        config = config_from_json(algorithm, header["config"])
    except ConfigError as error:
        raise SavedAgentError(f"{path}: {error}") from error
    try:
        observation_dim, action_dim = header["dims"]
        dims = (observation_dim, action_dim)
        stored = arrays[-1].size if arrays else 0
        rows = min(config.replay_capacity, max(stored, replay_rows(config.replay_capacity, None, dims)))
        shapes = agent_shapes(algorithm, config, dims, rows)
        check_memory(header["task"], shapes)
        agent, replay = unpack(shapes, arrays)
    except ValueError as error:
        raise SavedAgentError(f"{path}: a damaged agent: {error}") from error
    offline = header.get("offline", False)
    learner = create(algorithm, config, env, (header["seed"],), start=(agent, replay), offline=offline)
    for name, own in ({"dims": list(learner.dims)} | learner.spaces).items():
        if header.get(name, own) != own:
            learner.close()
            raise SavedAgentError(
                f"{path}: saved for {header['task']} with {name.replace('_', ' ')} {short(header[name])}, but"
                f" {learner.task_name} has {own}"
            )
    learner.set_counters([header["counters"]])
    return learner


def _saved_env(path: Path, header: Mapping[str, Any]) -> Task:
    """The id of the task that an agent was trained on; what its data know of it, if there were data alone."""
    env = header.get("env", header["task"])  # before version 0.2 only its name was saved
    if env is None and header.get("offline", False) and header["task"] == Recorded.__name__:
        try:
            return recorded(sum(header["dims"][:1]), header.get("action_low", []), header.get("action_high", []))
        except ValueError as error:
            raise SavedAgentError(f"{path}: a damaged agent: {error}") from error
    if env is None:
        name = header["task"]
        example = name if name.isidentifier() else "make_env"
        raise SavedAgentError(
            f"{path}: the agent was trained on {name}, an environment that a function made: give that function, as in"
            f" mnm.load({path.name!r}, env={example})"
        )
    return str(env)


def config_as_json(config: AgentConfig) -> dict[str, Any]:
    """All settings but the termination function, which belongs to the task."""
    return {field.name: getattr(config, field.name) for field in fields(config) if field.name != "termination"}


def config_from_json(algorithm: Algorithm, settings: Mapping[str, Any]) -> AgentConfig:
    """The settings back, also those of version 0.1."""
    kind: Any = type(algorithm.presets["cpu"])
    settings = with_new_names(settings)
    known = config_as_json(algorithm.presets["cpu"])
    for name in settings:
        if name not in known:
            raise ConfigError(f"{algorithm.name} has no setting {short(name)}{nearest(name, known)}")
    config: AgentConfig = kind(**settings)
    return config


def write_arrays(path: Path, header: Mapping[str, Any], arrays: Sequence[NDArray]) -> None:
    """A .npz with a JSON header. An old file is replaced whole, once all of the new one is on the disk."""
    text = np.frombuffer(json.dumps({**header, "arrays": len(arrays)}).encode(), np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            named = {f"array_{number}": array for number, array in enumerate(arrays)}
            np.savez(file, allow_pickle=False, **{HEADER: text}, **named)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_arrays(path: Path) -> tuple[dict[str, Any], list[NDArray]]:
    """The inverse: header and arrays. DamagedFileError if anything is wrong: checksums cover all that is read."""
    named = read_npz(path)
    if HEADER not in named:
        raise DamagedFileError(f"it has no {HEADER!r}")
    header = parse_object(named.pop(HEADER).tobytes())
    count = len(named)
    if (expected := header.pop("arrays", count)) != count:  # not saved before version 0.2
        raise DamagedFileError(f"it has {count} arrays instead of {short(expected)}")
    if missing := {f"array_{number}" for number in range(count)} - named.keys():
        raise DamagedFileError(f"it has no {min(missing)!r}")
    return header, [named[f"array_{number}"] for number in range(count)]


def _is_replay(node: Any) -> bool:
    return isinstance(node, Replay)


def pack(tree: Any) -> list[NDArray]:
    """The arrays of a PyTree in order; of a replay only the rows that are filled."""
    packed: list[NDArray] = []
    for node in jax.tree.leaves(tree, is_leaf=_is_replay):
        if isinstance(node, Replay):
            packed += [np.asarray(node.position), np.asarray(node.size)]
            packed += [np.asarray(column)[: int(node.size)] for column in node.storage]
        else:
            packed.append(np.asarray(_key_data(node)))
    return packed


def unpack(template: Any, arrays: list[NDArray]) -> Any:
    """The template's PyTree, of arrays or of their shapes, with these arrays, each of which must fit its place."""
    queue = iter(arrays)
    nodes, structure = jax.tree.flatten(template, is_leaf=_is_replay)
    filled = [_fill_replay(node, queue) if _is_replay(node) else _fill(node, next(queue, None)) for node in nodes]
    if next(queue, None) is not None:
        raise ValueError("it has more arrays than its algorithm needs")
    return jax.tree.unflatten(structure, filled)


def _fill(place: Any, array: NDArray | None, rows: int | None = None) -> Any:
    data = jax.eval_shape(_key_data, place)
    shape = data.shape if rows is None else (rows, *data.shape[1:])
    if array is None or array.shape != shape or array.dtype != data.dtype:
        actual = "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
        raise ValueError(f"an array is {actual} where {data.dtype}{list(shape)} belongs")
    is_key = jnp.issubdtype(place.dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(jnp.asarray(array)) if is_key else jnp.asarray(array)


def _fill_replay(replay: Replay, queue: Any) -> Replay:
    position, size = (_fill(place, next(queue, None)) for place in (replay.position, replay.size))
    count = int(size)
    if not (0 <= count <= replay.capacity and 0 <= int(position) < replay.capacity):
        raise ValueError(f"a replay of {replay.capacity} rows says that it holds {count} up to row {int(position)}")
    columns = [_fill(column, next(queue, None), count) for column in replay.storage]
    if count < replay.capacity:  # it may have been full when the run was to be shorter
        position = jnp.asarray(count, position.dtype)
    storage = type(replay.storage)(
        *(jnp.zeros(place.shape).at[:count].set(rows) for place, rows in zip(replay.storage, columns, strict=True))
    )
    return Replay(storage, position, size)


def _key_data(array: Any) -> Any:
    return jax.random.key_data(array) if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array
