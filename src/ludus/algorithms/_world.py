"""What algorithms with a world model share: named sizes, settings of replay, and the way from buffer to rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import Field, PositiveInt

from ludus.acting.behaviour import Behaviour
from ludus.acting.exploration import Level
from ludus.algorithms import Context, PhaseContext
from ludus.algorithms._ratio import RatioConfig, Replay
from ludus.components.world_model import WorldModelConfig
from ludus.config.schedule import PositiveSchedule, UnitSchedule, constant
from ludus.data.buffers.batches import check_length
from ludus.data.buffers.rows import blank_steps, rows_of, sample_rows
from ludus.data.buffers.sampling import tensors
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


class WorldConfig(WorldModelConfig, RatioConfig):
    """Settings of every algorithm that learns a world model from replayed rows."""

    fixed = frozenset(
        {"size", "encoder", "representation", "decoder", "reward", "continues"}
        | {"observation_scale", "reward_scale", "continue_scale"}
        | {"optimizer", "max_grad_norm", "train_ratio", "batch_size", "sequence_length", "epoch_steps"}
    )
    search = {"lr": "loguniform(1e-5,1e-3)", "train_ratio": "32,128,512", "sequence_length": "16,32,64"}

    size: Literal["tiny", "1m", "12m", "25m", "50m", "100m", "200m", "400m"] = "1m"
    """Which published widths fill in what the config does not say."""
    batch_size: PositiveInt = 16
    """Sequences per update."""
    sequence_length: int = Field(default=64, ge=2)
    """Rows per sequence."""
    train_ratio: float = Field(default=32.0, gt=0, allow_inf_nan=False)
    """Replayed rows per environment step: `train_ratio / (batch_size * sequence_length)` updates per step."""
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
    def per_env_step(self) -> float:
        return self.train_ratio / (self.batch_size * self.sequence_length)

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


class WorldReplay(Replay):
    """Buffers that rows are drawn from."""

    def __init__(self, context: Context, learner: Learner, behaviour: Behaviour, explores: Level) -> None:
        super().__init__(context, learner, behaviour)
        self.explores, self.spaces = explores, context.spaces

    def check(self, cfg: WorldConfig, name: str | None) -> None:
        """A sequence must fit into the buffer, and all of its rows must have happened."""
        if (buffer := self[name]).fills_up:
            problem = "fills sequences up, and a world model would learn that episodes begin with the filling"
            raise ConfigError(f"buffers.{buffer.name}.type", problem, "use online or uniform")
        check_length(buffer, cfg.sequence_length, 1, "algorithm.sequence_length")

    def collect(self, rollout: Callable[[PhaseContext, int], Rollout], now: PhaseContext) -> Report:
        self.explores.value = now.at(now.cfg.exploration)
        return super().collect(rollout, now)

    def rows(self, now: PhaseContext) -> Batch | None:
        """A batch of replayed rows; None while too few are stored."""
        if not self.has_enough(now, now.cfg.sequence_length - 1):
            return None
        return tensors(sample_rows(self[now.buffer], now.cfg.batch_size, now.cfg.sequence_length), self.device)

    def blank(self, rows: int) -> Batch:
        """One sequence of nothing, as `rows` gives them."""
        return tensors(rows_of(blank_steps(self.spaces, 1, rows - 1)), self.device)

    def activations(self, cfg: WorldConfig, kept: Callable[[Batch, int], int], horizon: int = 0, last: int = 0) -> int:
        """Bytes that an update keeps, from `kept(batch, horizon)` of tiny ones.

        They grow with the rows of a sequence, and with those times the horizon where rows are imagined from.
        """
        start, longer, farther = kept(self.blank(2), 1), kept(self.blank(3), 1), kept(self.blank(2), 2)
        dreamed = (farther - start) // 2
        row = longer - start - dreamed
        return cfg.batch_size * (cfg.sequence_length * row + (last or cfg.sequence_length) * horizon * dreamed)


def named_settings(given: Any, fields: Collection[str], *layers: Mapping[str, Any]) -> Any:
    """A config as it was given over `layers` of named settings, the widths of its size under them all."""
    size = str(given.get("size", "1m")) if isinstance(given, Mapping) else ""
    if size not in SIZES:
        return given  # the fields themselves complain
    found = given  # from the top down: another `type` drops what a layer says of it, the widths of the size stay
    for layer in (*reversed(layers), {name: part for name, part in sized(SIZES[size]).items() if name in fields}):
        found = merged(layer, found)
    return found
