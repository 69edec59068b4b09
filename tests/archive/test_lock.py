"""One process per run folder: also where somebody removes the lock file, and where the owner forks."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.archive.lock import NAME, RunLock
from ludus.errors import ConfigError

OWNER = """
import os, sys, time
from pathlib import Path
from ludus.archive.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.acquire()
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.write(writer, b"!")
    time.sleep(60)
    os._exit(0)
os.read(reader, 1)  # it has begun
print(child, flush=True)
sys.stdin.readline()
if sys.argv[2] == "released":
    lock.release()
    print("done", flush=True)
    sys.stdin.readline()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def held(tmp_path: Path) -> Iterator[RunLock]:
    lock = RunLock(tmp_path)
    lock.acquire()
    yield lock
    lock.release()


def test_taken_once_and_given_back(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    assert not RunLock.is_held(tmp_path)
    lock.acquire()
    assert RunLock.is_held(tmp_path)
    with pytest.raises(ConfigError, match=f"is in use by process {os.getpid()} on "):
        RunLock(tmp_path).acquire()
    lock.release()
    assert not RunLock.is_held(tmp_path)
    lock.release()  # twice is fine
    again = RunLock(tmp_path)
    again.acquire()
    again.release()


def test_removing_the_file_lets_nobody_in(held: RunLock, tmp_path: Path) -> None:
    (tmp_path / NAME).unlink()
    assert RunLock.is_held(tmp_path)
    with pytest.raises(ConfigError, match="is in use by another process"):
        RunLock(tmp_path).acquire()
    assert not (tmp_path / NAME).exists()


def test_a_removed_file_is_made_and_taken_again(held: RunLock, tmp_path: Path) -> None:
    (tmp_path / NAME).unlink()
    held.confirm()
    assert (tmp_path / NAME).exists()
    inode = (tmp_path / NAME).stat().st_ino
    held.confirm()
    assert (tmp_path / NAME).stat().st_ino == inode
    with pytest.raises(ConfigError, match=f"process {os.getpid()} on"):
        RunLock(tmp_path).acquire()


def test_a_file_that_another_process_has_taken_ends_the_work(
    held: RunLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On file systems that cannot lock folders the file is all there is."""
    import fcntl

    (tmp_path / NAME).unlink()
    (tmp_path / NAME).touch()
    with (tmp_path / NAME).open("rb+") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="is in use by"):
            held.confirm()
    held.confirm()


def test_another_folder_of_that_name_is_not_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    lock = RunLock(folder)
    lock.acquire()
    folder.rename(tmp_path / "elsewhere")
    lock.confirm()  # gone: whoever writes next says so
    folder.mkdir()
    with pytest.raises(ConfigError, match="is another folder"):
        lock.confirm()
    lock.release()


@pytest.mark.parametrize("end", ["killed", "released"])
def test_a_lock_dies_with_its_process_whatever_it_forked(tmp_path: Path, end: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), end], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdin is not None and owner.stdout is not None
    child = int(owner.stdout.readline())
    try:
        assert RunLock.is_held(tmp_path)
        owner.stdin.write("\n")
        owner.stdin.flush()
        if end == "killed":
            owner.wait()
        else:
            assert owner.stdout.readline() == "done\n"
        os.kill(child, 0)  # still there
        lock = RunLock(tmp_path)
        lock.acquire()
        lock.release()
    finally:
        os.kill(child, 9)
        owner.kill()
        owner.communicate()


def test_giving_it_back_counts_for_copies_that_nobody_closes(held: RunLock, tmp_path: Path) -> None:
    """A child that a library forks behind Python's back inherits descriptors like these."""
    copies = [os.dup(held._folder), os.dup(held._file)]
    held.release()
    assert not RunLock.is_held(tmp_path)
    for copy in copies:
        os.close(copy)


def test_a_folder_that_cannot_be_locked_still_has_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS: locks of files, but none of folders."""
    import errno
    import fcntl
    import stat

    flock = fcntl.flock

    def nfs(descriptor: int, kind: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", nfs)
    lock = RunLock(tmp_path)
    lock.acquire()
    assert RunLock.is_held(tmp_path)
    with pytest.raises(ConfigError, match="is in use by process"):
        RunLock(tmp_path).acquire()
    lock.release()
    assert not RunLock.is_held(tmp_path)


def test_a_listing_at_the_same_moment_refuses_nobody(tmp_path: Path) -> None:
    """`is_held` takes the lock, shared, for a moment."""
    reader = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    threading.Timer(0.05, os.close, [reader]).start()
    lock = RunLock(tmp_path)
    lock.acquire()
    lock.release()
