"""The policy of a world model: distribution parameters from features, and differentiable draws for imagination.

Shapes: F features, P distribution parameters, A action as the model reads it.
"""

from __future__ import annotations

import math
from typing import Literal

import gymnasium as gym
import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import softplus

from ludus.components.layers import DenseStack, dense
from ludus.config.model import Model
from ludus.math import latents
from ludus.math.distributions import Categorical, DiagonalGaussian, Distribution, SquashedGaussian, TruncatedGaussian


class WorldActorConfig(Model):
    """Layers and the kind of distribution."""

    layers: PositiveInt = 3
    """Hidden layers."""
    units: PositiveInt = 64
    """Width of the hidden layers."""
    activation: Literal["silu", "elu", "relu"] = "silu"
    """Nonlinearity."""
    norm: bool = True
    """Whether layers are normalised."""
    distribution: Literal["normal", "tanh_normal", "truncated_normal"] = "normal"
    """Of bounded continuous actions: `normal` is clipped (Dreamer 3), `tanh_normal` squashed (1), `truncated_normal`
    cut off at the bounds (2)."""
    unimix: float = Field(default=0.01, ge=0, lt=1)
    """Share of the uniform distribution in discrete actions."""
    min_std: float = Field(default=0.1, gt=0)
    """Least deviation of continuous actions."""
    max_std: float = Field(default=1.0, gt=0)
    """Largest deviation of `normal`."""
    output_scale: float = Field(default=0.01, ge=0)
    """Scale of the output layer's first weights."""


class WorldPolicy(nn.Module):
    """Parameters [..., P] of the action distribution, in the form of `math/distributions.py`."""

    def __init__(self, cfg: WorldActorConfig, inputs: int, space: gym.Space) -> None:
        super().__init__()
        self.cfg, self.discrete = cfg, isinstance(space, gym.spaces.Discrete)
        self.distribution: Distribution
        if isinstance(space, gym.spaces.Discrete):
            self.distribution, self.noise_dim = Categorical(int(space.n)), 1
        else:
            kinds = {"normal": DiagonalGaussian, "tanh_normal": SquashedGaussian}
            self.distribution = kinds.get(cfg.distribution, TruncatedGaussian)(space.shape or ())
            self.noise_dim = math.prod(space.shape or ())
        self.hidden = DenseStack(inputs, cfg.layers, cfg.units, cfg.activation, cfg.norm)
        self.output = dense(cfg.units, self.distribution.param_dim, cfg.output_scale)

    def forward(self, features_F: Tensor) -> Tensor:
        """Log-probabilities, or means and log deviations."""
        return self.params(self.output(self.hidden(features_F)))

    def params(self, raw: Tensor) -> Tensor:
        """The parameters that the last layer's outputs mean."""
        cfg = self.cfg
        if self.discrete:
            return latents.mixed_log_probabilities(raw, cfg.unimix)
        mean, wide = raw.chunk(2, -1)
        if cfg.distribution == "tanh_normal":  # begins with a deviation of 5
            return torch.cat([5 * (mean / 5).tanh(), (softplus(wide + 4.9932) + cfg.min_std).log()], -1)
        if cfg.distribution == "truncated_normal":
            return torch.cat([mean.tanh(), (2 * (wide / 2).sigmoid() + cfg.min_std).log()], -1)
        std = (cfg.max_std - cfg.min_std) * (wide + 2).sigmoid() + cfg.min_std
        return torch.cat([mean.tanh(), std.log()], -1)

    def draw(self, params_P: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(action as the model reads it, action whose log-probability is taken), both with a gradient."""
        if self.discrete:
            one_hot = latents.one_hot_sample(params_P.detach().unsqueeze(-2), latents.uniform(noise)).squeeze(-2)
            return latents.straight_through(one_hot, params_P), one_hot.argmax(-1)
        assert isinstance(self.distribution, DiagonalGaussian)
        drawn = self.distribution.reparametrized(params_P, noise)
        return self.bounded(drawn).flatten(params_P.ndim - 1), drawn

    def bounded(self, drawn: Tensor) -> Tensor:
        """A drawn continuous action between -1 and 1."""
        return drawn.tanh() if isinstance(self.distribution, SquashedGaussian) else drawn.clamp(-1.0, 1.0)
