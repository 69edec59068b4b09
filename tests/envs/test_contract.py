"""The vector contract over every backend, against probes that know their own episodes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from envs.conftest import Make
from ludus.types import tree_leaves, tree_map, tree_paths

BACKENDS = ["sync", "async", "native", "envpool"]
OURS = ["sync", "async"]


def play(env: Any, steps: int, seed: int = 0, seeds: Any = None) -> dict[str, np.ndarray]:
    """A random rollout, every returned array copied."""
    rng = np.random.default_rng(seed)
    seen: dict[str, list[Any]] = {"obs": [tree_map(np.copy, env.reset(seeds or range(env.num_envs)))]}
    space = env.action_space
    for _ in range(steps):
        if isinstance(space, gym.spaces.Discrete):
            action = rng.integers(space.n, size=env.num_envs)
        else:
            action = rng.uniform(-3, 3, (env.num_envs, *space.shape)).astype(np.float32)
        result = env.step(action)
        done = result.terminated | result.truncated
        assert (result.final_obs is None) == (not done.any())
        final = tree_map(np.copy, result.obs if result.final_obs is None else result.final_obs)
        tree_map(lambda leaf, done=done: leaf.__setitem__(~done, 0), final)  # only rows of finished episodes count
        parts = {**result._asdict(), "final_obs": final, "action": action}
        for name, value in parts.items():
            if value is not None:
                seen.setdefault(name, []).append(tree_map(np.copy, value))
    return {name: tree_map(lambda *rows: np.stack(rows), *values) for name, values in seen.items()}


def assert_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    for name, one, other in zip(tree_paths(a), tree_leaves(a), tree_leaves(b), strict=True):
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_shapes_dtypes_and_facts(make: Make, backend: str) -> None:
    env = make("CartPole-v1", vectorization=backend, num_envs=3, workers=2)
    seen = play(env, 60)
    assert env.backend == backend and env.id == "CartPole-v1" and env.num_envs == 3
    assert env.reward_threshold == 475 and env.max_episode_steps == 500 and not env.info.is_image
    assert env.observation_space.shape == (4,) and env.action_space == gym.spaces.Discrete(2)
    assert seen["obs"].shape == (61, 3, 4) and seen["obs"].dtype == np.float32
    assert seen["reward"].shape == (60, 3) and seen["reward"].dtype == np.float32
    assert seen["terminated"].dtype == bool and seen["truncated"].dtype == bool
    assert (seen["reward"] == 1).all() and (seen["raw_reward"] == 1).all()
    assert seen["terminated"].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_finished_episodes_show_the_true_end_and_the_new_start(make: Make, backend: str) -> None:
    env = make("CartPole-v1", vectorization=backend, max_episode_steps=15)
    seen = play(env, 200)
    ended, cut = seen["terminated"], seen["truncated"]
    assert ended.any() and cut.any()
    at_end = seen["final_obs"][ended]
    assert ((np.abs(at_end[:, 2]) > 0.2094) | (np.abs(at_end[:, 0]) > 2.4)).all()  # the fallen pole, not the new one
    assert (np.abs(seen["obs"][1:][ended | cut]) <= 0.05).all()  # a fresh start
    lengths = np.diff(np.flatnonzero(np.r_[True, (ended | cut)[:, 0]]))
    assert lengths.max() <= 15 and (lengths == 15).any()


@pytest.mark.parametrize("end", ["terminated", "truncated", "both"])
@pytest.mark.parametrize("backend", OURS)
def test_no_transition_crosses_an_episode(make: Make, backend: str, end: str) -> None:
    env = make("Probe/Counter-v0", vectorization=backend, num_envs=5, workers=2, kwargs={"end": end})
    seen = play(env, 40)
    done = seen["terminated"] | seen["truncated"]
    assert (seen["terminated"] == (done if end != "truncated" else False)).all()
    assert (seen["truncated"] == (done if end != "terminated" else False)).all()
    before, after = seen["obs"][:-1], np.where(done[..., None], seen["final_obs"], seen["obs"][1:])
    assert (after[..., 0] == before[..., 0]).all()  # the same episode
    assert (after[..., 1] == before[..., 1] + 1).all()  # one step on: nothing lost, nothing bogus
    assert (seen["obs"][1:][done] == np.stack([before[..., 0][done] + 1, np.zeros(done.sum())], 1)).all()
    assert (seen["reward"] == 10 * before[..., 0] + before[..., 1]).all()
    lengths = 1 + (before[..., 0] + np.arange(5)) % 4
    assert (done == (after[..., 1] == lengths)).all()


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1"])
def test_sync_and_async_are_bit_identical(make: Make, id: str) -> None:
    seeds = [11, 22, 33, 44, 55]
    one, two = (make(id, vectorization=backend, num_envs=5, workers=2, max_episode_steps=30) for backend in OURS)
    assert_same(play(one, 100, seeds=seeds), play(two, 100, seeds=seeds))
    assert_same(play(one, 20, seed=1, seeds=seeds), play(two, 20, seed=1, seeds=seeds))  # and after another reset


def test_native_cartpole_is_bit_identical_to_sync(make: Make) -> None:
    seeds = [3, 1, 4, 1, 5, 9, 2, 6]
    for fields in ({}, {"max_episode_steps": 12}, {"kwargs": {"sutton_barto_reward": True}}):
        one, two = (make("CartPole-v1", vectorization=b, num_envs=8, **fields) for b in ("sync", "native"))
        assert_same(play(one, 600, seeds=seeds), play(two, 600, seeds=seeds))
        assert_same(play(one, 30, seed=7, seeds=seeds[::-1]), play(two, 30, seed=7, seeds=seeds[::-1]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_seeds_decide_everything_and_neighbours_share_nothing(make: Make, backend: str) -> None:
    env = make("CartPole-v1", vectorization=backend, num_envs=4)
    first, again, other = (play(env, 50, seeds=range(s, s + 4)) for s in (0, 0, 1))
    assert_same(first, again)
    assert (first["obs"] != other["obs"]).any(axis=(0, 2)).all()
    assert len(np.unique(first["obs"][0].ravel())) == 16


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_action_after_an_explicit_reset_is_executed(make: Make, backend: str) -> None:
    env = make("CartPole-v1", vectorization=backend, num_envs=2, max_episode_steps=3)
    env.reset([0, 1])
    for _ in range(3):
        result = env.step(np.array([1, 1]))
    assert result.truncated.all()
    before = env.reset([2, 3]).copy()
    result = env.step(np.array([1, 1]))
    assert (result.obs[:, 1] > before[:, 1] + 0.1).all() and (result.reward == 1).all()
    env.step(np.array([1, 1]))
    assert env.step(np.array([1, 1])).truncated.all()  # the clock began again, too


@pytest.mark.parametrize("backend", OURS)
def test_actions_reach_the_environment_clipped_and_the_callers_stay_as_they_are(make: Make, backend: str) -> None:
    env = make("Probe/Echo-v0", vectorization=backend, num_envs=3)
    env.reset([0, 0, 0])
    action = np.array([[-9.0], [0.5], [9.0]], np.float32)
    assert env.step(action).obs[:, 0].tolist() == [-2.0, 0.5, 2.0]
    assert action.ravel().tolist() == [-9.0, 0.5, 9.0]
    assert env.step(-action).obs.tolist() == [[2.0, -2.0], [-0.5, 0.5], [-2.0, 2.0]]  # what it kept is still its own
    assert np.isnan(env.step(np.full((3, 1), np.nan)).obs[:, 0]).all()  # NaN is the collector's to catch, not to hide


@pytest.mark.parametrize(
    ("id", "backend"),
    [
        ("Probe/SameArray-v0", "sync"),
        ("Probe/SameArray-v0", "async"),
        ("Probe/NonContiguous-v0", "sync"),
        ("Probe/HugeInfo-v0", "sync"),
        ("Probe/HugeInfo-v0", "async"),
    ],
)
def test_awkward_arrays_and_infos_change_nothing(make: Make, backend: str, id: str) -> None:
    plain = play(make("Probe/Counter-v0", num_envs=3), 20)
    assert_same(plain, play(make(id, vectorization=backend, num_envs=3), 20))


@pytest.mark.parametrize("backend", OURS)
def test_one_step_episodes(make: Make, backend: str) -> None:
    seen = play(make("Probe/Constant-v0", vectorization=backend), 10)
    assert seen["terminated"].all() and (seen["reward"] == 1).all()


@pytest.mark.parametrize("backend", ["sync", "async", "native"])
def test_rendering_and_the_frame_at_the_end(make: Make, backend: str) -> None:
    id = "CartPole-v1" if backend == "native" else "Probe/Counter-v0"
    env = make(id, vectorization=backend, num_envs=2, render_mode="rgb_array")
    env.reset([0, 1])
    frame = env.render(1)
    assert frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
    while not (result := env.step(np.array([0, 0]))).terminated[1]:
        pass
    last, now = env.render(1, final=True), env.render(1)
    assert (last != now).any()
    if backend != "native":
        assert last[0, 0, :2].tolist() == result.final_obs[1].astype(int).tolist()  # (episode, t) as pixels
        assert now[0, 0, :2].tolist() == result.obs[1].astype(int).tolist()


def test_stepping_leaves_no_memory_behind(make: Make) -> None:
    env = make("CartPole-v1", num_envs=2)
    play(env, 50)
    tracemalloc.start()
    try:
        action = np.zeros(2, int)
        for _ in range(500):
            env.step(action)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2000):
            env.step(action)
        assert tracemalloc.get_traced_memory()[0] - before < 20_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_async_pays_on_a_slow_environment(make: Make) -> None:
    import time

    seconds = {}
    for backend in OURS:
        env = make("Probe/Slow-v0", vectorization=backend, num_envs=4, workers=2)
        env.reset(range(4))
        began = time.perf_counter()
        for _ in range(50):
            env.step(np.zeros(4, int))
        seconds[backend] = time.perf_counter() - began
    assert seconds["async"] < 0.75 * seconds["sync"]


@pytest.mark.slow
def test_backends_beat_gymnasiums(make: Make) -> None:
    """Interleaved, the best of many short runs each, in processor time of this process."""
    import time

    modes = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    peers = {
        "sync": gym.make_vec("CartPole-v1", num_envs=8, vectorization_mode="sync", vector_kwargs=modes),
        "native": gym.make_vec("CartPole-v1", num_envs=8, vectorization_mode="vector_entry_point"),
    }
    actions = np.random.default_rng(0).integers(2, size=(300, 8))

    def cost(env: Any) -> float:
        began = time.process_time()
        for action in actions:
            env.step(action)
        return time.process_time() - began

    for backend, peer in peers.items():
        ours = make("CartPole-v1", vectorization=backend, num_envs=8)
        ours.reset(range(8))
        peer.reset(seed=0)
        times = [(cost(ours), cost(peer)) for _ in range(20)]
        fastest = [min(column) for column in zip(*times, strict=True)]
        assert fastest[0] < 0.8 * fastest[1], (backend, fastest)
