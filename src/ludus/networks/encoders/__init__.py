"""Observation encoders: [T, B, *space.shape] -> [T, B, D]. `type:` in the config picks the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium as gym
from torch import Tensor, nn

from ludus.config.model import Choice
from ludus.errors import ConfigError
from ludus.registry import ENCODERS

if TYPE_CHECKING:
    from ludus.config.model import Model


class Encoder(nn.Module):
    """Turns observations of one space into feature vectors."""

    Config: type[Model]
    out_dim: int

    def forward(self, obs_TB: Tensor) -> Tensor:
        """Features [T, B, D] of observations [T, B, ...]."""
        raise NotImplementedError


def is_image(space: gym.Space) -> bool:
    """A uint8 Box of three dimensions: pixels, channels first."""
    return isinstance(space, gym.spaces.Box) and len(space.shape) == 3 and space.dtype == "uint8"


def build_encoder(choice: Choice, space: gym.Space) -> Encoder:
    """The encoder the config asks for; `auto` is decided by the observation space."""
    name, config = choice.name, choice.config
    if name == "auto":
        name = "cnn" if is_image(space) else "mlp"
        config = ENCODERS["cnn"].Config() if name == "cnn" else ENCODERS["mlp"].Config(**config.model_dump())
    if name == "cnn" and not is_image(space):
        raise ConfigError("network.encoder.type", f"a cnn needs uint8 images, not {space}", "use mlp or auto")
    return ENCODERS[name](config, space)
