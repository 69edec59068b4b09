"""Data sets on disk: what was written comes back to the bit, and what is broken is named on one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from demonstrations import CART, PENDULUM, demonstrations, episode, same
from ludus.data.datasets.minari import MinariData
from ludus.data.datasets.statistics import Episode, summarize
from ludus.data.datasets.write import append_episodes, dataset_id, write_dataset
from ludus.errors import ConfigError, DataError, LudusError
from ludus.types import Spaces, tree_map

h5py = pytest.importorskip("h5py")
minari = pytest.importorskip("minari")

PICTURE = gym.spaces.Box(0, 255, (3, 40, 36), np.uint8)
SPACES = {
    "vectors": PENDULUM,
    "discrete": CART,
    "pictures": Spaces(PICTURE, gym.spaces.Discrete(3)),
    "dict": Spaces(gym.spaces.Dict(look=PICTURE, feel=gym.spaces.Box(-1, 1, (2,))), gym.spaces.MultiDiscrete([2, 3])),
    "states": Spaces(gym.spaces.Discrete(7), gym.spaces.MultiBinary(4)),
    "tuple": Spaces(gym.spaces.Tuple([gym.spaces.Discrete(4), gym.spaces.Box(-1, 1, (2,))]), gym.spaces.Discrete(2)),
}


def read(path: Path) -> list[Episode]:
    return list(MinariData(str(path), "demos").episodes())


# ---- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPACES)
def test_what_was_written_comes_back_to_the_bit(tmp_path: Path, kind: str) -> None:
    spaces = SPACES[kind]
    rng = np.random.default_rng(1)
    made = [episode(spaces, 4 + i, i, rng) for i in range(3)]
    data = write_dataset(tmp_path / "demos-v0", spaces, made, policy="test")
    assert data.spaces == spaces
    assert all(same(a, b) for a, b in zip(read(tmp_path / "demos-v0"), made, strict=True))


def test_pictures_are_written_without_loss(tmp_path: Path) -> None:
    """Minari's own default packs pictures with their channels at the end as JPEG."""
    spaces = Spaces(gym.spaces.Box(0, 255, (40, 36, 3), np.uint8), gym.spaces.Discrete(2))
    made = episode(spaces, 3, 0, np.random.default_rng(0))
    write_dataset(tmp_path / "demos-v0", spaces, [made], policy="test")
    (found,) = read(tmp_path / "demos-v0")
    assert np.array_equal(found.obs, np.moveaxis(made.obs, -1, -3))


def test_minari_reads_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends, seeds, returns and final observations are where its users look for them."""
    folder, made = demonstrations(tmp_path / "demos-v3", PENDULUM)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    found = minari.load_dataset("demos-v3")
    for theirs, ours in zip(found.iterate_episodes(), made, strict=True):
        assert np.array_equal(theirs.observations, ours.obs) and len(theirs.observations) == len(ours) + 1
        assert np.array_equal(theirs.actions, ours.action)
        assert theirs.terminations.tolist() == [False] * (len(ours) - 1) + [ours.terminated]
        assert theirs.truncations.tolist() == [False] * (len(ours) - 1) + [not ours.terminated]
    about = list(found.storage.get_episode_metadata(range(6)))
    assert [one["seed"] for one in about] == [one.seed for one in made]
    assert [one["return"] for one in about] == pytest.approx([float(one.reward.sum()) for one in made], rel=1e-5)


def foreign(folder: Path, spaces: Spaces, episodes: list[dict[str, Any]], **options: Any) -> Path:
    """A data set as somebody else writes it."""
    (folder / "data").mkdir(parents=True)
    kind = minari.dataset.minari_storage.MinariStorage
    storage = kind.new(
        folder / "data", observation_space=spaces.observation, action_space=spaces.action, data_format="hdf5", **options
    )
    storage.update_metadata({"dataset_id": "other/people-v1", "minari_version": minari.__version__})
    storage.update_episodes([minari.data_collector.EpisodeBuffer(**one) for one in episodes])
    return folder


def test_spaces_of_others_become_those_of_policies(tmp_path: Path) -> None:
    """Double precision, channels at the end, actions that do not count from 0."""
    rng = np.random.default_rng(0)
    spaces = Spaces(
        gym.spaces.Dict(
            eye=gym.spaces.Box(0, 255, (12, 10, 3), np.uint8), joints=gym.spaces.Box(-9, 9, (2, 2), np.float64)
        ),
        gym.spaces.Discrete(3, start=5),
    )
    seen = {"eye": rng.integers(0, 256, (5, 12, 10, 3), np.uint8), "joints": rng.normal(size=(5, 2, 2))}
    ends = {"terminations": [False] * 4, "truncations": [False, False, False, True]}
    one = {"observations": seen, "actions": np.array([5, 6, 7, 5]), "rewards": [1.0, 2.0, 3.0, 4.0], **ends}
    found = MinariData(str(foreign(tmp_path / "demos", spaces, [one])), "demos")
    assert found.spaces.observation["eye"].shape == (3, 12, 10)
    assert found.spaces.observation["joints"].dtype == np.float32 and found.spaces.action == gym.spaces.Discrete(3)
    (read,) = found.episodes()
    assert np.array_equal(read.obs["eye"], np.moveaxis(seen["eye"], -1, -3))
    assert np.array_equal(read.obs["joints"], seen["joints"].astype(np.float32))
    assert read.action.tolist() == [0, 1, 2, 0] and not read.terminated


def test_pictures_that_were_packed_are_unpacked(tmp_path: Path) -> None:
    """Minari packs pictures as JPEG unless it is told not to."""
    plain = np.repeat(np.array([20, 90, 200], np.uint8), 40 * 48).reshape(3, 40, 48, 1).repeat(3, -1)
    spaces = Spaces(gym.spaces.Box(0, 255, (40, 48, 3), np.uint8), gym.spaces.Discrete(2))
    ends = {"terminations": [False, True], "truncations": [False, False]}
    one = {"observations": plain, "actions": np.array([0, 1]), "rewards": [0.0, 1.0], **ends}
    (read,) = MinariData(str(foreign(tmp_path / "demos", spaces, [one])), "demos").episodes()
    assert read.obs.shape == (3, 3, 40, 48) and np.abs(read.obs.astype(int) - np.moveaxis(plain, -1, -3)).max() <= 2


def test_statistics_are_those_of_all_steps(tmp_path: Path) -> None:
    folder, made = demonstrations(tmp_path / "demos-v0", PENDULUM)
    found = summarize(PENDULUM, MinariData(str(folder), "demos").episodes())
    obs, action = np.concatenate([one.obs[:-1] for one in made]), np.concatenate([one.action for one in made])
    for part, rows in ((found.obs, obs), (found.action, action)):
        assert part.count == len(rows) == found.steps
        assert np.array_equal(part.low, rows.min(0)) and np.array_equal(part.high, rows.max(0))
        assert np.allclose(part.mean, rows.mean(0), atol=1e-6) and np.allclose(part.std, rows.std(0), atol=1e-6)
    assert (found.terminated, found.lengths) == (3, [20, 21, 22, 23, 24, 25])


# ---- writing ---------------------------------------------------------------------------------------------------------


def failing() -> Any:
    yield episode(CART, 3, 0, np.random.default_rng(0))
    raise RuntimeError("the environment died")


def test_a_data_set_is_whole_or_not_there(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        write_dataset(tmp_path / "demos-v0", CART, failing(), policy="test")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder, made = demonstrations(tmp_path / "demos-v0")
    with pytest.raises(ConfigError, match="exists already"):
        write_dataset(folder, CART, made, policy="test")
    assert len(read(folder)) == 6


def test_more_episodes_are_added_at_the_end(tmp_path: Path) -> None:
    """Also to a data set whose last adding was killed between its two files."""
    folder, made = demonstrations(tmp_path / "demos-v0")
    before = MinariData(str(folder), "demos").sha256
    with h5py.File(folder / "data" / "main_data.hdf5", "r+") as file:
        file.copy("episode_0", "episode_6")
    data = append_episodes(folder, CART, made[:2], policy="again")
    assert [len(one) for one in read(folder)] == [len(one) for one in [*made, *made[:2]]]
    assert data.sha256 != before and [one["episodes"] for one in data.metadata["ludus"]] == [6, 2]
    assert [path.name for path in folder.iterdir()] == ["data"]


def test_an_adding_that_fails_changes_nothing(tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    before = MinariData(str(folder), "demos").sha256
    with pytest.raises(RuntimeError):
        append_episodes(folder, CART, failing(), policy="test")
    assert MinariData(str(folder), "demos").sha256 == before and len(list(folder.iterdir())) == 1


def test_an_adding_that_is_killed_between_its_two_files_leaves_the_old_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, made = demonstrations(tmp_path / "demos-v0")
    replace, moved = Path.replace, []

    def killed(path: Path, target: Path) -> Path:
        moved.append(path.name)
        if len(moved) == 2:
            raise KeyboardInterrupt
        return replace(path, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)
        append_episodes(folder, CART, made[:2], policy="again")
    assert len(moved) == 2 and [len(one) for one in read(folder)] == [len(one) for one in made]


def test_episodes_of_another_task_are_not_added(tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    with pytest.raises(ConfigError, match="its spaces are not those of this environment"):
        append_episodes(folder, PENDULUM, [], policy="test")


@pytest.mark.parametrize(
    ("name", "id"), [("cart-v2", "cart-v2"), ("cart", "cart-v0"), ("my cart.v2", "my_cart_v2-v0"), ("..", "__-v0")]
)
def test_the_id_is_one_that_minari_accepts(name: str, id: str) -> None:
    assert dataset_id(name) == id
    assert minari.dataset.minari_dataset.parse_dataset_id(id)


# ---- what is broken --------------------------------------------------------------------------------------------------


def content(change: Callable[[Any], None]) -> Callable[[Path], None]:
    """A change inside of the episodes."""

    def apply(folder: Path) -> None:
        with h5py.File(folder / "data" / "main_data.hdf5", "r+") as file:
            change(file)

    return apply


def metadata(**changes: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "data" / "metadata.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return apply


def put(name: str, value: Any) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        del file[name]
        file[name] = value

    return change


def set_to(name: str, index: Any, value: Any) -> Callable[[Any], None]:
    def change(file: Any) -> None:
        file[name][index] = value

    return change


def cut(folder: Path) -> None:
    path = folder / "data" / "main_data.hdf5"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def replaced(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "data" / name).write_text(text) and None


def elsewhere(file: Any) -> None:
    del file["episode_2/rewards"]
    file["episode_2/rewards"] = h5py.ExternalLink("/etc/other.hdf5", "/rewards")


def virtual(file: Any) -> None:
    del file["episode_2/rewards"]
    layout = h5py.VirtualLayout((22,), "f4")
    layout[:] = h5py.VirtualSource("/etc/other.hdf5", "rewards", (22,))
    file["episode_2"].create_virtual_dataset("rewards", layout)


def as_group(file: Any) -> None:
    del file["episode_2/actions"]
    file.create_group("episode_2/actions")


def bomb(file: Any) -> None:
    """Rows that are in the file by name only."""
    group, rows = file["episode_2"], 1 << 46
    for name in ("rewards", "terminations", "truncations"):
        kind = group[name].dtype
        del group[name]
        group.create_dataset(name, shape=(rows,), dtype=kind, chunks=(1 << 20,))


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (cut, "main_data.hdf5: cannot be read: "),
    "no hdf5": (replaced("main_data.hdf5", "hello"), "main_data.hdf5: cannot be read: "),
    "absent content": (lambda folder: (folder / "data" / "main_data.hdf5").unlink(), "main_data.hdf5: "),
    "no json": (replaced("metadata.json", "{"), "metadata.json: is no JSON"),
    "a list": (replaced("metadata.json", "[]"), "metadata.json: is no mapping"),
    "foreign id": (metadata(dataset_id="../evil-v0"), "dataset_id '../evil-v0' is not of the form"),
    "absolute id": (metadata(dataset_id="/etc/evil-v0"), "dataset_id '/etc/evil-v0' is not of the form"),
    "another format": (metadata(data_format="arrow"), "its data_format is 'arrow', and only hdf5 can be read"),
    "no episodes": (metadata(total_episodes=0), "it has no episodes"),
    "too few episodes": (metadata(total_episodes=7), "episode 6: episode_6 is missing"),
    "a text": (metadata(observation_space='{"type": "Text"}'), "ValueError a space of type 'Text'"),
    "objects": (
        metadata(observation_space='{"type": "Box", "dtype": "object", "shape": [1], "low": [0], "high": [1]}'),
        "cannot be understood: ValueError a Box of object",
    ),
    "other shape": (content(put("episode_3/observations", np.zeros((24, 5), np.float32))),
                    "episode 3: observations has shape (24, 5), not (24, 4)"),
    "no final observation": (content(put("episode_3/observations", np.zeros((23, 4), np.float32))),
                             "episode 3: observations has shape (23, 4), not (24, 4)"),
    "text in it": (content(put("episode_3/observations", [b"x"] * 24)), "episode 3: observations has shape"),
    "not a number": (content(set_to("episode_1/observations", (7, 2), np.nan)),
                     "episode 1: observations is not finite at step 7"),
    "endless reward": (content(set_to("episode_4/rewards", 3, np.inf)), "episode 4: rewards is not finite at step 3"),
    "beyond single precision": (content(put("episode_4/rewards", np.full(24, 1e300))),
                                "episode 4: rewards is not finite at step 0"),
    "no such action": (content(set_to("episode_5/actions", 1, 2)), "episode 5: actions has a value outside"),
    "fractions": (content(put("episode_5/actions", np.zeros(25))), "episode 5: actions holds float64, not int64"),
    "missing column": (lambda folder: content(lambda file: file.__delitem__("episode_2/actions"))(folder),
                       "episode 2: actions is missing"),
    "a group": (content(as_group),
                "episode 2: actions is no dataset"),
    "not even a row": (content(put("episode_2/rewards", 1.0)), "episode 2: has no steps"),
    "endless seed": (content(lambda file: file["episode_2"].attrs.__setitem__("seed", np.inf)),
                     "episode 2: cannot convert float infinity to integer"),
    "larger than memory": (content(bomb), "episode 2: is larger than memory"),
    "endless": (metadata(total_episodes=float("inf")), "metadata.json: cannot be understood: OverflowError"),
    "a number beyond all": (metadata(action_space={"type": "Discrete", "n": 10**30, "start": 0}),
                            "metadata.json: cannot be understood: OverflowError"),
    "a space beyond all": (metadata(observation_space={"type": "MultiBinary", "n": 10**12}),
                           "metadata.json: cannot be understood: ValueError a space of 1,000,000,000,000 numbers"),
    "two episodes in one": (content(set_to("episode_0/truncations", 4, True)), "episode 0: ends before its last step"),
    "empty": (content(put("episode_0/rewards", np.zeros(0, np.float32))), "episode 0: has no steps"),
    "another file": (content(elsewhere), "episode 2: rewards is a link"),
    "another file inside": (content(virtual), "episode 2: rewards lies in another file"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_named_on_one_line(tmp_path: Path, case: str) -> None:
    """The file, the episode and what is wrong with it."""
    folder, _ = demonstrations(tmp_path / "demos-v0")
    harm, expected = BROKEN[case]
    harm(folder)
    with pytest.raises(DataError) as error:
        read(folder)
    line = error.value.line()
    assert expected in line and str(folder) in line and "\n" not in line


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    import os

    folder, _ = demonstrations(tmp_path / "demos-v0")
    (folder / "data" / "main_data.hdf5").unlink()
    os.mkfifo(folder / "data" / "main_data.hdf5")
    with pytest.raises(DataError, match="not a regular file"):
        read(folder)


@pytest.mark.parametrize(
    ("path", "expected"), [("", "names no data set"), ("nowhere", "there is no data set in nowhere")]
)
def test_what_is_not_there_is_said(path: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        MinariData(path, "buffers.demos.path")


def test_spaces_that_no_policy_has_are_refused(tmp_path: Path) -> None:
    spaces = Spaces(gym.spaces.Discrete(2), gym.spaces.Tuple([gym.spaces.Discrete(2)]))
    ends = {"terminations": [True], "truncations": [False]}
    one = {"observations": [0, 1], "actions": (np.array([1]),), "rewards": [0.0], **ends}
    folder = foreign(tmp_path / "demos", spaces, [one])
    with pytest.raises(LudusError, match="Tuple action space, which is not supported; name a data set of other spaces"):
        MinariData(str(folder), "buffers.demos.path")


def test_without_the_extra_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    folder, made = demonstrations(tmp_path / "demos-v0")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError, match=r"pip install 'ludus-rl\[offline\]'"):
        read(folder)
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ConfigError, match=r"pip install 'ludus-rl\[offline\]'"):
        write_dataset(tmp_path / "more-v0", CART, made, policy="test")
    assert not (tmp_path / "more-v0").exists()


def test_a_tree_is_a_tree() -> None:
    """The helper of these tests can tell two episodes apart."""
    one = episode(CART, 3, 0, np.random.default_rng(0))
    assert same(one, one) and not same(one, replace(one, obs=tree_map(lambda leaf: leaf + 1, one.obs)))
