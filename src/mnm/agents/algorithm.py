"""What an agent is: a few pure functions on a PyTree, and what it has, declared in one place.

`mnm.agents.ALGORITHMS` lists ours; one of your own is named module:variable, see docs/agents.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from jaxtyping import Array, PRNGKeyArray

from mnm.agents.actor_critic import ActorCritic
from mnm.agents.base import AgentConfig, Metrics
from mnm.agents.classifier import Classifier
from mnm.agents.world_model import World
from mnm.replay import Replay, Transitions


class State(Protocol):
    """All of an agent: a PyTree, of which the loop asks this."""

    @property
    def actor_critic(self) -> ActorCritic:
        """Policy and critics."""

    @property
    def key(self) -> PRNGKeyArray:
        """Of all that the agent draws; the loop splits it to act."""


class ModelState(State, Protocol):
    """That of an agent with a model."""

    @property
    def world(self) -> World:
        """The learned model."""


class ClassifierState(ModelState, Protocol):
    """That of an agent with a model and a classifier."""

    @property
    def classifier(self) -> Classifier:
        """Of real against model transitions."""


Config = TypeVar("Config", bound=AgentConfig)
AgentState = TypeVar("AgentState", bound=State)

Update = Callable[[Config, AgentState, Replay, Array], tuple[AgentState, Metrics]]
"""(config, state, replay, number of the update, the warm-up's counted too) -> new state, metrics."""


@dataclass(frozen=True, eq=False)
class Algorithm(Generic[Config, AgentState]):
    """One algorithm, as pure functions."""

    name: str
    """As `mnm train` knows it: one of ours, or module:variable."""
    title: str
    presets: Mapping[str, Config]
    """Settings by scale: cpu, and perhaps paper and quick."""
    init: Callable[[Config, int, int, PRNGKeyArray], AgentState]
    """(config, observation_dim, action_dim, key) -> a new agent."""
    observe: Callable[[Config, AgentState, Transitions], AgentState]
    """(config, state, one real transition) -> the agent with its running statistics moved."""
    update: Update[Config, AgentState]
    """One update of everything."""
    warm_up: Update[Config, AgentState] | None = None
    """One update of the model alone; agents without a model have none."""
    has_model: bool = False
    """Whether it learns a model: its settings are a ModelConfig, its state a ModelState."""
    has_classifier: bool = False
    """Whether it has a classifier too: its settings are an AdversarialConfig, its state a ClassifierState."""
    log_returns: bool = False
    """Whether Q is a bound on the logarithm of the return: then the rewards, with its `reward_offset`, must be > 0."""
    ends_need_offset: bool = False
    """Whether the end of an episode, which pays the reward offset for ever, must pay more than 0."""
    offline: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the presets when the agent learns from a data set alone."""

    @property
    def short_name(self) -> str:
        """For the names of folders: without the module."""
        return self.name.rpartition(":")[2]

    def warmup_updates(self, config: Config) -> int:
        """How many updates of the model alone come first; 0 for an agent that has none."""
        settings: Any = config
        return settings.warmup_updates if self.warm_up is not None else 0

    def reward_offset(self, config: Config) -> float:
        """What the agent adds to every reward before it takes the logarithm; 0 if it takes none."""
        settings: Any = config
        return settings.reward_offset if self.log_returns else 0.0
