"""The one environment loop, for every algorithm and for any task with continuous observations and bounded actions.

An agent acts at random, then learns its model (if it has one), then makes a few updates after every real step. Several
seeds can run as one vmapped program, each in its own environment.

Or it learns from a data set, and no environment is stepped: its rows fill the replay, the model's updates come first,
and then a step is an update. What the replay has no room for is read from the disk between updates.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from mnm.agents.actor_critic import Actor
from mnm.agents.algorithm import Algorithm, ModelState, State
from mnm.agents.base import AgentConfig, settings_after
from mnm.agents.world_model import ModelConfig, World
from mnm.diagnostics import KEPT_BYTES, Episode, Recorder, diagnose, diagnose_on_data
from mnm.envs.adapter import Environment, Task, TaskError, episode_seed, make
from mnm.replay import HELD_OUT_EVERY, Replay, Transitions
from mnm.schema import Count, CountOrZero, Seed, require
from mnm.training.datasets import MEMORY, Dataset, DatasetError, checked, transitions
from mnm.training.programs import act, add_rows, new_agents, observe_rows, store, train_step, update_many

CHUNK = 250
"""Updates between two reports of progress, in the model's warm-up and when learning from data."""
BLOCKS = 10
"""Of a replay that has no room for all of a data set: every CHUNK updates one of them is read anew."""


class Progress(NamedTuple):
    """How far a run is."""

    phase: str
    """"random steps", "model warm-up" or "learning"; "compiling: ..." before the first program of the latter two."""
    done: int
    total: int
    """Of the phase: updates in the warm-up and from data, else real steps."""
    updates: int
    last_return: float
    """Of the latest evaluation, or before that of the latest training episode; nan before both."""


Row = Mapping[str, float]


class Snapshot(NamedTuple):
    """All of one seed's run at a moment between two steps."""

    agent: Any
    replay: Replay
    counters: Mapping[str, Any]
    observation: NDArray[np.float32]
    action: NDArray[np.float32] | None
    """The next action, if it has been chosen."""
    taken: NDArray[np.float32]
    """The actions of the episode so far, [steps, act]."""


class Learner:
    """Agents of one algorithm, one per seed, with their environments and replays."""

    def __init__(
        self,
        algorithm: Algorithm,
        config: AgentConfig,
        task: Task,
        seeds: tuple[int, ...] = (0,),
        longest: int | None = None,
        start: tuple[State, Replay] | None = None,
        dataset: Dataset | None = None,
        offline: bool = False,
        resumes: bool = False,
    ) -> None:
        """`longest` is the most real steps that it will take, if that is known: its replay is made for as many.

        `start` is what a single seed begins with, instead of a new agent and an empty replay; `dataset` what it learns
        from, instead of the task. `offline`: it has learned from one before, whose rows are in `start`. `resumes`: a
        checkpoint will bring the agent and the replay; the data set is only checked, and read from the disk later on.
        """
        self.algorithm, self.task = algorithm, task
        self.seeds = tuple(require("seed", seed, Seed) for seed in seeds)
        self.many = len(seeds) > 1
        self.offline = offline or dataset is not None
        """Whether it learns from data alone: then a step is an update."""
        self._environments = [] if self.offline else [make(task, config.episode_limit) for _ in seeds]
        self._evaluation = make(task, config.episode_limit)
        self.task_name = self._evaluation.name
        self.dims = (self._evaluation.observation_dim, self._evaluation.action_dim)
        self.config = config
        if algorithm.has_model:
            assert isinstance(config, ModelConfig), f"{algorithm.name} has a model, but its settings are no ModelConfig"
            termination = config.termination or self._evaluation.termination
            self.config = config = replace(config, termination=termination)
        if dataset is not None:
            longest = dataset.rows
        self._replay_rows = replay_rows(config.replay_capacity, longest, self.dims)
        self._on_disk = dataset is not None and dataset.rows > self._replay_rows
        if self._on_disk:
            self._replay_rows = BLOCKS * block_rows(self._replay_rows)
        if start is None:
            check_memory(self.task_name, agent_shapes(algorithm, config, self.dims, self._replay_rows), len(seeds))
            keys = [jax.random.key(seed) for seed in seeds]
            agents = new_agents(algorithm, config, *self.dims, jnp.stack(keys) if self.many else keys[0])
            start = agents, _stacked([self.empty_replay()] * len(seeds)) if self.many else self.empty_replay()
        else:
            self._replay_rows = start[1].capacity
        self.state, self.replay = start
        self.steps = 0
        """Real steps so far, of every seed; of one that learns from data, updates after the model's warm-up."""
        self.updates = 0
        """Updates so far, the warm-up's included."""
        self.seconds = 0.0
        """That `learn` has taken so far."""
        self.episodes = [0] * len(seeds)
        """Training episodes begun, by seed."""
        self.ends = [0] * len(seeds)
        """Those that the task has ended, and not a time limit."""
        self._observations: NDArray[np.float32] | None = None
        self._actions: NDArray | None = None
        self._taken: list[list[NDArray]] = [[] for _ in seeds]
        self._losses: dict[str, Any] = {}
        self._episode_returns = [0.0] * len(seeds)
        self._last_returns = [float("nan")] * len(seeds)
        self._last_evaluation = float("nan")
        self.evaluated: list[list[float]] = [[] for _ in seeds]
        """The returns of the latest evaluation's episodes, by seed."""
        self._compiled: set[tuple[str, float]] = set()
        self.evaluated_step = 0
        """The step of the latest evaluation."""
        self._draws = np.random.default_rng((seeds[0], 3))
        self._random = [np.random.default_rng((seed, 2)) for seed in seeds]
        self._rewards = [RewardRange() for _ in seeds]
        self._dataset = dataset
        self.digest: str | None = None
        """Of the data set."""
        if dataset is not None:
            self.digest = checked(dataset, self._evaluation, None if resumes else self._take_in)
            if self._on_disk:
                self._tell_of_disk(dataset)
                for number in range(0 if resumes else BLOCKS):
                    self._read_block(number)

    def learn(
        self,
        steps: int,
        *,
        evaluate_every: int = 1_000,
        evaluation_episodes: int = 5,
        evaluate: bool = False,
        on_eval: Callable[[int, int, Row], None] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_step: Callable[[], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Learner:
        """Take `steps` more real steps with every seed; of a learner from data, make so many more updates.

        Every `evaluate_every` steps, and at the end, the deterministic policy is evaluated on episodes of its own, and
        on_eval(seed, step, row) gets what was measured. on_step is called after every step and every chunk of the
        model's warm-up, where a snapshot can be taken. should_stop is asked there too, after an evaluation and in every
        step of it; True ends the work. An evaluation that was left off is made when the run goes on.

        A learner from data plays no episodes unless `evaluate` says so: its rows tell what the data tell.
        """
        steps = require("steps", steps, CountOrZero)
        evaluate_every = require("evaluate_every", evaluate_every, Count)
        evaluation_episodes = require("evaluation_episodes", evaluation_episodes, CountOrZero)
        end = self.steps + steps
        if not self.offline:
            self._make_room(end)
        began, updates_began, seconds_before = time.monotonic(), self.updates, self.seconds
        if self._observations is None and not self.offline:
            self._observations = np.stack([self._reset(i) for i in range(len(self.seeds))])
        if self.offline and not evaluate:
            evaluation_episodes = 0
        should_stop = should_stop or never
        while True:
            if self._evaluation_is_due(evaluate_every, end):
                pace = (self.updates - updates_began) / max(time.monotonic() - began, 1e-9)
                speed = {"seconds": self.seconds, "updates_per_s": pace}
                if not self._report(evaluation_episodes, speed, on_eval, should_stop) or should_stop():
                    break
                continue
            if self.steps >= end and not self.warming_up:
                break
            phase = self._phase
            programs = phase, self._settings_after(self.steps + 1).discount
            if phase != "random steps" and programs not in self._compiled:
                self._compiled.add(programs)
                self._say(on_progress, f"compiling: {phase}", self.steps, end)
            if phase == "model warm-up":
                self._warm_up()
                self._say(on_progress, phase, self.updates, self._warmup_updates)
            else:
                if self.offline:
                    self._update(min(end - self.steps, evaluate_every - self.steps % evaluate_every))
                else:
                    self._step()
                self._say(on_progress, phase, self.steps, end)
            self.seconds = seconds_before + time.monotonic() - began
            if on_step is not None:
                on_step()
            if should_stop():
                break
        return self

    def _make_room(self, steps: int) -> None:
        """Enlarge the replay if it has no room for so many real steps in all, and may have more."""
        rows = replay_rows(self.config.replay_capacity, steps, self.dims)
        if rows > self._replay_rows:
            check_memory(self.task_name, agent_shapes(self.algorithm, self.config, self.dims, rows), len(self.seeds))
            enlarge = partial(Replay.enlarged, capacity=rows)
            self.replay = (jax.vmap(enlarge) if self.many else enlarge)(self.replay)
            self._replay_rows = rows

    def _evaluation_is_due(self, evaluate_every: int, end: int) -> bool:
        due = self.steps % evaluate_every == 0 or self.steps == end
        return due and self.steps > self.evaluated_step and not self.warming_up

    def predict(self, observations: Any, *, deterministic: bool = True, seed: int | None = None) -> NDArray:
        """The (first seed's) policy's action for one observation, or actions for a batch, in the task's own units.

        With deterministic=False, a draw from the stochastic policy: a new one each time, or the one of `seed`.
        """
        array, single = self._evaluation.rows(observations)
        policy = self.policy(0)
        if deterministic:
            actions = np.asarray(mode(policy, array))
        else:
            seed = int(self._draws.integers(2**31)) if seed is None else require("seed", seed, Seed)
            actions = np.asarray(draw(policy, array, jax.random.key(seed)))
        scaled = self.in_task_units(actions)
        return scaled[0] if single else scaled

    def in_task_units(self, actions: NDArray) -> NDArray:
        """A batch of the agent's actions, which lie in [-1, 1], as the task takes them."""
        return np.stack([self._evaluation.scale(action.astype(np.float64)) for action in actions])

    @property
    def settings(self) -> AgentConfig:
        """Those that hold now."""
        return self._settings_after(self.steps)

    def _settings_after(self, steps: int) -> AgentConfig:
        """The discount grows where episodes end: else there is nothing far off that must not be missed."""
        return settings_after(self.config, steps if any(self.ends) else 0)

    @property
    def flat_spaces(self) -> tuple[gym.spaces.Box, gym.spaces.Box]:
        """Of flattened observations, and of the task's own actions."""
        return gym.spaces.Box(-np.inf, np.inf, (self.dims[0],), np.float32), self._evaluation.action_space

    @property
    def adapter(self) -> Environment:
        """The evaluation's environment, which knows the task's units and shapes."""
        return self._evaluation

    @property
    def observation_space(self) -> gym.spaces.Box | gym.spaces.Dict:
        """The task's own."""
        return self._evaluation.observation_space

    @property
    def action_space(self) -> gym.spaces.Box:
        """The task's own."""
        return self._evaluation.action_space

    @property
    def spaces(self) -> dict[str, Any]:
        """What an agent's task must have in common with the one that it was trained on, as JSON."""
        return self._evaluation.spaces

    def policy(self, index: int) -> Actor:
        """The policy of the seed with this index, as it is evaluated."""
        policy: Actor = self._of_seed(self.state.actor_critic.averaged_actor, index)
        return policy

    def agent(self, index: int) -> State:
        """The state of the seed with this index."""
        state: State = self._of_seed(self.state, index)
        return state

    def world(self, index: int) -> World:
        """The learned model of the seed with this index."""
        if not self.algorithm.has_model:
            raise TypeError(f"{self.algorithm.name} learns no model")
        return cast(ModelState, self.agent(index)).world

    def empty_replay(self) -> Replay:
        """One seed's, without transitions."""
        return Replay.empty(self._replay_rows, *self.dims)

    def _of_seed(self, tree: Any, index: int) -> Any:
        return jax.tree.map(lambda array: array[index], tree) if self.many else tree

    def save(self, path: str | Path, index: int = 0) -> None:
        """Write the agent of the seed with this index to a file, for `mnm.load`."""
        from mnm.training.saving import save

        save(self, path, index)

    def counters(self, index: int) -> dict[str, Any]:
        """What a seed's run is made of besides arrays, as JSON."""
        return {
            "steps": self.steps,
            "updates": self.updates,
            "seconds": self.seconds,
            "episodes": self.episodes[index],
            "ends": self.ends[index],
            "evaluated_step": self.evaluated_step,
            "last_return": self._last_returns[index],
            "episode_return": self._episode_returns[index],
            "losses": {name: float(np.asarray(value).reshape(-1)[index]) for name, value in self._losses.items()},
            "random": self._random[index].bit_generator.state,
        }

    def set_counters(self, counters: Sequence[Mapping[str, Any]]) -> None:
        """The inverse, with one mapping for each seed."""
        shared = counters[0]
        self.steps, self.updates, self.seconds = int(shared["steps"]), int(shared["updates"]), float(shared["seconds"])
        self.episodes = [int(one["episodes"]) for one in counters]
        self.ends = [int(one.get("ends", 0)) for one in counters]  # not saved before version 0.2
        self.evaluated_step = int(shared.get("evaluated_step", self.steps))  # not saved before version 0.2
        self._last_returns = [float(one["last_return"]) for one in counters]
        self._episode_returns = [float(one["episode_return"]) for one in counters]
        self._losses = {name: np.array([one["losses"][name] for one in counters]) for name in shared["losses"]}
        for generator, one in zip(self._random, counters, strict=True):
            generator.bit_generator.state = one["random"]

    def snapshot(self, index: int) -> Snapshot:
        """All of a seed's run, in the middle of an episode too; who learns from data is in none."""
        taken = np.array(self._taken[index], np.float32).reshape(-1, self.dims[1])
        action = None if self._actions is None else self._actions[index]
        replay = self._of_seed(self.replay, index)
        observation = np.zeros(self.dims[0], np.float32) if self.offline else cast(Any, self._observations)[index]
        return Snapshot(self.agent(index), replay, self.counters(index), observation, action, taken)

    def restore(self, snapshots: Sequence[Snapshot]) -> bool:
        """Go on exactly where the snapshots, one for each seed, were taken.

        The episode is brought back by taking its actions again from its seed. False if a task does not repeat itself:
        a new episode has begun then.
        """
        agents, replays = ([getattr(snapshot, part) for snapshot in snapshots] for part in ("agent", "replay"))
        self.state, self.replay = (_stacked(trees) if self.many else trees[0] for trees in (agents, replays))
        self.set_counters([snapshot.counters for snapshot in snapshots])
        if self.offline:
            return True
        rejoined = [self._rejoin(index, snapshot) for index, snapshot in enumerate(snapshots)]
        repeated = all(observation is not None for observation in rejoined)
        self._observations = np.stack(
            [self._reset(i) if observation is None else observation for i, observation in enumerate(rejoined)]
        )
        actions = [snapshot.action for snapshot in snapshots if snapshot.action is not None]
        self._actions = np.stack(actions) if actions and repeated else None
        return repeated

    def _rejoin(self, index: int, snapshot: Snapshot) -> NDArray[np.float32] | None:
        """The observation that an episode had come to, from its seed and its actions; None if it is another one now."""
        environment, number = self._environments[index], self.episodes[index] - 1
        environment.episode = number
        observation = environment.reset(episode_seed(self.seeds[index], "training", number))
        for action in snapshot.taken:
            step = environment.step(action)
            if step.terminated or step.truncated:
                return None
            observation = step.observation
        self._taken[index] = list(snapshot.taken)
        return observation if np.array_equal(observation, snapshot.observation) else None

    def close(self) -> None:
        """Close the environments."""
        for environment in (*self._environments, self._evaluation):
            environment.close()

    def evaluate(
        self,
        index: int,
        episodes: int,
        seed: int | None = None,
        should_stop: Callable[[], bool] | None = None,
        stream: str = "evaluation",
    ) -> list[Episode]:
        """Episodes of the deterministic policy, in an environment of their own; fewer if should_stop() says so.

        Always the same starts, by the run's own seed or by another one; with the stream "test", starts that no
        evaluation of a run has had. Of all their steps KEPT_BYTES are kept: long episodes in pieces.
        """
        episodes = require("episodes", episodes, CountOrZero)
        seed = self.seeds[index] if seed is None else seed
        room = KEPT_BYTES // max(episodes, 1)
        return list(islice(self.play(index, seed, should_stop or never, stream, room=room), episodes))

    def play(
        self,
        index: int,
        seed: int,
        should_stop: Callable[[], bool],
        stream: str,
        act: Callable[[NDArray], NDArray] | None = None,
        room: int | None = None,
    ) -> Iterator[Episode]:
        """One episode of `evaluate` after another, until should_stop() says so, which is asked in every step.

        `act` chooses the actions instead of the deterministic policy. `room` is how many bytes of steps are kept of
        each; all, if it is not said.
        """
        act = act or partial(deterministic_action, self.policy(index))
        discount, offset = self.settings.discount, self.algorithm.reward_offset(self.config)
        for number in count():
            observation, step = self._evaluation.reset(episode_seed(seed, stream, number)), None
            recorder = Recorder(observation, discount, offset, room)
            while step is None or not (step.terminated or step.truncated):
                if should_stop():
                    return
                action = act(observation)
                step = self._evaluation.step(action)
                observation = step.observation
                recorder.add(action, step.reward, observation)
                self._tell_of_outlier(index, step.reward, f"evaluation at step {self.steps}, episode {number + 1}")
            yield recorder.episode(step.terminated, step.success)

    def _reset(self, index: int) -> NDArray[np.float32]:
        seed = episode_seed(self.seeds[index], "training", self.episodes[index])
        self.episodes[index] += 1
        self._episode_returns[index] = 0.0
        self._taken[index] = []
        return self._environments[index].reset(seed)

    def _take_in(self, rows: Transitions) -> None:
        """Rows of a data set into the agents' statistics, and into the replay if it has room for all."""
        assert self._dataset is not None
        self._check_rows(self._dataset.name, rows)
        self.state = observe_rows(self.algorithm, self.settings, self.state, rows, many=self.many)
        if not self._on_disk:
            self.replay = add_rows(self.replay, rows, many=self.many)

    def _tell_of_disk(self, dataset: Dataset) -> None:
        print(
            f"mnm: {dataset.name} has {dataset.rows} rows, and the replay has room for {self._replay_rows}:"
            f" {block_rows(self._replay_rows)} of them are read anew from the disk every {CHUNK} updates"
            " (--replay-capacity)",
            file=sys.stderr,
        )

    def _read_block(self, number: int) -> None:
        """The next block of a data set on the disk, in the order of the first seed, in place of the oldest.

        Blocks begin at multiples of HELD_OUT_EVERY, there and in the replay: what is held out is always held out.
        """
        assert self._dataset is not None
        size = block_rows(self._replay_rows)
        last = (self._dataset.rows - size) // HELD_OUT_EVERY * HELD_OUT_EVERY
        starts = [*range(0, last, size), last]
        order = np.random.default_rng((self.seeds[0], 4)).permutation(len(starts))
        start = starts[order[number % len(starts)]]
        rows = transitions(self._dataset, self._evaluation, start, start + size)
        self.replay = add_rows(self.replay, rows, many=self.many)

    def _read_more(self) -> None:
        """Before every CHUNK updates but the first; by their number, so that a run that goes on reads the same."""
        if self._on_disk and self.updates and self.updates % CHUNK == 0:
            self._read_block(BLOCKS + self.updates // CHUNK - 1)

    def _check_rows(self, name: str, rows: Transitions) -> None:
        ended = np.asarray(rows.continues) == 0
        for chosen in (slice(None), ended):
            rewards = np.asarray(rows.rewards)[chosen]
            if rewards.size:
                self._check_reward(name, float(rewards.min()), terminated=chosen is ended)

    def _update(self, most: int) -> None:
        """Updates from data, at most so many; waits for them."""
        self._read_more()
        count = min(CHUNK - self.updates % CHUNK, most)
        self.state, self._losses = update_many(
            self.algorithm.update, self.settings, self.state, self.replay, self.updates, count, many=self.many
        )
        jax.tree.map(np.asarray, self._losses)
        self.updates += count
        self.steps += count

    def _step(self) -> None:
        """One real step of every seed, and the updates that it earns."""
        assert self._observations is not None
        if self.steps < self.config.learning_starts:
            actions = np.stack([g.uniform(-1, 1, self.dims[1]).astype(np.float32) for g in self._random])
        else:
            if self._actions is None:
                self._choose_actions()
            assert self._actions is not None
            actions = self._actions
        taken = [environment.step(a) for environment, a in zip(self._environments, actions, strict=True)]
        for index, step in enumerate(taken):
            place = f"{self.task_name}: episode {self.episodes[index]}"
            self._check_reward(place, step.reward, step.terminated)
            self._tell_of_outlier(index, step.reward, f"step {self.steps + 1}")
            self._episode_returns[index] += step.reward
            self.ends[index] += step.terminated
            self._taken[index].append(actions[index])
        columns: tuple[Any, ...] = (
            self._observations,
            actions,
            np.array([step.reward for step in taken], np.float32),
            np.stack([step.observation for step in taken]),
            np.array([not step.terminated for step in taken], np.float32),
        )
        transitions = Transitions(*columns)
        observations = []
        for index, step in enumerate(taken):
            if step.terminated or step.truncated or self._cut_off(index):
                self._last_returns[index] = self._episode_returns[index]
                observations.append(self._reset(index))
            else:
                observations.append(step.observation)
        self._observations = np.stack(observations)
        self.steps += 1
        transitions, current = (
            (transitions, self._observations) if self.many else _first((transitions, self._observations))
        )
        config = self.settings
        updates = self.updates, config.updates_per_step
        if self.steps == 1:
            train_step.prepare(
                self.algorithm, config, self.state, self.replay, transitions, current, *updates, many=self.many
            )
        if self.steps <= config.learning_starts:
            self.state, self.replay = store(
                self.algorithm, config, self.state, self.replay, transitions, many=self.many
            )
            return
        self.state, self.replay, chosen, self._losses = train_step(
            self.algorithm, config, self.state, self.replay, transitions, current, *updates, many=self.many
        )
        self.updates += config.updates_per_step
        self._actions = np.asarray(chosen).reshape(len(self.seeds), -1)

    def _cut_off(self, index: int) -> bool:
        """Whether an episode of random actions has gone on for long enough.

        A runner that random actions have thrown on its back would lie there for the rest of a thousand steps: the agent
        would hardly see anything else, and learn to crawl.
        """
        limit = self.config.random_episode_steps
        return limit is not None and self.steps < self.config.learning_starts and len(self._taken[index]) >= limit

    def _choose_actions(self) -> None:
        current = self._observations if self.many else _first(self._observations)
        self.state, chosen = act(self.state, current, many=self.many)
        self._actions = np.asarray(chosen).reshape(len(self.seeds), -1)

    @property
    def _warmup_updates(self) -> int:
        return self.algorithm.warmup_updates(self.config)

    @property
    def _phase(self) -> str:
        if self.warming_up:
            return "model warm-up"
        return "learning" if self._has_data else "random steps"

    @property
    def _has_data(self) -> bool:
        """Whether the random steps are over; who learns from data takes none."""
        return self.offline or self.steps >= self.config.learning_starts

    @property
    def warming_up(self) -> bool:
        """Whether the random steps are over, and the model is still being trained alone."""
        return self._has_data and self.updates < self._warmup_updates

    def _warm_up(self) -> None:
        assert self.algorithm.warm_up is not None
        self._read_more()
        count = min(CHUNK, self._warmup_updates - self.updates)
        self.state, self._losses = update_many(
            self.algorithm.warm_up, self.settings, self.state, self.replay, self.updates, count, many=self.many
        )
        jax.tree.map(np.asarray, self._losses)  # waits: progress and pace are those of work done
        self.updates += count

    def _check_reward(self, place: str, reward: float, terminated: bool) -> None:
        """The methods with a logarithm need positive rewards, also after an episode's end."""
        if not self.algorithm.log_returns:
            return
        offset = self.algorithm.reward_offset(self.config)
        if reward + offset <= 0:
            raise TaskError(
                f"{place}: the reward {reward:g} plus the reward offset {offset:g} is not positive, and"
                f" {self.algorithm.name} takes its logarithm: set reward_offset above {-reward:g}"
                " (above minus the lowest reward that the task can give)"
            )
        if terminated and offset == 0 and self.algorithm.ends_need_offset:
            raise TaskError(
                f"{place}: the episode ended, and what comes after an end pays the reward offset for ever; that is 0,"
                f" and {self.algorithm.name} takes its logarithm: set reward_offset above 0"
            )

    def _tell_of_outlier(self, index: int, reward: float, place: str) -> None:
        spread = self._rewards[index].outlier(reward)
        if spread is not None:
            print(
                f"mnm: {self.task_name}, seed {self.seeds[index]}, {place}: the reward is {reward:g}, and the spread of"
                f" those before it {spread:g}: what is learned from it may be worth nothing; clip the task's rewards",
                file=sys.stderr,
                flush=True,
            )

    def _report(
        self,
        evaluation_episodes: int,
        speed: Row,
        on_eval: Callable[[int, int, Row], None] | None,
        should_stop: Callable[[], bool],
    ) -> bool:
        """Evaluate every seed, diagnose it, and hand over the rows; False if the evaluation was left off."""
        losses = {name: np.asarray(value).reshape(-1) for name, value in self._losses.items()}
        episodes = []
        for index in range(len(self.seeds)):
            episodes.append(self.evaluate(index, evaluation_episodes, should_stop=should_stop))
            if len(episodes[-1]) < evaluation_episodes:
                return False
        self.evaluated_step = self.steps
        means = []
        for index, (seed, played) in enumerate(zip(self.seeds, episodes, strict=True)):
            self.evaluated[index] = totals = [episode.total for episode in played]
            row = {"updates": float(self.updates)}
            if played:
                means.append(float(np.mean(totals)))
                row = {"return": means[-1], "return_std": float(np.std(totals))} | row
            if self.offline:
                replay = self._of_seed(self.replay, index)
                row |= diagnose_on_data(self.algorithm, self.settings, self.agent(index), replay, seed)
            else:
                row["episode_return"] = self._last_returns[index]
            successes = [episode.success for episode in played if episode.success is not None]
            if successes:
                row["success"] = float(np.mean(successes))
            if self.updates > 0 and played:
                limit = self._evaluation.time_limit
                row |= diagnose(self.algorithm, self.settings, self.agent(index), played, limit, seed)
            row |= {name: float(values[index]) for name, values in losses.items()} | dict(speed)
            if on_eval is not None:
                on_eval(seed, self.steps, row)
        if means:
            self._last_evaluation = float(np.mean(means))
        return True

    def _say(self, on_progress: Callable[[Progress], None] | None, phase: str, done: int, total: int) -> None:
        if on_progress is not None:
            last = self._last_evaluation if np.isfinite(self._last_evaluation) else float(np.mean(self._last_returns))
            on_progress(Progress(phase, done, total, self.updates, last))


OUTLIER = 1e6
"""A reward that many times the spread of those before it is told of."""


class RewardRange:
    """The rewards that a seed has seen."""

    def __init__(self) -> None:
        self._low, self._high = np.inf, -np.inf

    def outlier(self, reward: float) -> float | None:
        """The spread so far, if the reward lies far outside of it; it then belongs to those seen."""
        low, high = self._low, self._high
        self._low, self._high = min(low, reward), max(high, reward)
        spread = max(high - low, abs(low), abs(high)) or 1.0  # so that a first reward among zeros is none
        return spread if low <= high and max(reward - high, low - reward) > OUTLIER * spread else None


ROOM = 2**28
"""Bytes of the replay of a run whose length is not known: it is enlarged when they are full."""


def replay_rows(capacity: int, steps: int | None, dims: tuple[int, int]) -> int:
    """How many rows so many steps need: a power of two, so that runs of different lengths share compiled programs."""
    if steps is None:
        return min(capacity, max(1024, ROOM // (4 * (2 * dims[0] + dims[1] + 2))))
    return min(capacity, max(1024, 2 ** (steps - 1).bit_length()))


def block_rows(rows: int) -> int:
    """How many rows of a replay are read anew at once: a tenth of it, a multiple of HELD_OUT_EVERY."""
    size = rows // BLOCKS // HELD_OUT_EVERY * HELD_OUT_EVERY
    if not size:
        raise DatasetError(f"replay_capacity is {rows}, but a data set with more rows needs {BLOCKS * HELD_OUT_EVERY}")
    return size


def agent_shapes(algorithm: Algorithm, config: AgentConfig, dims: tuple[int, int], replay_rows: int) -> Any:
    """One agent and its replay as shapes alone: nothing is made or compiled."""
    agent = new_agents.shapes(algorithm, config, *dims, jax.random.key(0))
    return agent, jax.eval_shape(lambda: Replay.empty(replay_rows, *dims))


def check_memory(task: str, shapes: Any, seeds: int = 1) -> None:
    """Refuse agents and buffers that are larger than the machine's memory, before they are made."""
    needed = seeds * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    if needed > MEMORY:
        raise TaskError(
            f"{task}: networks and buffers need {needed / 1e9:.0f} GB, and the machine has {MEMORY / 1e9:.0f}: set"
            " smaller layers, or a smaller replay_capacity or model_buffer_capacity"
        )


def never() -> bool:
    """Who asks nobody goes on."""
    return False


@jax.jit
def mode(policy: Actor, observations: NDArray[np.float32]) -> jax.Array:
    """The deterministic actions."""
    return policy.mode(jnp.asarray(observations))


def deterministic_action(policy: Actor, observation: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same for one observation."""
    return np.asarray(mode(policy, observation[None]))[0]


@jax.jit
def draw(policy: Actor, observations: NDArray[np.float32], key: jax.Array) -> jax.Array:
    """Actions of the stochastic policy."""
    return policy.sample(jnp.asarray(observations), key)[0]


def _stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), *trees)


def _first(tree: Any) -> Any:
    return jax.tree.map(lambda array: array[0], tree)
