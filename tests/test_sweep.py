"""`mnm sweep` with a fake training program: the plan, what runs when, and what is left after failures and signals."""

import contextlib
import fcntl
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tyro
from rich.console import Console

from mnm.agents import ALGORITHMS
from mnm.commands.sweep import shield_overrides, sweep
from mnm.sweeps.display import duration, line, live_table
from mnm.sweeps.plan import label, plan
from mnm.sweeps.pools import cores
from mnm.sweeps.request import Sweep
from mnm.sweeps.supervise import MNM
from mnm.sweeps.trials import ONE_THREAD, Trial, TrialState, TrialStatus, why_failed
from mnm.training.runs import find_runs, read_run, write_spec
from mnm.training.saving import config_as_json
from mnm.training.spec import RunError, RunSpec

# Takes `resume FOLDER` after the file of its orders: {"seconds": a step, "together": N, "fail": [agents]}. Ten steps,
# each with a row of metrics and a checkpoint; begins and ends are noted beside the orders.
FAKE = """
import json, os, pathlib, signal, sys, time

orders_path, command, folder = sys.argv[1:]
orders = json.loads(pathlib.Path(orders_path).read_text())
notes = pathlib.Path(orders_path).with_name("notes.jsonl")


def note(**what):
    with notes.open("a") as file:
        file.write(json.dumps(what) + "\\n")


assert command == "resume"
folder = pathlib.Path(folder)
if not (folder / "checkpoint").exists():
    (folder / "metrics.csv").write_text("step,return\\n")
    (folder / "checkpoint").write_text("0")
config = json.loads((folder / "config.json").read_text())
step = int((folder / "checkpoint").read_text())


def stop(*_):
    print("saved", flush=True)
    sys.exit(143)


signal.signal(signal.SIGTERM, stop)
note(
    event="begin", name=folder.name, command=command, step=step, pid=os.getpid(), parent=os.getppid(),
    cores=sorted(os.sched_getaffinity(0)), time=time.time(), environment=dict(os.environ), argv=sys.argv[2:],
)
together = orders.get("together", 0)
deadline = time.time() + 20
while notes.read_text().count('"begin"') < together:
    if time.time() > deadline:
        sys.exit("alone")
    time.sleep(0.02)
while step < config["steps"]:
    time.sleep(orders.get("seconds", 0.0))
    step += config["steps"] // 10
    with (folder / "metrics.csv").open("a") as file:
        file.write(f"{step},{-step / 2}\\n")
    (folder / "checkpoint").write_text(str(step))
    if config["algorithm"] in orders.get("fail", []) and step == config["steps"] // 2:
        print(*(f"complaint {number}" for number in range(12)), sep="\\n", flush=True)
        sys.exit(3)
note(event="end", name=folder.name, time=time.time())
"""


class Fake:
    """The fake program with its orders, and what it noted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self.processes = []
        self.program = (str(folder / "fake.py"), str(folder / "orders.json"))
        (folder / "fake.py").write_text(FAKE)
        self.order()

    def order(self, **orders):
        (self.folder / "orders.json").write_text(json.dumps(orders))

    def notes(self, event="begin"):
        path = self.folder / "notes.jsonl"
        notes = [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []
        return [note for note in notes if note["event"] == event]

    def asked(self, **changes):
        usual = {"envs": ("Pendulum-v1",), "agents": ("sac",), "steps": 100, "scale": "quick", "runs": self.runs}
        return Sweep(**{**usual, **changes})

    def in_process(self, **changes):
        """The sweep as a process of its own, to be sent signals."""
        command = {name: str(value) if name == "runs" else value for name, value in vars(self.asked(**changes)).items()}
        code = (
            "import json, sys, pathlib; from mnm.sweeps.request import Sweep; from mnm.commands.sweep import sweep\n"
            "command, program = json.loads(sys.argv[1])\n"
            "command['runs'] = pathlib.Path(command['runs'])\n"
            "sys.exit(sweep(Sweep(**command), tuple(program)))"
        )
        arguments = [sys.executable, "-c", code, json.dumps([command, self.program])]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.processes.append(process)
        return process


@pytest.fixture
def fake(tmp_path):
    fake = Fake(tmp_path)
    yield fake
    for process in fake.processes:
        with process:  # none is left behind by a test that fails
            process.kill()


def wait_until(condition, what, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited too long for {what}"
        time.sleep(0.05)


def spec_of(steps):
    together, minutes = (0,), 2.0
    return RunSpec("sac", "E-v0", 0, "E-v0-sac", together, steps, "cpu", 500, 10, minutes, wandb=False, settings={})


def alive(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# --- the plan -----------------------------------------------------------------------------------------------


def test_the_plan_is_the_product_and_first_seeds_come_first(fake):
    trials = plan(
        fake.asked(
            envs=("Pendulum-v1", "InvertedPendulum-v5"),
            agents=("mbpo", "mnm_approx"),
            seeds=(3, 0),
            overrides=("", "--batch-size 7"),
        )
    )
    assert [trial.name for trial in trials[:5]] == [
        "Pendulum-v1-mbpo-seed3",
        "Pendulum-v1-mnm_approx-seed3",
        "Pendulum-v1-mbpo-batch-size_7-seed3",
        "Pendulum-v1-mnm_approx-batch-size_7-seed3",
        "InvertedPendulum-v5-mbpo-seed3",
    ]
    assert len({trial.folder for trial in trials}) == len(trials) == 16
    spec = trials[2].spec
    assert (spec.algorithm, spec.env, spec.seed, spec.seeds_together) == ("mbpo", "Pendulum-v1", 3, (3,))
    assert (spec.steps, spec.scale, spec.evaluate_every, spec.evaluation_episodes) == (100, "quick", 500, 10)
    preset = config_as_json(ALGORITHMS["mbpo"].presets["quick"])
    assert spec.settings == preset | {"batch_size": 7}
    assert trials[2].folder == fake.runs / "Pendulum-v1-mbpo-batch-size_7-seed3"
    assert not fake.runs.exists()


def test_an_agent_without_the_flags_is_left_out_of_the_variant(fake, capsys):
    trials = plan(fake.asked(agents=("sac", "mnm_approx"), overrides=("", "--value-term-start 0 --steps 50")))
    assert [(trial.name, trial.spec.steps) for trial in trials] == [
        ("Pendulum-v1-sac-seed0", 100),
        ("Pendulum-v1-mnm_approx-seed0", 100),
        ("Pendulum-v1-mnm_approx-value-term-start_0_steps_50-seed0", 50),
    ]
    assert (
        capsys.readouterr().err
        == 'mnm: sac has no --value-term-start: not run with "--value-term-start 0 --steps 50"\n'
    )


def test_a_flag_that_turns_a_setting_off_is_the_setting_s(fake, capsys):
    trials = plan(fake.asked(agents=("sac", "mnm_approx"), overrides=("--no-layer-norm", "--no-calibrate")))
    assert [trial.name for trial in trials] == [
        "Pendulum-v1-sac-no-layer-norm-seed0",
        "Pendulum-v1-mnm_approx-no-layer-norm-seed0",
        "Pendulum-v1-mnm_approx-no-calibrate-seed0",
    ]
    assert capsys.readouterr().err == 'mnm: sac has no --no-calibrate: not run with "--no-calibrate"\n'


def test_labels_are_short_safe_and_tell_apart():
    assert label(("--reward-offset", "17")) == "reward-offset_17"
    assert label(("--reward-offset", "-1")) != label(("--reward-offset", "1"))
    odd, other, long = label(("--name", "a/b")), label(("--name", "a b")), label(("--hidden", *["64"] * 30))
    assert odd.startswith("name_a_b-")
    assert odd != other
    assert len(long) <= 50
    assert long != label(("--hidden", *["64"] * 29))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agents": ("sac", "mnm_aprox")}, "there is no agent 'mnm_aprox' (did you mean mnm_approx?)"),
        ({"agents": ()}, "--agents is empty"),
        ({"envs": ("Pendulum-v1", "Pendulm-v1")}, "nearest ids: Pendulum-v1"),
        ({"envs": ("CartPole-v1",)}, "supported are Box actions"),
        ({"seeds": (0, -1)}, "--seeds holds -1"),
        ({"seeds": (0, 1, 0)}, "Pendulum-v1-sac-seed0 is asked for twice"),
        ({"jobs": 0}, "--jobs is 0"),
        ({"jobs": 1, "ray": "auto"}, "--jobs does not go with --ray"),
        ({"steps": 0}, "--steps is 0"),
        ({"scale": "large"}, "must be one of paper, cpu, quick"),
        ({"overrides": ("", "--evaluate-every 0")}, "--evaluate-every is 0"),
        ({"overrides": ("", "--batch-size 128")}, '"" and "--batch-size 128" are the same for sac'),
        ({"overrides": ("--seed 0",)}, '"--seed 0" sets --seed, which the sweep sets itself'),
        ({"overrides": ("--batch-size 'x",)}, "No closing quotation"),
        ({"overrides": ("--batch-size x",)}, "mnm train sac does not take it"),
        ({"overrides": ("--batch-size 0",)}, "mnm train sac does not take it"),
        ({"overrides": ("--btch-size 3",)}, "mnm train sac does not take it"),
    ],
)
def test_bad_input_is_named_before_anything_runs(changes, message, fake, capsys):
    assert sweep(fake.asked(**changes), fake.program) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("mnm: ")
    assert message in last
    assert not fake.runs.exists()


def test_a_folder_that_cannot_be_made_is_bad_input(fake, capsys):
    fake.runs.write_text("")
    assert sweep(fake.asked(), fake.program) == 2
    assert capsys.readouterr().err == f"mnm: --runs {fake.runs}: Not a directory\n"


def test_overrides_may_start_with_dashes():
    arguments = ["--envs", "a", "--overrides", "", "--x 1", "--y", "-1", "--runs", "out", "--agents", "sac"]
    command = tyro.cli(Sweep, args=shield_overrides(arguments))
    assert command.overrides == ("", " --x 1", " --y", " -1")
    assert (command.runs, command.agents) == (Path("out"), ("sac",))


def test_a_dry_run_prints_the_runs_and_runs_nothing(fake, capsys):
    assert sweep(fake.asked(seeds=(0, 1), dry_run=True), fake.program) == 0
    folders = [fake.runs / f"Pendulum-v1-sac-seed{seed}" for seed in (0, 1)]
    assert capsys.readouterr().out.splitlines() == [f"to train: {folder}, 100 steps" for folder in folders]
    assert not fake.runs.exists()


def test_a_dry_run_starts_no_process(fake, monkeypatch):
    def refuse(*arguments, **_):
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert sweep(fake.asked(dry_run=True), fake.program) == 0


def test_without_ray_the_extra_is_named(fake, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert sweep(fake.asked(ray="auto"), fake.program) == 2
    assert "pip install 'mnm-rl[ray]'" in capsys.readouterr().err


# --- what runs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
def test_as_many_run_at_once_as_asked_for(jobs, fake, capsys):
    fake.order(together=jobs)
    assert sweep(fake.asked(seeds=(0, 1, 2), jobs=jobs), fake.program) == 0
    changes = [(note["time"], 1) for note in fake.notes("begin")] + [(note["time"], -1) for note in fake.notes("end")]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    assert (len(changes), most) == (6, jobs)
    assert all(read_run(fake.runs / f"Pendulum-v1-sac-seed{seed}").finished for seed in range(3))
    out = capsys.readouterr().out
    assert "3 runs: 3 waiting" in out
    assert "Pendulum-v1-sac-seed1: running" in out
    assert "Pendulum-v1-sac-seed1: finished, step 100 of 100, return -50.0" in out
    assert "3 runs: 3 finished" in out


def test_each_process_has_one_thread_and_one_core(fake, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--mine=1")
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    jobs = min(2, len(cores()))
    fake.order(together=jobs)
    assert sweep(fake.asked(seeds=tuple(range(jobs)), jobs=jobs), fake.program) == 0
    for note in fake.notes():
        assert note["environment"]["XLA_FLAGS"] == f"--mine=1 {ONE_THREAD}"
        assert {note["environment"][name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"1"}
    assert sorted(note["cores"] for note in fake.notes()) == [[core] for core in cores()[:jobs]]


def test_more_processes_than_cores_share_them(fake):
    assert sweep(fake.asked(jobs=len(cores()) + 1), fake.program) == 0
    assert fake.notes()[0]["cores"] == cores()


def test_one_failure_stops_no_other_and_is_listed_with_its_last_lines(fake, capsys):
    fake.order(fail=["sac"])
    assert sweep(fake.asked(agents=("sac", "mbpo"), seeds=(0, 1), jobs=1), fake.program) == 1
    assert [note["name"] for note in fake.notes("end")] == ["Pendulum-v1-mbpo-seed0", "Pendulum-v1-mbpo-seed1"]
    out = capsys.readouterr().out
    assert "4 runs: 2 finished, 2 failed" in out
    log = fake.runs / "Pendulum-v1-sac-seed1.log"
    listed = out.partition(f"Pendulum-v1-sac-seed1 failed, exit code 3. The end of {log}:\n")[2].splitlines()
    assert listed == [f"  complaint {number}" for number in range(2, 12)]


@pytest.mark.slow
def test_started_again_it_skips_the_finished_and_goes_on_with_the_rest(fake, capsys):
    fake.order(fail=["sac"])
    both = fake.asked(agents=("sac", "mbpo"))
    assert sweep(both, fake.program) == 1
    fake.order()
    more = fake.asked(agents=("sac", "mbpo"), seeds=(0, 1))
    assert sweep(more, fake.program) == 0
    assert sorted((note["name"], note["step"]) for note in fake.notes()[2:]) == [
        ("Pendulum-v1-mbpo-seed1", 0),
        ("Pendulum-v1-sac-seed0", 50),
        ("Pendulum-v1-sac-seed1", 0),
    ]
    assert "complaint 11\n$ mnm resume " in (fake.runs / "Pendulum-v1-sac-seed0.log").read_text()
    assert sweep(more, fake.program) == 0
    assert len(fake.notes()) == 5
    capsys.readouterr()
    assert sweep(fake.asked(dry_run=True), fake.program) == 0
    assert capsys.readouterr().out == f"finished: {fake.runs}/Pendulum-v1-sac-seed0, 100 steps\n"


def test_a_run_with_other_settings_is_not_taken_for_the_one_asked_for(fake, capsys):
    assert sweep(fake.asked(), fake.program) == 0
    assert sweep(fake.asked(steps=200), fake.program) == 2
    assert "Pendulum-v1-sac-seed0 has steps 100, but the sweep asks for 200" in capsys.readouterr().err
    (fake.runs / "Pendulum-v1-sac-seed1" / "letters").mkdir(parents=True)
    assert sweep(fake.asked(seeds=(1,)), fake.program) == 2
    assert "is not a run: it has no config.json" in capsys.readouterr().err


def test_two_sweeps_never_train_the_same_run(fake, capsys):
    fake.runs.mkdir()
    with (fake.runs / "Pendulum-v1-sac-seed0.log").open("w") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        assert sweep(fake.asked(), fake.program) == 1
    assert "another process is training this run" in capsys.readouterr().out
    assert not fake.notes()


def test_a_run_whose_folder_cannot_be_made_fails_and_stops_no_other(fake, capsys, monkeypatch):
    def write(folder, spec):
        if spec.seed == 0:
            raise RunError(f"{folder}: No space left on device")
        write_spec(folder, spec)

    monkeypatch.setattr("mnm.sweeps.trials.write_spec", write)
    assert sweep(fake.asked(seeds=(0, 1), jobs=1), fake.program) == 1
    assert [note["name"] for note in fake.notes("end")] == ["Pendulum-v1-sac-seed1"]
    assert "Pendulum-v1-sac-seed0: No space left on device" in capsys.readouterr().out


TINY = "--hidden 8 --batch-size 8 --learning-starts 20 --replay-capacity 50 --evaluate-every 30 --evaluation-episodes 1"


def trained_for_30_steps(run):
    """Whether the real program has made the run, from the specification that the sweep wrote."""
    spec = run.spec
    settings = (spec.settings["hidden"], spec.settings["batch_size"], spec.settings["learning_starts"])
    return settings == ([8], 8, 20) and run.metrics["step"] == [30] and (run.folder / "agent.npz").exists()


@pytest.mark.slow
def test_a_sweep_trains_agents(fake):
    assert sweep(fake.asked(seeds=(0, 1), steps=30, overrides=(TINY,)), MNM) == 0
    assert [trained_for_30_steps(run) for run in find_runs([fake.runs])] == [True, True]


# --- signals ------------------------------------------------------------------------------------------------


def running_for_long(fake, **changes):
    fake.order(seconds=0.7)
    process = fake.in_process(seeds=(0, 1, 2), jobs=2, **changes)
    wait_until(lambda: all((fake.runs / f"Pendulum-v1-sac-seed{i}.log").exists() for i in (0, 1)), "the starts")
    wait_until(lambda: len(fake.notes()) == 2, "two trials")
    checkpoint = fake.runs / "Pendulum-v1-sac-seed0" / "checkpoint"
    wait_until(lambda: checkpoint.read_text() not in ("", "0"), "a checkpoint")
    return process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_with_a_checkpoint_and_the_sweep_can_go_on(number, fake):
    process = running_for_long(fake)
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert "3 runs: 1 waiting, 2 stopped" in out
    assert "the same command goes on" in out
    assert not any(alive(note["pid"]) for note in fake.notes())
    assert (fake.runs / "Pendulum-v1-sac-seed0.log").read_text().endswith("saved\n")
    fake.order()
    assert sweep(fake.asked(seeds=(0, 1, 2)), fake.program) == 0
    again = {note["name"]: note for note in fake.notes()[2:]}
    assert again["Pendulum-v1-sac-seed0"]["step"] >= 10
    assert again["Pendulum-v1-sac-seed2"]["step"] == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_no_trial_outlives_a_sweep_that_is_killed(fake):
    process = running_for_long(fake)
    process.kill()
    process.communicate(timeout=30)
    wait_until(lambda: not any(alive(note["pid"]) for note in fake.notes()), "the trials' end", seconds=5)


# --- what is shown ------------------------------------------------------------------------------------------


def test_the_live_table_shows_state_step_return_and_time_left(tmp_path):
    def rows(*steps):
        (folder / "metrics.csv").write_text("step,return\n" + "".join(f"{step},-7.25\n" for step in steps))

    folder = tmp_path / "run"
    folder.mkdir()
    record = TrialStatus(Trial(folder, spec_of(steps=400)))
    record.expect_start()
    record.look()
    assert record.state is TrialState.WAITING
    (folder / "config.json").write_text('{"algorithm": "sac", "env": "E-v0", "seed": 0, "steps": 400, "scale": "cpu"}')
    record.trial.log.write_text("$ mnm resume\n")
    record.look()
    assert (record.state, record.seconds_left) == (TrialState.RUNNING, None)
    record.began -= 100
    rows(50, 100)
    record.look()
    assert record.seconds_left == pytest.approx(300, abs=2)
    assert line(record) == "run: running, step 100 of 400, return -7.2, 5 min left"
    with (console := Console(width=80)).capture() as capture:
        console.print(live_table([TrialStatus(Trial(tmp_path / "later", spec_of(steps=400))), record]))
    text = capture.get()
    assert text.index("running") < text.index("later")
    assert all(part in text for part in ("100/400", "-7.2", "5 min", "1 waiting, 1 running"))


def test_numbers_are_said_in_words():
    assert [duration(seconds) for seconds in (None, 99, 600, 3600 * 2 + 180)] == ["", "99 s", "10 min", "2 h 03 min"]
    assert [why_failed(code) for code in (0, 1, -9)] == ["", "exit code 1", "killed by SIGKILL"]
    assert math.isnan(TrialStatus(Trial(Path("nowhere/at-all"), spec_of(steps=1))).last_return)


# --- Ray ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    """Two nodes on this machine, one CPU each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        cluster.add_node(num_cpus=1)
        yield cluster
        cluster.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_trial_whose_ray_worker_dies_goes_on_elsewhere_from_its_checkpoint(cluster, fake):
    fake.order(seconds=0.5)
    process = fake.in_process(seeds=(0, 1), ray=cluster.address)
    checkpoint = fake.runs / "Pendulum-v1-sac-seed0" / "checkpoint"
    wait_until(lambda: checkpoint.exists() and checkpoint.read_text() not in ("", "0", "10"), "a checkpoint")
    first = next(note for note in fake.notes() if note["name"] == "Pendulum-v1-sac-seed0")
    os.kill(first["parent"], signal.SIGKILL)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "2 runs: 2 finished" in out
    assert not alive(first["pid"])
    attempts = [note for note in fake.notes() if note["name"] == "Pendulum-v1-sac-seed0"]
    assert attempts[0]["step"] == 0
    assert attempts[1]["step"] >= 20
    assert attempts[1]["parent"] != first["parent"]
    assert len(attempts) == 2
    assert [note["step"] for note in fake.notes() if note["name"] == "Pendulum-v1-sac-seed1"] == [0]
    assert read_run(fake.runs / "Pendulum-v1-sac-seed0").metrics["step"] == [10 * n for n in range(1, 11)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_signal_ends_the_trials_on_ray_with_a_checkpoint(cluster, fake):
    fake.order(seconds=5.0)
    process = fake.in_process(seeds=(0, 1, 2), ray=cluster.address)
    wait_until(lambda: len(fake.notes()) == 2, "two trials")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert not any(alive(note["pid"]) for note in fake.notes())
    assert [(fake.runs / f"{note['name']}.log").read_text().endswith("saved\n") for note in fake.notes()] == [True] * 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_sweep_on_ray_trains_agents(cluster, fake):
    fake.program = MNM
    process = fake.in_process(seeds=(0, 1), steps=30, overrides=(TINY,), ray=cluster.address)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0, out
    assert [trained_for_30_steps(run) for run in find_runs([fake.runs])] == [True, True]
