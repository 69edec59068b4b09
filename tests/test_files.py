"""Old or new, never half; links are not followed; the order of the calls survives a power cut."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from ludus import files


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_write_and_replace(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    files.write_json(path, {"x": 1, "bad": math.nan, "deep": [math.inf, (1.5, "t")]})
    assert json.loads(path.read_text()) == {"x": 1, "bad": None, "deep": [None, [1.5, "t"]]}
    files.write_text(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert _names(tmp_path) == ["a.json"]


def test_a_symlink_at_the_temporary_name_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "known")
    temporary = files.beside(tmp_path / "a.json")
    temporary.symlink_to(victim)
    with pytest.raises(FileExistsError):
        files.write_text(tmp_path / "a.json", "new")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "a.json").exists()


def test_writing_through_a_link_at_the_target_replaces_the_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "a").symlink_to(victim)
    files.write_text(tmp_path / "a", "new")
    assert (victim.read_text(), (tmp_path / "a").read_text()) == ("precious", "new")


def test_data_is_synced_before_the_rename_and_the_folder_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def spy_sync(descriptor: int) -> None:
        calls.append("sync " + Path(f"/proc/self/fd/{descriptor}").readlink().name[:2])
        fsync(descriptor)

    def spy_replace(self: Path, target: Path) -> Path:
        calls.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", spy_sync)
    monkeypatch.setattr(Path, "replace", spy_replace)
    folder = tmp_path / "zz"
    folder.mkdir()
    files.write_text(folder / "a", "x")
    assert calls == ["sync .a", "rename", "sync zz"]


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    files.write_text(path, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_text(path, "new")
    assert path.read_text() == "old"
    assert _names(tmp_path) == ["a"]


def test_a_link_is_replaced_in_one_step(tmp_path: Path) -> None:
    link = tmp_path / "@last"
    for target in ("one", "two"):
        files.replace_link(link, target)
        assert str(link.readlink()) == target
    assert _names(tmp_path) == ["@last"]


def test_the_temporary_file_is_beside_a_long_name(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    files.write_text(path, "x")
    assert path.read_text() == "x"


def test_reading_neither_blocks_nor_fills_memory(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1234")
    os.mkfifo(tmp_path / "fifo")
    assert files.read(tmp_path / "a", 4) == b"1234"
    with pytest.raises(OSError, match="is larger than 3 bytes"):
        files.read(tmp_path / "a", 3)
    for name in ("fifo", "."):
        with pytest.raises(OSError, match="is not a regular file"):
            files.read(tmp_path / name, 4)


def test_a_link_is_followed_only_if_asked(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1234")
    (tmp_path / "link").symlink_to("a")
    assert files.read(tmp_path / "link", 4) == b"1234"
    with pytest.raises(OSError, match="symbolic links"):
        files.read(tmp_path / "link", 4, follow=False)


def test_a_file_is_replaced_only_when_its_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.write_text(path, "old")
    with files.replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    with pytest.raises(OSError, match="full"), files.replacing(path) as file:
        raise OSError(28, "full")
    assert path.read_text() == "new" and _names(tmp_path) == ["a"]
