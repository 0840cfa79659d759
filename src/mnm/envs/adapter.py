"""The door between Gymnasium and the agents: flat float32 observations, actions in [-1, 1], errors with their place.

Whatever an environment does wrong is one TaskError, so that a run stops with a line and not with a NaN in its weights.
"""

from __future__ import annotations

import copy
import os
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from mnm.messages import UserError, missing_extra, short

STREAMS = {"training": 0, "evaluation": 1, "test": 2, "data": 3, "certificate": 4}
"""The numbers are part of every seed: never change one."""


Task = str | gym.Env | Callable[[], gym.Env]
"""A Gymnasium id, an environment that is copied, or a function that makes a new one."""

EPISODE_LIMIT = 1_000
"""Steps after which an episode of a task without a time limit is cut off, if nobody says otherwise."""
_cut_off: set[str] = set()
"""Tasks of which this has been told."""


class TaskError(UserError):
    """An environment that is unknown, unsupported or broken; the message is one line, complete for its user."""


class Step(NamedTuple):
    """What an environment answers to an action."""

    observation: NDArray[np.float32]
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def success(self) -> bool | None:
        """Whether the task counts as done, by the info's `success` or `is_success`; None if the task does not say."""
        said = [self.info[name] for name in ("success", "is_success") if name in self.info]
        return bool(np.all(said[0])) if said else None


def episode_seed(seed: int, stream: str, episode: int) -> int:
    """The seed in [0, 2**31) of one episode of one of the streams of the run with seed `seed`."""
    sequence = np.random.SeedSequence(seed, spawn_key=(STREAMS[stream], episode))
    return int(sequence.generate_state(1)[0]) >> 1


def make(task: Task, episode_limit: int = EPISODE_LIMIT) -> Environment:
    """A new environment: by its Gymnasium id ("Pendulum-v1", "module:Task-v0"), from a function, or from an instance.

    `episode_limit` is the time limit of a task that has none of its own.
    """
    env = make_env(task)
    try:
        return Environment(env, episode_limit)
    except TaskError:
        close_env(env)
        raise


def make_env(task: Task, **settings: Any) -> gym.Env:
    """The Gymnasium environment itself, of any kind; `settings` go to `gymnasium.make`."""
    if isinstance(task, gym.Env):
        return _copied(task)
    if not isinstance(task, str) and not callable(task):
        raise TaskError(
            f"the task is {short(task)}: pass a Gymnasium id, a function that makes an environment, such as"
            " lambda: MyEnv(), or a gymnasium.Env"
        )
    name = task if isinstance(task, str) else getattr(task, "__name__", short(task))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that a newer version of the task exists
            env = gym.make(task, disable_env_checker=True, **settings) if isinstance(task, str) else task()
    except Exception as error:  # an environment's constructor can raise anything
        if missing := missing_extra(error):
            raise TaskError(f"{name}: {missing}") from error
        hint = _hint(task, error) if isinstance(task, str) else ""
        raise TaskError(f"{name}: cannot be made: {_reason(error)}{hint}") from error
    if not isinstance(env, gym.Env):
        raise TaskError(f"{name}: returned {short(env)}, which is not a gymnasium.Env: return a new environment")
    return env


def _copied(env: gym.Env) -> gym.Env:
    """A new environment like this one, which stays as it is: a run needs one for training and one for evaluation.

    Made again from its spec, if it has one; a copy in memory may share a simulator with the original, and is made only
    of an environment without a spec, or with a wrapper that Gymnasium cannot make again.
    """
    with suppress(Exception), warnings.catch_warnings():  # wrappers and constructors raise what they like
        warnings.simplefilter("ignore", DeprecationWarning)
        if env.spec is not None:
            return gym.make(env.spec, disable_env_checker=True)
    try:
        return copy.deepcopy(env)
    except Exception as error:  # sockets, windows, handles of simulators
        raise TaskError(
            f"{short(env)}: cannot be copied, and training and evaluation each need their own: {_reason(error)};"
            " pass a function that makes one, such as lambda: MyEnv()"
        ) from error


def picture(env: gym.Env) -> NDArray[np.uint8]:
    """What the environment, made with the render mode rgb_array, looks like now."""
    try:
        with _without_window():
            drawn: Any = env.render()
    except Exception as error:  # graphics drivers and tasks raise what they like
        if missing := missing_extra(error):
            raise TaskError(f"drawing {type(env.unwrapped).__name__} {missing}") from error
        hint = "without a display MuJoCo needs MUJOCO_GL=egl or osmesa"
        raise TaskError(f"cannot be drawn: {_reason(error)}; {hint}") from error
    if not isinstance(drawn, np.ndarray) or drawn.ndim != 3:
        name = type(env.unwrapped).__name__
        raise TaskError(f"{name} draws no pictures: its render mode rgb_array gives {short(drawn)}")
    return drawn


@contextmanager
def _without_window() -> Iterator[None]:
    """While it draws, SDL, which pygame stands on, looks for no window system or sound where there is no display.

    It would print an error about each that it does not find.
    """
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform != "linux"
    unset = [] if shown else [name for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER") if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "dummy"))
    try:
        yield
    finally:
        for name in unset:
            del os.environ[name]


def close_env(env: gym.Env) -> None:
    """Free what the environment holds; one that fails in this has done its work, and a line says so."""
    try:
        env.close()
    except Exception as error:  # an environment can raise anything
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        print(f"mnm: {name}: close raised {_reason(error)}", file=sys.stderr)


class Environment:
    """One Gymnasium environment with continuous observations and bounded continuous actions.

    `episode` is the number of the episode for messages: 0 before the first reset, then 1, 2, ...
    `time_limit` is how many steps an episode may have: that of the environment's registration, else `episode_limit`,
    after which an episode is truncated.
    `termination` is the environment's attribute `termination_function`, a JAX function
    (observations, actions, next_observations) -> terminated, or None if it declares none.
    """

    def __init__(self, env: gym.Env, episode_limit: int = EPISODE_LIMIT) -> None:
        self.name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        observations: Any = getattr(env, "observation_space", None)
        actions = getattr(env, "action_space", None)
        self._parts = self._check_observations(observations)
        self.observation_space: gym.spaces.Box | gym.spaces.Dict = observations
        self.action_space = self._actions = self._check_actions(actions)
        self._low, self._high = self._actions.low.astype(np.float64), self._actions.high.astype(np.float64)
        self.observation_dim = sum(int(np.prod(box.shape)) for _, box in self._parts)
        self.action_dim = int(np.prod(self._actions.shape))
        self.termination: Callable[..., Any] | None = getattr(env.unwrapped, "termination_function", None)
        if self.termination is not None and not callable(self.termination):
            raise TaskError(
                f"{self.name}: termination_function is {short(self.termination)}: make it a function of"
                " (observations, actions, next_observations), or remove it"
            )
        limit = env.spec.max_episode_steps if env.spec is not None else None
        self.time_limit = limit if limit is not None else episode_limit
        self._has_limit = limit is not None
        self.episode = 0
        self._step = 0
        self.env = env

    def reset(self, seed: int) -> NDArray[np.float32]:
        """The first observation [observation_dim] of a new episode."""
        self.episode += 1
        self._step = 0
        try:
            answer: Any = self.env.reset(seed=seed)
        except Exception as error:
            self._fail(f"reset raised {_reason(error)}", error)
        if not isinstance(answer, tuple) or len(answer) != 2:
            self._fail(f"reset returned {short(answer)}: return (observation, info)")
        return self._observation(answer[0])

    def step(self, action: ArrayLike) -> Step:
        """Take an action in [-1, 1]^action_dim, scaled to the environment's own bounds (integers are rounded)."""
        scaled = self.scale(np.asarray(action, np.float64))
        self._step += 1
        try:
            answer: Any = self.env.step(scaled)
        except Exception as error:
            self._fail(f"step raised {_reason(error)}", error)
        if not isinstance(answer, tuple) or len(answer) != 5:
            self._fail(f"step returned {short(answer)}: return (observation, reward, terminated, truncated, info)")
        observation, reward, terminated, truncated, info = answer
        if not isinstance(info, dict):
            self._fail(f"the info is {short(info)}: return a dict")
        ended, cut = self._flag("terminated", terminated), self._flag("truncated", truncated)
        if not (self._has_limit or ended or cut) and self._step >= self.time_limit:
            cut = True
            self._tell_of_limit()
        return Step(self._observation(observation), self._reward(reward), ended, cut, info)

    def _tell_of_limit(self) -> None:
        """Once for each task."""
        if self.name not in _cut_off:
            _cut_off.add(self.name)
            print(
                f"mnm: {self.name} has no time limit: its episodes are cut off after {self.time_limit} steps"
                " (--episode-limit; in Python episode_limit=)",
                file=sys.stderr,
            )

    @property
    def spaces(self) -> dict[str, Any]:
        """The shape of the observations (of a Dict's, by their names) and the bounds of the actions, as JSON."""
        shapes = {"/".join(keys): list(box.shape) for keys, box in self._parts}
        return {
            "observation_shape": shapes.get("", shapes),
            "action_low": self._low.reshape(-1).tolist(),
            "action_high": self._high.reshape(-1).tolist(),
        }

    def close(self) -> None:
        """Free what the environment holds."""
        close_env(self.env)

    def _check_observations(self, space: Any) -> list[tuple[tuple[str, ...], gym.spaces.Box]]:
        """The Boxes of which an observation is made, each with the keys that lead to it in a Dict."""
        supported = "supported are Box observations of floats or integers, and Dicts of them, flattened, without images"
        parts = list(_parts(space))
        for _, part in parts:
            if not isinstance(part, gym.spaces.Box):
                raise TaskError(f"{self.name}: observations are {short(space)}; {supported}")
            if part.dtype == np.uint8 and len(part.shape) >= 2:
                raise TaskError(f"{self.name}: observations are images, uint8 of shape {part.shape}; {supported}")
            if 0 in part.shape:
                raise TaskError(f"{self.name}: observations are empty, of shape {part.shape}; {supported}")
        if not parts:
            raise TaskError(f"{self.name}: observations are empty: {short(space)}; {supported}")
        return parts

    def _check_actions(self, space: Any) -> gym.spaces.Box:
        supported = "supported are Box actions with finite low and high"
        if not isinstance(space, gym.spaces.Box):
            raise TaskError(f"{self.name}: actions are {short(space)}; {supported}")
        if not space.is_bounded():
            raise TaskError(f"{self.name}: actions are {short(space)}, unbounded; {supported}")
        if 0 in space.shape:
            raise TaskError(f"{self.name}: actions are empty, of shape {space.shape}; {supported}")
        return space

    def scale(self, action: NDArray[np.float64]) -> NDArray:
        """An action in [-1, 1]^action_dim in the environment's own shape and units."""
        if action.shape != (self.action_dim,) or not np.isfinite(action).all():  # the agent's fault, not the task's
            raise ValueError(f"{self.name}: the action must be {self.action_dim} finite numbers, not {action}")
        space, low, high = self._actions, self._low, self._high
        share = np.minimum(np.maximum((action.reshape(space.shape) + 1) / 2, 0), 1)
        scaled = np.minimum(np.maximum(low * (1 - share) + high * share, low), high)
        return (np.rint(scaled) if np.issubdtype(space.dtype, np.integer) else scaled).astype(space.dtype)

    def unscale(self, actions: ArrayLike) -> NDArray[np.float32]:
        """The inverse of `scale` for a batch [rows, *shape]: actions in the environment's units as [rows, action_dim].

        A coordinate whose bounds are equal is 0; what lies outside of the bounds is moved to them.
        """
        array = np.asarray(actions, np.float64)
        if array.shape[1:] != self.action_space.shape:
            wanted = ", ".join(["rows", *map(str, self.action_space.shape)])
            raise ValueError(f"{self.name}: the actions must have the shape ({wanted}), not {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{self.name}: an action is {array[~np.isfinite(array)][0]}, which is not a finite number")
        width = self._high - self._low
        share = np.where(width > 0, (array - self._low) / np.where(width > 0, width, 1.0), 0.5)
        return (2 * np.clip(share, 0, 1) - 1).reshape(len(array), self.action_dim).astype(np.float32)

    def rows(self, observations: Any) -> tuple[NDArray[np.float32], bool]:
        """Observations, as the task gives them or flat, as [rows, observation_dim]; and whether it was one alone."""
        dim = self.observation_dim
        if isinstance(observations, dict):
            columns = [np.asarray(self._from_dict(observations, keys)) for keys, _ in self._parts]
            single = columns[0].shape == self._parts[0][1].shape
            count = 1 if single else len(columns[0])
            array = np.concatenate([column.reshape(count, -1) for column in columns], axis=1, dtype=np.float32)
        else:
            array = np.asarray(observations, np.float32)
            single = array.ndim <= 1 or array.shape == self.observation_space.shape
            array = array.reshape(1 if single else len(array), -1)
        if array.shape[1] != dim:
            raise ValueError(f"the observation has {array.shape[1]} entries, but {self.name} has {dim}")
        return array, single

    def _from_dict(self, observation: Any, keys: tuple[str, ...]) -> Any:
        try:
            for key in keys:
                observation = observation[key]
        except (KeyError, TypeError, IndexError):
            missing = f"without {'/'.join(keys)!r}, which {self.name}'s space declares"
            raise ValueError(f"the observation is {short(observation)}, {missing}") from None
        return observation

    def observation(self, flat: NDArray[np.float32]) -> Any:
        """A flat observation as the task gives it, inside of its space: the inverse of what the agents see."""
        parts: dict[tuple[str, ...], NDArray] = {}
        for keys, box in self._parts:
            size = int(np.prod(box.shape))
            part, flat = flat[:size].reshape(box.shape), flat[size:]
            inside = np.clip(part.astype(np.float64), box.low, box.high)
            parts[keys] = (np.rint(inside) if np.issubdtype(box.dtype, np.integer) else inside).astype(box.dtype)
        return _nested(parts)

    def _observation(self, value: Any) -> NDArray[np.float32]:
        if len(self._parts) == 1 and not self._parts[0][0]:
            return self._part("observation", value, self._parts[0][1])
        parts = []
        for keys, box in self._parts:
            try:
                part = self._from_dict(value, keys)
            except ValueError as error:
                self._fail(str(error))
            parts.append(self._part(f"observation's {'/'.join(keys)!r}", part, box))
        return np.concatenate(parts)

    def _part(self, name: str, value: Any, space: gym.spaces.Box) -> NDArray[np.float32]:
        array = self._numbers(name, value)
        if array.shape != space.shape:
            self._fail(f"the {name} has shape {array.shape}, but the space declares {space.shape}")
        declared = space.dtype
        if array.dtype.kind == "f" and np.issubdtype(declared, np.integer):  # other differences do no harm
            self._fail(f"the {name} has dtype {array.dtype}, but the space declares {declared}")
        flat = _to_float32(array).reshape(-1)
        wrong = np.flatnonzero(~np.isfinite(flat))
        if wrong.size:
            index = int(wrong[0])
            self._fail(f"entry {index} of the {name} is {array.flat[index]}, which is not a finite float32")
        return flat

    def _reward(self, value: Any) -> float:
        array = self._numbers("reward", value)
        if array.size != 1:
            self._fail(f"the reward is {short(value)}, which is not a number")
        if not np.isfinite(_to_float32(array)).all():
            self._fail(f"the reward is {array.item()}, which is not a finite float32")
        return float(array.item())

    def _flag(self, name: str, value: Any) -> bool:
        array = self._numbers(f"flag {name}", value)
        if array.size != 1:
            self._fail(f"the flag {name} is {short(value)}: return True or False")
        return bool(array.item())

    def _numbers(self, name: str, value: Any) -> NDArray:
        try:
            array = np.asarray(value)
        except Exception as error:  # ragged lists, and whatever __array__ raises
            self._fail(f"the {name} is {short(value)}, which is not a number or an array of numbers", error)
        if array.dtype.kind not in "biuf":
            self._fail(f"the {name} is {short(value)}, which is not a number or an array of numbers")
        return array

    def _fail(self, what: str, error: Exception | None = None) -> NoReturn:
        place = f"step {self._step}" if self._step else "step 0 (reset)"
        raise TaskError(f"{self.name}: episode {self.episode}, {place}: {what}") from error


def _parts(space: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The spaces that a Dict is made of, nested ones too, each with its keys; any other space is itself."""
    if not isinstance(space, gym.spaces.Dict):
        yield keys, space
        return
    for key, part in space.spaces.items():
        yield from _parts(part, (*keys, key))


def _nested(parts: dict[tuple[str, ...], NDArray]) -> Any:
    """The inverse of `_parts` for values."""
    if () in parts:
        return parts[()]
    names = dict.fromkeys(keys[0] for keys in parts)
    return {name: _nested({keys[1:]: part for keys, part in parts.items() if keys[0] == name}) for name in names}


def _to_float32(array: NDArray) -> NDArray[np.float32]:
    """A copy, since environments may write into what they returned; inf where float32 ends."""
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _hint(task: str, error: Exception) -> str:
    """What to do about an id that cannot be made: '; nearest ids: A, B' or '; install it' or nothing."""
    if isinstance(error, ImportError | gym.error.DependencyNotInstalled):
        return "; install what is missing, or choose another task"
    environment_id = task.rpartition(":")[2]
    if environment_id in gym.registry:
        return ""
    known = {name.lower(): name for name in gym.registry}
    matches = [known[match] for match in get_close_matches(environment_id.lower(), known, n=3)]
    return f"; nearest ids: {', '.join(matches)}" if matches else "; ids look like Pendulum-v1"


def _reason(error: Exception) -> str:
    """The error in one line, with its place in the user's own code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": .") + place


def _is_users(file: str) -> bool:
    """Whether a file is neither ours, nor an installed package's, nor Python's own."""
    ours = Path(__file__).parents[1]
    libraries = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not file.startswith("<") and not any(Path(file).is_relative_to(place) for place in (ours, *libraries))
