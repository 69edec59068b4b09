"""Small fully connected networks act in numpy: for a handful of environments a torch forward is nearly all dispatch.

Weights are copies, or views where they change after every step. Outputs are those of torch to rounding
(tests/acting/test_numpy_actor.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from ludus.acting.actor import Actor, Outputs, TorchActor
from ludus.acting.numpy_cores import NUMPY_CORES, Step, Take
from ludus.networks.encoders.mlp import CONTAINERS, MLP
from ludus.networks.policy import ActorHead, Trunk
from ludus.networks.q_values import QHead
from ludus.types import Array, Tree, space_tree, tree_leaves, tree_map

LARGEST_NUMPY_LAYER = 256
"""Above this width matrix products dominate and torch is as good."""
FLOAT32 = np.dtype(np.float32)

Dense = tuple[Array, Array, Callable[[Array], Array] | None]
"""(weight [in, out], bias, activation) of a linear layer; a bias of one row per environment is added twice as fast."""


def make_actor(trunk: Trunk, heads: Mapping[str, nn.Module], *, live: bool = False) -> Actor:
    """The fastest actor for this trunk and its heads, of which the first chooses actions.

    A `live` numpy actor works on views of the weights and needs no refresh; others work faster on copies.
    """
    if NumpyActor.supports(trunk, next(iter(heads.values()))):
        return NumpyActor(trunk, heads, live=live)
    return TorchActor(trunk, heads)


class NumpyActor(Actor):
    """Computes the trunk and the head that chooses actions; critics, which nobody reads while collecting, by torch."""

    def __init__(self, trunk: Trunk, heads: Mapping[str, nn.Module], *, live: bool = False) -> None:
        assert isinstance(trunk.encoder, MLP)
        self.trunk, self.heads, self.recurrent, self._mlp = trunk, heads, trunk.recurrent, trunk.encoder
        self._is_vector = isinstance(self._mlp.space, gym.spaces.Box) and len(self._mlp.space.shape) == 1
        self._torch, self._live = TorchActor(trunk, heads), live
        self._build(None)

    @staticmethod
    def supports(trunk: Trunk, head: nn.Module) -> bool:
        """Whether all of this works in numpy: dense layers, a known core, on the CPU; and is narrow enough to pay."""
        if type(trunk.encoder) is not MLP or trunk.core_name not in NUMPY_CORES or not is_dense(trunk.encoder.layers):
            return False
        parameters = [*head.parameters()]
        narrow = all(max(p.shape) <= LARGEST_NUMPY_LAYER for p in parameters)
        return narrow and parameters[0].device.type == "cpu" and numpy_head(head, _view) is not None

    def _build(self, rows: int | None) -> None:
        """Make the functions of a step, on views of the weights or on copies for so many environments."""
        self._rows, self._copies = rows, Copies()
        take = _view if self._live else self._copies
        self.encoder = dense_layers(self._mlp.layers, take, rows)
        self.core: Step = NUMPY_CORES[self.trunk.core_name](self.trunk.memory, take)
        self.chooser, head = next(iter(self.heads.items()))
        choose = numpy_head(head, take, rows)
        assert choose is not None
        self.choose = choose

    def refresh(self) -> None:
        """Take over the current weights."""
        self._copies.renew()

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode, as arrays."""
        return tree_map(lambda s: s.numpy(), self.trunk.initial_state(batch))

    def __call__(
        self, obs_B: Array, state: Tree, first_B: Array, rng: np.random.Generator | None = None
    ) -> tuple[Outputs, Tree]:
        if self._rows != len(first_B) and not self._live:
            self._build(len(first_B))
        plain = self._is_vector and obs_B.dtype == FLOAT32
        x = through(self.encoder, obs_B if plain else as_vector_numpy(obs_B, self._mlp.space))
        if self.recurrent:
            x, state = self.core(x, state, first_B)
        return Outputs(len(first_B), self.heads, x, self._read, {self.chooser: self.choose(x)}), state

    def _read(self, features_BD: Array, head: str, *inputs: Array) -> Array:
        return self._torch.read(torch.from_numpy(features_BD).unsqueeze(0), head, *inputs)


def as_vector_numpy(obs_B: Tree, space: gym.Space) -> Array:
    """`as_vector` of the encoder for one step of numpy observations [B, ...]."""
    if isinstance(space, CONTAINERS):
        parts = zip(tree_leaves(obs_B), tree_leaves(space_tree(space)), strict=True)
        return np.concatenate([as_vector_numpy(part, leaf) for part, leaf in parts], -1)
    if isinstance(space, gym.spaces.Discrete):
        return np.eye(int(space.n), dtype=np.float32)[obs_B]
    if isinstance(space, gym.spaces.MultiDiscrete):
        columns = zip(obs_B.reshape(len(obs_B), -1).T, space.nvec.ravel(), strict=True)
        return np.concatenate([np.eye(int(n), dtype=np.float32)[column] for column, n in columns], -1)
    vector = obs_B if obs_B.ndim == 2 else obs_B.reshape(len(obs_B), -1)
    return vector if vector.dtype == FLOAT32 else vector.astype(np.float32)


def numpy_head(head: nn.Module, take: Take, rows: int | None = None) -> Callable[[Array], Array] | None:
    """`head` as a function of one step's features [B, D]; None if it has layers that numpy does not know."""
    if isinstance(head, QHead):
        return _q_head(head, take, rows)
    if not is_dense(head):
        return None
    layers = dense_layers(head, take, rows)
    if not isinstance(head, ActorHead) or head.log_std is None:
        return partial(through, layers)
    log_std = take(head.log_std)

    def apply(x: Array) -> Array:
        mean = through(layers, x)
        return np.concatenate([mean, np.broadcast_to(log_std, mean.shape)], -1)

    return apply


def _q_head(head: QHead, take: Take, rows: int | None) -> Callable[[Array], Array] | None:
    advantage = numpy_head(head.advantage, take, rows)
    value = None if head.value is None else numpy_head(head.value, take, rows)
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


def dense_layers(module: nn.Module, take: Take, rows: int | None = None) -> list[Dense]:
    """Every linear layer with what stands after it; with `rows` that many copies of its bias."""
    if not is_dense(module):
        raise ValueError(f"not made of linear layers and known activations: {module}")
    layers: list[Dense] = []
    for part in module.modules():
        if isinstance(part, nn.Linear):
            bias = take(part.bias.expand(rows, -1) if rows else part.bias)
            layers.append((take(part.weight.t()), bias, None))
        elif type(part) in ACTIVATIONS:
            layers[-1] = (*layers[-1][:2], ACTIVATIONS[type(part)])
    return layers


def through(layers: list[Dense], x: Array) -> Array:
    """Layers one after the other."""
    for weight, bias, activation in layers:
        x = x @ weight
        x += bias
        if activation is not None:
            x = activation(x)
    return x


class Copies:
    """Copies of weights, made one by one and renewed all at once."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Array, Array]] = []

    def __call__(self, tensor: Tensor) -> Array:
        weights = _view(tensor)
        self._pairs.append((np.array(weights, order="C"), weights))
        return self._pairs[-1][0]

    def renew(self) -> None:
        """Take over the current weights; they must lie where they lay."""
        for copy, weights in self._pairs:
            np.copyto(copy, weights)


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
