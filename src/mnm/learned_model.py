"""The learned model in your hands: NumPy in, NumPy out, in the task's own units.

Observations are rows of numbers as the agent sees them: those of the task, flattened. They are taken in the task's own
form too, one or a batch; for one alone the axis of rows is left out of the answer. Actions are the task's. All of it is
the target network's, which makes the agent's experience, as it is now: who goes on learning asks another model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import gymnasium as gym
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike, NDArray

from mnm.agents.actor_critic import ActorCritic
from mnm.agents.algorithm import ClassifierState, ModelState
from mnm.agents.classifier import Classifier, log_ratios
from mnm.agents.rollout import prediction, sampled_step
from mnm.agents.world_model import World
from mnm.diagnostics import Episode, model_returns, value_diagnostics
from mnm.envs.adapter import make
from mnm.messages import UserError
from mnm.replay import Transitions
from mnm.schema import Count, Seed, require
from mnm.training.learner import Learner

Floats = NDArray[np.float32]


class Prediction(NamedTuple):
    """What the model says of (s, a)."""

    mean: Floats
    """Of the next observation, by each member of the ensemble, [members, rows, obs]."""
    std: Floats
    """Each member's own, [members, rows, obs]; 0 where no change was ever seen."""
    reward: Floats
    """[rows]"""
    continuation: Floats
    """The probability that the episode goes on, [rows], at the mean of the members' means."""

    @property
    def disagreement(self) -> Floats:
        """The standard deviation of the members' means, [rows, obs]: large where there were few data."""
        return self.mean.std(axis=0)


class Sample(NamedTuple):
    """One step in the model."""

    next_observations: Floats
    """[rows, obs]; within the range seen, widened on both sides by a tenth of its width."""
    rewards: Floats
    """[rows]"""
    continuation: Floats
    """The probability that the episode goes on, [rows]."""


class Rollout(NamedTuple):
    """Steps in the model, each from what it predicted before. Rows go on after an end: weigh them by `alive`."""

    observations: Floats
    """[horizon + 1, rows, obs]"""
    actions: NDArray
    """[horizon, rows, *act]"""
    rewards: Floats
    """[horizon, rows]"""
    continuation: Floats
    """The probability that the episode goes on after each step, [horizon, rows]."""
    log_ratio: Floats | None
    """log p/q of each step by the classifier, [horizon, rows]; None for an agent without one."""

    @property
    def alive(self) -> Floats:
        """The probability that the episode gets to each step, [horizon, rows]."""
        before = np.concatenate([np.ones_like(self.continuation[:1]), self.continuation[:-1]])
        return before.cumprod(axis=0)


class Bound(NamedTuple):
    """The lower bound on the log of the expected return, against that of the return obtained."""

    bound: float
    log_return: float


class LearnedModel:
    """An agent's model of its task."""

    def __init__(self, agent: Learner) -> None:
        if not agent.algorithm.has_model:
            raise UserError(f"{agent.algorithm.name} learns no model: use an agent that does, such as mnm.MnMApprox")
        self._agent = agent

    @property
    def ensemble_size(self) -> int:
        """How many networks there are."""
        return self._agent.world(0).target_dynamics.members

    def predict(self, observations: Any, actions: ArrayLike) -> Prediction:
        """Mean and std of the next observation by each member, the reward, the probability to go on."""
        rows, inputs, single = pairs(self._agent, observations, actions)
        mean, std, outcome = prediction(self._termination, self._agent.world(0), rows, inputs)
        if single:
            mean, std, outcome = mean[:, 0], std[:, 0], jax.tree.map(lambda column: column[0], outcome)
        return Prediction(*map(np.asarray, (mean, std, outcome.rewards, outcome.continues)))

    def sample(self, observations: Any, actions: ArrayLike, seed: int | None = None) -> Sample:
        """One step, each row by a member drawn at random: a new draw each time, or the one of `seed`."""
        rows, inputs, single = pairs(self._agent, observations, actions)
        sample = self._step(rows, inputs, draw_key(seed))
        return Sample(*(column[0] for column in sample)) if single else sample

    def rollout(
        self,
        observations: Any,
        policy: Callable[[Floats], ArrayLike] | ArrayLike | None = None,
        horizon: int | None = None,
        seed: int | None = None,
    ) -> Rollout:
        """Steps from these observations on, each by a member drawn at random.

        `policy` is a function of observations [rows, obs], such as `agent.predict`; or the actions themselves,
        [horizon, *act], for every row alike, or [horizon, rows, *act]. None: the agent's own deterministic policy.
        """
        agent = self._agent
        rows, single = agent.adapter.rows(observations)
        choose: Any = agent.predict if policy is None else policy
        given: Any = None
        if not callable(choose):
            given = np.asarray(choose)
            if given.shape[1:] == agent.action_space.shape:
                given = np.repeat(given[:, None], len(rows), axis=1)
            if horizon not in (None, len(given)):
                raise UserError(f"horizon is {horizon}, but {len(given)} steps of actions are given: leave it out")
            horizon = len(given)
        horizon = require("horizon", horizon, Count)
        steps, ratios = [], []
        for number, step_key in enumerate(jax.random.split(draw_key(seed), horizon)):
            actions = np.asarray(choose(rows) if given is None else given[number])
            inputs = agent.adapter.unscale(actions)
            check_rows(rows, inputs, "actions")
            model_key, noise_key = jax.random.split(step_key)
            sample = self._step(rows, inputs, model_key)
            if agent.algorithm.has_classifier:
                ratios.append(classified(agent, rows, inputs, sample.next_observations, noise_key))
            steps.append((rows, actions, sample.rewards, sample.continuation))
            rows = sample.next_observations
        before, *others = map(np.stack, zip(*steps, strict=True))
        columns: Any = [np.concatenate([before, rows[None]]), *others, np.stack(ratios) if ratios else None]
        if single:
            columns = [None if column is None else column[:, 0] for column in columns]
        return Rollout(*columns)

    def as_env(self, max_episode_steps: int | None = None, starts: Literal["task", "replay"] = "task") -> ModelEnv:
        """The model as a Gymnasium environment, with the task's own spaces: see `ModelEnv`."""
        return ModelEnv(self._agent, max_episode_steps, starts)

    def __repr__(self) -> str:
        return f"<model of {self._agent.task_name} by {self._agent!r}, {self.ensemble_size} members>"

    @property
    def _termination(self) -> Any:
        settings: Any = self._agent.config
        return settings.termination

    def _step(self, rows: Floats, inputs: Floats, key: PRNGKeyArray) -> Sample:
        step = sampled_step(self._termination, self._agent.world(0), rows, inputs, key)
        return Sample(*map(np.asarray, (step.next_observations, step.rewards, step.continues)))


class ModelEnv(gym.Env[Any, NDArray]):
    """An agent's model as an environment: any library's agent can be trained or tested in it.

    Spaces are the task's own; a predicted observation outside of them is moved to their bounds. An episode starts where
    the task does (`reset(seed=s)` where the task's own `reset(seed=s)` does), or, with starts="replay", at any
    observation that the agent has stored. It ends as the model says, by chance, and is cut off after
    `max_episode_steps`, by default the task's own limit.
    """

    def __init__(
        self, agent: Learner, max_episode_steps: int | None = None, starts: Literal["task", "replay"] = "task"
    ) -> None:
        if starts not in ("task", "replay"):
            raise UserError(f"starts is {starts!r}, but must be 'task' or 'replay'")
        max_episode_steps = require("max_episode_steps", max_episode_steps, Count | None)
        if starts == "replay" and int(agent.replay.size) == 0:
            raise UserError("starts is 'replay', but the agent has stored nothing: let it learn first, or use 'task'")
        self._model, self._agent, self._starts = LearnedModel(agent), agent, starts
        self._task = make(agent.task, agent.config.episode_limit)
        self.observation_space, self.action_space = self._task.observation_space, self._task.action_space
        self.max_episode_steps = self._task.time_limit if max_episode_steps is None else max_episode_steps
        self._state: Floats | None = None
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new episode."""
        super().reset(seed=seed)
        self._steps = 0
        if self._starts == "task":
            start = self._task.reset(int(self.np_random.integers(2**31)) if seed is None else seed)
        else:
            row = self.np_random.integers(int(self._agent.replay.size))
            start = np.asarray(self._agent.replay.storage.observations[row])
        return self._seen(start), {}

    def step(self, action: NDArray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step in the model."""
        if self._state is None:
            raise UserError("step was called before reset: call reset first")
        sample = self._model.sample(self._state, np.asarray(action), int(self.np_random.integers(2**31)))
        self._steps += 1
        terminated = bool(self.np_random.random() >= sample.continuation)
        seen = self._seen(sample.next_observations)
        return seen, float(sample.rewards), terminated, self._steps >= self.max_episode_steps, {}

    def _seen(self, flat: Floats) -> Any:
        """The observation in the task's form, inside of its space; the model goes on from there."""
        observation = self._task.observation(flat)
        (self._state,), _ = self._task.rows(observation)
        return observation

    def close(self) -> None:
        """Free what the task holds."""
        self._task.close()


def q_values(agent: Learner, observations: Any, actions: ArrayLike) -> Floats:
    """Q(s, a) by each of the two critics, [critics, rows]."""
    rows, inputs, single = pairs(agent, observations, actions)
    values = np.asarray(_q_values(agent.agent(0).actor_critic, rows, inputs))
    return values[:, 0] if single else values


def log_ratio(
    agent: Learner, observations: Any, actions: ArrayLike, next_observations: Any, seed: int | None = None
) -> Floats:
    """log p/q of transitions, [rows], by the classifier at one draw of its input noise."""
    rows, inputs, single = pairs(agent, observations, actions)
    after, _ = agent.adapter.rows(next_observations)
    check_rows(rows, after, "next observations")
    ratios = classified(agent, rows, inputs, after, draw_key(seed))
    return ratios[0] if single else ratios


def bound(agent: Learner, episodes: list[Episode]) -> Bound:
    """The lower bound from the episodes' starts, and the log of the discounted return that they obtained."""
    check_classifier(agent)
    state = cast(ModelState, agent.agent(0))
    if not episodes:
        raise UserError("there are no episodes: give those of agent.evaluate(0, 10)")
    metrics = value_diagnostics(agent.algorithm, agent.settings, state.actor_critic, episodes)
    limit, key = agent.adapter.time_limit, jax.random.key(agent.seeds[0])
    metrics |= model_returns(agent.algorithm, agent.settings, state, episodes, limit, key)
    if "bound" not in metrics or "log_return" not in metrics:
        lowest = float(state.world.statistics.rewards.lowest[0])
        raise UserError(
            f"the bound takes the logarithm of rewards, and the lowest of {agent.task_name} was {lowest:g}: use mnm.MnM"
            " or mnm.MnMTight with a reward_offset above minus that, or a task with positive rewards"
        )
    return Bound(metrics["bound"], metrics["log_return"])


def pairs(agent: Learner, observations: Any, actions: ArrayLike) -> tuple[Floats, Floats, bool]:
    """Observations [rows, obs] and actions in [-1, 1], [rows, act], as the networks see them; whether it was one."""
    rows, single = agent.adapter.rows(observations)
    array = np.asarray(actions)
    inputs = agent.adapter.unscale(array[None] if single and array.shape == agent.action_space.shape else array)
    check_rows(rows, inputs, "actions")
    return rows, inputs, single


def classified(agent: Learner, rows: Floats, inputs: Floats, after: Floats, key: PRNGKeyArray) -> Floats:
    """log p/q of transitions as the networks see them."""
    check_classifier(agent)
    state = cast(ClassifierState, agent.agent(0))
    zeros = np.zeros(len(rows), np.float32)
    transitions: Any = (rows, inputs, zeros, after, zeros)
    return np.asarray(_log_ratios(agent.config, state.world, state.classifier, Transitions(*transitions), key))


def check_rows(rows: Floats, others: Floats, name: str) -> None:
    """Refuse columns of different lengths."""
    if len(others) != len(rows):
        raise UserError(f"there are {len(rows)} observations, but {len(others)} {name}: give as many")


def check_classifier(agent: Learner) -> None:
    """Refuse an agent that has none."""
    if not agent.algorithm.has_classifier:
        raise UserError(f"{agent.algorithm.name} has no classifier: use an agent that does, such as mnm.MnMApprox")


def draw_key(seed: int | None) -> PRNGKeyArray:
    """A new key each time, or the one of `seed`."""
    return jax.random.key(np.random.default_rng().integers(2**31) if seed is None else require("seed", seed, Seed))


@jax.jit
def _q_values(
    actor_critic: ActorCritic, observations: Float[Array, "rows obs"], actions: Float[Array, "rows act"]
) -> Float[Array, "critics rows"]:
    return actor_critic.q_values(actor_critic.critics, observations, actions)


@partial(jax.jit, static_argnums=0)
def _log_ratios(
    config: Any, world: World, classifier: Classifier, transitions: Transitions, key: PRNGKeyArray
) -> Float[Array, " rows"]:
    return classifier.trust * log_ratios(config, world, classifier, transitions, key)
