"""Learning from data alone: no environment is stepped, a killed run goes on bit for bit, what is unknown costs."""

import json
import random
from dataclasses import replace

import gymnasium as gym
import jax
import numpy as np
import pytest

import mnm
from mnm.agents import ALGORITHMS
from mnm.agents.scales import preset
from mnm.cli import run
from mnm.envs.adapter import TaskError
from mnm.training.checkpoints import restore_checkpoints, save_checkpoint
from mnm.training.datasets import open_dataset
from mnm.training.learner import CHUNK, Learner
from mnm.training.metrics import read_metrics
from training.kills import assert_same_run, kill_and_resume

pytestmark = pytest.mark.slow

TINY = {"hidden": (8,), "batch_size": 16}
MODEL = {
    "model_hidden": (8,), "head_hidden": (8,), "ensemble_size": 2, "model_buffer_capacity": 64, "warmup_updates": CHUNK,
    "classifier_hidden": (8,), "value_term_start": 300,
}  # fmt: skip


class Unplayable(gym.Env):
    """Has spaces; whoever plays it fails."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        raise AssertionError("reset")

    def step(self, action):
        raise AssertionError("step")


def walk(path, rows=600, largest=1.0, **more):
    """s' = 0.5 s + 0.2 a + noise, and a is what is paid: the more, the better. Actions up to `largest` were taken."""
    noise = np.random.default_rng(0)
    observations, actions = noise.normal(size=(rows, 1)), noise.uniform(-largest, largest, (rows, 1))
    np.savez(
        path,
        observations=observations,
        actions=actions,
        rewards=actions[:, 0],
        next_observations=0.5 * observations + 0.2 * actions + 0.1 * noise.normal(size=(rows, 1)),
        terminations=np.zeros(rows),
        action_low=[-1.0],
        action_high=[1.0],
        **more,
    )
    return str(path)


def bits(learner):
    leaves = jax.tree.leaves((learner.state, learner.replay))
    return [
        np.asarray(jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)
        for leaf in leaves
    ]


def assert_same(one, two):
    for a, b in zip(bits(one), bits(two), strict=True):
        np.testing.assert_array_equal(a, b)


def go(learner, until, pauses=None):
    rows = []

    def on_eval(seed, step, row):
        rows.append((step, {name: row[name] for name in row if name not in ("seconds", "updates_per_s")}))

    left = [pauses]

    def on_step():
        if left[0] is not None:
            left[0] -= 1

    learner.learn(
        until - learner.steps, evaluate_every=CHUNK, on_eval=on_eval, on_step=on_step, should_stop=lambda: left[0] == 0
    )
    return rows


def test_an_agent_learns_and_predicts_without_a_step_and_is_saved_with_its_data(tmp_path):
    settings = TINY | {"discount": 0.5, "replay_capacity": 1024}
    agent = mnm.SAC.from_dataset(walk(tmp_path / "walk.npz"), Unplayable, scale="quick", **settings)
    assert int(agent.replay.size) == 600
    assert float(agent.state.actor_critic.observations.count) == 600
    rows = go(agent.learn(0), 2 * CHUNK)
    assert [step for step, _ in rows] == [CHUNK, 2 * CHUNK]
    assert {"q_data", "q_policy", "critic_loss"} <= rows[-1][1].keys()
    assert "return" not in rows[-1][1]
    assert (agent.steps, agent.updates) == (2 * CHUNK, 2 * CHUNK)
    assert repr(agent).endswith(f"{2 * CHUNK} updates from data>")
    with pytest.raises(TaskError, match="reset"):
        agent.learn(CHUNK, evaluate=True, evaluate_every=CHUNK)
    agent.save(tmp_path / "agent.npz")
    loaded = mnm.load(tmp_path / "agent.npz", Unplayable)
    assert loaded.offline
    assert_same(go_on(agent), go_on(loaded))
    np.testing.assert_array_equal(agent.predict(np.zeros(1)), loaded.predict(np.zeros(1)))


def go_on(agent):
    go(agent, agent.steps + CHUNK)
    return agent


def test_data_alone_give_an_agent_that_predicts_and_cannot_be_played(tmp_path):
    agent = mnm.SAC.from_dataset(walk(tmp_path / "walk.npz"), scale="quick", **TINY)
    agent.save(tmp_path / "agent.npz")
    loaded = mnm.load(tmp_path / "agent.npz")
    assert np.abs(loaded.predict(np.zeros((5, 1)))).max() <= 1.0
    with pytest.raises(TaskError, match="there are data of this task, and no environment"):
        loaded.evaluate(0, 1)


def learner(path, **more):
    algorithm = ALGORITHMS["mnm_approx"]
    config = replace(preset(algorithm, "quick", "", offline=True), **TINY | MODEL | more)
    dataset = open_dataset(path)
    return Learner(algorithm, config, dataset.task(None), (0,), dataset=dataset)


def test_a_killed_run_goes_on_bit_for_bit_also_where_the_data_are_sampled_from_the_disk(tmp_path, capsys):
    """The replay has room for 200 of 600 rows; the run is stopped in the warm-up, and again while it learns."""
    path = walk(tmp_path / "walk.npz")
    unbroken = learner(path, replay_capacity=200)
    assert "20 of them are read anew from the disk every 250 updates" in capsys.readouterr().err
    assert int(unbroken.replay.size) == 200
    assert float(unbroken.state.world.statistics.observations.count) == 600
    first = np.asarray(unbroken.replay.storage.observations)
    expected = go(unbroken, 3 * CHUNK)
    changed = (np.asarray(unbroken.replay.storage.observations) != first).any(axis=1)
    assert changed.sum() == 60  # three blocks: before each of four chunks but the first
    assert {"trust", "doubt", "log_ratio_data", "log_ratio_policy", "model_error_1"} <= expected[-1][1].keys()

    rows, stopped = [], learner(path, replay_capacity=200)
    for pauses in (1, 2):
        rows += go(stopped, 3 * CHUNK, pauses)
        save_checkpoint(tmp_path, stopped, 0)
        stopped = learner(path, replay_capacity=200)
        assert restore_checkpoints([tmp_path], stopped) == []
    rows += go(stopped, 3 * CHUNK)
    assert rows == expected
    assert_same(unbroken, stopped)


def held_out_places(learner):
    return {float(value) for value in np.asarray(learner.replay.storage.observations)[::10, 0]}


def test_what_is_held_out_stays_held_out(tmp_path):
    path = walk(tmp_path / "walk.npz", rows=613)
    with np.load(path) as stored:
        allowed = {float(np.float32(value)) for value in stored["observations"][::10, 0]}
    agent = mnm.SAC.from_dataset(path, scale="quick", **TINY, replay_capacity=257)
    assert int(agent.replay.size) == 200
    for number in range(10, 60):
        agent._read_block(number)
        assert held_out_places(agent) <= allowed


FLAGS = "--scale quick --hidden 8 --batch-size 16 --evaluate-every 250 --evaluation-episodes 1"


def test_the_command_line_trains_resumes_and_tells_of_changed_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = walk(tmp_path / "walk.npz")
    assert run(["train", "sac", "--dataset", path, "--updates", "250", *FLAGS.split()]) == 0
    folder = tmp_path / "runs" / "walk-sac-seed0"
    config = json.loads((folder / "config.json").read_text())
    assert (config["steps"], config["env"]) == (250, "")
    assert config["offline"] | {"digest": ""} == {"dataset": path, "rows": 600, "digest": "", "evaluate": False}
    assert read_metrics(folder / "metrics.csv")["step"] == [250]
    assert not (folder / "evaluations.csv").exists()
    assert run(["evaluate", str(folder)]) == 2
    assert "no environment" in capsys.readouterr().err
    assert run(["resume", str(folder), "--steps", "500"]) == 0
    assert "going on from update 250 of 500" in capsys.readouterr().out
    assert read_metrics(folder / "metrics.csv")["step"] == [250, 500]
    walk(tmp_path / "walk.npz", rows=601)
    assert run(["resume", str(folder), "--steps", "750"]) == 2
    assert "has changed: it had 600 rows when the run began, and has 601 others now" in capsys.readouterr().err


PENDULUM = (
    "--env Pendulum-v1 --updates 500 --evaluate --scale quick --hidden 8 --batch-size 16 --model-hidden 8"
    " --head-hidden 8 --classifier-hidden 8 --ensemble-size 2 --model-buffer-capacity 64 --warmup-updates 500"
    " --evaluate-every 50 --evaluation-episodes 1"
)


def swings(path, rows=300):
    """Random torques on random states of the pendulum: what follows is noise, which is as good to learn from."""
    noise = np.random.default_rng(0)
    columns = {name: noise.normal(size=(rows, 3)) for name in ("observations", "next_observations")}
    columns |= {"actions": noise.uniform(-2, 2, (rows, 1)), "rewards": noise.normal(size=rows)}
    np.savez(path, **columns, terminations=np.zeros(rows))
    return str(path)


@pytest.mark.apart
@pytest.mark.parametrize(
    ("room", "kills"), [(200, 3), *(pytest.param(n, 20, marks=pytest.mark.long) for n in (200, 1024))]
)
def test_a_run_killed_again_and_again_ends_as_one_never_killed(room, kills, tmp_path):
    """By SIGKILL: first in the model's warm-up, then while it learns.

    The data have 300 rows: with room for 200 they are sampled from the disk.
    """
    data = swings(tmp_path / "swings.npz")
    command = ["train", "mnm_approx", "--dataset", data, *PENDULUM.split(), "--replay-capacity", str(room)]
    assert run([*command, "--runs", str(tmp_path / "whole")]) == 0
    (whole,) = (tmp_path / "whole").iterdir()
    killed = tmp_path / "killed" / whole.name
    command += ["--runs", str(tmp_path / "killed"), "--checkpoint-minutes", "0"]
    learning = [(number * 400 // kills, 0) for number in range(1, kills)]
    kill_and_resume(command, killed, [(0, 0), *learning], random.Random(room))
    assert_same_run(killed, whole)


def test_data_are_read_once_at_the_start_and_once_when_a_run_goes_on(tmp_path):
    dataset, read = open_dataset(walk(tmp_path / "walk.npz")), []

    def counting(start, stop):
        read.append((start, stop))
        return dataset.read(start, stop)

    watched = replace(dataset, read=counting)
    config = replace(preset(ALGORITHMS["sac"], "quick", "", offline=True), **TINY)
    new = Learner(ALGORITHMS["sac"], config, dataset.recorded(), dataset=watched)
    assert read == [(0, 600)]
    assert int(new.replay.size) == 600
    resumed = Learner(ALGORITHMS["sac"], config, dataset.recorded(), dataset=watched, resumes=True)
    assert read == [(0, 600), (0, 600)]
    assert int(resumed.replay.size) == 0
    assert resumed.digest == new.digest
    save_checkpoint(tmp_path, new, 0)
    restore_checkpoints([tmp_path], resumed)
    assert_same(new, resumed)


def test_a_run_s_replay_and_its_episodes_are_data_sets(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    online = "train sac --env Pendulum-v1 --steps 60 --learning-starts 40 --updates-per-step 1"
    assert run([*online.split(), *FLAGS.split()]) == 0
    seen = "runs/Pendulum-v1-sac-seed0"
    assert run(["collect", seen, seen, "--episodes", "1", "--noise", "0.5", "--out", "mixed.h5"]) == 0
    assert "mixed.h5: 400 transitions" in capsys.readouterr().out
    assert run(["export", seen, "--out", "replay.npz"]) == 0
    with np.load("replay.npz") as replay:
        rewards = replay["rewards"]
    for data, rows in ((seen, 60), ("mixed.h5", 400), ("replay.npz", 60)):
        dataset = open_dataset(data)
        assert dataset.rows == rows
        assert dataset.env == ("Pendulum-v1" if data == seen else None)
    np.testing.assert_array_equal(open_dataset(seen).read(0, 60)["rewards"], rewards)
    assert run(["train", "sac", "--dataset", seen, "--updates", "250", "--evaluate", *FLAGS.split()]) == 0
    row = read_metrics(tmp_path / "runs" / "Pendulum-v1-sac-seed0-sac-seed0" / "metrics.csv")
    assert len(row["return"]) == 1
    assert {"q_at_start", "discounted_return", "q_data"} <= row.keys()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no task: name one, --env Pendulum-v1, or data to learn from, --dataset D"),
        (["--env", "Pendulum-v1", "--evaluate"], "--evaluate goes with --dataset"),
        (["--dataset", "{}", "--steps", "5"], "--steps does not go with --dataset"),
        (["--dataset", "{}", "--updates", "0"], "--updates is 0, but must be at least 1"),
        (["--dataset", "{}", "--evaluate"], "--evaluate needs an environment, and"),
        (
            ["--dataset", "{}", "--env", "Pendulum-v1"],
            "observations has the shape (600, 1), but a row of Pendulum-v1 has 3",
        ),
        (["--dataset", "nowhere.npz"], "there is no such file"),
    ],
)
def test_what_cannot_be_is_one_line(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = walk(tmp_path / "walk.npz")
    assert run(["train", "sac", *(option.replace("{}", path) for option in options)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_data_whose_path_no_configuration_can_hold_are_refused(tmp_path, capsys):
    folder = tmp_path / ("deep" * 40) / ("er" * 80)
    folder.mkdir(parents=True)
    assert run(["train", "sac", "--dataset", walk(folder / "walk.npz"), "--runs", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "its whole path must be a name of at most 300 printable characters: move the data elsewhere" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "walk-sac-seed0").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "a.npz", "--noise", "2"], "--noise is 2, but must be a share"),
        (["--out", "a.npz", "--episodes", "0"], "--episodes is 0, but must be above 0"),
        (["--out", "a.csv"], "written to a .npz or a .h5"),
        ([], "name a file"),
    ],
)
def test_what_cannot_be_collected_is_one_line(options, message, capsys):
    assert run(["collect", "runs/none", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_rewards_whose_logarithm_is_asked_for_must_be_positive(tmp_path):
    with pytest.raises(TaskError, match="takes its logarithm: set reward_offset above"):
        mnm.MnM.from_dataset(walk(tmp_path / "walk.npz"), scale="quick", **TINY | MODEL)


SMALL = {"hidden": (32, 32), "batch_size": 64, "critic_updates": 2, "discount": 0.5, "learning_rate": 3e-3}
SMALL_MODEL = {"model_hidden": (16,), "head_hidden": (16,), "ensemble_size": 2, "model_buffer_capacity": 5_000}


def pulled_up(tmp_path, **more):
    """How much better an action far outside of the data is called than one at their edge, by Q; and the agent.

    In the data actions lie within 0.3, and the larger they are the more they are paid; nobody knows what 0.9 gives.
    """
    path = walk(tmp_path / "narrow.npz", largest=0.3, rows=1_000)
    settings = SMALL | SMALL_MODEL | {"classifier_hidden": (32, 32), "warmup_updates": 2 * CHUNK, "value_weight": 0.0}
    agent = mnm.MnMApprox.from_dataset(path, scale="quick", **settings | more)
    agent.learn(4 * CHUNK, evaluate_every=4 * CHUNK)
    observations = np.random.default_rng(1).normal(size=(200, 1))
    outside, edge = (agent.q_values(observations, np.full((200, 1), place)).min(axis=0) for place in (0.9, 0.25))
    return float((outside - edge).mean()), agent


def test_pessimism_lowers_q_at_actions_outside_of_the_data(tmp_path):
    """Rewards go on as in the data: Q climbs beyond them, unless the classifier says that nothing lies there.

    The model is right on held-out rows, so that a nat of doubt is cheap; at ten times its price nobody goes there.
    """
    plain, bold = pulled_up(tmp_path, ratio_weight=0.0, policy_negatives=0.0, calibrate=False)
    doubting, careful = pulled_up(tmp_path, ratio_weight=10.0)
    assert plain > 0.1
    assert doubting < 0
    inside = {}
    for name, agent in (("bold", bold), ("careful", careful)):
        actions = agent.predict(np.random.default_rng(2).normal(size=(200, 1)))
        inside[name] = float((np.abs(actions) <= 0.45).mean())
    assert inside["careful"] > 0.9 > 0.1 > inside["bold"]
    observations = np.zeros((200, 1))
    said = [
        careful.log_ratio(observations, np.full((200, 1), place), np.full((200, 1), 0.2 * place), seed=0).mean()
        for place in (0.0, 0.9)
    ]
    assert said[0] > said[1] + 1.0
