"""Vocabulary shared by every layer; imports nothing from the package and no torch.

Shape suffixes: T time, B environments (batch), D features, H hidden units, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    import gymnasium as gym
    import torch

Array = np.ndarray
Tree = Any
"""An array or tensor, or a (nested) tuple of them, batch dimension first. `()` is the empty state."""


@dataclass(frozen=True)
class Spaces:
    """Spaces of ONE environment; batch and time dimensions are never part of a space."""

    observation: gym.Space
    action: gym.Space


@dataclass(frozen=True)
class Report:
    """What one hook did: the only thing the Orchestrator ever learns about an algorithm."""

    env_steps: int = 0
    updates: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Nothing happened (a buffer was not ready, say): does not count towards a phase."""
        return self.env_steps == 0 and self.updates == 0


class Acted(NamedTuple):
    """What a behaviour returns to the collector for a batch of observations."""

    action: Array
    """As it is stored and learned from."""
    env_action: Array
    """As the environment takes it: clipped, rescaled, shifted."""
    state: Tree
    """Memory after this step."""
    extras: dict[str, Array]
    """Further columns [B, ...] of this step; they travel in `Rollout.extras`."""


class ActResult(NamedTuple):
    """What `Algorithm.act` returns for a batch of observations."""

    action: Array
    """As the environment takes it: clipped, rescaled, shifted."""
    state: Tree
    """Memory after this step."""
    info: Mapping[str, Array]
    """Facts about the decision, each computed when it is read: read them before the weights change.

    `value` [B]: of the state, or of (state, chosen action) where critics judge actions. `log_prob` [B]: of the chosen
    action while exploring. `probabilities` [B, A] of discrete actions (components one after another), or `mean` and
    `std` [B, ...] of the Gaussian that actions are drawn from, before they are squashed or clipped. `q` [B, A]: values
    of all discrete actions. A fact that an algorithm does not have is left out: there is no `value` without a critic
    and no `log_prob` of a deterministic policy.
    """


class Stateful(Protocol):
    """Something a checkpoint holds: nested dicts of tensors, arrays, numbers, strings and lists."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Any) -> Any: ...


def to_device(tree: Tree, device: torch.device) -> Tree:
    """Arrays or tensors of a tree as tensors on a device."""
    import torch

    return tree_map(lambda leaf: torch.as_tensor(leaf, device=device), tree)


def tree_map(function: Callable[..., Any], *trees: Tree) -> Tree:
    """Apply `function` to matching leaves of trees of tuples."""
    if isinstance(trees[0], tuple):
        return tuple(tree_map(function, *leaves) for leaves in zip(*trees, strict=True))
    return function(*trees)


def tree_leaves(tree: Tree) -> list[Any]:
    """Leaves of a tree of tuples, in order."""
    return [leaf for item in tree for leaf in tree_leaves(item)] if isinstance(tree, tuple) else [tree]
