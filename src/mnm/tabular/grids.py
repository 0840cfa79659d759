"""Gridworlds: from arrays or from a text map to a TabularMDP that remembers its cells.

Cells are (row, column), (0, 0) is the top-left corner. Actions 0 to 3 move up, right, down and left; with
`stay`, action 4 stays. A move off the grid or into a wall leaves the agent where it is. With probability
`noise` the action is replaced by one drawn uniformly from all of them. Nothing terminates. Only free cells are
states, numbered row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mnm.tabular.mdp import Dynamics, Floats, MDPError, TabularMDP

MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1), (0, 0)])
"""Row and column steps of the actions up, right, down, left, stay."""
ARROWS = "↑→↓←·"

Cell = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Grid:
    """A gridworld: the drawing and the MDP that it stands for."""

    walls: NDArray[np.bool_]
    """[rows, columns], True where there is a wall."""
    cell_rewards: Floats
    """[rows, columns] reward for being in a cell."""
    starts: tuple[Cell, ...]
    """The agent starts in one of these, each as likely."""
    goals: tuple[Cell, ...] = ()
    """Marked in pictures; what they pay is in `cell_rewards`."""
    noise: float = 0.0
    discount: float = 0.9
    stay: bool = False
    """Whether there is a fifth action that stays."""

    def __post_init__(self) -> None:
        if self.walls.ndim != 2 or self.cell_rewards.shape != self.walls.shape:
            raise MDPError(f"walls {self.walls.shape} and cell rewards {self.cell_rewards.shape} must be one grid")
        if not 0.0 <= self.noise <= 1.0:
            raise MDPError(f"noise must lie between 0 and 1; got {self.noise}")
        if not self.starts:
            raise MDPError("a grid needs a start cell")
        for name, cells in (("start", self.starts), ("goal", self.goals)):
            for cell in cells:
                self._check_free(name, cell)

    def _check_free(self, name: str, cell: Cell) -> None:
        rows, columns = self.walls.shape
        if not (0 <= cell[0] < rows and 0 <= cell[1] < columns):
            raise MDPError(f"{name} {cell} lies outside the {rows} by {columns} grid")
        if self.walls[cell]:
            raise MDPError(f"{name} {cell} is a wall, not a state")

    @property
    def num_moves(self) -> int:
        """The number of actions: 4, or 5 with `stay`."""
        return 5 if self.stay else 4

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """[S, 2] row and column of every state."""
        return np.argwhere(~self.walls)

    @cached_property
    def state_numbers(self) -> NDArray[np.int32]:
        """[rows, columns] state number of every cell, -1 for walls."""
        numbers = np.full(self.walls.shape, -1, np.int32)
        numbers[~self.walls] = np.arange(len(self.cells), dtype=np.int32)
        return numbers

    def state(self, cell: Cell) -> int:
        """The state number of a free cell."""
        self._check_free("cell", cell)
        return int(self.state_numbers[cell])

    @cached_property
    def move_targets(self) -> NDArray[np.int32]:
        """[S, moves] the state that each move leads to when it is not replaced."""
        padded = np.pad(self.state_numbers, 1, constant_values=-1)
        own = np.arange(len(self.cells), dtype=np.int32)
        targets = [padded[tuple((self.cells + 1 + move).T)] for move in MOVES[: self.num_moves]]
        return np.stack([np.where(target < 0, own, target) for target in targets], axis=1)

    @cached_property
    def dynamics(self) -> Dynamics:
        """p(s'|s,a): slot k is the outcome of move k; all blocked moves share the first blocked slot."""
        moves = self.num_moves
        targets = self.move_targets
        move_probs = np.full((moves, moves), self.noise / moves) + (1.0 - self.noise) * np.eye(moves)
        probs = np.repeat(move_probs[None], len(targets), axis=0)
        stays = targets == np.arange(len(targets))[:, None]
        first = np.argmax(stays, axis=1)
        for slot in range(1, moves):
            merged = np.flatnonzero(stays[:, slot] & (first < slot))
            probs[merged, :, first[merged]] += probs[merged, :, slot]
            probs[merged, :, slot] = 0.0
        successors = np.repeat(targets[:, None], moves, axis=1)
        for array in (successors, probs):
            array.setflags(write=False)
        return Dynamics(successors, probs)

    @cached_property
    def mdp(self) -> TabularMDP:
        """The MDP that the grid stands for."""
        dynamics = self.dynamics
        start = np.zeros(len(self.cells))
        start[[self.state(cell) for cell in self.starts]] = 1.0 / len(set(self.starts))
        rewards = np.repeat(self.cell_rewards[~self.walls][:, None], self.num_moves, axis=1)
        return TabularMDP(dynamics, rewards, start, self.discount)

    def mean_displacement(self, model: Dynamics) -> Floats:
        """E_q[ cell(s') - cell(s) | s, a ], an [S, A, 2] array: the arrows of the figures."""
        steps = self.cells[model.successors] - self.cells[:, None, None, :]
        displacement: Floats = (model.probs[..., None] * steps).sum(axis=2)
        return displacement

    def added_displacement(self, model: Dynamics) -> Floats:
        """What a model adds to the mean step of the real dynamics, averaged over the actions: [S, 2]."""
        added: Floats = (self.mean_displacement(model) - self.mean_displacement(self.dynamics)).mean(axis=1)
        return added

    def picture(self, values: Floats) -> Floats:
        """One number per state as a [rows, columns] array, NaN at the walls."""
        picture = np.full(self.walls.shape, np.nan)
        picture[~self.walls] = values
        return picture


def open_grid(
    shape: Cell,
    *,
    walls: Sequence[tuple[slice, slice]] = (),
    start: Cell,
    goal: Cell,
    reward: float,
    goal_reward: float,
    noise: float = 0.0,
    discount: float = 0.9,
    stay: bool = False,
) -> Grid:
    """A grid with rectangular walls, one start, one goal, and one reward everywhere else."""
    blocked = np.zeros(shape, dtype=bool)
    for rectangle in walls:
        blocked[rectangle] = True
    rewards = np.full(shape, float(reward))
    rewards[goal] = goal_reward
    return Grid(blocked, rewards, (start,), (goal,), noise, discount, stay)


def random_grid(size: int, *, seed: int, wall_share: float = 0.2, noise: float = 0.5, discount: float = 0.99) -> Grid:
    """A square grid with random walls: from the top-left corner to the bottom-right one, 1 a step, 10 there."""
    rng = np.random.default_rng(seed)
    walls = rng.random((size, size)) < wall_share
    walls[0, 0] = walls[-1, -1] = False
    rewards = np.ones((size, size))
    rewards[-1, -1] = 10.0
    return Grid(walls, rewards, ((0, 0),), ((size - 1, size - 1),), noise, discount)


class MapError(MDPError):
    """A text map that cannot be read; `line` and `column` (from 1) say where."""

    def __init__(self, message: str, line: int, column: int = 1) -> None:
        super().__init__(message)
        self.line, self.column = line, column


def parse_map(text: str) -> Grid:
    """A grid from text: `name = number` lines, then the map.

        noise = 0.5         # probability that the action is replaced by a random one (default 0)
        discount = 0.9      # default 0.9
        reward = 0.001      # in every cell not named below (default 1)
        G = 10              # in the cells drawn as G (default 10); any letter or digit can be given a reward
        stay = 1            # 1 adds a fifth action that stays (default 0)

        S...#...
        ....#..G

    In the map `#` is a wall, `.` a free cell, `S` a start, `G` a goal, another letter or digit a free cell with
    a reward of its own. `//` or `# ` before the map starts a comment.
    """
    settings, first_map_line, lines = _split_map(text)
    symbols = {name: value for name, value in settings.items() if len(name) == 1}
    numbers = {"noise": 0.0, "discount": 0.9, "reward": 1.0, "stay": 0.0}
    numbers.update((name, value) for name, value in settings.items() if len(name) > 1)
    symbols.setdefault("G", 10.0)
    symbols.setdefault("S", numbers["reward"])
    symbols["."] = numbers["reward"]
    if not lines:
        raise MapError("there is no map below the settings: draw one with # . S G", first_map_line)
    width = len(lines[0])
    for number, line in enumerate(lines):
        if len(line) != width:
            raise MapError(
                f"this row has {len(line)} cells, the first has {width}: all rows must be as long",
                first_map_line + number,
                min(len(line), width) + 1,
            )
        for column, symbol in enumerate(line):
            if symbol != "#" and symbol not in symbols:
                remedy = f", or give it a reward above the map ({symbol} = 1)" if symbol.isalnum() else ""
                raise MapError(f"unknown cell {symbol!r}: use # . S G{remedy}", first_map_line + number, column + 1)
    drawing = np.array([list(line) for line in lines])
    if not (drawing == "S").any():
        raise MapError("the map has no start: mark one cell with S", first_map_line)
    rewards = np.zeros(drawing.shape)
    for symbol, value in symbols.items():
        rewards[drawing == symbol] = value
    starts, goals = (tuple((int(r), int(c)) for r, c in np.argwhere(drawing == mark)) for mark in "SG")
    return Grid(drawing == "#", rewards, starts, goals, numbers["noise"], numbers["discount"], bool(numbers["stay"]))


def _split_map(text: str) -> tuple[dict[str, float], int, list[str]]:
    """The settings by name, the number of the map's first line, and the map's lines."""
    settings: dict[str, float] = {}
    lines = [line.rstrip() for line in text.splitlines()]
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("//", "# ")):
            continue
        if "=" not in line:
            rows = lines[number - 1 :]
            while rows and not rows[-1]:
                rows.pop()
            return settings, number, rows
        name, _, rest = line.partition("=")
        name, value = name.strip(), rest.split("//")[0].split("# ")[0].strip()
        settings[name] = _setting(name, value, number, line)
    return settings, len(lines) + 1, []


def _setting(name: str, value: str, number: int, line: str) -> float:
    known = ("noise", "discount", "reward", "stay")
    if name not in known and not (len(name) == 1 and name.isalnum()):
        raise MapError(
            f"unknown setting {name!r}: known are {', '.join(known)}, or one letter or digit of the map",
            number,
            len(line) - len(line.lstrip()) + 1,
        )
    column = len(line) - len(line.partition("=")[2].lstrip()) + 1
    try:
        parsed = float(value)
    except ValueError:
        raise MapError(f"{name} = {value!r} is not a number", number, column) from None
    allowed = {"noise": 0.0 <= parsed <= 1.0, "discount": 0.0 < parsed < 1.0, "stay": parsed in (0.0, 1.0)}
    if not (np.isfinite(parsed) and allowed.get(name, True)):
        ranges = {"noise": "between 0 and 1", "discount": "strictly between 0 and 1", "stay": "0 or 1"}
        raise MapError(f"{name} = {value} must be {ranges.get(name, 'a finite number')}", number, column)
    return parsed
