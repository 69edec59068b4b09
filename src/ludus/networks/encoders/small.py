"""Tiny images, such as MiniGrid's 7x7 cells, through 2x2 convolutions."""

from __future__ import annotations

from pydantic import PositiveFloat, PositiveInt

from ludus.config.model import Model
from ludus.networks.encoders._pixels import ThreeConvolutions
from ludus.registry import ENCODERS


class SmallConfig(Model):
    """Three 2x2 convolutions of 16, 32 and 64 channels and one linear layer, as in MiniGrid's documentation."""

    features: PositiveInt = 128
    """Width of the last layer."""
    divide_by: PositiveFloat | None = None
    """Pixels are divided by this; none: by the largest value the space has, 10 for the codes of MiniGrid's cells."""


@ENCODERS.register("small")
class Small(ThreeConvolutions):
    """16, 32 and 64 channels, then one linear layer."""

    Config = SmallConfig
    heavy = False
    smallest = 4
    shapes = ((16, 2, 1), (32, 2, 1), (64, 2, 1))
