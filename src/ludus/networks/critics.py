"""What off-policy actor-critics put on a trunk: an ensemble of critics, a temperature, features of replayed steps.

Shapes: T time, B batch, N members of an ensemble, M rows, D features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from ludus.config.schema import Head
from ludus.math.values import at_rows
from ludus.networks.encoders.mlp import HIDDEN_GAIN, hidden_layers
from ludus.networks.policy import VALUE_GAIN, Trunk, hidden_widths
from ludus.types import Tree, tree_index

WIDE = (256, 256)
"""Hidden layers of actor and critics on a bare trunk."""


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
        widths = hidden_widths(cfg, trunk, WIDE, action_dim)
        layer = partial(EnsembleLinear, members)
        hidden = hidden_layers(widths, cfg.activation, layer)
        self.layers = nn.Sequential(*hidden, layer(widths[-1], outputs, gain=VALUE_GAIN))
        self.members, self.reads_actions = members, action_dim > 0

    def forward(self, *inputs_TBD: Tensor) -> Tensor:
        """[N, T, B, outputs] of the inputs side by side."""
        x_TBD = torch.cat(inputs_TBD, -1) if len(inputs_TBD) > 1 else inputs_TBD[0]
        x_NMD = x_TBD.reshape(1, -1, x_TBD.shape[-1]).expand(self.members, -1, -1)
        return self.layers(x_NMD).unflatten(1, x_TBD.shape[:2])

    def judge(self, features_TBD: Tensor, action_TB: Tensor) -> Tensor:
        """Values [N, T, B] of given actions, which are inputs, or, discrete ones, the index of an output."""
        if self.reads_actions:
            return self(features_TBD, action_TB.flatten(2)).squeeze(-1)
        q_NTBA = self(features_TBD)
        index = action_TB.long().unsqueeze(-1).expand(*q_NTBA.shape[:-1], 1)
        return q_NTBA.gather(-1, index).squeeze(-1)


class Temperature(nn.Module):
    """A positive number, learned as its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor([math.log(initial)]))

    def forward(self) -> Tensor:
        """Its logarithm, [1]: the gradient of a loss in it does not vanish however small the number is."""
        return self.log


def features_of(trunk: Trunk, batch: Mapping[str, Tree], burn_in: int) -> tuple[Tensor, Tensor]:
    """Features of each step, and of the one that it bootstraps from.

    A batch with a `state` holds sequences: one pass over T + 1 rows gives both.
    """
    if "state" not in batch:
        first = batch["first"]
        return trunk(batch["obs"], (), first)[0], trunk(batch["next_obs"], (), first)[0]
    features = _rows(trunk, batch, burn_in)
    return features[:-1], at_rows(features, batch["row"])


def features_with_target(
    trunk: Trunk, target_trunk: Trunk, batch: Mapping[str, Tree], burn_in: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Features of each step, of the step it bootstraps from, and of the latter by the target trunk.

    Only the first carry a gradient.
    """
    features, following = features_of(trunk, batch, burn_in)
    if "state" in batch:
        target = at_rows(_rows(target_trunk, batch, burn_in), batch["row"])
    else:
        target, _ = target_trunk(batch["next_obs"], (), batch["first"])
    return features, following.detach(), target.detach()


def _rows(trunk: Trunk, batch: Mapping[str, Tree], burn_in: int) -> Tensor:
    """Features of all T + 1 rows of sequences after those that only fill the memory."""
    obs, first, state = batch["obs"], batch["first"], batch["state"]
    if burn_in:
        with torch.no_grad():
            _, state = trunk(tree_index(obs, slice(burn_in)), state, first[:burn_in])
    obs, first = tree_index((obs, first), slice(burn_in, None))
    return trunk(obs, state, first)[0]
