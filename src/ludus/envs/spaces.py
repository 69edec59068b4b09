"""Facts about one environment, and the wrapper that gives it the spaces that policies compute with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import gymnasium as gym

from ludus.envs import Action, ResetReturn, StepReturn
from ludus.spaces import Conversion, action_conversion, is_image, observation_conversion
from ludus.types import State, Tree

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


def wrapper_of(env: gym.Env, kind: type[W]) -> W | None:
    """The outermost wrapper of a class around an environment."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, kind):
            return env
        env = env.env
    return None


class ConvertSpaces(gym.Wrapper):
    """The outermost wrapper of an environment whose spaces need a conversion."""

    def __init__(self, env: gym.Env, observation: Conversion, action: Conversion) -> None:
        super().__init__(env)
        self.observation_space, self.action_space = observation.space, action.space
        # plain functions: a snapshot of the environment compares them by name
        self._observe, self._act = observation.convert or _unchanged, action.convert or _unchanged

    def reset(self, *, seed: int | None = None, options: State | None = None) -> ResetReturn:
        """Reset and convert the observation."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._observe(obs), info

    def step(self, action: Action) -> StepReturn:
        """Convert the action, step, and convert the observation."""
        obs, reward, terminated, truncated, info = self.env.step(self._act(action))
        return self._observe(obs), reward, terminated, truncated, info

    def action(self, action: Action) -> Action:
        """An action as the environment inside takes it."""
        return self._act(action)


def _unchanged(value: Tree) -> Tree:
    return value


def convert_spaces(env: gym.Env, id: str) -> gym.Env:
    """`env` with supported spaces; the same object if it has them already."""
    observation, action = observation_conversion(env.observation_space, id), action_conversion(env.action_space, id)
    return env if observation.convert is None and action.convert is None else ConvertSpaces(env, observation, action)
