"""One fork server per test process, a run that was stopped early to damage copies of, and small file systems."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from faults.processes import Process, Server
from faults.support import SMALL, only_run

Ludus = Callable[..., Process]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Has imported everything; forks."""
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.close()


@pytest.fixture
def start(server: Server, tmp_path: Path) -> Iterator[Ludus]:
    """`start("train", ..., prelude=...)` in the test's own folder; what still runs at its end is killed."""
    started: list[Process] = []

    def command(*argv: str, cwd: Path = tmp_path, prelude: str = "", env: dict[str, str] | None = None) -> Process:
        started.append(server.start(*argv, cwd=cwd, prelude=prelude, env=env))
        return started[-1]

    yield command
    for process in started:
        if process.poll() is None:
            process.kill()


@pytest.fixture
def ludus(start: Ludus) -> Ludus:
    """The same, and wait for the end."""

    def command(*argv: str, **options: object) -> Process:
        process = start(*argv, **options)
        process.wait()
        return process

    return command


@pytest.fixture(scope="session")
def _stopped(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that SIGTERM stopped after ten cycles, with a checkpoint of each of the last four."""
    folder = tmp_path_factory.mktemp("stopped")
    prelude = "inject.signal_on_call('ludus.data.collector:Collector.collect', signal.SIGTERM, at=10)"
    words = ["training.total_timesteps=100_000", "training.checkpoints.every_steps=64", "training.checkpoints.keep=4"]
    done = server.run("train", *SMALL, *words, cwd=folder, prelude=prelude)
    assert done.code == 75, done.err
    return folder


@pytest.fixture
def stopped(_stopped: Path, tmp_path: Path) -> Path:
    """The folder of a run stopped at step 640 of 100,000, in `runs/` of the test's own folder."""
    shutil.copytree(_stopped / "runs", tmp_path / "runs", symlinks=True)
    return only_run(tmp_path)


Mount = Callable[..., Path]


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """`mount(name, "size=1m")`: a memory file system of its own; needs root."""
    libc = ctypes.CDLL(None, use_errno=True)
    with ExitStack() as undo:

        def make(name: str, options: str) -> Path:
            place = tmp_path / name
            place.mkdir()
            if libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", 0, options.encode()):
                pytest.skip(f"cannot mount a file system: {os.strerror(ctypes.get_errno())}")
            undo.callback(libc.umount2, os.fsencode(place), 2)  # MNT_DETACH: whoever is still in there may finish
            return place

        yield make


@pytest.fixture
def read_only() -> Iterator[Callable[[Path], None]]:
    """Makes a folder unwritable even for root: bound onto itself, read-only."""
    libc = ctypes.CDLL(None, use_errno=True)
    bind, again, readonly = 4096, 32, 1
    with ExitStack() as undo:

        def make(folder: Path) -> None:
            name = os.fsencode(folder)
            if libc.mount(name, name, None, bind, None) or libc.mount(None, name, None, bind | again | readonly, None):
                pytest.skip(f"cannot mount read-only: {os.strerror(ctypes.get_errno())}")
            undo.callback(libc.umount2, name, 2)

        yield make
