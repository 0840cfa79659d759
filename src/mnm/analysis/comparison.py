"""Agents compared over seeds: scores on each environment, intervals, tests against a baseline, and warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mnm.analysis.statistics import (
    SIGNIFICANT,
    bootstrap_interval,
    interquartile_mean,
    is_significant,
    mean_probability_of_improvement,
    permutation_p_value,
    probability_of_improvement,
    smallest_possible_p,
)
from mnm.messages import UserError, nearest

if TYPE_CHECKING:
    from mnm.training.runs import Run


COVERAGE = {2: 52, 3: 73, 4: 86}
"""How often, in percent, the 95 % interval of so few seeds holds the true value, if scores are normal."""


class CompareError(UserError):
    """Runs that cannot be compared as asked for; the message is one line."""


@dataclass(frozen=True)
class Group:
    """The runs of one agent in one configuration on one environment."""

    agent: str
    runs: list[Run]
    curves: NDArray
    """[seeds, steps]"""
    scores: NDArray
    """[seeds], at the step that is compared."""


@dataclass(frozen=True)
class Score:
    """An agent's numbers on one environment; nan where there is none."""

    agent: str
    seeds: int
    mean: float
    iqm: float
    low: float
    high: float
    probability_of_improvement: float
    p_value: float


@dataclass(frozen=True)
class Aggregate:
    """An agent against the baseline over several environments, or over several data sets."""

    agent: str
    learned_from: str
    """Real steps, or data."""
    environments: int
    probability_of_improvement: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """All that is compared on one environment; of runs that learned from data, on one data set."""

    env: str
    data: Mapping[str, Any] | None
    """That all runs learned from, if they took no real steps."""
    setting: str
    """Environment and data in words."""
    clock: str
    """What a step is: "steps", or "updates" from data."""
    step: int
    steps: list[int]
    """Those at which all runs were evaluated."""
    groups: dict[str, Group]
    baseline: Group | None
    notes: list[str]
    """About the runs themselves."""

    @cached_property
    def scores(self) -> list[Score]:
        """A row per agent."""
        return [score(group, self.baseline) for group in self.groups.values()]

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before believing the numbers."""
        return [*self.notes, *_too_few(self.groups.values(), self.baseline)]


def compare_runs(runs: Sequence[Run], metric: str, at: int | None, baseline: str | None) -> list[Comparison]:
    """One comparison per environment and data set, of all runs that have measured something."""
    measured = [run for run in runs if run.metrics.get("step")]
    if not measured:
        raise CompareError(f"{runs[0].folder}{' and the others' if len(runs) > 1 else ''}: nothing is measured yet")
    known = sorted({name for run in measured for name in run.metrics} - {"step"})
    if metric not in known:
        raise CompareError(
            f"no run has a metric {metric!r}{nearest(metric, known)}; known: {', '.join(known)}{_unplayed(measured)}"
        )
    agents = {setting: label_agents(same) for setting, same in by_setting(measured).items()}
    if baseline is not None and not any(_labels(groups, baseline) for groups in agents.values()):
        found = sorted({label for groups in agents.values() for label in groups})
        raise CompareError(
            f"--baseline: no measured run is of an agent {baseline!r}{nearest(baseline, found)}; "
            f"there are: {', '.join(found)}"
        )
    return [_compare_on(setting, groups, metric, at, baseline) for setting, groups in agents.items()]


def by_setting(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs that may be compared, together: of one task, and of one data set if they learned from data alone."""
    ordered = sorted(runs, key=lambda run: (run.env, run.data is not None, run.setting))
    return {setting: [run for run in runs if run.setting == setting] for setting in (run.setting for run in ordered)}


def kept_apart(runs: Iterable[Run]) -> list[str]:
    """A word for each task on which runs learned from different things, and are therefore not compared."""
    settings: dict[str, set[str]] = {}
    for run in runs:
        settings.setdefault(run.env, set()).add(run.setting)
    return [
        f"{env}: compared apart, since they did not learn from the same: "
        + "; ".join("runs with real steps" if setting == env else setting for setting in sorted(found))
        for env, found in sorted(settings.items())
        if env and len(found) > 1
    ]


def label_agents(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of one setting by agent; those of an agent whose configurations differ are kept apart.

    Their labels name what differs, such as sac:scale=quick. A scale sets many settings at once and stands for them.
    """
    groups: dict[str, list[Run]] = {}
    for algorithm in sorted({run.algorithm for run in runs}):
        same = [run for run in runs if run.algorithm == algorithm]
        differing = differences(same)
        if "scale" in differing:
            scales = [[run for run in same if run.config["scale"] == scale] for scale in _once(same, "scale")]
            within = {name for some in scales for name in differences(some)}
            differing = [name for name in differing if name == "scale" or name in within]
        for run in same:
            values = ",".join(f"{name}={_short(configuration(run).get(name))}" for name in differing)
            groups.setdefault(f"{algorithm}:{values}" if differing else algorithm, []).append(run)
    return dict(sorted(groups.items()))


def configuration(run: Run) -> dict[str, Any]:
    """What makes two runs of an agent repetitions of one experiment, if it is the same in both.

    Not the number of steps or the time between evaluations: runs are compared at steps that all have reached.
    """
    settings = run.config.get("settings")
    common = {name: run.config.get(name) for name in ("scale", "evaluation_episodes")}
    return common | (settings if isinstance(settings, dict) else {})


def differences(runs: Sequence[Run]) -> list[str]:
    """The names in which the runs' configurations differ."""
    configurations = [configuration(run) for run in runs]
    names = dict.fromkeys(name for one in configurations for name in one)
    return [name for name in names if any(one.get(name) != configurations[0].get(name) for one in configurations)]


def score(group: Group, baseline: Group | None) -> Score:
    """The numbers of one agent; none if one of its seeds has no finite score, for any other choice would flatter it."""
    scores = group.scores
    mean = iqm = low = high = probability = p_value = nan
    if np.isfinite(scores).all():
        mean, iqm = float(scores.mean()), float(interquartile_mean(scores))
        low, high = bootstrap_interval([scores], interquartile_mean)
        if baseline is not None and baseline is not group and np.isfinite(baseline.scores).all():
            probability = float(probability_of_improvement(scores, baseline.scores))
            p_value = permutation_p_value(scores, baseline.scores)
    return Score(group.agent, len(scores), mean, iqm, low, high, probability, p_value)


def curve(group: Group) -> NDArray:
    """[iqm, low, high] at every common step; nan where a seed has no finite value, or is the only one."""
    columns = group.curves.T
    rows = [
        (interquartile_mean(column), *bootstrap_interval([column], interquartile_mean))
        if np.isfinite(column).all()
        else (nan, nan, nan)
        for column in columns
    ]
    return np.array(rows, dtype=float).T


def aggregates(comparisons: Sequence[Comparison]) -> list[Aggregate]:
    """The mean probability of improvement of each agent that meets the baseline on at least two environments.

    Returns of different environments have no common unit, and this needs none. What was learned from data is a mean
    of its own, over data sets.
    """
    meetings: dict[tuple[str, str], list[NDArray]] = {}
    for one in comparisons:
        for group in one.groups.values():
            if one.baseline is None or group is one.baseline:
                continue
            if np.isfinite(group.scores).all() and np.isfinite(one.baseline.scores).all():
                place = ("real steps" if one.data is None else "data", group.agent)
                meetings.setdefault(place, []).extend([group.scores, one.baseline.scores])
    found = []
    for (learned_from, agent), strata in sorted(meetings.items(), key=lambda item: (item[0][0] == "data", item[0])):
        if len(strata) > 2:
            low, high = bootstrap_interval(strata, mean_probability_of_improvement)
            probability = float(mean_probability_of_improvement(*strata))
            found.append(Aggregate(agent, learned_from, len(strata) // 2, probability, low, high))
    return found


def unmeasured(runs: Iterable[Run]) -> list[str]:
    """A warning for each run that there is nothing to compare of."""
    return [f"{run.folder} has measured nothing yet: it is left out" for run in runs if not run.metrics.get("step")]


def different_versions(runs: Iterable[Run]) -> list[str]:
    """A warning for each library of which the runs used several versions."""
    used: dict[str, set[str]] = {}
    for run in runs:
        versions = run.config.get("versions")
        for name, version in (versions if isinstance(versions, dict) else {}).items():
            used.setdefault(name, set()).add(str(version))
    return [
        f"the runs used different versions of {name}: {', '.join(sorted(found))}"
        for name, found in used.items()
        if len(found) > 1
    ]


def _compare_on(
    setting: str, agents: dict[str, list[Run]], metric: str, at: int | None, baseline: str | None
) -> Comparison:
    """The comparison in one setting, and everything about its runs that a reader must know."""
    for agent, runs in agents.items():
        _check_seeds(setting, agent, runs)
    first = next(iter(agents.values()))[0]
    clock = first.clock
    notes = [*_different_configurations(agents), *(note for runs in agents.values() for note in _unfinished(runs))]
    values = {run.folder: _measured(run, metric) for runs in agents.values() for run in runs}
    steps = sorted(set.intersection(*(set(by_step) for by_step in values.values())))
    if not steps:
        raise CompareError(f"{setting}: there is no {clock[:-1]} at which all runs were evaluated; compare fewer runs")
    if at is not None and at not in steps:
        without = next(folder for folder, by_step in values.items() if at not in by_step)
        raise CompareError(
            f"--at {at}: {without} was not evaluated at that {clock[:-1]}; all runs on {setting} were at "
            f"{_listed(steps)}: "
            "choose one of these, or compare fewer runs"
        )
    step = steps[-1] if at is None else at
    groups = {}
    for agent, runs in agents.items():
        curves = np.array([[values[run.folder][one] for one in steps] for run in runs])
        groups[agent] = Group(agent, runs, curves, curves[:, steps.index(step)])
        notes += _not_finite(groups[agent], metric, step, steps, clock)
    labels = _labels(agents, baseline) if baseline is not None else []
    if len(labels) > 1:
        raise CompareError(f"--baseline {baseline}: on {setting} it is several: name one of {', '.join(labels)}")
    if baseline is not None and not labels:
        notes.append(f"there is not a run of the baseline {baseline}: nothing is tested")
    rival = groups[labels[0]] if labels else None
    return Comparison(first.env, first.data, setting, clock, step, steps, groups, rival, notes)


def _labels(agents: dict[str, list[Run]], agent: str) -> list[str]:
    """The groups that a label, or an algorithm's bare name, means."""
    return [label for label, runs in agents.items() if agent in (label, runs[0].algorithm)]


def _measured(run: Run, metric: str) -> dict[int, float]:
    """The metric by step; nan where the run has none. A step that was measured again counts as the last time."""
    steps = [int(step) for step in run.metrics["step"]]
    return dict(zip(steps, run.metrics.get(metric, [nan] * len(steps)), strict=True))


def _unplayed(runs: Iterable[Run]) -> str:
    """Why a run from data may have no return."""
    unplayed = any(run.data is not None and not run.data["evaluate"] for run in runs)
    return "; a run from data has returns only if it was trained with --evaluate" if unplayed else ""


def _check_seeds(setting: str, agent: str, runs: Sequence[Run]) -> None:
    """The same seed twice is no second observation."""
    first: dict[int, Run] = {}
    for run in runs:
        if run.seed in first:
            place = first[run.seed].folder
            raise CompareError(
                f"{setting}, {agent}: seed {run.seed} is there twice, in {place} and in {run.folder}: name one"
            )
        first[run.seed] = run


def _different_configurations(agents: dict[str, list[Run]]) -> list[str]:
    """What differs between the runs of one agent, and what should be equal in all."""
    by_algorithm: dict[str, list[str]] = {}
    for agent, runs in agents.items():
        by_algorithm.setdefault(runs[0].algorithm, []).append(agent)
    notes = []
    for algorithm, labels in by_algorithm.items():
        if len(labels) > 1:
            names = differences([run for label in labels for run in agents[label]])
            notes.append(f"the runs of {algorithm} differ in {', '.join(names)}: they are {len(labels)} groups")
    everyone = [run for runs in agents.values() for run in runs]
    for name in ("scale", "evaluation_episodes"):
        values = _once(everyone, name)
        if len(values) > 1 and len(by_algorithm) > 1:
            notes.append(f"not all agents have the same {name}: {', '.join(_short(value) for value in values)}")
    return notes


def _unfinished(runs: Iterable[Run]) -> list[str]:
    return [
        f"{run.folder} is unfinished: {run.metrics['step'][-1]:.0f} of {run.config['steps']} {run.clock}"
        for run in runs
        if not run.finished
    ]


def _not_finite(group: Group, metric: str, step: int, steps: Sequence[int], clock: str) -> list[str]:
    """Which runs have no finite value, and where; those at the step that is compared cost the agent its numbers."""
    notes = []
    for run, values in zip(group.runs, group.curves, strict=True):
        where = [one for one, value in zip(steps, values, strict=True) if not isfinite(value)]
        if metric not in run.metrics:
            notes.append(f"{run.folder} has no {metric}: no numbers for {group.agent}{_unplayed([run])}")
        elif step in where:
            value = values[steps.index(step)]
            notes.append(f"{run.folder}: {metric} is {value} at {clock[:-1]} {step}: no numbers for {group.agent}")
        elif where:
            notes.append(f"{run.folder}: {metric} is not finite at {_listed(where)}: a gap in the curve")
    return notes


def _too_few(groups: Iterable[Group], baseline: Group | None) -> list[str]:
    """Where the seeds are too few for the test to reach significance, whatever they are, or for a fair interval."""
    by_number: dict[int, list[str]] = {}
    for group in groups:
        by_number.setdefault(len(group.runs), []).append(group.agent)
    notes = []
    for number, agents in sorted(by_number.items()):
        names = ", ".join(agents)
        if number == 1:
            notes.append(f"{names}: 1 seed: no interval")
        elif number in COVERAGE:
            notes.append(
                f"{names}: {number} seeds: the interval is too narrow (of normal scores, a 95 % interval of {number} "
                f"holds the true value {COVERAGE[number]} % of the time)"
            )
        tested = [agent for agent in agents if baseline is not None and agent != baseline.agent]
        if baseline is None or not tested:
            continue
        smallest = smallest_possible_p(number, len(baseline.runs))
        if not is_significant(smallest):
            enough = next(n for n in count(1) if is_significant(smallest_possible_p(n, n)))
            notes.append(
                f"{', '.join(tested)}: {number_of_seeds(number)} against {len(baseline.runs)}: no difference, however "
                f"large, can reach p <= {SIGNIFICANT} (the smallest possible p is {smallest:.2g}); "
                f"{enough} against {enough} can"
            )
    return notes


def _once(runs: Iterable[Run], name: str) -> list[Any]:
    """The different values of one entry of the configuration, in the order found."""
    values: list[Any] = []
    for run in runs:
        value = run.config.get(name)
        if value not in values:
            values.append(value)
    return values


def _short(value: Any) -> str:
    """A setting in a label: without what a shell or a table would take for its own."""
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _listed(steps: Sequence[int]) -> str:
    """'500, 1000, ..., 9500, 10000'."""
    texts = [str(step) for step in steps]
    return ", ".join(texts if len(texts) <= 6 else [*texts[:2], "...", *texts[-2:]])


def number_of_seeds(number: int) -> str:
    """In words: '1 seed', '3 seeds'."""
    return f"{number} seed{'' if number == 1 else 's'}"
