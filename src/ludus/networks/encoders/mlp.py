"""Vectors, discretes, small boxes and trees of them through fully connected layers."""

from __future__ import annotations

from typing import Literal

import gymnasium as gym
import numpy as np
import torch
from pydantic import PositiveInt
from torch import Tensor

from ludus.config.model import Model
from ludus.networks.encoders import Encoder
from ludus.networks.layers import stack
from ludus.registry import ENCODERS
from ludus.types import Array, Tree, space_tree, tree_leaves

CONTAINERS = (gym.spaces.Dict, gym.spaces.Tuple)  # a tuple: every step asks, and making a union takes longer


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
        self.layers = stack(vector_dim(space), cfg.hidden_dims, cfg.activation)
        self.out_dim = cfg.hidden_dims[-1] if cfg.hidden_dims else vector_dim(space)

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


def as_vector_numpy(obs_B: Tree, space: gym.Space) -> Array:
    """`as_vector` for one step of numpy observations [B, ...]."""
    if isinstance(space, CONTAINERS):
        parts = zip(tree_leaves(obs_B), tree_leaves(space_tree(space)), strict=True)
        return np.concatenate([as_vector_numpy(part, leaf) for part, leaf in parts], -1)
    if isinstance(space, gym.spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[obs_B]
    if isinstance(space, gym.spaces.MultiDiscrete):
        columns = obs_B.reshape(len(obs_B), -1).T
        sizes = space.nvec.ravel()
        return np.concatenate([np.eye(int(n), dtype=np.float32)[c] for c, n in zip(columns, sizes, strict=True)], -1)
    vector = obs_B if obs_B.ndim == 2 else obs_B.reshape(len(obs_B), -1)
    return vector if vector.dtype == np.float32 else vector.astype(np.float32)


def _one_hot(index_TB: Tensor, size: int) -> Tensor:
    return (index_TB.unsqueeze(-1) == torch.arange(size, device=index_TB.device)).float()
