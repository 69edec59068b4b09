"""As much of a run as callbacks that change settings need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ludus.algorithms.ppo import PPOConfig
from ludus.errors import ConfigError
from ludus.metrics.recorder import Recorder


class StandIn:
    """Settings of PPO with eight environments; remembers what it was told and asked."""

    def __init__(self, **fields: Any) -> None:
        self.settings = PPOConfig(**fields)
        self.said: list[str] = []
        self.interrupted: str | None = None
        self.recorder = Recorder()

    def change_settings(self, changes: Mapping[str, Any]) -> None:
        for key in changes:
            if key not in PPOConfig.model_fields or key in PPOConfig.fixed:
                raise ConfigError(f"algorithm.{key}", "unknown or fixed field")
        try:
            changed = PPOConfig.model_validate({**self.settings.model_dump(), **changes})
        except ValidationError as error:
            raise ConfigError("algorithm", error.errors()[0]["msg"]) from None
        changed.check(8)
        self.settings = changed

    def say(self, text: str) -> None:
        self.said.append(text)

    def interrupt(self, reason: str) -> None:
        self.interrupted = reason
