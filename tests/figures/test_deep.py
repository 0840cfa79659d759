"""The deep figures: what they run, that they draw, and that their verdicts follow the data."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from mnm.agents import ALGORITHMS
from mnm.agents.rollout import mean_rollout
from mnm.commands.reproduce import Reproduce, reproduce
from mnm.diagnostics import WINDOW
from mnm.figures import DEEP, load
from mnm.figures.base import ANSWERS, Verdict, stacked, where
from mnm.figures.deep import (
    HALF_CHEETAH,
    MEASURED,
    PUSHER,
    SIZES,
    Choice,
    at_equal_minutes,
    compared,
    curves,
    median_steps_to,
    steps_to,
    with_p_values,
)
from mnm.figures.progress import closer, forward, screwed
from mnm.normalizer import Normalizer
from mnm.sweeps.plan import plan
from mnm.training.learner import Learner
from mnm.training.runs import read_run

STEPS = np.array([500, 1000, 1500, 2000])
ALL = Choice()


def run_rows(env, agent, seed, level=100.0, **columns):
    """Rows of one run, with a return that climbs to its level."""
    rows = {"env": env, "agent": agent, "seed": seed, "rollout_length": 1, "step": STEPS}
    rows |= dict.fromkeys(MEASURED, np.full(4, np.nan))
    climbing = level * np.array([0.0, 0.5, 0.9, 1.0]) + seed
    error = 0.1 * np.array([2.0, 1.0, 1.0, 1.0])
    rows |= {"return": climbing, "success": climbing / 200, "q_at_start": climbing, "discounted_return": climbing}
    rows |= {"model_error_1": error, "constant_error_1": np.ones(4), "log_return": np.full(4, 3.0)}
    return rows | columns


def figure_rows(name, levels, **columns):
    """Columns of all runs of a figure, three seeds each."""
    made = []
    for grid in load(name).grids:
        for env in grid.envs:
            for agent in grid.agents:
                for number, _ in enumerate(grid.overrides):
                    level = levels.get(agent, 50.0) - 10 * number
                    more = {"rollout_length": 1 + number} | {k: v[agent] for k, v in columns.items() if agent in v}
                    made += [run_rows(env, agent, seed, level, **more) for seed in range(3)]
    return stacked(*made)


def segments(ahead):
    """Columns of imagined_rollouts: how far each agent's model is ahead, with some noise."""
    noise = np.random.default_rng(0).normal(0, 0.01, 60)
    return stacked(
        *(
            {"env": env, "agent": agent, "seed": seed, "actions_of": actor, "segment": np.arange(60), "real": noise}
            | {"model": noise + gain + 0.02 * np.sin(np.arange(60))}
            for env in (PUSHER, HALF_CHEETAH)
            for agent, gain in ahead.items()
            for seed in range(2)
            for actor in ahead
        )
    )


def columns_of(name):
    if name == "imagined_rollouts":
        return segments({"mnm_approx": 0.05, "mbpo": 0.0})
    if name == "retrained_models":
        return segments({"likelihood": 0.0, "log p/q": 0.02, "log p/q + V": 0.05})
    return figure_rows(name, {"mnm_approx": 200.0})


def answers(name, columns):
    return {verdict.claim: verdict.answer for verdict in load(name).judge(columns)}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEP)
def test_every_deep_figure_is_drawn_and_judged(name, tmp_path):
    figure, columns = load(name), columns_of(name)
    figure.draw(columns).savefig(tmp_path / "figure.png")
    verdicts = figure.judge(columns)
    assert verdicts
    assert len({verdict.claim for verdict in verdicts}) == len(verdicts)
    assert {verdict.answer for verdict in verdicts} <= set(ANSWERS.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", DEEP)
def test_a_part_of_a_figure_is_drawn_and_judged_too(name, tmp_path):
    figure, columns = load(name), columns_of(name)
    part = where(columns, env=columns["env"][0], agent=columns["agent"][0])
    figure.draw(part).savefig(tmp_path / "figure.png")
    figure.judge(part)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DEEP if name not in ("imagined_rollouts", "retrained_models")])
def test_runs_that_stopped_before_they_learned_cannot_tell(name, tmp_path):
    figure, columns = load(name), columns_of(name)
    first = columns["step"] == STEPS[0]
    unknown = {measured: np.full(first.sum(), np.nan) for measured in MEASURED}
    early = {column: values[first] for column, values in columns.items()} | unknown
    figure.draw(early).savefig(tmp_path / "figure.png")
    assert not any(verdict.holds for verdict in figure.judge(early))


@cache
def planned(name, scale):
    """A figure's trials; planning writes nothing."""
    return [trial for sweep in load(name).sweeps(scale, ALL, Path("nowhere")) for trial in plan(sweep)]


@pytest.mark.slow
@pytest.mark.parametrize("scale", SIZES)
@pytest.mark.parametrize("name", DEEP)
def test_the_runs_of_every_figure_can_be_planned(name, scale):
    trials = planned(name, scale)
    assert len({trial.folder for trial in trials}) == len(trials) >= 2 * len(SIZES[scale].seeds)


@pytest.mark.slow
def test_a_run_that_figures_share_is_the_same_in_all_of_them():
    begun = {}
    for name in DEEP:
        for trial in planned(name, "cpu"):
            assert begun.setdefault(trial.name, trial.spec) == trial.spec
    assert "DClawPoseRandom-v0-mbpo-seed2" in " ".join(begun)


def test_a_choice_narrows_tasks_agents_and_seeds(tmp_path):
    choice = Choice((HALF_CHEETAH,), ("mbpo", "sac"), (7,))
    (sweep,) = load("gym_benchmark").sweeps("cpu", choice, tmp_path)
    assert (sweep.envs, sweep.agents, sweep.seeds) == ((HALF_CHEETAH,), ("mbpo", "sac"), (7,))
    assert load("model_horizon").sweeps("cpu", choice, tmp_path) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "holds"),
    [([4, 5, 6], [1, 2, 3], True), ([1, 2, 3], [4, 5, 6], False), ([1, 5, 3], [2, 4, 6], None)],
)
def test_three_seeds_can_say_yes_no_or_nothing(ours, theirs, holds):
    assert compared(np.array(ours, float), np.array(theirs, float)).holds is holds


def test_seeds_without_a_number_cannot_tell():
    result = compared(np.array([1.0, np.nan, 2.0]), np.zeros(3))
    assert result.holds is None
    assert result.measured == "not every seed has a number"


def test_a_comparison_says_by_how_much_and_how_many_seeds_would_tell():
    told = compared(np.array([4.0, 5.0, 6.0]), np.array([1.0, 2.0, 3.0]))
    assert told.measured == "difference of the interquartile means 3 [1.67, 4.33], better in 1.00 of the pairs of seeds"
    untold = compared(np.array([1.0, 5.0, 3.0]), np.array([2.0, 4.0, 6.0]))  # four is above three: the second is better
    assert untold.measured.startswith("difference of the interquartile means -1 [")
    assert untold.measured.endswith("in 0.33 of the pairs of seeds; 51 seeds of each would tell")
    one_each = compared(np.array([1.0]), np.array([2.0]))  # whose spread nobody knows
    said = "difference of the interquartile means -1 [nan, nan], better in 0.00 of the pairs of seeds"
    assert one_each.measured == said


def test_p_values_stand_behind_what_was_measured_with_holm_s_beside_them():
    verdicts = [Verdict("a", "-", "1", True, 0.01), Verdict("b", "-", "2", True), Verdict("c", "-", "3", None, 0.2)]
    assert [one.measured for one in with_p_values(verdicts)] == [
        "1; p = 0.010 (0.020 by Holm's correction for 2 tests)",
        "2",
        "3; p = 0.200 (0.200 by Holm's correction for 2 tests)",
    ]
    assert with_p_values(verdicts[:1])[0].measured == "1; p = 0.010"
    assert with_p_values([Verdict("d", "-", "4", None, np.nan)])[0].measured == "4"


def test_steps_to_a_mark_are_those_of_half_of_the_seeds():
    columns = stacked(*(run_rows(HALF_CHEETAH, "sac", seed, level=level) for seed, level in enumerate((100, 60, 10))))
    assert steps_to(columns, 55.0).tolist() == [1500.0, 1500.0, np.inf]
    assert steps_to(columns, 50.0).tolist() == [1000.0, 1500.0, np.inf]
    assert median_steps_to(columns, 50.0) == 1500.0
    assert median_steps_to(columns, 70.0) == np.inf
    (verdict,) = [
        one
        for one in load("gym_benchmark").judge(figure_rows("gym_benchmark", {"mnm_approx": 200, "sac": 90}))
        if one.claim == "HalfCheetah-v4: MnM-approx outperforms SAC"
    ]
    assert verdict.measured.endswith("half of its seeds have had the other's last mean by step 1000")  # no time kept


def test_at_equal_minutes_the_slower_agent_has_what_it_had_by_then():
    slow = stacked(*(run_rows(HALF_CHEETAH, "mbpo", seed, seconds=np.array([60, 120, 180, 240.0])) for seed in (0, 1)))
    quick = stacked(*(run_rows(HALF_CHEETAH, "sac", seed, seconds=np.array([30, 60, 90, 121.0])) for seed in (0, 1)))
    assert at_equal_minutes(slow, quick) == "; after 2.0 minutes of each 50.5 (50.0, 51.0) against 100 (100, 101)"
    assert at_equal_minutes(quick, slow) == "; after 2.0 minutes of each 100 (100, 101) against 50.5 (50.0, 51.0)"
    assert at_equal_minutes(slow, quick | {"seconds": np.full(8, 1.0)}) == ""  # nothing was measured by then
    assert at_equal_minutes(slow, quick | {"seconds": np.full(8, np.nan)}) == ""


def test_benchmark_verdicts_follow_the_returns():
    found = answers("gym_benchmark", figure_rows("gym_benchmark", {"mnm_approx": 200, "mbpo": 150, "vmbpo": 300}))
    assert found["HalfCheetah-v4: MnM-approx is on par with MBPO"] == "yes"
    assert found["HalfCheetah-v4: MnM-approx outperforms VMBPO"] == "no"
    found = answers("gym_benchmark", figure_rows("gym_benchmark", {"mnm_approx": 100, "mbpo": 101}))
    assert found["Hopper-v4: MnM-approx is on par with MBPO"] == "cannot tell"
    found = answers("dclaw_benchmark", figure_rows("dclaw_benchmark", {"mnm_approx": 200, "mbpo": 10}))
    assert found["DClawTurnRandom-v0: MnM-approx outperforms MBPO"] == "yes"


def test_a_q_far_from_the_return_is_called_inaccurate_and_one_that_jumps_unstable():
    far = {"mbpo": np.array([0.0, 900.0, 100.0, 500.0])}
    found = answers("q_values", figure_rows("q_values", {"mnm_approx": 100, "mbpo": 100}, q_at_start=far))
    assert found["DClawScrewFixed-v0: MnM-approx's Q is more accurate than MBPO's"] == "yes"
    assert found["DClawScrewFixed-v0: MnM-approx's Q is more stable than MBPO's"] == "yes"


def test_a_model_that_wanders_off_is_not_stable():
    claim = "DrawerOpen-v0: MnM-approx's model trains stably"
    steady = figure_rows("model_stability", {})
    assert answers("model_stability", steady)[claim] == "yes"
    wandered = {"mnm_approx": np.array([0.2, 0.1, 0.1, 0.5])}
    columns = figure_rows("model_stability", {}, model_error_1=wandered)
    found = answers("model_stability", columns)
    assert found[claim] == "no"
    (measured,) = [verdict.measured for verdict in load("model_stability").judge(columns) if verdict.claim == claim]
    assert measured.startswith("0 of 3 seeds end within 2 times their lowest error; MBPO's 3 of 3")
    assert found["DrawerOpen-v0: MnM-approx's model is more accurate than MBPO's"] == "no"


def test_longer_horizons_are_worse_only_if_each_is():
    falling = figure_rows("model_horizon", {"mnm_approx": 200.0})
    claim = "DrawerOpen: a longer model horizon is worse"
    assert answers("model_horizon", falling)[claim] == "yes"
    rising = falling | {"return": -falling["return"]}
    assert answers("model_horizon", rising)[claim] == "no"
    one_better = falling | {"return": np.where(falling["rollout_length"] == 2, 1000.0, falling["return"])}
    assert answers("model_horizon", one_better)[claim] == "cannot tell"


def test_the_tight_bound_s_gap_is_measured_in_logarithms():
    q_values = {"mnm_tight": np.full(4, np.exp(2.9)), "mnm": np.full(4, np.exp(1.0))}
    verdicts = load("tight_bound").judge(figure_rows("tight_bound", {}, q_at_start=q_values))
    (gap,) = [row for row in verdicts if row.claim.startswith("Pendulum-v1: MnM-tight's Q is closer")]
    assert gap.holds
    assert "0.10 (0.10, 0.10, 0.10) against 2.00" in gap.measured


def test_solved_means_every_seed_at_its_end():
    returns = {"sac": np.array([-900.0, -150.0, -150.0, -150.0]), "mbpo": np.array([-900.0, -150.0, -150.0, -300.0])}
    columns = stacked(*(run_rows("Pendulum-v1", a, s, **{"return": returns[a]}) for a in returns for s in range(3)))
    found = {verdict.claim.split()[0]: verdict for verdict in load("eight_agents").judge(columns)}
    assert (found["SAC"].holds, found["MBPO"].holds) == (True, False)
    assert "first there at step 1000, 1000, 1000" in found["MBPO"].measured


def test_a_model_ahead_of_reality_is_optimistic_and_one_behind_is_not():
    found = answers("imagined_rollouts", segments({"mnm_approx": 0.05, "mbpo": 0.01}))
    assert set(found.values()) == {"yes"}
    found = answers("imagined_rollouts", segments({"mnm_approx": -0.05, "mbpo": 0.0}))
    assert set(found.values()) == {"no"}


def test_models_are_compared_on_the_seeds_that_both_agents_have():
    columns = segments({"mnm_approx": 0.05, "mbpo": 0.01})
    keep = (columns["agent"] == "mnm_approx") | (columns["seed"] == 1)
    keep &= (columns["actions_of"] == "mnm_approx") | (columns["seed"] == 1)
    found = load("imagined_rollouts").judge({name: column[keep] for name, column in columns.items()})
    counted = [verdict.measured.split("over ")[1].split(";")[0] for verdict in found]
    assert counted == ["180 states", "60 states", "120 states"] * 2
    assert all(verdict.holds for verdict in found)


def test_a_seed_that_says_otherwise_leaves_the_optimism_untold():
    columns = segments({"mnm_approx": 0.05, "mbpo": 0.01})
    odd = (columns["agent"] == "mnm_approx") & (columns["seed"] == 1)
    columns["model"] = columns["model"] - 0.045 * odd
    found = answers("imagined_rollouts", columns)
    assert found[f"{PUSHER}: MnM-approx's model moves further towards the reward"] == "yes"
    assert found[f"{PUSHER}: it moves further than MBPO's model does"] == "cannot tell"


def test_a_model_that_flatters_its_own_policy_only_is_not_called_optimistic_on_other_actions():
    columns = segments({"mnm_approx": 0.05, "mbpo": 0.01})
    others = (columns["agent"] == "mnm_approx") & (columns["actions_of"] == "mbpo")
    columns["model"] = columns["model"] - 0.06 * others
    found = answers("imagined_rollouts", columns)
    assert found[f"{PUSHER}: MnM-approx's model moves further towards the reward"] == "yes"
    assert found[f"{PUSHER}: it does so on MBPO's actions too"] == "no"


def test_progress_is_metres_forward_or_closer():
    observations = np.zeros((WINDOW + 1, 2, 23))
    observations[1:, 0, 8] = 2.0  # the first row runs at 2 m/s
    np.testing.assert_allclose(forward(observations), [2.0 * 0.05 * WINDOW, 0.0])
    observations[:, :, 17] = 1.0  # the object, a metre from goal and hand
    observations[-1, 1, 17] = 0.6
    np.testing.assert_allclose(closer(observations), [0.0, 0.4 + 0.5 * 0.4])
    observations[:, :, 20] = -1.0  # radians from the target
    observations[-1, 1, 20] = 0.25  # past it
    np.testing.assert_allclose(screwed(observations), [0.0, 0.75])


def test_an_objective_leans_towards_reward_only_beside_others_on_the_same_states():
    claims = {one.claim: one.answer for one in load("retrained_models").judge(columns_of("retrained_models"))}
    assert set(claims.values()) == {"yes"}
    found = answers("retrained_models", segments({"likelihood": 0.05, "log p/q": 0.05, "log p/q + V": 0.05}))
    assert found[f"{PUSHER}: MnM-approx's objective makes a model run ahead of reality"] == "yes"
    assert found[f"{PUSHER}: so does its value term alone, beside log p/q without it"] == "cannot tell"


@pytest.mark.slow
def test_a_rollout_is_the_mean_of_the_members_step_after_step():
    algorithm = ALGORITHMS["mbpo"]
    small = {"hidden": (4,), "model_hidden": (4,), "head_hidden": (4,), "ensemble_size": 2, "model_buffer_capacity": 50}
    config = replace(algorithm.presets["quick"], replay_capacity=50, **small)
    learner = Learner(algorithm, config, "Pendulum-v1")
    changes = Normalizer.of(jnp.asarray(np.random.default_rng(0).normal(size=(10, 3)), jnp.float32))
    world = eqx.tree_at(lambda w: w.statistics.changes, learner.agent(0).world, changes)
    starts, actions = jnp.ones((3, 3)), jnp.full((2, 3, 1), 0.5)
    observations = starts
    for step, action in zip(mean_rollout(world, starts, actions), actions, strict=True):
        inputs = world.inputs(observations, action)
        said = [member(inputs)[:, :3] for member in world.target_dynamics.network.members]
        observations = world.next_observations(observations, jnp.mean(jnp.stack(said), axis=0))
        np.testing.assert_allclose(step, observations, rtol=1e-5, atol=1e-5)
    assert np.abs(observations - starts).max() > 0.1
    learner.close()


def test_curves_hold_every_evaluation_and_nothing_where_nothing_was_measured(tmp_path):
    config = {"algorithm": "sac", "env": "Task-v0", "seed": 3, "steps": 2, "scale": "cpu", "settings": {}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "metrics.csv").write_text("step,return,seconds\n1,-5.0,0.5\n2,7.0,1.5\n")
    columns = curves([read_run(tmp_path)])
    assert columns["return"].tolist() == [-5.0, 7.0]
    assert columns["agent"].tolist() == ["sac", "sac"]
    assert np.isnan(columns["model_error_1"]).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"figures": ("three_states",), "envs": ("Pendulum-v1",)}, "are for deep figures, and none is named"),
        (
            {"figures": ("gym_benchmark",), "envs": ("Pendulum-v1",)},
            "leave no run of gym_benchmark: tasks are HalfCheetah",
        ),
        ({"figures": ("gym_benchmark",), "agents": ("dqn",)}, "agents mbpo, mnm_approx, sac, vmbpo"),
        ({"figures": ("gym_benchmark",), "seeds": (-1,)}, "--seeds holds -1"),
        ({"figures": ("gym_benchmark",), "jobs": 0}, "--jobs is 0"),
    ],
)
def test_a_choice_that_cannot_be_is_bad_input(changes, message, tmp_path, capsys):
    assert reproduce(Reproduce(**{"out": tmp_path, "scale": "quick"} | changes)) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_dry_run_prints_the_updates_per_step_and_trains_nothing(tmp_path, capsys):
    out = tmp_path / "results"
    assert reproduce(Reproduce(("gym_benchmark",), scale="paper", dry_run=True, out=out)) == 0
    printed = capsys.readouterr().out
    (mbpo,) = [
        line for line in printed.splitlines() if "HalfCheetah-v4" in line and "mbpo" in line and "vmbpo" not in line
    ]
    assert [cell.strip() for cell in mbpo.split("│")[4:8]] == ["5", "300,000", "40", "11,700,000"]
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.apart
def test_figures_from_real_runs(tmp_path, capsys, monkeypatch):
    """A smoke run of the whole way: train, measure, draw, video, judge."""
    few = replace(SIZES["quick"], steps=220, evaluation_episodes=1)  # 200 of them are random
    monkeypatch.setitem(SIZES, "quick", few)
    monkeypatch.setattr("mnm.figures.imagined_rollouts.VIDEO_STEPS", 5)
    for figure in ("imagined_rollouts", "retrained_models"):
        monkeypatch.setattr(f"mnm.figures.{figure}.EPISODES", 1)
    monkeypatch.setattr("mnm.figures.retrained_models.UPDATES", 50)
    command = Reproduce(
        ("q_values", "imagined_rollouts", "retrained_models"),
        scale="quick",
        envs=(HALF_CHEETAH,),
        seeds=(0,),
        out=tmp_path,
    )
    assert reproduce(command) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert {"q_values-quick.csv", "q_values-quick.png", "verdicts.csv", "runs"} <= names
    assert {"imagined_rollouts-quick-HalfCheetah.gif", "imagined_rollouts-quick-HalfCheetah.png"} <= names
    verdicts = (tmp_path / "verdicts.csv").read_text()
    assert "imagined_rollouts-quick,HalfCheetah-v4: it moves further than MBPO's model does" in verdicts
    assert "q_values-quick,HalfCheetah-v4: MnM-approx's Q is more accurate" in verdicts
    assert 'retrained_models-quick,"HalfCheetah-v4: so does its value term alone' in verdicts
    assert reproduce(replace(command, figures=("q_values",))) == 0  # finished runs are not made again
    assert "2 runs: 2 finished" in capsys.readouterr().out
