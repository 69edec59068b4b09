"""The DeepMind wrappers one by one, the buttons, and that records are of whole games."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from envs.conftest import Make
from envs.probes import Counter
from envs.test_contract import assert_same, play
from envs.test_snapshot import assert_resumes
from ludus.config.compose import config_hash, load
from ludus.config.schema import Environment
from ludus.data.collector import Collector
from ludus.envs.make import make_env
from ludus.envs.spaces import wrapper_of
from ludus.envs.wrappers.atari import EpisodicLife
from ludus.errors import ConfigError
from ludus.experiment import build
from ludus.registry import WRAPPERS
from ludus.types import Acted
from support import close

pytest.importorskip("ale_py")

FRAMES: dict[str, Any] = {"frameskip": 1, "repeat_action_probability": 0.0}
FIRE = 1


def env(id: str, *wrappers: Any, **fields: Any) -> Any:
    return make_env(Environment(id=id, wrappers=wrappers, **fields))


def arcade(*wrappers: Any, game: str = "Breakout", **kwargs: Any) -> Any:
    return env(f"ALE/{game}-v5", *wrappers, kwargs={**FRAMES, **kwargs})


def refusal(id: str, wrapper: Any, **fields: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        env(id, wrapper, **fields)
    return caught.value.line()


def test_names_of_other_tools() -> None:
    pairs = {
        "noop_reset": ("NoopReset", "NoopResetEnv"),
        "fire_reset": ("FireReset", "FireResetEnv"),
        "max_and_skip": ("MaxAndSkip", "MaxAndSkipEnv", "MaxAndSkipObservation"),
        "frame_skip": ("FrameSkip", "FrameSkipWrapper"),
        "episodic_life": ("EpisodicLife", "EpisodicLifeEnv"),
        "sticky_actions": ("StickyActions", "StickyAction", "StickyActionsWrapper"),
        "ale_action_masking": ("ALEActionMasking", "ALEActionMaskingWrapper"),
        "pong_features": ("PongFeatures", "PongV5_FeatureExtractor"),
        "breakout_features": ("BreakoutFeatures", "BreakoutV5_FeatureExtractor"),
        "pong_shaping": ("PongShaping", "PongV5_RewardShaper"),
    }
    for name, aliases in pairs.items():
        assert all(WRAPPERS[alias] is WRAPPERS[name] for alias in aliases)


def test_what_does_not_fit_is_refused_by_name() -> None:
    assert "is for the games of ALE" in refusal("CartPole-v1", "fire_reset")
    assert "is for the games of ALE" in refusal("CartPole-v1", "episodic_life")
    assert "an action that does nothing" in refusal("Pendulum-v1", "noop_reset")
    assert "noop_max must be 0 or more" in refusal("CartPole-v1", {"id": "noop_reset", "noop_max": -1})
    assert "skip must be at least 1" in refusal("CartPole-v1", {"id": "frame_skip", "skip": 0})
    assert "needs images" in refusal("CartPole-v1", "max_and_skip")
    assert "ALE itself skips 4" in refusal("ALE/Pong-v5", "max_and_skip")
    assert "ALE itself skips 4" in refusal("ALE/Pong-v5", "frame_skip")
    assert "[0, 1)" in refusal("CartPole-v1", {"id": "sticky_actions", "probability": 1.0})
    assert "did you mean 'FIRE'?" in refusal("ALE/Pong-v5", {"id": "ale_action_masking", "actions": ["FIRES"]})
    assert "different names" in refusal("ALE/Pong-v5", {"id": "ale_action_masking", "actions": ["UP", "UP"]})
    assert "not of breakout" in refusal("ALE/Breakout-v5", "pong_features")
    assert "not of pong" in refusal("ALE/Pong-v5", "breakout_features")
    assert "not of breakout" in refusal("ALE/Breakout-v5", "pong_shaping")


def test_noops_are_up_to_so_many_and_follow_from_the_seed() -> None:
    def waited(count: int) -> list[int]:
        resets = [wrapped.reset(seed=0), *(wrapped.reset() for _ in range(count))]
        return [int(info["episode_frame_number"]) for _, info in resets]

    wrapped = arcade({"id": "noop_reset", "noop_max": 4})
    found = waited(25)
    assert set(found) == set(range(5)) and found[:6] == waited(5)
    assert arcade({"id": "noop_reset", "noop_max": 0}).reset(seed=0)[1]["episode_frame_number"] == 0


def test_an_episode_that_ends_while_waiting_begins_again() -> None:
    counter = WRAPPERS["noop_reset"](Counter(), noop_max=50)
    for seed in range(6):
        obs, _ = counter.reset(seed=seed)
        obs, *_ = counter.step(0)  # raises or counts wrongly in an episode that is over
        assert np.isfinite(obs).all()


def test_fire_is_pressed_where_there_is_such_a_button() -> None:
    plain, wrapped = arcade(), arcade("fire_reset")
    obs, info = wrapped.reset(seed=0)
    plain.reset(seed=0)
    np.testing.assert_array_equal(obs, plain.step(FIRE)[0])
    assert info["episode_frame_number"] == 1
    assert arcade("fire_reset", game="Freeway").reset(seed=0)[1]["episode_frame_number"] == 0


def test_the_brighter_of_the_last_two_frames_is_seen_and_rewards_are_summed() -> None:
    plain, wrapped = arcade(game="SpaceInvaders"), arcade("max_and_skip", game="SpaceInvaders")
    skipped = arcade({"id": "frame_skip", "skip": 3}, game="SpaceInvaders")
    for one in (plain, wrapped, skipped):
        one.reset(seed=0)
    rng, total, paid = np.random.default_rng(0), 0.0, 0.0
    for _ in range(150):
        action = int(rng.integers(6))
        frames = [plain.step(action) for _ in range(4)]
        obs, reward, *_ = wrapped.step(action)
        np.testing.assert_array_equal(obs, np.maximum(frames[2][0], frames[3][0]))
        total, paid = total + sum(float(frame[1]) for frame in frames), paid + reward
    assert total == paid > 0
    plain.reset(seed=0)
    seen = [plain.step(2) for _ in range(3)][-1][0]
    np.testing.assert_array_equal(skipped.step(2)[0], seen)


def test_a_random_skip_follows_the_seed() -> None:
    def lengths(seed: int) -> list[int]:
        env = make_env(Environment(id="CartPole-v1", frame_skip=(2, 5)))
        env.reset(seed=seed)
        return [int(env.step(i % 2)[1]) for i in range(6)]

    assert lengths(1) == lengths(1) != lengths(2)
    assert {2, 5} <= {skip for seed in range(8) for skip in lengths(seed)[:2]} <= {2, 3, 4, 5}
    for skip in (0, [3, 2], [0, 4]):
        assert "two rising numbers" in refusal("CartPole-v1", {"id": "frame_skip", "skip": skip})


@pytest.mark.parametrize("name", ["frame_skip", "max_and_skip"])
def test_skipping_stops_at_an_episodes_end(name: str) -> None:
    class Pictures(gym.Env):
        """Ends after the second frame, paying 1 each."""

        observation_space = gym.spaces.Box(0, 255, (2, 2), np.uint8)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.at = 0
            return np.zeros((2, 2), np.uint8), {}

        def step(self, action: int) -> Any:
            self.at += 1
            return np.full((2, 2), 10 - self.at, np.uint8), 1.0, self.at == 2, False, {}

    wrapped = WRAPPERS[name](Pictures(), skip=4)
    wrapped.reset()
    obs, reward, terminated, *_ = wrapped.step(0)
    assert reward == 2 and terminated and wrapped.unwrapped.at == 2
    assert obs.max() == (9 if name == "max_and_skip" else 8)


def test_a_lost_life_ends_an_episode_and_the_game_goes_on() -> None:
    wrapped = arcade("episodic_life", frameskip=4)
    life: Any = wrapper_of(wrapped, EpisodicLife)
    wrapped.reset(seed=0)
    lives, frame, games = [5], 0, 0
    while games == 0:
        obs, _, terminated, _, info = wrapped.step(FIRE)
        assert info["episode_frame_number"] > frame
        frame = info["episode_frame_number"]
        if terminated:
            lives.append(info["lives"])
            assert life.life_lost == (info["lives"] > 0)
            again, _ = wrapped.reset()
            if info["lives"]:
                np.testing.assert_array_equal(obs, again)  # the next life begins with what was seen last
            else:
                games += 1
                assert wrapped.unwrapped.ale.getEpisodeFrameNumber() == 0
    assert lives == [5, 4, 3, 2, 1, 0] and wrapped.unwrapped.ale.lives() == 5
    for _ in range(200):
        if wrapped.step(FIRE)[2]:
            break
    wrapped.reset(seed=3)  # a seed asks for a new game, whatever is left of this one
    assert wrapped.unwrapped.ale.lives() == 5 and wrapped.unwrapped.ale.getEpisodeFrameNumber() == 0


LIVES: dict[str, Any] = {"kwargs": {"repeat_action_probability": 0.0, "obs_type": "ram"}, "wrappers": ["episodic_life"]}


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_backends_say_which_episodes_were_lives(make: Make, backend: str) -> None:
    vector, single = make("ALE/Breakout-v5", num_envs=2, vectorization=backend, **LIVES), arcade(frameskip=4)
    vector.reset([0, 1])
    single.reset(seed=0)
    ends, games = 0, 0
    for _ in range(450):
        result = vector.step(np.full(2, FIRE))
        done = result.terminated | result.truncated
        over = result.over
        terminated = single.step(FIRE)[2]
        assert bool(over[0]) == terminated and not (over & ~done).any()
        ends, games = ends + int(done[0]), games + int(over[0])
        if terminated:
            single.reset()
    assert games >= 1 and ends >= 5 * games


FAST: dict[str, Any] = {"frameskip": 1, "obs_type": "grayscale", "repeat_action_probability": 0.0}
STACK = ["fire_reset", "max_and_skip", "episodic_life", "resize", "clip_reward", "frame_stack"]


class Serve:
    """Presses FIRE for ever, which no ball survives: a game of Breakout takes some 120 steps."""

    def initial_state(self, batch: int) -> Any:
        return ()

    def act(self, obs: np.ndarray, state: Any, first: np.ndarray) -> Any:
        action = np.full(len(obs), FIRE)
        return Acted(action, action, state, {})


@pytest.mark.parametrize("backend", ["sync", "native"])
def test_the_collector_records_whole_games_unclipped(make: Make, backend: str) -> None:
    settings = {"num_envs": 1, "vectorization": backend, "kwargs": FAST}
    whole = [name for name in STACK if name not in ("episodic_life", "clip_reward")]
    lives, games = (
        Collector(make("ALE/Breakout-v5", wrappers=wrappers, **settings), [0]) for wrappers in (STACK, whole)
    )
    learned, truth = lives.collect(Serve(), 330), games.collect(Serve(), 330)
    assert learned.terminated.sum() > truth.terminated.sum() == lives.episodes.count == games.episodes.count >= 1
    assert list(lives.episodes.returns) == list(games.episodes.returns)
    assert list(lives.episodes.lengths) == list(games.episodes.lengths)


def test_evaluation_is_of_whole_games_unclipped(make: Make) -> None:
    changes = ["training.evaluation.episodes=2", "training.evaluation.num_envs=2", "environment.num_envs=1",
               "algorithm={name: random}", "runtime.compile=never"]  # fmt: skip
    orchestrator = build(load("ALE-Breakout-v5:ppo", changes).config)
    try:
        orchestrator.algorithm.act = lambda obs, state, *_, **__: (np.full(len(obs), FIRE), state, None)
        result = orchestrator.evaluator.evaluate(0)
    finally:
        close(orchestrator)
    assert result.episodes == 2 and min(result.lengths) > 80  # five lives of some twenty steps each


def test_rewards_between_two_lives_are_kept(make: Make) -> None:
    """FIRE after a lost life is a step inside reset, in the middle of a game."""
    wrappers = ["max_and_skip", "episodic_life", "fire_reset", "pays_inside_reset"]

    @WRAPPERS.register("pays_inside_reset")
    class Pays(gym.Wrapper):
        def reset(self, **arguments: Any) -> Any:
            answer = self.env.reset(**arguments)
            meter: Any = self
            while not hasattr(meter, "_paid"):
                meter = meter.env
            meter._paid += 3.0
            return answer

    try:
        vector = make("ALE/Breakout-v5", num_envs=1, kwargs=FAST, wrappers=wrappers)
        vector.reset([0])
        total, lost, games = 0.0, 0, 0
        while not games:
            result = vector.step(np.zeros(1, int))
            total += result.raw_reward[0]
            lost += result.continues is not None
            games += int(result.over[0])
        assert lost == 4 and total >= 12  # not the 3 of the first reset
    finally:
        del WRAPPERS._classes["pays_inside_reset"]


def test_actions_stick_now_and_then() -> None:
    class Echo(gym.Env):
        observation_space = gym.spaces.Discrete(1000)
        action_space = gym.spaces.Discrete(1000)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return 0, {}

        def step(self, action: int) -> Any:
            return action, 0.0, False, False, {}

    def run(probability: float) -> np.ndarray:
        wrapped.__init__(Echo(), probability)
        wrapped.reset(seed=0)
        return np.array([wrapped.step(i)[0] for i in range(1000)])

    wrapped = WRAPPERS["sticky_actions"](Echo())
    assert (run(0.0) == np.arange(1000)).all()
    stuck = run(0.25)
    assert (stuck == run(0.25)).all() and stuck[0] == 0
    repeated = stuck[1:] == stuck[:-1]
    assert 0.2 < repeated.mean() < 0.3 and (stuck[1:][~repeated] == np.arange(1, 1000)[~repeated]).all()


def test_a_policy_with_fewer_buttons() -> None:
    plain, few = arcade(game="Pong"), arcade({"id": "ale_action_masking", "actions": ["LEFT", "NOOP"]}, game="Pong")
    assert few.action_space == gym.spaces.Discrete(2)
    names = plain.unwrapped.get_action_meanings()
    plain.reset(seed=0), few.reset(seed=0)
    for i in (0, 0, 0, 1, 0, 1):
        np.testing.assert_array_equal(few.step(i)[0], plain.step(names.index(("LEFT", "NOOP")[i]))[0])


@pytest.mark.slow
def test_the_whole_stack_is_saved_and_restored_exactly(make: Make) -> None:
    settings: dict[str, Any] = {
        "num_envs": 1,
        "kwargs": {"frameskip": 1, "obs_type": "grayscale"},
        "wrappers": [
            "noop_reset",
            "max_and_skip",
            "episodic_life",
            "fire_reset",
            "resize",
            "clip_reward",
            "frame_stack",
        ],
    }
    one, other = (make("ALE/Breakout-v5", **settings) for _ in range(2))
    assert one.choose_snapshot_method() == "adapter"
    assert_resumes(one, other)


def test_both_spellings_of_an_id_are_one_config() -> None:
    for variant in ("ppo", "ppo_ram", "ppo_objects"):
        one, other = load(f"ALE/Pong-v5:{variant}").config, load(f"ALE-Pong-v5:{variant}").config
        assert config_hash(one) == config_hash(other) and one.environment.id == "ALE/Pong-v5"


@pytest.mark.parametrize(
    ("kind", "shape"), [("rgb", (3, 210, 160)), ("grayscale", (1, 210, 160)), ("ram", (128,)), ("objects", (9,))]
)
def test_observations_by_one_key(make: Make, kind: str, shape: tuple[int, ...]) -> None:
    config = load("ALE-Pong-v5:ppo_objects", [f"obs_type={kind}"]).config
    assert config.environment.kwargs["obs_type"] == kind
    fields = config.environment.model_dump()
    vector = make(**{**fields, "num_envs": 1, "vectorization": "sync"})
    assert vector.observation_space.shape == shape and vector.reset([0]).shape == (1, *shape)


def test_objects_of_other_games_are_unknown() -> None:
    with pytest.raises(ConfigError, match="the objects of 'seaquest' are unknown"):
        env("ALE/Seaquest-v5", kwargs={"obs_type": "objects"})


def test_the_shipped_pictures_run_natively(make: Make) -> None:
    for spec in ("ALE/Pong-v5:ppo", "ALE/Breakout-v5:ppo"):
        fields = load(spec).config.environment.model_dump()
        vector = make(**{**fields, "num_envs": 2})
        assert vector.backend == "native" and vector.observation_space.shape == (4, 84, 84)
        assert play(vector, 3)["obs"].dtype == np.uint8


def test_workers_play_what_one_process_plays(make: Make) -> None:
    settings: dict[str, Any] = {"num_envs": 2, "kwargs": {"frameskip": 1, "obs_type": "grayscale"},
                                "wrappers": ["noop_reset", *STACK]}  # fmt: skip
    one, other = (make("ALE/Breakout-v5", vectorization=name, workers=2, **settings) for name in ("sync", "async"))
    assert_same(play(one, 60), play(other, 60))
