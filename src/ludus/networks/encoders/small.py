"""Tiny images, such as MiniGrid's 7x7 cells, through 2x2 convolutions."""

from __future__ import annotations

from pydantic import PositiveInt

from ludus.networks.encoders._pixels import PixelConfig, ThreeConvolutions
from ludus.registry import ENCODERS


class SmallConfig(PixelConfig):
    """Three 2x2 convolutions of 16, 32 and 64 channels and one linear layer, as in MiniGrid's documentation."""

    features: PositiveInt = 128
    """Width of the last layer."""


@ENCODERS.register("small")
class Small(ThreeConvolutions):
    """16, 32 and 64 channels, then one linear layer."""

    Config = SmallConfig
    heavy = False
    smallest = 4
    shapes = ((16, 2, 1), (32, 2, 1), (64, 2, 1))
