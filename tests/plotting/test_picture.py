"""Pictures as files, and what they say: names, themes, lines that lie on one another."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from mnm.agents import ALGORITHMS
from mnm.plotting.picture import covered, on_dark, save_picture, themed
from mnm.plotting.style import AGENT_COLOURS, AGENT_NAMES, ON_MAP, agent_name, legend_of_seeds


@pytest.fixture
def axes():
    axes = Figure(layout="constrained").subplots()
    axes.plot([0, 1, 2], [0.0, 1.0, 5.0], label="one", color="#0072B2")
    axes.set_xlabel("steps")
    return axes


def test_arrows_on_a_map_stay_white_on_a_dark_page():
    assert on_dark(ON_MAP) == ON_MAP
    assert on_dark("#ffffff") != "#ffffff"


def test_every_agent_has_a_name_and_a_colour():
    assert set(AGENT_NAMES) == set(AGENT_COLOURS) == set(ALGORITHMS)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("mnm_approx", "MnM-approx"),
        ("sac:hidden=8x8", "SAC, hidden=8x8"),
        ("mymodule:mine", "mymodule:mine"),
        ("<b>", "<b>"),
    ],
)
def test_names_are_written_as_people_write_them(label, name):
    assert agent_name(label) == name


@pytest.mark.slow
def test_a_picture_is_a_png_and_an_svg_and_both_are_the_same_each_time(axes, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        save_picture(axes.figure, tmp_path / folder / "name-1.5")
    assert (tmp_path / "a" / "name-1.5.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "a" / "name-1.5.svg").read_text(encoding="utf-8")
    assert svg == (tmp_path / "b" / "name-1.5.svg").read_text(encoding="utf-8")
    ElementTree.fromstring(svg)


def test_the_svg_follows_the_dark_theme(axes, tmp_path):
    save_picture(axes.figure, tmp_path / "name")
    svg = (tmp_path / "name.svg").read_text(encoding="utf-8")
    (rules,) = re.findall(r"<style>@media \(prefers-color-scheme:dark\)\{(.*?)</style>", svg)
    assert '[style*="stroke: #0072b2"]{stroke:#4aa3df!important}' in rules
    assert ":root{fill:#e6e6e6}" in rules
    assert "fill: #ffffff" not in svg  # no white paper below it
    assert svg.count("<style>@media") == 1 == themed("<svg><defs></defs><defs></defs></svg>").count("<style>")


def test_greys_change_places_and_other_colours_stay():
    assert [on_dark(colour) for colour in ("#000000", "#ffffff", "#123456")] == ["#e6e6e6", "#141414", "#123456"]


def test_lines_on_one_another_are_told(axes, tmp_path):
    axes.plot([0, 1, 2], [0.0, 1.001, 5.0], label="two, the same")
    axes.plot([0, 1, 2], [0.0, 3.0, 4.0], label="three")
    axes.plot([0, 1, 2], [0.0, 3.0, 4.0], label="_not named")
    assert covered(axes) == [["one", "two, the same"]]
    save_picture(axes.figure, tmp_path / "name")
    assert axes.get_xlabel() == "steps\non one line: one; two, the same"


def test_lines_apart_or_unknown_are_not(axes):
    axes.plot([0, 1, 2], [0.1, 1.1, 5.1], label="near")
    axes.plot([0, 1, 3], [0.0, 1.0, 5.0], label="other steps")
    axes.plot([0, 1, 2], np.full(3, np.nan), label="nothing")
    assert covered(axes) == []


def test_the_legend_tells_thick_from_thin(axes):
    legend_of_seeds(axes)
    lines = axes.get_legend().get_lines()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "one",
        "thick: mean over seeds",
        "thin: one seed each",
    ]
    assert lines[1].get_linewidth() > lines[2].get_linewidth()
