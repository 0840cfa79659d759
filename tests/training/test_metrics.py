import math
import struct
import threading

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event

from mnm.training.metrics import MetricsWriter, read_metrics, silent_event_threads


def scalars(folder):
    """(tag, step, value) of every event in the folder, in the order of its files."""
    found = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:  # a TFRecord is length, checksum, body, checksum
            (length,) = struct.unpack("<Q", data[:8])
            event = Event.FromString(data[12 : 12 + length])
            found += [(value.tag, event.step, value.simple_value) for value in event.summary.value]
            data = data[16 + length :]
    return found


def test_rows_are_on_disk_at_once_and_lose_nothing(tmp_path):
    with MetricsWriter(tmp_path / "new" / "run") as writer:
        path = tmp_path / "new" / "run" / "metrics.csv"
        assert path.read_text() == "step\n"
        writer.write(10, {"return": 0.1 + 0.2, "loss/critic": np.float32(0.1)})
        assert path.read_text() == f"step,return,loss/critic\n10,0.30000000000000004,{float(np.float32(0.1))!r}\n"
        writer.write(20, {"loss/critic": math.inf, "return": math.nan})
        assert path.read_text().splitlines()[2] == "20,nan,inf"
    table = read_metrics(path)
    assert list(table) == ["step", "return", "loss/critic"]
    assert table["step"] == [10.0, 20.0]
    assert table["return"][0] == 0.1 + 0.2
    assert math.isnan(table["return"][1])
    assert table["loss/critic"] == [float(np.float32(0.1)), math.inf]


def test_a_late_column_pads_the_old_rows(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"a": 1.0})
        writer.write(2, {"b,c": 2.0})
        writer.write(3, {"a": 3.0})
        assert (tmp_path / "metrics.csv").read_text() == 'step,a,"b,c"\n1,1.0,\n2,,2.0\n3,3.0,\n'
    assert not list(tmp_path.glob("*.tmp"))
    np.testing.assert_array_equal(read_metrics(tmp_path / "metrics.csv")["b,c"], [math.nan, 2.0, math.nan])


def test_the_header_is_replaced_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / "metrics.csv"
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"a": 1.0})

        def crash(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr("os.replace", crash)
        with pytest.raises(KeyboardInterrupt):
            writer.write(2, {"b": 2.0})
    assert path.read_text() == "step,a\n1,1.0\n"


def test_a_run_that_goes_on_appends(tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1e9)  # in the same second, which names the file of events
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"a": 1.0, "b": 2.0})
    with MetricsWriter(tmp_path) as writer:
        writer.write(2, {"b": 3.0})
        writer.write(3, {"c": 4.0})
    assert (tmp_path / "metrics.csv").read_text() == "step,a,b,c\n1,1.0,2.0,\n2,,3.0,\n3,,,4.0\n"
    assert scalars(tmp_path) == [("a", 1, 1.0), ("b", 1, 2.0), ("b", 2, 3.0), ("c", 3, 4.0)]


@pytest.mark.parametrize(
    ("left", "expected"), [("step,a\n1,1.0\n2,3.1", "step,a\n1,1.0\n5,0.5\n"), ("", "step,a\n5,0.5\n")]
)
def test_an_unfinished_row_is_dropped(tmp_path, left, expected):
    path = tmp_path / "metrics.csv"
    path.write_text(left)
    assert read_metrics(path) == ({"step": [1.0], "a": [1.0]} if left else {})
    with MetricsWriter(tmp_path) as writer:
        writer.write(5, {"a": 0.5})
    assert path.read_text() == expected


def test_tensorboard_has_the_same_numbers(tmp_path, caplog):
    with MetricsWriter(tmp_path) as writer:
        writer.write(100, {"return": 1.5, "loss/critic": -0.25})
        writer.write(200, {"return": math.nan, "loss/critic": 1e300})
    events = scalars(tmp_path)
    assert events[:2] == [("return", 100, 1.5), ("loss/critic", 100, -0.25)]
    assert events[2][:2] == ("return", 200)
    assert math.isnan(events[2][2])
    assert events[3] == ("loss/critic", 200, math.inf)
    assert not caplog.records  # a NaN is in the file; nobody needs to hear of it as well


def test_no_metric_is_called_step(tmp_path):
    with MetricsWriter(tmp_path) as writer, pytest.raises(ValueError, match=r"a metric 'step'.*rename it"):
        writer.write(1, {"step": 1.0})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("time,a\n1,2\n", "metrics.csv: no file of metrics: its first column is 'time', not 'step'"),
        ("step,a\n1,2,3\n", "metrics.csv: row 2 has 3 cells, the header 2"),
        ("step,a\n1,2\n2,x\n", "metrics.csv: row 3, column 'a': 'x' is not a number"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, text, what):
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=what):
        read_metrics(path)


def test_only_while_a_run_writes_a_thread_that_meets_a_full_disk_dies_silently(monkeypatch):
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)

    def die(error):
        def target():
            raise error

        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
        return [failure.exc_value for failure in seen]

    full, other = OSError(28, "No space left on device"), ValueError("else")
    with silent_event_threads():
        assert die(full) == []
        assert die(other) == [other]
    assert die(full) == [other, full]
