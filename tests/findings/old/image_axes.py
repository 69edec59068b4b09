"""B5: the last axis of a grid of one-hots is its channels, and frames are stacked along the channels."""

from typing import Any

import gymnasium as gym
import numpy as np

from ludus.config.schema import Environment
from ludus.envs.make import make_env
from ludus.networks.encoders import image_shape


class Pictures(gym.Env):
    """Black pictures of any shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.observation_space, self.action_space = gym.spaces.Box(0, 255, shape, np.uint8), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin."""
        return np.zeros(self.observation_space.shape, np.uint8), {}

    def step(self, action: Any) -> Any:
        """Nothing happens."""
        return np.zeros(self.observation_space.shape, np.uint8), 0.0, False, False, {}


def seen(shape: tuple[int, ...], **fields: Any) -> tuple[int, ...]:
    """Channels, height and width as the encoder takes them."""
    gym.register(f"Pictures{len(gym.registry)}-v0", Pictures, kwargs={"shape": shape})
    env = make_env(Environment.model_validate({"id": list(gym.registry)[-1], **fields}))
    return image_shape(env.observation_space)


assert seen((64, 64, 3)) == (3, 64, 64), "what was right"
wrong = {"one-hots": seen((9, 9, 20)) != (20, 9, 9), "a stack": seen((40, 44, 2), frame_stack=4) != (8, 40, 44)}
assert not any(wrong.values()), f"axes were guessed wrong: {wrong}"
