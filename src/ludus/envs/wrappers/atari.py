"""Wrappers for the Arcade Learning Environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.envs import Action, Observation, Options, ResetReturn, StepReturn
from ludus.text import did_you_mean


def arcade(env: gym.Env) -> Any:
    """The AtariEnv inside; ValueError for an environment of another kind."""
    inner: Any = env.unwrapped
    if not hasattr(inner, "ale"):
        raise ValueError(f"is for the games of ALE, not for {type(inner).__name__}")
    return inner


def meanings(env: gym.Env) -> list[str]:
    """Names of the actions of `env`, which must still be ALE's own."""
    names: list[str] = arcade(env).get_action_meanings()
    if not isinstance(env.action_space, gym.spaces.Discrete) or int(env.action_space.n) != len(names):
        raise ValueError(f"needs ALE's own {len(names)} actions, these are {env.action_space}")
    return names


class NoopReset(gym.Wrapper):
    """Takes up to `noop_max` steps of action 0 after a reset; the number is drawn from the environment's generator."""

    def __init__(self, env: gym.Env, noop_max: int = 30) -> None:
        super().__init__(env)
        if noop_max < 0:
            raise ValueError(f"noop_max must be 0 or more, got {noop_max}")
        if not isinstance(env.action_space, gym.spaces.Discrete):
            raise ValueError(f"needs an action that does nothing, this one takes {env.action_space}")
        self._noop_max = noop_max

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode and wait."""
        obs, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self.unwrapped.np_random.integers(self._noop_max + 1))):
            obs, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                obs, info = self.env.reset()
        return obs, info


class FireReset(gym.Wrapper):
    """Presses FIRE once after every reset, if the game has that action; outside of `episodic_life` in every life."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        names = meanings(env)
        self._fire = names.index("FIRE") if "FIRE" in names else None

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode and press FIRE."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._fire is None:
            return obs, info
        obs, _, terminated, truncated, info = self.env.step(self._fire)
        return self.env.reset() if terminated or truncated else (obs, info)


class EpisodicLife(gym.Wrapper):
    """Terminates where a life is lost; the next episode continues the same game from the last observation.

    Logged and evaluated episodes are whole games all the same (`StepResult.continues`).
    """

    life_lost = False
    """The last episode ended with a life only: the game continues."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        arcade(env)
        self._lives = 0
        self._last: Observation = None

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Continue with the next life, or begin a game."""
        goes_on = self.life_lost and seed is None
        obs, info = (self._last, {}) if goes_on else self.env.reset(seed=seed, options=options)
        self.life_lost, self._last = False, None
        self._lives = arcade(self).ale.lives()
        return obs, info

    def step(self, action: Action) -> StepReturn:
        """Step; a lost life terminates."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        lives = arcade(self).ale.lives()
        # Some games show no life left for a few frames before they are over.
        self.life_lost = 0 < lives < self._lives and not (terminated or truncated)
        self._lives = lives
        self._last = obs if self.life_lost else None
        return obs, reward, terminated or self.life_lost, truncated, info


class ALEActionMasking(gym.ActionWrapper):
    """The policy chooses among `actions`, named as ALE does: NOOP, FIRE, UP, RIGHTFIRE."""

    def __init__(self, env: gym.Env, actions: list[str]) -> None:
        super().__init__(env)
        names = meanings(env)
        if not actions or len(set(actions)) != len(actions):
            raise ValueError(f"actions must be different names, got {actions}")
        for name in actions:
            if name not in names:
                raise ValueError(f"the game has no action {name}; {did_you_mean(name, names)}")
        self._actions = [names.index(name) for name in actions]
        self.action_space = gym.spaces.Discrete(len(actions))

    def action(self, action: Action) -> int:
        """ALE's number of the action."""
        return self._actions[int(action)]
