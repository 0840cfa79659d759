"""The settings that a run starts from."""

import pytest

from mnm.agents import ALGORITHMS
from mnm.agents.scales import preset
from mnm.api import configured
from mnm.training.options import command_of, preset_of


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


@pytest.mark.parametrize("scale", ["cpu", "quick"])
def test_the_smaller_scales_are_the_same_on_every_task(scale):
    for algorithm in ALGORITHMS.values():
        assert preset(algorithm, scale, "HalfCheetah-v4") == algorithm.presets[scale]


def test_every_agent_makes_as_many_updates_at_the_cpu_scale():
    presets = [algorithm.presets["cpu"] for algorithm in ALGORITHMS.values()]
    assert {(preset.updates_per_step, preset.critic_updates) for preset in presets} == {(2, 5)}


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
