"""The archive of checkpoints: training waits for no upload, and what goes wrong is told once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ludus.archive import steps
from ludus.errors import ConfigError
from ludus.metrics import wandb_archive
from ludus.metrics.wandb_archive import MOST_WAITING, Archive

wandb = pytest.importorskip("wandb")
from wandb.sdk.mailbox import HandleAbandonedError, MailboxClosedError  # noqa: E402


class Client:
    """A run of the client whose uploads end when they may."""

    def __init__(self, folder: Path) -> None:
        self.dir, self.settings = str(folder / "wandb" / "run-1" / "files"), SimpleNamespace(mode="online")
        self.after: Callable[[], None] = lambda: None
        self.may, self.sent = threading.Event(), list[tuple[str, list[str]]]()

    def log_artifact(self, artifact: Any, aliases: list[str]) -> Any:
        self.may.wait(20)
        self.sent.append((artifact.metadata["checkpoint"], aliases))
        return SimpleNamespace(wait=self.after)


def pack(checkpoint: Path, folder: Path) -> str:
    (folder / "state.json").write_text(checkpoint.name)
    return ""


def test_a_slow_network_holds_nothing_up(tmp_path: Path) -> None:
    """The oldest of too many waiting checkpoints is left out, never the newest; afterwards the disk is free again."""
    client = Client(tmp_path)
    archive = Archive(client, "cart", pack)
    (tmp_path / "checkpoints").mkdir()
    begun = time.monotonic()
    for step in range(MOST_WAITING + 5):
        archive.add(tmp_path / "checkpoints" / f"step={step}")
    assert time.monotonic() - begun < 5 and not client.sent
    assert len(list(archive.folder.iterdir())) <= MOST_WAITING + 2
    (warning,) = archive.warnings()
    assert "uploads are slower than checkpoints: step=" in warning
    (tmp_path / "checkpoints" / "best").symlink_to("step=3")
    client.may.set()
    archive.close()
    steps = [int(name.removeprefix("step=")) for name, _ in client.sent]
    assert steps[-MOST_WAITING:] == list(range(5, MOST_WAITING + 5)) and len(steps) <= MOST_WAITING + 1
    assert not archive.folder.exists() and not archive.warnings()


def test_an_upload_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run ends all the same."""
    monkeypatch.setattr(wandb_archive, "PATIENCE", 0.3)
    client = Client(tmp_path)
    archive = Archive(client, "cart", pack)
    for step in range(3):
        archive.add(tmp_path / "checkpoints" / f"step={step}")
    begun = time.monotonic()
    archive.close()
    assert time.monotonic() - begun < 5
    (warning,) = archive.warnings()
    assert warning == "W&B archive: the newest checkpoints are not stored: W&B takes too long"
    client.may.set()


@pytest.mark.parametrize("error", [HandleAbandonedError(), MailboxClosedError()])
def test_the_end_of_the_client_is_one_warning(error: Exception, tmp_path: Path) -> None:
    """Its other process was killed: the next checkpoints are tried again, and the end waits for nothing."""
    client = Client(tmp_path)
    client.may.set()

    def fail() -> None:
        raise error

    client.after = fail
    archive = Archive(client, "cart", pack)
    archive.add(tmp_path / "checkpoints" / "step=0")
    begun = time.monotonic()
    archive.close()
    assert time.monotonic() - begun < 5
    (warning,) = archive.warnings()
    assert warning == "W&B archive: step=0 is not stored: W&B's client has ended; training goes on"


def test_folders_that_are_removed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread removes what was sent while the end adds up the sizes and the next checkpoint looks for its steps."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "steps-0.bin").write_bytes(b"1234")
    scandir = os.scandir

    def gone(path: Any = ".") -> Any:
        if Path(path).name == "a":
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert wandb_archive._size(tmp_path) == 4
    (tmp_path / "c").mkdir()
    steps.pack({}, tmp_path, tmp_path / "c")


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """But not what waits for `wandb sync`."""
    for name in ("run-0", "offline-run-0"):
        (tmp_path / "wandb" / name / "archive" / "step=0").mkdir(parents=True)
    Archive(Client(tmp_path), "cart", pack)
    assert [path.parts[-3] for path in tmp_path.glob("wandb/*/archive/step=0")] == ["offline-run-0"]


@pytest.mark.parametrize("error", [ConfigError("config.yaml", "is a local path"), OSError(28, "No space left")])
def test_a_copy_that_fails_is_told_once(error: Exception, tmp_path: Path) -> None:
    def fail(_: Path, folder: Path) -> str:
        (folder / "state.json").write_text("half")
        raise error

    client = Client(tmp_path)
    archive = Archive(client, "cart", fail)
    for step in range(3):
        archive.add(tmp_path / "checkpoints" / f"step={step}")
    archive.close()
    (warning,) = archive.warnings()
    assert warning.startswith("W&B archive: step=0 is left out: ") and warning.endswith("training goes on")
    assert not client.sent and not archive.folder.exists()


def test_the_best_one_has_a_name(tmp_path: Path) -> None:
    client = Client(tmp_path)
    client.may.set()
    archive = Archive(client, "cart", pack)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "best").symlink_to("step=1")
    for step in range(3):
        archive.add(tmp_path / "checkpoints" / f"step={step}")
    archive.close()
    assert client.sent == [
        ("step=0", ["latest"]),
        ("step=1", ["latest", "best"]),
        ("step=2", ["latest"]),
    ]
