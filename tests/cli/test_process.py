"""What the operating system refuses is one line with an exit code; the rest is a bug with a traceback."""

from __future__ import annotations

import errno
import os
import sys
import threading
from typing import Any

import pytest

from ludus import cli
from ludus.cli import process
from ludus.errors import DataError, ResourceError, of_system


def _main(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    def fail(_: Any) -> int:
        raise error

    monkeypatch.setattr(cli, "run", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main(["list"])
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "x"),
            5,
            "error: x: No space left on device; free some space",
        ),
        (OSError(errno.EROFS, "Read-only file system", "x"), 5, "error: x: Read-only file system; choose a place"),
        (OSError(errno.EMFILE, "Too many open files"), 5, "error: Too many open files; raise the limit: ulimit -n"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 3, "error: x: Permission denied; see that it is"),
        (MemoryError("Unable to allocate"), 5, "error: memory: Unable to allocate; ask for less"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 1"), 5, "error: memory: DefaultCPUAllocator: can't"),
        (SystemExit(0), 2, "error: a plugin: ended the program with sys.exit(0); remove that call"),
    ],
)
def test_one_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, line: str
) -> None:
    assert _main(monkeypatch, error) == code
    assert capsys.readouterr().err.startswith(line)


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="bug"):
        _main(monkeypatch, RuntimeError("bug"))


def test_the_place_is_the_one_the_user_knows() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", ".tmp")
    assert of_system(error, "table.csv").line().startswith("table.csv: ")
    assert isinstance(of_system(error), ResourceError)
    assert isinstance(of_system(FileNotFoundError(errno.ENOENT, "No such file")), DataError)


def test_output_says_that_its_errors_are_its_own() -> None:
    with open("/dev/full", "w", buffering=1) as full:  # noqa: PTH123 - a device
        output = process.Output(full)
        with pytest.raises(process.OutputLost, match="No space left"):
            output.write("x\n")
        process.mute(full)


def test_a_reader_that_went_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as pipe:
        output = process.Output(pipe)
        assert output.write("x\n") == 2
        output.flush()


def test_only_threads_that_a_command_started_are_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Any] = []
    monkeypatch.setattr(process, "_leave", lambda *args: watched.append(args))
    release = threading.Event()
    earlier = threading.Thread(target=release.wait)
    earlier.start()
    before = process.waited_for()
    assert earlier in before
    process.leave_behind(process.waited_for() - before, 0)
    mine = threading.Thread(target=release.wait)
    mine.start()
    process.leave_behind(process.waited_for() - before, 7)
    release.set()
    for thread in (earlier, mine):
        thread.join()
    while not watched:
        pass
    assert watched == [({mine}, 7)]


def test_missing_standard_streams_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    process.open_standard_streams()
    assert sys.stdout is not None and sys.stdout.writable()
