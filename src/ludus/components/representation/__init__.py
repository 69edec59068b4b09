"""Latent states of world models: what is carried from step to step, inferred from observations or imagined.

States are dicts of tensors. A row t has the observation of step t and the action that led to it; `first` marks rows
that begin an episode, where the state and that action count as zero.
Shapes: T time, B batch, E embedding, A action, F features, N noise numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from torch import Tensor, nn

from ludus.config.model import Model

LatentState = dict[str, Tensor]


class Observed(NamedTuple):
    """What a representation inferred from a sequence."""

    states: LatentState
    """[T, B, ...] after each row."""
    features: Tensor
    """[T, B, F]"""
    losses: dict[str, Tensor]
    """[T, B] of the latent state itself, by name; empty when acting."""
    metrics: dict[str, Tensor]


class Representation(nn.Module, ABC):
    """Infers and imagines latent states. One call over T rows equals T calls over one row."""

    Config: type[Model]
    feature_dim: int
    memory_dim: int = 0
    """Features, the first ones, that are a deterministic memory."""
    noise_dim: int
    """Standard normal numbers that one row, or one imagined step, takes."""
    reads_vectors: bool = False
    """Whether it takes observations as they are, instead of an encoder's output."""

    @abstractmethod
    def initial_state(self, batch: int) -> LatentState:
        """The state before an episode."""

    @abstractmethod
    def observe(
        self,
        embed_TBE: Tensor,
        action_TBA: Tensor,
        first_TB: Tensor,
        state: LatentState,
        noise_TBN: Tensor | None,
        *,
        learn: bool = False,
    ) -> Observed:
        """States given observations; without noise the likeliest ones. `learn` adds the losses."""

    @abstractmethod
    def imagine(self, state: LatentState, action_BA: Tensor, noise_BN: Tensor | None) -> LatentState:
        """The state after an action, without an observation."""

    @abstractmethod
    def features(self, state: LatentState) -> Tensor:
        """What heads and decoders read, [..., F]."""
