"""Small pictures of tasks that show numbers: pixels for world models, without a screen and at hardly any cost."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs.wrappers.observations import observation_wrapper
from ludus.spaces import Conversion, Image
from ludus.types import Array

TRACK = 4.8
"""Width of CartPole's track."""
SMALLEST = 12


@observation_wrapper
def draw_cart_pole(space: gym.Space, size: int = 32) -> Conversion:
    """CartPole as a gray picture of `size` x `size`: where cart and pole are, but not how fast.

    Edges are as dark as the share of a pixel that they cover, so that a picture tells positions to a part of a pixel.
    """
    if not isinstance(space, Box) or space.shape != (4,):
        raise ValueError(f"draws CartPole, the observation is {space}")
    if size < SMALLEST:
        raise ValueError(f"size must be at least {SMALLEST}, got {size}")
    centres = np.arange(size, dtype=np.float32) + 0.5
    down, across = centres[:, None], centres[None, :]
    axle, length = size * 0.85, size * 0.75

    def draw(obs: Array) -> Array:
        """[..., 1, size, size]"""
        position, angle = (np.asarray(obs, np.float32)[..., i, None, None] for i in (0, 2))
        x = across - (np.clip(position, -TRACK, TRACK) / TRACK + 0.5) * size
        y = axle - down
        along = np.clip(x * np.sin(angle) + y * np.cos(angle), 0.0, length)
        distance = np.hypot(x - along * np.sin(angle), y - along * np.cos(angle))
        pole = np.clip(size / 24 + 0.5 - distance, 0.0, 1.0)
        cart = np.clip(size / 10 + 0.5 - np.abs(x), 0.0, 1.0) * np.clip(size / 20 + 0.5 - np.abs(y), 0.0, 1.0)
        picture: Array = np.rint(255 * np.maximum(pole, 0.5 * cart)).astype(np.uint8)[..., None, :, :]
        return picture

    return Conversion(Image(0, 255, (1, size, size), np.uint8), draw)
