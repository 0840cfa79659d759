"""The `mnm` command: what it prints, what it writes, and how it fails: exit code 2 and one line."""

import contextlib
import csv
import gc
import io
import itertools
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import killable
import mnm.cli
from mnm.commands.reproduce import write_verdicts
from mnm.figures import EXACT, FIGURES
from mnm.figures.base import Verdict
from mnm.tabular.evaluation import ConvergenceError

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
NOISY_MAP = "noise = 0.4\ndiscount = 0.9\nreward = 0.1\nG = 5\n\nS..#\n.#..\n...G\n"
MDP = {
    "probs": [[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.25, 0.75]]],
    "rewards": [[1.0, 2.0], [3.0, 4.0]],
    "discount": 0.5,
    "start": [0.5, 0.5],
}


@pytest.fixture
def noisy_map(tmp_path):
    path = tmp_path / "noisy.txt"
    path.write_text(NOISY_MAP, encoding="utf-8")
    return path


def in_python(*arguments, code=None):
    """The command as a process of its own: `python -m mnm`, or some code before it."""
    program = ["-m", "mnm"] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def assert_one_line(stderr):
    assert stderr.startswith("mnm: ")
    assert stderr.count("\n") == 1
    assert stderr.endswith("\n")


# --- help and lists -----------------------------------------------------------------------------------------


def test_help_names_the_commands(run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert "reproduce" in out
    assert "solve" in out


def test_help_of_solve_names_its_options(run):
    code, out, _ = run("solve", "--help")
    assert code == 0
    for option in ("--discount", "--reward-offset", "--picture", "--json", "gym:ID"):
        assert option in out


@pytest.mark.slow
def test_help_imports_no_heavy_library():
    code = (
        "import sys\n"
        "from mnm.cli import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'jax', 'scipy', 'numba', 'matplotlib', 'mujoco', 'metaworld'} & set(sys.modules)\n"
        "    print('heavy:', sorted(heavy))\n"
    )
    finished = in_python("--help", code=code)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[-1] == "heavy: []"


@pytest.mark.parametrize("arguments", [(), ("nonesuch",), ("solve",), ("solve", "a", "--reward-offset", "x")])
def test_wrong_usage_exits_with_2(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err
    assert "Traceback" not in err


def test_list_names_every_figure_on_a_line_of_its_own(run):
    code, out, err = run("reproduce", "--list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == list(FIGURES)
    assert [" ".join(line.split()[1:]) for line in out.splitlines()] == list(FIGURES.values())


# --- reproduce ----------------------------------------------------------------------------------------------


@pytest.fixture
def quick_figures(monkeypatch):
    """Figures that only note where they were asked to write."""
    made = []

    class QuickFigure:
        def __init__(self, name):
            self.name = name

        def reproduce(self, folder):
            made.append((self.name, folder))
            return [Verdict("two is more than one", "> 0", "1", True), Verdict("[0, 1] is open", "yes", "no", False)]

    monkeypatch.setattr("mnm.figures.load", QuickFigure)
    return made


def test_an_unknown_figure_exits_with_2_and_points_to_the_list(run, quick_figures):
    code, out, err = run("reproduce", "nosuchfigure")
    assert (code, out) == (2, "")
    assert_one_line(err)
    assert "there is no figure 'nosuchfigure'" in err
    assert "mnm reproduce --list" in err
    assert quick_figures == []


@pytest.mark.parametrize(
    ("typed", "meant"), [("three_state", "three_states"), ("comparing-objectives", "comparing_objectives")]
)
def test_a_mistyped_figure_gets_the_nearest_suggested(run, quick_figures, typed, meant):
    code, _, err = run("reproduce", "three_states", typed)
    assert code == 2
    assert_one_line(err)
    assert f"did you mean {meant}?" in err
    assert quick_figures == []


def test_reproduce_makes_each_named_figure_once_and_writes_the_verdicts(run, quick_figures, tmp_path):
    out_folder = tmp_path / "new" / "results"
    code, out, _ = run("reproduce", "three_states", "goal_reaching", "three_states", "--out", out_folder)
    assert code == 0
    assert quick_figures == [("three_states", out_folder), ("goal_reaching", out_folder)]
    assert "2 figures" in out
    with (out_folder / "verdicts.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["figure", "claim", "paper", "measured", "holds"]
    assert rows[1] == ["three_states", "two is more than one", "> 0", "1", "yes"]
    assert rows[4] == ["goal_reaching", "[0, 1] is open", "yes", "no", "no"]
    assert len(rows) == 5


@pytest.mark.parametrize("named", [(), ("exact",), ("exact", "three_states")])
def test_reproduce_makes_the_exact_figures_if_none_is_named(run, quick_figures, tmp_path, named):
    assert run("reproduce", *named, "--out", tmp_path)[0] == 0
    assert [name for name, _ in quick_figures] == list(EXACT)


def test_reproduce_into_a_file_exits_with_2(run, quick_figures, noisy_map):
    code, _, err = run("reproduce", "three_states", "--out", noisy_map)
    assert code == 2
    assert_one_line(err)
    assert f"--out {noisy_map}: File exists" in err
    assert quick_figures == []


def test_reproduce_whose_verdicts_cannot_be_written_exits_with_2(run, quick_figures, tmp_path):
    (tmp_path / "verdicts.csv").mkdir()
    code, _, err = run("reproduce", "three_states", "--out", tmp_path)
    assert code == 2
    assert_one_line(err)


def test_reproduce_into_a_folder_with_brackets_in_its_name(run, quick_figures, tmp_path):
    code, out, _ = run("reproduce", "three_states", "--out", tmp_path / "[" / "b]")
    assert code == 0
    assert "[/b]" in out.replace("\n", "")


# --- solve --------------------------------------------------------------------------------------------------


def test_solve_prints_the_optimal_value_and_the_policy(run, tmp_path):
    (tmp_path / "row.txt").write_text("S.G\n", encoding="utf-8")
    code, out, err = run("solve", tmp_path / "row.txt")
    assert (code, err) == (0, "")
    value = 1 + 0.9 * 1 + 0.9**2 * 10 / (1 - 0.9)
    assert "3 states, 4 actions, discount 0.9" in " ".join(out.split())
    assert f"optimal value from the start: {value:.4g}\n" in out
    assert f"MnM's policy, value from the start: {value:.4g}\n" in out
    assert "→ → G" in out
    assert re.search(rf"log expected return .*{math.log(value):.6f}", out)


def test_solve_finds_the_way_around_a_wall(run, tmp_path):
    (tmp_path / "wall.txt").write_text("S#G\n.#.\n...\n", encoding="utf-8")
    _, out, _ = run("solve", tmp_path / "wall.txt")
    rows = [line.strip() for line in out.splitlines() if line.startswith("  ") and "#" in line]
    assert rows == ["↓ # G", "↓ # ↑"]
    assert "  → → ↑\n" in out


def assert_ordered(ladder):
    """The paper's bound and the sharper one, and the paper's and the learned discount, are ordered pairwise."""
    slack = 1e-9
    for low, high in [
        ("paper's bound", "sharper bound"),
        ("paper's bound", "learned discount"),
        ("sharper bound", "best hazard"),
        ("learned discount", "best hazard"),
        ("best hazard", "tight bound"),
        ("tight bound", "log expected return"),
    ]:
        assert ladder[low] <= ladder[high] + slack


def optimal_return(probs, rewards, discount, start):
    """By value iteration, in plain loops."""
    states, actions = len(probs), len(probs[0])
    values = [0.0] * states
    for _ in range(math.ceil(math.log(1e-12) / math.log(discount))):
        values = [
            max(
                rewards[s][a] + discount * sum(p * v for p, v in zip(probs[s][a], values, strict=True) if p)
                for a in range(actions)
            )
            for s in range(states)
        ]
    return sum(p * v for p, v in zip(start, values, strict=True))


def test_json_has_the_optimum_and_an_ordered_ladder(run, noisy_map):
    code, out, err = run("solve", noisy_map, "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert (report["num_states"], report["num_actions"], report["discount"]) == (10, 4, 0.9)
    assert report["task"] == str(noisy_map)
    assert report["note"] == ""
    for agent in ("mnm", "tight"):
        ladder = report["ladder"][agent]
        assert_ordered(ladder)
        assert ladder["log expected return"] == pytest.approx(math.log(report["agents"][agent]["return"]))
        assert report["agents"][agent]["return"] <= report["optimal_return"] + 1e-9
        assert len(report["agents"][agent]["actions"]) == 10
    assert report["agents"]["mnm"]["bound"] == pytest.approx(report["ladder"]["mnm"]["sharper bound"])
    assert report["ladder"]["mnm"]["sharper bound"] > report["ladder"]["mnm"]["paper's bound"] + 1e-3
    assert report["ladder"]["tight"]["tight bound"] == pytest.approx(math.log(report["optimal_return"]))


def test_json_task_has_the_value_of_plain_value_iteration(run, tmp_path):
    path = tmp_path / "mdp.json"
    path.write_text(json.dumps(MDP), encoding="utf-8")
    report = json.loads(run("solve", path, "--json")[1])
    assert report["optimal_return"] == pytest.approx(optimal_return(**MDP), rel=1e-9)
    report = json.loads(run("solve", path, "--json", "--discount", "0.8")[1])
    assert report["discount"] == 0.8
    assert report["optimal_return"] == pytest.approx(optimal_return(**(MDP | {"discount": 0.8})), rel=1e-9)


def test_npz_task_prints_one_line_per_state(run, tmp_path):
    # With action 1 in both states V(0) = 2 / 0.5 = 4 and V(1) = (4 + 0.5 * 0.25 * 4) / (1 - 0.5 * 0.75) = 7.2;
    # action 0 gives 1 + 0.25 * 4 + 0.25 * 7.2 = 3.8 < 4 and 3 + 0.5 * 7.2 = 6.6 < 7.2.
    np.savez(tmp_path / "mdp.npz", **{name: np.array(value) for name, value in MDP.items()})
    code, out, _ = run("solve", tmp_path / "mdp.npz")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("  state")] == [
        "  state 0: action 1",
        "  state 1: action 1",
    ]


def test_a_long_policy_is_cut_short(run, tmp_path):
    np.savez(tmp_path / "long.npz", probs=np.eye(50)[:, None], rewards=np.ones(50), discount=0.5)
    _, out, _ = run("solve", tmp_path / "long.npz")
    assert "  state 39: action 0\n  ... and 10 more states (--json has them all)\n" in out
    assert "state 40:" not in out


def test_a_wide_grid_is_printed_row_by_row(run, tmp_path):
    (tmp_path / "wide.txt").write_text("S" + "." * 58 + "G\n" + "." * 60 + "\n", encoding="utf-8")
    _, out, _ = run("solve", tmp_path / "wide.txt")
    assert "→ " * 59 + "G" in out


def test_reward_offset_raises_the_return_by_offset_over_one_minus_discount(run, noisy_map):
    plain, shifted = (json.loads(run("solve", noisy_map, "--json", "--reward-offset", offset)[1]) for offset in (0, 3))
    assert shifted["optimal_return"] - plain["optimal_return"] == pytest.approx(3 / (1 - 0.9))
    assert shifted["optimal_actions"] == plain["optimal_actions"]


def frozen_lake_return(discount):
    environment = gymnasium.make("FrozenLake-v1")
    table, start = environment.unwrapped.P, environment.unwrapped.initial_state_distrib
    environment.close()
    values = np.zeros(16)
    for _ in range(2500):
        values = np.array(
            [
                max(sum(p * (r + discount * (not end) * values[t]) for p, t, r, end in row) for row in rows.values())
                for rows in table.values()
            ]
        )
    return float(start @ values)


@pytest.mark.slow
def test_frozen_lake_without_offset_shows_the_tight_bound_alone(run):
    code, out, err = run("solve", "gym:FrozenLake-v1", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["optimal_return"] == pytest.approx(frozen_lake_return(0.99), abs=1e-8)
    assert report["agents"]["mnm"] is None
    assert list(report["ladder"]) == ["tight"]
    assert report["ladder"]["tight"]["tight bound"] == pytest.approx(math.log(report["optimal_return"]))
    offset = re.search(r"--reward-offset (\S+)", report["note"]).group(1)
    report = json.loads(run("solve", "gym:FrozenLake-v1", "--json", "--reward-offset", offset)[1])
    assert report["note"] == ""
    assert_ordered(report["ladder"]["mnm"])


def test_frozen_lake_as_text_says_why_the_ladder_is_short(run):
    code, out, err = run("solve", "gym:FrozenLake-v1")
    assert (code, err) == (0, "")
    assert "MnM's policy (tight bound), value from the start: 0.542026" in out
    assert "note: rewards of 0 (first: state 0, action 0) have no logarithm" in " ".join(out.split())
    assert "paper's bound" not in out


def test_frozen_lake_is_drawn_with_the_policy_s_arrows(run):
    """The well-known answer; the holes and the goal keep their letters."""
    lines = run("solve", "gym:FrozenLake-v1")[1].splitlines()
    assert lines[3:7] == ["  ← ↑ ↑ ↑", "  ← H ← H", "  ↑ ↓ ← H", "  H → ↓ G"]


def test_rewards_that_are_all_zero_have_no_finite_logarithm(run, tmp_path):
    (tmp_path / "zero.txt").write_text("reward=0\nG=0\nS.G\n", encoding="utf-8")
    code, out, _ = run("solve", tmp_path / "zero.txt", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["optimal_return"] == 0.0
    assert report["ladder"]["tight"] == {"tight bound": None, "log expected return": None}
    assert run("solve", tmp_path / "zero.txt")[0] == 0


# --- pictures -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("noisy.txt", NOISY_MAP),
        ("exact.txt", "S.G\n"),
        ("one.txt", "S\n"),
        ("stay.txt", "stay = 1\nnoise = 0.5\nS.G\n"),
        ("zero.txt", "reward = 0\nnoise = 0.5\nS.G\n"),
        ("mdp.json", json.dumps(MDP)),
    ],
)
def test_a_picture_is_written(run, tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    code, out, err = run("solve", tmp_path / name, "--picture", tmp_path / "made" / "picture.png")
    assert (code, err) == (0, "")
    assert "optimal value" in out
    picture = (tmp_path / "made" / "picture.png").read_bytes()
    assert picture.startswith(PNG_SIGNATURE)
    assert len(picture) > 5000


@pytest.mark.slow
@pytest.mark.parametrize(("ending", "signature"), [("SVG", b"<?xml"), ("pdf", b"%PDF")])
def test_the_name_says_the_format(run, tmp_path, noisy_map, ending, signature):
    pictures = [tmp_path / f"{name}.{ending}" for name in ("one", "two")]
    for picture in pictures:
        assert run("solve", noisy_map, "--picture", picture)[0] == 0
    one, two = (picture.read_bytes() for picture in pictures)
    assert one.startswith(signature)
    assert one == two


@pytest.mark.slow
def test_the_old_name_of_the_flag_works_with_a_warning(run, tmp_path, noisy_map):
    code, _, err = run("solve", noisy_map, f"--png={tmp_path / 'picture.png'}")
    assert code == 0
    assert err == "mnm: --png is now --picture; the old name goes with version 0.3\n"
    assert (tmp_path / "picture.png").exists()


@pytest.mark.parametrize("place", [".", "noisy.txt/picture.png", "picture", "picture.jpg"])
def test_a_picture_that_cannot_be_written_exits_with_2(run, tmp_path, noisy_map, place):
    code, out, err = run("solve", noisy_map, "--picture", tmp_path / place)
    assert (code, out) == (2, "")
    assert_one_line(err)
    assert err.startswith(f"mnm: --picture {tmp_path / place}: ")
    if place != "noisy.txt/picture.png":
        assert err.endswith("a picture's name ends in .png, .svg or .pdf\n")


def test_a_task_is_drawn_as_pixels(run, tmp_path):
    code, out, err = run("envs", "Pendulum-v1", "--picture", tmp_path / "task.svg")
    assert (code, out) == (2, "")
    assert err == f"mnm: --picture {tmp_path / 'task.svg'}: a picture's name ends in .png\n"


def test_a_picture_of_a_large_mdp_that_is_no_grid_is_refused(run, tmp_path):
    np.savez(tmp_path / "large.npz", probs=np.eye(201)[:, None], rewards=np.ones(201), discount=0.5)
    code, _, err = run("solve", tmp_path / "large.npz", "--picture", tmp_path / "picture.png")
    assert code == 2
    assert_one_line(err)
    assert "201 states" in err
    assert not (tmp_path / "picture.png").exists()


# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b"", ":1:1: there is no map"),
        ("bytes.txt", b"\xff\xfe\x00", ": byte 0 is not UTF-8"),
        ("cell.txt", b"S.\n.?\n", ":2:2: unknown cell '?'"),
        ("control.txt", b"S.\n.\x1b\n", ":2:2: unknown cell"),
        ("syntax.json", b'{"probs": [}', ":1:12: not JSON"),
        ("list.json", b"[1, 2]", ":1:1: expected an object"),
        ("keys.json", b'{"discount": 0.5}', ": array 'probs' is missing"),
        ("digits.json", b'{"discount": ' + b"9" * 5000 + b"}", ": "),
        ("start.json", json.dumps(MDP | {"start": float("nan")}).encode(), ": "),
        ("sums.json", json.dumps(MDP | {"probs": [[[1e308, 1e308]], [[0, 1]]]}).encode(), ": "),
        ("junk.npz", b"PK\x03\x04junk", ": not a readable .npz archive"),
        ("text.npz", b"hello", ": not a readable .npz archive"),
    ],
)
def test_bad_files_exit_with_2_and_one_line(run, tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    code, out, err = run("solve", path)
    gc.collect()
    assert (code, out) == (2, "")
    assert_one_line(err)
    assert err.startswith(f"mnm: {path}{message}")
    assert err.rstrip("\n").isprintable()


@pytest.mark.parametrize("name", ["missing.txt", "missing.json", "missing.npz"])
def test_missing_files_exit_with_2_and_one_line(run, tmp_path, name):
    assert run("solve", tmp_path / name) == (2, "", f"mnm: {tmp_path / name}: No such file or directory\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--discount", "1"), "discount must lie strictly between 0 and 1; got 1"),
        (("--discount", "nan"), "discount must lie strictly between 0 and 1; got nan"),
        (("--reward-offset", "nan"), "nan"),
        (("--reward-offset", "inf"), "inf"),
        (("--reward-offset", "-7"), "--reward-offset"),
    ],
)
def test_bad_options_exit_with_2_and_one_line(run, noisy_map, options, message):
    code, out, err = run("solve", noisy_map, *options)
    assert (code, out) == (2, "")
    assert_one_line(err)
    assert message in err


def test_file_names_with_brackets_are_names_and_not_markup(run, tmp_path):
    folder = tmp_path / "["
    folder.mkdir()
    (folder / "b].txt").write_text("S.G\n", encoding="utf-8")
    code, out, _ = run("solve", folder / "b].txt")
    assert code == 0
    assert "[/b].txt: 3 states" in out.replace("\n", "")


@pytest.mark.slow
def test_an_outdated_environment_exits_with_2_and_one_line():
    finished = killable.finished("solve", "gym:Taxi-v3")
    assert finished.returncode == 2
    assert_one_line(finished.stderr)
    assert "Taxi-v4" in finished.stderr


@pytest.mark.parametrize(
    "rewards",
    [
        [-1.0, 10.0],
        [-1.0, -1.0],
        [0.0, -0.001],
        [-1000000.5, -1000000.4],
        [-123456.789, -123456.788],
    ],
)
@pytest.mark.parametrize("first_offset", [0.0, -2.0])
def test_negative_rewards_exit_with_2_and_suggest_an_offset_that_works(run, tmp_path, rewards, first_offset):
    (tmp_path / "negative.txt").write_text(f"reward = {rewards[0]}\nG = {rewards[1]}\nS.G\n", encoding="utf-8")
    code, out, err = run("solve", tmp_path / "negative.txt", "--reward-offset", first_offset)
    assert (code, out) == (2, "")
    assert_one_line(err)
    assert re.search(r"state \d+, action 0: reward \S+ is negative", err)
    offset = re.search(r"--reward-offset (\S+)", err).group(1)
    code, out, _ = run("solve", tmp_path / "negative.txt", "--json", "--reward-offset", offset)
    assert code == 0
    assert json.loads(out)["agents"]["mnm"] is not None


def test_large_rewards_are_solved(run, tmp_path):
    path = tmp_path / "large.json"
    arrays = {"probs": [[[0.5, 0.5]], [[0.0, 1.0]]], "rewards": [1e9, 1.0], "discount": 0.9}
    path.write_text(json.dumps(arrays), encoding="utf-8")
    code, out, err = run("solve", path, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["optimal_return"] == pytest.approx((1e9 + 0.45 * 10) / (1 - 0.45), rel=1e-12)


@pytest.mark.parametrize(
    "rewards", [[1e16, 1.0], [1e300, 1.0], [1e308, 1e308], [1e-320, 1.0], [-1e308, 1e308], [-5e-324, 0.0]]
)
def test_extreme_rewards_are_answered_or_refused(run, tmp_path, rewards):
    path = tmp_path / "extreme.json"
    arrays = {"probs": [[[0.5, 0.5]], [[0.0, 1.0]]], "rewards": rewards, "discount": 0.9}
    path.write_text(json.dumps(arrays), encoding="utf-8")
    code, out, err = run("solve", path, "--json")
    assert code in (0, 2)
    if code == 0:
        exact = (rewards[0] + 0.45 * rewards[1] / (1 - 0.9)) / (1 - 0.45)
        assert json.loads(out)["optimal_return"] == pytest.approx(exact, rel=1e-9)
    else:
        assert_one_line(err)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_iteration_that_does_not_converge_exits_with_1_and_one_line(run, noisy_map, monkeypatch, options):
    def fail_to_converge(report):
        raise ConvergenceError("still moving")

    monkeypatch.setattr("mnm.tabular.solution.Solution.ladders", property(fail_to_converge))
    code, _, err = run("solve", noisy_map, *options)
    assert code == 1
    assert err == f"mnm: {noisy_map}: still moving\n"


def test_interrupting_exits_with_130(run, noisy_map, monkeypatch):
    monkeypatch.setattr("mnm.tabular.solution.solve_task", mock.Mock(side_effect=KeyboardInterrupt))
    assert run("solve", noisy_map)[0] == 130


@pytest.mark.slow
def test_ascii_terminals_get_an_answer(noisy_map):
    finished = in_python(
        "solve",
        str(noisy_map),
        code="import sys; sys.stdout.reconfigure(encoding='ascii'); from mnm.cli import main; main()",
    )
    assert finished.returncode == 0, finished.stderr
    assert "optimal value from the start" in finished.stdout


# --- fuzzing ------------------------------------------------------------------------------------------------


def outcome(name, content):
    """Exit code, standard output and standard error of solving a file of that content."""
    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        with (
            mock.patch.object(sys, "argv", ["mnm", "solve", str(path), "--json"]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as stopped,
        ):
            mnm.cli.main()
    return stopped.value.code or 0, out.getvalue(), err.getvalue()


def assert_answered_or_refused(name, content):
    code, out, err = outcome(name, content)
    assert code in (0, 2), err
    if code == 0:
        assert json.loads(out)["num_states"] > 0
    else:
        assert out == ""
        assert_one_line(err)


def npz_bytes(save):
    stream = io.BytesIO()
    save(stream, **{name: np.array(value) for name, value in MDP.items()})
    return stream.getvalue()


VALID_FILES = {
    "map.txt": NOISY_MAP.encode(),
    "mdp.json": json.dumps(MDP).encode(),
    "plain.npz": npz_bytes(np.savez),
    "packed.npz": npz_bytes(np.savez_compressed),
}
PIECES = [
    *"0123456789.-+eE#SGx =\n\t[]{},:\"'",
    "nan",
    "inf",
    "NaN",
    "Infinity",
    "null",
    "true",
    "e9",
    "1e300",
    "start",
    "\x00",
    "\ufeff",
    "é",
    "\u2028",
]
TWICE = settings(max_examples=2 * settings().max_examples)
EDIT = st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 3), st.sampled_from(PIECES))


@pytest.mark.parametrize("name", VALID_FILES)
def test_the_files_to_be_mutated_are_valid(name):
    assert outcome(name, VALID_FILES[name])[0] == 0


@pytest.mark.slow
@given(
    st.sampled_from(["fuzz.txt", "fuzz.json", "fuzz.npz"]),
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.text(alphabet="SG.#\n", max_size=40).map(str.encode),
        st.binary(max_size=60).map(b"PK\x03\x04".__add__),
        st.binary(max_size=60).map(b"\x93NUMPY\x01\x00".__add__),
    ),
)
@TWICE
def test_random_files_are_answered_or_refused(name, content):
    assert_answered_or_refused(name, content)


@pytest.mark.slow
@given(st.sampled_from(["map.txt", "mdp.json"]), st.lists(EDIT, min_size=1, max_size=3))
@TWICE
def test_valid_files_with_a_few_edits_are_answered_or_refused(name, edits):
    content = VALID_FILES[name].decode()
    for place, deleted, inserted in edits:
        index = int(place * len(content))
        content = content[:index] + inserted + content[index + deleted :]
    assert_answered_or_refused(name, content.encode())


@pytest.mark.slow
@given(
    st.sampled_from(["plain.npz", "packed.npz"]),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 2), st.binary(max_size=2)), min_size=1),
)
@TWICE
def test_archives_with_a_few_changed_bytes_are_answered_or_refused(name, edits):
    content = VALID_FILES[name]
    for place, deleted, inserted in itertools.islice(edits, 4):
        index = int(place * len(content))
        content = content[:index] + inserted + content[index + deleted :]
    assert_answered_or_refused(name, content)


ODD_VALUES = st.one_of(
    st.floats(),
    st.integers(-2, 3),
    st.sampled_from([10**30, 1e9, 1e300, 0.9999, [], [[]], [1], {}, "1", None, True]),
)


def places(value, place=()):
    """The index of every entry of nested lists, of the lists too."""
    yield place
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from places(entry, (*place, number))


def replaced(value, place, new):
    if not place:
        return new
    return [replaced(entry, place[1:], new) if i == place[0] else entry for i, entry in enumerate(value)]


LISTS = MDP | {"successors": [[[0, 1], [1, 0]], [[0, 1], [1, 1]]]}
ENTRIES = [(name, place) for name, value in LISTS.items() for place in places(value)]


@pytest.mark.slow
@given(st.sampled_from([MDP, LISTS]), st.sampled_from(ENTRIES), ODD_VALUES)
@TWICE
def test_json_with_an_odd_entry_is_answered_or_refused(arrays, entry, value):
    name, place = entry
    changed = arrays | {name: replaced(arrays.get(name, LISTS[name]), place, value)}
    assert_answered_or_refused("mdp.json", json.dumps(changed).encode())


def test_verdicts_of_other_figures_are_kept(tmp_path):
    first, again, other = (Verdict("claim", "paper", measured, True) for measured in ("1", "2", "3"))
    write_verdicts(tmp_path / "verdicts.csv", {"a": [first], "b": [other]})
    write_verdicts(tmp_path / "verdicts.csv", {"a": [again]})
    rows = (tmp_path / "verdicts.csv").read_text().splitlines()
    assert rows[1:] == ["b,claim,paper,3,yes", "a,claim,paper,2,yes"]


def test_the_version(run):
    assert run("--version") == (0, f"mnm {mnm.__version__}\n", "")


LONG = 300 * "x"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["sweep", "--envs", "Pendulum-v1", "--agents", "sac", "--seeds", 2**63],
            "--seeds holds 9223372036854775808",
        ),
        (["train", "sac", "--env", "Pendulum-v1", "--seed", 2**63], "--seed is 9223372036854775808, but must be"),
        (["train", "sac", "--env", "Pendulum-v1", "--steps", 2**63], "--steps is 9223372036854775808, but must be"),
        (["train", "sac", "--env", "Pendulum-v1", "--runs", LONG], "File name too long"),
        (["train", "sac", "--env", "Pendulum-v1", "--name", LONG], "a run cannot be named"),
        (["resume", LONG], "File name too long"),
        (["evaluate", f"{LONG}/run"], "File name too long"),
        (["compare", LONG], "File name too long"),
        (["report", "--runs", LONG], "File name too long"),
        (["report", "--out", LONG], "File name too long"),
        (["report", "--out", "/dev/full"], "No space left on device"),
        (["solve", LONG], "File name too long"),
        (["solve", "/dev/full"], "it is not a regular file"),  # it never ends
        (["solve", "endless.json"], "it is not a regular file"),
        (["solve", "map.txt", "--picture", f"{LONG}.png"], "File name too long"),
        (["solve", "map.txt", "--picture", "full.png"], "No space left on device"),
        (["solve", "map.txt", "--picture", "full.svg"], "No space left on device"),
        (["envs", "Pendulum-v1", "--picture", "full.png"], "No space left on device"),
    ],
)
def test_what_the_system_refuses_is_one_line(run, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("map.txt").write_text(NOISY_MAP)
    for picture in ("full.png", "full.svg"):
        Path(picture).symlink_to("/dev/full")
    Path("endless.json").symlink_to("/dev/zero")
    code, _, error = run(*arguments)
    assert_one_line(error)
    assert message in error
    assert code == 2


def test_more_jobs_than_any_machine_has_are_as_many_as_there_are_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("mnm.sweeps.supervise.supervise", lambda *_: None)
    command = ["sweep", "--envs", "Pendulum-v1", "--agents", "sac", "--jobs", str(2**63), "--runs", str(tmp_path)]
    assert mnm.cli.run(command) == 0


@pytest.mark.slow
def test_a_full_disk_behind_standard_output_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mnm", "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "mnm: No space left on device\n"


def test_a_mistyped_command_gets_the_nearest_named(run):
    code, _, error = run("trian", "sac")
    assert code == 2
    assert_one_line(error)
    assert "there is no command 'trian' (did you mean train?); there are train, resume, " in error


def test_a_mistyped_flag_of_train_gets_those_of_its_agent_alone(run):
    code, _, error = run("train", "sac", "--sed", "3")
    assert code == 2
    assert "--seed INT" in error
    assert "run mnm train sac --help" in error
    assert "mbpo" not in error
    assert "mnm sac" not in error  # there is no such command


def test_the_agent_comes_first(run):
    code, _, error = run("train", "--env", "Pendulum-v1", "sac")
    assert code == 2
    assert_one_line(error)
    assert "the agent comes before '--env': mnm train AGENT --env ID; there are sac, mbpo, " in error


def test_the_system_s_reason_is_given_without_its_number(run, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").mkdir()
    code, _, error = run("resume", tmp_path / "run")
    assert code == 2
    assert error == f"mnm: {tmp_path / 'run' / 'config.json'} cannot be read: Is a directory\n"


def test_the_tasks_that_cannot_be_trained_on_are_marked(run):
    lines = run("envs")[1].splitlines()
    finite = [line for line in lines if " choices " in line and " states " in line and "mnm/" in line]
    assert len(finite) == 5
    assert all(line.rstrip().endswith("(mnm solve)") for line in finite)
    assert any("mnm train does not take them" in line for line in lines)
    assert any("Any other Gymnasium id whose actions are a Box works too" in line for line in lines)


BROKEN = """
import gymnasium as gym

class Broken(gym.Env):
    observation_space = gym.spaces.Box(-1.0, 1.0, (2,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        return self.look_around(), {}

    def look_around(self):
        return 1 / 0

gym.register("Broken-v0", Broken)
"""


@pytest.mark.slow
def test_the_error_of_an_own_environment_has_its_place_and_with_a_flag_its_traceback(tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    options = ["train", "sac", "--env", "broken:Broken-v0", "--scale", "quick", "--hidden", "4", "--steps", "3"]
    short = killable.finished(*options, cwd=tmp_path)
    assert short.returncode == 1
    reason = f"reset raised ZeroDivisionError: division by zero ({tmp_path / 'broken.py'}, line 12)"
    assert short.stderr == f"mnm: Broken-v0: episode 1, step 0 (reset): {reason}\n"
    full = killable.finished(*options, "--overwrite", "--traceback", cwd=tmp_path)
    assert full.returncode == 1
    assert "Traceback" in full.stderr
    assert "in look_around" in full.stderr
    assert full.stderr.endswith(short.stderr)
