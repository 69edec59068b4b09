"""Observation encoders: [T, B, *space.shape] -> [T, B, D]. `type:` in the config picks the file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import gymnasium as gym
from torch import Tensor, nn

from ludus.config.model import Choice
from ludus.errors import ConfigError
from ludus.networks.precision import Precision
from ludus.registry import ENCODERS

if TYPE_CHECKING:
    from ludus.config.model import Model


SMALLEST_FOR_NATURE, SMALLEST_FOR_IMPALA, SMALLEST_FOR_SMALL = 36, 8, 4
LARGEST_FOR_SMALL = 16


class Encoder(nn.Module, ABC):
    """Turns observations of one space into feature vectors."""

    Config: type[Model]
    out_dim: int
    takes_images: bool = False
    """Whether observations must be uint8 images."""
    heavy: bool = False
    """Whether its arithmetic outweighs dispatch: what acting computed is kept for learning, compiling gains nothing."""
    precision: Precision
    """In what the layers of a heavy encoder compute; weights and features stay float32."""

    def arrange(self, obs_TB: Tensor) -> Tensor:
        """The same observations [T, B, ...] in the memory layout that is read fastest, once per rollout."""
        return obs_TB

    @abstractmethod
    def forward(self, obs_TB: Tensor) -> Tensor:
        """Features [T, B, D] of observations [T, B, ...]."""


def is_image(space: gym.Space) -> bool:
    """A uint8 Box of three dimensions: pixels."""
    return isinstance(space, gym.spaces.Box) and len(space.shape) == 3 and space.dtype == "uint8"


def image_shape(space: gym.Space) -> tuple[int, int, int]:
    """(channels, height, width) of an image space: environments bring every image into this order."""
    channels, height, width = space.shape or ()
    return channels, height, width


def is_large(space: gym.Space) -> bool:
    """Images for which more than one thread pays."""
    return is_image(space) and fitting(space) in ("nature", "impala")


def fitting(space: gym.Space) -> str:
    """Name of the encoder `auto` means: by the sides of an image, `mlp` for everything else."""
    if not is_image(space):
        return "mlp"
    _, height, width = image_shape(space)
    if min(height, width) < SMALLEST_FOR_SMALL:
        return "mlp"
    if min(height, width) >= SMALLEST_FOR_NATURE:
        return "nature"
    return "small" if max(height, width) <= LARGEST_FOR_SMALL or min(height, width) < SMALLEST_FOR_IMPALA else "impala"


def build_encoder(choice: Choice, space: gym.Space, precision: Precision | None = None) -> Encoder:
    """The encoder the config asks for; `auto` is decided by the observation space."""
    name, config = choice.name, choice.config
    if name == "auto":
        name = fitting(space)
        config = ENCODERS["mlp"].Config(**config.model_dump()) if name == "mlp" else ENCODERS[name].Config()
    encoder_class = ENCODERS[name]
    if encoder_class.takes_images and not is_image(space):
        raise ConfigError("network.encoder.type", f"'{name}' needs uint8 images, not {space}", "use mlp or auto")
    encoder = encoder_class(config, space)
    encoder.precision = precision or Precision()
    return encoder
