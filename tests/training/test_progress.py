"""What is seen while a command works."""

import io

import pytest

from mnm.training.progress import COMPILING, Activity


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
