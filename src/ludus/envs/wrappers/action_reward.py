"""Actions that cost or pay."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.spaces import Discrete

from ludus.registry import WRAPPERS


@WRAPPERS.register("action_reward")
@WRAPPERS.register("ActionRewardShaper")
class ActionReward(gym.Wrapper):
    """Adds `rewards[action]` to the reward, 0 for actions that are not named. Not potential-based: it changes the task.

    The raw reward stays in `info["raw_reward"]` and `VectorEnv.raw_reward`.
    """

    def __init__(self, env: gym.Env, rewards: list[float] | dict[int, float]) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, Discrete):
            raise ValueError(f"pays for Discrete actions, this one takes {env.action_space}")
        first = int(env.action_space.start)
        named = dict(enumerate(rewards, first)) if isinstance(rewards, list) else rewards
        wrong = [action for action in named if not env.action_space.contains(action)]
        if wrong:
            raise ValueError(f"{wrong[0]} is not in {env.action_space}")
        self._rewards = {int(action): float(reward) for action, reward in named.items()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        info.setdefault("raw_reward", reward)
        return obs, float(reward) + self._rewards.get(int(action), 0.0), terminated, truncated, info
