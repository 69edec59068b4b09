"""What MiniGrid's wrappers share."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.spaces import Dict


def require_minigrid(env: gym.Env) -> Any:
    """The observation space of a MiniGrid environment: image, direction and mission."""
    space = env.observation_space
    if not isinstance(space, Dict) or set(space.keys()) != {"image", "direction", "mission"}:
        raise ValueError(f"is for MiniGrid and comes first, the observation is {space}")
    return space
