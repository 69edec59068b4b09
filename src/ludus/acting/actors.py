"""Acting, one step at a time: observations in, distribution parameters out.

Small fully connected policies act in numpy on copies of the weights, refreshed once per rollout: for a handful of
environments a torch forward is all dispatch. Everything else acts through the policy itself. Both give the same
parameters (tests/acting/test_actors.py).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ludus.networks.encoders.mlp import MLP, as_vector_numpy
from ludus.networks.memory import Step
from ludus.networks.policy import Policy
from ludus.networks.q_networks import ActingPolicy
from ludus.types import Array, Tree, tree_map

LARGEST_NUMPY_LAYER = 256
"""Above this width matrix products dominate and torch is as good."""


class Actor(Protocol):
    """Computes what the policy would do for one step of B environments."""

    def refresh(self) -> None:
        """Take over the policy's current weights."""

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""

    def __call__(self, obs_B: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
        """(params_BP, state)."""


def make_actor(policy: Policy | ActingPolicy, *, live: bool = False) -> Actor:
    """The fastest actor that can stand in for this policy; a `live` one never needs a refresh."""
    return NumpyActor(policy, live=live) if NumpyActor.supports(policy) else TorchActor(policy)


class TorchActor:
    """Acts through the policy itself."""

    def __init__(self, policy: Policy | ActingPolicy) -> None:
        self.policy = policy
        self.device = next(policy.parameters()).device
        self.value_B: Array | None = None
        """State values of the newest step, where the policy has them."""

    def refresh(self) -> None:
        """Nothing to copy: the weights are the policy's own."""

    def initial_state(self, batch: int) -> Tree:
        return self.policy.initial_state(batch)

    @torch.no_grad()
    def __call__(self, obs_B: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
        obs = torch.as_tensor(obs_B, device=self.device).unsqueeze(0)
        first = torch.as_tensor(first_B, device=self.device).unsqueeze(0)
        params, value, state = self.policy(obs, state, first)
        self.value_B = None if value is None else value[0].cpu().numpy()
        return params[0].cpu().numpy(), state


class NumpyActor:
    """Acts on numpy copies of a small policy's weights, or `live` on the weights themselves."""

    def __init__(self, policy: Policy | ActingPolicy, *, live: bool = False) -> None:
        assert isinstance(policy.encoder, MLP)
        self.policy, self._mlp = policy, policy.encoder
        self._take = _view if live else _copy
        self.refresh()

    @staticmethod
    def supports(policy: Policy | ActingPolicy) -> bool:
        """Dense layers only, narrow, on the CPU, with a memory that has a step in numpy."""
        if type(policy.encoder) is not MLP or any(p.device.type != "cpu" for p in policy.parameters()):
            return False
        narrow = all(max(p.shape) <= LARGEST_NUMPY_LAYER for p in policy.actor.parameters())
        dense = is_dense(policy.encoder.layers) and is_dense(policy.actor)
        return narrow and dense and policy.memory.numpy_step(_view) is not None

    def refresh(self) -> None:
        self.encoder = dense_layers(self._mlp.layers, self._take)
        self.head = dense_layers(self.policy.actor, self._take)
        step = self.policy.memory.numpy_step(self._take)
        assert step is not None
        self.memory: Step = step
        log_std = self.policy.log_std
        self.log_std = None if log_std is None else self._take(log_std)

    def initial_state(self, batch: int) -> Tree:
        return tree_map(lambda s: s.numpy(), self.policy.initial_state(batch))

    def __call__(self, obs_B: Array, state: Tree, first_B: Array) -> tuple[Array, Tree]:
        x = as_vector_numpy(obs_B, self._mlp.space)
        for weight, bias, activation in self.encoder:
            x = activation(x @ weight + bias)
        x, state = self.memory(x, state, first_B)
        for weight, bias, activation in self.head:
            x = activation(x @ weight + bias)
        if self.log_std is not None:
            x = np.concatenate([x, np.broadcast_to(self.log_std, x.shape)], -1)
        return x, state


Dense = tuple[Array, Array, Callable[[Array], Array]]


def is_dense(module: nn.Module) -> bool:
    """Whether `dense_layers` knows every part: linear layers, each with at most one activation after it."""
    parts = [type(part) for part in module.modules() if type(part) is not nn.Sequential]
    known = all(part is nn.Linear or part in ACTIVATIONS for part in parts)
    return known and all(after is nn.Linear or before is nn.Linear for before, after in pairwise([None, *parts]))


def dense_layers(module: nn.Module, take: Callable[[Tensor], Array]) -> list[Dense]:
    """(weight [in, out], bias, activation) of every linear layer."""
    if not is_dense(module):
        raise ValueError(f"not made of linear layers and known activations: {module}")
    layers: list[Dense] = []
    for part in module.modules():
        if type(part) is nn.Linear:
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
