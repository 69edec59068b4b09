"""Observations back from features, and the loss of that. Shapes: T time, B batch, F features, V vector."""

from __future__ import annotations

from abc import ABC, abstractmethod

import gymnasium as gym
from torch import Tensor, nn

from ludus.components.encoder import Parts
from ludus.config.model import Model
from ludus.types import Tree


class Reconstruction(nn.Module, ABC):
    """Predicts observations from features."""

    Config: type[Model]

    def __init__(self, space: gym.Space) -> None:
        super().__init__()
        self.observed, self.space = Parts(space), space

    @abstractmethod
    def losses(self, features_TBF: Tensor, obs_TB: Tree) -> dict[str, Tensor]:
        """Loss [T, B] of each part of the observations."""

    @abstractmethod
    def predict(self, features: Tensor) -> dict[str, Tensor]:
        """`vector` [..., V] in the observation's own numbers, and `image<i>` [..., C, H, W] between 0 and 1."""
