"""A data set as a buffer: every step of it can be drawn and none of another; windows never leave their episode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demonstrations import CART, PENDULUM, demonstrations, episode
from ludus.config.schema import Environment
from ludus.data.buffers.minari import MinariBuffer, MinariConfig, held_out
from ludus.data.buffers.windows import sample_windows
from ludus.data.datasets.statistics import summarize
from ludus.data.datasets.stored import episodes_of
from ludus.data.datasets.write import append_episodes
from ludus.data.normalizer import make_normalizer
from ludus.errors import ConfigError, DataError
from ludus.types import Spaces

pytest.importorskip("h5py")
pytest.importorskip("minari")


def buffer(folder: Path, spaces: Spaces = CART, *, normalizer: Any = None, **settings: Any) -> MinariBuffer:
    cfg = MinariConfig(path=str(folder), **settings)
    return MinariBuffer(cfg, spaces, 4, name="demos", rng=np.random.default_rng(3), normalizer=normalizer)


@pytest.mark.parametrize("storage", ["ram", "disk"])
def test_every_step_is_drawn_as_it_was(tmp_path: Path, storage: str) -> None:
    """With its reward, its end and the true observation after it."""
    folder, made = demonstrations(tmp_path / "demos-v0")
    demos = buffer(folder, storage=storage)
    demos.attach(tmp_path / "run")
    known = {
        one.obs[t].tobytes(): (one.action[t], one.reward[t], one.terminated and t + 1 == len(one), one.obs[t + 1], t)
        for one in made
        for t in range(len(one))
    }
    seen = set()
    for _ in range(20):
        drawn = demos.sample(64, gamma=0.9)
        for i in range(64):
            action, reward, terminated, after, t = known[drawn["obs"][0, i].tobytes()]
            seen.add(drawn["obs"][0, i].tobytes())
            assert (drawn["action"][0, i], drawn["reward"][0, i]) == (action, reward)
            assert drawn["discount"][0, i] == np.float32(0.0 if terminated else 0.9)
            assert np.array_equal(drawn["next_obs"][0, i], after) and drawn["first"][0, i] == (t == 0)
    assert seen == set(known) and len(demos) == demos.added == len(known)
    assert all(np.array_equal(a.obs, b.obs) for a, b in zip(episodes_of(demos), made, strict=True))
    assert (tmp_path / "run").exists() == (storage == "disk")


def test_some_episodes_are_kept_apart(tmp_path: Path) -> None:
    """The same ones in every run; none of their steps is ever learned from."""
    folder, made = demonstrations(tmp_path / "demos-v0", episodes=10)
    one, other = buffer(folder, held_out=0.2), buffer(folder, held_out=0.2)
    assert one.held_out is not None and other.held_out is not None
    kept, apart = ([part.obs.tobytes() for part in episodes_of(each)] for each in (one, one.held_out))
    assert len(kept) == 8 and len(apart) == 2
    assert sorted(kept + apart) == sorted(part.obs.tobytes() for part in made)
    assert apart == [part.obs.tobytes() for part in episodes_of(other.held_out)]
    assert buffer(folder).held_out is None


@pytest.mark.parametrize(
    ("count", "share", "apart"), [(10, 0.0, 0), (10, 0.01, 1), (1, 0.5, 0), (4, 0.9, 3), (50, 0.1, 5)]
)
def test_how_many_are_kept_apart(count: int, share: float, apart: int) -> None:
    assert len(held_out(count, share)) == apart


def test_the_first_episodes_alone(tmp_path: Path) -> None:
    folder, made = demonstrations(tmp_path / "demos-v0")
    few = buffer(folder, episodes=2)
    assert len(few) == len(made[0]) + len(made[1]) and few.summary.lengths == [20, 21]
    assert len(buffer(folder, episodes=99)) == sum(map(len, made))


def test_actions_are_scaled_where_the_algorithm_wants_them_so(tmp_path: Path) -> None:
    folder, made = demonstrations(tmp_path / "demos-v0", PENDULUM)
    plain, scaled = buffer(folder, PENDULUM), buffer(folder, PENDULUM, held_out=0.2)
    scaled.scaled_actions = True
    taken = np.concatenate([one.action for one in made])
    assert np.array_equal(np.unique(np.concatenate([one.action for one in episodes_of(plain)])), np.unique(taken))
    for part in (scaled, scaled.held_out):
        assert part is not None
        found = np.concatenate([one.action for one in episodes_of(part)]).ravel()
        assert np.abs(found[:, None] - taken.ravel() / 2).min(1).max() < 1e-6 and np.abs(found).max() > 0.5


def test_windows_stay_in_their_episode(tmp_path: Path) -> None:
    """The drawn step is row `before`; beyond the ends the first or last step is repeated and masked."""
    folder, made = demonstrations(tmp_path / "demos-v0", steps=5)
    demos, place = buffer(folder), {one.obs[t].tobytes(): (one, t) for one in made for t in range(len(one))}
    drawn = set()
    for _ in range(20):
        windows = sample_windows(demos, 32, 8, before=2)
        assert windows["obs"].shape == (8, 32, 4) and windows["action"].shape == windows["mask"].shape == (8, 32)
        for n in range(32):
            one, t = place[windows["obs"][2, n].tobytes()]
            drawn.add((one.seed, t))
            rows = np.arange(t - 2, t + 6)
            inside = (rows >= 0) & (rows < len(one))
            assert np.array_equal(windows["mask"][:, n], inside)
            rows = rows.clip(0, len(one) - 1)
            assert np.array_equal(windows["obs"][:, n], one.obs[rows])
            assert np.array_equal(windows["action"][:, n], one.action[rows])
            assert np.array_equal(windows["reward"][:, n], one.reward[rows])
    assert len(drawn) == sum(map(len, made)), "every step"


def test_statistics_of_what_is_learned_from(tmp_path: Path) -> None:
    folder, made = demonstrations(tmp_path / "demos-v0", PENDULUM)
    found = summarize(PENDULUM, episodes_of(buffer(folder, PENDULUM)))
    action = np.concatenate([one.action for one in made])
    assert np.array_equal(found.action.low, action.min(0)) and np.allclose(found.action.std, action.std(0), atol=1e-6)


def test_a_normaliser_learns_the_data_set_once(tmp_path: Path) -> None:
    """What is validated on stays out of it. A resumed run loads the same numbers over them."""
    folder, made = demonstrations(tmp_path / "demos-v0", PENDULUM)
    made = [one for i, one in enumerate(made) if i not in held_out(6, 0.2)]
    normalizer = make_normalizer(Environment(id="x", normalize_obs="rolling"), PENDULUM.observation)
    demos = buffer(folder, PENDULUM, normalizer=normalizer, held_out=0.2)
    seen = demos.sample(512)["obs"][0]
    obs = np.concatenate([one.obs[:-1] for one in made])
    assert normalizer is not None and normalizer.parts.moments.count == len(obs)
    assert np.allclose(normalizer.parts.moments.mean, obs.mean(0), atol=1e-6)
    assert np.abs(seen.std(0) - 1).max() < 0.2 and np.abs(seen.mean(0)).max() < 0.2


def test_a_resumed_run_draws_the_same(tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    one, other = buffer(folder), buffer(folder)
    one.sample(8)
    other.load(one.save("update=1", ()), None)
    assert np.array_equal(one.sample(16)["index"], other.sample(16)["index"])


def test_another_data_set_in_the_same_place_is_refused(tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    state = buffer(folder).save("update=1", ())
    append_episodes(folder, CART, [episode(CART, 4, 0, np.random.default_rng(0))], policy="test")
    with pytest.raises(DataError, match=r"is another data set than when this run was saved: sha256 .*; restore it"):
        buffer(folder).load(state, None)


def test_what_it_cannot_do_is_said(tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    with pytest.raises(ConfigError, match=r"buffers.demos.path: the spaces there are Box.*this run has Box"):
        buffer(folder, PENDULUM)
    demos = buffer(folder)
    with pytest.raises(ConfigError, match="is a data set and takes no other steps"):
        demos.add(None)  # type: ignore[arg-type]
    demos.add_column("log_prob")
    with pytest.raises(ConfigError, match="log_prob is not stored in a data set"):
        demos.sample(1)


def test_it_says_what_it_is_and_what_it_takes(tmp_path: Path) -> None:
    folder, made = demonstrations(tmp_path / "demos-v0")
    demos = buffer(folder, held_out=0.2)
    assert demos.origin.startswith(f"{folder}: 6 episodes, 1 of them to validate on, 135 steps, return ")
    assert demos.origin.endswith(f", sha256 {demos.sha256[:12]}")
    assert ": 1 episodes, 0 of them to validate on, " in buffer(folder, held_out=0.2, episodes=1).origin
    assert not demos.allocated and demos.knobs == "buffers.demos.episodes, or set buffers.demos.storage to disk"
    assert demos.rows >= sum(len(one) + 1 for one in made) - 26
