"""Faults that a process does to itself, as the prelude of a forked command: signals, kills, limits, failing calls."""

from __future__ import annotations

import ctypes
import errno
import functools
import importlib
import os
import platform
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = {"os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.symlink", "os.link", "os.truncate", "shutil.rmtree"}
"""Audited calls that change what is in a folder; `open` does too when it creates."""
"""A collector and streams for a writer that never asks them."""
_SYSCALLS = {"x86_64": {"flock": 73, "fsync": 74}, "aarch64": {"flock": 32, "fsync": 82}}


def on_call(target: str, action: Callable[[], Any], *, at: int = 1, after: bool = False) -> None:
    """Do something before (or after) the `at`-th call of `module:name.name`."""
    module, _, path = target.partition(":")
    *parents, name = path.split(".")
    owner: Any = functools.reduce(getattr, parents, importlib.import_module(module))
    original, calls = getattr(owner, name), 0

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        mine = calls == at
        if mine and not after:
            action()
        result = original(*args, **kwargs)
        if mine and after:
            action()
        return result

    setattr(owner, name, wrapped)


def signal_on_call(target: str, number: int, *, at: int = 1, after: bool = False) -> None:
    """This process gets a signal while it is in the `at`-th call of a function."""
    on_call(target, lambda: os.kill(os.getpid(), number), at=at, after=after)


def signal_children(number: int) -> None:
    """The processes that this one started get a signal, and the time to notice it."""
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        os.kill(int(child), number)
    time.sleep(0.3)


def die() -> None:
    """SIGKILL, now."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # another thread must not get one step further


def changes(path: str, action: Callable[[str, int], None]) -> None:
    """Call `action(event, n)` before the n-th change below a folder, from now on."""
    count = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        creates = event == "open" and isinstance(args[2], int) and args[2] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR)
        if event not in CHANGES and not creates:
            return
        paths = [os.fspath(arg) for arg in args[:2] if isinstance(arg, str | os.PathLike)]
        if any(str(found).startswith(path) for found in paths):
            count += 1
            action(event, count)

    sys.addaudithook(hook)


def die_before_change(path: str, number: int) -> None:
    """SIGKILL right before the n-th change below a folder."""
    changes(path, lambda _, count: die() if count == number else None)


def count_changes(path: str, log: str) -> None:
    """One line per change below a folder, into a file elsewhere."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    changes(path, lambda event, _: (os.write(descriptor, f"{event}\n".encode()), None)[1])


def limit_memory(megabytes: int) -> None:
    """No more address space than now plus this."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - a kernel file
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + megabytes * 2**20,) * 2)


def jump_clock(seconds: float, every: int = 1) -> None:
    """The wall clock jumps back and forth by this much at every `every`-th look."""
    real, looks = time.time, 0

    def jumping() -> float:
        nonlocal looks
        looks += 1
        return real() + (seconds if looks % (2 * every) < every else 0.0)

    time.time = jumping


def fail_syscall(name: str, error: str) -> None:
    """The kernel answers every call of a system function with an error: a filter for this process and its children."""
    number = _SYSCALLS[platform.machine()][name]
    code = getattr(errno, error)
    program = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, 0),  # load the number of the call
            (0x15, 0, 1, number),  # another one: skip the next line
            (0x06, 0, 0, 0x00050000 | code),  # SECCOMP_RET_ERRNO
            (0x06, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
        )
    )
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.create_string_buffer(header, len(header)), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp is not available")


def state(number: int) -> dict[str, Any]:
    """A state that knows its number in every part."""
    import numpy as np
    import torch

    return {"n": number, "w": torch.full((2_000,), float(number)), "moments": np.full(100, number, np.float64)}


def save_forever(folder: str, first: int) -> None:
    """Save states `first`, `first` + 1, ... as fast as the disk takes them; every other one replaces the one before."""
    from ludus.archive import checkpoint

    os.write(1, b"go")
    number = first
    while True:
        checkpoint.save(Path(folder), state(number), name=f"step={number // 2}", best=number % 3 == 0)
        number += 1


def save(folder: str, number: int, step: int, *, best: bool = False) -> None:
    """One save."""
    from ludus.archive import checkpoint

    checkpoint.save(Path(folder), state(number), name=f"step={step}", best=best)


def keep_writing(folder: str, first: int, last: int, keep: int) -> None:
    """What the writer thread of a training does with each state: save, verify, prune."""
    from ludus.config.training import CheckpointPlan
    from ludus.orchestration.callbacks.checkpoints import Checkpoints

    callback = Checkpoints(Path(folder), CheckpointPlan(keep=keep), warn=print)
    for number in range(first, last):
        callback._write(state(number), f"step={number}", False)


def wait_for(path: str) -> None:
    """Until somebody makes a file."""
    while not Path(path).exists():
        time.sleep(0.01)


def fill_disk_after(step: int) -> Callable[[], None]:
    """Once the checkpoint of a step is whole and its elders are gone, no file may grow beyond 50 kB."""

    def fill() -> None:
        while not list(Path("runs").glob(f"*_*/checkpoints/last/../step={step}")) or _saving():
            time.sleep(0.005)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))

    return fill


def small_files(size: int | None) -> Callable[[], None]:
    """No file may grow beyond so many bytes, from the call on; None: any may."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size or resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def fill_file_system(path: str | Path) -> None:
    """A file that takes whatever room there is."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(descriptor, bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC
    finally:
        os.close(descriptor)


def _saving() -> bool:
    return any(path.name.startswith(".") for path in Path("runs").glob("*_*/checkpoints/.*"))


def interrupt_and_go_on(times: int) -> Callable[[], None]:
    """Ctrl-C so many times, with time for the main thread to notice each."""

    def press() -> None:
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.7)

    return press


def lock(folder: str, over: str) -> None:
    """Take the lock of a run folder and hold it until a file is there, or end like the command line does."""
    from ludus.archive.lock import RunLock
    from ludus.errors import LudusError

    held = RunLock(Path(folder))
    try:
        held.acquire()
    except LudusError as error:
        print(f"error: {error.line()}", file=sys.stderr)
        sys.exit(error.exit_code)
    os.write(1, b"held")
    wait_for(over)
