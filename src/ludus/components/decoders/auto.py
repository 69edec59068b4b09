"""Layers for vectors, convolutions for images: the mirror of `encoder.py`."""

from __future__ import annotations

import gymnasium as gym
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ludus.components.decoders import Reconstruction
from ludus.components.encoder import largest
from ludus.components.images import ImageConfig, ImageDecoder
from ludus.components.layers import DenseStack, dense
from ludus.math.symlog import symexp, symlog
from ludus.networks.encoders import image_shape
from ludus.registry import DECODERS
from ludus.types import Tree


class AutoDecoderConfig(ImageConfig):
    """Reconstructs every part of an observation."""

    layers: int = Field(default=3, ge=0)
    """Layers for vectors."""
    units: PositiveInt = 64
    """Width of these layers; half the width of the layer before an image's grid."""
    symlog: bool = True
    """Whether vectors are predicted after symlog."""


@DECODERS.register("auto")
class AutoDecoder(Reconstruction):
    """Squared errors, summed over the components or pixels of each part."""

    Config = AutoDecoderConfig

    def __init__(self, cfg: AutoDecoderConfig, inputs: int, memory: int, space: gym.Space) -> None:
        super().__init__(space)
        self.symlog, parts = cfg.symlog, self.observed
        self.images = nn.ModuleDict(
            {
                str(i): ImageDecoder(cfg, inputs, memory, cfg.units, image_shape(leaf))
                for i, leaf in parts.images.items()
            }
        )
        self.vector: nn.Module | None = None
        if parts.others:
            hidden = DenseStack(inputs, cfg.layers, cfg.units, cfg.activation, cfg.norm)
            self.vector = nn.Sequential(hidden, dense(hidden.out_dim, parts.vector_dim))

    def losses(self, features_TBF: Tensor, obs_TB: Tree) -> dict[str, Tensor]:
        found = {}
        if self.vector is not None:
            vector = self.observed.vector(obs_TB)
            target = symlog(vector) if self.symlog else vector
            found["vector"] = (self.vector(features_TBF) - target).square().sum(-1)
        for i, image in self.observed.pixels(obs_TB).items():
            target = image.float() / largest(self.observed.images[i])
            found[f"image{i}"] = (self.images[str(i)](features_TBF) - target).square().sum((-3, -2, -1))
        return found

    def predict(self, features: Tensor) -> dict[str, Tensor]:
        found = {f"image{i}": self.images[str(i)](features) for i in self.observed.images}
        if self.vector is not None:
            vector = self.vector(features)
            found["vector"] = symexp(vector) if self.symlog else vector
        return found
