"""Actors compute one step of a network for B environments, in torch or in numpy.

Small fully connected networks act in numpy on copies of the weights, or on views where weights change after every step:
for a handful of environments a torch forward is nearly all dispatch. Everything else acts through the modules
themselves. Both give the same outputs to rounding (tests/acting/test_actors.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ludus.acting.numpy_cores import NUMPY_CORES, Step, Take
from ludus.networks.encoders.mlp import MLP, as_vector_numpy
from ludus.networks.heads import ActorHead, Critics, QHead
from ludus.networks.trunk import Trunk
from ludus.types import Array, Tree, to_device, tree_index, tree_map

LARGEST_NUMPY_LAYER = 256
"""Above this width matrix products dominate and torch is as good."""


class Outputs:
    """What the heads of a network say about one step of `batch` environments; a head is computed when it is read."""

    __slots__ = ("_features", "_known", "_read", "batch", "heads")

    def __init__(
        self,
        batch: int,
        heads: Collection[str] = (),
        features: Array | Tensor | None = None,
        read: Callable[..., Array] | None = None,
    ) -> None:
        self.batch, self.heads, self._features, self._read = batch, heads, features, read
        self._known: dict[str, Array] = {}

    def __call__(self, head: str, *inputs: Array) -> Array:
        """Output [B, ...] of a head; some critics take an action [B, A] beside the features."""
        assert self._read is not None, "an actor has to look before it is asked"
        if inputs:
            return self._read(self._features, head, *inputs)
        if head not in self._known:
            self._known[head] = self._read(self._features, head)
        return self._known[head]


class Actor(Protocol):
    """Computes the outputs of a trunk and its heads."""

    recurrent: bool
    """Whether the state matters."""

    def refresh(self) -> None:
        """Take over the current weights."""

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""

    def __call__(self, obs_B: Array, state: Tree, first_B: Array) -> tuple[Outputs, Tree]:
        """(outputs of this step, memory after it)."""


def make_actor(trunk: Trunk, heads: Mapping[str, nn.Module], *, live: bool = False) -> Actor:
    """The fastest actor for this trunk and its heads, of which the first chooses actions.

    A `live` numpy actor works on views of the weights and needs no refresh; others work faster on copies.
    """
    if NumpyActor.supports(trunk, next(iter(heads.values()))):
        return NumpyActor(trunk, heads, live=live)
    return TorchActor(trunk, heads)


class TorchActor:
    """Acts through the modules themselves."""

    def __init__(self, trunk: Trunk, heads: Mapping[str, nn.Module]) -> None:
        self.trunk, self.heads, self.recurrent = trunk, heads, trunk.recurrent
        self.device = next(next(iter(heads.values())).parameters()).device

    def refresh(self) -> None:
        """Nothing to copy."""

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode, as tensors."""
        return self.trunk.initial_state(batch)

    @torch.no_grad()
    def __call__(self, obs_B: Array, state: Tree, first_B: Array) -> tuple[Outputs, Tree]:
        obs = tree_index(to_device(obs_B, self.device), None)
        first = torch.as_tensor(first_B, device=self.device).unsqueeze(0)
        features, state = self.trunk(obs, state, first)
        return Outputs(len(first_B), self.heads, features, self._read), state

    def _read(self, features_1BD: Tensor, head: str, *inputs: Array) -> Array:
        return through_torch(self.heads[head], features_1BD, *inputs)


class NumpyActor:
    """Acts on numpy copies of a small network's weights, or `live` on the weights themselves.

    Only the head that chooses actions is computed in numpy; critics, which nobody reads while collecting, are not.
    """

    def __init__(self, trunk: Trunk, heads: Mapping[str, nn.Module], *, live: bool = False) -> None:
        assert isinstance(trunk.encoder, MLP)
        self.trunk, self.heads, self.recurrent, self._mlp = trunk, heads, trunk.recurrent, trunk.encoder
        self._take = _view if live else _copy
        self.refresh()

    @staticmethod
    def supports(trunk: Trunk, head: nn.Module) -> bool:
        """Whether all of this works in numpy: dense layers, a known core, on the CPU; and is narrow enough to pay."""
        if type(trunk.encoder) is not MLP or trunk.core_name not in NUMPY_CORES or not is_dense(trunk.encoder.layers):
            return False
        parameters = [*head.parameters()]
        narrow = all(max(p.shape) <= LARGEST_NUMPY_LAYER for p in parameters)
        return narrow and parameters[0].device.type == "cpu" and numpy_head(head, _view) is not None

    def refresh(self) -> None:
        """Take over the current weights; views need no second call."""
        self.encoder = dense_layers(self._mlp.layers, self._take)
        self.core: Step = NUMPY_CORES[self.trunk.core_name](self.trunk.memory, self._take)
        self.chooser, head = next(iter(self.heads.items()))
        self.choose = numpy_head(head, self._take)

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode, as arrays."""
        return tree_map(lambda s: s.numpy(), self.trunk.initial_state(batch))

    def __call__(self, obs_B: Array, state: Tree, first_B: Array) -> tuple[Outputs, Tree]:
        x = as_vector_numpy(obs_B, self._mlp.space)
        for weight, bias, activation in self.encoder:
            x = activation(x @ weight + bias)
        x, state = self.core(x, state, first_B)
        return Outputs(len(first_B), self.heads, x, self._read), state

    def _read(self, features_BD: Array, head: str, *inputs: Array) -> Array:
        if head == self.chooser:
            assert self.choose is not None
            return self.choose(features_BD)
        return through_torch(self.heads[head], torch.from_numpy(features_BD).unsqueeze(0), *inputs)


@torch.no_grad()
def through_torch(head: nn.Module, features_1BD: Tensor, *inputs: Array) -> Array:
    """The output [B, ...] (of an ensemble: [N, B, ...]) of a head for one step."""
    more = [torch.as_tensor(x, device=features_1BD.device).unsqueeze(0) for x in inputs]
    out = head(features_1BD, *more)
    return out.squeeze(1 if isinstance(head, Critics) else 0).cpu().numpy()


# ---- layers and heads in numpy -------------------------------------------------------------------

Dense = tuple[Array, Array, Callable[[Array], Array]]


def numpy_head(head: nn.Module, take: Take) -> Callable[[Array], Array] | None:
    """`head` as a function of one step's features [B, D]; None if it has layers that numpy does not know."""
    if isinstance(head, QHead):
        return _q_head(head, take)
    if not is_dense(head):
        return None
    layers = dense_layers(head, take)
    log_std = take(head.log_std) if isinstance(head, ActorHead) and head.log_std is not None else None

    def apply(x: Array) -> Array:
        for weight, bias, activation in layers:
            x = activation(x @ weight + bias)
        return x if log_std is None else np.concatenate([x, np.broadcast_to(log_std, x.shape)], -1)

    return apply


def _q_head(head: QHead, take: Take) -> Callable[[Array], Array] | None:
    advantage = numpy_head(head.advantage, take)
    value = None if head.value is None else numpy_head(head.value, take)
    if advantage is None or (value is None and head.atoms == 1):
        return advantage

    def apply(x: Array) -> Array:
        out = advantage(x).reshape(len(x), head.actions, head.atoms)
        if value is not None:
            out = out - out.mean(-2, keepdims=True) + value(x)[:, None]
        return out[..., 0] if head.atoms == 1 else out

    return apply


def is_dense(module: nn.Module) -> bool:
    """Whether `dense_layers` knows every part: linear layers, each with at most one activation after it."""
    parts = [type(part) for part in module.modules() if not isinstance(part, nn.Sequential)]
    known = all(part is nn.Linear or part in ACTIVATIONS for part in parts)
    return known and all(after is nn.Linear or before is nn.Linear for before, after in pairwise([None, *parts]))


def dense_layers(module: nn.Module, take: Take) -> list[Dense]:
    """(weight [in, out], bias, activation) of every linear layer."""
    if not is_dense(module):
        raise ValueError(f"not made of linear layers and known activations: {module}")
    layers: list[Dense] = []
    for part in module.modules():
        if isinstance(part, nn.Linear):
            layers.append((take(part.weight.t()), take(part.bias), lambda x: x))
        elif type(part) in ACTIVATIONS:
            weight, bias, _ = layers[-1]
            layers[-1] = (weight, bias, ACTIVATIONS[type(part)])
    return layers


def _copy(tensor: Tensor) -> Array:
    return np.ascontiguousarray(tensor.detach().numpy()).copy()


def _view(tensor: Tensor) -> Array:
    return tensor.detach().numpy()


def _sigmoid(x: Array) -> Array:
    return 0.5 * (np.tanh(0.5 * x) + 1.0)


ACTIVATIONS: dict[type[nn.Module], Callable[[Array], Array]] = {  # GELU's error function is not in numpy
    nn.Tanh: np.tanh,
    nn.ReLU: lambda x: np.maximum(x, 0.0),
    nn.ELU: lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    nn.SiLU: lambda x: x * _sigmoid(x),
}
