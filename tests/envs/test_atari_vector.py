"""ALE's own vector environment and EnvPool's games, against the wrappers on single environments: bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from envs.conftest import Make
from envs.test_contract import assert_same, play
from ludus.errors import ConfigError

pytest.importorskip("ale_py")

GRAY: dict[str, Any] = {"frameskip": 1, "obs_type": "grayscale", "repeat_action_probability": 0.0}
STACK = ["fire_reset", "max_and_skip", "episodic_life", "resize", "clip_reward", "frame_stack"]
WAITING = ["fire_reset", "noop_reset", *STACK[1:]]
BACKENDS = ["native", "envpool"]


def need(backend: str) -> None:
    if backend == "envpool":
        pytest.importorskip("envpool")


def episodes(env: Any, steps: int) -> dict[str, np.ndarray]:
    """As `play`, with `continues`; the last frame of a finished game is left out, the C++ ones show an old one."""
    goes_on: list[np.ndarray] = []

    class Watched:
        num_envs, action_space, reset = env.num_envs, env.action_space, env.reset

        def step(self, action: np.ndarray) -> Any:
            result = env.step(action)
            goes_on.append(np.zeros(env.num_envs, bool) if result.continues is None else result.continues.copy())
            return result

    seen = play(Watched(), steps, seeds=list(range(3, 3 + env.num_envs)))
    seen["continues"] = np.stack(goes_on)
    over = (seen["terminated"] | seen["truncated"]) & ~seen["continues"]
    seen["final_obs"][over, -1] = 0
    return seen


@pytest.mark.parametrize("backend", BACKENDS)
def test_breakout_is_the_same_bit_for_bit(make: Make, backend: str) -> None:
    need(backend)
    one, other = (
        make("ALE/Breakout-v5", num_envs=2, vectorization=name, kwargs=GRAY, wrappers=STACK)
        for name in ("sync", backend)
    )
    assert other.backend == backend
    assert one.observation_space == other.observation_space and one.action_space == other.action_space
    assert other.observation_space.shape == (4, 84, 84) and other.info.is_image
    expected, found = episodes(one, 330), episodes(other, 330)
    assert_same(expected, found)
    over = found["terminated"] & ~found["continues"]
    assert found["continues"].sum() > 6 and over.any() and found["raw_reward"].sum() > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_rewards_are_clipped_for_the_policy_and_raw_for_the_record(make: Make, backend: str) -> None:
    need(backend)
    one, other = (
        make("ALE/SpaceInvaders-v5", num_envs=1, vectorization=name, kwargs=GRAY, wrappers=STACK)
        for name in ("sync", backend)
    )
    expected, found = play(one, 120), play(other, 120)
    np.testing.assert_array_equal(expected["raw_reward"], found["raw_reward"])
    np.testing.assert_array_equal(expected["reward"], found["reward"])
    assert found["raw_reward"].max() >= 5 and set(np.unique(found["reward"])) == {0, 1}


@pytest.mark.parametrize("backend", BACKENDS)
def test_games_that_are_cut_are_truncated_not_terminated(make: Make, backend: str) -> None:
    need(backend)
    wrappers = [name for name in STACK if name != "fire_reset"]
    settings: dict[str, Any] = {"num_envs": 2, "kwargs": GRAY, "wrappers": wrappers, "max_episode_steps": 40}
    one, other = (make("ALE/Pong-v5", vectorization=name, **settings) for name in ("sync", backend))
    if backend == "envpool":  # it always waits for a frame or presses FIRE
        found = episodes(other, 35)
        assert (found["truncated"].sum(axis=0) == 3).all() and not found["terminated"].any()
        return
    expected, found = episodes(one, 35), episodes(other, 35)
    assert_same(expected, found)
    assert (found["truncated"].sum(axis=0) == 3).all() and not found["terminated"].any()
    begins = found["obs"][1:][found["truncated"]]
    assert (begins == begins[:, :1]).all()  # a stack of one frame


@pytest.mark.parametrize("backend", BACKENDS)
def test_seeds_are_honoured_one_by_one(make: Make, backend: str) -> None:
    need(backend)
    kwargs = {**GRAY, "repeat_action_probability": 0.25}
    env = make("ALE/Breakout-v5", num_envs=3, vectorization=backend, kwargs=kwargs, wrappers=WAITING)
    first, again = play(env, 60, seeds=[5, 6, 5]), play(env, 60, seeds=[5, 6, 5])
    assert_same(first, again)
    actions = np.random.default_rng(0).integers(4, size=60)
    env.reset([5, 6, 5])
    seen = [env.step(np.full(3, action)).obs.copy() for action in actions]
    assert all((obs[0] == obs[2]).all() for obs in seen) and any((obs[0] != obs[1]).any() for obs in seen)
    other = play(env, 30, seeds=[7, 6, 5])["obs"]
    assert (other[:, 0] != first["obs"][:31, 0]).any() and (other[:, 1] == first["obs"][:31, 1]).all()


def test_games_wait_up_to_noop_max_frames_on_every_backend(make: Make) -> None:
    """Once FIRE is pressed every frame looks different, so that the first one tells how long a game has waited."""
    still = make("ALE/Breakout-v5", num_envs=1, kwargs=GRAY, wrappers=["fire_reset", "resize", "frame_stack"])
    frames = [still.reset([0])[0, -1].copy(), *(still.step(np.zeros(1, int)).obs[0, -1].copy() for _ in range(40))]
    wrappers = ["fire_reset", {"id": "noop_reset", "noop_max": 12}, *STACK[1:]]
    for backend in ("sync", "native"):  # EnvPool waits before it presses FIRE
        env = make("ALE/Breakout-v5", num_envs=10, vectorization=backend, kwargs=GRAY, wrappers=wrappers)
        waited = [
            next(i for i, frame in enumerate(frames) if (frame == one).all()) for one in env.reset(range(10))[:, -1]
        ]
        assert len(set(waited)) > 3 and max(waited) <= 12


@pytest.mark.parametrize(
    ("wrappers", "kwargs", "backend"),
    [
        (WAITING, GRAY, "native"),
        (["max_and_skip", {"id": "resize", "size": 64}, {"id": "frame_stack", "frames": 2}], GRAY, "native"),
        (
            ["fire_reset", "noop_reset", "grayscale", "max_and_skip", "resize", "frame_stack"],
            {"frameskip": 1},
            "native",
        ),
        (["resize", "frame_stack"], {"obs_type": "grayscale"}, "native"),
        (["noop_reset", "fire_reset", "max_and_skip", "resize", "frame_stack"], GRAY, "sync"),
        (["max_and_skip", "grayscale", "resize", "frame_stack"], {"frameskip": 1}, "sync"),
        (["clip_reward", "max_and_skip", "resize", "frame_stack"], GRAY, "sync"),
        (["max_and_skip", "episodic_life", "fire_reset", "resize", "frame_stack"], GRAY, "sync"),
        (["max_and_skip", "resize", "frame_stack", {"id": "scale_reward", "scale": 2.0}], GRAY, "sync"),
        (["sticky_actions", "max_and_skip", "resize", "frame_stack"], GRAY, "sync"),
        (["noop_reset", "resize", "frame_stack"], {"obs_type": "grayscale"}, "sync"),
        (["max_and_skip", "resize", "frame_stack"], {**GRAY, "difficulty": 1}, "sync"),
        ([], {}, "sync"),
    ],
)
def test_auto_is_native_exactly_where_that_does_the_same(
    make: Make, wrappers: list[Any], kwargs: dict[str, Any], backend: str
) -> None:
    env = make("ALE/Breakout-v5", num_envs=1, vectorization="auto", kwargs=kwargs, wrappers=wrappers)
    assert env.backend == backend


def test_pong_counts_no_lives_so_their_place_is_no_matter(make: Make) -> None:
    wrappers = ["max_and_skip", "episodic_life", "resize", "frame_stack"]
    assert make("ALE/Pong-v5", num_envs=1, vectorization="auto", kwargs=GRAY, wrappers=wrappers).backend == "native"
    odd = ["episodic_life", "max_and_skip", "resize", "frame_stack"]
    assert make("ALE/Pong-v5", num_envs=1, vectorization="auto", kwargs=GRAY, wrappers=odd).backend == "native"
    assert make("ALE/Breakout-v5", num_envs=1, vectorization="auto", kwargs=GRAY, wrappers=odd).backend == "sync"


def test_native_takes_the_usual_order_when_it_is_asked_for(make: Make) -> None:
    usual = ["noop_reset", "max_and_skip", "episodic_life", "fire_reset", "grayscale", "resize", "clip_reward",
             "frame_stack"]  # fmt: skip
    env = make("ALE/Breakout-v5", num_envs=1, vectorization="native", kwargs={"frameskip": 1}, wrappers=usual)
    assert env.backend == "native" and env.reset([0]).shape == (1, 4, 84, 84)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "needs the wrapper frame_stack once"),
        ({"kwargs": {"obs_type": "ram"}, "wrappers": ["frame_stack"]}, "shows pictures only"),
        ({"wrappers": ["max_and_skip", "frame_stack"], "kwargs": {"frameskip": 1}}, "gray pictures"),
        ({"wrappers": ["grayscale", "max_and_skip", "resize", "frame_stack"]}, "skips frames once"),
    ],
)
def test_what_cannot_run_natively_is_refused_in_one_line(
    make: Make, backend: str, settings: dict[str, Any], problem: str
) -> None:
    need(backend)
    with pytest.raises(ConfigError, match=problem) as caught:
        make("ALE/Pong-v5", vectorization=backend, **settings)
    assert caught.value.where == "environment.vectorization"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_reset_at_the_barrier_begins_anew(make: Make, backend: str) -> None:
    need(backend)
    settings: dict[str, Any] = {"num_envs": 2, "vectorization": backend, "kwargs": GRAY, "wrappers": WAITING}
    one, other = make("ALE/Breakout-v5", **settings), make("ALE/Breakout-v5", **settings)
    assert one.choose_snapshot_method() == other.choose_snapshot_method() == "barrier"
    play(one, 90), play(other, 7, seed=1)
    assert_same(play(one, 60, seeds=[8, 9]), play(other, 60, seeds=[8, 9]))


def test_it_does_not_draw_and_says_so(make: Make) -> None:
    env = make("ALE/Pong-v5", num_envs=1, vectorization="native", kwargs=GRAY, wrappers=STACK)
    with pytest.raises(ConfigError, match="does not draw"):
        env.render()
    drawn = make("ALE/Pong-v5", num_envs=1, vectorization="auto", kwargs=GRAY, wrappers=STACK, render_mode="rgb_array")
    drawn.reset([0])
    assert drawn.backend == "sync" and drawn.render().shape == (210, 160, 3)


def test_nothing_that_was_returned_changes_afterwards(make: Make) -> None:
    """Rollouts copy, but a caller that keeps a frame of the native backend keeps it."""
    env = make("ALE/Pong-v5", num_envs=2, vectorization="native", kwargs=GRAY, wrappers=STACK)
    first = env.reset([0, 1])
    kept, copy = first, first.copy()
    for _ in range(5):
        env.step(np.array([2, 3]))
    np.testing.assert_array_equal(kept, copy)
