"""MinAtar's games: equal to the package's own environment, exact to save, and the line without the package."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from envs.conftest import Make
from envs.test_contract import assert_same, play
from ludus.archive.tree import flatten, unflatten
from ludus.config.compose import find_targets, load
from ludus.config.schema import Environment
from ludus.envs.make import make_env, make_vector
from ludus.envs.vector import VectorEnv
from ludus.errors import ConfigError, EnvironmentFailed

GAMES = {"Asterix": 5, "Breakout": 3, "Freeway": 3, "Seaquest": 6, "SpaceInvaders": 4}
"""Actions that matter in each game."""
LONG = {"Freeway": 2_600}
"""Steps until every game has ended once; 300 for the others."""


def test_without_the_package_one_line_tells_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minatar", None)
    monkeypatch.delitem(sys.modules, "ludus.envs.suites.minatar", raising=False)
    with pytest.raises(ConfigError) as caught:
        make_vector(Environment(id="MinAtar/Breakout-v1"))
    assert caught.value.line().endswith("pip install 'ludus-rl[minatar]'") and "\n" not in caught.value.line()


class TestGames:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("minatar")

    @pytest.mark.parametrize("name", GAMES)
    def test_spaces(self, make: Make, name: str) -> None:
        channels = {"Asterix": 4, "Breakout": 4, "Freeway": 7, "Seaquest": 10, "SpaceInvaders": 6}[name]
        for version, actions in enumerate((6, GAMES[name])):
            env = make(f"MinAtar/{name}-v{version}", vectorization="auto")
            assert env.backend == "native" and env.action_space == gym.spaces.Discrete(actions)
            assert env.observation_space.shape == (channels, 10, 10) and env.observation_space.dtype == np.uint8
            assert env.observation_space.high.max() == 1 and env.max_episode_steps == 5_000

    @pytest.mark.parametrize("sticky", [0.0, 0.3])
    @pytest.mark.parametrize("name", GAMES)
    def test_the_rules_are_those_of_minatar(self, make: Make, name: str, sticky: float) -> None:
        """Its own `Environment` beside ours, seeded and without a last action at the beginning of every episode."""
        import minatar

        game = "space_invaders" if name == "SpaceInvaders" else name.lower()
        for ramping in (True, False):
            theirs = minatar.Environment(game, sticky_action_prob=sticky, difficulty_ramping=ramping)
            kwargs = {"sticky_action_prob": sticky, "difficulty_ramping": ramping}
            ours = make(f"MinAtar/{name}-v0", vectorization="native", num_envs=1, kwargs=kwargs)
            stream, rng, ends = gym.utils.seeding.np_random(5)[0], np.random.default_rng(0), 0

            def begin(theirs: Any = theirs, stream: Any = stream) -> np.ndarray:
                theirs.seed(int(stream.integers(2**32)))
                theirs.last_action = 0
                theirs.reset()
                return theirs.state().transpose(2, 0, 1)

            np.testing.assert_array_equal(ours.reset([5])[0], begin())
            for action in rng.integers(6, size=LONG.get(name, 300)):
                reward, ended = theirs.act(action)
                last = theirs.state().transpose(2, 0, 1)
                result = ours.step(np.array([action]))
                assert (result.reward[0], result.terminated[0]) == (reward, ended)
                if ended:
                    ends += 1
                    assert result.final_obs is not None
                    np.testing.assert_array_equal(result.final_obs[0], last)
                    last = begin()
                np.testing.assert_array_equal(result.obs[0], last)
            assert ends

    def test_every_object_is_drawn(self) -> None:
        """Long games of Seaquest without its dangers: gauges, divers, bullets of both sides, trails."""
        from ludus.envs.suites.minatar import MinAtar

        task, rng = MinAtar(1, "seaquest"), np.random.default_rng(0)
        task.begin(0, rng)
        (core,), seen = task._cores, np.zeros(10, bool)
        for action in rng.choice([1, 2, 3, 4, 4, 5], size=4_000):
            core.terminal, core.oxygen = False, max(core.oxygen, 60)
            task.step(np.array([action]))
            np.testing.assert_array_equal(task.obs[0], core.state().transpose(2, 0, 1))
            seen |= task.obs[0].any((1, 2))
        assert seen.all()

    def test_the_least_actions_are_chosen_from_all(self, make: Make) -> None:
        kwargs = {"sticky_action_prob": 0.0}
        all_of_them, least = (make(f"MinAtar/Breakout-v{v}", num_envs=1, kwargs=kwargs) for v in (0, 1))
        np.testing.assert_array_equal(all_of_them.reset([3]), least.reset([3]))
        for button, action in ((1, 1), (0, 0), (3, 2), (3, 2)):  # left, nothing, right, right
            np.testing.assert_array_equal(all_of_them.step(np.array([button])).obs, least.step(np.array([action])).obs)
        assert least.step(np.array([0])).obs[0, 0, 9].argmax() == 4 - 1 + 2

    def test_a_sticky_step_repeats_the_last_action(self, make: Make) -> None:
        kwargs = {"sticky_action_prob": 1.0}
        env = make("MinAtar/Breakout-v1", num_envs=1, kwargs=kwargs, vectorization="native")
        env.reset([0])
        places = {int(env.step(np.array([1])).obs[0, 0, 9].argmax()) for _ in range(4)}
        assert places == {4}, "nothing was the last action when it began"
        some = make("MinAtar/Asterix-v1", num_envs=400, vectorization="native", kwargs={"sticky_action_prob": 0.25})
        some.reset(range(400))
        still = some.step(np.full(400, 1)).obs[:, 0, 5, 5].mean()  # the player begins there and goes left
        assert still == pytest.approx(0.25, abs=0.07)

    @pytest.mark.parametrize("name", GAMES)
    def test_the_native_backend_is_bit_identical_to_single_environments(self, make: Make, name: str) -> None:
        seeds = [3, 1, 4]
        for fields in ({}, {"max_episode_steps": 7}):
            one, two = (make(f"MinAtar/{name}-v1", vectorization=b, num_envs=3, **fields) for b in ("sync", "native"))
            assert_same(play(one, 150, seeds=seeds), play(two, 150, seeds=seeds))
            assert_same(play(one, 20, seed=1, seeds=seeds[::-1]), play(two, 20, seed=1, seeds=seeds[::-1]))

    def test_an_episode_follows_from_its_seed_alone(self, make: Make) -> None:
        for name in GAMES:
            env = make(f"MinAtar/{name}-v1", num_envs=2, vectorization="native")
            first = play(env, 60, seeds=[8, 9])
            assert_same(first, play(env, 60, seeds=[8, 9]))
            assert any((play(env, 60, seeds=[8 + i, 9 + i])["obs"] != first["obs"]).any() for i in (1, 2)), name

    @pytest.mark.parametrize("backend", ["sync", "native"])
    @pytest.mark.parametrize("name", GAMES)
    def test_saved_exactly_through_a_checkpoint(self, make: Make, name: str, backend: str) -> None:
        fields = {"num_envs": 4, "max_episode_steps": 90, "kwargs": {"sticky_action_prob": 0.5}}
        one, other = (make(f"MinAtar/{name}-v1", vectorization=backend, **fields) for _ in "ab")
        assert one.choose_snapshot_method() == "api", one.refused
        play(one, 130), play(other, 5)
        saved = unflatten(*flatten(one.snapshot()))
        np.testing.assert_array_equal(other.restore(saved), one.restore(one.snapshot()))
        assert_same(_go_on(one), _go_on(other))
        np.testing.assert_array_equal(other.restore(saved), saved["obs"] if backend == "sync" else saved["task"]["obs"])

    def test_a_snapshot_of_another_game_is_refused(self) -> None:
        from ludus.envs.suites.minatar import MinAtar

        one, other = MinAtar(1, "breakout"), MinAtar(1, "asterix")  # observations of one shape
        with pytest.raises(ValueError, match="ball_x"):
            other.load(one.save())

    def test_the_end_of_time_is_no_end_of_the_game(self, make: Make) -> None:
        env = make("MinAtar/Freeway-v1", num_envs=1, vectorization="native", max_episode_steps=30)
        env.reset([0])
        flags = [(bool(r.terminated[0]), bool(r.truncated[0])) for r in (env.step(np.zeros(1, int)) for _ in range(30))]
        assert flags == [(False, False)] * 29 + [(False, True)]

    def test_wrong_arguments(self) -> None:
        with pytest.raises(EnvironmentFailed, match="is a probability, got 2"):
            make_env(Environment(id="MinAtar/Breakout-v1", kwargs={"sticky_action_prob": 2.0}))
        with pytest.raises(EnvironmentFailed, match="did you mean 'breakout'"):
            make_env(Environment(id="MinAtar/Breakout-v1", kwargs={"game": "breakouts"}))

    @pytest.mark.parametrize("name", GAMES)
    def test_frames_show_the_cells(self, make: Make, name: str) -> None:
        """Alike on both backends; equal cells have equal colours, and an empty one is black."""
        one, two = (
            make(f"MinAtar/{name}-v1", vectorization=b, num_envs=2, render_mode="rgb_array") for b in ("sync", "native")
        )
        play(one, 40), play(two, 40)
        frame = two.render(1)
        np.testing.assert_array_equal(one.render(1), frame)
        assert frame.shape == (320, 320, 3) and frame.dtype == np.uint8
        cells = frame.reshape(10, 32, 10, 32, 3)
        assert (cells == cells[:, :1, :, :1]).all()
        obs = two.step(np.zeros(2, int)).obs[0]
        kinds = np.unique((obs * np.arange(1, len(obs) + 1)[:, None, None]).max(0))
        colours = np.unique(two.render(0).reshape(-1, 3), axis=0)
        assert len(kinds) == len(colours) and not colours[0].any() and (colours[1:].max(1) > 90).all()

    def test_the_last_frame_of_an_episode(self, make: Make) -> None:
        one, two = (
            make("MinAtar/Breakout-v1", vectorization=b, num_envs=1, render_mode="rgb_array")
            for b in ("sync", "native")
        )
        for env in (one, two):
            env.reset([0])
            while not env.step(np.zeros(1, int)).terminated[0]:
                pass
        np.testing.assert_array_equal(one.render(final=True), two.render(final=True))
        assert (two.render(final=True) != two.render()).any()

    def test_configs(self) -> None:
        targets = {target.spec for target in find_targets("MinAtar")}
        for name, actions in GAMES.items():
            for algorithm in ("ppo", "dqn"):
                assert f"MinAtar-{name}-v1:{algorithm}" in targets
                config = load(f"MinAtar/{name}-v1:{algorithm}").config
                assert config.environment.id == f"MinAtar/{name}-v1" and config.network.encoder.name == "minatar"
            with make_vector(config.environment) as env:
                assert env.action_space.n == actions  # type: ignore[attr-defined]


def _go_on(env: VectorEnv) -> dict[str, np.ndarray]:
    rng, seen = np.random.default_rng(9), []
    for _ in range(150):
        result = env.step(rng.integers(env.action_space.n, size=env.num_envs))  # type: ignore[attr-defined]
        seen.append([part.copy() for part in result[:4]])
    return {str(i): np.stack(parts) for i, parts in enumerate(zip(*seen, strict=True))}
