"""Ensembles that predict the next vector from a vector and an action. Shapes: K members, V vector, A action."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import Literal

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from ludus.components.layers import ACTIVATIONS, initialize
from ludus.config.model import Model
from ludus.math.latents import uniform


class EnsembleConfig(Model):
    """An ensemble of equal networks that began with other weights."""

    members: PositiveInt = 5
    """Networks."""
    layers: PositiveInt = 3
    """Hidden layers of each."""
    units: PositiveInt = 128
    """Width of the hidden layers."""
    activation: Literal["silu", "elu", "relu"] = "silu"
    """Nonlinearity."""


class Ensemble(nn.Module, ABC):
    """Members as one batched product; each predicts how the vector changes."""

    Config: type[EnsembleConfig] = EnsembleConfig
    noise_dim: int
    """Standard normal numbers that a sample takes: the last one picks the member."""
    outputs_per_number: int

    def __init__(self, cfg: EnsembleConfig, vector_dim: int, action_dim: int) -> None:
        super().__init__()
        self.members, self.vector_dim, self.activation = cfg.members, vector_dim, ACTIVATIONS[cfg.activation]
        widths = [vector_dim + action_dim, *[cfg.units] * cfg.layers, self.outputs_per_number * vector_dim]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for inputs, outputs in itertools.pairwise(widths):
            weight = torch.empty(cfg.members, inputs, outputs)
            initialize(weight, inputs)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(cfg.members, 1, outputs)))

    def outputs(self, vector: Tensor, action: Tensor) -> Tensor:
        """[K, ..., outputs] of every member."""
        joined = torch.cat([vector, action], -1)
        x = joined.reshape(-1, joined.shape[-1]).expand(self.members, -1, -1)
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x if i == 0 else self.activation(x), weight)
        return x.unflatten(1, joined.shape[:-1])

    @abstractmethod
    def loss(self, vector: Tensor, action: Tensor, following: Tensor) -> Tensor:
        """Mean loss of the members for each step, [...]."""

    @abstractmethod
    def sample(self, vector: Tensor, action: Tensor, noise: Tensor | None) -> Tensor:
        """The next vector by a random member; without noise the mean of all."""

    def pick(self, predictions_K: Tensor, noise: Tensor) -> Tensor:
        """One member's prediction for each row."""
        member = (uniform(noise) * self.members).long().clamp(max=self.members - 1)
        index = member.unsqueeze(0).unsqueeze(-1).expand(1, *member.shape, predictions_K.shape[-1])
        return predictions_K.gather(0, index).squeeze(0)
