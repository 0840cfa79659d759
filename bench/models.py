"""The model objectives on the same data. Usage: python bench/models.py RUN ROWS [AGENT[,SETTING=VALUE ...] ...]

Takes the first ROWS real transitions of a run's last checkpoint, keeps every tenth apart, trains each agent's model
(and classifier) on the rest as its warm-up does, and prints how well it predicts what was kept apart, and the 1,000
transitions that came next, where a better policy went: the mean squared error of the ensemble's mean, in units of the
normalized change; the negative log-likelihood of the ensemble as a mixture; the squared error of the reward, in units
of its variance.
Example: python bench/models.py runs/HalfCheetah-v4-mbpo-seed0 3000 mbpo mnm_approx mnm_approx,model_weight_decay=0
"""

from __future__ import annotations

import sys
from ast import literal_eval
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from deep import observed
from measure import report
from mnm.agents import ALGORITHMS
from mnm.agents.world_model import World
from mnm.api import configured
from mnm.losses.model import gaussian_nll
from mnm.replay import Replay, Transitions
from mnm.training.driver import from_checkpoint
from mnm.training.programs import new_agents, update_many
from mnm.training.runs import read_run

UPDATES = (1_500, 3_000, 6_000)
NEXT = 1_000


def transitions_of(run: Path) -> Transitions:
    """All that the run has stored."""
    learner = from_checkpoint(read_run(run))
    stored = jax.tree.map(lambda rows: np.asarray(rows[: learner.steps]), learner.replay.storage)
    learner.close()
    return stored


def errors(world: World, rows: Transitions) -> str:
    """How well a model predicts these transitions, in words."""
    rows = jax.tree.map(jnp.asarray, rows)
    inputs = world.inputs(rows.observations, rows.actions)
    changes = world.changes(rows.observations, rows.next_observations)
    means, log_stds = world.target_dynamics.distribution(inputs)
    likelihoods = jax.nn.logsumexp(-gaussian_nll(means, log_stds, changes), axis=0) - np.log(len(means))
    rewards = world.statistics.rewards.normalize(rows.rewards[:, None])
    squared = ((means.mean(axis=0) - changes) ** 2).mean(), ((world.reward_head(inputs) - rewards) ** 2).mean()
    return f"{squared[0]:.3f}, nll {-likelihoods.mean():.1f}, reward {squared[1]:.3f}"


def compare(training: Transitions, kept_apart: Transitions, later: Transitions, text: str) -> None:
    """Train one agent's model, print its errors."""
    name, *settings = text.split(",")
    algorithm = ALGORITHMS[name]
    changed = {key: literal_eval(value) for key, _, value in (setting.partition("=") for setting in settings)}
    config = configured(algorithm, "cpu", "", changed)
    dims = training.observations.shape[1], training.actions.shape[1]
    replay = Replay.empty(len(training.rewards), *dims).add(jax.tree.map(jnp.asarray, training))
    state = observed(algorithm, config, new_agents(algorithm, config, *dims, jax.random.key(0)), replay.storage)
    done = 0
    for updates in UPDATES:
        state, _ = update_many(algorithm.warm_up, config, state, replay, done, updates - done, many=False)
        done = updates
        found = f"kept apart {errors(state.world, kept_apart)}; next {errors(state.world, later)}"
        report(f"{text}, {updates} updates", found)


def main() -> None:
    """Cut the run's transitions, and compare."""
    data, count = transitions_of(Path(sys.argv[1])), int(sys.argv[2])
    if len(data.rewards) < count + NEXT:
        raise SystemExit(f"{sys.argv[1]} has {len(data.rewards)} transitions: ROWS must be at most that less {NEXT}")
    every_tenth = np.arange(len(data.rewards)) % 10 == 0
    first = np.arange(len(data.rewards)) < count
    parts = (first & ~every_tenth, first & every_tenth, np.s_[count : count + NEXT])
    cut = [jax.tree.map(lambda column, part=part: column[part], data) for part in parts]
    for agent in sys.argv[3:] or ("mbpo", "mnm_approx"):
        compare(cut[0], cut[1], cut[2], agent)


if __name__ == "__main__":
    main()
