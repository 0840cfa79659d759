"""Every example runs: its help, and a run that is too short to learn anything."""

from pathlib import Path

import pytest

import killable

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {
    "solve_your_own_grid": ([], "At q ~ p V the last bound meets the log return"),
    "train_and_watch": (["--steps", "20", "--out", "video.gif"], "20 new episodes: return -"),
    "your_own_environment": (["--steps", "20"], "MnM-approx "),
    "where_the_model_is_wrong": (["--steps", "20"], "rank correlation of the error with the disagreement"),
    "compare_two_agents": (["--steps", "20", "--seeds", "2"], "Cannot tell"),
}
"""What to add to the command, and what is then printed. No network is trained: the random steps come first."""


def run(name, folder, *arguments):
    done = killable.finished(*arguments, cwd=folder, script=EXAMPLES / f"{name}.py")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tried_and_described():
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {*SHORT, "cautious_mbpo"}  # an agent, not a script: tests/test_own_agent.py
    for page in ("README.md", "docs/examples.md"):
        text = (EXAMPLES.parent / page).read_text()
        assert not [name for name in names if f"examples/{name}.py" not in text], page


@pytest.mark.slow
@pytest.mark.apart
@pytest.mark.parametrize("name", SHORT)
def test_an_example_runs(name, tmp_path):
    arguments, printed = SHORT[name]
    assert printed in run(name, tmp_path, *arguments)
    if name == "train_and_watch":
        assert (tmp_path / "video.gif").read_bytes().startswith(b"GIF8")


@pytest.mark.slow
def test_the_help_says_what_an_example_does(tmp_path):
    for name in SHORT:
        assert len(run(name, tmp_path, "--help").split("options:")[0].split()) > 20


@pytest.mark.slow
def test_a_map_of_ones_own(tmp_path):
    (tmp_path / "map.txt").write_text("noise = 0.2\n\nS.G\n")
    assert "3 cells" in run("solve_your_own_grid", tmp_path, "map.txt")
