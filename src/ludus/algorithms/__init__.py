"""One file per algorithm: a set of named hooks; phases say in which order they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ludus.config.algorithm import AlgorithmConfig as AlgorithmConfig
from ludus.config.schedule import Schedule
from ludus.types import ActResult, Array, Report, Spaces, Stateful, Tree

if TYPE_CHECKING:
    import torch

    from ludus.acting.behaviour import Behaviour
    from ludus.components.latent_view import LatentView
    from ludus.components.vision_memory import VisionMemory
    from ludus.components.world_model import WorldModel
    from ludus.config.schema import Network
    from ludus.data.collector import Collector
    from ludus.data.rollout import Rollout
    from ludus.learning.compiled import Compiler
    from ludus.learning.rehearsal import Rehearsal
    from ludus.networks.precision import Precision


@dataclass(frozen=True, kw_only=True)
class Context:
    """What an algorithm is given to live in."""

    spaces: Spaces
    network: Network
    num_envs: int
    device: torch.device
    rng: np.random.Generator
    """Exploration and shuffling during training."""
    evaluation_rng: np.random.Generator
    """Everything random in `act`: evaluating must not disturb training."""
    collector: Collector | None = None
    """None when only `act` is needed (play, inspector)."""
    buffers: Mapping[str, Any] = field(default_factory=dict)
    compiler: Compiler | None = None
    precision: Precision | None = None

    def begun(self, exploration: Schedule) -> float:
        """How much is explored at first; where nothing is collected, as much as when exploration has settled."""
        return exploration.end if self.collector is None else exploration.start


@dataclass(frozen=True, kw_only=True)
class PhaseContext:
    """What a hook may know about the moment it is called in."""

    cfg: Any
    """The algorithm's config as the current phase has it."""
    name: str
    type: str
    position: int
    """How much of the budget was used when this cycle began: environment steps, or updates in a run that is counted in
    updates. Schedules are read here, so the last cycle does not yet see their final value."""
    total: int
    """The budget of the run, in the same unit."""
    remaining_steps: int
    """Environment steps the phase and the budget still allow."""
    cycle: int = 0
    """Cycles before this one: what hooks of one cycle hand each other is worth nothing in the next."""
    buffer: str | None = None

    def at(self, schedule: Schedule) -> float:
        """The value of a schedule now."""
        return schedule.at(self.position, self.total)


Hook = Callable[[PhaseContext], Report]


class Algorithm(ABC):
    """Pure algorithm logic behind named hooks; knows nothing of loops, logs, checkpoints or files."""

    Config: ClassVar[type[AlgorithmConfig]]
    default_cycle: tuple[str | dict[str, Any], ...] = ("collect", "update_controller")
    """Hooks of one cycle when the config has no phases."""
    buffers: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Buffers it needs, with the settings they have where the config says nothing."""
    networks: ClassVar[frozenset[str]] = frozenset({"encoder", "memory", "actor", "critic"})
    """Parts of the section `network` that it uses; a config that sets another one is refused, or told so."""
    epoch_steps: int = 0
    """Environment steps of an epoch in phases that collect; 0 means that every cycle ends one. Phases that do not
    collect follow `training.epoch_updates`."""
    deterministic_evaluation: ClassVar[bool] = True
    data_parallel: ClassVar[bool] = False
    """Whether several ranks may learn together, each from its part of every batch (`runtime.ranks`)."""
    off_policy: ClassVar[bool] = False
    """Whether it may learn from actions that an older policy chose."""
    scales: ClassVar[tuple[str, ...]] = ()
    """Parts of its state that say how the numbers around its networks are scaled: weights mean nothing without them."""
    collector: Collector | None = None
    """Where rollouts come from; None where nothing is collected."""
    behaviour: Behaviour
    """How it collects and acts; an algorithm without one writes `act` itself."""
    world: WorldModel | LatentView | VisionMemory | None = None
    """What it has learned about the environment itself: `ludus imagine` looks into it."""
    discount: float | None = None
    """The discount it learned with last; None: the schedule `gamma` of its config tells it."""
    value_of: Callable[[torch.Tensor], torch.Tensor] | None = None
    """Value [...] of features [..., F] of its world model; None without a critic of them."""

    @abstractmethod
    def hooks(self) -> dict[str, Hook]:
        """Everything a phase may name, written out."""

    def act(self, obs: Array, state: Tree, first: Array, *, deterministic: bool) -> ActResult:
        """The deployable policy: evaluation, play and the inspector use nothing else."""
        return self.behaviour.evaluate(obs, state, first, deterministic=deterministic)

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return self.behaviour.initial_state(batch) if hasattr(self, "behaviour") else ()

    def rollout(self, now: PhaseContext, steps: int) -> Rollout:
        """`steps` steps of every environment, or as many as the phase still allows."""
        assert self.collector is not None
        return self.collector.collect(self.behaviour, min(steps, now.remaining_steps // self.collector.num_envs))

    def statistics(self) -> dict[str, float]:
        """Returns and lengths of the newest episodes."""
        return {} if self.collector is None else self.collector.statistics()

    def take_over(self, state: Mapping[str, Any]) -> list[str]:
        """A warm start takes what its weights need from the state of another run; names of parts that do not fit."""
        missing = []
        for name in self.scales:
            try:
                self.state()[name].load_state_dict(state.get(name, {}))
            except (KeyError, ValueError):  # of another algorithm, or of other spaces
                missing.append(name)
        return missing

    def check(self, cfg: Any, buffer: str | None) -> None:  # noqa: B027
        """Refuse settings of a phase under which it could never learn from that phase's buffer."""

    def activations(self, cfg: Any, rehearsal: Rehearsal) -> int:
        """Bytes that its largest update keeps for gradients; 0: outputs of layers times the batch tell it."""
        return 0

    def stored_bytes(self) -> int:
        """Most bytes that its state takes beside weights and moments."""
        return 0

    def metrics(self) -> dict[str, float]:
        """Metrics that no hook reported, read once at the end of an epoch: those of many short cycles are summed up."""
        return {}

    @abstractmethod
    def state(self) -> dict[str, Stateful]:
        """Everything a checkpoint needs, written out."""
