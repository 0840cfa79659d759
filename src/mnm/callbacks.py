"""What can be called while an agent learns, by the names that users of Stable-Baselines3 know.

`agent.learn(10_000, callback=[EvalCallback("best"), MetricsLogger("logs")])`. One of your own extends `BaseCallback`.
An agent evaluates itself (`evaluate_every`, `evaluation_episodes`): a callback is told what was found, and needs no
environment of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mnm.messages import UserError
from mnm.schema import Count, require
from mnm.training.learner import Learner, Row
from mnm.training.metrics import MetricsWriter
from mnm.training.saving import config_as_json


class BaseCallback:
    """Does nothing. From `on_step` and `on_eval`, False ends the training; anything else, None too, goes on."""

    def on_training_start(self, agent: Learner) -> None:
        """When `learn` begins."""

    def on_step(self, agent: Learner) -> bool | None:
        """After every real step, and every 250 updates of the model's warm-up, where `agent.steps` stands still."""
        return None

    def on_eval(self, agent: Learner, row: Row) -> bool | None:
        """After every evaluation; the row's columns are those of docs/train.md: `return`, `return_std`, losses, ..."""
        return None

    def on_training_end(self, agent: Learner) -> None:
        """When `learn` ends, by an error too."""


class FunctionCallback(BaseCallback):
    """A function of the agent that is called after every step."""

    def __init__(self, function: Callable[[Any], bool | None]) -> None:
        self._function = function

    def on_step(self, agent: Learner) -> bool | None:
        """What the function says."""
        return self._function(agent)


class CallbackList(BaseCallback):
    """Several callbacks, one after the other; all of them are asked, and one alone can end the training."""

    def __init__(self, callbacks: Sequence[BaseCallback]) -> None:
        self.callbacks = list(callbacks)

    def on_training_start(self, agent: Learner) -> None:
        """Of each."""
        for callback in self.callbacks:
            callback.on_training_start(agent)

    def on_step(self, agent: Learner) -> bool:
        """Of each."""
        return False not in [callback.on_step(agent) for callback in self.callbacks]

    def on_eval(self, agent: Learner, row: Row) -> bool:
        """Of each."""
        return False not in [callback.on_eval(agent, row) for callback in self.callbacks]

    def on_training_end(self, agent: Learner) -> None:
        """Of each."""
        for callback in self.callbacks:
            callback.on_training_end(agent)


Callbacks = BaseCallback | Callable[[Any], bool | None] | Sequence[BaseCallback | Callable[[Any], bool | None]] | None
"""What `learn` takes: a callback, a function of the agent, several of both, or nothing."""


def as_callback(callbacks: Callbacks) -> CallbackList:
    """All of them as one."""
    several = [] if callbacks is None else callbacks if isinstance(callbacks, list | tuple) else [callbacks]
    made = []
    for one in several:
        if not isinstance(one, BaseCallback) and not callable(one):
            raise UserError(f"callback is {one!r}, but must be a mnm.callbacks.BaseCallback or a function of the agent")
        made.append(one if isinstance(one, BaseCallback) else FunctionCallback(one))
    return CallbackList(made)


def _return_to_choose_by(agent: Learner, row: Row) -> float:
    """The evaluation's mean return. What is learned from data alone is chosen by none: it would no longer be that."""
    if agent.offline:
        raise UserError("the callback chooses by real returns, and the agent learns from data alone: leave it out")
    return row["return"]


class StopTrainingOnRewardThreshold(BaseCallback):
    """Ends the training when the evaluation's mean return reaches a threshold."""

    def __init__(self, reward_threshold: float) -> None:
        self.reward_threshold = reward_threshold

    def on_eval(self, agent: Learner, row: Row) -> bool:
        """Go on while the return is below the threshold."""
        return not _return_to_choose_by(agent, row) >= self.reward_threshold


class EvalCallback(BaseCallback):
    """Keeps the agent with the best evaluation in `best_model_save_path`/best_model.npz, for `mnm.load`.

    `callback_on_new_best` is told of every evaluation that was better than all before. What is best of many evaluations
    was lucky too: evaluate the agent on new episodes, `agent.evaluate(0, 20, seed=1)`, before you report it.
    """

    FILE = "best_model.npz"

    def __init__(
        self, best_model_save_path: str | Path | None = None, callback_on_new_best: BaseCallback | None = None
    ) -> None:
        self.path = None if best_model_save_path is None else Path(best_model_save_path) / self.FILE
        self.callback_on_new_best = callback_on_new_best
        self.best_mean_reward = -math.inf
        """The best evaluation's mean return."""
        self.best_step = 0
        """Its step."""

    def on_eval(self, agent: Learner, row: Row) -> bool | None:
        """Save the agent if it has never been better."""
        mean_return = _return_to_choose_by(agent, row)
        if not mean_return > self.best_mean_reward:
            return None
        self.best_mean_reward, self.best_step = mean_return, agent.steps
        if self.path is not None:
            agent.save(self.path)
        return None if self.callback_on_new_best is None else self.callback_on_new_best.on_eval(agent, row)


class CheckpointCallback(BaseCallback):
    """Saves the agent every `save_freq` real steps as `save_path`/`name_prefix`_N_steps.npz, for `mnm.load`.

    A loaded agent goes on at the start of a new episode; what goes on bit for bit are the runs of `mnm train`.
    """

    def __init__(self, save_freq: int, save_path: str | Path, name_prefix: str = "agent") -> None:
        self.save_freq = require("save_freq", save_freq, Count)
        self.folder, self.name_prefix = Path(save_path), name_prefix
        self._saved = 0

    def on_step(self, agent: Learner) -> None:
        """Save, when it is time."""
        if agent.steps % self.save_freq == 0 and agent.steps > self._saved:
            self._saved = agent.steps
            agent.save(self.folder / f"{self.name_prefix}_{agent.steps}_steps.npz")


class MetricsLogger(BaseCallback):
    """Writes every evaluation into a folder, as `mnm train` does: metrics.csv, evaluations.csv, TensorBoard events.

    In a folder that has them already the new rows go below the old; rows of steps that the agent has yet to take go.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._writer: MetricsWriter | None = None

    def on_training_start(self, agent: Learner) -> None:
        """Open the files."""
        self._writer = MetricsWriter(self.folder, after=agent.evaluated_step)

    def on_eval(self, agent: Learner, row: Row) -> None:
        """A row more."""
        assert self._writer is not None
        self._writer.write(agent.steps, row)
        self._writer.write_returns(agent.steps, agent.evaluated[0])

    def on_training_end(self, agent: Learner) -> None:
        """Close the files."""
        if self._writer is not None:
            self._writer.close()


class WandbLogger(BaseCallback):
    """Sends the agent's settings and every evaluation to Weights & Biases; `settings` are those of `wandb.init`."""

    def __init__(self, **settings: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise UserError(
                "WandbLogger needs the package wandb, which is not installed: pip install 'mnm-rl[wandb]'"
            ) from None
        self._run = wandb.init(**{"project": "mnm", "reinit": "create_new"} | settings)

    def on_training_start(self, agent: Learner) -> None:
        """What is trained, under the names of a run's config.json."""
        about = {"algorithm": agent.algorithm.name, "env": agent.task_name, "seed": agent.seeds[0]}
        self._run.config.update(about | {"settings": config_as_json(agent.config)}, allow_val_change=True)

    def on_eval(self, agent: Learner, row: Row) -> None:
        """A row more."""
        self._run.log(dict(row), step=agent.steps)
