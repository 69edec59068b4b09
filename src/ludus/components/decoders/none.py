"""No reconstruction: rewards and ends alone shape the latent state (and with `identity` there is nothing to decode)."""

from __future__ import annotations

import gymnasium as gym
from torch import Tensor

from ludus.components.decoders import Reconstruction
from ludus.config.model import Model
from ludus.registry import DECODERS
from ludus.types import Tree


class NoDecoderConfig(Model):
    """No reconstruction."""


@DECODERS.register("none")
class NoDecoder(Reconstruction):
    """Predicts nothing."""

    Config = NoDecoderConfig

    def __init__(self, cfg: NoDecoderConfig, inputs: int, memory: int, space: gym.Space) -> None:
        super().__init__(space)

    def losses(self, features_TBF: Tensor, obs_TB: Tree) -> dict[str, Tensor]:
        """None."""
        return {}

    def predict(self, features: Tensor) -> dict[str, Tensor]:
        """Nothing."""
        return {}
