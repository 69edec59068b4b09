"""Buffers of tree observations return every leaf as it was put in: compared with a buffer of bare arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ludus.data.rollout import Rollout
from ludus.errors import ConfigError
from ludus.registry import BUFFERS
from ludus.types import Spaces, Tree
from scripted import Script, make, marks

ENVS, SIZE = 3, 90
PLAN = [("add", 12), ("add", 7), ("skip", 5), ("add", 30), ("barrier", 0), ("add", 21)]


def tree(obs: np.ndarray) -> Tree:
    """A picture (the whole stack), a nested vector and a number, all of which tell the observation."""
    newest = obs[..., -1, :]
    return {
        "picture": obs[..., None],
        "inner": {"vector": newest.astype(np.float32) / 2},
        "step": newest[..., 2].astype(int),
    }


def space(frames: int) -> gym.spaces.Dict:
    vector = gym.spaces.Dict({"vector": gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)})
    picture = gym.spaces.Box(0, 255, (frames, 4, 1), np.uint8)
    return gym.spaces.Dict({"picture": picture, "inner": vector, "step": gym.spaces.Discrete(256)})


def treed(rollout: Rollout) -> Rollout:
    ends = rollout.ends
    if ends is not None:
        ends = replace(ends, obs=tree(ends.obs), raw_obs=tree(ends.raw_obs))
    return replace(rollout, obs=tree(rollout.obs), raw_obs=tree(rollout.raw_obs), ends=ends)


def twins(kind: str, frames: int, storage: str, folder: Path) -> tuple[Any, Any]:
    """A bare buffer and one of trees with the same random stream, filled with the same steps."""
    script = Script(ENVS, 0, frames=frames, ends=0.1)
    bare = make(kind, script, SIZE, storage=storage)
    spaces = Spaces(space(frames), script.spaces.action)
    settings = BUFFERS[kind].Config(size=SIZE, frames=frames, storage=storage)
    other = BUFFERS[kind](settings, spaces, ENVS, name="replay", rng=np.random.default_rng(0))
    other.add_column("mark")
    other.store_memory((np.zeros((1, 1), np.float32),))
    for name, buffer in (("bare", bare), ("tree", other)):
        buffer.attach(folder / name)
    for what, steps in PLAN:
        if what == "barrier":
            script.barrier()
            continue
        rollout = script.rollout(steps)
        if what == "add":
            bare.add(rollout, mark=marks(rollout))
            other.add(treed(rollout), mark=marks(rollout))
    return bare, other


def same(sample: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, values in wanted.items():
        if name in ("obs", "next_obs"):
            expected, found = tree(values), sample[name]
            np.testing.assert_array_equal(found["picture"], expected["picture"])
            np.testing.assert_array_equal(found["inner"]["vector"], expected["inner"]["vector"])
            np.testing.assert_array_equal(found["step"], expected["step"])
            assert found["picture"].dtype == np.uint8 and found["inner"]["vector"].dtype == np.float32
        elif name != "state":
            np.testing.assert_array_equal(sample[name], values, err_msg=name)


@pytest.mark.parametrize("storage", ["ram", "disk"])
@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("kind", ["uniform", "prioritized", "trajectory"])
def test_every_leaf_comes_back(kind: str, frames: int, storage: str, tmp_path: Path) -> None:
    bare, other = twins(kind, frames, storage, tmp_path)
    assert len(bare) == len(other) > 30
    for n_step in (1, 3):
        same(other.sample(40, n_step=n_step), bare.sample(40, n_step=n_step))
    for state in (False, True):
        same(other.sample_sequences(20, 4, state=state), bare.sample_sequences(20, 4, state=state))


@pytest.mark.parametrize("storage", ["ram", "disk"])
def test_saved_leaves_come_back(storage: str, tmp_path: Path) -> None:
    bare, other = twins("uniform", 3, storage, tmp_path)
    state = other.save("step=1", ())
    again = BUFFERS["uniform"](other.cfg, other.spaces, ENVS, name="replay", rng=np.random.default_rng(9))
    again.add_column("mark")
    again.store_memory((np.zeros((1, 1), np.float32),))
    again.attach(tmp_path / "tree")
    again.load(state, tmp_path / "tree")
    same(again.sample(40, n_step=2), bare.sample(40, n_step=2))
    files = sorted(path.name for path in (tmp_path / "tree").glob("obs*"))
    assert files == ["obs.inner.vector.bin", "obs.picture.bin", "obs.step.bin"]


def test_another_run_reads_them(tmp_path: Path) -> None:
    _, other = twins("uniform", 1, "ram", tmp_path)
    other.save("step=1", ())
    cls = BUFFERS["stored"]
    stored = cls(cls.Config(path=str(tmp_path / "tree")), other.spaces, 7, name="demos", rng=np.random.default_rng(1))
    sample = stored.sample(50)
    np.testing.assert_array_equal(sample["obs"]["picture"][..., -1, 2, 0], sample["obs"]["step"])
    assert len(stored) == len(other)
    other_space = Spaces(gym.spaces.Dict({**space(1).spaces, "step": gym.spaces.Box(0, 1, (2,))}), other.spaces.action)
    with pytest.raises(ConfigError, match=r"obs\.step there is"):
        cls(cls.Config(path=str(tmp_path / "tree")), other_space, 7, name="demos", rng=np.random.default_rng(1))


def test_a_tree_without_stacks_is_refused() -> None:
    spaces = Spaces(gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (4,))}), gym.spaces.Discrete(2))
    with pytest.raises(ConfigError, match=r"buffers\.replay\.frames: no image .* is a stack of 4 frames"):
        BUFFERS["uniform"](BUFFERS["uniform"].Config(frames=4), spaces, 1, name="replay", rng=np.random.default_rng(0))
