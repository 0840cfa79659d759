"""`mnm certify`: what it prints of data and of runs, its exit codes, and how it fails: one line."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from mnm.agents import ALGORITHMS
from mnm.analysis.certificates import read_certificates
from mnm.cli import run
from mnm.tabular import random_mdp, sample_transitions, uniform_policy
from mnm.training.learner import Learner
from mnm.training.runs import write_config
from mnm.training.saving import config_as_json

FACTS = ["--discount", "0.9", "--reward-range", "0.1", "10"]
SIZES = ["--states", "4", "--actions", "2"]


@pytest.fixture
def mdp():
    return random_mdp(4, 2, seed=0, successors=2)


@pytest.fixture
def data(mdp, tmp_path):
    sample_transitions(mdp, uniform_policy(mdp), 3_000, seed=0).save(tmp_path / "data.csv")
    return tmp_path / "data.csv"


@pytest.fixture
def said(capsys):
    """A command's exit code, standard output and standard error."""

    def command(*arguments):
        return run(["certify", *map(str, arguments)]), *capsys.readouterr()

    return command


class TestData:
    def test_a_policy_is_certified(self, data, said, tmp_path):
        np.savez(tmp_path / "policy.npz", policy=np.full((4, 2), 0.5))
        code, out, err = said(data, "--policy", tmp_path / "policy.npz", *FACTS)
        assert (code, err) == (0, "")
        assert "3000 transitions, 4 states, 2 actions" in out
        assert "certified: with probability 0.95 the policy's return is at least" in out
        for words in ("the plug-in model promises", "MnM's bound", "tight bound", "What doubt costs most"):
            assert words in out

    def test_the_best_policy_certifies_more_as_json(self, data, said, tmp_path):
        np.savez(tmp_path / "policy.npz", policy=np.full((4, 2), 0.5))
        given, best = (
            json.loads(said(data, "--policy", policy, *SIZES, *FACTS, "--json")[1])
            for policy in (tmp_path / "policy.npz", "best")
        )
        assert best["certified"]
        assert given["worst_return"] < given["certificate"] < best["certificate"] < best["plug_in_return"]
        assert len(best["actions"]) == 4
        assert best["costliest"][0]["cost"] >= best["costliest"][1]["cost"]

    @pytest.mark.slow
    @pytest.mark.parametrize("asked", [["--at-least", "4"], ["--states", "5", "--start", "4"]])
    def test_a_picture_says_what_is_certified_and_what_is_promised(self, data, said, tmp_path, asked):
        picture = tmp_path / "made" / "certificate.svg"
        assert said(data, "--policy", "best", *SIZES, *FACTS, *asked, "--picture", picture)[0] in (0, 3)
        drawn = picture.read_text()
        for words in ("certified (95 %)", "plug-in promise", "what doubt costs most", "worst return"):
            assert f"<!-- {words} -->" in drawn
        assert ("<!-- asked for -->" in drawn) == ("--at-least" in asked)

    def test_numbers_of_actions_as_a_policy(self, data, said, tmp_path):
        (tmp_path / "policy.json").write_text('{"actions": [0, 1, 0, 1]}')
        assert said(data, "--policy", tmp_path / "policy.json", "--actions", 2, *FACTS)[0] == 0

    def test_a_state_without_data_is_not_certified(self, data, said):
        code, out, err = said(data, "--policy", "best", "--states", 5, "--actions", 2, *FACTS, "--start", 4)
        assert (code, err) == (3, "")
        assert "not certified: nothing better than the worst return 1 can be said: state 4, action 0 was never" in out

    def test_less_than_was_asked_for_is_not_certified(self, data, said):
        code, out, _ = said(data, "--policy", "best", *SIZES, *FACTS, "--at-least", 99, "--json")
        assert code == 3
        assert "is below the 99 asked for" in json.loads(out)["reason"]
        assert said(data, "--policy", "best", *SIZES, *FACTS, "--at-least", 2)[0] == 0

    def test_a_distribution_of_starts(self, data, said):
        values = [
            json.loads(said(data, "--policy", "best", *SIZES, *FACTS, "--json", "--start", *start)[1])["certificate"]
            for start in ([0], [1], [0.5, 0.5, 0, 0])
        ]
        assert values[2] == pytest.approx(np.mean(values[:2]), rel=1e-9)

    def test_an_archive_says_all(self, mdp, said, tmp_path):
        drawn = sample_transitions(mdp, uniform_policy(mdp), 500, seed=0)
        columns = {name: getattr(drawn, name) for name in ("state", "action", "reward", "next_state")}
        facts = {"num_states": 4, "num_actions": 2, "discount": 0.9, "reward_range": [0.1, 10.0], "start": mdp.start}
        np.savez(tmp_path / "data.npz", **columns, **facts)
        assert said(tmp_path / "data.npz", "--policy", "best")[0] == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([*SIZES, *FACTS], "the policy is missing"),
            (["--policy", "best", *SIZES, *FACTS[:2]], "it does not say the reward range: add --reward-range"),
            (["--policy", "best", *SIZES, *FACTS[2:]], "it does not say the discount: add --discount"),
            (["--policy", "best", *FACTS], "add --states and --actions"),
            (["--policy", "best", "--states", "3", "--actions", "2", *FACTS], "is 3, but states are 0 to 2"),
            (["--policy", "best", *SIZES, *FACTS[:2], "--reward-range", "0", "1"], "outside of the declared range"),
            (["--policy", "best", *SIZES, *FACTS, "--confidence", "2"], "confidence must lie strictly between"),
            (["--policy", "best", *SIZES, *FACTS, "--successors", "1"], "different states followed, but at most 1"),
            (["--policy", "nowhere.npz", *SIZES, *FACTS], "nowhere.npz: No such file or directory"),
            (["--episodes", "3"], "--episodes is for a run"),
            (
                ["--policy", "best", "--picture", "x.jpg"],
                "--picture x.jpg: a picture's name ends in .png, .svg or .pdf",
            ),
        ],
    )
    def test_bad_input_is_one_line(self, data, said, arguments, message):
        code, out, err = said(data, *arguments)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose agent has been made and has not learned."""
    folder = tmp_path_factory.mktemp("run")
    algorithm = ALGORITHMS["sac"]
    tiny = {"hidden": (4,), "batch_size": 4, "replay_capacity": 20, "learning_starts": 10}
    learner = Learner(algorithm, replace(algorithm.presets["quick"], **tiny), "Pendulum-v1")
    config = {"algorithm": "sac", "env": "Pendulum-v1", "seed": 0, "steps": 100, "scale": "quick"}
    write_config(folder, config | {"settings": config_as_json(learner.config)})
    learner.save(folder / "agent.npz")
    learner.close()
    return folder


@pytest.mark.slow
class TestRuns:
    def test_a_run_is_certified_by_its_episodes(self, folder, said):
        code, out, err = said(folder, "--episodes", 8, "--reward-range", "-16.3", "0")
        assert (code, err) == (0, "")
        assert "8 fresh episodes" in out
        assert "declared -3260 to 0" in out
        assert "certified: with probability 0.95 the expected return, undiscounted, is at least -" in out
        assert "Q at the start (discounted)" in out

    def test_a_picture_shows_the_returns_and_the_bound(self, folder, said, tmp_path):
        picture = tmp_path / "certificate.svg"
        code, _, _ = said(folder, "--episodes", 3, "--reward-range", "-16.3", "0", "--picture", picture)
        assert code in (0, 3)
        for words in ("an episode's return", "certified (95 %): -", "SAC after 0 steps on Pendulum-v1"):
            assert f"<!-- {words}" in picture.read_text()

    def test_what_is_decided_early_stops(self, folder, said):
        asked = [folder, "--episodes", 30, "--return-range", "-3300", "0", "--json"]
        code, out, _ = said(*asked, "--at-least", "-3200")
        easy = json.loads(out)
        assert code == 0
        assert easy["certified"]
        assert easy["episodes"] < 30
        assert easy["certificate"] >= -3200
        assert set(easy["promises"]) == {"q_at_start", "discounted_return"}
        code, out, _ = said(*asked, "--at-least", "-1")
        assert code == 3
        assert "below the -1 asked for" in json.loads(out)["reason"]

    def test_every_answer_is_kept_beside_the_run_and_the_same_question_once(self, folder, said, tmp_path):
        own = shutil.copytree(folder, tmp_path / "run", ignore=lambda *_: ["certificates.json"])
        asked = [own, "--episodes", 3, "--return-range", "-3300", "0"]
        assert read_certificates(own) == []
        answer = json.loads(said(*asked, "--json")[1])
        assert said(*asked, "--at-least", "-1")[0] == 3
        assert said(*asked)[0] == 0
        refused, kept = read_certificates(own)
        assert kept == {name: value for name, value in answer.items() if name != "run"}
        assert (refused["certified"], refused["at_least"]) == (False, -1.0)

    def test_an_answer_that_cannot_be_kept_is_given_all_the_same(self, folder, said, tmp_path):
        own = shutil.copytree(folder, tmp_path / "run")
        (own / "certificates.json").write_text("{")
        code, out, err = said(own, "--episodes", 3, "--return-range", "-3300", "0")
        assert code == 0
        assert "certified: with probability" in out
        assert "the certificate is not kept for the report: " in err
        assert err.count("\n") == 1

    def test_a_range_that_is_not_true_is_an_error(self, folder, said):
        code, out, err = said(folder, "--episodes", 3, "--return-range", "-10", "0")
        assert (code, out) == (2, "")
        assert "episode 1 returned -" in err
        assert "outside of the declared range -10 to 0" in err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "the range of returns must be said"),
            (["--policy", "best", "--return-range", "0", "1"], "--policy is for transitions, and"),
            (["--return-range", "1", "0"], "the range of returns is 1 to 0"),
            (["--return-range", "0", "1", "--episodes", "0"], "--episodes is 0, but must be 1 or more"),
            (["--return-range", "0", "1", "--seed", "-1"], "--seed is -1"),
            (["--return-range", "0", "1", "--at-least", "5"], "--at-least is 5"),
        ],
    )
    def test_bad_input_is_one_line(self, folder, said, arguments, message):
        code, out, err = said(folder, *arguments)
        assert (code, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1

    def test_fresh_episodes_start_where_no_others_do(self):
        from mnm.envs.adapter import STREAMS, episode_seed

        assert len({episode_seed(0, stream, number) for stream in STREAMS for number in range(50)}) == 50 * len(STREAMS)


def test_a_folder_that_is_no_run_is_refused(said, tmp_path):
    code, _, err = said(tmp_path, "--return-range", "0", "1")
    assert code == 2
    assert "is not a run" in err
