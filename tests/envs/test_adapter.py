import os
import subprocess
import sys

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

from mnm.envs.adapter import Environment, Step, TaskError, episode_seed, make

BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


class Tiny(gym.Env):
    """Answers what it is told to, from the second step on; remembers the last action."""

    def __init__(self, observations=BOX, actions=BOX, first=None, **answers):
        self.observation_space = observations
        self.action_space = actions
        self.first = first
        self.answers = answers
        self.steps = 0
        self.closed = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        if isinstance(self.first, Exception):
            raise self.first
        return (self.observation_space.sample() * 0 if self.first is None else self.first), {}

    def step(self, action):
        self.steps += 1
        self.action = action
        zeros = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        answer = {"observation": zeros, "reward": 0.5, "terminated": False}
        answer |= {"truncated": False} | (self.answers if self.steps >= 2 else {})
        if "error" in answer:
            raise answer["error"]
        if "whole" in answer:
            return answer["whole"]
        return answer["observation"], answer["reward"], answer["terminated"], answer["truncated"], {"steps": self.steps}

    def close(self):
        self.closed = True


def second_step(**answers):
    """The second step of the second episode of an environment that answers so."""
    environment = make(lambda: Tiny(**answers))
    environment.reset(0)
    environment.reset(1)
    environment.step(np.zeros(2))
    return environment.step(np.zeros(2))


def test_pendulum_is_flat_float32_with_its_torque_rescaled():
    environment = make("Pendulum-v1")
    assert (environment.name, environment.observation_dim, environment.action_dim) == ("Pendulum-v1", 3, 1)
    assert environment.termination is None
    first = environment.reset(0)
    assert first.dtype == np.float32
    assert first.shape == (3,)
    raw = gym.make("Pendulum-v1").unwrapped
    for action, torque in ((1.0, 2.0), (-1.0, -2.0), (0.25, 0.5), (1.5, 2.0)):  # beyond 1 is clipped
        np.testing.assert_array_equal(environment.reset(3), raw.reset(seed=3)[0])
        step = environment.step([action])
        expected = raw.step(np.array([torque], np.float32))
        np.testing.assert_array_equal(step.observation, expected[0])
        assert step.reward == expected[1]
        assert raw.last_u == torque
    environment.close()


def test_time_limit_truncates():
    environment = make("Pendulum-v1")
    environment.reset(0)
    flags = [environment.step([0.0])[2:4] for _ in range(200)]
    assert flags == [(False, False)] * 199 + [(False, True)]


@pytest.mark.parametrize("version", [4, 5])
def test_mujoco_of_either_version_without_a_warning(version):
    environment = make(f"InvertedPendulum-v{version}")
    assert (environment.observation_dim, environment.action_dim) == (4, 1)
    environment.reset(0)
    for _ in range(100):
        step = environment.step([1.0])
        if step.terminated:
            break
    assert step.terminated
    assert step.observation.dtype == np.float32
    environment.close()


@pytest.mark.parametrize("task", ["Pendulum-v1", "InvertedPendulum-v5"])
def test_equal_seeds_give_equal_episodes(task):
    def episode(seed):
        environment = make(task)
        rows = [environment.reset(seed)]
        rows += [environment.step([np.sin(time)]).observation for time in range(5)]
        return np.stack(rows)

    np.testing.assert_array_equal(episode(7), episode(7))
    assert not np.array_equal(episode(7), episode(8))


def test_episode_seeds_are_fixed_apart_and_in_range():
    # A change of these would change every run.
    assert episode_seed(0, "training", 0) == 2044266242
    assert episode_seed(0, "evaluation", 0) == 1976665982
    keys = [
        (seed, stream, i) for seed in (0, 1, 2**40) for stream in ("training", "evaluation", "test") for i in range(50)
    ]
    seeds = [episode_seed(*key) for key in keys]
    assert len(set(seeds)) == len(keys)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_actions_take_the_shape_and_dtype_of_the_space():
    space = gym.spaces.Box(np.array([[-1.0, 0.0]]), np.array([[3.0, 10.0]]), dtype=np.float64)
    env = Tiny(actions=space)
    environment = make(lambda: env)
    environment.reset(0)
    environment.step(np.array([1.0, -0.5], np.float32))
    np.testing.assert_array_equal(env.action, [[3.0, 2.5]])
    assert env.action.dtype == np.float64

    env = Tiny(actions=gym.spaces.Box(-3, 3, (1,), np.int32))
    environment = make(lambda: env)
    environment.reset(0)
    environment.step([-0.9])
    np.testing.assert_array_equal(env.action, [-3])
    assert env.action.dtype == np.int32


@pytest.mark.parametrize("action", [[np.nan, 0.0], [0.0], [[0.0, 0.0]]])
def test_a_wrong_action_is_not_blamed_on_the_task(action):
    environment = make(Tiny)
    environment.reset(0)
    with pytest.raises(ValueError, match="Tiny: the action must be 2 finite numbers") as caught:
        environment.step(action)
    assert not isinstance(caught.value, TaskError)


@pytest.mark.parametrize(
    ("space", "dim"),
    [
        (gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float64), 6),
        (gym.spaces.Box(0, 9, (), np.int64), 1),
        (gym.spaces.Box(0, 255, (4,), np.uint8), 4),
    ],
)
def test_observations_are_flattened(space, dim):
    values = np.arange(dim).reshape(space.shape)
    environment = make(lambda: Tiny(observations=space, first=values))
    assert environment.observation_dim == dim
    observation = environment.reset(0)
    assert observation.dtype == np.float32
    np.testing.assert_array_equal(observation, np.arange(dim))


def test_observations_are_copies():
    buffer = np.zeros(2, np.float32)
    environment = make(lambda: Tiny(first=buffer, observation=buffer))
    first = environment.reset(0)
    buffer[:] = 0.5
    np.testing.assert_array_equal(first, [0.0, 0.0])


def test_step_answers_plain_types():
    step = second_step(reward=jnp.float32(0.25), terminated=np.bool_(True), truncated=np.array([False]))
    assert isinstance(step, Step)
    assert step[1:] == (0.25, True, False, {"steps": 2})
    assert [type(value) for value in step[1:4]] == [float, bool, bool]


def test_the_declared_termination_is_found_behind_wrappers():
    class Declares(Tiny):
        @staticmethod
        def termination_function(observations, actions, next_observations):
            return next_observations[:, 0] > 1

    environment = make(lambda: gym.wrappers.TimeLimit(Declares(), 5))
    assert environment.name == "Declares"
    assert environment.termination is Declares.termination_function
    Declares.termination_function = 3
    with pytest.raises(TaskError, match="Declares: termination_function is 3: make it a function"):
        make(Declares)


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (gym.spaces.Discrete(3), r"Discrete\(3\)"),
        (gym.spaces.Dict({"a": BOX, "b": gym.spaces.Discrete(3)}), r"Dict\('a'"),
        (gym.spaces.Dict({"a": gym.spaces.Box(0, 255, (8, 8), np.uint8)}), r"images, uint8 of shape \(8, 8\)"),
        (gym.spaces.Dict({}), r"empty: Dict\(\)"),
        (gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), r"images, uint8 of shape \(8, 8, 3\)"),
        (gym.spaces.Box(0, 255, (8, 8), np.uint8), r"images, uint8 of shape \(8, 8\)"),
        (gym.spaces.Box(0, 1, (0,), np.float32), r"empty, of shape \(0,\)"),
        (None, "None"),
    ],
)
def test_unsupported_observations(space, seen):
    env = Tiny(observations=space)
    with pytest.raises(TaskError, match=f"^Tiny: observations are {seen}.*; supported are Box observations"):
        make(lambda: env)
    assert env.closed


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (gym.spaces.Discrete(3), r"Discrete\(3\)"),
        (gym.spaces.MultiDiscrete([2, 2]), r"MultiDiscrete\(\[2 2\]\)"),
        (gym.spaces.Dict({"a": BOX}), r"Dict\('a'"),
        (gym.spaces.Tuple([BOX]), r"Tuple\(Box"),
        (gym.spaces.Box(-np.inf, np.inf, (2,), np.float32), r"Box\(-inf, inf.*unbounded"),
        (gym.spaces.Box(np.array([0.0, -np.inf]), np.ones(2), dtype=np.float64), "Box.*unbounded"),
        (gym.spaces.Box(0, 1, (0,), np.float32), r"empty, of shape \(0,\)"),
    ],
)
def test_unsupported_actions(space, seen):
    with pytest.raises(TaskError, match=f"^Tiny: actions are {seen}.*; supported are Box actions with finite"):
        make(lambda: Tiny(actions=space))


@pytest.mark.parametrize(
    ("answers", "what"),
    [
        ({"observation": [0.0, np.nan]}, "entry 1 of the observation is nan"),
        ({"observation": [-np.inf, 0.0]}, "entry 0 of the observation is -inf"),
        ({"observation": [0.0, 1e39]}, r"entry 1 of the observation is 1e\+39, which is not a finite float32"),
        ({"observation": np.zeros(3)}, r"shape \(3,\), but the space declares \(2,\)"),
        ({"observation": np.zeros((2, 1))}, r"shape \(2, 1\), but the space declares \(2,\)"),
        ({"observation": [[0.0], [0.0, 1.0]]}, "the observation is .*not a number"),
        ({"observation": {"a": 1}}, "the observation is {'a': 1}.*not a number"),
        ({"reward": np.nan}, "the reward is nan"),
        ({"reward": -np.inf}, "the reward is -inf"),
        ({"reward": 1e39}, r"the reward is 1e\+39"),
        ({"reward": None}, "the reward is None, which is not a number"),
        ({"reward": "1.0"}, "the reward is '1.0', which is not a number"),
        ({"reward": [1.0, 2.0]}, r"the reward is \[1.0, 2.0\], which is not a number"),
        ({"terminated": None}, "the flag terminated is None"),
        ({"truncated": [True, False]}, r"the flag truncated is \[True, False\]"),
        ({"whole": (np.zeros(2), 0.0, False, {})}, "step returned .*: return .observation, reward, terminated"),
    ],
)
def test_a_broken_step_is_placed(answers, what):
    with pytest.raises(TaskError, match=f"^Tiny: episode 2, step 2: .*{what}") as caught:
        second_step(**answers)
    assert "\n" not in str(caught.value)


def test_fractions_in_a_space_of_integers_are_refused():
    environment = make(lambda: Tiny(gym.spaces.Box(0, 9, (2,), np.int64), observation=np.array([1.0, 0.5])))
    environment.reset(0)
    environment.step(np.zeros(2))
    with pytest.raises(TaskError, match="the observation has dtype float64, but the space declares int64"):
        environment.step(np.zeros(2))


def test_an_exception_in_step_is_placed_and_chained():
    cause = ZeroDivisionError("division\nby zero")
    with pytest.raises(
        TaskError,
        match=r"^Tiny: episode 2, step 2: step raised ZeroDivisionError: division by zero \(.*test_adapter.py, line ",
    ) as caught:
        second_step(error=cause)
    assert caught.value.__cause__ is cause


@pytest.mark.parametrize(
    ("first", "what"),
    [
        (RuntimeError(), r"reset raised RuntimeError \(.*test_adapter.py, line \d+\)$"),
        (np.full(2, np.nan), "entry 0 of the observation is nan"),
        (np.zeros(1), r"shape \(1,\), but the space declares \(2,\)"),
    ],
)
def test_a_broken_reset_is_placed(first, what):
    env = Tiny()
    environment = make(lambda: env)
    environment.reset(0)
    environment.step(np.zeros(2))
    env.first = first
    with pytest.raises(TaskError, match=rf"^Tiny: episode 2, step 0 \(reset\): .*{what}"):
        environment.reset(1)


def test_reset_of_the_old_interface_is_refused():
    class Old(Tiny):
        def reset(self, **_):
            return np.zeros(2)

    with pytest.raises(
        TaskError, match=r"^Old: episode 1, step 0 \(reset\): reset returned .*: return \(observation, info"
    ):
        make(Old).reset(0)


@pytest.mark.parametrize(
    ("task", "what"),
    [
        ("Pendulm-v1", "Pendulm-v1: cannot be made: .*; nearest ids: .*Pendulum-v1"),
        ("halfcheetah-v5", "halfcheetah-v5: cannot be made: .*; nearest ids: .*HalfCheetah-v5"),
        ("Pendulum-v0", "Pendulum-v0: cannot be made: .*; nearest ids: .*Pendulum-v1"),
        ("Pendulum-v9", "Pendulum-v9: cannot be made: .*; nearest ids: .*Pendulum-v1"),
        ("", "cannot be made: .*; ids look like Pendulum-v1"),
        ("no_such_module:Task-v0", "No module named 'no_such_module'.*; install what is missing"),
    ],
)
def test_unknown_ids(task, what):
    with pytest.raises(TaskError, match=what):
        make(task)


def test_a_broken_environment_by_its_id_has_the_same_message(monkeypatch):
    monkeypatch.setattr(gym.envs.registration, "registry", dict(gym.registry))
    gym.register("Broken-v0", lambda: Tiny(first=np.array([0.0, np.nan], np.float32)))
    with pytest.raises(TaskError, match=r"^Broken-v0: episode 1, step 0 \(reset\): entry 1 of the observation is nan"):
        make("Broken-v0").reset(0)


def test_a_missing_dependency_names_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(TaskError, match=r"^InvertedPendulum-v5: needs mujoco.*pip install 'mnm-rl\[mujoco\]'$"):
        make("InvertedPendulum-v5")


def test_what_is_no_task():
    with pytest.raises(TaskError, match=r"^the task is 3: pass a Gymnasium id, a function"):
        make(3)


class Halved(gym.RewardWrapper):
    """A wrapper that Gymnasium cannot make again: it does not record its arguments."""

    def reward(self, reward):
        return reward / 2


@pytest.mark.parametrize("wrap", [lambda env: env, Halved])
def test_an_environment_itself_is_copied_and_left_alone(wrap):
    env = wrap(gym.make("Pendulum-v1"))
    first, _ = env.reset(seed=3)
    environment = make(env)
    assert (environment.name, environment.time_limit) == ("Pendulum-v1", 200)
    assert environment.env.unwrapped is not env.unwrapped
    environment.reset(0)
    copied = environment.step([0.25]).reward  # the original's episode goes on where it was
    env.step(np.array([0.5]))
    assert not np.array_equal(env.unwrapped.state, environment.env.unwrapped.state)
    env.reset(seed=0)
    assert env.step(np.array([0.5], np.float32))[1] == copied
    np.testing.assert_array_equal(environment.reset(3), first)


def test_an_environment_without_a_spec_is_copied_or_refused():
    env = Tiny(reward=3.0)
    environment = make(env)
    environment.reset(0)
    assert [environment.step(np.zeros(2)).reward for _ in range(2)] == [0.5, 3.0]
    assert env.steps == 0
    with pytest.raises(TaskError, match=r"cannot be copied, .*: TypeError: .*; pass a function that makes one"):
        make(Tiny(first=sys.stderr))


GOAL = {
    "observation": gym.spaces.Box(-1.0, 1.0, (2, 2), np.float32),
    "goals": gym.spaces.Dict({"desired": gym.spaces.Box(0, 9, (1,), np.int64), "achieved": BOX}),
}
SEEN = {
    "observation": np.array([[0.1, 0.2], [0.3, 0.4]], np.float32),
    "goals": {"desired": np.array([7]), "achieved": np.array([0.5, 0.6], np.float32)},
}
FLAT = np.array([0.5, 0.6, 7, 0.1, 0.2, 0.3, 0.4], np.float32)  # a Dict space orders its keys


def test_dicts_of_boxes_are_flattened_and_come_back():
    environment = make(Tiny(gym.spaces.Dict(GOAL), first=SEEN))
    np.testing.assert_array_equal(environment.reset(0), FLAT)
    assert environment.observation_dim == 7
    assert environment.spaces["observation_shape"] == {
        "goals/achieved": [2],
        "goals/desired": [1],
        "observation": [2, 2],
    }
    batch = {
        "observation": np.stack([SEEN["observation"]] * 3),
        "goals": {name: np.stack([value] * 3) for name, value in SEEN["goals"].items()},
    }
    for value, rows, single in ((SEEN, 1, True), (batch, 3, False), (FLAT, 1, True), (np.stack([FLAT] * 3), 3, False)):
        array, is_single = environment.rows(value)
        np.testing.assert_array_equal(array, np.stack([FLAT] * rows))
        assert is_single is single
    back = environment.observation(FLAT)
    assert environment.observation_space.contains(back)
    np.testing.assert_array_equal(back["goals"]["desired"], SEEN["goals"]["desired"])
    np.testing.assert_array_equal(back["observation"], SEEN["observation"])
    assert environment.observation_space.contains(environment.observation(100 * FLAT))  # outside is moved inside


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ({"observation": SEEN["observation"]}, "without 'goals/achieved', which Tiny's space declares"),
        (np.zeros(7), "without 'goals/achieved'"),
        (SEEN | {"observation": np.zeros(4)}, r"the observation's 'observation' has shape \(4,\), but .* \(2, 2\)"),
        (SEEN | {"observation": np.full((2, 2), np.nan)}, "entry 0 of the observation's 'observation' is nan"),
    ],
)
def test_a_dict_that_is_not_as_declared(seen, message):
    with pytest.raises(TaskError, match=rf"^Tiny: episode 1, step 0 \(reset\): .*{message}"):
        make(lambda: Tiny(gym.spaces.Dict(GOAL), first=seen)).reset(0)


@pytest.mark.parametrize(
    "space", [BOX, gym.spaces.Box(np.array([[-1.0, 2.0]]), np.array([[3.0, 2.0]]), dtype=np.float64)]
)
def test_actions_come_back(space):
    environment = make(lambda: Tiny(actions=space))
    actions = np.array([[0.25, 0.0], [-1.0, 0.0]])
    np.testing.assert_allclose(environment.unscale([environment.scale(action) for action in actions]), actions)
    beyond = np.full((1, *space.shape), 50.0)
    np.testing.assert_array_equal(environment.unscale(beyond)[0, 0], 1.0)


def test_factories_that_fail():
    def broken():
        raise KeyError("size")

    def nothing():
        return None

    with pytest.raises(TaskError, match=r"^broken: cannot be made: KeyError: 'size' \(.*test_adapter.py, line \d+\)$"):
        make(broken)
    with pytest.raises(TaskError, match=r"^nothing: returned None, which is not a gymnasium.Env"):
        make(nothing)


def test_close_reaches_the_environment():
    env = Tiny()
    environment = make(lambda: env)
    assert isinstance(environment, Environment)
    environment.close()
    assert env.closed


def test_an_environment_that_cannot_be_closed_is_one_line(capsys):
    env = Tiny()
    env.close = lambda: 1 / 0
    make(lambda: env).close()
    told = capsys.readouterr().err
    assert told.startswith("mnm: Tiny: close raised ZeroDivisionError: division by zero (")
    assert told.count("\n") == 1


@pytest.mark.slow
def test_a_drawing_command_prints_no_error_of_a_library_and_leaves_the_environment(tmp_path):
    code = (
        "import os, sys\nbefore = dict(os.environ)\nfrom mnm.cli import run\n"
        f"run(['envs', 'Pendulum-v1', '--picture', {str(tmp_path / 'a.png')!r}])\n"
        "sys.exit([name for name in os.environ if name.startswith('SDL') and name not in before] != [])"
    )
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER", "SDL_AUDIODRIVER")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert (tmp_path / "a.png").exists()
