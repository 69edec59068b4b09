"""A picture of an environment."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from ludus.errors import MissingExtra
from ludus.types import Array


def frame(env: gym.Env, id: str) -> Array:
    """uint8 [H, W, 3], in an array of its own."""
    try:
        return np.array(env.render())
    except gym.error.DependencyNotInstalled as error:
        raise MissingExtra(f"rendering {id}", "video") from error
