"""The network of Q-learning: a trunk and one head with the values of all discrete actions.

Shapes: T time, B batch, D features, A actions, Z atoms.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from ludus.config.schema import Head, Network
from ludus.networks.policy import DenseHead, Trunk
from ludus.networks.precision import Precision
from ludus.types import Spaces, Tree


class QValues(nn.Module):
    """Q [T, B, A], or with `atoms` their logits [T, B, A, Z], for every step of [T, B] observations."""

    parts = {"trunk": ("trunk",), "head": ("head",)}
    """Names of the submodules of each part whose gradient norm is reported."""

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
        self.trunk = Trunk(cfg, spaces.observation, precision)
        self.recurrent = self.trunk.recurrent
        actions = int(spaces.action.n)
        self.head = QHead(cfg.critic, self.trunk, actions, atoms=atoms, dueling=dueling, noisy=noisy)

    def forward(self, obs_TB: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """(values, state after the last step)."""
        features_TBD, state = self.trunk(obs_TB, state, first_TB)
        return self.head(features_TBD), state


class QHead(nn.Module):
    """Q of every action, or the logits of its atoms; plain or dueling (Wang et al. 2016), perhaps of noisy layers."""

    def __init__(self, cfg: Head, trunk: Trunk, actions: int, *, atoms: int, dueling: bool, noisy: bool) -> None:
        super().__init__()
        self.actions, self.atoms, self.noisy = actions, atoms, noisy
        layer = NoisyLinear if noisy else None
        self.advantage = DenseHead(cfg, trunk, actions * atoms, layer=layer)
        self.value = DenseHead(cfg, trunk, atoms, layer=layer) if dueling else None

    def forward(self, features_TBD: Tensor) -> Tensor:
        """[T, B, A], or with several atoms [T, B, A, Z]."""
        out = self.advantage(features_TBD).unflatten(-1, (self.actions, self.atoms))
        if self.value is not None:  # equation 9
            out = out - out.mean(-2, keepdim=True) + self.value(features_TBD).unsqueeze(-2)
        return out.squeeze(-1) if self.atoms == 1 else out

    def new_noise(self) -> None:
        """Draw other noise in all noisy layers."""
        for layer in self._noisy_layers():
            layer.new_noise()

    @contextmanager
    def other_noise(self, rng: np.random.Generator | None) -> Iterator[None]:
        """Noise from another stream inside the block, none without a stream; afterwards the same noise as before."""
        layers = self._noisy_layers()
        before = [(layer.noise_in, layer.noise_out) for layer in layers]
        try:
            for layer in layers:
                layer.train(rng is not None)
                if rng is not None:
                    layer.new_noise(rng)
            yield
        finally:
            for layer, noise in zip(layers, before, strict=True):
                layer.noise_in, layer.noise_out = noise
                layer.train()

    def _noisy_layers(self) -> list[NoisyLinear]:
        return [module for module in self.modules() if isinstance(module, NoisyLinear)] if self.noisy else []


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

    def new_noise(self, rng: np.random.Generator | None = None) -> None:
        """Draw noise from torch's stream or from `rng`, into new tensors: a graph may still hold the old ones."""

        def drawn(like: Tensor) -> Tensor:
            if rng is None:
                return torch.randn_like(like)
            return torch.from_numpy(rng.standard_normal(like.shape, np.float32)).to(like)

        self.noise_in, self.noise_out = (_scaled(drawn(old)) for old in (self.noise_in, self.noise_out))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]"""
        if not self.training:
            return nn.functional.linear(x, self.weight, self.bias)
        weight = self.weight + self.weight_sigma * torch.outer(self.noise_out, self.noise_in)
        return nn.functional.linear(x, weight, self.bias + self.bias_sigma * self.noise_out)


def _scaled(noise: Tensor) -> Tensor:
    return noise.sign() * noise.abs().sqrt()
