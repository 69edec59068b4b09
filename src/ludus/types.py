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


class ActResult(NamedTuple):
    """What `Algorithm.act` returns for a batch of observations."""

    action: Array
    """As the environment takes it: clipped, rescaled, shifted."""
    state: Tree
    """Memory after this step."""
    info: dict[str, Array]
    """Whatever the algorithm can tell about the step ("value", "probabilities"), for the inspector."""


class Stateful(Protocol):
    """Something a checkpoint holds: nested dicts of tensors, arrays, numbers, strings and lists."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Any) -> Any: ...


def restore(parts: Mapping[str, Stateful], saved: Mapping[str, Any]) -> None:
    """Every part's saved state; an `optional` part that is younger than the checkpoint keeps what it begins with."""
    for name, part in parts.items():
        if name in saved or not getattr(part, "optional", False):
            part.load_state_dict(saved[name])


def tree_map(function: Callable[..., Any], *trees: Tree) -> Tree:
    """Apply `function` to matching leaves of trees of tuples."""
    if isinstance(trees[0], tuple):
        return tuple(tree_map(function, *leaves) for leaves in zip(*trees, strict=True))
    return function(*trees)


def tree_leaves(tree: Tree) -> list[Any]:
    """Leaves of a tree of tuples, in order."""
    return [leaf for item in tree for leaf in tree_leaves(item)] if isinstance(tree, tuple) else [tree]
