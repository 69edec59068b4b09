"""Pong as a few numbers instead of pixels."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from ludus.envs.wrappers._objects import ObjectFeatures, Thing
from ludus.registry import WRAPPERS
from ludus.types import Array

ENEMY_X, PLAYER_X, BALL_X, ENEMY_Y, PLAYER_Y, BALL_Y = 45, 46, 49, 50, 51, 54
"""Addresses in the console's memory; a height of 0 means that the object is not there."""
ENEMY_SCORE, PLAYER_SCORE = 13, 14
TOP, BOTTOM = 34, 194
"""Lines of the field."""
PADDLE, BALL = (4, 16), (2, 4)
SPEED = 16 / 160
"""The ball does up to so much of the screen in four frames."""


@WRAPPERS.register("pong_features")
@WRAPPERS.register("PongFeatures")
@WRAPPERS.register("PongV5_FeatureExtractor")
class PongFeatures(ObjectFeatures):
    """Nine features: both paddles, the ball, its speed, and how far the ball is above or below the player's paddle."""

    game = "pong"
    names = (
        "player y", "enemy y", "ball is there", "ball x", "ball y", "ball speed x", "ball speed y", "ball below player",
        "score",
    )  # fmt: skip

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env, np.array([0, 0, 0, 0, 0, -1, -1, -1, -1], np.float32))

    def objects(self, ram: Array) -> dict[str, Thing | None]:
        return objects(ram)

    def features(self, ram: Array, objects: dict[str, Thing | None], speed: tuple[float, float]) -> Array:
        player, enemy, ball = (objects[name] for name in ("player", "enemy", "ball"))
        player_y = player.center[1] if player else 0.0
        ball_x, ball_y = ball.center if ball else (0.0, 0.0)
        return np.array(
            [
                player_y,
                enemy.center[1] if enemy else 0.0,
                ball is not None,
                ball_x,
                ball_y,
                speed[0] / SPEED,
                speed[1] / SPEED,
                ball_y - player_y if ball else 0.0,
                (int(ram[PLAYER_SCORE]) - int(ram[ENEMY_SCORE])) / 21,
            ],
            np.float32,
        )


def objects(ram: Array) -> dict[str, Thing | None]:
    """Where everything is; the memory runs up to one line ahead of the screen."""
    return {
        "player": _thing(ram[PLAYER_X] - 48, ram[PLAYER_Y], 13, PADDLE),
        "enemy": _thing(ram[ENEMY_X] - 48, ram[ENEMY_Y], 15, PADDLE),
        "ball": _thing(ram[BALL_X] - 49, ram[BALL_Y], 14, BALL),
    }


def _thing(x: int, y: int, offset: int, size: tuple[int, int]) -> Thing | None:
    """What sticks out of the field is not drawn."""
    top, bottom = max(int(y) - offset, TOP), min(int(y) - offset + size[1], BOTTOM)
    return Thing(int(x), top, size[0], bottom - top) if y and bottom > top else None
