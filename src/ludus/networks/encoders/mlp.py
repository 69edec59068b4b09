"""Fully connected layers, and the encoder made of them: vectors, discretes, small boxes and trees of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import gymnasium as gym
import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from ludus.config.model import Model
from ludus.networks.encoders import Encoder
from ludus.registry import ENCODERS
from ludus.types import Tree, space_tree, tree_leaves

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}
HIDDEN_GAIN = 2**0.5
CONTAINERS = (gym.spaces.Dict, gym.spaces.Tuple)  # a tuple: every step asks, and making a union takes longer


def linear(in_dim: int, out_dim: int, gain: float = HIDDEN_GAIN) -> nn.Linear:
    """A linear layer with orthogonal weights of the given gain and zero bias."""
    layer = nn.Linear(in_dim, out_dim)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def hidden_layers(
    widths: Sequence[int], activation: str, layer: Callable[[int, int], nn.Module] = linear
) -> list[nn.Module]:
    """A layer from each width to the next, each followed by the activation."""
    return [part for ends in pairwise(widths) for part in (layer(*ends), ACTIVATIONS[activation]())]


class MLPConfig(Model):
    """Fully connected layers shared by actor and critic."""

    hidden_dims: tuple[PositiveInt, ...] = ()
    """Widths; without any the vector stays as it is, and actor and critic share no layer."""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "tanh"
    """Nonlinearity after each layer."""


@ENCODERS.register("auto")
@ENCODERS.register("mlp")
class MLP(Encoder):
    """Flattens (one-hot for discretes), joins the parts of a Dict or Tuple, then linear layers."""

    Config = MLPConfig

    def __init__(self, cfg: MLPConfig, space: gym.Space) -> None:
        super().__init__()
        self.space = space
        widths = (vector_dim(space), *cfg.hidden_dims)
        self.layers = nn.Sequential(*hidden_layers(widths, cfg.activation))
        self.out_dim = widths[-1]

    def forward(self, obs_TB: Tree) -> Tensor:
        return self.layers(as_vector(obs_TB, self.space))


def vector_dim(space: gym.Space) -> int:
    """Length of `as_vector` for a space."""
    return int(gym.spaces.utils.flatdim(space))


def as_vector(obs_TB: Tree, space: gym.Space) -> Tensor:
    """Observations as float vectors [T, B, D]: discretes one-hot, the parts of a tree in the order of its leaves."""
    if isinstance(space, CONTAINERS):
        parts = zip(tree_leaves(obs_TB), tree_leaves(space_tree(space)), strict=True)
        return torch.cat([as_vector(part, leaf) for part, leaf in parts], -1)
    if isinstance(space, gym.spaces.Discrete):
        return _one_hot(obs_TB, int(space.n))
    if isinstance(space, gym.spaces.MultiDiscrete):
        sizes, parts = space.nvec.ravel(), obs_TB.flatten(2).unbind(-1)
        return torch.cat([_one_hot(part, int(n)) for part, n in zip(parts, sizes, strict=True)], -1)
    vector = obs_TB if len(space.shape or ()) == 1 else obs_TB.reshape(*obs_TB.shape[:2], -1)
    return vector if vector.dtype == torch.float32 else vector.float()


def _one_hot(index_TB: Tensor, size: int) -> Tensor:
    return (index_TB.unsqueeze(-1) == torch.arange(size, device=index_TB.device)).float()
