"""What is in the page, what is said where something is missing or damaged, and that no text from outside is markup."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from mnm.commands.report import Report, report
from mnm.figures import EXACT
from mnm.report.contents import read_contents
from mnm.report.page import rendered
from mnm.report.plots import line, literal, numbers, return_plots, seed_lines
from report.made import CERTIFICATE, COLUMNS, DATA, HOSTILE, PNG, make_results, make_run, write_table


class Page:
    """The page as text, its figures for Plotly, and the rest without what is in scripts."""

    def __init__(self, html: str) -> None:
        self.html = html
        self.plots = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', html)]
        self.markup = re.sub(r"<script.*?</script>|<style.*?</style>", "", html, flags=re.DOTALL)


def write(capsys, tmp_path: Path, **arguments) -> tuple[int, Page, str]:
    """The exit code, the page, and what was said."""
    out = tmp_path / "out" / "report.html"
    code = report(Report(out=out, **arguments))
    said = capsys.readouterr()
    return code, Page(out.read_text(encoding="utf-8") if out.exists() else ""), said.out + said.err


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    for agent in ("sac", "mnm"):
        for seed in (0, 1):
            make_run(folder / f"{agent}-{seed}", agent, seed)
    return folder


@pytest.fixture
def results(tmp_path):
    return make_results(tmp_path / "results")


def test_everything_is_in_one_page(capsys, tmp_path, runs, results):
    code, page, said = write(capsys, tmp_path, results=results, runs=(runs,), baseline="sac")
    assert code == 0
    assert "1 figures, 4 runs" in said
    for text in (
        "1 of 2 claims hold",
        "data:image/png;base64,",
        "Probability of beating SAC",
        "jax 0.10.2",
        "cpu (4 runs)",
    ):
        assert text in page.markup
    assert re.search(r'<img src="data:[^"]+" alt="learning curves of MnM[^"]*MnM outperforms', page.markup)
    assert {"MnM", "SAC"} <= {trace["name"] for plot in page.plots for trace in plot["data"]}
    missing = [name for name in EXACT if name != "stochastic_gridworld"]
    assert f"mnm reproduce {' '.join(missing)}" in page.markup


def test_every_verdict_is_there_once_and_folded(capsys, tmp_path, runs, results):
    _, page, _ = write(capsys, tmp_path, results=results, runs=(runs,))
    seen = re.sub(r'alt="[^"]*"', "", page.markup)
    (folded,) = re.findall(r'<details id="all-claims">.*?</details>', seen, flags=re.DOTALL)
    for claim in ("MnM outperforms Q-learning", "MnM outperforms VMBPO"):
        assert seen.count(claim) == 1 == folded.count(claim)
    assert '<a href="#claims-stochastic_gridworld">2 claims</a>, 1 of which holds' in seen


def test_the_page_opens_with_tiles_and_one_headline(capsys, tmp_path, runs, results):
    _, page, _ = write(capsys, tmp_path, results=results, runs=(runs,))
    tiles = re.findall(r"<strong>(.*?)</strong> <span>(.*?)</span>", page.markup)
    assert tiles == [
        ("1 of 2", "claims hold; no: 1"),
        ("1", "figure"),
        ("4", "training runs on 1 task"),
        ("3.5", "highest mean return on Task-v0: MnM, 2 seeds"),
    ]
    opening, rest = page.html.split('<section id="claims">')
    assert opening.count('class="plot"') == 1
    assert "Task-v0: return against real steps" in opening
    assert 'aria-label="Learning curves: Task-v0' not in rest
    assert rest.count('class="plot"') == 1 + 4 * 4  # the figure's, and the runs'
    _, page, _ = write(capsys, tmp_path, results=results)  # without runs a figure
    opening, rest = page.html.split('<section id="claims">')
    assert (opening.count('id="figure-stochastic_gridworld"'), rest.count('id="figure-')) == (1, 0)


def test_an_svg_is_shown_before_a_png_and_is_no_markup(capsys, tmp_path, results):
    (results / "stochastic_gridworld.svg").write_text(f"<?xml version='1.0'?><svg><script>{HOSTILE}</script></svg>")
    _, page, _ = write(capsys, tmp_path, results=results)
    assert page.markup.count('<img class="themed" src="data:image/svg+xml;base64,') == 1
    assert "data:image/png" not in page.markup
    assert "<svg" not in page.markup
    (results / "stochastic_gridworld.svg").write_text("no picture")
    _, page, _ = write(capsys, tmp_path, results=results)
    assert "stochastic_gridworld.svg: no SVG picture" in page.markup
    assert page.markup.count("data:image/png") == 1


def test_nothing_is_loaded(capsys, tmp_path, runs, results):
    _, page, _ = write(capsys, tmp_path, results=results, runs=(runs,))
    sources = re.findall(r'\b(?:src|href)="([^"]*)"', page.markup)
    assert sources
    assert all(source.startswith(("#", "data:")) for source in sources)
    assert "default-src 'none'" in page.markup
    assert len(page.html) < 6e6  # Plotly and little more


def test_what_is_missing_is_said(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, page, said = write(capsys, tmp_path)
    assert (code, page.plots) == (0, [])
    assert "0 figures, 0 runs" in said
    assert "No runs yet: <code>mnm train" in page.markup
    assert "No verdicts yet: <code>mnm reproduce" in page.markup


def test_the_default_folders_are_found(capsys, tmp_path, monkeypatch, runs, results):
    make_run(results / "runs" / "another", "vaml", 0)
    monkeypatch.chdir(tmp_path)
    assert "1 figures, 5 runs" in write(capsys, tmp_path)[2]


@pytest.mark.parametrize("arguments", [{"results": Path("nowhere")}, {"runs": (Path("nowhere"),)}])
def test_a_folder_that_does_not_exist_is_an_error(capsys, tmp_path, arguments):
    code, page, said = write(capsys, tmp_path, **arguments)
    assert (code, page.html) == (2, "")
    assert said == f"mnm: --{next(iter(arguments))} nowhere: there is no such folder\n"


def test_a_baseline_that_nobody_is_is_an_error(capsys, tmp_path, runs, results):
    code, _, said = write(capsys, tmp_path, results=results, runs=(runs,), baseline="sad")
    assert code == 2
    assert said == "mnm: --baseline sad: no run is of this agent (did you mean sac?)\n"


def test_an_out_that_cannot_be_written_is_an_error(capsys, tmp_path):
    assert report(Report(results=tmp_path, out=tmp_path)) == 2
    assert capsys.readouterr().err == f"mnm: --out {tmp_path}: Is a directory\n"


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("metrics.csv", b"no,metrics\n1,2\n", "its first column is &#39;no&#39;"),
        ("metrics.csv", b"step,return\n1,x\n", "&#39;x&#39; is not a number"),
        ("metrics.csv", b"\xff\xfe\x00\n", "utf-8"),
        ("metrics.csv", b'step\n"' + b"x" * 200_000 + b'"\n', "field larger than field limit"),
        ("metrics.csv", b"step,return\ninf,1\n", "row 2 has the step &#39;inf&#39;, which is not a whole number"),
        ("config.json", b"{", "cannot be read"),
        ("config.json", b'{"algorithm": "a", "env": "b", "seed": 0, "steps": Infinity, "scale": "c"}', "steps is inf"),
        ("config.json", b'{"algorithm": "sac"}', "it has no &#39;env&#39;"),
        ("config.json", b'{"algorithm": 1, "env": 2, "seed": [], "steps": null, "scale": {}}', "algorithm is 1"),
    ],
)
def test_a_damaged_run_is_named_and_the_rest_shown(capsys, tmp_path, runs, file, content, reason):
    (runs / "sac-1" / file).write_bytes(content)
    code, page, said = write(capsys, tmp_path, results=tmp_path, runs=(runs,))
    assert code == 0
    assert "3 runs" in said
    assert "Could not be read" in page.markup
    assert str(runs / "sac-1") in page.markup
    assert reason in page.markup


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("stochastic_gridworld.png", b"GIF89a", "no PNG picture"),
        ("stochastic_gridworld.csv", b"", "stochastic_gridworld.csv"),
        ("stochastic_gridworld.csv", b"method,seed,iteration\nMnM,0,1\n", "it has no column &#39;return&#39;"),
        ("stochastic_gridworld.csv", b"method,seed,iteration,return\nMnM,0,1,much\n", "could not convert"),
        ("verdicts.csv", b"a,b\n1,2\n", "no table of verdicts"),
        ("verdicts.csv", b"\xff\n", "verdicts.csv"),
        ("verdicts.csv", b"figure,claim,paper,measured,holds\n../secret,a,b,c,yes\n", "there is no figure"),
    ],
)
def test_a_damaged_result_is_named_and_the_rest_shown(capsys, tmp_path, runs, results, file, content, reason):
    (results / file).write_bytes(content)
    code, page, _ = write(capsys, tmp_path, results=results, runs=(runs,))
    assert code == 0
    assert reason in page.markup
    assert "Lower bound / log return" in page.markup


def test_no_text_from_outside_is_markup(capsys, tmp_path, results):
    breakout = "</script><script>alert(1)</script><!--"
    runs = tmp_path / "runs"
    folder = make_run(
        runs / HOSTILE, f"agent{breakout}", 0, env=f"Task{HOSTILE}{breakout}", settings={breakout: HOSTILE}
    )
    make_run(runs / "other", f"agent{breakout}", 1, env=f"Task{HOSTILE}{breakout}", settings={breakout: "<b>x</b>"})
    with (results / "verdicts.csv").open("a", newline="", encoding="utf-8") as file:
        csv.writer(file).writerow(["stochastic_gridworld", HOSTILE, breakout, '"><img src=x>', "yes"])
    (folder.parent / "broken <img src=x>").mkdir()
    (folder.parent / "broken <img src=x>" / "config.json").write_text("[]", encoding="utf-8")
    _, page, said = write(capsys, tmp_path, results=results, runs=(runs,))
    assert "2 runs" in said
    assert page.html.count("<script>") == 2 == page.html.count("<script>/**") + page.html.count('<script>"use strict"')
    assert page.html.count("<!--") == 0
    assert "<img src=x" not in page.html
    assert "alert(1)</script>" not in page.html
    assert "&lt;img src=x onerror=alert(1)&gt;" in page.markup
    texts = [trace["name"] for plot in page.plots for trace in plot["data"]]
    assert any("&lt;/script&gt;" in text for text in texts)
    assert not any("<" in text for text in texts)


def test_plotly_shows_text_as_it_stands():
    assert literal("<b>a</b> & b") == "&lt;b&gt;a&lt;/b&gt; &amp; b"
    assert literal("mnm_approx") == "mnm_approx"


def test_gaps_and_digits():
    assert numbers([1.23456789, float("nan"), float("inf"), 12345678.0]) == [1.23457, None, None, 12345678]


def test_the_mean_ends_where_the_first_seed_ends():
    curves = [(0, ([1, 2, 3], [1.0, 2.0, 3.0])), (1, ([1, 2], [3.0, 6.0]))]
    *seeds, mean = seed_lines("sac", curves, np.mean, "--blue", "solid")
    assert (mean["x"], mean["y"]) == ([1, 2], [2, 4])
    assert [seed["y"] for seed in seeds] == [[1, 2, 3], [3, 6]]
    assert {trace["legendgroup"] for trace in [*seeds, mean]} == {"sac"}
    assert [trace.get("showlegend", True) for trace in [*seeds, mean]] == [False, False, True]


def test_one_seed_is_one_line_with_gaps():
    (mean,) = seed_lines("sac", [(0, ([1, 2], [1.0, float("nan")]))], np.mean, "--blue", "solid")
    assert mean["y"] == [1, None]
    assert line("x", ([], []), "--blue")["x"] == []


def test_runs_with_different_settings_are_kept_apart(tmp_path, runs):
    make_run(runs / "wide", "sac", 0, settings={"hidden": [256, 256]})
    contents = read_contents(tmp_path, [runs])
    (plot,) = return_plots(contents.runs, contents.labels)
    named = {trace["name"] for trace in plot.figure["data"] if trace.get("showlegend", True)}
    assert named == {"MnM", "SAC, hidden=256x256", "SAC, hidden=64x64"}


def test_a_run_that_has_measured_nothing_is_shown(capsys, tmp_path, runs):
    (runs / "sac-0" / "metrics.csv").unlink()
    code, page, said = write(capsys, tmp_path, results=tmp_path, runs=(runs / "sac-0",))
    assert code == 0
    assert "1 runs" in said
    assert "return – after 0 of 1,500 steps" in page.markup
    assert "nothing is measured yet" in page.markup


def test_agents_are_compared_on_every_task_and_over_all(capsys, tmp_path, runs):
    for agent in ("sac", "mnm"):
        for seed in (0, 1):
            make_run(runs / f"other-{agent}-{seed}", agent, seed, env="Other-v0")
    make_run(runs / "twice", "sac", 0, env="Third-v0")
    make_run(runs / "twice again", "sac", 0, env="Third-v0")
    _, page, _ = write(capsys, tmp_path, results=tmp_path, runs=(runs,), baseline="sac")
    assert page.markup.count("Probability of beating SAC</th>") == 2
    assert "Mean over tasks" in page.markup
    assert "seed 0 is there twice" in page.markup


def test_the_same_input_gives_the_same_page(tmp_path, runs, results):
    pages = (rendered(read_contents(results, [runs]), None, {"--runs": [runs]}) for _ in range(2))
    first, second = (re.sub(r"\d\d:\d\d UTC", "", page) for page in pages)
    assert first == second


def test_a_picture_alone_is_a_figure(tmp_path):
    (tmp_path / "three_states.png").write_bytes(PNG)
    (figure,) = read_contents(tmp_path, []).figures
    assert (figure.name, figure.alt) == ("three_states", EXACT["three_states"])


def test_a_deep_figure_tells_its_scale_and_what_it_cannot_tell(capsys, tmp_path, results):
    (results / "gym_benchmark-cpu.png").write_bytes(PNG)
    (results / "gym_benchmark-cpu-Hopper.gif").write_bytes(b"GIF89a...")
    (results / "gym_benchmark-cpu-Walker.gif").write_bytes(b"no video")
    with (results / "verdicts.csv").open("a", encoding="utf-8") as file:
        file.write("gym_benchmark-cpu,HalfCheetah-v4: mnm_approx outperforms sac,-,5 against 4,cannot tell\n")
    _, page, said = write(capsys, tmp_path, results=results)
    assert "2 figures" in said
    assert "1 of 3 claims hold" in page.markup
    assert '<span class="verdict cannot-tell">? cannot tell</span>' in page.markup
    assert "SAC (scale cpu)" in page.markup
    figure = read_contents(results, []).figures[-1]
    assert (figure.name, figure.verdicts[0].holds) == ("gym_benchmark-cpu", None)
    assert list(figure.videos) == ["gym_benchmark-cpu-Hopper.gif"]
    assert "gym_benchmark-cpu-Hopper.gif: HalfCheetah, Hopper" in page.markup
    assert any("gym_benchmark-cpu-Walker.gif: no GIF picture" in problem for problem in figure.problems)


def test_a_run_s_films_are_shown_and_what_is_none_is_said(capsys, tmp_path, runs):
    folder = runs / "mnm-1"
    assert folder.is_dir()
    (folder / "video.gif").write_bytes(b"GIF89a...")
    (folder / "broken.gif").write_bytes(b"no video")
    _, page, _ = write(capsys, tmp_path, runs=(runs,))
    assert page.markup.count('src="data:image/gif;base64,') == 1
    assert "Task-v0, MnM, seed 1</figcaption>" in page.markup
    assert "broken.gif: no GIF picture" in page.markup
    (folder / "video.gif").unlink()
    _, page, _ = write(capsys, tmp_path, runs=(runs,))
    assert 'id="videos"' not in page.markup


def test_a_run_from_data_has_updates_for_steps_and_tells_its_data(capsys, tmp_path, runs):
    make_run(runs / "offline", "sac", 0, data=DATA)
    _, page, _ = write(capsys, tmp_path, results=tmp_path, runs=(runs,))
    assert "5</strong> <span>training runs on 1 task, 1 from data alone</span>" in page.markup
    assert "Task-v0 from data, replay.npz (01234567): return against updates" in page.markup
    text = "3,000 transitions of <code>/data/replay.npz</code>, digest <code>0123456789abcdef</code>"
    assert page.markup.count(text) == 2  # with the comparison, and with the run
    assert "after 1,500 updates</span>" in page.markup
    assert "mnm train sac --dataset=/data/replay.npz --env=Task-v0 --updates=1500" in page.markup
    axes = [(plot["layout"]["xaxis"]["title"]["text"], len(plot["data"])) for plot in page.plots]
    assert axes.count(("real environment steps", 6)) == 1  # two agents of two seeds, no run from data
    assert axes.count(("updates from data", 1)) == 1


def test_runs_from_data_are_compared_apart_and_the_page_says_so(capsys, tmp_path, runs):
    for agent in ("sac", "mnm"):
        make_run(runs / f"offline-{agent}", agent, 0, data=DATA)
    make_run(runs / "other", "sac", 0, data=DATA | {"digest": "f" * 16})
    _, page, _ = write(capsys, tmp_path, results=tmp_path, runs=(runs,), baseline="sac")
    headings = re.findall(r"<h3>(Task-v0.*?)</h3>", page.markup)
    settings = ("", " from data, replay.npz (01234567)", " from data, replay.npz (ffffffff)")
    clocks = ("step", "update", "update")
    assert headings == [
        f'Task-v0{setting} <span class="quiet">at {clock} 1,500</span>'
        for setting, clock in zip(settings, clocks, strict=True)
    ]
    assert "Task-v0: compared apart, since they did not learn from the same: runs with real steps; " in page.markup
    assert "Mean over tasks" not in page.markup  # a task and a data set are no two tasks


def test_a_run_from_data_that_was_never_played_has_no_return(capsys, tmp_path):
    folder = make_run(tmp_path / "runs" / "offline", "sac", 0, env="", data=DATA | {"evaluate": False})
    columns = {"step": COLUMNS["step"], "q_data": [0.0, 1.0, 2.0], "q_policy": [0.0, 2.0, 3.0]}
    write_table(folder / "metrics.csv", columns)
    _, page, _ = write(capsys, tmp_path, results=tmp_path, runs=(tmp_path / "runs",))
    assert "The policy was not played: there is no return" in page.markup
    assert "a run from data has returns only if it was trained with --evaluate" in page.markup
    assert "mnm train sac --dataset=/data/replay.npz --updates=1500" in page.markup
    assert "data replay.npz (01234567)" in page.markup
    (plot,) = page.plots
    assert [trace["name"] for trace in plot["data"]] == ["at the policy's actions", "at the data's"]


def test_a_configuration_whose_data_are_none_is_named(capsys, tmp_path, runs):
    make_run(runs / "broken", "sac", 2, data={"dataset": 3})
    _, page, said = write(capsys, tmp_path, results=tmp_path, runs=(runs,))
    assert "4 runs" in said
    assert "offline is {&#39;dataset&#39;: 3}, but must be right" in page.markup


def test_a_run_s_certificates_are_shown_with_a_picture_of_the_latest(capsys, tmp_path, runs):
    refused = CERTIFICATE | {"certified": False, "reason": "3 episodes cannot tell", "at_least": 9.0}
    (runs / "mnm-1" / "certificates.json").write_text(json.dumps({"certificates": [refused, CERTIFICATE]}))
    _, page, _ = write(capsys, tmp_path, results=tmp_path, runs=(runs,))
    assert page.markup.count("Certified by fresh episodes") == 1
    assert "It was asked 2 times: each probability is that of one question alone." in page.markup
    found = re.findall(r"<li>(After 1,500 steps.*?)</li>", page.markup)
    played = "After 1,500 steps, 3 of at most 5 episodes, mean return 4.5; expected return"
    promised = '<span class="quiet">return in the model: 8.75; Q at the start (discounted): 6.25</span>'
    assert found == [
        f"{played} <strong>not certified</strong>, asked for ≥ 9: 3 episodes cannot tell. {promised}",
        f"{played} <strong>≥ 1.25 (90 %)</strong>, asked for ≥ 1. {promised}",
    ]
    assert '<td class="number">≥ 1.25 (90 %)</td>' in page.markup  # in the table of runs
    (picture,) = [plot for plot in page.plots if plot["data"][0]["name"] == "episodes"]
    levels = {trace["name"]: trace["y"][0] for trace in picture["data"][1:]}
    assert picture["data"][0]["y"] == [4, 4.5, 5]
    assert levels == {"mean": 4.5, "90 % lower bound": 1.25, "asked for": 1, "mean return in the model": 8.75}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[]", "it is no JSON object"),
        ("{}", "it has no &#39;certificates&#39;"),
        ({"certificate": "much"}, "number 1: certificate is &#39;much&#39;, but must be a finite number"),
        ({"return_range": [1.0]}, "return_range is [1.0], but must be two numbers, the smaller first"),
        ({"episodes": 4}, "it has 3 returns of 4 episodes"),
    ],
)
def test_damaged_certificates_are_named_and_the_run_is_shown(capsys, tmp_path, runs, content, reason):
    text = content if isinstance(content, str) else json.dumps({"certificates": [CERTIFICATE | content]})
    (runs / "mnm-1" / "certificates.json").write_text(text)
    _, page, said = write(capsys, tmp_path, results=tmp_path, runs=(runs,))
    assert "4 runs" in said
    assert reason in page.markup
    assert "Certified by fresh episodes" not in page.markup
