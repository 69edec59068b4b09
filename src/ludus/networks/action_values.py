"""Values of discrete actions: encoder -> memory -> head, plain or dueling, noisy, one value or a distribution."""

from __future__ import annotations

from collections.abc import Callable

import gymnasium as gym
import torch
from torch import Tensor, nn

from ludus.config.schema import Network
from ludus.networks.encoders import build_encoder
from ludus.networks.layers import ACTIVATIONS, linear
from ludus.networks.memory import MemoryCore
from ludus.networks.precision import Precision
from ludus.registry import MEMORY
from ludus.types import Spaces, Tree

BARE_HIDDEN = (64, 64)


class ActionValues(nn.Module):
    """Q [T, B, A], or with `atoms` their logits [T, B, A, Z], for every step of [T, B] observations."""

    log_std = None  # what makes a Gaussian of a policy's outputs; there is none here

    def __init__(
        self,
        cfg: Network,
        spaces: Spaces,
        precision: Precision | None = None,
        *,
        dueling: bool,
        atoms: int,
        noisy: bool,
    ) -> None:
        super().__init__()
        assert isinstance(spaces.action, gym.spaces.Discrete)
        self.actions, self.atoms, self.noisy = int(spaces.action.n), atoms, noisy
        self.encoder = build_encoder(cfg.encoder, spaces.observation, precision)
        self.memory: MemoryCore = MEMORY[cfg.memory.name](cfg.memory.config, self.encoder.out_dim)
        bare = not self.memory.recurrent and not any(True for _ in self.encoder.parameters())
        hidden = cfg.critic.hidden_dims if cfg.critic.hidden_dims is not None else (BARE_HIDDEN if bare else ())
        layer: Callable[[int, int], nn.Module] = NoisyLinear if noisy else linear
        self.actor = self._head(layer, hidden, cfg.critic.activation, self.actions * atoms)
        self.value = self._head(layer, hidden, cfg.critic.activation, atoms) if dueling else None

    def _head(
        self, layer: Callable[[int, int], nn.Module], hidden: tuple[int, ...], activation: str, outputs: int
    ) -> nn.Sequential:
        layers: list[nn.Module] = []
        width = self.memory.out_dim
        for size in hidden:
            layers += [layer(width, size), ACTIVATIONS[activation]()]
            width = size
        return nn.Sequential(*layers, layer(width, outputs) if self.noisy else linear(width, outputs, 1.0))

    @property
    def recurrent(self) -> bool:
        """Whether it must be shown sequences."""
        return self.memory.recurrent

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return self.memory.initial_state(batch)

    def forward(self, obs_TB: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, None, Tree]:
        """(values, nothing, state after the last step)."""
        features_TBH, state = self.memory(self.encoder(obs_TB), state, first_TB)
        out = self.actor(features_TBH).unflatten(-1, (self.actions, self.atoms))
        if self.value is not None:  # Wang et al. 2016, eq. 9
            out = out - out.mean(-2, keepdim=True) + self.value(features_TBH).unsqueeze(-2)
        return (out.squeeze(-1) if self.atoms == 1 else out), None, state

    def new_noise(self) -> None:
        """Draw other noise in all noisy layers."""
        for module in self.modules():
            if isinstance(module, NoisyLinear):
                module.new_noise()


class NoisyLinear(nn.Module):
    """Weights with learned, factorised Gaussian noise (Fortunato et al. 2018, arXiv:1706.10295); none in `eval`."""

    SIGMA = 0.5

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__()
        bound = in_dim**-0.5
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out_dim).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out_dim, in_dim), self.SIGMA * bound))
        self.bias_sigma = nn.Parameter(torch.full((out_dim,), self.SIGMA * bound))
        self.noise_in: Tensor
        self.noise_out: Tensor
        self.register_buffer("noise_in", torch.zeros(in_dim))
        self.register_buffer("noise_out", torch.zeros(out_dim))
        self.new_noise()

    def new_noise(self) -> None:
        """Draw other noise; in new tensors, since a graph may still hold the old ones."""
        self.noise_in, self.noise_out = (_scaled(torch.randn_like(old)) for old in (self.noise_in, self.noise_out))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return nn.functional.linear(x, self.weight, self.bias)
        weight = self.weight + self.weight_sigma * torch.outer(self.noise_out, self.noise_in)
        return nn.functional.linear(x, weight, self.bias + self.bias_sigma * self.noise_out)


def _scaled(noise: Tensor) -> Tensor:
    return noise.sign() * noise.abs().sqrt()
