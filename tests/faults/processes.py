"""The client of the fork server: commands as processes that can be signalled, limited and waited for."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
PATIENCE = 60.0
"""Seconds until a command counts as hung."""


class Process:
    """One forked command; its output goes to files."""

    def __init__(self, server: Server, pid: int, out: Path, err: Path) -> None:
        self.server, self.pid, self._out, self._err = server, pid, out, err
        self.peak = 0
        """Peak memory in kilobytes, what the server had imported included."""
        self.cpu = 0.0
        self.code: int | None = None

    @property
    def out(self) -> str:
        """What it printed so far."""
        return self._out.read_text(errors="replace")

    @property
    def err(self) -> str:
        """What it printed to stderr so far."""
        return self._err.read_text(errors="replace")

    @property
    def told(self) -> str:
        """Both."""
        return self.out + self.err

    def poll(self) -> int | None:
        """Exit code if it has ended; negative for a signal."""
        self.server.listen(0.0)
        return self.code

    def wait(self, seconds: float = PATIENCE) -> int:
        """Exit code; a process that hangs is killed and fails the test."""
        deadline = time.monotonic() + seconds
        while self.code is None and time.monotonic() < deadline:
            self.server.listen(0.05)
        if self.code is None:
            self.kill()
            raise AssertionError(f"no end within {seconds:g} s\n{self.err[-2000:]}")
        return self.code

    def signal(self, number: int) -> None:
        """To this process alone."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """To it and all its children, as schedulers and Ctrl-C do."""
        if self.poll() is None:
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for it."""
        self.signal(signal.SIGKILL)
        self.wait()

    def until(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Wait for something this process does; fails if it ends before."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = condition()
            if found:
                return found
            assert self.poll() is None, f"ended with {self.code} before\n{self.err[-2000:]}"
            time.sleep(0.005)
        self.kill()
        raise AssertionError(f"did not happen within {seconds:g} s\n{self.err[-2000:]}")


class Server:
    """Starts the fork server and its children."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), *(path for path in sys.path if path)]),
            "LUDUS_CACHE": str(scratch / "cache"),
            "LUDUS_KEY_FILE": str(scratch / "key"),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "120",
        }
        self._link, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, str(Path(__file__).with_name("server.py")), str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=self.environment)
        self._buffer = b""
        self._children: dict[int, Process] = {}
        self._starting: Process
        self._numbers = itertools.count()
        self._ready = False
        deadline = time.monotonic() + 120
        while not self._ready:
            assert self._process.poll() is None and time.monotonic() < deadline, "the fork server does not start"
            self.listen(0.1)

    def start(self, *argv: str, cwd: Path, prelude: str = "", env: Mapping[str, str] | None = None) -> Process:
        """`ludus *argv` after the prelude; the prelude alone without arguments."""
        number = next(self._numbers)
        out, err = self.scratch / f"{number}.out", self.scratch / f"{number}.err"
        request = {
            "argv": argv,
            "cwd": os.fsdecode(cwd),
            "env": {**self.environment, **(env or {})},
            "out": str(out),
            "err": str(err),
            "prelude": prelude,
        }
        for path in (out, err):
            path.touch()
        self._starting = Process(self, 0, out, err)
        process = self._starting
        self._link.sendall(json.dumps(request).encode() + b"\n")
        while process.pid == 0:
            self.listen(1.0)
        return process

    def run(self, *argv: str, cwd: Path, prelude: str = "", env: Mapping[str, str] | None = None) -> Process:
        """Start it and wait for its end."""
        process = self.start(*argv, cwd=cwd, prelude=prelude, env=env)
        process.wait()
        return process

    def listen(self, seconds: float) -> None:
        """Take in what the server has to say."""
        if not select.select([self._link], [], [], seconds)[0]:
            return
        data = self._link.recv(65536)
        assert data, "the fork server is gone"
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            self._ready = True
        elif "started" in message:
            self._starting.pid = message["started"]
            self._children[self._starting.pid] = self._starting
        else:
            process = self._children.pop(message["ended"])
            process.code, process.peak, process.cpu = message["code"], message["peak"], message["cpu"]

    def close(self) -> None:
        """End the server; children that are still there are killed."""
        for process in list(self._children.values()):
            process.kill()
        self._link.close()
        self._process.wait(30)
