"""The protocol of parent and worker: one byte per command and reply, pickled messages for everything longer.

Both ends are processes of this run on this machine.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any, NamedTuple

from ludus import errors
from ludus.errors import LudusError

ATTACH, RENDER, QUIT = b"a", b"r", b"q"
WATCH, SNAPSHOT, RESTORE = b"w", b"s", b"l"
"""WATCH is followed by the method, RESTORE by states; SNAPSHOT is answered with states."""
RESET = (b"0", b"1")
"""Reset into observation side 0 or 1."""
STEP = (b"2", b"3")
"""Step into observation side 0 or 1."""
DONE, FINISHED, FAILED = b".", b"!", b"x"
"""Done; done and some episode finished; a Failure message follows."""


class Failure(NamedTuple):
    """A LudusError that is sent to the parent."""

    kind: str
    where: str
    problem: str
    remedy: str
    detail: str

    @classmethod
    def of(cls, error: LudusError) -> Failure:
        """The parts of an error: exceptions with own arguments cannot be pickled."""
        return cls(type(error).__name__, error.where, error.problem, error.remedy, error.detail)

    def error(self) -> LudusError:
        """The same error again."""
        kind = getattr(errors, self.kind)
        error: LudusError = kind.__new__(kind)
        LudusError.__init__(error, self.where, self.problem, self.remedy)
        error.detail = self.detail
        return error


def send(link: socket.socket, payload: bytes) -> None:
    """Send one message with its length."""
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
