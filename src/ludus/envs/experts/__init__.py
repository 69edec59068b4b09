"""Scripted experts: they act by a rule, so that demonstrations can be recorded without training anybody."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import gymnasium as gym
import numpy as np

from ludus.types import Array, Tree


class Expert(ABC):
    """Acts in several environments of one kind at once."""

    ids: ClassVar[tuple[str, ...]]
    """The environments it knows."""

    def __init__(self, action_space: gym.Space, rng: np.random.Generator) -> None:
        self.action_space, self.rng = action_space, rng

    @abstractmethod
    def act(self, obs_B: Tree, first_B: Array) -> Array:
        """Actions [B, ...] as the environments take them; `first` says which episodes begin."""
