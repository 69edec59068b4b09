"""Denser rewards for single environments.

Those that extend PotentialShaping change how fast a policy is found, not which one is best (Ng, Harada and Russell,
1999). The others may change the best policy.
"""

from __future__ import annotations

import abc
import math
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv, MountainCarEnv

from ludus.envs import Action, Info, Observation, StepReturn
from ludus.envs.wrappers.atari_objects import pong_objects, ram, require_game
from ludus.envs.wrappers.rewards import ChangedReward


class PotentialShaping(ChangedReward):
    """Adds gamma * potential(s') - potential(s) to the reward.

    The potential of a terminal state counts as 0, or the shaping would pay for ending; a truncated state keeps its own.
    `gamma` must be the algorithm's.
    """

    def __init__(self, env: gym.Env, gamma: float) -> None:
        super().__init__(env)
        if not 0 < gamma <= 1:
            raise ValueError(f"gamma must lie in (0, 1], got {gamma}")
        self._gamma, self._potential = gamma, 0.0

    @abc.abstractmethod
    def potential(self, obs: Observation) -> float:
        """How promising an observation is."""

    def begin(self, obs: Observation) -> None:
        """The potential of the first state."""
        self._potential = self.potential(obs)

    def changed(self, action: Action, result: StepReturn) -> float:
        """The reward plus the discounted difference of potentials, which is also in `info["shaping"]`."""
        obs, reward, terminated, _, info = result
        before, self._potential = self._potential, 0.0 if terminated else self.potential(obs)
        info["shaping"] = self._gamma * self._potential - before
        return float(reward) + float(info["shaping"])


class CartPoleShaping(PotentialShaping):
    """Potential: how far angle and position are from their limits, each 1 at the centre and 0 at the limit."""

    def __init__(
        self,
        env: gym.Env,
        gamma: float = 0.99,
        angle_reward_scale: float = 1.0,
        position_reward_scale: float = 0.25,
    ) -> None:
        super().__init__(env, gamma)
        _require(env, "CartPole", CartPoleEnv)
        inner: Any = env.unwrapped
        self._limits = (inner.x_threshold, inner.theta_threshold_radians)
        self._angle, self._position = angle_reward_scale, position_reward_scale

    def potential(self, obs: Observation) -> float:
        """High when the pole is upright and the cart centred."""
        position, angle = 1 - abs(float(obs[0])) / self._limits[0], 1 - abs(float(obs[2])) / self._limits[1]
        return self._angle * angle + self._position * position


class MountainCarShaping(PotentialShaping):
    """Potential: height, kinetic energy and position, each 0 at its best and minus its scale at its worst.

    The car has to build up energy before it can climb.
    """

    LEFT, GOAL, TOP_SPEED = -1.2, 0.5, 0.07

    def __init__(
        self,
        env: gym.Env,
        gamma: float = 0.99,
        height_reward_scale: float = 20.0,
        velocity_reward_scale: float = 30.0,
        position_reward_scale: float = 0.0,
    ) -> None:
        super().__init__(env, gamma)
        _require(env, "MountainCar-v0", MountainCarEnv)
        self._height, self._velocity, self._position = height_reward_scale, velocity_reward_scale, position_reward_scale

    def potential(self, obs: Observation) -> float:
        """High when the car is fast or far up."""
        place, speed = float(obs[0]), float(obs[1])
        top = math.sin(3 * self.GOAL)
        height = (math.sin(3 * place) - top) / (top + 1)
        kinetic = (speed / self.TOP_SPEED) ** 2 - 1
        position = self._position * (place - self.GOAL) / (self.GOAL - self.LEFT)
        return self._height * height + self._velocity * kinetic + position


class PongShaping(PotentialShaping):
    """Potential: 0 when the player's paddle is level with the ball or there is no ball, at worst minus the scale."""

    def __init__(self, env: gym.Env, gamma: float = 0.99, tracking_reward_scale: float = 0.5) -> None:
        super().__init__(env, gamma)
        require_game(env, "pong")
        self._scale = tracking_reward_scale

    def potential(self, obs: Observation) -> float:
        """High when the paddle is near the ball; read from the console's memory."""
        things = pong_objects(ram(self))
        player, ball = things["player"], things["ball"]
        return -self._scale * abs(ball.center[1] - player.center[1]) if player and ball else 0.0


class VizDoomShaping(ChangedReward):
    """Adds weight * change of every game variable in `variables`, and `attack` for every step with the trigger pulled.

    Not potential-based. Takes Discrete and MultiBinary actions.
    """

    WEIGHTS = {"KILLCOUNT": 1.0, "DAMAGECOUNT": 0.01, "DAMAGE_TAKEN": -0.01, "HEALTH": 0.01}

    def __init__(self, env: gym.Env, variables: dict[str, float] | None = None, attack: float = 0.0) -> None:
        from ludus.envs.suites.vizdoom import VizDoom, game_variable

        super().__init__(env)
        _require(env, "VizDoom", VizDoom)
        game: Any = env.unwrapped
        self._game = game
        self._weights = self.WEIGHTS if variables is None else variables
        self._attack = attack
        if attack and "ATTACK" not in self._game.buttons:
            raise ValueError("attack: this scenario has no button ATTACK")
        for name in self._weights:
            game_variable(name)
        self._before = dict.fromkeys(self._weights, 0.0)

    def begin(self, obs: Observation) -> None:
        """Count from the beginning of the episode."""
        self._before = self._counts()

    def changed(self, action: Action, result: StepReturn) -> float:
        """The reward plus the weighted changes."""
        before, self._before = self._before, self._counts()
        gained = sum(weight * (self._before[name] - before[name]) for name, weight in self._weights.items())
        if self._attack and self._game.pressed(action)[self._game.buttons.index("ATTACK")]:
            gained += self._attack
        return float(result[1]) + gained

    def _counts(self) -> dict[str, float]:
        return {name: self._game.variable(name) for name in self._weights}


class RetroMarioShaping(ChangedReward):
    """Pays for pixels to the right, points, coins and levels of Super Mario Bros.; charges for steps and lost lives.

    It replaces the game's own reward, which falls by 255 at every page.
    """

    GAME = "SuperMarioBros-Nes"
    PAGE = 256
    """Pixels of a screen page: the game counts them in one byte and the pages in another."""
    JUMP = 128
    """More pixels than Mario can run in one step: a new level or life has begun."""

    def __init__(
        self,
        env: gym.Env,
        progress: float = 0.1,
        score: float = 0.01,
        coin: float = 0.0,
        level: float = 50.0,
        death: float = -25.0,
        step: float = -0.01,
    ) -> None:
        super().__init__(env)
        game = str(getattr(env.unwrapped, "game", ""))
        if not game.startswith(self.GAME):
            raise ValueError(f"is for Retro/{self.GAME}, not for {game or type(env.unwrapped).__name__}")
        self._weights = {"progress": progress, "score": score, "coins": coin, "level": level}
        self._death, self._step = death, step
        self._before: dict[str, int] = {}

    def begin(self, obs: Observation) -> None:
        """The first step of an episode has nothing to compare with."""
        self._before = {}

    def changed(self, action: Action, result: StepReturn) -> float:
        """The weighted changes of the game's counters."""
        now = self._counts(result[4])
        before, self._before = self._before or now, now
        change = {name: now[name] - before[name] for name in before}
        if abs(change["progress"]) > self.JUMP:
            change["progress"] = 0
        gained = sum(weight * change[name] for name, weight in self._weights.items())
        return gained + (self._step + (self._death if change["lives"] < 0 else 0.0))

    def _counts(self, info: Info) -> dict[str, int]:
        return {
            "progress": self.PAGE * int(info["xscrollHi"]) + int(info["xscrollLo"]),
            "score": int(info["score"]),
            "coins": int(info["coins"]),
            "level": 4 * int(info["levelHi"]) + int(info["levelLo"]),
            "lives": int(info["lives"]),
        }


def _require(env: gym.Env, name: str, kind: type) -> None:
    if not isinstance(env.unwrapped, kind):
        raise ValueError(f"is for {name}, not for {type(env.unwrapped).__name__}")
