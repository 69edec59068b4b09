"""What stands on a trunk: actor heads, critics, action values, a temperature.

Shapes: T time, B batch, N members of an ensemble, M rows, D features, A actions, Z atoms, P distribution parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from ludus.config.schema import Head
from ludus.networks.layers import ACTIVATIONS, HIDDEN_GAIN, linear
from ludus.networks.trunk import Trunk

NARROW, WIDE = (64, 64), (256, 256)
"""Hidden layers of a head on a bare trunk: for policy gradients and DQN, and for off-policy actor-critics."""
ACTOR_GAIN, VALUE_GAIN = 0.01, 1.0

Layer = Callable[[int, int], nn.Module]


def hidden_widths(cfg: Head, trunk: Trunk, default: tuple[int, ...]) -> tuple[int, ...]:
    """The hidden layers that the config asks for; without any, `default` on a bare trunk and none on any other."""
    return cfg.hidden_dims if cfg.hidden_dims is not None else (default if trunk.bare else ())


def head_layers(widths: tuple[int, ...], activation: str, hidden: Layer, output: Layer) -> list[nn.Module]:
    """Layers of these widths, inputs and outputs included, with the activation between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths[:-1]):
        layers += [hidden(before, after), ACTIVATIONS[activation]()]
    return [*layers, output(*widths[-2:])]


class DenseHead(nn.Sequential):
    """Hidden layers and a linear output of the given gain; `layer` replaces all of its linear layers."""

    def __init__(
        self,
        cfg: Head,
        trunk: Trunk,
        outputs: int,
        *,
        gain: float = VALUE_GAIN,
        default: tuple[int, ...] = NARROW,
        layer: Layer | None = None,
    ) -> None:
        widths = (trunk.out_dim, *hidden_widths(cfg, trunk, default), outputs)
        super().__init__(*head_layers(widths, cfg.activation, layer or linear, layer or partial(linear, gain=gain)))


class ActorHead(DenseHead):
    """Parameters of the action distribution; with `log_std` its outputs are means and the deviations are learned."""

    def __init__(
        self, cfg: Head, trunk: Trunk, outputs: int, *, default: tuple[int, ...], log_std: bool = False
    ) -> None:
        super().__init__(cfg, trunk, outputs, gain=ACTOR_GAIN, default=default)
        self.log_std = nn.Parameter(torch.zeros(outputs)) if log_std else None

    def forward(self, features_TBD: Tensor) -> Tensor:
        """params_TBP"""
        out_TBP = super().forward(features_TBD)
        return out_TBP if self.log_std is None else torch.cat([out_TBP, self.log_std.expand_as(out_TBP)], -1)


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


class EnsembleLinear(nn.Module):
    """N linear layers as one batched product; orthogonal weights, zero bias."""

    def __init__(self, members: int, in_dim: int, out_dim: int, gain: float = HIDDEN_GAIN) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, in_dim, out_dim))
        self.bias = nn.Parameter(torch.zeros(members, 1, out_dim))
        for member in self.weight.data:
            nn.init.orthogonal_(member, gain)

    def forward(self, x_NMD: Tensor) -> Tensor:
        """[N, M, in] -> [N, M, out]"""
        if self.weight.shape[2] == 1:  # a product with one column is slow; compiled, this joins what comes before it
            return (x_NMD * self.weight.transpose(1, 2)).sum(-1, keepdim=True) + self.bias
        return torch.baddbmm(self.bias, x_NMD, self.weight)

    def extra_repr(self) -> str:
        """Sizes, for summaries and for the key of compiled updates."""
        return "members={}, in_dim={}, out_dim={}".format(*self.weight.shape)


class Critics(nn.Module):
    """N value networks of features and `action_dim` numbers of an action, with `outputs` values each."""

    def __init__(self, cfg: Head, trunk: Trunk, members: int, *, action_dim: int = 0, outputs: int = 1) -> None:
        super().__init__()
        widths = (trunk.out_dim + action_dim, *hidden_widths(cfg, trunk, WIDE), outputs)
        layer = partial(EnsembleLinear, members)
        self.layers = nn.Sequential(*head_layers(widths, cfg.activation, layer, partial(layer, gain=VALUE_GAIN)))
        self.members = members

    def forward(self, *inputs_TBD: Tensor) -> Tensor:
        """[N, T, B, outputs] of the inputs side by side."""
        x_TBD = torch.cat(inputs_TBD, -1) if len(inputs_TBD) > 1 else inputs_TBD[0]
        x_NMD = x_TBD.reshape(1, -1, x_TBD.shape[-1]).expand(self.members, -1, -1)
        return self.layers(x_NMD).unflatten(1, x_TBD.shape[:2])


class Temperature(nn.Module):
    """A positive number, learned as its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(initial)]))

    def forward(self) -> Tensor:
        """Its logarithm, [1]: the gradient of a loss in it does not vanish however small the number is."""
        return self.log
