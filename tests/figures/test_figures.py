"""The figures: columns survive the CSV, pictures are drawn, verdicts are computed from the data."""

from functools import cache

import numpy as np
import pytest

from mnm.figures import FIGURES, load
from mnm.figures.base import by_seed, read_csv, stacked, where, write_csv
from mnm.figures.dynamics_transfer import DYNAMICS
from mnm.tabular.from_data import LEARNERS
from mnm.tabular.grids import open_grid
from mnm.tabular.q_learning import METHODS

QUICK = ["optimistic_dynamics", "aliased_model", "three_states", "comparing_objectives", "goal_reaching", "certificate"]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_loaded_under_its_name(name):
    assert load(name).name == name


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """A figure's folder and verdicts; each is made once."""

    @cache
    def of(name):
        folder = tmp_path_factory.mktemp(name)
        return folder, load(name).reproduce(folder)

    return of


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_exact_figures_are_reproduced(name, reproduced):
    folder, verdicts = reproduced(name)
    assert verdicts
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / f"{name}.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert len((folder / f"{name}.csv").read_text().splitlines()) > 5


@pytest.fixture(scope="module")
def verdict(reproduced):
    def found(name, part):
        (row,) = [row for row in reproduced(name)[1] if part in row.claim]
        return row

    return found


@pytest.mark.slow
def test_the_paper_s_claims_that_hold(verdict):
    assert verdict("comparing_objectives", "always a lower bound").holds
    assert verdict("aliased_model", "despite the inaccurate model").holds
    assert verdict("three_states", "VMBPO goes right").holds


@pytest.mark.slow
def test_what_is_certified_holds_and_what_is_promised_does_not(verdict):
    assert verdict("certificate", "never above the return").holds
    assert verdict("certificate", "promises more").holds
    assert verdict("certificate", "1 / sqrt(n)").holds
    assert verdict("certificate", "betting bound holds").holds


@pytest.mark.slow
def test_the_paper_s_claims_that_do_not(verdict):
    assert not verdict("goal_reaching", "printed goal-reaching bound").holds
    assert "300 of 300" in verdict("goal_reaching", "printed goal-reaching bound").measured
    assert not verdict("comparing_objectives", "non-Markovian").holds


@pytest.mark.slow
def test_a_verdict_follows_the_data():
    figure = load("comparing_objectives")
    columns = figure.run()
    assert figure.judge(columns)[0].holds
    broken = columns["value"].copy()
    broken[columns["objective"] == "paper's bound"] += 1.0
    assert not figure.judge(columns | {"value": broken})[0].holds


def learning_columns(by, finals, x, **more):
    """Synthetic curves: every method's seeds go from 0.01 to its final return."""
    return stacked(
        *(
            {by: name, "seed": seed, x: np.array([0, 20]), "return": np.array([0.01, final]), "optimal": 1.4, **more}
            for name, final in finals.items()
            for seed in range(5)
        )
    )


def test_learning_verdicts_follow_the_data():
    figure = load("stochastic_gridworld")
    finals = {"MnM": 1.3, "Q-learning": 0.01, "VMBPO": 1.35}
    against_q_learning, against_vmbpo = figure.judge(learning_columns("method", finals, "iteration"))
    assert against_q_learning.holds
    assert not against_vmbpo.holds


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        (
            "stochastic_gridworld",
            learning_columns("method", dict.fromkeys(("MnM", "Q-learning", "VMBPO"), 1.0), "iteration"),
        ),
        ("gridworld_ablation", learning_columns("method", dict.fromkeys(METHODS, 1.0), "iteration")),
        (
            "from_real_data",
            learning_columns("learner", dict.fromkeys(LEARNERS, 1.0), "real_steps", classifier_error=0.1),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_learning_figures_are_drawn_and_judged_from_their_columns(name, columns, tmp_path):
    figure = load(name)
    figure.draw(columns).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert all(verdict.measured for verdict in figure.judge(columns))


@pytest.mark.slow
def test_the_transfer_figure_is_drawn_and_judged_from_its_columns(tmp_path):
    figure = load("dynamics_transfer")
    columns = stacked(
        *(
            learning_columns("dynamics", {DYNAMICS[0]: 0.01, DYNAMICS[1]: 1.3}, "iteration", task=task)
            for task in ("A", "B", "C")
        )
    )
    figure.draw(columns).savefig(tmp_path / "figure.png")
    a, b, faster, only = figure.judge(columns)
    assert [a.holds, b.holds, faster.holds, only.holds] == [False, False, True, True]


def test_csv_keeps_every_digit_and_text(tmp_path):
    columns = stacked({"name": "a,b", "x": np.array([0.1, 1 / 3, np.inf])}, {"name": 'say "c"', "x": np.nan})
    write_csv(tmp_path / "t.csv", columns)
    again = read_csv(tmp_path / "t.csv")
    np.testing.assert_array_equal(again["x"], columns["x"])
    assert again["name"].tolist() == ["a,b", "a,b", "a,b", 'say "c"']


def test_rows_by_value_and_by_seed():
    columns = stacked(*({"seed": seed, "x": np.array([0, 1]), "y": np.array([seed, 10 * seed])} for seed in (1, 2)))
    assert where(columns, seed=2)["y"].tolist() == [2, 20]
    x, y = by_seed(columns, "x", "y")
    assert x.tolist() == [0, 1]
    assert y.tolist() == [[1, 10], [2, 20]]


def test_pictures_of_a_grid_have_holes_at_the_walls():
    grid = open_grid((2, 2), walls=[(slice(0, 1), slice(1, 2))], start=(0, 0), goal=(1, 1), reward=1, goal_reward=2)
    assert np.isnan(grid.picture(np.array([1.0, 2.0, 3.0]))[0, 1])
