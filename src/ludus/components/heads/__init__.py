"""Predictions of one number from features: reward, value, chance to go on. Shapes: F features, P outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ludus.components.layers import DenseStack, dense
from ludus.config.model import Model


class PredictorConfig(Model):
    """Hidden layers and an output."""

    layers: int = Field(default=1, ge=0)
    """Hidden layers."""
    units: PositiveInt = 64
    """Width of the hidden layers."""
    activation: Literal["silu", "elu", "relu"] = "silu"
    """Nonlinearity."""
    norm: bool = True
    """Whether layers are normalised."""
    output_scale: float = Field(default=1.0, ge=0)
    """Scale of the output layer's first weights; 0: every prediction begins at zero."""


class Predictor(nn.Module, ABC):
    """A distribution over one number."""

    Config: type[PredictorConfig] = PredictorConfig

    def __init__(self, cfg: PredictorConfig, inputs: int, outputs: int = 1) -> None:
        super().__init__()
        self.hidden = DenseStack(inputs, cfg.layers, cfg.units, cfg.activation, cfg.norm)
        self.output = dense(self.hidden.out_dim, outputs, cfg.output_scale)

    def forward(self, features_F: Tensor) -> Tensor:
        """Parameters of the distribution, [..., P]."""
        return self.output(self.hidden(features_F))

    @abstractmethod
    def loss(self, params: Tensor, target: Tensor) -> Tensor:
        """Negative log-likelihood of targets, [...], up to a constant."""

    @abstractmethod
    def mean(self, params: Tensor) -> Tensor:
        """Expected number, [...]."""
