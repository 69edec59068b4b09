"""Vocabulary shared by every layer; imports nothing from the package and no torch.

Shape suffixes: T time, B environments (batch), D features, H hidden units, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    import gymnasium as gym
    import torch

Array = np.ndarray
Tree = Any
"""An array or tensor, or a (nested) dict or tuple of them. `()` is the empty tree.

The leaves of a dict come in the order of its sorted keys, in whatever order they were put in.
"""

BRANCHES = (dict, tuple)
Leaf = Any
"""An array, tensor, or any value that is no tuple and no dict."""
Index = Any
"""An index of arrays and tensors: numbers, slices, arrays of them, `...`, None, or a tuple."""
State = dict[str, Any]
"""What a checkpoint holds: nested dicts, lists and tuples of tensors, arrays, numbers and strings."""


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


class StepResult(NamedTuple):
    """One step of a vector environment. The arrays belong to the environment and are overwritten by the next call."""

    obs: Tree
    """[B, ...] in the space's dtype."""
    reward: Array
    """float32 [B]: what the policy is trained on."""
    terminated: Array
    """bool [B]"""
    truncated: Array
    """bool [B]"""
    final_obs: Tree | None
    """[B, ...], valid exactly where terminated | truncated; None if no episode ended."""
    raw_reward: Array
    """float32 [B]: the rewards of the environments themselves, before any wrapper. Log these."""
    broken: Array | None = None
    """bool [B] if a worker was replaced in this step (`on_worker_death: restart`), else None.

    Such a row is no transition: the action was lost. It reads truncated, reward 0, final_obs the last good observation,
    obs the first of a new episode. Give it no weight in an update and leave its episode out of the statistics.
    """
    continues: Array | None = None
    """bool [B] if an episode ended for the learner only (a lost life), else None.

    Such a row reads terminated and its obs begins an episode like any other, but the game goes on: statistics and
    evaluations count up to the end of the game.
    """

    @property
    def done(self) -> Array:
        """bool [B]: the episode ended, terminated or truncated."""
        return self.terminated | self.truncated

    @property
    def over(self) -> Array:
        """bool [B]: the episode ended and its game is over. Count these."""
        return self.done if self.continues is None else self.done & ~self.continues


class Stateful(Protocol):
    """Something a checkpoint holds."""

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State, /) -> object: ...


def check_form(ours: Any, saved: Any, where: str = "state") -> None:
    """Refuse a saved value that is of another kind than the one it replaces, or an array of another shape."""
    if ours is None:  # not known before the run has begun
        return
    if isinstance(ours, Mapping):
        for name, value in ours.items():
            check_form(value, saved[name], f"{where}.{name}")
    elif hasattr(ours, "shape"):
        if getattr(saved, "shape", None) != ours.shape:
            raise ValueError(f"{where} has the shape {getattr(saved, 'shape', None)}, not {tuple(ours.shape)}")
    elif not isinstance(saved, (float, int) if isinstance(ours, float) else type(ours)):
        raise TypeError(f"{where} is a {type(saved).__name__}, not a {type(ours).__name__}")


def to_device(tree: Tree, device: torch.device) -> Tree:
    """Arrays or tensors of a tree as tensors on a device."""
    import torch

    return tree_map(lambda leaf: torch.as_tensor(leaf, device=device), tree)


def tree_map(function: Callable[..., Leaf], *trees: Tree) -> Tree:
    """Apply `function` to matching leaves; all trees have the structure of the first one."""
    first = trees[0]
    if not isinstance(first, BRANCHES):  # nearly always: this runs several times in every environment step
        return function(*trees)
    if isinstance(first, dict):
        if any(tree.keys() != first.keys() for tree in trees[1:]):
            raise ValueError(f"trees with other keys than {sorted(first)}")
        return {key: tree_map(function, *[tree[key] for tree in trees]) for key in sorted(first)}
    return tuple(tree_map(function, *parts) for parts in zip(*trees, strict=True))


def tree_leaves(tree: Tree) -> list[Leaf]:
    """The leaves, in the order in which `tree_map` visits them."""
    if not isinstance(tree, BRANCHES):
        return [tree]
    leaves: list[Leaf] = []
    for part in [tree[key] for key in sorted(tree)] if isinstance(tree, dict) else tree:
        if isinstance(part, BRANCHES):
            leaves += tree_leaves(part)
        else:
            leaves.append(part)
    return leaves


def tree_fill(tree: Tree, leaves: Iterable[Leaf]) -> Tree:
    """A tree of the same structure with other leaves, in the order of `tree_leaves`."""
    queue = iter(leaves)
    return tree_map(lambda _: next(queue), tree)


def tree_paths(tree: Tree, path: str = "") -> list[str]:
    """Names of the leaves, in the order of `tree_leaves`: `camera`, `arm.camera`, `0`; `""` for a bare leaf."""
    if not isinstance(tree, dict | tuple):
        return [path]
    parts = sorted(tree.items()) if isinstance(tree, dict) else enumerate(tree)
    return [name for key, part in parts for name in tree_paths(part, f"{path}.{key}" if path else str(key))]


def tree_index(tree: Tree, index: Index) -> Tree:
    """`leaf[index]` of every leaf."""
    return tree_map(lambda leaf: leaf[index], tree)


def tree_set(tree: Tree, index: Index, values: Tree) -> None:
    """`leaf[index] = value` for every leaf."""
    tree_map(lambda leaf, value: leaf.__setitem__(index, value), tree, values)


def space_tree(space: gym.Space) -> Tree:
    """The spaces inside a (nested) Dict or Tuple space as a tree; any other space is a leaf itself."""
    parts = getattr(space, "spaces", None)
    if isinstance(parts, dict):
        return {key: space_tree(part) for key, part in sorted(parts.items())}
    return tuple(space_tree(part) for part in parts) if isinstance(parts, tuple) else space


def zeros(space: gym.Space, *batch: int) -> Tree:
    """Zeros in the shape of observations of `space`, with leading dimensions."""
    return tree_map(lambda leaf: np.zeros((*batch, *(leaf.shape or ())), leaf.dtype), space_tree(space))
