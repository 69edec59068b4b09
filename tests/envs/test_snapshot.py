"""Run, save, go on; a new vector that is restored goes on the same, to the last bit, on every backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from safetensors.torch import load, save

from envs import test_snapshot_probes
from envs.conftest import Make
from ludus.envs.snapshots import SnapshotChoice, ladder, pickled
from ludus.envs.vector import VectorEnv
from ludus.errors import DataError, EnvironmentFailed
from ludus.runs.tree import flatten, unflatten
from ludus.types import tree_index, tree_leaves, tree_map, tree_paths

RUNGS = {
    "CartPole-v1": "adapter",
    "MountainCar-v0": "adapter",
    "Acrobot-v1": "adapter",
    "Pendulum-v1": "adapter",
    "FrozenLake-v1": "adapter",
    "Taxi-v4": "adapter",
    "Blackjack-v1": "adapter",
    "Bandit-v0": "adapter",
    "LunarLander-v3": "replay",
    "BipedalWalker-v3": "barrier",
    "HalfCheetah-v5": "adapter",
    "Ant-v5": "adapter",
    "ALE/Pong-v5": "adapter",
    "MiniGrid-DoorKey-5x5-v0": "adapter",
    "LookAndFeel-v0": "api",
}
CASES = [
    *((id, "sync") for id in RUNGS),
    ("CartPole-v1", "async"),
    ("LunarLander-v3", "async"),
    ("BipedalWalker-v3", "async"),
    ("Ant-v5", "async"),
    ("ALE/Pong-v5", "async"),
    ("MiniGrid-DoorKey-5x5-v0", "async"),
    ("CartPole-v1", "native"),
    ("LookAndFeel-v0", "async"),
    ("LookAndFeel-v0", "native"),
]
NEEDS = {
    "Box2D": ("LunarLander", "BipedalWalker"),
    "mujoco": ("HalfCheetah", "Ant"),
    "ale_py": ("ALE",),
    "minigrid": ("MiniGrid",),
}


def fields(id: str) -> dict[str, Any]:
    """What an environment of the table needs; the test is skipped when its package is missing."""
    for package, prefixes in NEEDS.items():
        if id.startswith(prefixes):
            pytest.importorskip(package)
    if id.startswith(("HalfCheetah", "Ant")):
        pytest.importorskip("imageio")  # Gymnasium's MuJoCo environments import it
    if id.startswith("ALE"):
        return {"max_episode_steps": 70, "kwargs": {"obs_type": "grayscale"}}
    return {"max_episode_steps": 70}


@pytest.fixture(autouse=True)
def tested_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The self-test of an emulator takes a second; two vectors of one test share it. The user's key is left alone."""
    monkeypatch.setenv(pickled.VARIABLE, str(tmp_path / "key"))
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log where it is
    known: dict[str, SnapshotChoice] = {}
    choose = ladder.choose

    def remembered(recipe: Any) -> SnapshotChoice:
        return known.setdefault(repr(recipe), known.get(repr(recipe)) or choose(recipe))

    monkeypatch.setattr(ladder, "choose", remembered)


def stored(state: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from a checkpoint."""
    tree, tensors = flatten({"env": state})
    text = json.dumps(tree, sort_keys=True)
    back: dict[str, Any] = unflatten(json.loads(text), load(save(tensors)))["env"]
    return back


def go(env: VectorEnv, steps: int, seed: int) -> dict[str, np.ndarray]:
    """Goes on with random actions, every returned array copied."""
    rng, space = np.random.default_rng(seed), env.action_space
    seen: dict[str, list[Any]] = {}
    for _ in range(steps):
        if isinstance(space, gym.spaces.Discrete):
            action = rng.integers(space.n, size=env.num_envs)
        else:
            action = rng.uniform(-1, 1, (env.num_envs, *(space.shape or ()))).astype(np.float32)
        result = env.step(action)
        done = result.terminated | result.truncated
        assert (result.final_obs is None) == (not done.any())
        final = tree_map(np.copy, result.obs if result.final_obs is None else result.final_obs)
        tree_map(lambda leaf, done=done: leaf.__setitem__(~done, 0), final)
        for name, value in {**result._asdict(), "final_obs": final}.items():
            if value is not None:
                seen.setdefault(name, []).append(tree_map(np.copy, value))
    return {name: tree_map(lambda *rows: np.stack(rows), *values) for name, values in seen.items()}


def assert_same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    """Every bit."""
    for name, values, others in zip(tree_paths(a), tree_leaves(a), tree_leaves(b), strict=True):
        assert values.dtype == others.dtype, name
        if values.tobytes() != others.tobytes():
            t, row = np.argwhere((values != others).reshape(*values.shape[:2], -1).any(-1))[0]
            pytest.fail(f"{name} of environment {row} differs at step {t}")


def run(env: VectorEnv, steps: int, first_seed: int) -> Any:
    """Asked for its rung, reset, and some steps on; the last observation."""
    assert env.choose_snapshot_method()
    obs = env.reset(range(first_seed, first_seed + env.num_envs))
    return tree_index(go(env, steps, first_seed)["obs"], -1) if steps else tree_map(np.copy, obs)


def assert_resumes(one: VectorEnv, other: VectorEnv, steps: int = 200) -> None:
    """`other` goes on from a stored snapshot of `one`."""
    seen = run(one, 93, 10)
    state = stored(one.snapshot())
    expected = go(one, steps, 1)
    run(other, 5, 50)
    assert_same({"obs": other.restore(state)}, {"obs": seen})
    assert_same(expected, go(other, steps, 1))
    done = expected["terminated"] | expected["truncated"]
    assert done.any(axis=0).all()  # resets were among it


@pytest.mark.parametrize(("id", "backend"), CASES)
def test_a_restored_vector_goes_on_the_same(make: Make, id: str, backend: str) -> None:
    settings = {"num_envs": 1 if id.startswith("ALE") else 2, "vectorization": backend, **fields(id)}
    one, other = make(id, **settings), make(id, **settings)
    assert one.choose_snapshot_method() == RUNGS[id]
    if one.choose_snapshot_method() == "barrier":
        assert_begins_anew(one, other)
    else:
        assert_resumes(one, other)


def assert_begins_anew(one: VectorEnv, other: VectorEnv) -> None:
    """The barrier: whatever came before, a reset with derived seeds leads to the same."""
    run(one, 150, 10)
    run(other, 5, 50)
    np.testing.assert_array_equal(one.reset([7, 8]), other.reset([7, 8]))
    assert_same(go(one, 200, 1), go(other, 200, 1))
    with pytest.raises(EnvironmentFailed, match="cannot be saved \\(snapshot method 'barrier'\\)"):
        one.snapshot()


def test_a_snapshot_of_one_backend_fits_the_other(make: Make) -> None:
    settings = {"num_envs": 3, "workers": 2, "wrappers": ({"id": "time_aware"}, {"id": "scale_reward", "scale": 2.0})}
    sync = make("CartPole-v1", **settings)
    workers = make("CartPole-v1", vectorization="async", **settings)
    assert_resumes(sync, workers)
    assert_resumes(workers, sync)


@pytest.mark.parametrize(("id", "backend"), [("CartPole-v1", "native"), ("CartPole-v1", "sync"), ("Taxi-v4", "sync")])
def test_saving_changes_nothing_and_a_restored_one_saves_the_same(make: Make, id: str, backend: str) -> None:
    one, other, plain = (make(id, vectorization=backend, num_envs=2) for _ in range(3))
    run(one, 40, 0), run(plain, 40, 0), run(other, 10, 5)
    state = one.snapshot()
    texts = [json.dumps(flatten(stored(state))[0], sort_keys=True)]
    assert_same(go(one, 60, 3), go(plain, 60, 3))
    other.restore(stored(state))
    again = other.snapshot()
    assert json.dumps(flatten(again)[0], sort_keys=True) == texts[0]
    for name, tensor in flatten(again)[1].items():
        assert (tensor == flatten(state)[1][name]).all(), name


def test_a_snapshot_holds_no_tables_of_constants(make: Make) -> None:
    env = make("Taxi-v4", num_envs=1)
    run(env, 3, 0)
    (state,) = env.snapshot()["envs"]
    assert "P" not in state["layers"][-1] and "s" in state["layers"][-1]
    assert len(json.dumps(flatten(state)[0])) < 5_000


@pytest.mark.parametrize("backend", ["native", "sync"])
def test_native_cartpole_at_every_moment(make: Make, backend: str) -> None:
    """Right after a reset, before, at and after a time limit, and with the other reward."""
    settings = {"num_envs": 3, "max_episode_steps": 9, "kwargs": {"sutton_barto_reward": True}}
    one, other = (make("CartPole-v1", vectorization=backend, **settings) for _ in range(2))
    for steps in (0, 1, 8, 9, 10, 17):
        seen = run(one, steps, 3)
        state = stored(one.snapshot())
        expected = go(one, 40, 1)
        run(other, 4, 9)
        np.testing.assert_array_equal(other.restore(state), seen)
        assert_same(expected, go(other, 40, 1))


@pytest.mark.parametrize("backend", ["native", "sync", "async"])
def test_restoring_needs_no_reset_first(make: Make, backend: str) -> None:
    one, other = (make("CartPole-v1", vectorization=backend, num_envs=2) for _ in range(2))
    run(one, 20, 0)
    other.restore(stored(one.snapshot()))
    assert_same(go(one, 60, 1), go(other, 60, 1))


def test_a_vector_wrapper_passes_it_on(make: Make) -> None:
    mask = ({"id": "mask_observation", "indices": [1, 3], "mode": "drop"},)
    one, other = (make("CartPole-v1", vectorization="native", wrappers=mask, num_envs=2) for _ in range(2))
    assert one.choose_snapshot_method() == "adapter" and one.backend == "native"
    assert_resumes(one, other)


def test_native_vectors_without_a_state_are_behind_the_barrier(make: Make) -> None:
    pytest.importorskip("envpool")
    one, other = (make("CartPole-v1", vectorization="envpool", num_envs=2) for _ in range(2))
    assert one.choose_snapshot_method() == "barrier"
    assert_begins_anew(one, other)


def test_gymnasiums_own_vectors_are_behind_the_barrier(make: Make) -> None:
    test_snapshot_probes.register()
    one, other = (make("Rung/CarryingVector-v0", vectorization="native", num_envs=2) for _ in range(2))
    assert one.backend == "native" and one.choose_snapshot_method() == "barrier"
    assert_begins_anew(one, other)


@pytest.mark.parametrize("backend", ["sync", "native"])
def test_a_snapshot_that_does_not_fit_is_refused(make: Make, backend: str) -> None:
    env = make("CartPole-v1", vectorization=backend, num_envs=2)
    run(env, 3, 0)
    good = env.snapshot()
    module = {"is": "enum", "module": "os", "type": "path", "member": "join"}
    broken = [
        {**good, "id": "Taxi-v4"},
        {**good, "snapshot_method": "pickle"},
        {**good, "num_envs": 3},
        {key: good[key] for key in ("id", "snapshot_method", "num_envs")},
        {**good, "envs": good.get("envs", [])[:1], "motion": np.zeros((3, 3))},
        {**good, "envs": [{"layers": [{}]}] * 2, "random": [{"state": {"bit_generator": "os.system"}}] * 2},
        {**good, "envs": [{"layers": [{}, {"state": module}]}] * 2, "random": [{}] * 2},
    ]
    for state in broken:
        with pytest.raises(DataError, match="snapshot of CartPole-v1"):
            env.restore(state)
    env.restore(good)  # and is none the worse for it
    go(env, 5, 0)


def test_a_worker_that_was_replaced_is_saved_like_the_others(make: Make) -> None:
    import os
    import signal

    env = make("LunarLander-v3", vectorization="async", num_envs=2, workers=2, on_worker_death="restart")
    pytest.importorskip("Box2D")
    run(env, 5, 0)
    os.kill(env._workers[0]._process.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    go(env, 3, 0)
    state = stored(env.snapshot())
    expected = go(env, 100, 1)
    env.restore(state)
    assert_same(expected, go(env, 100, 1))


def test_shown_environments_are_saved_too(make: Make) -> None:
    pytest.importorskip("pygame")
    one, other = (make("CartPole-v1", num_envs=2, render_mode="rgb_array") for _ in range(2))
    run(one, 5, 0), one.render(0), run(other, 2, 5), other.render(1)
    state = stored(one.snapshot())
    frame, expected = one.render(1), go(one, 50, 1)
    other.restore(state)
    np.testing.assert_array_equal(other.render(1), frame)
    assert_same(expected, go(other, 50, 1))
