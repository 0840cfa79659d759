"""`mnm compare` on run folders made by hand: its numbers, what it warns of, and how it fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from mnm.analysis.comparison import aggregates, compare_runs
from mnm.analysis.statistics import permutation_p_value
from mnm.commands.compare import Compare, compare
from mnm.training.runs import find_runs

STEPS = (500, 1000)
SAC = (1.0, 2.0, 3.0, 4.0, 6.0)
MBPO = (2.5, 3.5, 4.5, 7.0, 8.0)


def write_run(
    folder, agent="sac", env="Task-v0", seed=0, returns=(0.0, 1.0), steps=STEPS, budget=1000, settings=None, **config
):
    """A run whose metrics.csv has the returns at the steps."""
    path = folder / f"{env}-{agent}-seed{seed}"
    path.mkdir(parents=True)
    written = {"algorithm": agent, "env": env, "seed": seed, "steps": budget, "scale": "cpu"}
    settings = {"discount": 0.99, "hidden": [64, 64]} | (settings or {})
    (path / "config.json").write_text(json.dumps(written | {"settings": settings} | config))
    rows = [f"{step},{value}" for step, value in zip(steps, returns, strict=True)]
    (path / "metrics.csv").write_text("\n".join(["step,return", *rows]) + "\n")
    return path


def write_seeds(folder, agent, finals, **more):
    return [
        write_run(folder, agent, seed=seed, returns=(0.1 * seed, final), **more) for seed, final in enumerate(finals)
    ]


def answer(capsys, *paths, **options):
    """What --json prints."""
    assert compare(Compare(paths, json=True, **options)) == 0
    return json.loads(capsys.readouterr().out)


def printed(capsys, *paths, **options):
    assert compare(Compare(paths, **options)) == 0
    return capsys.readouterr().out


def agents(found, env=0):
    return {row["agent"]: row for row in found["environments"][env]["agents"]}


def test_the_numbers_are_scipy_s(tmp_path, capsys):
    write_seeds(tmp_path, "sac", SAC)
    write_seeds(tmp_path, "mbpo", MBPO)
    found = answer(capsys, tmp_path, baseline="sac")
    rows = agents(found)
    assert list(rows) == ["mbpo", "sac"]
    assert found["environments"][0]["step"] == 1000
    for agent, scores in (("mbpo", MBPO), ("sac", SAC)):
        assert [run["score"] for run in rows[agent]["runs"]] == list(scores)
        assert rows[agent]["mean"] == pytest.approx(np.mean(scores))
        assert rows[agent]["iqm"] == pytest.approx(stats.trim_mean(scores, 0.25))
        assert min(scores) < rows[agent]["low"] < rows[agent]["iqm"] < rows[agent]["high"] < max(scores)
    u = stats.mannwhitneyu(MBPO, SAC).statistic
    assert rows["mbpo"]["probability_of_improvement"] == pytest.approx(u / 25)
    assert rows["mbpo"]["p_value"] == pytest.approx(permutation_p_value(np.array(MBPO), np.array(SAC)))
    assert rows["mbpo"]["smallest_possible_p"] == pytest.approx(1 / 252)
    assert rows["sac"]["p_value"] is None
    assert found["environments"][0]["warnings"] == []


def test_the_table_has_them_too(tmp_path, capsys):
    write_seeds(tmp_path, "sac", SAC)
    write_seeds(tmp_path, "mbpo", MBPO)
    text = printed(capsys, tmp_path, baseline="sac")
    assert "Task-v0: return at step 1000 (the last that all 10 runs have reached)" in text
    (row,) = [line for line in text.splitlines() if "│ mbpo" in line]
    cells = [cell.strip() for cell in row.split("│")[1:-1]]
    assert cells[:3] == ["mbpo", "5", "5.1"]
    assert cells[3].startswith("5 [")
    assert cells[4:] == ["0.760", f"{permutation_p_value(np.array(MBPO), np.array(SAC)):.3f}"]
    assert "warning" not in text
    assert "one-sided" not in printed(capsys, tmp_path)  # without a baseline there is no test


def test_the_curve_is_at_the_common_steps(tmp_path, capsys):
    for seed, returns in enumerate([(0, 1, 2, 3, 4), (0, 2, 4, 6, 8)]):
        write_run(tmp_path, "sac", seed=seed, returns=returns, steps=(200, 400, 600, 800, 1000))
    write_run(tmp_path, "mbpo", returns=(1, 5), steps=(400, 800), budget=800)
    found = answer(capsys, tmp_path)
    assert found["environments"][0]["step"] == 800
    curve = agents(found)["sac"]["curve"]
    assert (curve["step"], curve["iqm"]) == ([400, 800], [1.5, 4.5])
    assert (curve["low"], curve["high"]) == ([1, 3], [2, 6])
    assert agents(found)["mbpo"]["curve"]["low"] == [None, None]


def test_at_chooses_the_step(tmp_path, capsys):
    write_seeds(tmp_path, "sac", SAC)
    found = answer(capsys, tmp_path, at=500)
    assert found["environments"][0]["step"] == 500
    assert agents(found)["sac"]["mean"] == pytest.approx(0.2)
    text = printed(capsys, tmp_path, at=500)
    assert "return at step 500 " in text
    assert "the last that all" not in text


def test_two_against_three_are_warned_of(tmp_path, capsys):
    write_seeds(tmp_path, "sac", (1, 2, 3))
    write_seeds(tmp_path, "mbpo", (11, 12))
    found = answer(capsys, tmp_path, baseline="sac")
    assert agents(found)["mbpo"]["p_value"] == pytest.approx(0.1)
    expected = (
        "mbpo: 2 seeds against 3: no difference, however large, can reach p <= 0.05 "
        "(the smallest possible p is 0.1); 3 against 3 can"
    )
    assert expected in found["environments"][0]["warnings"]
    assert f"warning: {expected}\n" in printed(capsys, tmp_path, baseline="sac")


def test_three_against_three_can_just_tell(tmp_path, capsys):
    write_seeds(tmp_path, "sac", (1, 2, 3))
    write_seeds(tmp_path, "mbpo", (11, 12, 13))
    found = answer(capsys, tmp_path, baseline="sac")
    assert agents(found)["mbpo"]["p_value"] == pytest.approx(0.05)
    assert not any("no difference" in warning for warning in found["environments"][0]["warnings"])


def test_four_against_four_is_not(tmp_path, capsys):
    write_seeds(tmp_path, "sac", (1, 2, 3, 4))
    write_seeds(tmp_path, "mbpo", (11, 12, 13, 14))
    text = printed(capsys, tmp_path, baseline="sac")
    assert "however large" not in text
    assert "mbpo, sac: 4 seeds: the interval is too narrow" in text


def test_one_seed_has_no_interval(tmp_path, capsys):
    write_run(tmp_path, "sac")
    found = answer(capsys, tmp_path)
    assert (agents(found)["sac"]["iqm"], agents(found)["sac"]["low"]) == (1.0, None)
    assert found["environments"][0]["warnings"] == ["sac: 1 seed: no interval"]


def test_different_settings_are_not_pooled(tmp_path, capsys):
    write_seeds(tmp_path / "a", "sac", SAC)
    write_seeds(tmp_path / "b", "sac", MBPO, settings={"hidden": [32, 32], "batch_size": 8})
    found = answer(capsys, tmp_path)
    labels = ["sac:hidden=32x32,batch_size=8", "sac:hidden=64x64,batch_size=None"]
    assert [(label, agents(found)[label]["seeds"]) for label in labels] == [(label, 5) for label in labels]
    assert found["environments"][0]["warnings"] == ["the runs of sac differ in hidden, batch_size: they are 2 groups"]
    against = agents(answer(capsys, tmp_path, baseline=labels[1]))
    assert against[labels[0]]["p_value"] == pytest.approx(permutation_p_value(np.array(MBPO), np.array(SAC)))
    assert compare(Compare((tmp_path,), baseline="sac")) == 2
    assert f"on Task-v0 it is several: name one of {labels[0]}, {labels[1]}" in capsys.readouterr().err


def test_a_scale_stands_for_its_settings(tmp_path, capsys):
    write_seeds(tmp_path / "a", "sac", SAC)
    write_seeds(tmp_path / "b", "sac", SAC, scale="quick", settings={"hidden": [32, 32]})
    write_seeds(tmp_path / "c", "sac", SAC, scale="quick", settings={"hidden": [32, 32], "discount": 0.9})
    write_seeds(tmp_path / "a", "mbpo", SAC)
    found = answer(capsys, tmp_path)
    assert list(agents(found)) == [
        "mbpo",
        "sac:scale=cpu,discount=0.99",
        "sac:scale=quick,discount=0.9",
        "sac:scale=quick,discount=0.99",
    ]
    assert found["environments"][0]["warnings"] == [
        "the runs of sac differ in scale, discount, hidden: they are 3 groups",
        "not all agents have the same scale: cpu, quick",
    ]


def test_budgets_may_differ_and_versions_are_warned_of(tmp_path, capsys):
    write_run(tmp_path, seed=0, versions={"jax": "1", "numpy": "2"})
    write_run(tmp_path, seed=1, versions={"jax": "1.1", "numpy": "2"}, evaluate_every=500, budget=900)
    found = answer(capsys, tmp_path)
    assert agents(found)["sac"]["seeds"] == 2
    assert found["warnings"] == ["the runs used different versions of jax: 1, 1.1"]


def test_unfinished_and_empty_runs_are_named(tmp_path, capsys):
    write_run(tmp_path, seed=0)
    late = write_run(tmp_path, seed=1, returns=(7.0,), steps=(500,))
    empty = write_run(tmp_path, seed=2, returns=(), steps=())
    found = answer(capsys, tmp_path)
    assert found["environments"][0]["step"] == 500
    assert f"{late} is unfinished: 500 of 1000 steps" in found["environments"][0]["warnings"]
    assert found["warnings"] == [f"{empty} has measured nothing yet: it is left out"]
    assert agents(found)["sac"]["seeds"] == 2


@pytest.mark.parametrize("value", ["nan", "inf", ""])
def test_a_score_that_is_not_finite_is_named_and_costs_the_agent_its_numbers(value, tmp_path, capsys):
    write_seeds(tmp_path, "sac", SAC)
    broken = write_seeds(tmp_path, "mbpo", (value, *MBPO[1:]))[0]
    found = answer(capsys, tmp_path, baseline="sac")
    row = agents(found)["mbpo"]
    assert [row[name] for name in ("mean", "iqm", "low", "probability_of_improvement", "p_value")] == [None] * 5
    assert row["seeds"] == 5
    assert row["curve"]["iqm"] == [pytest.approx(0.2), None]
    shown = value or "nan"
    assert found["environments"][0]["warnings"] == [f"{broken}: return is {shown} at step 1000: no numbers for mbpo"]
    assert agents(answer(capsys, tmp_path, baseline="mbpo"))["sac"]["p_value"] is None
    assert agents(answer(capsys, tmp_path, at=500))["mbpo"]["mean"] == pytest.approx(0.2)
    assert "│ mbpo  │     5 │    - │" in printed(capsys, tmp_path)


def test_a_gap_in_a_curve_is_named(tmp_path, capsys):
    write_run(tmp_path, seed=0)
    broken = write_run(tmp_path, seed=1, returns=("nan", 3.0))
    found = answer(capsys, tmp_path)
    assert agents(found)["sac"]["curve"]["iqm"] == [None, 2.0]
    assert f"{broken}: return is not finite at 500: a gap in the curve" in found["environments"][0]["warnings"]


def test_a_step_measured_twice_counts_as_the_last_time(tmp_path, capsys):
    write_run(tmp_path, returns=(0, 1, 5), steps=(500, 1000, 1000))
    assert agents(answer(capsys, tmp_path))["sac"]["mean"] == 5


def test_over_environments_the_probability_of_improvement_is_averaged(tmp_path, capsys):
    write_seeds(tmp_path, "sac", SAC, env="A-v0")
    write_seeds(tmp_path, "mbpo", MBPO, env="A-v0")
    write_seeds(tmp_path, "sac", [1000 * score for score in SAC], env="B-v0")
    write_seeds(tmp_path, "mbpo", [1000 * score for score in SAC], env="B-v0")
    write_seeds(tmp_path, "mbpo", MBPO, env="C-v0")
    write_seeds(tmp_path, "vaml", MBPO, env="A-v0")
    (one,) = aggregates(compare_runs(find_runs([tmp_path]), "return", None, "sac"))
    assert (one.agent, one.environments) == ("mbpo", 2)
    assert one.probability_of_improvement == pytest.approx((19 / 25 + 0.5) / 2)
    assert 0.3 < one.low < 0.6 < 0.7 < one.high < 1.0
    text = printed(capsys, tmp_path, baseline="sac")
    assert f"0.63 [{one.low:.2f}, {one.high:.2f}]" in text
    assert "2 of 3" in text
    assert "warning: there is not a run of the baseline sac: nothing is tested" in text


DATA = {"dataset": "mujoco/hopper/medium-v0", "rows": 100, "digest": "0123456789abcdef", "evaluate": True}


def test_what_was_learned_from_data_is_compared_apart_and_said(tmp_path, capsys):
    write_seeds(tmp_path / "online", "sac", SAC)
    write_seeds(tmp_path / "online", "mbpo", MBPO)
    write_seeds(tmp_path / "offline", "sac", MBPO, offline=DATA)
    write_seeds(tmp_path / "offline", "mbpo", SAC, offline=DATA)
    write_seeds(tmp_path / "other", "sac", SAC, offline=DATA | {"digest": "f" * 16})
    found = answer(capsys, tmp_path, baseline="sac")
    assert [(one["env"], one["clock"], one["data"] and one["data"]["digest"][0]) for one in found["environments"]] == [
        ("Task-v0", "steps", None),
        ("Task-v0", "updates", "0"),
        ("Task-v0", "updates", "f"),
    ]
    assert found["aggregate"] == []
    assert agents(found, 0)["sac"]["mean"] == pytest.approx(np.mean(SAC))
    assert agents(found, 1)["sac"]["mean"] == pytest.approx(np.mean(MBPO))
    (warning,) = found["warnings"]
    assert warning.startswith("Task-v0: compared apart, since they did not learn from the same: runs with real steps; ")
    text = " ".join(printed(capsys, tmp_path).split())  # titles are as wide as their table
    assert "Task-v0 from data, mujoco/hopper/medium-v0 (01234567): return at update 1000" in text
    assert f"warning: {warning}" in text


def test_over_data_sets_there_is_a_mean_of_its_own(tmp_path, capsys):
    for number, digest in enumerate("abc"):
        for agent, scores in (("sac", SAC), ("mbpo", MBPO)):
            write_seeds(tmp_path / digest, agent, scores, offline=DATA | {"digest": digest * 16})
            if number < 2:
                write_seeds(tmp_path / f"online{number}", agent, scores, env=f"Env{number}-v0")
    found = aggregates(compare_runs(find_runs([tmp_path]), "return", None, "sac"))
    assert [(one.learned_from, one.environments) for one in found] == [("real steps", 2), ("data", 3)]
    text = printed(capsys, tmp_path, baseline="sac")
    assert "2 of 2 environments" in text
    assert "3 of 3 data sets" in text


def test_a_run_from_data_without_returns_says_why(tmp_path, capsys):
    path = write_run(tmp_path, offline=DATA | {"evaluate": False})
    (path / "metrics.csv").write_text("step,q_data\n1000,1.0\n")
    assert compare(Compare((tmp_path,))) == 2
    remedy = "a run from data has returns only if it was trained with --evaluate"
    assert remedy in capsys.readouterr().err
    write_run(tmp_path / "played", seed=1, offline=DATA)
    assert f"{path} has no return: no numbers for sac; {remedy}" in printed(capsys, tmp_path)


@pytest.mark.slow
def test_the_picture_has_a_panel_per_environment(tmp_path, capsys):
    from matplotlib.image import imread

    for agent in (f"agent{number}" for number in range(9)):
        write_run(tmp_path / "one", agent, env="A-v0")
    write_run(tmp_path / "two", "sac", env="A-v0", returns=("nan", 1))
    write_seeds(tmp_path / "two", "sac", SAC, env="B-v0")
    pictures = []
    for name in ("one", "two"):
        picture = tmp_path / "made" / f"{name}.png"
        assert printed(capsys, tmp_path / name, picture=picture).endswith(f"curves: {picture}\n")
        pictures.append(imread(picture))
    assert pictures[1].shape[1] == 2 * pictures[0].shape[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"baseline": "sax"}, "an agent 'sax' (did you mean sac?); there are: mbpo, sac"),
        ({"metric": "retrun"}, "no run has a metric 'retrun' (did you mean return?); known: return"),
        ({"metric": "step"}, "no run has a metric 'step'"),
        ({"at": 1000}, "mbpo-seed0 was not evaluated at that step; all runs on Task-v0 were at 500: choose"),
        ({"picture": Path("/dev/null/curves.png")}, "--picture /dev/null/curves.png: "),
        ({"picture": Path("curves.gif")}, "--picture curves.gif: a picture's name ends in .png, .svg or .pdf"),
    ],
)
def test_bad_options_are_one_line(options, message, tmp_path, capsys):
    write_run(tmp_path, "sac")
    write_run(tmp_path, "mbpo", returns=(1,), steps=(500,))
    fails(capsys, message, tmp_path, **options)


def fails(capsys, message, *paths, **options):
    assert compare(Compare(paths, **options)) == 2
    out, error = capsys.readouterr()
    assert message in error
    assert (out, error.count("\n")) == ("", 1)


def test_bad_paths_are_one_line(tmp_path, capsys):
    fails(capsys, "name run folders")
    fails(capsys, "nowhere is not a folder", tmp_path / "nowhere")
    fails(capsys, "holds no runs", tmp_path)
    write_run(tmp_path, returns=(), steps=())
    fails(capsys, "nothing is measured yet", tmp_path)


def test_a_seed_twice_is_refused_and_both_are_named(tmp_path, capsys):
    first, second = write_run(tmp_path / "a"), write_run(tmp_path / "b")
    fails(capsys, f"seed 0 is there twice, in {first} and in {second}: name one", tmp_path)
    assert agents(answer(capsys, first, first))["sac"]["seeds"] == 1  # one folder named twice is one run


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"seed": "first"}, "seed is 'first', but must be a whole number"),
        ({"budget": "many"}, "steps is 'many', but must be a whole number"),
        ({"steps": ("", 1000)}, "row 2 has the step '', which is not a whole number"),
        ({"returns": ("high", 1)}, "'high' is not a number"),
        ({"steps": (7, 8)}, "no step at which all runs were evaluated"),
    ],
)
def test_broken_runs_are_one_line(broken, message, tmp_path, capsys):
    write_run(tmp_path)
    fails(capsys, message, tmp_path, write_run(tmp_path, **{"seed": 1} | broken))


def test_compare_is_quick_to_import():
    code = "import sys, mnm.commands.compare; print({'scipy', 'matplotlib', 'jax', 'tensorboardX'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout == "set()\n"
