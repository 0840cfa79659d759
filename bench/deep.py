"""Speed of the deep agents, side by side in one run, as ratios. Usage: make bench, or python bench/deep.py [PART ...]

Parts: limit, limit_cpu, sbx, mbrl, seeds, memory. All on HalfCheetah's 17 observations and 6 actions, at the paper's
sizes; limit_cpu at those of the scale cpu, with one thread, as a sweep's runs have. The other libraries run in
.venv-bench (bench/rivals.py), which `make bench` builds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from measure import report, seconds, side_by_side
from mnm.agents import ALGORITHMS
from mnm.agents.actor_critic import ActorCriticConfig
from mnm.agents.algorithm import Algorithm, State
from mnm.agents.base import AgentConfig
from mnm.agents.classifier import AdversarialConfig
from mnm.agents.world_model import ModelConfig, real_rows
from mnm.replay import Replay, Transitions
from mnm.sweeps.pools import cores
from mnm.sweeps.trials import one_thread_environment
from mnm.training.programs import new_agents, train_step, update_many

OBSERVATION_DIM, ACTION_DIM = 17, 6
STORED, OBSERVED, UPDATES, ROUNDS = 50_000, 1_000, 20, 10
LATE = 10**6
"""The number of an update late in training: every term of the losses is on."""
RIVALS_PYTHON = Path(__file__).parents[1] / ".venv-bench/bin/python"


def random_transitions(count: int, key: jax.Array) -> Transitions:
    """Transitions of HalfCheetah's sizes, with positive rewards."""
    keys = jax.random.split(key, 4)
    return Transitions(
        jax.random.normal(keys[0], (count, OBSERVATION_DIM)),
        jax.random.uniform(keys[1], (count, ACTION_DIM), minval=-1.0),
        jax.random.uniform(keys[2], (count,), minval=0.5, maxval=1.5),
        jax.random.normal(keys[3], (count, OBSERVATION_DIM)),
        jnp.ones(count),
    )


@partial(jax.jit, static_argnums=0)
def full_replay(count: int, key: jax.Array) -> Replay:
    """A replay without room left."""
    return Replay(random_transitions(count, key), jnp.zeros((), jnp.int32), jnp.asarray(count, jnp.int32))


@partial(jax.jit, static_argnums=(0, 1))
def observed(algorithm: Algorithm, config: AgentConfig, state: State, rows: Transitions) -> State:
    """The agent with its statistics moved by these real transitions, one by one."""

    def step(state: State, row: Transitions) -> tuple[State, None]:
        return algorithm.observe(config, state, row), None

    return jax.lax.scan(step, state, rows)[0]


def first_rows(replay: Replay) -> Transitions:
    """Enough of them for an agent's statistics."""
    return jax.tree.map(lambda column: column[:OBSERVED], replay.storage)


class Ours:
    """One seed's agent, or several seeds' as one program; each call times a few updates."""

    def __init__(self, name: str, seeds: int | None = None, scale: str = "paper", **settings: Any) -> None:
        self.algorithm, self.many = ALGORITHMS[name], seeds is not None
        self.config = replace(self.algorithm.presets[scale], **settings)
        key = jax.random.key(0)
        keys = jax.random.split(key, seeds) if seeds else key
        self.state = new_agents(self.algorithm, self.config, OBSERVATION_DIM, ACTION_DIM, keys)
        fill = partial(full_replay, STORED)
        self.replay = jax.vmap(fill)(keys) if seeds else fill(keys)
        observe = partial(observed, self.algorithm, self.config)
        first = jax.vmap(first_rows)(self.replay) if seeds else first_rows(self.replay)
        self.state = jax.vmap(observe)(self.state, first) if seeds else observe(self.state, first)
        self()

    def __call__(self) -> float:
        """Seconds per update."""
        start = time.perf_counter()
        self.state, metrics = update_many(
            self.algorithm.update, self.config, self.state, self.replay, LATE, UPDATES, many=self.many
        )
        jax.block_until_ready((self.state, metrics))  # type: ignore[no-untyped-call]
        return (time.perf_counter() - start) / UPDATES


@dataclass(frozen=True)
class Network:
    """Dense layers of the given sizes, inputs and outputs included; the methods count multiply-adds."""

    sizes: tuple[int, ...]

    def forward(self, rows: int) -> int:
        """Every layer's product; the gradient of its weights costs the same."""
        return rows * sum(width * out for width, out in pairwise(self.sizes))

    def gradient_of_inputs(self, rows: int) -> int:
        """Back through every layer, as many multiply-adds as forward."""
        return self.forward(rows)

    def gradient_of_weights(self, rows: int) -> int:
        """Those of every layer, and back through every layer but the first."""
        return self.forward(rows) + rows * sum(width * out for width, out in list(pairwise(self.sizes))[1:])


def sac_cost(config: ActorCriticConfig) -> int:
    """Multiply-adds of one update of Q and policy."""
    rows, critics = config.batch_size, 2
    policy = Network((OBSERVATION_DIM, *config.hidden, 2 * ACTION_DIM))
    critic = Network((OBSERVATION_DIM + ACTION_DIM, *config.hidden, 1))
    next_values = policy.forward(rows) + critics * critic.forward(rows)
    critics_steps = config.critic_updates * (
        next_values + critics * (critic.forward(rows) + critic.gradient_of_weights(rows))
    )
    policy_step = policy.forward(rows) + policy.gradient_of_weights(rows)
    through_critics = critics * (critic.forward(rows) + critic.gradient_of_inputs(rows))
    return critics_steps + policy_step + through_critics


def dynamics_network(config: ModelConfig) -> Network:
    """One member."""
    return Network((OBSERVATION_DIM + ACTION_DIM, *config.model_hidden, 2 * OBSERVATION_DIM))


def experience_and_outcomes_cost(config: ModelConfig) -> int:
    """Multiply-adds of imagining a batch, by the policy's actions or real ones, and of the outcome networks' steps."""
    rows, transition = config.batch_size, 2 * OBSERVATION_DIM + ACTION_DIM
    policy = Network((OBSERVATION_DIM, *config.hidden, 2 * ACTION_DIM))
    rewards = Network((OBSERVATION_DIM + ACTION_DIM, *config.head_hidden, 1))
    continues = Network((transition, *config.head_hidden, 1))
    # Each row goes through one member.
    chosen = rows - int(config.real_action_ratio * rows)
    imagined = policy.forward(chosen) + dynamics_network(config).forward(rows)
    imagined += rewards.forward(rows) + continues.forward(rows)
    return imagined + sum(network.forward(rows) + network.gradient_of_weights(rows) for network in (rewards, continues))


def mbpo_cost(config: ModelConfig) -> int:
    """Multiply-adds of one update of everything; every member learns from every row."""
    rows, dynamics = config.ensemble_size * config.batch_size, dynamics_network(config)
    dynamics_step = dynamics.forward(rows) + dynamics.gradient_of_weights(rows)
    return sac_cost(config) + experience_and_outcomes_cost(config) + dynamics_step


def classifier_network(config: AdversarialConfig) -> Network:
    """Of (s, a, s' - s)."""
    return Network((2 * OBSERVATION_DIM + ACTION_DIM, *config.classifier_hidden, 1))


def mnm_cost(config: AdversarialConfig) -> int:
    """Multiply-adds of one update of everything: MnM-approx's, and several next states of the model for each row of
    experience, which the classifier judges for its reward.
    """
    rows, dynamics, classifier = config.batch_size, dynamics_network(config), classifier_network(config)
    asked = rows - real_rows(config)
    again = dynamics.forward(asked) if config.ratio_samples > 1 else 0
    rewards = config.critic_updates * (again + classifier.forward(config.ratio_samples * asked))
    if config.calibrate:
        rewards += dynamics.forward(rows) + classifier.forward(2 * rows)
    return mnm_approx_cost(config) + rewards


def mnm_approx_cost(config: AdversarialConfig) -> int:
    """Multiply-adds of one update of everything; each row goes through one member, for its likelihood through all.

    The classifier sees real rows, the model's and its target network's. What it says about the model's rows serves both
    players and is counted once; going back from it is counted for each.
    """
    rows, dynamics, classifier = config.batch_size, dynamics_network(config), classifier_network(config)
    policy = Network((OBSERVATION_DIM, *config.hidden, 2 * ACTION_DIM))
    critic = Network((OBSERVATION_DIM + ACTION_DIM, *config.hidden, 1))
    classifier_step = classifier.forward(3 * rows) + classifier.gradient_of_weights(3 * rows)
    target_samples = dynamics.forward(rows)
    learning = rows * (1 + config.ensemble_size) if config.likelihood_weight > 0 else rows
    dynamics_step = dynamics.forward(learning) + dynamics.gradient_of_weights(learning)
    through_players = classifier.gradient_of_inputs(rows)
    for network in (policy, critic, critic):
        through_players += network.forward(rows) + network.gradient_of_inputs(rows)
    players = classifier_step + target_samples + dynamics_step + through_players
    return sac_cost(config) + experience_and_outcomes_cost(config) + players


COSTS: dict[str, Callable[[Any], int]] = {
    "mnm": mnm_cost,
    "mnm_approx": mnm_approx_cost,
    "mbpo": mbpo_cost,
    "sac": sac_cost,
}


def limit(scale: str = "paper") -> None:
    """Updates against the time that their multiply-adds take at the rate of one large product.

    NumPy's or JAX's, whichever is faster: on a new processor one library's product may be half as fast as the other's.
    """
    size = 2048
    left, right = np.random.default_rng(0).normal(size=(2, size, size)).astype(np.float32)
    compiled, *matrices = jax.jit(jnp.matmul), jnp.asarray(left), jnp.asarray(right)
    products = {"NumPy": lambda: left @ right, "JAX": lambda: compiled(*matrices).block_until_ready()}
    agents = [Ours(name, scale=scale) for name in COSTS]
    times = side_by_side(ROUNDS, *(lambda work=work: seconds(work, 3)[0] for work in products.values()), *agents)
    rates = {name: size**3 / time for name, time in zip(products, times, strict=False)}
    rate, times = max(rates.values()), times[len(products) :]
    said = ", ".join(f"{name} {one / 1e9:.1f}" for name, one in rates.items())
    report("Product of two 2048x2048 float32 matrices", f"{said} G multiply-adds/s")
    for name, agent, measured in zip(COSTS, agents, times, strict=True):
        cost = COSTS[name](agent.config)
        share = cost / rate / measured
        text = f"{cost / 1e6:.0f} M, {measured * 1e3:.1f} ms = {share:.0%}"
        target = ("at least 65%", share >= 0.65) if (name, scale) == ("mnm", "paper") else ()
        report(f"{name}: multiply-adds, update, share of that rate", text, *target)


def limit_cpu() -> None:
    """The same at the sizes of the scale cpu, in a process of its own: one thread on one core, as a sweep's runs."""
    pin = f"os.sched_setaffinity(0, {{{cores()[0]}}})" if hasattr(os, "sched_setaffinity") else "pass"
    code = f"import os; {pin}; import deep; deep.limit('cpu')"
    subprocess.run([sys.executable, "-c", code], env=one_thread_environment(), cwd=Path(__file__).parent, check=True)


@contextmanager
def rivals() -> Iterator[Callable[[str], float]]:
    """A function of a rival's name that times one round of it: seconds per update."""
    if not RIVALS_PYTHON.exists():
        raise SystemExit(f"{RIVALS_PYTHON} is missing: `make bench` builds it")
    command = [RIVALS_PYTHON, Path(__file__).with_name("rivals.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def time_round(name: str) -> float:
            asked.write(name + "\n")
            asked.flush()
            answer = answers.readline()
            if not answer:
                raise RuntimeError(f"the other libraries' process ended with {process.wait()}")
            return float(answer)

        yield time_round
        asked.close()


def against(rival: str, ours: Ours, what: str, most: float) -> None:
    """Our update over a rival's, in turns."""
    with rivals() as time_round:
        own, theirs = side_by_side(ROUNDS, ours, lambda: time_round(rival))
    measured = f"{own * 1e3:.1f} ms / {theirs * 1e3:.1f} ms = {own / theirs:.2f}"
    report(what, measured, f"at most {most}", own / theirs <= most)


def sbx() -> None:
    """SAC with LayerNorm in the critics, 20 updates in one compiled call on both sides."""
    against("sbx", Ours("sac", layer_norm=True), "SAC's update, with LayerNorm: ours / SBX's", 0.7)


def mbrl() -> None:
    """Ours also makes its experience and learns rewards and ends; theirs is the ensemble's and SAC's update alone."""
    against("mbrl", Ours("mbpo"), "MBPO's update: ours / mbrl-lib's ensemble + SAC", 0.8)


def seeds() -> None:
    """Four seeds as one program, over four times one seed."""
    for name in ("sac", "mnm"):
        one, four = side_by_side(ROUNDS, Ours(name), Ours(name, 4))
        measured = f"{four * 1e3:.1f} ms / (4 x {one * 1e3:.1f} ms) = {four / one / 4:.2f}"
        report(f"{name}: 4 seeds by vmap / 4 times one", measured)


def memory() -> None:
    """A million transitions, and what a real step of training (one transition stored, 20 updates) needs beside them."""
    agent = Ours("mnm")
    replay = full_replay(1_000_000, jax.random.key(1))
    held = megabytes(sum(array.nbytes for array in jax.tree.leaves(replay)))
    report("1e6 transitions in a replay: memory", f"{held:.0f} MB", "below 500 MB", held < 500)

    transition = jax.tree.map(lambda rows: rows[0], agent.replay.storage)
    given = (agent.state, replay, transition, transition.observations, LATE)
    step = train_step.jitted.lower(agent.algorithm, agent.config, *given, UPDATES, many=False).compile()
    plan = step.memory_analysis()
    assert plan is not None
    needed = megabytes(plan.temp_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes)
    before = [array.unsafe_buffer_pointer() for array in replay.storage]
    _, replay, *_ = step(*given)
    moved = sum(array.unsafe_buffer_pointer() != place for array, place in zip(replay.storage, before, strict=True))
    observations = megabytes(replay.storage.observations.nbytes)
    measured = f"{needed:.0f} MB, {moved} of its 5 arrays moved"
    met = needed < observations and moved == 0
    report("  a step of MnM with it: new memory", measured, f"below {observations:.0f} MB, 0", met)


def megabytes(size: int) -> float:
    """From bytes."""
    return size / 1e6


PARTS = {"limit": limit, "limit_cpu": limit_cpu, "sbx": sbx, "mbrl": mbrl, "seeds": seeds, "memory": memory}

if __name__ == "__main__":
    if os.getloadavg()[0] > 0.5:
        print(f"The machine is busy (load {os.getloadavg()[0]:.1f}): that slows some libraries far more than others.")
    for chosen in sys.argv[1:] or list(PARTS):
        PARTS[chosen]()
