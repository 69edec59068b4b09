"""Pictures of CartPole, and CarRacing as World Models drives it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ludus.config.schema import Environment
from ludus.envs.make import make_env
from ludus.envs.wrappers.drawings import draw_cart_pole
from ludus.envs.wrappers.time import StopWithoutReward

CARTPOLE = gym.make("CartPole-v1").observation_space


def drawn(*rows: tuple[float, float], size: int = 32) -> np.ndarray:
    """Pictures of (position, angle)."""
    obs = np.array([[x, 9.0, angle, -9.0] for x, angle in rows], np.float32)
    return draw_cart_pole.conversion(CARTPOLE, size)(obs).astype(int)  # type: ignore[attr-defined]


def test_a_picture_shows_positions_and_no_velocities() -> None:
    obs = np.zeros((2, 4), np.float32)
    obs[1, [1, 3]] = 5.0
    one, other = draw_cart_pole.conversion(CARTPOLE, 32)(obs)  # type: ignore[attr-defined]
    assert np.array_equal(one, other) and one.shape == (1, 32, 32) and one.dtype == np.uint8
    middle, right, tilted = drawn((0.0, 0.0), (0.6, 0.0), (0.0, 0.1))
    assert np.array_equal(middle, middle[..., ::-1])  # it stands in the middle
    assert np.array_equal(np.roll(middle, 4, -1), right)  # 0.6 of a track of 4.8 are 4 of 32 pixels
    columns = np.arange(32)
    assert (tilted[0, 5] * columns).sum() / tilted[0, 5].sum() > 16.5  # the tip leans to the right
    assert np.array_equal(drawn((-0.6, -0.1))[0], drawn((0.6, 0.1))[0][..., ::-1])


def test_a_picture_tells_parts_of_a_pixel() -> None:
    assert (drawn((0.0, 0.0)) != drawn((0.0, 0.005))).any()


@pytest.mark.parametrize(
    ("space", "size"), [(CARTPOLE, 11), (gym.spaces.Box(-1, 1, (3,)), 32), (gym.spaces.Discrete(4), 32)]
)
def test_what_cannot_be_drawn_is_refused(space: gym.Space, size: int) -> None:
    with pytest.raises(ValueError, match=r"draws CartPole|at least 12"):
        draw_cart_pole.conversion(space, size)  # type: ignore[attr-defined]


class Paid(gym.Env):
    """Pays what is asked for."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(-9, 9, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), float(action[0]), False, False, {}


def test_an_episode_without_reward_is_truncated() -> None:
    env = StopWithoutReward(Paid(), steps=2)
    for _ in range(2):
        env.reset()
        ends = [env.step([reward])[2:4] for reward in (-1.0, 1.0, 0.0, -1.0)]
        assert ends == [(False, False)] * 3 + [(False, True)]
    with pytest.raises(ValueError, match="at least 1"):
        StopWithoutReward(Paid(), steps=0)


class TestCarRacing:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("Box2D", exc_type=ImportError)

    def car(self, *wrappers: dict[str, Any], **kwargs: Any) -> gym.Env:
        return make_env(Environment(id="CarRacing-v3", wrappers=wrappers, **kwargs))

    def test_frames_that_nobody_sees_are_not_drawn_and_nothing_else_is_different(self) -> None:
        found = []
        for skip in ("frame_skip", "car_skip"):
            env = self.car({"id": skip, "skip": 3}, max_episode_steps=8)
            obs, _ = env.reset(seed=4)
            rows: list[Any] = [obs[:, :84]]
            for action in ([0.0, 0.5, 0.0], [0.3, 1.0, 0.0], [-1.0, 0.0, 0.5]):
                obs, *more, _ = env.step(np.array(action, np.float32))
                rows += [obs[:, :84], *more]  # the panel's score is that of before the step, or of after it
            found.append(rows)
            assert more[-1]  # the third step is cut by the time limit
        assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))

    def test_pedals(self) -> None:
        env = self.car({"id": "car_controls"})
        assert env.action_space == gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
        controls = env
        while type(controls).__name__ != "CarControls":
            controls = controls.env  # type: ignore[attr-defined]
        for given, taken in (([0, 0, 0], [0, 0.5, 0]), ([-1, -1, -1], [-1, 0, 0]), ([0.5, 1, 0.4], [0.5, 1, 0.4])):
            assert controls.action(np.array(given, np.float32)).tolist() == pytest.approx(taken)  # type: ignore[attr-defined]

    def test_other_frames_and_other_actions_are_refused(self) -> None:
        from ludus.errors import LudusError

        with pytest.raises(LudusError, match="before every wrapper"):
            self.car({"id": "crop", "bottom": 12}, {"id": "car_skip"})
        with pytest.raises(LudusError, match="steering"):
            make_env(Environment(id="CartPole-v1", wrappers=({"id": "car_controls"},)))
