"""`mnm solve`: what there is to know about a finite MDP, as numbers, a table and a picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mnm.tabular.bounds import LADDER, average, ladder
from mnm.tabular.evaluation import evaluate_policy
from mnm.tabular.files import InputError, Task
from mnm.tabular.grids import ARROWS, Grid
from mnm.tabular.mdp import TabularMDP, first_index, suggested_offset
from mnm.tabular.mnm import JointStep, solve_mnm, solve_tight

LARGEST_PRINTED_POLICY = 40
LARGEST_DRAWN_MDP = 200


@dataclass(frozen=True, eq=False)
class Report:
    """The answers of `mnm solve`."""

    task: Task
    mnm: JointStep | None
    """The optimum of the sharper bound (q ~ p exp V); None if rewards of 0 forbid its logarithm."""
    tight: JointStep
    """The optimum of the tight bound (q ~ p V): its policy is the optimal one."""
    why_not: str
    """Why `mnm` is None; empty otherwise."""

    @property
    def best(self) -> JointStep:
        """MnM's answer: of the sharper bound where it exists, of the tight one otherwise."""
        return self.mnm or self.tight

    @cached_property
    def optimal_return(self) -> float:
        """The best policy's return from the start."""
        return self.return_of(self.tight)

    def return_of(self, step: JointStep) -> float:
        """A step's policy's real return."""
        return average(self.task.mdp.start, evaluate_policy(self.task.mdp, step.policy))

    @cached_property
    def ladders(self) -> dict[str, dict[str, float]]:
        """The ladder of bounds at the two joint optima; without positive rewards only what needs no logarithm."""
        mdp = self.task.mdp
        ladders = {}
        for name, step in (("mnm", self.mnm), ("tight", self.tight)):
            if step is None:
                continue
            rungs = tuple(LADDER) if self.mnm else ("averaged outside",)
            ladders[name] = ladder(mdp, step.policy, step.model, rungs)
        return ladders

    def as_json(self) -> dict[str, Any]:
        """For programs. Infinite numbers, which JSON does not have, are null."""
        mdp = self.task.mdp
        agents = {"mnm": self.mnm, "tight": self.tight}
        return {
            "task": self.task.name,
            "num_states": mdp.num_states,
            "num_actions": mdp.num_actions,
            "discount": mdp.discount,
            "optimal_return": self.optimal_return,
            "optimal_actions": self.tight.policy.argmax(axis=1).tolist(),
            "agents": {
                name: step
                and {
                    "return": self.return_of(step),
                    "bound": _finite(average(mdp.start, step.values)),
                    "actions": step.policy.argmax(axis=1).tolist(),
                }
                for name, step in agents.items()
            },
            "ladder": {
                name: {rung: _finite(value) for rung, value in rungs.items()} for name, rungs in self.ladders.items()
            },
            "note": self.why_not,
        }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def solve_task(task: Task, reward_offset: float = 0.0) -> Report:
    """Solve a task; `reward_offset` is added to every reward first."""
    if not np.isfinite(reward_offset):
        raise InputError(f"--reward-offset must be a finite number; got {reward_offset}")
    mdp = task.mdp.with_reward_offset(reward_offset) if reward_offset else task.mdp
    task = Task(task.name, mdp, task.grid)
    rewards = mdp.expected_rewards
    if (rewards < 0).any():
        state, action = first_index(rewards < 0)
        raise InputError(
            f"{task.name}: state {state}, action {action}: reward {rewards[state, action]:g} is negative, but MnM "
            f"takes the logarithm of the return; add an explicit offset to every reward, for instance "
            f"--reward-offset {reward_offset + suggested_offset(rewards):.12g}"
        )
    why_not = _why_no_logarithm(mdp, reward_offset)
    mnm = None if why_not else solve_mnm(mdp)
    return Report(task, mnm, solve_tight(mdp), why_not)


def _why_no_logarithm(mdp: TabularMDP, reward_offset: float) -> str:
    zero = mdp.expected_rewards == 0
    if not zero.any():
        return ""
    state, action = first_index(zero)
    return (
        f"rewards of 0 (first: state {state}, action {action}) have no logarithm, so only the tight bound is shown; "
        f"for the whole ladder add an explicit offset to every reward, for instance --reward-offset "
        f"{reward_offset + suggested_offset(mdp.expected_rewards):.12g}"
    )


def policy_lines(task: Task, actions: np.ndarray) -> list[str]:
    """A policy as text: arrows for a grid, a list of states otherwise."""
    if task.grid is None:
        shown = [f"state {state}: action {action}" for state, action in enumerate(actions[:LARGEST_PRINTED_POLICY])]
        more = len(actions) - len(shown)
        return shown + ([f"... and {more} more states (--json has them all)"] if more else [])
    grid = task.grid
    symbols = np.full(grid.walls.shape, "#")
    symbols[~grid.walls] = np.array(list(ARROWS))[actions]
    for goal in grid.goals:
        symbols[goal] = "G"
    if symbols.size > 80 * 80:
        return [f"({len(symbols)} by {len(symbols[0])} cells: too large to print; --json has them all)"]
    return [" ".join(row) for row in symbols]


def draw_report(report: Report, path: Path) -> None:
    """The picture: the policy over its values, and what MnM's model adds to the real dynamics."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from mnm.plotting.style import STYLE

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 4.0), layout="constrained")
        if report.task.grid is not None:
            _draw_on_grid(figure, report, report.task.grid)
        elif report.task.mdp.num_states <= LARGEST_DRAWN_MDP:
            _draw_as_matrices(figure, report)
        else:
            raise InputError(
                f"--png: {report.task.name} has {report.task.mdp.num_states} states; pictures are drawn for grids, "
                f"and for other MDPs of up to {LARGEST_DRAWN_MDP} states"
            )
        try:
            figure.savefig(path, format="png")
        except OSError as error:
            raise InputError(f"--png {path}: {error.strerror or error}") from None


def _draw_on_grid(figure: Any, report: Report, grid: Grid) -> None:
    from mnm.plotting.style import BLUE, draw_arrows, draw_grid, draw_values, grid_legend
    from mnm.tabular.grids import MOVES

    step = report.best
    policy_axes, model_axes = figure.subplots(1, 2)
    draw_grid(policy_axes, grid)
    image = draw_values(policy_axes, grid, evaluate_policy(report.task.mdp, step.policy))
    figure.colorbar(image, ax=policy_axes, label="value of MnM's policy", shrink=0.8)
    draw_arrows(policy_axes, grid, MOVES[step.policy.argmax(axis=1)], 0.6, "white")
    policy_axes.set_title(f"MnM's policy\nreturn {report.return_of(step):.4g} (optimal {report.optimal_return:.4g})")
    draw_grid(model_axes, grid)
    longest = draw_arrows(model_axes, grid, grid.added_displacement(step.model), 0.8, BLUE)
    exact = "the dynamics are deterministic:\nMnM's model is exact"
    added = f"what MnM's model adds\n(longest arrow: {longest:.2g} cells a step)"
    model_axes.set_title(added if longest > 1e-12 else exact)
    figure.legend(handles=grid_legend(arrows=True), loc="outside lower center", ncols=3)


def _draw_as_matrices(figure: Any, report: Report) -> None:
    from matplotlib.ticker import MaxNLocator

    from mnm.plotting.style import BLUE
    from mnm.tabular.evaluation import chain

    mdp, step = report.task.mdp, report.best
    values_axes, model_axes = figure.subplots(1, 2)
    values = evaluate_policy(mdp, step.policy)
    values_axes.bar(np.arange(mdp.num_states), values, color=BLUE)
    if mdp.num_states <= LARGEST_PRINTED_POLICY:
        for state, (value, action) in enumerate(zip(values, step.policy.argmax(axis=1), strict=True)):
            values_axes.annotate(str(action), (state, value), ha="center", va="bottom", fontsize=7)
    values_axes.set(xlabel="state", ylabel="value of MnM's policy", title="values, with the chosen action's number")
    values_axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    added = (chain(step.model, step.policy) - chain(mdp.dynamics, step.policy)).toarray()
    largest = max(float(np.abs(added).max()), 1e-12)
    image = model_axes.imshow(added, cmap="PuOr", vmin=-largest, vmax=largest)
    model_axes.grid(visible=False)
    model_axes.set(
        xlabel="next state",
        ylabel="state",
        title="what MnM's model adds to the\nprobabilities, under its policy",
    )
    for axis in (model_axes.xaxis, model_axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    figure.colorbar(image, ax=model_axes, shrink=0.8)
