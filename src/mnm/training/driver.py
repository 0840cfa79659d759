"""The work of `mnm train` and `mnm resume`: learn, write down what is measured, save, and stop in good order."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from mnm.agents import find_algorithm
from mnm.agents.base import ConfigError
from mnm.envs.adapter import TaskError
from mnm.messages import FAILED, fail, short
from mnm.schema import Count, refused
from mnm.training.checkpoints import (
    CheckpointError,
    MismatchError,
    has_checkpoints,
    restore_checkpoints,
    save_checkpoint,
)
from mnm.training.datasets import open_dataset
from mnm.training.learner import Learner, Row
from mnm.training.lock import locked
from mnm.training.metrics import MetricsWriter, silent_event_threads
from mnm.training.monitor import DivergedError, DivergenceMonitor, check_losses, check_numbers
from mnm.training.progress import ProgressDisplay
from mnm.training.runs import AGENT, CONFIG, Run, read_run, write_config
from mnm.training.saving import config_from_json, load
from mnm.training.spec import RunError, RunSpec
from mnm.trust import check_trusted


def resume_run(folder: Path, *, trusted: bool = False, steps: int | None = None) -> int:
    """Go on with a run from its last checkpoint, or from its beginning if it was stopped before the first.

    Seeds that were trained together go on together. `steps` is a new number of steps in all.
    """
    run = read_run(folder)
    check_trusted(folder / CONFIG, run.env, run.algorithm, trusted=trusted)
    together = [_with_steps(one, steps) for one in _together(run)]
    run = _with_steps(run, steps)
    spec = run.spec
    if run.finished and (folder / AGENT).exists():
        print(f"{folder} is finished: {spec.steps} {spec.clock}")
        return 0
    folders = [one.folder for one in together]
    with locked(folders):
        learner = from_checkpoint(run) if has_checkpoints(folders) else _learner(run)
        if learner.steps > spec.steps:
            learner.close()
            raise RunError(f"{folder}: its checkpoint is of step {learner.steps}, and it shall end at {spec.steps}")
        if steps is not None:
            for one in together:
                write_config(one.folder, one.config)
        print(f"{folder}: going on from {spec.clock[:-1]} {learner.steps} of {spec.steps}", flush=True)
        return run_training(learner, folders, spec)


def _with_steps(run: Run, steps: int | None) -> Run:
    """The run with another number of steps, not below what is done."""
    if steps is None:
        return run
    if why := refused(steps, Count):
        raise RunError(f"--steps is {short(steps)}, but must be {why}")
    done = int(max(run.metrics.get("step", []), default=0))
    if steps < done:
        raise RunError(f"--steps is {steps}, but {run.folder} has done {done}: name as many or more")
    return Run(run.folder, {**run.config, "steps": steps})


def from_checkpoint(run: Run) -> Learner:
    """The learner as it was last saved, with the seeds that were trained together."""
    learner = _learner(run, resumes=True)
    try:
        for warning in restore_checkpoints([one.folder for one in _together(run)], learner):
            print(f"mnm: {warning}", file=sys.stderr)
    except (CheckpointError, MismatchError) as error:
        learner.close()
        raise RunError(str(error)) from error
    return learner


def load_trained(folder: Path, *, trusted: bool = False) -> Learner:
    """The agent of the run in a folder: the saved one, or the last checkpoint's."""
    run = read_run(folder)
    check_trusted(folder / CONFIG, run.env, run.algorithm, trusted=trusted)
    return load(folder / AGENT, run.env or None) if (folder / AGENT).exists() else from_checkpoint(run)


def run_training(learner: Learner, folders: Sequence[Path], spec: RunSpec) -> int:
    """Learn up to the run's last step; the exit code: 0, 1 failed, 128 and more when a signal stopped it."""
    try:
        writers = [MetricsWriter(folder, after=learner.evaluated_step) for folder in folders]
    except OSError as error:
        raise RunError(f"{folders[0]}: {error.strerror}") from error
    monitors = [DivergenceMonitor() for _ in folders]
    places = {seed: index for index, seed in enumerate(learner.seeds)}
    send = _weights_and_biases(folders, spec) if spec.wandb else None
    saved_at = time.monotonic()
    saved_step = learner.steps

    def on_eval(seed: int, step: int, row: Row) -> None:
        index = places[seed]
        writers[index].write(step, row)
        if learner.evaluated[index]:
            writers[index].write_returns(step, learner.evaluated[index])
        display.row(seed, step, row)
        check_losses(row)
        for warning in monitors[index].warnings(row):
            print(f"mnm: seed {seed}, step {step}: {warning}", file=sys.stderr, flush=True)
        if send is not None:
            send(index, step, row)

    def save() -> None:
        nonlocal saved_at, saved_step
        check_numbers(learner.state)
        for index, folder in enumerate(folders):
            save_checkpoint(folder, learner, index)
        saved_at, saved_step = time.monotonic(), learner.steps

    def save_agents() -> None:
        for index, folder in enumerate(folders):
            learner.save(folder / AGENT, index)

    def save_now_and_then() -> None:
        if time.monotonic() - saved_at >= 60 * spec.checkpoint_minutes:
            save()

    with _signals() as stopped, silent_event_threads(), ProgressDisplay() as display:
        try:
            learner.learn(
                spec.steps - learner.steps,
                evaluate_every=spec.evaluate_every,
                evaluation_episodes=spec.evaluation_episodes,
                evaluate=spec.evaluates,
                on_eval=on_eval,
                on_progress=display.progress,
                on_step=save_now_and_then,
                should_stop=lambda: bool(stopped),
            )
            save()
            if learner.evaluated_step >= spec.steps:  # a signal that comes too late stops nothing
                stopped.clear()
                save_agents()
        except TaskError as error:  # what was learned up to here is good
            save_agents()
            fail(str(error))
            return FAILED
        except CheckpointError as error:
            print(f"mnm: {error}", file=sys.stderr)
            return FAILED
        except OSError as error:
            print(f"mnm: {error.strerror or error}", file=sys.stderr)
            return FAILED
        except DivergedError as error:
            print(
                f"mnm: step {learner.steps}: {error}. The last good checkpoint is of step {saved_step}", file=sys.stderr
            )
            return FAILED
        finally:
            for writer in writers:
                writer.close()
            learner.close()
    for folder in folders:
        done = f"{learner.steps} {spec.clock}"
        how = f"stopped after {done}; mnm resume {folder} goes on" if stopped else done
        print(f"{folder}: {how}")
    return 128 + stopped[0] if stopped else 0


def _together(run: Run) -> list[Run]:
    """The run and those that were trained with it as one program, in their order."""
    spec = run.spec
    if len(spec.seeds_together) == 1:
        return [run]
    return [read_run(run.folder.parent / replace(spec, seed=seed).folder_name) for seed in spec.seeds_together]


def _learner(run: Run, *, resumes: bool = False) -> Learner:
    """A new learner as the run's configuration describes it; with `resumes`, one that a checkpoint will fill."""
    spec = run.spec
    try:
        algorithm = find_algorithm(spec.algorithm)
        config = config_from_json(algorithm, spec.settings)
    except (TypeError, ConfigError) as error:
        raise RunError(f"{run.folder / CONFIG}: {error}") from error
    if spec.offline is None:
        return Learner(algorithm, config, spec.env, spec.seeds_together, spec.steps)
    dataset = open_dataset(spec.offline["dataset"])
    task = spec.env or dataset.recorded()
    learner = Learner(algorithm, config, task, spec.seeds_together, dataset=dataset, resumes=resumes)
    if learner.digest != spec.offline["digest"]:
        learner.close()
        raise RunError(
            f"{run.folder}: {dataset.name} has changed: it had {spec.offline['rows']} rows when the run began, and has"
            f" {dataset.rows} others now: bring it back, or start again with mnm train ... --overwrite"
        )
    return learner


@contextmanager
def _signals() -> Iterator[list[int]]:
    """A list that gets the number of the first SIGINT or SIGTERM; a second one acts as it always does."""
    stopped: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, _: FrameType | None) -> None:
        stopped.append(number)
        print("mnm: saving, then stopping; once more to stop at once", file=sys.stderr, flush=True)
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in before:
        signal.signal(number, stop)
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _weights_and_biases(folders: Sequence[Path], spec: RunSpec) -> Any:
    import wandb

    runs = [
        wandb.init(project="mnm", name=folder.name, config=spec.as_json(), dir=str(folder), reinit="create_new")
        for folder in folders
    ]
    return lambda index, step, row: runs[index].log(dict(row), step=step)
