"""What is seen while a command works."""

import io
from functools import partial

import pytest
from rich.console import Console

from mnm.training.learner import Progress
from mnm.training.progress import COMPILING, Activity, ProgressDisplay


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "seen"), [(Terminal, True), (io.StringIO, False)])
def test_a_terminal_sees_what_is_done_and_others_nothing(stream, seen, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", stderr := stream())

    def shown():
        activity._line.refresh()
        written = stderr.getvalue()
        stderr.seek(0)
        stderr.truncate()
        return written

    with Activity() as activity:
        activity.begin("loading [a run]")
        assert ("loading [a run]" in shown()) == seen
        activity.begin("playing", COMPILING)
        activity.step()
        assert ("compiling" in shown()) == seen
        for _ in range(41):
            activity.step()
        written = shown()
        assert ("step 42" in written) == seen
        assert "compiling" not in written
    assert bool(stderr.getvalue()) == seen  # the line is taken away


def test_a_notebook_has_whole_lines_and_a_bar_that_comes_to_its_end(monkeypatch, capsys):
    monkeypatch.setattr("mnm.training.progress.Console", partial(Console, force_jupyter=True))
    display = ProgressDisplay(bar=True)
    drawn = []
    # What rich draws in a notebook needs ipywidgets, which is not installed here.
    monkeypatch.setattr(display._bar.live, "refresh", lambda: drawn.append(display._bar.tasks[0].completed))
    display.progress(Progress("learning", 0, 200, 0, -1.0))
    row = {"return": -1172.8, "return_std": 0.0, "updates_per_s": 29.0, "seconds": 1.0}
    row |= dict.fromkeys(("model_return", "q_at_start", "discounted_return", "bound", "log_return"), -1234.5)
    with display:
        display.row(0, 100, row)
        display.progress(Progress("learning", 200, 200, 0, -1.0))
    assert capsys.readouterr().out.count("\n") == 1
    assert drawn[-1] == 200
