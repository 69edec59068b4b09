"""One process per run folder: `flock` locks, which the system releases when their owner dies.

The folder itself is locked and, since some network file systems cannot lock folders, also `.lock` in it, which names
the owner. Forked children share such locks, so a child closes its copy at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path

from ludus import files
from ludus.errors import ConfigError

NAME = ".lock"
TRIES, PAUSE = 10, 0.02
"""Number of attempts to take a lock, and seconds between them."""
_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)
_HELD: set[RunLock] = set()


class RunLock:
    """The lock of a run folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / NAME
        self._folder = self._file = -1

    def acquire(self) -> None:
        """Take the lock; ConfigError names the process that holds it."""
        self._folder = self._opened(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if not _lock(self._folder, fcntl.LOCK_EX, insist=False):
                raise self._in_use()
            self._file = self._take_file()
        except (OSError, ConfigError):
            os.close(self._folder)
            self._folder = -1
            raise
        _HELD.add(self)

    def release(self) -> None:
        """Release the lock, also for processes that inherited it."""
        _HELD.discard(self)
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                with contextlib.suppress(OSError):  # the file system may be gone
                    fcntl.flock(descriptor, fcntl.LOCK_UN)
        self._close()

    def confirm(self) -> None:
        """Check before a write that the folder is still the locked one; a removed lock file is created again."""
        try:
            here = self.folder.stat()
        except OSError:  # the folder is gone; the next write reports it
            return
        if not os.path.samestat(here, os.fstat(self._folder)):
            remedy = "move it back, or resume the run where it is now"
            raise ConfigError(str(self.folder), "is another folder than the one this run began in", remedy)
        if not self._names(self._file):
            new = self._take_file()
            os.close(self._file)
            self._file = new

    @staticmethod
    def is_held(folder: Path) -> bool:
        """Whether a process holds the lock."""
        for path, flags in ((folder, os.O_RDONLY | os.O_DIRECTORY), (folder / NAME, os.O_RDWR | os.O_NOFOLLOW)):
            try:
                descriptor = os.open(path, flags | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                if not _lock(descriptor, fcntl.LOCK_SH, insist=path != folder):
                    return True
            except OSError:  # locks do not work here
                return True
            finally:
                os.close(descriptor)
        return False

    def _take_file(self) -> int:
        """Open (or create) and lock `.lock`; returns its descriptor."""
        while True:
            file = self._opened(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
            try:
                if not _lock(file, fcntl.LOCK_EX, insist=True):
                    raise self._in_use()
                if self._names(file):
                    _sign(file)
                    return file
            except (OSError, ConfigError) as error:
                os.close(file)
                if isinstance(error, ConfigError):
                    raise
                problem = f"cannot be locked: {error.strerror}"
                raise ConfigError(str(self.folder), problem, "keep runs on a file system with flock") from None
            os.close(file)  # it was removed between open and lock: try again

    def _names(self, descriptor: int) -> bool:
        """Whether `.lock` is still the file of this descriptor."""
        try:
            return os.path.samestat(self.path.lstat(), os.fstat(descriptor))
        except OSError:
            return False

    def _in_use(self) -> ConfigError:
        return ConfigError(str(self.folder), f"is in use by {_owner(self.path)}", "wait for it or stop it")

    @staticmethod
    def _opened(path: Path, flags: int) -> int:
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o600)
        except OSError as error:
            remedy = "see that the run folder may be written"
            raise ConfigError(str(path), f"cannot be opened: {error.strerror}", remedy) from None

    def _close(self) -> None:
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._folder = self._file = -1


def _lock(descriptor: int, kind: int, *, insist: bool) -> bool:
    """Whether the lock was taken. Where locks do not work: an error if `insist`, otherwise True.

    `is_held` takes the lock for a moment, so that an exclusive lock is tried several times.
    """
    for attempt in range(TRIES if kind == fcntl.LOCK_EX else 1):
        time.sleep(PAUSE if attempt else 0.0)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN:
                continue
            if insist:
                raise
        return True
    return False


def _sign(descriptor: int) -> None:
    facts = {"host": socket.gethostname(), "pid": os.getpid()}
    with contextlib.suppress(OSError):  # on a full disk the lock works without the owner's name
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(facts).encode(), 0)


def _owner(path: Path) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        facts = json.loads(files.read(path, 4096, follow=False))
        return f"process {int(facts['pid'])} on {str(facts['host'])[:60]}"
    return "another process"


def _in_child() -> None:
    """A forked child must not hold the lock after its parent has died."""
    for lock in _HELD:
        lock._close()
    _HELD.clear()


os.register_at_fork(after_in_child=_in_child)
