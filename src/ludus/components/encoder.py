"""Observations of every kind -> one embedding: vectors through symlog and layers, each image through convolutions."""

from __future__ import annotations

import gymnasium as gym
import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ludus.components.images import ImageConfig, ImageEncoder
from ludus.components.layers import DenseStack
from ludus.math.symlog import symlog
from ludus.networks.encoders import image_shape, is_image
from ludus.networks.encoders.mlp import as_vector, vector_dim
from ludus.types import Tree, space_tree, tree_leaves


class WorldEncoderConfig(ImageConfig):
    """Layers for vectors, convolutions for images."""

    layers: int = Field(default=3, ge=0)
    """Layers for vectors."""
    units: PositiveInt = 64
    """Width of these layers."""
    symlog: bool = True
    """Whether vectors are squeezed by symlog first."""


class Parts:
    """The parts of an observation space: images, and all other leaves joined as one vector."""

    def __init__(self, space: gym.Space) -> None:
        leaves = tree_leaves(space_tree(space))
        self.images = {i: leaf for i, leaf in enumerate(leaves) if is_image(leaf)}
        self.others = [i for i in range(len(leaves)) if i not in self.images]
        self.joined = gym.spaces.Tuple([leaves[i] for i in self.others])
        self.vector_dim = vector_dim(self.joined) if self.others else 0

    def vector(self, obs: Tree) -> Tensor:
        """The joined vector [..., V] of observations [T, B, ...]."""
        leaves = tree_leaves(obs)
        return as_vector(tuple(leaves[i] for i in self.others), self.joined)

    def pixels(self, obs: Tree) -> dict[int, Tensor]:
        """The images by the number of their leaf."""
        leaves = tree_leaves(obs)
        return {i: leaves[i] for i in self.images}


class WorldEncoder(nn.Module):
    """Embeddings [T, B, E] of observations [T, B, ...]."""

    def __init__(self, cfg: WorldEncoderConfig, space: gym.Space) -> None:
        super().__init__()
        self.observed, self.symlog = Parts(space), cfg.symlog
        self.images = nn.ModuleDict(
            {str(i): ImageEncoder(cfg, image_shape(leaf), largest(leaf)) for i, leaf in self.observed.images.items()}
        )
        self.layers = (
            DenseStack(self.observed.vector_dim, cfg.layers, cfg.units, cfg.activation, cfg.norm)
            if self.observed.others
            else None
        )
        widths = [int(part.out_dim) for part in self.images.values()]  # type: ignore[arg-type]
        self.out_dim = sum(widths) + (0 if self.layers is None else self.layers.out_dim)

    def forward(self, obs_TB: Tree) -> Tensor:
        """The embeddings of images, then that of the vector."""
        found = [self.images[str(i)](image) for i, image in self.observed.pixels(obs_TB).items()]
        if self.layers is not None:
            vector = self.observed.vector(obs_TB)
            found.append(self.layers(symlog(vector) if self.symlog else vector))
        return found[0] if len(found) == 1 else torch.cat(found, -1)


def largest(space: gym.spaces.Box) -> float:
    """The largest value of an image: 255, or the largest code of a cell."""
    return float(max(space.high.max(), 1))
