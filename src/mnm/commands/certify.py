"""`mnm certify`: a number that a policy's true return exceeds with a stated probability, from data or by episodes."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mnm.commands.picture import check_picture, write
from mnm.messages import FAILED, NOT_CERTIFIED, UserError, console, fail

if TYPE_CHECKING:
    from mnm.analysis.episodes import EpisodeCertificate
    from mnm.tabular.certificate import Certificate

LISTED = 5
"""Pairs that are listed, of those whose doubt costs most."""
FOR_DATA = ("policy", "discount", "states", "actions", "start", "successors", "random_rewards")
FOR_RUNS = ("episodes", "return_range", "seed", "trust")


@dataclass(frozen=True)
class Certify:
    """A number that a policy's true return exceeds with a stated probability. Exit code 3: nothing is certified.

    SOURCE is a file of transitions of a finite MDP (state, action, reward, next_state; .csv or .npz): the smallest
    return, discounted, in all dynamics that the data allow. Or SOURCE is a run's folder: the return, undiscounted, of
    fresh episodes of its agent; the answer is kept in the folder, for the report. Examples: mnm certify data.csv
    --policy best --states 6 --actions 2 --discount 0.9 --reward-range 0 1; mnm certify runs/Pendulum-v1-sac-seed0
    --episodes 100 --reward-range -16.3 0 --at-least -300
    """

    source: tyro.conf.Positional[Path]
    """The file of transitions, or the run's folder."""
    confidence: float = 0.95
    """The probability with which the certificate shall hold."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest reward that the task can ever pay. For data it must be said, here or in the file."""
    at_least: float | None = None
    """Certify this return: exit code 0 if it is, 3 if not. Episodes are played until it is decided."""
    policy: str | None = None
    """Data: the policy's file (.npz or .json: policy [states, actions], or actions [states]), or best."""
    discount: float | None = None
    """Data: of the return."""
    states: int | None = None
    """Data: how many states there are; by default as many as the policy's file has."""
    actions: int | None = None
    """Data: how many actions there are; by default as many as the policy's file has."""
    start: tuple[float, ...] = ()
    """Data: the start state's number (default 0), or one probability for each state."""
    successors: int | None = None
    """Data: how many different states can follow a pair of state and action at most; by default any number."""
    random_rewards: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Data: the reward of a pair of state and action may differ from time to time."""
    episodes: int | None = None
    """Runs: how many fresh episodes, at most (default 100)."""
    return_range: tuple[float, float] | None = None
    """Runs: the lowest and the highest return of an episode; by default from --reward-range and the time limit."""
    seed: int | None = None
    """Runs: decides where the episodes start (default 0). To try seeds until one certifies is no certificate."""
    trust: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Runs: import the module of a task or agent that the run names as module:name: it runs that module's code."""
    picture: Path | None = None
    """Draw the certificate here, as .png, .svg or .pdf: beside what the model promises; of a run, with its returns."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON instead of lines."""


def certify(command: Certify) -> int:
    """The exit code: 0 certified, 1 a solver failed, 2 bad input, 3 not certified."""
    is_run = command.source.is_dir()
    for name in FOR_DATA if is_run else FOR_RUNS:
        if getattr(command, name) not in (None, False, ()):
            kinds = ("transitions", "a run") if is_run else ("a run", "a file")
            return fail(f"--{name.replace('_', '-')} is for {kinds[0]}, and {command.source} is {kinds[1]}")
    check_picture(command.picture)
    return certify_run(command) if is_run else certify_data(command)


def certify_data(command: Certify) -> int:
    """From transitions."""
    from rich.console import Console
    from rich.text import Text

    from mnm.tabular.evaluation import ConvergenceError

    try:
        with Console(stderr=True).status(Text(f"certifying {command.source} ...")):
            certificate = data_certificate(command)
            answer = certificate.as_json(LISTED)  # what takes long, or can fail to converge, is computed here
    except ConvergenceError as error:
        print(f"mnm: {command.source}: {error}", file=sys.stderr)
        return FAILED
    value, asked = certificate.value, command.at_least
    reason = certificate.why_not
    if not reason and asked is not None and value < asked:
        reason = f"the certificate {value:.6g} is below the {asked:g} asked for"
    if command.picture is not None:
        from mnm.plotting.certificate import draw_data_certificate

        write(draw_data_certificate(certificate, asked, LISTED), command.picture)
    if command.json:
        answer |= {"certified": not reason, "reason": reason, "at_least": asked}
        print(json.dumps({"source": str(command.source)} | answer, allow_nan=False))
    else:
        print_data_certificate(command, certificate, reason)
    return NOT_CERTIFIED if reason else 0


def data_certificate(command: Certify) -> Certificate:
    """The certificate that the command asks for; what a file says counts where no flag does."""
    from mnm.tabular.certificate import certify as certify_policy
    from mnm.tabular.files import InputError, read_policy
    from mnm.tabular.mdp import MDPError
    from mnm.tabular.transitions import read_transitions

    data, facts = read_transitions(command.source)
    flags = {
        "discount": command.discount,
        "reward_range": command.reward_range,
        "num_states": command.states,
        "num_actions": command.actions,
        "start": command.start[0] if len(command.start) == 1 else command.start or None,
    }
    asked: dict[str, Any] = facts | {name: value for name, value in flags.items() if value is not None}
    for name, flag in (("discount", "--discount"), ("reward_range", "--reward-range")):
        if name not in asked:
            raise InputError(f"{command.source}: it does not say the {name.replace('_', ' ')}: add {flag}")
    if command.policy is None:
        raise InputError("the policy is missing: --policy FILE, or --policy best")
    policy: Any = command.policy
    if policy != "best":
        policy = read_policy(policy, asked.get("num_actions"))
    elif not {"num_states", "num_actions"} <= set(asked):
        raise InputError(
            f"{command.source}: how many states and actions there are must be said, as the data may not show all of "
            "them: add --states and --actions"
        )
    try:
        return certify_policy(
            data,
            policy,
            confidence=command.confidence,
            successors=command.successors,
            random_rewards=command.random_rewards,
            **asked,
        )
    except MDPError as error:
        raise InputError(f"{command.source}: {error}") from None


def print_data_certificate(command: Certify, certificate: Certificate, reason: str) -> None:
    """What is printed of a certificate from data."""
    from rich.table import Table

    from mnm.tabular.mdp import at

    states, actions = certificate.policy.shape
    visits = certificate.counts.visits
    print(
        f"{command.source}: {visits.sum():.0f} transitions, {states} states, {actions} actions, discount "
        f"{certificate.known.discount:g}; {(visits == 0).sum()} of {visits.size} pairs never tried"
    )
    if reason:
        print(f"not certified: {reason}")
    else:
        print(
            f"certified: with probability {certificate.confidence:g} the policy's return is at least "
            f"{certificate.value:.6g}"
        )
    print(f"the plug-in model promises {certificate.promise:.6g}, which the data do not guarantee")
    for name, value in certificate.bounds.items():
        print(f"{name}, in the plug-in model: {value:.6g}")
    if command.policy == "best":
        chosen = certificate.policy.argmax(axis=1)
        print(
            f"the policy of the largest certificate: {' '.join(map(str, chosen[:40]))}{' ...' if states > 40 else ''}"
        )
    table = Table(title="What doubt costs most")
    for heading in ("pair", "samples", "costs", "as many samples again would add"):
        table.add_column(heading, justify="left" if heading == "pair" else "right")
    for cost in certificate.costliest(LISTED):
        gain = f"{cost.gain:.4g}" if cost.samples else "unknown"
        bound = "" if cost.samples else "at most "
        table.add_row(at(cost.state, cost.action), str(cost.samples), f"{bound}{cost.cost:.4g}", gain)
    console().print(table)


def certify_run(command: Certify) -> int:
    """By fresh episodes."""
    from mnm.analysis.certificates import keep_certificate
    from mnm.analysis.episodes import as_json, certify_agent, range_of_returns
    from mnm.commands.evaluate import never_but
    from mnm.training.driver import load_trained
    from mnm.training.progress import COMPILING, Activity

    if command.return_range is None and command.reward_range is None:
        return fail("the range of returns must be said: --return-range LOW HIGH, or --reward-range LOW HIGH")
    if command.seed is not None and command.seed < 0:
        return fail(f"--seed is {command.seed}, but must be 0 or more")
    episodes = 100 if command.episodes is None else command.episodes
    try:
        with Activity() as activity:
            activity.begin(f"loading {command.source}")
            learner = load_trained(command.source, trusted=command.trust)
            limits = command.return_range
            if limits is None:
                assert command.reward_range is not None
                limits = range_of_returns(command.reward_range, learner.adapter.time_limit)
            activity.begin(f"playing up to {episodes} episodes of {learner.task_name}", COMPILING)
            certificate = certify_agent(
                learner,
                episodes,
                limits,
                confidence=command.confidence,
                at_least=command.at_least,
                seed=command.seed or 0,
                should_stop=never_but(activity.step),
            )
    except UserError as error:
        return fail(str(error))
    about = {
        "run": str(command.source),
        "env": learner.task_name,
        "agent": learner.algorithm.name,
        "steps": learner.steps,
        "seed": command.seed or 0,
    }
    learner.close()
    if command.picture is not None:
        from mnm.plotting.certificate import draw_episode_certificate
        from mnm.plotting.style import agent_name

        title = f"{agent_name(learner.algorithm.name)} after {learner.steps:,} steps on {learner.task_name}"
        write(draw_episode_certificate(certificate, title), command.picture)
    answer = as_json(certificate, about)
    if command.json:
        print(json.dumps(answer, allow_nan=False))
    else:
        print_episode_certificate(about, certificate)
    try:
        keep_certificate(command.source, answer)
    except UserError as error:  # the answer stands, in a folder that cannot be written to
        print(f"mnm: the certificate is not kept for the report: {error}", file=sys.stderr)
    return 0 if certificate.certified else NOT_CERTIFIED


def print_episode_certificate(about: dict[str, Any], certificate: EpisodeCertificate) -> None:
    """What is printed of a certificate by episodes."""
    from mnm.analysis.certificates import PROMISES

    returns = certificate.returns
    low, high = certificate.return_range
    print(
        f"{about['run']}: {about['agent']} after {about['steps']} steps on {about['env']}:"
        f" {len(returns)} fresh episodes, return {sum(returns) / len(returns):.6g} on average,"
        f" {min(returns):.6g} to {max(returns):.6g},"
        f" declared {low:g} to {high:g}"
    )
    if certificate.certified:
        print(
            f"certified: with probability {certificate.confidence:g} the expected return, undiscounted, is at least"
            f" {certificate.lower:.6g}"
        )
    else:
        print(f"not certified: {certificate.why_not}")
    for name, words in PROMISES.items():
        if name in certificate.promises:
            print(f"{words}: {certificate.promises[name]:.6g}")
