"""stable-retro: one emulator per process, taken in turns; states to the bit; a clear line without a ROM."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from envs.conftest import Make
from ludus.config.compose import load
from ludus.config.schema import Environment
from ludus.envs.make import make_env, make_vector
from ludus.envs.wrappers.shaping import RetroMarioShaping
from ludus.errors import ConfigError
from ludus.registry import WRAPPERS

AIRSTRIKER = "Retro/Airstriker-Genesis"
SMALL: dict[str, Any] = {"grayscale_obs": True, "resize_obs": 42}


class Mario(gym.Env):
    """Tells what the game would count."""

    game = "SuperMarioBros-Nes-v0"
    observation_space, action_space = gym.spaces.Discrete(1), gym.spaces.Discrete(1)
    START = {"xscrollHi": 0, "xscrollLo": 250, "score": 0, "coins": 0, "levelHi": 0, "levelLo": 0, "lives": 2}

    def __init__(self, *changes: dict[str, int]) -> None:
        self._infos = [self.START, *({**self.START, **change} for change in changes)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        info = dict(self._infos[self._at])
        self._at += 1
        return 0, -255.0, False, False, info


def shaped(*changes: dict[str, int], **weights: float) -> list[float]:
    none = dict.fromkeys(("progress", "score", "coin", "level", "death", "step"), 0.0)
    env = RetroMarioShaping(Mario(*changes), **{**none, **weights})
    env.reset()
    paid = [env.step(0) for _ in range(1 + len(changes))]
    assert all(step[4]["raw_reward"] == -255 for step in paid)
    return [step[1] for step in paid]


def test_mario_is_paid_for_getting_on() -> None:
    page = {"xscrollHi": 1, "xscrollLo": 4}
    assert shaped(page, progress=0.1) == [0, pytest.approx(1.0)]  # over the edge of a page
    assert shaped(page, {}, progress=1.0) == [0, 10, -10]
    assert shaped({"xscrollHi": 9}, progress=1.0) == [0, 0]  # nobody runs nine pages in a step
    assert shaped({"score": 100}, score=0.01) == [0, pytest.approx(1.0)]
    assert shaped({"coins": 2}, coin=3.0) == [0, 6]
    assert shaped({"levelLo": 1}, {"levelHi": 1}, level=5.0) == [0, 5, 15]
    assert shaped({"lives": 1}, {"lives": 2}, death=-25.0) == [0, -25, 0]
    assert shaped({}, step=-0.5) == [-0.5, -0.5]


def test_the_mario_shaper_has_its_names_and_refuses_others() -> None:
    assert WRAPPERS["RetroSuperMarioBros_RewardShaper"] is WRAPPERS["retro_mario_shaping"] is RetroMarioShaping
    with pytest.raises(ConfigError, match="is for Retro/SuperMarioBros-Nes, not for CartPoleEnv"):
        make_env(Environment(id="CartPole-v1", wrappers=["retro_mario_shaping"]))


class TestEmulator:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("stable_retro")

    def test_without_a_rom_one_line_tells_what_to_do(self) -> None:
        config = load("Retro-SuperMarioBros-Nes:ppo").config.environment
        for backend in ("auto", "sync"):
            with pytest.raises(ConfigError) as caught:
                make_vector(config, num_envs=2, vectorization=backend)
            line = caught.value.line()
            assert "SuperMarioBros-Nes" in line and "python -m stable_retro.import" in line and "\n" not in line

    def test_what_a_game_has_not_is_named(self) -> None:
        for kwargs in ({"state": "Level9"}, {"scenario": "x"}):
            with pytest.raises(ConfigError, match="Airstriker-Genesis-v0' has no '"):
                make_env(Environment(id=AIRSTRIKER, kwargs=kwargs))
        with pytest.raises(ConfigError, match="use 'Retro/Airstriker-Genesis'"):
            make_env(Environment(id=f"{AIRSTRIKER}-v0"))

    def test_auto_gives_every_environment_a_process(self, make: Make) -> None:
        env = make(AIRSTRIKER, vectorization="auto", num_envs=3, workers=None, **SMALL)
        assert env.backend == "async" and len(env._workers) == 3  # type: ignore[attr-defined]
        assert make(AIRSTRIKER, vectorization="auto", num_envs=1, workers=None).backend == "sync"

    def test_environments_of_one_process_take_turns(self, make: Make) -> None:
        """Two games each, one at a time and both at once: the same screens."""
        rng = np.random.default_rng(0)
        actions = rng.integers(2, size=(40, 2, 12))
        both = make(AIRSTRIKER, num_envs=2, **SMALL)
        both.reset([0, 1])
        together = np.stack([both.step(action).obs.copy() for action in actions])
        for i in range(2):
            one = make(AIRSTRIKER, num_envs=1, **SMALL)
            one.reset([i])
            np.testing.assert_array_equal(np.stack([one.step(a[[i]]).obs[0].copy() for a in actions]), together[:, i])
        assert (together[-1, 0] != together[-1, 1]).any()

    def test_other_settings_may_take_a_turn(self) -> None:
        image, ram = (make_env(Environment(id=AIRSTRIKER, kwargs={"observations": o})) for o in ("image", "ram"))
        first, _ = image.reset(seed=0)
        assert ram.reset(seed=0)[0].ndim == 1 and first.shape == (3, 224, 320)
        image.step(np.zeros(12, int)), ram.step(np.zeros(12, int))
        np.testing.assert_array_equal(image.reset()[0], first)
        image.close(), ram.close(), image.close()
        again = make_env(Environment(id=AIRSTRIKER))
        np.testing.assert_array_equal(again.reset(seed=1)[0], first)  # the emulator was given back
        again.close()

    def test_buttons(self) -> None:
        spaces = {"filtered": gym.spaces.MultiBinary(12), "multi_discrete": gym.spaces.MultiDiscrete([3, 3, 14])}
        for actions, space in spaces.items():
            env = make_env(Environment(id=AIRSTRIKER, kwargs={"actions": actions}))
            assert env.action_space == space and env.unwrapped.buttons[0] == "B"  # type: ignore[attr-defined]
            env.close()

    def test_states_are_saved_to_the_bit(self, make: Make) -> None:
        one, other = (make(AIRSTRIKER, num_envs=2, **SMALL) for _ in range(2))
        assert one.choose_snapshot_method() == other.choose_snapshot_method() == "api"
        one.reset([0, 1]), other.reset([2, 3])
        rng = np.random.default_rng(0)
        for action in rng.integers(2, size=(30, 2, 12)):
            one.step(action)
        state = one.snapshot()
        actions = rng.integers(2, size=(40, 2, 12))
        expected = [(r.obs.copy(), r.reward.copy()) for r in map(one.step, actions)]
        other.restore(state)
        for action, (obs, reward) in zip(actions, expected, strict=True):
            result = other.step(action)
            np.testing.assert_array_equal(result.obs, obs)
            np.testing.assert_array_equal(result.reward, reward)

    def test_frames(self) -> None:
        env = make_env(Environment(id=AIRSTRIKER), render_mode="rgb_array")
        env.reset(seed=0)
        obs = env.step(np.zeros(12, int))[0]
        np.testing.assert_array_equal(np.asarray(env.render()), np.moveaxis(obs, 0, -1) if obs.shape[0] == 3 else obs)
        env.close()


@pytest.mark.parametrize("game", ["/tmp/Airstriker-Genesis-v0", "../stable/Airstriker-Genesis-v0"])
def test_a_game_is_no_folder_from_elsewhere(game: str) -> None:
    """Its scenario may contain programs."""
    pytest.importorskip("stable_retro")
    with pytest.raises(ConfigError, match="is no name of a game"):
        make_env(Environment(id=AIRSTRIKER, kwargs={"game": game}))
