"""Ours: does MnM's objective make a model lean towards reward? Both objectives on the same data.

Where two agents are compared, their data, policies and critics differ as well as their models. Here one agent's replay
and critics serve all: from it new models are trained, from the same start with the same batches, for likelihood, for
log p/q, and for log p/q with the value term. They start in the same real states, of evaluation episodes that none of
them has learned from, and take the same real actions.
"""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from matplotlib.figure import Figure

from mnm.agents import mbpo, mnm_approx
from mnm.agents.classifier import AdversarialState, update_model_and_classifier
from mnm.agents.mnm_approx import MnMApproxConfig
from mnm.agents.world_model import World
from mnm.compiled import program
from mnm.diagnostics import WINDOW, windows
from mnm.figures.base import Columns, Verdict, stacked, where
from mnm.figures.deep import DeepFigure, RunGrid, agents, tasks
from mnm.figures.progress import PROGRESS, ahead, ahead_by_seed, interval, progress, sign
from mnm.plotting.style import PALETTE
from mnm.replay import Replay
from mnm.training.driver import load_trained
from mnm.training.learner import Learner
from mnm.training.programs import new_agents
from mnm.training.runs import Run
from mnm.training.spec import RunError

OPTIMIST = "mnm_approx"
LIKELIHOOD, RATIO, VALUE = OBJECTIVES = ("likelihood", "log p/q", "log p/q + V")
UPDATES = 5_000
"""Of each new model; as many as the run's own had, if those are fewer."""
EPISODES = 3
"""Of the agent's evaluation, from which the segments are drawn."""


def measure(runs: Sequence[Run]) -> Columns:
    """For every segment: the real progress, and the progress in each of the new models."""
    tables = []
    for run in runs:
        if not run.finished:
            continue
        learner = load_trained(run.folder)
        segments = windows(learner.evaluate(0, EPISODES), np.random.default_rng(run.seed))
        if segments is not None:
            for objective in OBJECTIVES:
                labels = {"env": run.env, "agent": objective, "seed": run.seed}
                tables.append(labels | progress(run.env, retrained(learner, objective), *segments))
        learner.close()
    if not tables:
        raise RunError("retrained_models: no run has finished, so there are no data to train models with")
    return stacked(*tables)


def retrained(learner: Learner, objective: str) -> World:
    """A new model, trained from the agent's replay by one objective; critics and statistics are the agent's."""
    config, trained = learner.settings, learner.agent(0)
    assert isinstance(config, MnMApproxConfig)
    assert isinstance(trained, AdversarialState)
    start = new_agents(mnm_approx.ALGORITHM, config, *learner.dims, jax.random.key(learner.seeds[0]))
    parts = trained.actor_critic, trained.world.statistics
    start = eqx.tree_at(lambda s: (s.actor_critic, s.world.statistics), start, parts)
    count = min(UPDATES, learner.updates)
    world: World = _train(config, objective, count, start, learner.replay, jax.random.key(learner.seeds[0]))
    return world


@program(static=("config", "objective", "count"))
def _train(
    config: MnMApproxConfig, objective: str, count: int, state: AdversarialState, replay: Replay, key: PRNGKeyArray
) -> World:
    def step(state: AdversarialState, key: Array) -> tuple[AdversarialState, None]:
        batch_key, model_key = jax.random.split(key)
        batch = replay.sample(batch_key, config.batch_size)
        if objective == LIKELIHOOD:
            world, _ = mbpo.update_model(config, state.world, batch)
            return eqx.tree_at(lambda s: s.world, state, world), None
        weight = None if objective == RATIO else jnp.asarray(config.value_weight)
        world, classifier, _ = update_model_and_classifier(config, state, batch, weight, config.value_term, model_key)
        return eqx.tree_at(lambda s: (s.world, s.classifier), state, (world, classifier)), None

    return jax.lax.scan(step, state, jax.random.split(key, count))[0].world


def draw(columns: Columns) -> Figure:
    """For each task: how far each model runs ahead of reality, the mean of each seed and of all with its interval."""
    names = tasks(columns)
    figure = Figure(figsize=(3.4 * len(names) + 0.4, 3.2), layout="constrained")
    for panel, env in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        rows = where(columns, env=env)
        for place, (objective, colour) in enumerate(zip(agents(rows), PALETTE, strict=False)):
            own = where(rows, agent=objective)
            gains, by_seed = ahead(own), [one.mean() for one in ahead_by_seed(own).values()]
            panel.plot([place] * len(by_seed), by_seed, "o", color=colour, alpha=0.5, markersize=4)
            low, high = interval(gains)
            panel.plot([place, place], [low, high], color=colour, linewidth=3)
            panel.plot(place, gains.mean(), "_", color=colour, markersize=16, markeredgewidth=3)
        panel.axhline(0.0, color="0.6", linewidth=1, linestyle=":")
        panel.set_xticks(range(len(agents(rows))), agents(rows))
        panel.set_xlim(-0.5, len(agents(rows)) - 0.5)
        panel.set(
            title=env.removeprefix("mnm/"), ylabel=f"ahead of reality after {WINDOW} steps ({PROGRESS[env].unit})"
        )
    return figure


def judge(columns: Columns) -> list[Verdict]:
    """Does the value term, and does the adversary, move a model towards the reward?"""
    verdicts = []
    for env in tasks(columns):
        gains = {name: ahead_by_seed(where(columns, env=env, agent=name)) for name in OBJECTIVES}
        claims = {
            "MnM-approx's objective makes a model run ahead of reality": list(gains[VALUE].values()),
            "it makes a model run further ahead than likelihood does, from the same data": [
                gains[VALUE][seed] - gains[LIKELIHOOD][seed] for seed in gains[VALUE]
            ],
            "so does its value term alone, beside log p/q without it": [
                gains[VALUE][seed] - gains[RATIO][seed] for seed in gains[VALUE]
            ],
        }
        verdicts += [sign(claim, env, seeds) for claim, seeds in claims.items() if seeds]
    return verdicts


FIGURE = DeepFigure("retrained_models", (RunGrid(tuple(PROGRESS), (OPTIMIST,)),), draw, judge, measure)
