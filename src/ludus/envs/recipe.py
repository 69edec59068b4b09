"""How one environment is made: the only call of `gym.make`. A Recipe can be sent to a worker process."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from ludus.envs import Info, catalog
from ludus.envs.catalog import Creator
from ludus.envs.check import check
from ludus.envs.deadline import Within, close, raised
from ludus.envs.spaces import EnvInfo, convert_spaces
from ludus.envs.vector import VectorEnv
from ludus.envs.wrappers.rewards import RawReward
from ludus.errors import ConfigError, LudusError

T = TypeVar("T")


class WrapperCall(NamedTuple):
    """A wrapper and its checked arguments."""

    where: str
    cls: Any
    arguments: dict[str, Any]

    def apply(self, function: Callable[..., T], target: object) -> T:
        """Call a function with the arguments; a ValueError means that the config is wrong."""
        try:
            return function(target, **self.arguments)
        except (ValueError, TypeError) as error:  # Gymnasium's own wrappers raise both
            raise ConfigError(self.where, str(error)) from error


@dataclass(frozen=True)
class Recipe:
    """Everything that is needed to make one environment, in this process or another."""

    spec: EnvSpec
    kwargs: dict[str, Any]
    wrappers: tuple[WrapperCall, ...]
    max_episode_steps: int | None
    reward_threshold: float | None
    render_mode: str | None
    deadline: float = math.inf
    """Seconds that making, resetting or closing one may take; at least `deadline.LEAST`."""

    @property
    def id(self) -> str:
        """Environment id."""
        return self.spec.id

    def make(self) -> gym.Env:
        """A new environment."""
        with Within(self.deadline, f"environment {self.id}", "making it"):
            env = self.layers()[-1]
            if self._drawn and self.render_mode == "human":
                env = gym.wrappers.HumanRendering(env)
            return convert_spaces(env, self.id)

    def layers(self) -> list[gym.Env]:
        """One new environment: without the config's wrappers, then with one more of them each."""
        catalog.headless(self.render_mode)
        envs = [self._bare("rgb_array" if self._drawn else self.render_mode)]
        if self.wrappers:
            envs[0] = RawReward(envs[0])
        for call in self.wrappers:
            envs.append(call.apply(call.cls, envs[-1]))
        return envs

    @property
    def _drawn(self) -> bool:
        """Whether a wrapper reads rendered frames."""
        return any(getattr(call.cls, "needs_frames", False) for call in self.wrappers)

    def check(self) -> EnvInfo:
        """Facts about the environment after the start-up check, on an extra one: some keep state over a reset."""
        env = self.make()
        try:
            check(env, self.id, self.deadline)
            return self.facts(env)
        finally:
            close(env, f"environment {self.id}", self.deadline)

    def facts(self, env: gym.Env) -> EnvInfo:
        """Facts about an environment that this recipe made."""
        own = getattr(env.unwrapped, "reward_threshold", None)
        return self.info(env.observation_space, env.action_space, env.metadata, own)

    def info(self, observation: gym.Space, action: gym.Space, metadata: Info, own: float | None = None) -> EnvInfo:
        """Facts; the threshold is the config's, otherwise the environment's `own`, otherwise the registered one."""
        thresholds = (self.reward_threshold, own, self.spec.reward_threshold)
        return EnvInfo(
            self.id,
            observation,
            action,
            reward_threshold=next((float(value) for value in thresholds if value is not None), None),
            max_episode_steps=self.max_episode_steps or self.spec.max_episode_steps,
            render_mode=self.render_mode,
            render_modes=tuple(metadata.get("render_modes", ())),
            render_fps=float(metadata.get("render_fps", 30.0)),
        )

    def bare_observation_space(self) -> gym.Space:
        """The observation space without the config's wrappers."""
        with Within(self.deadline, f"environment {self.id}", "making it"):
            env = self._bare(None)
        close(env, f"environment {self.id}", self.deadline)
        return env.observation_space

    def unwrapped(self) -> Recipe:
        """This recipe without the config's wrappers."""
        return replace(self, wrappers=())

    def vectorized(self, venv: VectorEnv, backend: str) -> VectorEnv:
        """The vector with its wrappers; one that cannot work on vectors is refused by name."""
        for call in self.wrappers:
            if not hasattr(call.cls, "vectorize"):
                problem = f"{call.where} works on single environments only, not on the {backend} backend"
                raise ConfigError("environment.vectorization", problem, "use sync or async")
            venv = call.apply(call.cls.vectorize, venv)
        return venv

    def code(self) -> list[Creator]:
        """Classes and functions that a worker must be able to import."""
        return [
            *(call.cls for call in self.wrappers),
            *([getattr(entry, "creator", entry)] if callable(entry := self.spec.entry_point) else []),
        ]

    def _bare(self, render_mode: str | None) -> gym.Env:
        self._require_rendering(render_mode)
        try:
            with catalog.quiet(self.spec.entry_point):
                return gym.make(
                    self.spec,
                    max_episode_steps=self.max_episode_steps,
                    disable_env_checker=True,
                    **({"render_mode": render_mode} if render_mode else {}),
                    **self.kwargs,
                )
        except LudusError:
            raise
        except (gym.error.DependencyNotInstalled, ImportError) as error:
            raise catalog.missing(self.id, self.spec.entry_point, error) from error
        except BaseException as error:  # whatever a constructor raises is reported with its traceback
            if isinstance(error, TypeError) and "must inherit from the gymnasium.Env" in str(error):
                remedy = "wrap it in one; several agents at once (PettingZoo) are not supported"
                raise ConfigError("environment.id", f"'{self.id}' is not a gymnasium.Env", remedy) from error
            raise raised(f"environment {self.id}", "making it", error, logged=False) from error

    def _require_rendering(self, mode: str | None) -> None:
        metadata = getattr(catalog.creator(self.id, self.spec.entry_point), "metadata", None) if mode else None
        if metadata is None:
            return
        modes = metadata.get("render_modes", ())
        if mode not in modes and not (mode == "human" and "rgb_array" in modes):
            raise ConfigError("render_mode", f"'{self.id}' cannot be shown as '{mode}'", "play it unseen")
