"""Memory Gym beside other environments of the process, with true truncations, and the line without it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from envs.conftest import Make
from envs.test_contract import assert_same
from ludus.config.compose import find_targets, load
from ludus.config.schema import Environment
from ludus.envs.make import make_env, make_vector
from ludus.errors import ConfigError, EnvironmentFailed

NAMES = ("MortarMayhem", "MysteryPath", "SearingSpotlights")


def test_without_the_package_one_line_tells_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "memory_gym", None)
    monkeypatch.delitem(sys.modules, "ludus.envs.suites.memory_gym", raising=False)
    with pytest.raises(ConfigError) as caught:
        make_vector(Environment(id="MemoryGym/MysteryPath-v0"))
    assert "pip install --no-deps memory-gym" in caught.value.line() and "\n" not in caught.value.line()


class TestGames:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("memory_gym")

    @pytest.mark.parametrize("name", NAMES)
    def test_seeds_decide_everything_in_company(self, make: Make, name: str) -> None:
        """All draw on one screen: alone, in a vector, in another process, each must see its own pictures."""
        actions = np.random.default_rng(0).integers(3, size=(30, 3, 2))
        seen: list[dict[str, Any]] = []
        for fields in ({"num_envs": 3}, {"num_envs": 3, "vectorization": "async", "workers": 2}):
            env = make(f"MemoryGym/{name}-v0", **fields)
            obs = [env.reset([4, 5, 6]).copy(), *(env.step(action).obs.copy() for action in actions)]
            seen.append({"obs": np.stack(obs)})
        assert_same(*seen)
        alone = make(f"MemoryGym/{name}-v0", num_envs=1)
        np.testing.assert_array_equal(alone.reset([5])[0], seen[0]["obs"][0, 1])
        np.testing.assert_array_equal(alone.step(actions[0, [1]]).obs[0], seen[0]["obs"][1, 1])
        assert alone.observation_space.shape == (3, 84, 84)

    def test_closing_one_leaves_the_others_their_screen(self) -> None:
        one, other = (make_env(Environment(id="MemoryGym/MysteryPath-v0")) for _ in range(2))
        one.reset(seed=0), other.reset(seed=0)
        one.close()
        assert other.step(np.array([0, 0]))[0].any()

    def test_the_end_of_time_is_no_end_of_the_game(self) -> None:
        env = make_env(Environment(id="MemoryGym/GridMysteryPath-v0"))
        env.reset(seed=0)
        flags = [env.step(0)[2:4] for _ in range(128)]
        assert flags == [(False, False)] * 127 + [(False, True)]

    def test_parameters(self) -> None:
        shown, hidden = (
            make_env(Environment(id="MemoryGym/MysteryPath-v0", kwargs={"parameters": {"show_goal": goal}}))
            for goal in (True, False)
        )
        assert (shown.reset(seed=0)[0] != hidden.reset(seed=0)[0]).any()
        with pytest.raises(EnvironmentFailed, match="did you mean 'show_goal'"):
            make_env(Environment(id="MemoryGym/MysteryPath-v0", kwargs={"parameters": {"show_goals": True}}))

    def test_configs(self) -> None:
        targets = {target.spec for target in find_targets("MemoryGym")}
        assert {f"MemoryGym-{name}-v0:ppo" for name in NAMES} <= targets
        for name in NAMES:
            config = load(f"MemoryGym-{name}-v0:ppo").config
            assert config.environment.id == f"MemoryGym/{name}-v0" and config.environment.reward_threshold is not None
            assert config.network.memory.name == "gru" and config.algorithm.config.gamma.at(0, 1) == 0.995

    def test_what_is_shown_stands_upright(self) -> None:
        env = make_env(Environment(id="MemoryGym/MysteryPath-v0"), render_mode="rgb_array")
        obs, _ = env.reset(seed=0)
        np.testing.assert_array_equal(np.asarray(env.render()), np.moveaxis(obs, 0, -1).swapaxes(0, 1))

    def test_episodes_are_saved_by_replay(self, make: Make) -> None:
        for name in NAMES:
            env = make(f"MemoryGym/{name}-v0", num_envs=2)
            assert env.choose_snapshot_method() == "replay", env.refused
