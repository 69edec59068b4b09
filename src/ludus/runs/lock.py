"""One process per run folder: an advisory lock that the system releases when its owner dies, however it dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
from pathlib import Path

from ludus.errors import ConfigError

NAME = ".lock"


class RunLock:
    """Holds `runs/<id>/.lock` for as long as this process works on the run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock, or name its owner."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags, 0o600)
        except OSError as error:
            remedy = "see that the run folder may be written"
            raise ConfigError(str(self.path), f"cannot be opened: {error.strerror}", remedy) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = _owner(descriptor)
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise ConfigError(str(self.path.parent), f"is in use by {owner}", "wait for it or stop it") from None
            problem = f"cannot be locked: {error.strerror}"
            raise ConfigError(str(self.path.parent), problem, "keep runs on a file system with flock") from None
        self._descriptor = descriptor
        facts = {"host": socket.gethostname(), "pid": os.getpid(), "boot": _boot_id()}
        with contextlib.suppress(OSError):  # on a full disk the owner has no name, but the lock holds
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(facts).encode(), 0)

    def release(self) -> None:
        """Give the lock back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @staticmethod
    def is_held(folder: Path) -> bool:
        """Whether some process works on the run now."""
        try:
            descriptor = os.open(folder / NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False


def _owner(descriptor: int) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        facts = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {int(facts['pid'])} on {str(facts['host'])[:60]}"
    return "another process"


def _boot_id() -> str:
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else ""
