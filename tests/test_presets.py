"""The settings that a run starts from."""

import pytest

from mnm.agents import ALGORITHMS
from mnm.api import configured
from mnm.presets import CPU_UPDATES_PER_STEP, UPDATES_PER_STEP, preset
from mnm.train import command_of, preset_of


@pytest.mark.parametrize(
    ("agent", "env", "updates"),
    [
        ("mbpo", "HalfCheetah-v4", 40),
        ("mnm_approx", "HalfCheetah-v4", 20),
        ("vmbpo", "Hopper-v4", 20),
        ("vaml", "Walker2d-v4", 40),
        ("value_weighted", "mnm/Walker2d-v4", 40),
        ("sac", "Hopper-v4", 20),  # the table has none: the preset's own
        ("sac", "mnm/DrawerOpen-v0", 40),
        ("mnm", "mnm/DClawPoseRandom-v0", 20),
        ("mnm_tight", "mnm/DClawScrewRandom-v0", 40),
        ("sac", "some.module:mnm/DClawTurnRandom-v0", 40),
        ("mbpo", "Pendulum-v1", 20),
    ],
)
def test_the_paper_s_updates_per_step(agent, env, updates):
    assert preset(ALGORITHMS[agent], "paper", env).updates_per_step == updates


def test_at_the_cpu_scale_the_paper_s_tasks_have_few_updates_for_every_agent():
    for env, updates in CPU_UPDATES_PER_STEP.items():
        assert {preset(algorithm, "cpu", env).updates_per_step for algorithm in ALGORITHMS.values()} == {updates}
    assert set(UPDATES_PER_STEP) < set(CPU_UPDATES_PER_STEP)
    assert preset(ALGORITHMS["sac"], "cpu", "Pendulum-v1") == ALGORITHMS["sac"].presets["cpu"]


def test_the_quick_scale_is_the_same_on_every_task():
    for algorithm in ALGORITHMS.values():
        assert preset(algorithm, "quick", "HalfCheetah-v4") == algorithm.presets["quick"]


@pytest.mark.parametrize(
    "arguments", [["--scale", "paper", "--env", "Hopper-v4"], ["--env=Hopper-v4", "--scale=paper"]]
)
def test_the_command_line_and_the_library_take_the_task_s_number(arguments):
    mbpo = ALGORITHMS["mbpo"]
    command = command_of(mbpo, *preset_of(arguments))
    assert command(env="Hopper-v4").config.updates_per_step == 40
    assert configured(mbpo, "paper", "Hopper-v4", {}).updates_per_step == 40
    assert configured(mbpo, "paper", "Hopper-v4", {"updates_per_step": 3}).updates_per_step == 3
    assert configured(mbpo, "paper", lambda: None, {}).updates_per_step == 20
