"""Gridworlds: moves, noise, text maps and their errors, against an obvious construction cell by cell."""

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnm.tabular import Grid, MapError, MDPError, open_grid, parse_map, random_grid

UP, RIGHT, DOWN, LEFT, STAY = range(5)
STEPS = {UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0), LEFT: (0, -1), STAY: (0, 0)}


def obvious_dynamics(walls, noise, num_moves):
    """{(cell, action): {next cell: probability}}, written out cell by cell."""
    rows, columns = walls.shape
    free = {(row, column) for row in range(rows) for column in range(columns) if not walls[row, column]}
    table = {}
    for cell in free:
        for action in range(num_moves):
            outcomes = defaultdict(float)
            for move in range(num_moves):
                probability = noise / num_moves + (1.0 - noise if move == action else 0.0)
                target = (cell[0] + STEPS[move][0], cell[1] + STEPS[move][1])
                outcomes[target if target in free else cell] += probability
            table[cell, action] = {target: p for target, p in outcomes.items() if p > 0}
    return table


def dynamics_by_cell(grid):
    """The grid's dynamics in the same form."""
    cells = [tuple(cell) for cell in grid.cells.tolist()]
    successors, probs = grid.dynamics.successors.tolist(), grid.dynamics.probs.tolist()
    table = {}
    for state, cell in enumerate(cells):
        for action in range(grid.num_moves):
            row = zip(successors[state][action], probs[state][action], strict=True)
            used = [(cells[successor], p) for successor, p in row if p > 0]
            table[cell, action] = dict(used)
            assert len(table[cell, action]) == len(used)
    return table


def assert_same_tables(table, expected):
    assert table.keys() == expected.keys()
    for key, outcomes in expected.items():
        assert table[key] == pytest.approx(outcomes, abs=1e-12), key


def outcomes(text, cell, action):
    return dynamics_by_cell(parse_map(text))[cell, action]


# --- moves, walls and noise ---------------------------------------------------------------------------------


def test_moves_without_noise():
    middle = {action: outcomes("...\n.S.\n...", (1, 1), action) for action in range(4)}
    assert middle == {UP: {(0, 1): 1.0}, RIGHT: {(1, 2): 1.0}, DOWN: {(2, 1): 1.0}, LEFT: {(1, 0): 1.0}}


@pytest.mark.parametrize(
    ("cell", "action"), [((0, 0), UP), ((0, 0), LEFT), ((1, 1), DOWN), ((1, 1), RIGHT), ((0, 1), RIGHT)]
)
def test_moves_off_the_grid_stay(cell, action):
    assert outcomes("S.\n..", cell, action) == {cell: 1.0}


@pytest.mark.parametrize(("cell", "action"), [((0, 1), DOWN), ((1, 0), RIGHT), ((2, 1), UP), ((1, 2), LEFT)])
def test_moves_into_a_wall_stay(cell, action):
    assert outcomes("S..\n.#.\n...", cell, action) == {cell: 1.0}


def test_noise_in_the_open():
    expected = {(0, 1): 0.7, (1, 2): 0.1, (2, 1): 0.1, (1, 0): 0.1}
    assert outcomes("noise = 0.4\n...\n.S.\n...", (1, 1), UP) == pytest.approx(expected)


def test_noise_in_a_corner_merges_the_two_blocked_moves():
    assert outcomes("noise = 0.4\nS.\n..", (0, 0), UP) == pytest.approx({(0, 0): 0.8, (0, 1): 0.1, (1, 0): 0.1})
    assert outcomes("noise = 0.4\nS.\n..", (0, 0), DOWN) == pytest.approx({(0, 0): 0.2, (0, 1): 0.1, (1, 0): 0.7})


def test_noise_with_the_stay_action_has_five_equally_likely_replacements():
    grid = parse_map("stay = 1\nnoise = 0.5\nS.\n..")
    table = dynamics_by_cell(grid)
    assert grid.mdp.num_actions == 5
    assert table[(0, 0), STAY] == pytest.approx({(0, 0): 0.8, (0, 1): 0.1, (1, 0): 0.1})
    assert table[(0, 0), RIGHT] == pytest.approx({(0, 0): 0.3, (0, 1): 0.6, (1, 0): 0.1})


def test_a_single_cell_only_stays():
    grid = parse_map("noise = 0.3\nS")
    np.testing.assert_allclose(grid.mdp.dynamics.to_dense(), np.ones((1, 4, 1)), rtol=1e-15)


def test_full_noise_makes_all_actions_alike():
    dense = parse_map("noise = 1\nS..\n.#.\n..G").mdp.dynamics.to_dense()
    for action in range(1, 4):
        np.testing.assert_allclose(dense[:, action], dense[:, 0], atol=1e-15)


@st.composite
def small_grids(draw):
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    flat = draw(st.lists(st.booleans(), min_size=rows * columns, max_size=rows * columns))
    walls = np.array(flat).reshape(rows, columns)
    start = (draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1)))
    walls[start] = False
    noise = draw(st.sampled_from([0.0, 0.125, 0.5, 0.9, 1.0]))
    return Grid(walls, np.ones(walls.shape), (start,), noise=noise, stay=draw(st.booleans()))


@given(small_grids())
def test_small_grids_equal_the_obvious_construction(grid):
    assert_same_tables(dynamics_by_cell(grid), obvious_dynamics(grid.walls, grid.noise, grid.num_moves))
    np.testing.assert_allclose(grid.dynamics.probs.sum(axis=-1), 1.0, rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("stay", [False, True])
def test_a_30_by_30_grid_equals_the_obvious_construction(stay):
    drawn = random_grid(30, seed=5, noise=0.3)
    grid = Grid(drawn.walls, drawn.cell_rewards, drawn.starts, drawn.goals, 0.3, 0.99, stay)
    assert 500 < grid.mdp.num_states < 900
    assert_same_tables(dynamics_by_cell(grid), obvious_dynamics(grid.walls, 0.3, grid.num_moves))
    for state, (row, column) in enumerate(grid.cells.tolist()):
        assert (grid.mdp.rewards[state] == (10.0 if (row, column) == (29, 29) else 1.0)).all()
    assert grid.mdp.start[0] == 1.0
    assert grid.mdp.discount == 0.99


def test_only_free_cells_are_states_numbered_row_by_row():
    grid = parse_map("#S.\n.#.")
    assert grid.cells.tolist() == [[0, 1], [0, 2], [1, 0], [1, 2]]
    assert grid.state_numbers.tolist() == [[-1, 0, 1], [2, -1, 3]]
    assert [grid.state(cell) for cell in ((0, 1), (0, 2), (1, 0), (1, 2))] == [0, 1, 2, 3]


def test_a_wall_has_no_state_number():
    with pytest.raises(MDPError, match=r"\(0, 0\) is a wall"):
        parse_map("#S").state((0, 0))


@pytest.mark.parametrize("cell", [(-1, 0), (0, -1), (2, 0), (0, 2)])
def test_a_cell_outside_the_grid_has_no_state_number(cell):
    with pytest.raises(MDPError):
        parse_map("S.\n..").state(cell)


def test_picture_puts_values_in_their_cells_and_nan_on_walls():
    picture = parse_map("S#.\n..#").picture(np.array([1.0, 2.0, 3.0, 4.0]))
    expected = [[1.0, np.nan, 2.0], [3.0, 4.0, np.nan]]
    np.testing.assert_array_equal(picture, expected)


# --- mean displacement --------------------------------------------------------------------------------------


def test_mean_displacement_by_hand():
    grid = parse_map("noise = 0.4\n.S.")
    arrows = grid.mean_displacement(grid.mdp.dynamics)
    assert arrows.shape == (3, 4, 2)
    np.testing.assert_allclose(arrows[1, RIGHT], [0.0, 0.7 - 0.1], atol=1e-15)
    np.testing.assert_allclose(arrows[1, LEFT], [0.0, 0.1 - 0.7], atol=1e-15)
    np.testing.assert_allclose(arrows[1, UP], [0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(arrows[2, RIGHT], [0.0, -0.1], atol=1e-15)
    np.testing.assert_allclose(arrows[0, UP], [0.0, 0.1], atol=1e-15)


def test_mean_displacement_of_rows_comes_first():
    grid = parse_map("S\n.\n.")
    arrows = grid.mean_displacement(grid.mdp.dynamics)
    assert arrows[0, DOWN].tolist() == [1.0, 0.0]
    assert arrows[2, UP].tolist() == [-1.0, 0.0]


@given(small_grids())
@settings(max_examples=30)
def test_mean_displacement_equals_the_obvious_average(grid):
    table = obvious_dynamics(grid.walls, grid.noise, grid.num_moves)
    arrows = grid.mean_displacement(grid.dynamics)
    for (cell, action), outcome in table.items():
        expected = [sum(p * (target[axis] - cell[axis]) for target, p in outcome.items()) for axis in (0, 1)]
        np.testing.assert_allclose(arrows[grid.state(cell), action], expected, atol=1e-12)


# --- grids from arrays --------------------------------------------------------------------------------------


def test_open_grid_with_a_rectangular_wall():
    grid = open_grid(
        (3, 4),
        walls=[(slice(0, 2), slice(1, 2))],
        start=(0, 0),
        goal=(0, 3),
        reward=0.5,
        goal_reward=7.0,
        noise=0.25,
        discount=0.8,
        stay=True,
    )
    assert grid.walls.astype(int).tolist() == [[0, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert grid.mdp.num_states == 10
    assert grid.mdp.num_actions == 5
    assert grid.mdp.rewards[grid.state((0, 3))].tolist() == [7.0] * 5
    assert grid.mdp.rewards[grid.state((2, 2))].tolist() == [0.5] * 5
    assert grid.mdp.discount == 0.8
    assert grid.mdp.start[grid.state((0, 0))] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell_rewards": np.ones((2, 3))}, r"walls \(2, 2\) and cell rewards \(2, 3\) must be one grid"),
        ({"walls": np.zeros(4, bool), "cell_rewards": np.ones(4)}, "must be one grid"),
        ({"noise": -0.1}, "noise must lie between 0 and 1; got -0.1"),
        ({"noise": 1.1}, "noise must lie between 0 and 1; got 1.1"),
        ({"noise": float("nan")}, "noise must lie between 0 and 1; got nan"),
        ({"starts": ()}, "a grid needs a start cell"),
        ({"starts": ((0, 2),)}, r"start \(0, 2\) lies outside the 2 by 2 grid"),
        ({"starts": ((-1, 0),)}, r"start \(-1, 0\) lies outside the 2 by 2 grid"),
        ({"starts": ((0, 1),)}, r"start \(0, 1\) is a wall"),
        ({"goals": ((2, 0),)}, r"goal \(2, 0\) lies outside the 2 by 2 grid"),
        ({"goals": ((0, 1),)}, r"goal \(0, 1\) is a wall"),
    ],
)
def test_grids_that_make_no_sense_are_refused(changes, message):
    parts = {
        "walls": np.array([[False, True], [False, False]]),
        "cell_rewards": np.ones((2, 2)),
        "starts": ((0, 0),),
    }
    with pytest.raises(MDPError, match=message):
        Grid(**(parts | changes))


def test_a_wrong_discount_is_refused_when_the_mdp_is_built():
    with pytest.raises(MDPError, match="discount must lie strictly between 0 and 1; got 1"):
        _ = Grid(np.zeros((1, 1), bool), np.ones((1, 1)), ((0, 0),), discount=1.0).mdp


def test_a_start_named_twice_counts_once():
    grid = Grid(np.zeros((1, 2), bool), np.ones((1, 2)), ((0, 0), (0, 0), (0, 1)))
    assert grid.mdp.start.tolist() == [0.5, 0.5]


# --- random grids -------------------------------------------------------------------------------------------


def test_random_grid_has_free_corners_and_pays_ten_in_the_last_one():
    for seed in range(20):
        grid = random_grid(5, seed=seed, wall_share=0.9)
        assert not grid.walls[0, 0]
        assert not grid.walls[4, 4]
        assert grid.starts == ((0, 0),)
        assert grid.goals == ((4, 4),)
        assert grid.cell_rewards.sum() == 24 * 1.0 + 10.0


def test_random_grid_depends_on_the_seed_alone():
    assert np.array_equal(random_grid(20, seed=1).walls, random_grid(20, seed=1).walls)
    assert not np.array_equal(random_grid(20, seed=1).walls, random_grid(20, seed=2).walls)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6])
def test_random_grid_has_the_asked_for_share_of_walls(share):
    walls = random_grid(100, seed=8, wall_share=share).walls
    standard_error = (share * (1 - share) / walls.size) ** 0.5
    assert abs(walls.mean() - share) <= 5 * standard_error


# --- text maps ----------------------------------------------------------------------------------------------


def test_a_map_without_settings_has_the_documented_defaults():
    grid = parse_map("S.\n#G\n")
    assert (grid.noise, grid.discount, grid.stay) == (0.0, 0.9, False)
    assert grid.walls.tolist() == [[False, False], [True, False]]
    assert grid.cell_rewards[~grid.walls].tolist() == [1.0, 1.0, 10.0]
    assert grid.starts == ((0, 0),)
    assert grid.goals == ((1, 1),)


def test_settings_comments_and_rewards_per_cell():
    grid = parse_map(
        "// the top line\n"
        "# another comment\n"
        "\n"
        "noise = 0.5      # replaced actions\n"
        "  discount=0.75  // spaces do not matter\n"
        "reward = 1e-3\n"
        "stay = 1\n"
        "G = 2.5\n"
        "x = -4\n"
        "7 = 70\n"
        "\n"
        "# the map:\n"
        "S.x\n"
        "#7G\n"
        "\n"
        "  \n"
    )
    assert (grid.noise, grid.discount, grid.stay) == (0.5, 0.75, True)
    assert grid.cell_rewards[~grid.walls].tolist() == [1e-3, 1e-3, -4.0, 70.0, 2.5]
    assert grid.walls.tolist() == [[False, False, False], [True, False, False]]


def test_a_start_cell_can_be_given_a_reward():
    assert parse_map("S = 3\nreward = 2\nS.").cell_rewards.tolist() == [[3.0, 2.0]]


def test_several_starts_are_equally_likely():
    grid = parse_map("S.S\n.#.\nSGG")
    assert grid.starts == ((0, 0), (0, 2), (2, 0))
    assert grid.goals == ((2, 1), (2, 2))
    np.testing.assert_allclose(grid.mdp.start, np.array([1, 0, 1, 0, 0, 1, 0, 0]) / 3, rtol=1e-15)


def test_rows_may_end_in_spaces_and_windows_line_ends():
    assert parse_map("noise = 0.5\r\nS.  \r\n.G\r\n").walls.shape == (2, 2)


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "there is no map below the settings: draw one with"),
        ("noise = 0.5\n// only settings\n", 3, 1, "there is no map below the settings"),
        ("S..\n....\n", 2, 4, "this row has 4 cells, the first has 3"),
        ("noise=0\n\nS..\n..\n", 4, 3, "this row has 2 cells, the first has 3"),
        ("S..\n\n..G\n", 2, 1, "this row has 0 cells, the first has 3"),
        ("S..\n.?.\n", 2, 2, r"unknown cell '\?'"),
        ("discount=0.5\nS.x\n", 2, 3, r"unknown cell 'x': .*\(x = 1\)"),
        ("S. .\n", 1, 3, "unknown cell ' '"),
        ("reward=2\n\n..\n.G\n", 3, 1, "the map has no start: mark one cell with S"),
        ("nois=0.5\nS\n", 1, 1, "unknown setting 'nois': known are noise, discount, reward, stay"),
        ("*=1\nS\n", 1, 1, r"unknown setting '\*'"),
        ("=1\nS\n", 1, 1, "unknown setting ''"),
        ("  nois = 1\nS\n", 1, 3, "unknown setting 'nois'"),
        ("noise=half\nS\n", 1, 7, "noise = 'half' is not a number"),
        ("reward=\nS\n", 1, 8, "reward = '' is not a number"),
        ("// first\nG=1,5\nS\n", 2, 3, "G = '1,5' is not a number"),
        ("noise=1.5\nS\n", 1, 7, "noise = 1.5 must be between 0 and 1"),
        ("noise=-0.5\nS\n", 1, 7, "noise = -0.5 must be between 0 and 1"),
        ("noise=nan\nS\n", 1, 7, "noise = nan must be between 0 and 1"),
        ("discount=1\nS\n", 1, 10, "discount = 1 must be strictly between 0 and 1"),
        ("discount=0\nS\n", 1, 10, "discount = 0 must be strictly between 0 and 1"),
        ("stay=2\nS\n", 1, 6, "stay = 2 must be 0 or 1"),
        ("reward=inf\nS\n", 1, 8, "reward = inf must be a finite number"),
        ("a=nan\nSa\n", 1, 3, "a = nan must be a finite number"),
        ("noise = half\nS\n", 1, 9, "noise = 'half' is not a number"),
        ("discount  =   2\nS\n", 1, 15, "discount = 2 must be strictly between 0 and 1"),
    ],
)
def test_map_errors_name_line_and_column(text, line, column, message):
    with pytest.raises(MapError, match=message) as caught:
        parse_map(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("symbol", ["x", "7", "é", "*"])
def test_the_remedy_for_an_unknown_cell_works(symbol):
    with pytest.raises(MapError) as caught:
        parse_map(f"S{symbol}G")
    if f"({symbol} = 1)" in str(caught.value):
        assert parse_map(f"{symbol} = 1\nS{symbol}G").cell_rewards.tolist() == [[1.0, 1.0, 10.0]]
    else:
        assert not symbol.isalnum()
