"""The environment loop, with agents that are as small as can be."""

from dataclasses import replace
from functools import partial

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mnm
from agents.probes import the_statistics_are_those_of
from mnm.agents import ALGORITHMS
from mnm.envs.adapter import TaskError, episode_seed
from mnm.messages import UserError
from mnm.training.learner import Learner, RewardRange, replay_rows
from mnm.training.saving import load, save

pytestmark = pytest.mark.slow

the_statistics_of_a_run_are_those_of = partial(the_statistics_are_those_of, std_atol=1e-4)

TINY = {"hidden": (8,), "batch_size": 8, "updates_per_step": 1, "replay_capacity": 70}
SAC = replace(ALGORITHMS["sac"].presets["quick"], **TINY, learning_starts=20)
MODEL = {"model_hidden": (8,), "head_hidden": (8,), "ensemble_size": 1, "model_buffer_capacity": 64}
MBPO = replace(ALGORITHMS["mbpo"].presets["quick"], **TINY, **MODEL, learning_starts=16, warmup_updates=10)


class Counting(gym.Env):
    """Observes (episode, step). Of 3 steps each, odd episodes end, even ones are cut off. Remembers what it is told."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(np.array([0.0, -4.0]), np.array([10.0, 0.0]), dtype=np.float64)

    def __init__(self, reward=1.0):
        self.reward, self.episode, self.steps = reward, 0, 0
        self.seeds, self.actions = [], []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode, self.steps = self.episode + 1, 0
        return np.array([self.episode, 0.0]), {}

    def step(self, action):
        self.steps += 1
        self.actions.append(action)
        over, odd = self.steps == 3, self.episode % 2 == 1
        return np.array([self.episode, self.steps]), self.reward, over and odd, over and not odd, {}


def made_environments():
    """A task that remembers the environments that it made; the last is the evaluation's."""
    made = []

    def task():
        made.append(Counting())
        return made[-1]

    return task, made


def nothing(config, state, transition):
    """Observes a transition without a thought."""
    return state


@pytest.fixture(scope="module")
def idle():
    """Makes learners for `Counting` that never learn; with the parts of SAC, which are made faster than all others."""
    agent = ALGORITHMS["sac"].init(SAC, 2, 2, jax.random.key(0))

    def make(name="sac", task=Counting, seeds=(0,), **settings):
        algorithm = replace(ALGORITHMS[name], init=lambda *_: agent, observe=nothing)
        config = replace(algorithm.presets["quick"], replay_capacity=100, learning_starts=10_000, **settings)
        return Learner(algorithm, config, task, seeds)

    return make


def parameters(learner, index=0):
    agent = learner.agent(index)
    trained = (agent.actor_critic, getattr(agent, "world", None), getattr(agent, "classifier", None))
    return [np.asarray(leaf) for leaf in jax.tree.leaves(trained)]


def equal(first, second):
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def pendulum(name="sac", config=SAC, seeds=(0,), steps=30, evaluate_every=1_000, **options):
    learner = Learner(ALGORITHMS[name], config, "Pendulum-v1", seeds)
    learner.learn(steps, evaluate_every=evaluate_every, evaluation_episodes=1, **options)
    learner.close()
    return learner


@pytest.fixture(scope="module")
def sac_run():
    return pendulum()


@pytest.fixture(scope="module")
def mbpo_run():
    rows, progress = [], []
    learner = pendulum(
        "mbpo",
        MBPO,
        steps=20,
        evaluate_every=8,
        on_eval=lambda *row: rows.append(row),
        on_progress=progress.append,
    )
    return learner, rows, progress


def test_rows_say_what_was_measured(mbpo_run):
    learner, rows, _ = mbpo_run
    assert [(seed, step) for seed, step, _ in rows] == [(0, 8), (0, 16), (0, 20)]
    measured = {"return", "return_std", "updates", "episode_return", "seconds", "updates_per_s"}
    before, warmed_up, learned = (row for _, _, row in rows)
    assert set(before) == measured
    assert np.isnan(before["episode_return"])  # no training episode is over yet
    diagnosed = {"q_at_start", "discounted_return", "model_error_1", "model_error_10", "model_return"}
    model_losses = {"model_loss", "reward_loss", "continue_loss"}
    assert measured | diagnosed | model_losses <= set(warmed_up)
    assert "critic_loss" not in warmed_up
    assert set(warmed_up) | {"critic_loss", "actor_loss", "entropy", "temperature"} <= set(learned)
    assert [row["updates"] for _, _, row in rows] == [0, 10, 14]
    assert -2000 < learned["return"] < 0
    assert learned["return_std"] == 0
    assert all(type(value) is float for value in learned.values())
    assert learner.steps == 20
    assert learner.updates == 14
    assert int(learner.replay.size) == 20


def test_progress_goes_through_the_phases(mbpo_run):
    _, rows, progress = mbpo_run
    phases = [p.phase for p in progress]
    warm_up, learning = (["compiling: model warm-up", "model warm-up"], ["compiling: learning", *["learning"] * 4])
    assert phases == ["random steps"] * 16 + warm_up + learning
    warm_up = progress[17]
    assert (warm_up.done, warm_up.total, warm_up.updates) == (10, 10, 10)
    assert (progress[-1].done, progress[-1].total, progress[-1].updates) == (20, 20, 14)
    assert progress[-1].last_return == rows[1][2]["return"]


def test_two_runs_are_bit_equal_and_another_seed_is_not(sac_run, mbpo_run):
    assert equal(parameters(pendulum()), parameters(sac_run))
    assert not equal(parameters(pendulum(seeds=(1,))), parameters(sac_run))
    again = pendulum("mbpo", MBPO, steps=20, evaluate_every=8)
    assert equal(parameters(again), parameters(mbpo_run[0]))
    assert equal(jax.tree.leaves(again.replay), jax.tree.leaves(mbpo_run[0].replay))


def test_more_evaluations_do_not_change_what_is_learned(sac_run):
    assert equal(parameters(pendulum(evaluate_every=7)), parameters(sac_run))


def test_learning_twice_is_learning_once(sac_run):
    learner = Learner(ALGORITHMS["sac"], SAC, "Pendulum-v1")
    for steps in (13, 0, 12, 5):
        learner.learn(steps, evaluation_episodes=1)
    assert equal(parameters(learner), parameters(sac_run))
    learner.close()


def test_the_discount_grows_once(tmp_path):
    later = replace(SAC, discount=0.9, final_discount=0.999, final_discount_start=24)
    constant = replace(later, final_discount=None)
    growing, changed, plain = (Learner(ALGORITHMS["sac"], config, Counting) for config in (later, constant, constant))
    for learner in (growing, changed, plain):
        learner.learn(24, evaluation_episodes=1)
        assert equal(parameters(learner), parameters(growing))
        assert learner.settings.discount == 0.9
    changed.config = replace(constant, discount=0.999)
    for learner in (growing, changed, plain):
        learner.learn(2, evaluation_episodes=1)
    assert equal(parameters(growing), parameters(changed))
    assert not equal(parameters(growing), parameters(plain))
    save(growing, tmp_path / "agent.npz")
    assert load(tmp_path / "agent.npz", Counting).settings == growing.settings == changed.settings
    assert growing.ends == [4]  # of eight episodes of three steps, every other one


def test_what_is_discounted_is_told_with_the_discount_of_then(idle):
    returns = []
    learner = idle(discount=0.5, final_discount=0.25, final_discount_start=3)
    for _ in range(2):
        learner.learn(3, evaluation_episodes=1)
        returns.append(learner.evaluate(0, 1)[0].discounted)
    assert returns == [1 + 0.5 + 0.25, 1 + 0.25 + 0.0625]


def test_where_no_episode_ends_the_discount_stays(idle):
    learner = idle(task="Pendulum-v1", final_discount_start=3)
    learner.learn(5, evaluation_episodes=0)
    assert learner.settings.discount == learner.config.discount != learner.config.final_discount


def test_seeds_together_are_close_to_single_runs():
    together = pendulum(seeds=(0, 1), steps=22)
    for index, seed in enumerate((0, 1)):
        alone = pendulum(seeds=(seed,), steps=22)
        for name, column in alone.replay.storage._asdict().items():
            of_seed = np.asarray(getattr(together.replay.storage, name))[index]
            np.testing.assert_array_equal(of_seed[:20], column[:20])  # the random steps
            np.testing.assert_allclose(of_seed[20:22], column[20:22], atol=1e-4)
        for a, b in zip(parameters(together, index), parameters(alone), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)
    assert not np.array_equal(together.replay.storage.actions[0], together.replay.storage.actions[1])
    statistics_follow_every_real_step(together)


def test_an_end_is_stored_as_an_end_and_a_cut_as_going_on(idle):
    learner = idle().learn(9, evaluation_episodes=1)
    stored = jax.tree.map(lambda column: np.asarray(column[:9]), learner.replay.storage)
    np.testing.assert_array_equal(stored.continues, [1, 1, 0, 1, 1, 1, 1, 1, 0])
    # The last next observation of an episode is its own, not the next episode's first.
    np.testing.assert_array_equal(stored.observations, [(e, t) for e in (1, 2, 3) for t in range(3)])
    np.testing.assert_array_equal(stored.next_observations, [(e, t + 1) for e in (1, 2, 3) for t in range(3)])
    np.testing.assert_array_equal(stored.rewards, 1.0)


def test_episodes_of_random_actions_are_cut_off_and_no_others():
    config = replace(SAC, learning_starts=5, random_episode_steps=2)
    learner = Learner(ALGORITHMS["sac"], config, Counting).learn(10, evaluation_episodes=1)
    stored = jax.tree.map(lambda column: np.asarray(column[:10]), learner.replay.storage)
    steps = [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (4, 0), (4, 1), (4, 2)]
    np.testing.assert_array_equal(stored.observations, steps)
    np.testing.assert_array_equal(stored.next_observations, [(episode, step + 1) for episode, step in steps])
    np.testing.assert_array_equal(stored.continues, [1, 1, 1, 1, 1, 1, 0, 1, 1, 1])


def test_every_episode_begins_with_its_own_seed(idle):
    task, made = made_environments()
    idle(task=task, seeds=(7, 3)).learn(8, evaluate_every=4, evaluation_episodes=2)
    first, second, evaluation = made
    assert first.seeds == [episode_seed(7, "training", number) for number in range(3)]
    assert second.seeds == [episode_seed(3, "training", number) for number in range(3)]
    assert evaluation.seeds == 2 * [episode_seed(seed, "evaluation", i) for seed in (7, 3) for i in range(2)]


def test_an_evaluation_of_its_own_has_starts_that_no_run_has_evaluated(idle):
    task, made = made_environments()
    learner = idle(task=task).learn(3, evaluation_episodes=5)
    during = set(made[-1].seeds)
    learner.evaluate(0, 5, 0, stream="test")
    assert len(during) == 5
    assert during.isdisjoint(made[-1].seeds[-5:])


def test_actions_reach_the_task_in_its_units_and_the_replay_in_the_agents(idle):
    task, made = made_environments()
    learner = idle(task=task).learn(50, evaluation_episodes=1)
    stored = np.asarray(learner.replay.storage.actions[:50])
    assert (np.abs(stored) <= 1).all()
    assert (np.abs(stored).max(axis=0) > 0.8).all()
    in_units = np.array([0.0, -4.0]) + (stored + 1) / 2 * np.array([10.0, 4.0])
    np.testing.assert_allclose(made[0].actions, in_units, atol=1e-5)


@pytest.mark.parametrize("name", ["mnm", "mnm_tight"])
def test_a_reward_without_a_logarithm_stops_the_run_and_is_named(idle, name):
    def task():
        return Counting(reward=-0.5)

    with pytest.raises(
        TaskError, match=r"Counting: episode 1: the reward -0\.5 plus .* 0\.5 .* set reward_offset above 0\.5"
    ):
        idle(name, task, reward_offset=0.5).learn(3)
    idle(name, task, reward_offset=0.75).learn(4)
    idle("sac", task).learn(4)


def test_an_end_without_an_offset_stops_mnm_only(idle):
    with pytest.raises(TaskError, match=r"Counting: episode 1: the episode ended.*reward_offset above 0"):
        idle("mnm").learn(3)
    idle("mnm").learn(2)
    idle("mnm", reward_offset=0.1).learn(3)
    idle("mnm_tight").learn(3)


def test_predictions_are_in_the_task_s_shape_and_units(idle):
    learner = idle()
    observations = np.array([[1.0, 0.0], [5.0, -2.0], [0.0, 30.0]])
    actions = learner.predict(observations)
    modes = np.asarray(learner.policy(0).mode(jnp.asarray(observations, jnp.float32)))
    np.testing.assert_allclose(actions, np.array([0.0, -4.0]) + (modes + 1) / 2 * np.array([10.0, 4.0]), rtol=1e-6)
    one = learner.predict(observations[1])
    assert one.shape == (2,)
    np.testing.assert_allclose(one, actions[1], rtol=1e-5)
    draws = [learner.predict(observations, deterministic=False, seed=seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.allclose(draws[0], draws[2])
    assert (draws[0] >= [0.0, -4.0]).all()
    assert (draws[0] <= [10.0, 0.0]).all()
    with pytest.raises(ValueError, match="the observation has 3 entries, but Counting has 2"):
        learner.predict(np.zeros((4, 3)))


@pytest.mark.parametrize("name", ["success", "is_success"])
def test_an_episode_ends_in_success_if_its_last_step_says_so(idle, name):
    class Lucky(Counting):
        """Odd episodes succeed on the way only, even ones at their end only."""

        def step(self, action):
            *answer, _ = super().step(action)
            return *answer, {name: (self.steps == 3) == (self.episode % 2 == 0)}

    learner = idle(task=Lucky)
    assert [episode.success for episode in learner.evaluate(0, 4)] == [False, True, False, True]
    rows = []
    for one in (learner, idle()):
        one.learn(3, evaluate_every=3, evaluation_episodes=5, on_eval=lambda *row: rows.append(row[-1]))
    assert rows[0]["success"] == 2 / 5  # the evaluation's episodes 5 to 9
    assert "success" not in rows[1]


class Long(Counting):
    """Episodes of 3,000 steps with two numbers each."""

    def step(self, action):
        answer, reward, *_ = super().step(action)
        return answer, reward, False, self.steps == 3_000, {}


def test_an_evaluation_keeps_no_more_bytes_than_its_diagnostics_need(idle, monkeypatch):
    monkeypatch.setattr("mnm.training.learner.KEPT_BYTES", 40_000)
    played = idle(task=Long, episode_limit=3_000).evaluate(0, 5)
    kept = sum(array.nbytes for episode in played for piece in episode.pieces for array in piece)
    assert 10_000 < kept < 1.3 * 40_000  # a piece has one observation more than steps, and rewards
    assert [(episode.length, episode.total) for episode in played] == [(3_000, 3_000.0)] * 5


def stored(learner, index):
    """All real transitions of a seed, as long as none had to go."""
    replay = jax.tree.map(lambda array: array[index], learner.replay) if learner.many else learner.replay
    assert int(replay.size) == learner.steps
    return jax.tree.map(lambda column: np.asarray(column[: learner.steps]), replay.storage)


def statistics_follow_every_real_step(learner):
    for index in range(len(learner.seeds)):
        agent, rows = learner.agent(index), stored(learner, index)
        the_statistics_of_a_run_are_those_of(agent.actor_critic.observations, rows.observations)
        the_statistics_of_a_run_are_those_of(agent.actor_critic.rewards, rows.rewards[:, None])
        if hasattr(agent, "world"):
            statistics = agent.world.statistics
            the_statistics_of_a_run_are_those_of(statistics.observations, rows.observations)
            the_statistics_of_a_run_are_those_of(statistics.changes, rows.next_observations - rows.observations)
            the_statistics_of_a_run_are_those_of(statistics.rewards, rows.rewards[:, None])
            assert float(statistics.ends) == (1.0 - rows.continues).sum()


def test_statistics_follow_every_real_step(sac_run, mbpo_run):
    """With random actions, through the model's warm-up, and while learning."""
    statistics_follow_every_real_step(sac_run)
    statistics_follow_every_real_step(mbpo_run[0])


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_statistics_follow_every_random_step(seeds):
    """Odd episodes of three steps end: with 8 steps, one did."""
    learner = Learner(ALGORITHMS["mbpo"], MBPO, Counting, seeds)
    learner.learn(1, evaluation_episodes=1)
    statistics_follow_every_real_step(learner)
    learner.learn(7, evaluation_episodes=1)
    statistics_follow_every_real_step(learner)
    assert float(learner.agent(-1).world.statistics.ends) == 1.0


def test_statistics_keep_what_the_replay_has_forgotten():
    learner = Learner(ALGORITHMS["sac"], replace(SAC, learning_starts=1_000, replay_capacity=5), Counting)
    learner.learn(12, evaluation_episodes=1)
    assert int(learner.replay.size) == 5
    the_statistics_of_a_run_are_those_of(
        learner.agent(0).actor_critic.observations, [(episode, step) for episode in (1, 2, 3, 4) for step in range(3)]
    )


class Endless(gym.Env):
    """Has no end and no time limit."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (1,))
    action_space = gym.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


def test_a_task_without_a_time_limit_is_cut_off_and_that_is_told_once(capsys):
    learner = mnm.SAC(Endless, scale="quick", episode_limit=7, learning_starts=100, replay_capacity=50)
    learner.learn(20, evaluation_episodes=2)
    assert learner.evaluated[0] == [7.0, 7.0]
    assert learner.episodes == [3]
    told = capsys.readouterr().err
    assert told.count("Endless has no time limit: its episodes are cut off after 7 steps (--episode-limit") == 1


def test_an_evaluation_can_be_left_off_and_is_made_when_the_run_goes_on():
    rows, asked = [], []

    def should_stop():
        asked.append(True)
        return len(asked) == 14  # ten steps, then the fourth of the evaluation

    learner = mnm.SAC(Endless, scale="quick", episode_limit=7, learning_starts=100, replay_capacity=50)
    hooks = {"on_eval": lambda seed, step, row: rows.append(step), "evaluation_episodes": 1}
    learner.learn(10, should_stop=should_stop, **hooks)
    assert (learner.steps, learner.evaluated_step, rows) == (10, 0, [])
    learner.learn(0, **hooks)
    assert (learner.steps, learner.evaluated_step, rows) == (10, 10, [10])


def test_every_draw_of_the_policy_is_new_unless_a_seed_is_named():
    learner = mnm.SAC(Endless, scale="quick", replay_capacity=50)
    observation = np.zeros(1, np.float32)
    draws = {float(learner.predict(observation, deterministic=False)[0]) for _ in range(5)}
    assert len(draws) == 5
    named = {float(learner.predict(observation, deterministic=False, seed=3)[0]) for _ in range(5)}
    assert len(named) == 1


def test_a_replay_is_no_larger_than_the_run_and_never_larger_than_the_memory():
    assert [replay_rows(1_000_000, steps, (3, 1)) for steps in (10, 1024, 1025, 10**7, None)] == [
        *(1024, 1024, 2048, 1_000_000, 1_000_000)
    ]
    assert replay_rows(500, 10_000, (3, 1)) == 500
    assert replay_rows(1_000_000, None, (64 * 64 * 3, 1)) == 2730
    with pytest.raises(TaskError, match=r"networks and buffers need 480\d\d GB, and the machine has"):
        mnm.SAC("Pendulum-v1", hidden=(10**6, 10**6))


class Wide(Counting):
    """The same, 6,144 times."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (64, 64, 3), np.float32)

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return np.tile(observation, 6_144).reshape(64, 64, 3), info

    def step(self, action):
        observation, *others = super().step(action)
        return np.tile(observation, 6_144).reshape(64, 64, 3), *others


def test_a_replay_grows_with_what_is_learned(tmp_path, monkeypatch):
    monkeypatch.setattr(mnm.training.learner, "ROOM", 2**20)
    agent = mnm.SAC(Wide, scale="quick", learning_starts=10_000, hidden=(4,))
    assert agent.replay.capacity == 1024
    agent.learn(1024, evaluate_every=5_000, evaluation_episodes=1)
    stored = np.asarray(agent.replay.storage.rewards)
    agent.save(tmp_path / "agent.npz")
    loaded = mnm.load(tmp_path / "agent.npz", env=Wide)
    for one in (agent, loaded):
        one.learn(3, evaluation_episodes=1)
        assert one.replay.capacity == 2048
        assert (int(one.replay.size), int(one.replay.position)) == (1027, 1027)
        np.testing.assert_array_equal(np.asarray(one.replay.storage.rewards)[:1024], stored)
    with pytest.raises(TaskError, match=r"^Wide: networks and buffers need 9\d GB, and the machine has"):
        agent.learn(10**6)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: mnm.SAC(Counting, seed="a"), "seed is 'a', but must be a whole number"),
        (lambda: mnm.SAC(Counting, seed=-1), "seed is -1, but must be 0 or more"),
        (lambda: mnm.SAC(Counting, seed=2**63), "seed is 9223372036854775808, but must be 0 or more and below"),
        (lambda: mnm.SAC(Counting).learn(1.5), "steps is 1.5, but must be a whole number"),
        (lambda: mnm.SAC(Counting).learn(-1), "steps is -1, but must be 0 or more"),
        (lambda: mnm.SAC(Counting).learn(1, evaluate_every=0), "evaluate_every is 0, but must be above 0"),
        (lambda: mnm.SAC(Counting).learn(1, evaluation_episodes=-1), "evaluation_episodes is -1, but must be 0 or"),
        (lambda: mnm.SAC(Counting).evaluate(0, -1), "episodes is -1, but must be 0 or more"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_in_a_line(use, message):
    with pytest.raises(UserError, match=f"^{message}"):
        use()


def test_a_seed_of_numpy_s_is_saved(tmp_path):
    mnm.SAC(Counting, seed=np.int64(3), replay_capacity=10).save(tmp_path / "agent.npz")
    assert mnm.load(tmp_path / "agent.npz", env=Counting).seeds == (3,)


class Spike(Counting):
    """Pays 1 or 2, and once 1e30."""

    paid = 0

    def step(self, action):
        answer = super().step(action)
        self.paid += 1
        return (answer[0], 1e30 if self.paid == 5 else 1.0 + self.paid % 2, *answer[2:])


def test_a_reward_far_outside_of_those_before_is_told_once(idle, capsys):
    idle(task=Spike).learn(12, evaluate_every=100, evaluation_episodes=1)
    told = capsys.readouterr().err
    assert "Spike, seed 0, step 5: the reward is 1e+30, and the spread of those before it 2:" in told
    assert told.count("the reward is") == 1
    idle(task=Spike).evaluate(0, 3)
    assert "Spike, seed 0, evaluation at step 0, episode 2: the reward is 1e+30" in capsys.readouterr().err


@pytest.mark.parametrize("rewards", [[0.0, 0.0, 1.0], [1.0, 1.0, 1.1], [-1e-3, 50.0], [1e30, 1.0, 2.0], [5.0]])
def test_rewards_that_grow_are_no_outliers(rewards):
    seen = RewardRange()
    assert [seen.outlier(reward) for reward in rewards] == [None] * len(rewards)
