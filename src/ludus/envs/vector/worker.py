"""A process of the async backend that owns some environments, and how it talks to its parent, with which it ends.

Commands and replies are one byte, everything longer is a pickled message: both ends are processes of this run.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import signal
import socket
import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ludus.envs.snapshots import ladder
from ludus.envs.vector.buffers import VectorArrays
from ludus.envs.vector.stepper import Stepper, require_equal_spaces
from ludus.errors import ConfigError, LudusError

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe

IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Schedulers signal whole process groups; only the parent decides when to stop."""
ATTACH, RENDER, QUIT = b"a", b"r", b"q"
WATCH, SNAPSHOT, RESTORE = b"w", b"s", b"l"
"""WATCH is followed by the method, RESTORE by states; SNAPSHOT is answered with states."""
RESET = (b"0", b"1")
"""Reset into observation side 0 or 1."""
STEP = (b"2", b"3")
"""Step into observation side 0 or 1."""
DONE, FINISHED, FAILED = b".", b"!", b"x"
"""Done; done and some episode finished; a LudusError follows."""


class WorkerJob(NamedTuple):
    """The environments that a worker makes."""

    recipe: Recipe
    first: int
    size: int
    num_envs: int
    check: bool
    """Do the start-up check first; one worker does it for all."""


def main(link_fd: int, memory_fd: int) -> None:
    """Serve until the parent sends QUIT or is gone."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
    link = socket.socket(fileno=link_fd)
    threading.Thread(target=_leave_with_parent, args=(link_fd,), daemon=True).start()
    try:
        job = _job(link)
        stepper = _prepare(job, link, memory_fd)
    except LudusError as error:
        send(link, error)
        return
    if stepper is not None:
        _serve(link, stepper, job.recipe)
        with suppress(LudusError):  # the parent only waits for the end of this process
            stepper.close()


def _job(link: socket.socket) -> WorkerJob:
    try:
        job: WorkerJob = receive(link)
        return job
    except (ImportError, AttributeError) as error:
        problem, remedy = "a worker cannot load the environment's code", "put it in an importable module or use sync"
        raise ConfigError("environment.id", f"{problem}: {error}", remedy) from error


def _prepare(job: WorkerJob, link: socket.socket, memory_fd: int) -> Stepper | None:
    """Make the environments, send their facts to the parent, and map its memory."""
    if job.check:
        job.recipe.check()
    envs = [job.recipe.make() for _ in range(job.size)]
    info = job.recipe.facts(envs[0])
    require_equal_spaces(envs, info.id)
    send(link, info)
    if link.recv(1) != ATTACH:
        return None
    memory = mmap.mmap(memory_fd, VectorArrays.size(info, job.num_envs))
    rows = VectorArrays.build(info, job.num_envs, memory).rows(job.first, job.first + job.size)
    return Stepper(envs, rows, info.id, job.first)


def _serve(link: socket.socket, stepper: Stepper, recipe: Recipe) -> None:
    while (command := link.recv(1)) not in (b"", QUIT):
        try:
            if command in STEP:
                link.send(FINISHED if stepper.step(STEP.index(command)) else DONE)
            elif command in RESET:
                stepper.reset(RESET.index(command))
                link.send(DONE)
            else:
                _serve_rarely(command, link, stepper, recipe)
        except LudusError as error:
            link.send(FAILED)
            send(link, error)


def _serve_rarely(command: bytes, link: socket.socket, stepper: Stepper, recipe: Recipe) -> None:
    answer: Any = None
    if command == RENDER:
        answer = stepper.render(*receive(link))
    elif command == WATCH:
        stepper.watch(ladder.keeper(receive(link), recipe))
    elif command == SNAPSHOT:
        answer = stepper.snapshot()
    elif command == RESTORE:
        stepper.restore(receive(link))
    link.send(DONE)
    if answer is not None:
        send(link, answer)


def _leave_with_parent(link_fd: int) -> None:
    """End the process as soon as the parent closes its socket, even in a step that never returns."""
    poll = select.poll()
    poll.register(link_fd, 0)  # hang-up and errors are always reported
    poll.poll()
    os._exit(1)


def send(link: socket.socket, message: Any) -> None:
    """Send one message with its length; bytes are sent as they are."""
    payload = message if isinstance(message, bytes) else pickle.dumps(message)
    link.sendall(struct.pack("!Q", len(payload)) + payload)


def receive(link: socket.socket) -> Any:
    """The next message; EOFError if the other side is gone."""
    (size,) = struct.unpack("!Q", _exactly(link, 8))
    return pickle.loads(_exactly(link, size))


def _exactly(link: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = link.recv_into(view)
        if count == 0:
            raise EOFError
        view = view[count:]
    return bytes(data)
