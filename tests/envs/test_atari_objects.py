"""Objects read from the console's memory are where the pixels are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ludus.config.schema import Environment
from ludus.envs.make import make_env
from ludus.envs.wrappers.atari_objects import Breakout, Pong, Thing

pytest.importorskip("ale_py")

ORANGE, GREEN, WHITE, RED = (213, 130, 74), (92, 186, 92), (236, 236, 236), (200, 72, 72)
NEAR = 2
"""Pixels: the memory runs ahead of the screen within a frame."""


def make(game: str, **fields: Any) -> Any:
    kwargs = {"obs_type": "objects", "frameskip": 1, "repeat_action_probability": 0.0}
    env = make_env(Environment(id=f"ALE/{game}-v5", kwargs=kwargs, **fields))
    env.reset(seed=0)
    return env


def painted(screen: np.ndarray, colour: tuple[int, int, int], top: int, bottom: int) -> Thing | None:
    """The box around the pixels of a colour between two lines, without the walls at the sides."""
    ys, xs = np.nonzero((screen[top:bottom, 8:152] == colour).all(-1))
    if not len(ys):
        return None
    return Thing(int(xs.min()) + 8, int(ys.min()) + top, int(np.ptp(xs)) + 1, int(np.ptp(ys)) + 1)


def near(told: Thing | None, seen: Thing) -> bool:
    return told is not None and abs(told.x - seen.x) <= NEAR and abs(told.y - seen.y) <= NEAR


def test_pong_is_where_the_pixels_are() -> None:
    env, rng = make("Pong"), np.random.default_rng(0)
    found = {"player": [], "enemy": [], "ball": []}  # type: ignore[var-annotated]
    action = 0
    for step in range(900):
        action = int(rng.integers(6)) if step % 8 == 0 else action
        obs, _, terminated, _, info = env.step(action)
        assert env.observation_space.contains(obs) and not terminated
        screen = env.unwrapped.ale.getScreenRGB()
        for name, colour in (("enemy", ORANGE), ("player", GREEN), ("ball", WHITE)):
            seen = painted(screen, colour, Pong.TOP, Pong.BOTTOM)
            if seen is not None and (name != "ball" or seen.width == 2):
                found[name].append(near(info["objects"][name], seen))
        ball = info["objects"]["ball"]
        assert obs[2] == (ball is not None)
    assert all(len(values) > 300 and np.mean(values) > 0.97 for values in found.values())


def test_pong_features_say_what_they_are_called() -> None:
    env = make("Pong")
    assert len(env.names) == 9 == env.observation_space.shape[0]
    before: Any = None
    for _ in range(160):
        obs, *_, info = env.step(2)  # RIGHT is up
        told = dict(zip(env.names, obs.tolist(), strict=True))
        ball = info["objects"]["ball"]
        if ball is not None and before is not None:
            assert told["ball speed x"] == pytest.approx((ball.center[0] - before.center[0]) / 0.1, abs=1e-5)
            assert told["ball below player"] == pytest.approx(told["ball y"] - told["player y"], abs=1e-5)
        before = ball
    assert told["player y"] < 0.25
    while env.unwrapped.ale.getRAM()[Pong.ENEMY_SCORE] == 0:
        obs = env.step(0)[0]
    assert obs[8] == pytest.approx(-1 / 21)


def test_breakout_is_where_the_pixels_are() -> None:
    env, rng = make("Breakout"), np.random.default_rng(0)
    ball, paddle, bricks = [], [], []
    top, left = Breakout.WALL_Y + 3, Breakout.WALL_X + 4
    rows = [top + 6 * row for row in range(Breakout.ROWS)]
    columns = [left + 8 * column for column in range(Breakout.COLUMNS)]
    before = None
    for _ in range(1500):
        things = env.objects(env.unwrapped.ale.getRAM().astype(int))
        at = things["ball"]
        right = at is not None and at.x > things["paddle"].x + 6 + rng.integers(-5, 6)
        action = 1 if at is None else 2 if right else 3
        obs, _, terminated, _, info = env.step(action)
        assert env.observation_space.contains(obs)
        if terminated:
            env.reset()
        screen, told = env.unwrapped.ale.getScreenRGB(), info["objects"]
        flying = painted(screen, RED, 95, 185)
        if flying is not None and (flying.width, flying.height) == Breakout.BALL:
            ball.append(near(told["ball"], flying))
        bat = painted(screen, RED, 190, 192)
        if bat is not None and bat.width == 16:
            paddle.append(abs(told["paddle"].x - bat.x) <= NEAR)
        if at is None or at.y > 110:  # no ball before the wall
            drawn = screen[np.ix_(rows, columns)].any(-1)
            if before is not None:
                bricks.append((obs[9:].reshape(6, 18) == before).all() or (obs[9:].reshape(6, 18) == drawn).all())
            before = drawn
    assert np.mean(ball) > 0.97 and np.mean(paddle) > 0.9 and np.mean(bricks) > 0.97
    assert min(len(ball), len(paddle), len(bricks)) > 400 and (before == 0).sum() > 3
    assert obs[8] == pytest.approx(obs[9:].mean()) and obs[7] * 5 == env.unwrapped.ale.lives()


def test_breakout_without_the_wall() -> None:
    env = make_env(Environment(id="ALE/Breakout-v5", wrappers=[{"id": "breakout_features", "bricks": False}]))
    obs, _ = env.reset(seed=0)
    assert obs.shape == (9,) and obs[7] == 1 and obs[8] == 1 and obs[1] == 0


def test_shaping_is_told_and_telescopes() -> None:
    """Sum of gamma^t * shaping = gamma^T * potential(last) - potential(first)."""
    env = make("Pong", wrappers=[{"id": "pong_shaping", "gamma": 0.9, "tracking_reward_scale": 2.0}])
    shaper = env
    start, total, discount = shaper.potential(None), 0.0, 1.0
    told = []
    for _ in range(200):
        _, reward, *_, info = env.step(2)
        assert reward == pytest.approx(info["raw_reward"] + info["shaping"])
        told.append(info["shaping"])
        total, discount = total + discount * info["shaping"], discount * 0.9
    assert total == pytest.approx(discount * shaper.potential(None) - start, abs=1e-9)
    assert min(told) < 0 < max(told) and -2 <= shaper.potential(None) <= 0
