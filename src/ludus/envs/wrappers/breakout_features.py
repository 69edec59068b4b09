"""Breakout as numbers instead of pixels."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from ludus.envs.wrappers._objects import HEIGHT, ObjectFeatures, Thing
from ludus.registry import WRAPPERS
from ludus.types import Array

LIVES, PADDLE_X, BALL_X, BALL_Y = 57, 72, 99, 101
"""Addresses in the console's memory; a ball's height of 0 means that there is none."""
FIRST_BYTE = np.array([30, 24, 24, 24, 24, 18, 18, 18, 18, 12, 12, 6, 6, 6, 6, 0, 0, 0])
MASKS = np.array([192, 192, 48, 12, 3, 3, 12, 48, 192, 48, 192, 192, 48, 12, 3, 3, 12, 48])
"""A brick is two bits of the playfield; by column from the left. The bytes of the rows follow, the lowest row first."""
ROWS, COLUMNS = 6, 18
BRICKS = FIRST_BYTE[None, :] + np.arange(ROWS - 1, -1, -1)[:, None]
"""Address of each brick [row, column], from the top."""
WALL_X, WALL_Y, BRICK = 8, 57, (8, 6)
"""Left upper corner of the wall and size of a brick in pixels."""
PADDLE_Y, PADDLE, BALL = 189, (16, 4), (2, 4)
SPEED = 16 / 160


@WRAPPERS.register("breakout_features")
@WRAPPERS.register("BreakoutFeatures")
@WRAPPERS.register("BreakoutV5_FeatureExtractor")
class BreakoutFeatures(ObjectFeatures):
    """Nine features of paddle, ball, lives and wall; with `bricks` 108 more: 1 where a brick stands, row by row."""

    game = "breakout"
    names = (
        "paddle x", "ball is there", "ball x", "ball y", "ball speed x", "ball speed y", "ball right of paddle",
        "lives", "bricks",
    )  # fmt: skip

    def __init__(self, env: gym.Env, bricks: bool = True) -> None:
        low = np.array([0, 0, 0, 0, -1, -1, -1, 0, 0], np.float32)
        super().__init__(env, np.concatenate([low, np.zeros(ROWS * COLUMNS, np.float32)]) if bricks else low)
        self._bricks = bricks

    def objects(self, ram: Array) -> dict[str, Thing | None]:
        ball = Thing(int(ram[BALL_X]) - 49, int(ram[BALL_Y]) + 9, *BALL) if 0 < ram[BALL_Y] < HEIGHT - 9 else None
        return {"paddle": Thing(int(ram[PADDLE_X]) - 47, PADDLE_Y, *PADDLE), "ball": ball}

    def features(self, ram: Array, objects: dict[str, Thing | None], speed: tuple[float, float]) -> Array:
        paddle, ball, standing = objects["paddle"], objects["ball"], wall(ram)
        paddle_x = paddle.center[0] if paddle else 0.0
        ball_x, ball_y = ball.center if ball else (0.0, 0.0)
        few = [
            paddle_x,
            ball is not None,
            ball_x,
            ball_y,
            speed[0] / SPEED,
            speed[1] / SPEED,
            ball_x - paddle_x if ball else 0.0,
            int(ram[LIVES]) / 5,
            standing.mean(),
        ]
        return np.concatenate([few, standing.ravel()] if self._bricks else [few]).astype(np.float32)


def wall(ram: Array) -> Array:
    """bool [6, 18]: where a brick stands."""
    standing: Array = (ram[BRICKS] & MASKS) != 0
    return standing
