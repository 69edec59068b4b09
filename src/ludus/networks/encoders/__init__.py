"""Observation encoders: [T, B, *space] -> [T, B, D]. `type:` in the config picks the file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import gymnasium as gym
from torch import Tensor, nn

from ludus.config.model import Choice
from ludus.errors import ConfigError
from ludus.networks.precision import Precision
from ludus.registry import ENCODERS
from ludus.types import Tree, space_tree, tree_leaves

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
    """Whether a pass is expensive: the outputs of acting are reused for learning, and updates are not compiled."""
    precision: Precision
    """Number type in which a heavy encoder computes; weights and features stay float32."""

    @property
    def bare(self) -> bool:
        """Whether it has no layers; of several parts, whether one of them has none."""
        return not any(True for _ in self.parameters())

    def arrange(self, obs_TB: Tree) -> Tree:
        """The same observations [T, B, ...] in the memory layout that is fastest to read; once per rollout."""
        return obs_TB

    @abstractmethod
    def forward(self, obs_TB: Tree) -> Tensor:
        """Features [T, B, D] of observations [T, B, ...]."""


def is_image(space: gym.Space) -> bool:
    """A uint8 Box of three dimensions: pixels."""
    return isinstance(space, gym.spaces.Box) and len(space.shape) == 3 and space.dtype == "uint8"


def image_shape(space: gym.Space) -> tuple[int, int, int]:
    """(channels, height, width) of an image space: environments bring every image into this order."""
    channels, height, width = space.shape or ()
    return channels, height, width


def is_large(space: gym.Space) -> bool:
    """Whether an observation has images for which more than one thread pays."""
    return any(is_image(leaf) and fitting(leaf) in ("nature", "impala") for leaf in tree_leaves(space_tree(space)))


def fitting(space: gym.Space) -> str:
    """Name of the encoder that `auto` means: by the sides of an image, `mlp` for everything else."""
    if not is_image(space):
        return "mlp"
    _, height, width = image_shape(space)
    if min(height, width) < SMALLEST_FOR_SMALL:
        return "mlp"
    if min(height, width) >= SMALLEST_FOR_NATURE:
        return "nature"
    return "small" if max(height, width) <= LARGEST_FOR_SMALL or min(height, width) < SMALLEST_FOR_IMPALA else "impala"


def build_encoder(
    choice: Choice, space: gym.Space, precision: Precision | None = None, where: str = "network.encoder"
) -> Encoder:
    """The encoder the config asks for; `auto` depends on the observation space."""
    tree, name, config = isinstance(space, gym.spaces.Dict | gym.spaces.Tuple), choice.name, choice.config
    if choice.parts and not tree:
        problem = f"observations have no parts: {space}"
        raise ConfigError(f"{where}.{next(iter(choice.parts))}", problem, "give one setting for all")
    if tree and (choice.parts or ENCODERS[name].takes_images or any(map(is_image, tree_leaves(space_tree(space))))):
        from ludus.networks.encoders._tree import TreeEncoder

        return TreeEncoder(choice, space, precision, where)
    if name == "auto":
        name = fitting(space)
        config = ENCODERS["mlp"].Config(**config.model_dump()) if name == "mlp" else ENCODERS[name].Config()
    encoder_class = ENCODERS[name]
    if encoder_class.takes_images and not is_image(space):
        raise ConfigError(f"{where}.type", f"'{name}' needs uint8 images, not {space}", "use mlp or auto")
    encoder = encoder_class(config, space)
    encoder.precision = precision or Precision()
    return encoder
