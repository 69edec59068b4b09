"""Pixels through the convolutions of Mnih et al. 2015 ("Nature CNN", doi:10.1038/nature14236)."""

from __future__ import annotations

from pydantic import PositiveInt

from ludus.networks.encoders._pixels import PixelConfig, ThreeConvolutions
from ludus.registry import ENCODERS


class NatureConfig(PixelConfig):
    """Three convolutions and one linear layer."""

    features: PositiveInt = 512
    """Width of the last layer."""


@ENCODERS.register("cnn")
@ENCODERS.register("nature")
class Nature(ThreeConvolutions):
    """32 8x8/4, 64 4x4/2, 64 3x3, then one linear layer."""

    Config = NatureConfig
    smallest = 36
    shapes = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
