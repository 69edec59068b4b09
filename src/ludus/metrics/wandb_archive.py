"""Checkpoints at Weights & Biases: every one is a version of the run's artifact, of which only new files are sent."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ludus.errors import LudusError

TYPE = "ludus-run"
"""Type of the artifacts."""
MOST_WAITING = 20
"""Checkpoints that may wait for their upload; of more, the oldest one is left out: they take room on the disk."""
PATIENCE, SLOWEST = 60.0, 2**20
"""Seconds, and bytes in a second, that are waited for at the end: W&B's client repeats for a quarter of an hour."""
FINISH = 120.0
"""Seconds that the client may take after that, where an upload has not ended."""
Pack = Callable[[Path, Path], str]
"""Writes a checkpoint with all that it needs into an empty folder; returns what is left out of it."""


class Archive:
    """Copies checkpoints beside the run's W&B files; a thread sends them, so that training waits for no network."""

    def __init__(self, run: Any, name: str, pack: Pack) -> None:
        """`run` is the client's run, `name` that of the artifact."""
        self._run, self._name, self._pack = run, name, pack
        self.folder = Path(run.dir).parent / "archive"
        self._offline = str(run.settings.mode) == "offline"
        for old in self.folder.parent.parent.glob("run-*/archive"):  # of a process that was killed
            shutil.rmtree(old, ignore_errors=True)
        self._waiting: deque[tuple[Path, list[str]]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._sent: Path | None = None
        """The newest one that was sent: the next shares files with it."""
        self._said: set[str] = set()
        self._troubles: deque[str] = deque()

    def add(self, checkpoint: Path) -> None:
        """Take a checkpoint; whatever goes wrong with it is a warning."""
        folder = self.folder / checkpoint.name
        try:
            shutil.rmtree(folder, ignore_errors=True)  # of the same checkpoint, written again
            folder.mkdir(parents=True, mode=0o700)
            if left_out := self._pack(checkpoint, folder):
                self._warn("left out", f"W&B archive: {left_out}")
        except (LudusError, OSError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            self._warn("copy", f"W&B archive: {checkpoint.name} is left out: {_line(error)}; training goes on")
            return
        best = checkpoint.with_name("best")
        is_best = best.is_symlink() and str(best.readlink()) == checkpoint.name
        self._send_later(folder, ["latest", *(["best"] if is_best else [])])

    def warnings(self) -> list[str]:
        """What went wrong since the last call: each kind of trouble is told once in a run."""
        return [self._troubles.popleft() for _ in range(len(self._troubles))]

    def close(self) -> None:
        """Wait for the uploads as long as they may take; short waits let this thread handle signals."""
        end = time.monotonic() + PATIENCE + _size(self.folder) / SLOWEST
        while (thread := self._thread) is not None and time.monotonic() < end:
            thread.join(0.2)
        if thread is not None:
            self._warn("late", "W&B archive: the newest checkpoints are not stored: W&B takes too long")
        with self._lock:
            self._waiting.clear()
        if not self._offline:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _send_later(self, folder: Path, aliases: list[str]) -> None:
        with self._lock:
            if len(self._waiting) == MOST_WAITING:
                old, _ = self._waiting.popleft()
                shutil.rmtree(old, ignore_errors=True)
                problem = f"uploads are slower than checkpoints: {old.name} is left out"
                self._warn("slow", f"W&B archive: {problem}, and so are others from here on")
            self._waiting.append((folder, aliases))
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="wandb-archive", daemon=True)
                self._thread.start()

    def _send_all(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                folder, aliases = self._waiting.popleft()
            self._send(folder, aliases)

    def _send(self, folder: Path, aliases: list[str]) -> None:
        """Hand a version over and wait until the server has it; W&B's manifest tells no folder of this machine."""
        import wandb
        from wandb.sdk.mailbox import HandleAbandonedError, MailboxClosedError

        failures = wandb.Error, HandleAbandonedError, MailboxClosedError, OSError, ValueError, RuntimeError, TypeError
        with tempfile.TemporaryDirectory(prefix="ludus-") as room:
            link = Path(room) / folder.name
            try:
                link.symlink_to(folder.absolute())
                artifact = wandb.Artifact(self._name, TYPE, metadata={"checkpoint": folder.name})
                for path in sorted(folder.iterdir()):
                    source = path if self._offline else link / path.name
                    artifact.add_file(str(source), path.name, policy="immutable", skip_cache=True)
                sent = self._run.log_artifact(artifact, aliases=aliases)
                if not self._offline:  # otherwise `wandb sync` wants the files
                    sent.wait()
            except failures as error:  # the second and the third have no text: the client's other process has ended
                said = _line(error) or "W&B's client has ended"
                self._warn("send", f"W&B archive: {folder.name} is not stored: {said}; training goes on")
        if self._sent not in (None, folder) and not self._offline:
            shutil.rmtree(self._sent, ignore_errors=True)
        self._sent = folder

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._troubles.append(text)


def _size(folder: Path) -> int:
    size = 0
    for parent, _, names in os.walk(folder):  # unlike glob it passes over what is sent and removed meanwhile
        for name in names:
            with contextlib.suppress(OSError):
                size += Path(parent, name).stat().st_size
    return size


def _line(error: Exception) -> str:
    text = error.line() if isinstance(error, LudusError) else str(error)
    return " ".join(text.split())[:200]
