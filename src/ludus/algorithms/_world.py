"""What algorithms with a world model share: named sizes, settings of replay, and the way from buffer to rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt

from ludus.acting.behaviour import Behaviour
from ludus.acting.exploration import Level
from ludus.algorithms import AlgorithmConfig, Context, PhaseContext
from ludus.components.world_model import WorldModelConfig
from ludus.config.schedule import PositiveSchedule, UnitSchedule, constant
from ludus.data.buffers.batches import check_length
from ludus.data.buffers.rows import sample_rows
from ludus.data.buffers.sampling import Buffer, tensors
from ludus.data.rollout import Rollout
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Learner
from ludus.learning.optimizer import OptimizerConfig
from ludus.types import Report


class Size(NamedTuple):
    """Widths of a world model."""

    deter: int
    units: int
    classes: int
    depth: int
    stoch: int = 32


SIZES = {
    "tiny": Size(128, 64, 8, 4, 8),
    "1m": Size(512, 64, 4, 4),
    "12m": Size(2048, 256, 16, 16),
    "25m": Size(3072, 384, 24, 24),
    "50m": Size(4096, 512, 32, 32),
    "100m": Size(6144, 768, 48, 48),
    "200m": Size(8192, 1024, 64, 64),
    "400m": Size(12288, 1536, 96, 96),
}
"""As in DreamerV3, where the 200m model is the default; `tiny` is ours, for tests and small tasks."""


def sized(size: Size) -> dict[str, Any]:
    """The settings that a size means."""
    units, depth = {"units": size.units}, {"depth": size.depth}
    rssm = {"deter": size.deter, "hidden": size.units, "classes": size.classes, "stoch": size.stoch}
    return {
        "encoder": units | depth,
        "representation": {"type": "rssm", **rssm},
        "decoder": {"type": "auto", **units, **depth},
        "reward": {**units},
        "continues": {**units},
        "critic": {**units},
        "actor": {**units},
    }


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings, `over` on top; where it chooses another `type`, nothing of that part is left."""
    found: dict[str, Any] = dict(under)
    for key, value in over.items():
        below = found.get(key)
        if isinstance(value, str) and isinstance(below, Mapping):
            value = {"type": value}
        if not (isinstance(value, Mapping) and isinstance(below, Mapping)):
            found[key] = value
        elif "type" in value and "type" in below and value["type"] != below["type"]:
            found[key] = dict(value)
        else:
            found[key] = merged(below, value)
    return found


class WorldConfig(WorldModelConfig, AlgorithmConfig):
    """Settings of every algorithm that learns a world model from replayed rows."""

    fixed = frozenset(
        {"size", "encoder", "representation", "decoder", "reward", "continues", "reward_scale", "continue_scale"}
        | {"optimizer", "max_grad_norm", "train_ratio", "batch_size", "sequence_length", "epoch_steps"}
    )

    size: Literal["tiny", "1m", "12m", "25m", "50m", "100m", "200m", "400m"] = "1m"
    """Which published widths fill in what the config does not say."""
    batch_size: PositiveInt = 16
    """Sequences per update."""
    sequence_length: int = Field(default=64, ge=2)
    """Rows per sequence."""
    train_ratio: PositiveFloat = 32.0
    """Replayed rows per environment step: `train_ratio / (batch_size * sequence_length)` updates per step."""
    learning_starts: PositiveInt = 1_000
    """Steps with random actions before the first update."""
    train_freq: PositiveInt = 1
    """Steps of every environment between updates."""
    epoch_steps: PositiveInt = 1_000
    """Environment steps per epoch: metrics, evaluation and checkpoints come at its end."""
    exploration: UnitSchedule = constant(0.0)
    """While collecting: deviation of noise on continuous actions, probability of a random discrete one."""
    lr: PositiveSchedule = constant(4e-5)
    """Learning rate of the world model and of all that have none of their own."""
    warmup_updates: int = Field(default=1_000, ge=0)
    """Updates over which learning rates rise from zero."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer; each network has its own moments."""
    max_grad_norm: float | None = Field(default=None, gt=0)
    """Largest gradient norm of each network; none: no clipping."""

    @property
    def update_ratio(self) -> float:
        """Updates per environment step."""
        return self.train_ratio / (self.batch_size * self.sequence_length)

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        return int(max(0, env_steps - self.learning_starts) * self.update_ratio)

    def steps_per_batch(self, rollout_size: int) -> int:
        return self.batch_size * self.sequence_length

    def full_batch(self, num_envs: int) -> int:
        return self.batch_size * self.sequence_length

    @property
    def compiling_pays_from(self) -> int:
        return 2_000

    def warm(self, updates: int) -> float:
        """Share of the learning rate at the next update."""
        return min(1.0, (updates + 1) / self.warmup_updates) if self.warmup_updates else 1.0


class WorldReplay:
    """The buffers of an algorithm: it collects into them with its behaviour and draws rows from them."""

    def __init__(self, context: Context, learner: Learner, behaviour: Behaviour, explores: Level) -> None:
        self.buffers, self.device = context.buffers, context.device
        self.learner, self.behaviour, self.explores = learner, behaviour, explores
        for buffer in self.buffers.values():
            buffer.scaled_actions = True

    def __getitem__(self, name: str | None) -> Buffer:
        return self.buffers[name or "replay"]

    def check(self, cfg: WorldConfig, name: str | None) -> None:
        """A sequence must fit into the buffer, and all of its rows must have happened."""
        if (buffer := self[name]).fills_up:
            problem = "fills sequences up, and a world model would learn that episodes begin with the filling"
            raise ConfigError(f"buffers.{buffer.name}.type", problem, "use online or uniform")
        check_length(buffer, cfg.sequence_length, 1, "algorithm.sequence_length")

    def collect(self, rollout: Callable[[PhaseContext, int], Rollout], now: PhaseContext) -> Report:
        """A few steps into the buffer of the phase; random ones until there is something to learn from."""
        cfg, buffer = now.cfg, self[now.buffer]
        self.behaviour.uniform = buffer.added < cfg.learning_starts and self.learner.updates == 0
        self.explores.value = now.at(cfg.exploration)
        steps = rollout(now, cfg.train_freq)
        buffer.add(steps)
        return Report(env_steps=steps.env_steps)

    def rows(self, now: PhaseContext) -> Batch | None:
        """A batch of replayed rows; None while too few are stored."""
        cfg, buffer = now.cfg, self[now.buffer]
        enough = buffer.added >= (1 if now.type == "offline" else cfg.learning_starts)
        if not enough or not buffer.can_sample_sequences(1, cfg.sequence_length - 1):
            return None
        return tensors(sample_rows(buffer, cfg.batch_size, cfg.sequence_length), self.device)


def named_settings(given: Any, fields: Collection[str], *layers: Mapping[str, Any]) -> Any:
    """A config as it was given over `layers` of named settings, the widths of its size under them all."""
    size = str(given.get("size", "1m")) if isinstance(given, Mapping) else ""
    if size not in SIZES:
        return given  # the fields themselves complain
    found = given  # from the top down: another `type` drops what a layer says of it, the widths of the size stay
    for layer in (*reversed(layers), {name: part for name, part in sized(SIZES[size]).items() if name in fields}):
        found = merged(layer, found)
    return found
