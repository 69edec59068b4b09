"""Pong and Breakout as a few numbers: the objects on the screen, read from the console's 128 bytes of memory."""

from __future__ import annotations

import abc
from typing import NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from ludus.envs import Action, Info, Options, ResetReturn, StepReturn
from ludus.envs.wrappers.atari import arcade
from ludus.types import Array

WIDTH, HEIGHT = 160, 210
SPEED = 16 / WIDTH
"""A ball moves at most this part of the screen's width in four frames."""


class Thing(NamedTuple):
    """An object on the screen; x and y of its left upper corner in pixels."""

    x: int
    y: int
    width: int
    height: int

    @property
    def center(self) -> tuple[float, float]:
        """Its middle, 0 to 1 from left to right and from top to bottom."""
        return (self.x + self.width / 2) / WIDTH, (self.y + self.height / 2) / HEIGHT


Things = dict[str, Thing | None]
"""Objects by name; None: not on the screen now."""


class ObjectFeatures(gym.Wrapper, abc.ABC):
    """Observations become float32 features within [-1, 1]; `info["objects"]` has the objects in pixels."""

    game: str
    names: tuple[str, ...]
    """What the features are."""

    def __init__(self, env: gym.Env, low: Array) -> None:
        super().__init__(env)
        require_game(env, self.game)
        self.observation_space = Box(low, np.ones_like(low), dtype=np.float32)
        self._low = low
        self._before: tuple[float, float] | None = None

    @abc.abstractmethod
    def objects(self, memory: Array) -> Things:
        """What is on the screen."""

    @abc.abstractmethod
    def _features(self, memory: Array, objects: Things, speed: tuple[float, float]) -> Array:
        """float32 [D], from the console's memory, the objects and the speed of the ball."""

    def reset(self, *, seed: int | None = None, options: Options = None) -> ResetReturn:
        """Begin an episode."""
        _, info = self.env.reset(seed=seed, options=options)
        self._before = None
        return self._see(info), info

    def step(self, action: Action) -> StepReturn:
        """Step and read the memory."""
        _, reward, terminated, truncated, info = self.env.step(action)
        return self._see(info), reward, terminated, truncated, info

    def _see(self, info: Info) -> Array:
        memory = ram(self)
        things = self.objects(memory)
        ball = things["ball"]
        now = ball.center if ball else None
        speed = (now[0] - self._before[0], now[1] - self._before[1]) if now and self._before else (0.0, 0.0)
        self._before = now
        info["objects"] = things
        return np.clip(self._features(memory, things, speed), self._low, 1)


def ram(env: gym.Env) -> Array:
    """The console's memory, int [128]."""
    memory: Array = arcade(env).ale.getRAM().astype(np.int64)
    return memory


def require_game(env: gym.Env, game: str) -> None:
    """ValueError for another game: addresses are those of one cartridge."""
    found = getattr(arcade(env), "_game", None)
    if found != game:
        raise ValueError(f"knows the memory of {game}, not of {found}")


class Pong:
    """Addresses in the memory of Pong (a height of 0 means that the object is not there), and sizes in pixels."""

    ENEMY_X, PLAYER_X, BALL_X, ENEMY_Y, PLAYER_Y, BALL_Y = 45, 46, 49, 50, 51, 54
    ENEMY_SCORE, PLAYER_SCORE = 13, 14
    TOP, BOTTOM = 34, 194
    """Lines of the field."""
    PADDLE, BALL = (4, 16), (2, 4)


class PongFeatures(ObjectFeatures):
    """Nine features: both paddles, the ball, its speed, and how far the ball is above or below the player's paddle."""

    game = "pong"
    names = (
        "player y", "enemy y", "ball is there", "ball x", "ball y", "ball speed x", "ball speed y", "ball below player",
        "score",
    )  # fmt: skip

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env, np.array([0, 0, 0, 0, 0, -1, -1, -1, -1], np.float32))

    def objects(self, memory: Array) -> Things:
        """Both paddles and the ball."""
        return pong_objects(memory)

    def _features(self, memory: Array, objects: Things, speed: tuple[float, float]) -> Array:
        player, enemy, ball = (objects[name] for name in ("player", "enemy", "ball"))
        player_y = player.center[1] if player else 0.0
        ball_x, ball_y = ball.center if ball else (0.0, 0.0)
        score = (int(memory[Pong.PLAYER_SCORE]) - int(memory[Pong.ENEMY_SCORE])) / 21
        return np.array(
            [player_y, enemy.center[1] if enemy else 0.0, ball is not None, ball_x, ball_y, speed[0] / SPEED,
             speed[1] / SPEED, ball_y - player_y if ball else 0.0, score],
            np.float32,
        )  # fmt: skip


def pong_objects(memory: Array) -> Things:
    """Paddles and ball of Pong; the memory runs up to one line ahead of the screen."""
    return {
        "player": _in_field(memory[Pong.PLAYER_X] - 48, memory[Pong.PLAYER_Y], 13, Pong.PADDLE),
        "enemy": _in_field(memory[Pong.ENEMY_X] - 48, memory[Pong.ENEMY_Y], 15, Pong.PADDLE),
        "ball": _in_field(memory[Pong.BALL_X] - 49, memory[Pong.BALL_Y], 14, Pong.BALL),
    }


def _in_field(x: int, y: int, offset: int, size: tuple[int, int]) -> Thing | None:
    """The part of an object inside the field, which is the part that is drawn."""
    top, bottom = max(int(y) - offset, Pong.TOP), min(int(y) - offset + size[1], Pong.BOTTOM)
    return Thing(int(x), top, size[0], bottom - top) if y and bottom > top else None


class Breakout:
    """Addresses in the memory of Breakout (a height of 0 means that there is no ball), and sizes in pixels."""

    LIVES, PADDLE_X, BALL_X, BALL_Y = 57, 72, 99, 101
    FIRST_BYTE = np.array([30, 24, 24, 24, 24, 18, 18, 18, 18, 12, 12, 6, 6, 6, 6, 0, 0, 0])
    MASKS = np.array([192, 192, 48, 12, 3, 3, 12, 48, 192, 48, 192, 192, 48, 12, 3, 3, 12, 48])
    """A brick is two bits of the playfield; by column from the left. The bytes of the rows follow, the lowest first."""
    ROWS, COLUMNS = 6, 18
    BRICKS = FIRST_BYTE[None, :] + np.arange(ROWS - 1, -1, -1)[:, None]
    """Address of each brick [row, column], from the top."""
    WALL_X, WALL_Y = 8, 57
    """Left upper corner of the wall."""
    PADDLE_Y, PADDLE, BALL = 189, (16, 4), (2, 4)


class BreakoutFeatures(ObjectFeatures):
    """Nine features of paddle, ball, lives and wall; with `bricks` 108 more: 1 where a brick stands, row by row."""

    game = "breakout"
    names = (
        "paddle x", "ball is there", "ball x", "ball y", "ball speed x", "ball speed y", "ball right of paddle",
        "lives", "bricks",
    )  # fmt: skip

    def __init__(self, env: gym.Env, bricks: bool = True) -> None:
        low = np.array([0, 0, 0, 0, -1, -1, -1, 0, 0], np.float32)
        wall = np.zeros(Breakout.ROWS * Breakout.COLUMNS, np.float32)
        super().__init__(env, np.concatenate([low, wall]) if bricks else low)
        self._bricks = bricks

    def objects(self, memory: Array) -> Things:
        """The paddle and the ball."""
        ball_y = int(memory[Breakout.BALL_Y])
        there = 0 < ball_y < HEIGHT - 9
        ball = Thing(int(memory[Breakout.BALL_X]) - 49, ball_y + 9, *Breakout.BALL) if there else None
        return {"paddle": Thing(int(memory[Breakout.PADDLE_X]) - 47, Breakout.PADDLE_Y, *Breakout.PADDLE), "ball": ball}

    def _features(self, memory: Array, objects: Things, speed: tuple[float, float]) -> Array:
        paddle, ball, standing = objects["paddle"], objects["ball"], wall(memory)
        paddle_x = paddle.center[0] if paddle else 0.0
        ball_x, ball_y = ball.center if ball else (0.0, 0.0)
        few = [
            paddle_x, ball is not None, ball_x, ball_y, speed[0] / SPEED, speed[1] / SPEED,
            ball_x - paddle_x if ball else 0.0, int(memory[Breakout.LIVES]) / 5, standing.mean(),
        ]  # fmt: skip
        return np.concatenate([few, standing.ravel()] if self._bricks else [few]).astype(np.float32)


def wall(memory: Array) -> Array:
    """bool [6, 18]: where a brick of Breakout stands."""
    standing: Array = (memory[Breakout.BRICKS] & Breakout.MASKS) != 0
    return standing
