"""The model objectives on the same data. Usage: python bench/models.py RUN [AGENT[,SETTING=VALUE ...] ...]

Takes the real transitions of a run's last checkpoint, keeps a sixth of them apart, trains each agent's model (and
classifier) on the rest as its warm-up does, and prints the error on what was kept apart, in units of the
normalized change.
Example: python bench/models.py runs/HalfCheetah-v4-mbpo-seed0 mbpo mnm_approx mnm_approx,input_noise=0.03
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
from mnm.agents.algorithm import new_agents, update_many
from mnm.analysis.diagnostics import classifier_diagnostics, model_errors
from mnm.api import configured
from mnm.replay import Replay, Transitions
from mnm.training.runs import read_run
from mnm.training.work import from_checkpoint

UPDATES, CHUNK = 20_000, 5_000
KEPT_APART = 6


def transitions_of(run: Path) -> Transitions:
    """All that the run has stored."""
    learner = from_checkpoint(read_run(run))
    stored = jax.tree.map(lambda rows: np.asarray(rows[: learner.steps]), learner.replay.storage)
    learner.close()
    return stored


def compare(data: Transitions, held_out: Transitions, text: str) -> None:
    """Train one agent's model, print its errors."""
    name, *settings = text.split(",")
    algorithm = ALGORITHMS[name]
    changed = {key: literal_eval(value) for key, _, value in (setting.partition("=") for setting in settings)}
    config = configured(algorithm, "cpu", "", changed)
    dims = data.observations.shape[1], data.actions.shape[1]
    replay = Replay.empty(len(data.rewards), *dims).add(jax.tree.map(jnp.asarray, data))
    state = observed(algorithm, config, new_agents(algorithm, config, *dims, jax.random.key(0)), replay.storage)
    said = []
    for number in range(0, UPDATES, CHUNK):
        state, _ = update_many(algorithm.warm_up, config, state, replay, number, CHUNK, many=False)
        errors = model_errors(state.world, held_out, None, jax.random.key(0))
        text_of = f"{float(errors['model_error_1']):.3f}"
        if hasattr(state, "classifier"):
            found = classifier_diagnostics(config, state.world, state.classifier, held_out, jax.random.key(0))
            text_of += f" (accuracy {float(found['held_out_accuracy']):.2f})"
        said.append(f"{number + CHUNK}: {text_of}")
    report(text, "; ".join(said), f"constant {float(errors['constant_error_1']):.2f}")


if __name__ == "__main__":
    rows = transitions_of(Path(sys.argv[1]))
    order = np.random.default_rng(0).permutation(len(rows.rewards))
    cut = len(order) // KEPT_APART
    kept, rest = (jax.tree.map(lambda column, part=part: column[part], rows) for part in (order[:cut], order[cut:]))
    for agent in sys.argv[2:] or ("mbpo", "mnm_approx"):
        compare(rest, kept, agent)
