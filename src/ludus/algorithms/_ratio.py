"""What algorithms share that collect a few steps into a buffer, and then update in a ratio to them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from pydantic import Field, PositiveInt

from ludus.acting.behaviour import Behaviour
from ludus.algorithms import AlgorithmConfig, Context, PhaseContext
from ludus.data.buffers.sampling import Buffer
from ludus.data.rollout import Rollout
from ludus.learning.learner import Learner
from ludus.types import Report


class RatioConfig(AlgorithmConfig):
    """Steps and updates in turn."""

    learning_starts: PositiveInt = 1_000
    """Steps that go into the buffer before the first update: random ones, unless the algorithm explores by epsilon."""
    train_freq: PositiveInt = 1
    """Steps of every environment between updates."""
    epoch_steps: PositiveInt = 1_000
    """Environment steps per epoch: metrics, evaluation and checkpoints come at its end."""

    @property
    def updating(self) -> tuple[str, ...]:
        """The hooks that follow `collect` in a cycle."""
        return ("update",)

    @property
    @abstractmethod
    def per_env_step(self) -> float:
        """Updates per environment step."""

    @property
    def cycle(self) -> tuple[str | dict[str, Any], ...]:
        """So many updates for every step that is collected."""
        return "collect", *({name: {"per_env_step": self.per_env_step}} for name in self.updating)

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        """The same ratio for each hook, once learning began."""
        return int(max(0, env_steps - self.learning_starts) * self.per_env_step) * len(self.updating)


class UpdateRatioConfig(RatioConfig):
    """The ratio is a setting."""

    update_ratio: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Updates per environment step."""

    @property
    def per_env_step(self) -> float:
        return self.update_ratio


class Replay:
    """The buffers of an algorithm, which it collects into with its behaviour."""

    def __init__(
        self,
        context: Context,
        learner: Learner,
        behaviour: Behaviour,
        *,
        scaled: bool = True,
        default: str = "replay",
    ) -> None:
        self.buffers, self.device, self.default = context.buffers, context.device, default
        self.learner, self.behaviour = learner, behaviour
        for buffer in self.buffers.values():
            buffer.scaled_actions = scaled

    def __getitem__(self, name: str | None) -> Buffer:
        return self.buffers[name or self.default]

    def collect(self, rollout: Callable[[PhaseContext, int], Rollout], now: PhaseContext) -> Report:
        """A few steps into the buffer of the phase; at random (`Behaviour.blind`) before the first update."""
        buffer = self[now.buffer]
        self.behaviour.uniform = self.learner.updates == 0 and buffer.added < now.cfg.learning_starts
        steps = rollout(now, now.cfg.train_freq)
        buffer.add(steps)
        return Report(env_steps=steps.env_steps)

    def has_enough(self, now: PhaseContext, length: int) -> bool:
        """Whether learning may start, and a sequence of `length` steps can be drawn."""
        buffer, wanted = self[now.buffer], 1 if now.type == "offline" else now.cfg.learning_starts
        # when sequences can be drawn depends on the episodes of each rank
        return buffer.added >= wanted and self.learner.ranks.everywhere(buffer.can_sample_sequences(1, length))
