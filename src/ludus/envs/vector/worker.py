"""The process of the async backend that owns some environments. It ends when its parent does."""

from __future__ import annotations

import mmap
import os
import pickle
import select
import signal
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from ludus.envs import snapshot
from ludus.envs.vector import wire
from ludus.envs.vector.block import Block
from ludus.envs.vector.lane import Lane, require_equal_spaces
from ludus.errors import ConfigError, LudusError

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe

IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Schedulers signal whole process groups; only the parent decides when to stop."""


class Job(NamedTuple):
    """What a worker has to make."""

    recipe: Recipe
    first: int
    size: int
    num_envs: int
    check: bool
    """Do the start-up check first: one worker does it for all."""


def main(link_fd: int, memory_fd: int) -> None:
    """Serve until told to quit or the parent is gone."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
    link = socket.socket(fileno=link_fd)
    threading.Thread(target=_leave_with_parent, args=(link_fd,), daemon=True).start()
    try:
        job = _job(link)
        lane = _prepare(job, link, memory_fd)
    except LudusError as error:
        wire.send(link, pickle.dumps(wire.Failure.of(error)))
        return
    if lane is not None:
        _serve(link, lane, job.recipe)
        with suppress(LudusError):  # the parent waits for the end of this process, for nothing else
            lane.close()


def _job(link: socket.socket) -> Job:
    try:
        job: Job = wire.receive(link)
    except (ImportError, AttributeError) as error:
        problem = f"a worker cannot load the environment's code: {error}"
        raise ConfigError(
            "environment.id", problem, "put it in an importable module or use vectorization=sync"
        ) from error
    return job


def _prepare(job: Job, link: socket.socket, memory_fd: int) -> Lane | None:
    """Make the environments, tell the parent about them, and get its memory."""
    if job.check:
        job.recipe.check()
    envs = [job.recipe.make() for _ in range(job.size)]
    info = job.recipe.facts(envs[0])
    require_equal_spaces(envs, info.id)
    wire.send(link, pickle.dumps(info))
    if link.recv(1) != wire.ATTACH:
        return None
    memory = mmap.mmap(memory_fd, Block.size(info, job.num_envs))
    rows = Block.build(info, job.num_envs, memory).rows(job.first, job.first + job.size)
    return Lane(envs, rows, info.id, job.first)


def _serve(link: socket.socket, lane: Lane, recipe: Recipe) -> None:
    while (command := link.recv(1)) not in (b"", wire.QUIT):
        try:
            if command in wire.STEP:
                link.send(wire.FINISHED if lane.step(wire.STEP.index(command)) else wire.DONE)
            elif command in wire.RESET:
                lane.reset(wire.RESET.index(command))
                link.send(wire.DONE)
            else:
                _serve_rarely(command, link, lane, recipe)
        except LudusError as error:
            link.send(wire.FAILED)
            wire.send(link, pickle.dumps(wire.Failure.of(error)))


def _serve_rarely(command: bytes, link: socket.socket, lane: Lane, recipe: Recipe) -> None:
    answer: Any = None
    if command == wire.RENDER:
        answer = lane.render(*wire.receive(link))
    elif command == wire.WATCH:
        lane.watch(snapshot.keeper(wire.receive(link), recipe))
    elif command == wire.SNAPSHOT:
        answer = lane.snapshot()
    elif command == wire.RESTORE:
        lane.restore(wire.receive(link))
    link.send(wire.DONE)
    if answer is not None:
        wire.send(link, pickle.dumps(answer))


def _leave_with_parent(link_fd: int) -> None:
    """Ends the process as soon as the other end is closed, even in the middle of a step that never returns."""
    poll = select.poll()
    poll.register(link_fd, 0)  # hang-up and errors are always reported
    poll.poll()
    os._exit(1)
