"""Facts about one environment that the rest of the lab needs: spaces, limits, rendering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import gymnasium as gym
import numpy as np

W = TypeVar("W", bound=gym.Wrapper)


@dataclass(frozen=True)
class EnvInfo:
    """Facts about ONE environment as the policy sees it."""

    id: str
    observation_space: gym.Space
    action_space: gym.Space
    reward_threshold: float | None = None
    """Mean return that counts as solved; the config's, otherwise the environment's own."""
    max_episode_steps: int | None = None
    """Time limit after which an episode is truncated."""
    render_mode: str | None = None
    """The mode this environment was made with."""
    render_modes: tuple[str, ...] = ()
    """The modes it can be made with."""
    render_fps: float = 30.0
    """Frames per second that show it in real time."""

    @property
    def is_image(self) -> bool:
        """Observations are uint8 pixels, channels first."""
        return is_image(self.observation_space)


def is_image(space: gym.Space) -> bool:
    """Pixels with a channel dimension."""
    return is_pixels(space) and len(space.shape or ()) == 3


def is_pixels(space: gym.Space) -> bool:
    """A uint8 Box over the whole range 0 to 255."""
    box = isinstance(space, gym.spaces.Box) and space.dtype == np.uint8
    return box and bool((space.low == 0).all() and (space.high == 255).all())  # type: ignore[attr-defined]


def wrapper_of(env: gym.Env, kind: type[W]) -> W | None:
    """The outermost wrapper of a class around an environment."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, kind):
            return env
        env = env.env
    return None
