"""A world model without a decoder: a latent state that predicts itself, rewards and ends (Hansen et al. 2022).

Shapes: T rows, B sequences, N rows of a batch, Z latent, A action.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from pydantic import Field, PositiveInt, field_validator
from torch import Tensor, nn

from ludus.components.coding import Coding, Number, SymlogBins
from ludus.components.encoder import WorldEncoder, WorldEncoderConfig
from ludus.components.images import compute_in
from ludus.components.normed_mlp import EnsembleMLP, Kind, NormedMLP
from ludus.config.model import Model
from ludus.errors import ConfigError
from ludus.networks.encoders.mlp import as_vector, vector_dim
from ludus.networks.precision import Precision
from ludus.types import Spaces, Tree


class ImplicitModelConfig(Model):
    """Networks of TD-MPC."""

    latent: PositiveInt = 128
    """Numbers in a latent state."""
    units: PositiveInt = 384
    """Width of the two hidden layers of dynamics, reward, ends, critics and policy."""
    encoder_units: PositiveInt = 256
    """Width of the encoder's hidden layers."""
    encoder_layers: PositiveInt = 1
    """Hidden layers of the encoder."""
    depth: PositiveInt = 8
    """Channels of the convolutions of images are 2, 3, 4 and 4 times this."""
    critics: PositiveInt = 2
    """Critics; targets, policy and plans ask two of them, drawn at random."""
    layers: Literal["normed", "plain"] = "normed"
    """Hidden layers: normalised with Mish, or ELU alone (only the critics' first one is normalised then, with tanh)."""
    simplex: int = Field(default=8, ge=0)
    """SimNorm: latent numbers in each softmax; 0: latent states are as they come."""
    dropout: float = Field(default=0.01, ge=0, lt=1)
    """Share of the units in the critics' first layer that an update leaves out."""
    bins: int = Field(default=101, ge=0)
    """Bins that rewards and values are distributions over, at least 2; 0: squared errors."""
    limit: float = Field(default=10.0, gt=0, le=80)
    """symlog of the largest bin."""
    episodic: bool = True
    """Learn which states end an episode, for plans; false saves time where none does."""

    @field_validator("bins")
    @classmethod
    def none_or_several(cls, value: int) -> int:
        """Refuse a single bin: a number lies between two."""
        if value == 1:
            raise ValueError("a number lies between two bins: at least 2, or 0 for squared errors")
        return value

    @property
    def hidden(self) -> list[Kind]:
        """Both hidden layers of a network."""
        return ["mish", "mish"] if self.layers == "normed" else ["elu", "elu"]


class ImplicitModel(nn.Module):
    """Encoder, dynamics, reward and, if episodes end, the chance of an end."""

    def __init__(self, cfg: ImplicitModelConfig, spaces: Spaces, precision: Precision | None = None) -> None:
        super().__init__()
        if cfg.simplex and cfg.latent % cfg.simplex:
            problem = f"{cfg.latent} numbers cannot be cut into simplices of {cfg.simplex}"
            raise ConfigError("algorithm.latent", problem, "use a multiple of algorithm.simplex")
        self.action_space, self.action_dim = spaces.action, vector_dim(spaces.action)
        self.coding: Coding = SymlogBins(cfg.bins, cfg.limit) if cfg.bins else Number()
        parts = WorldEncoder(WorldEncoderConfig(layers=0, symlog=False, depth=cfg.depth), spaces.observation)
        inputs, hidden = cfg.latent + self.action_dim, cfg.hidden
        last: Kind = "simplex" if cfg.simplex else "linear"
        layers = [hidden[0]] * cfg.encoder_layers
        self.encoder = nn.Sequential(
            parts, NormedMLP(parts.out_dim, cfg.encoder_units, layers, cfg.latent, last, cfg.simplex)
        )
        self.dynamics = NormedMLP(inputs, cfg.units, hidden, cfg.latent, last, cfg.simplex)
        self.reward = NormedMLP(inputs, cfg.units, hidden, self.coding.outputs, "linear", zero=True)
        self.ends = NormedMLP(cfg.latent, cfg.units, hidden, 1, "linear") if cfg.episodic else None
        compute_in(self, precision)

    def act_vector(self, action_TB: Tensor) -> Tensor:
        """Stored actions as vectors [T, B, A]."""
        return as_vector(action_TB, self.action_space)

    def encode(self, obs_TB: Tree) -> Tensor:
        """Latent states [T, B, Z] of observations."""
        return self.encoder(obs_TB)

    def follow(self, z_NZ: Tensor, action_TNA: Tensor) -> Tensor:
        """Latent states [T + 1, N, Z] along actions, the first one included."""
        states = [z_NZ]
        for action in action_TNA.unbind():
            states.append(self.dynamics(torch.cat([states[-1], action], -1)))
        return torch.stack(states)

    def lives(self, z: Tensor) -> Tensor:
        """Predicted probability [...] that the episode does not end with this state."""
        return torch.ones_like(z[..., 0]) if self.ends is None else (-self.ends(z).squeeze(-1)).sigmoid()


class LatentCritics(EnsembleMLP):
    """Values of latent states and actions, as the model's `coding` has numbers; all begin at zero."""

    def __init__(self, cfg: ImplicitModelConfig, world: ImplicitModel) -> None:
        hidden: list[Kind] = cfg.hidden if cfg.layers == "normed" else ["normed_tanh", "elu"]
        super().__init__(cfg.critics, cfg.latent + world.action_dim, cfg.units, hidden, world.coding.outputs)
        self.coding, self.rate = copy.deepcopy(world.coding), cfg.dropout

    def value(self, z: Tensor, action: Tensor, pair: Tensor, *, least: bool) -> Tensor:
        """Value [...] of actions by two of them: the lesser one, or their mean."""
        asked = pair if self.members > 2 else None
        q = self.coding.mean(self(torch.cat([z, action], -1), asked))
        return q.amin(0) if least else q.mean(0)

    def dropped(self, noise: Callable[[Sequence[int]], Tensor], rows: int) -> Tensor | None:
        """What an update leaves out of the first layer, by its noise."""
        return self.dropout(noise((self.members, rows + self.units)), self.rate, rows) if self.rate else None
