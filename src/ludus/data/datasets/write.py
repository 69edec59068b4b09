"""Writes episodes as a data set in Minari's format, without loss: a new one, or more episodes of an old one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ludus import files
from ludus.data.datasets.minari import CONTENT, METADATA, MinariData, read_metadata
from ludus.data.datasets.statistics import Episode
from ludus.errors import ConfigError, MissingExtra, of_system
from ludus.types import Spaces


def write_dataset(
    folder: Path, spaces: Spaces, episodes: Iterable[Episode], *, policy: str, **facts: Any
) -> MinariData:
    """A new data set, or none at all; `facts` go into its metadata under `ludus`."""
    if folder.exists():
        raise ConfigError(f"--out {folder}", "exists already", "name another folder, or add to it: --append")
    temporary = files.beside(folder.absolute())  # Minari loses its way with relative paths
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(mode=0o700)
        _write(temporary / "data", dataset_id(folder.name), spaces, episodes, policy, facts)
        temporary.rename(folder)
        files.sync(folder.parent)
    except OSError as error:
        raise of_system(error, str(folder)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return MinariData(str(folder), "--out")


def append_episodes(
    folder: Path, spaces: Spaces, episodes: Iterable[Episode], *, policy: str, **facts: Any
) -> MinariData:
    """More episodes at the end of a data set; it stays as it was until all of them are on disk."""
    old = MinariData(str(folder), "--out")
    if old.spaces != spaces or (old.observation, old.action) != (spaces.observation, spaces.action):
        raise ConfigError(f"--out {folder}", "its spaces are not those of this environment", "name another data set")
    temporary = files.beside(old.folder.absolute())
    try:
        shutil.copytree(old.folder, temporary)
        _remove_unlisted(temporary / CONTENT, old.count)
        _add(temporary, episodes, policy, facts)
        (temporary / CONTENT).replace(old.folder / CONTENT)  # the old metadata knows the old episodes only
        (temporary / METADATA).replace(old.folder / METADATA)
        files.sync(old.folder)
    except OSError as error:
        raise of_system(error, str(folder)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return MinariData(str(folder), "--out")


def dataset_id(name: str) -> str:
    """The id of a data set in a folder of that name: itself where that is an id, so that Minari finds it by it."""
    plain = re.sub(r"[^-\w]", "_", name)
    return plain if re.fullmatch(r"[-\w]+-v\d+", plain) else f"{plain}-v0"


def _write(
    data: Path, id: str, spaces: Spaces, episodes: Iterable[Episode], policy: str, facts: dict[str, Any]
) -> None:
    minari = _minari(str(data.parent))
    storage = minari.dataset.minari_storage.MinariStorage.new(
        data,
        observation_space=spaces.observation,
        action_space=spaces.action,
        data_format="hdf5",
        jpeg_encoding=False,  # the default loses what the policy saw
    )
    storage.update_metadata({"dataset_id": id, "algorithm_name": policy, "minari_version": minari.__version__})
    _add(data, episodes, policy, facts)


def _add(data: Path, episodes: Iterable[Episode], policy: str, facts: dict[str, Any]) -> None:
    """Episodes with their seeds and returns, and one more entry under `ludus`: who played them."""
    minari = _minari(str(data))
    storage = minari.dataset.minari_storage.MinariStorage.read(data)
    begun, totals = storage.total_episodes, []

    def written() -> Iterator[Any]:
        for episode in episodes:
            totals.append({"return": float(episode.reward.sum(dtype="float64"))})
            ends = [False] * (len(episode) - 1)
            yield minari.data_collector.EpisodeBuffer(
                seed=episode.seed,
                observations=episode.obs,
                actions=episode.action,
                rewards=episode.reward,
                terminations=[*ends, episode.terminated],
                truncations=[*ends, not episode.terminated],
            )

    storage.update_episodes(written())
    storage.update_episode_metadata(totals, range(begun, begun + len(totals)))
    known = read_metadata(data / METADATA).get("ludus", [])
    storage.update_metadata({"ludus": [*known, {"policy": policy, "episodes": len(totals), **facts}]})
    for name in (CONTENT, METADATA):
        files.sync(data / name)


def _remove_unlisted(content: Path, count: int) -> None:
    """Forget episodes of an appending that was killed before its metadata was written."""
    import h5py

    with h5py.File(content, "r+") as file:
        for name in [name for name in file if name not in {f"episode_{i}" for i in range(count)}]:
            del file[name]


def _minari(where: str) -> Any:
    try:
        import minari
        import minari.data_collector
        import minari.dataset._storages.hdf5_storage
        import minari.dataset.minari_storage
    except ImportError:
        raise MissingExtra(f"data set {where}", "offline") from None
    return minari
