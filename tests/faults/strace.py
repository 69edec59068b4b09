"""Replays a trace of system calls and says what a power cut could leave behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

CALLS = "openat,creat,write,pwrite64,writev,ftruncate,fsync,fdatasync,rename,renameat,renameat2,mkdir,mkdirat,symlink,"
CALLS += "symlinkat,link,linkat,unlink,unlinkat,rmdir"
_CALL = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)")
_DESCRIPTOR = re.compile(r"^\d+<([^>]*)>")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')


class Tracer:
    """strace attached to a process."""

    def __init__(self, pid: int, log: Path) -> None:
        if shutil.which("strace") is None:
            pytest.skip("strace is not installed")
        command = ["strace", "-f", "-y", "-s", "8", "-e", f"trace={CALLS}", "-o", str(log), "-p", str(pid)]
        self.log = log
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        if "attached" not in line:
            self._process.kill()
            pytest.skip(f"strace cannot attach: {line.strip()}")

    def calls(self) -> list[str]:
        """What the process did; it must have ended."""
        deadline = time.monotonic() + 10
        while self._process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.wait(10)
        return self.log.read_text(errors="replace").splitlines()


@dataclass
class Disk:
    """What the program wrote and what of it a power cut cannot take away."""

    dirty: set[str] = field(default_factory=set)
    """Files with data that was not synced."""
    entries: dict[str, set[str]] = field(default_factory=dict)
    """Names in a folder whose coming or going was not synced."""
    faults: list[str] = field(default_factory=list)
    renamed: list[str] = field(default_factory=list)

    def replay(self, lines: list[str], below: Path) -> Disk:
        """Every call that concerns `below`."""
        for line in lines:
            match = _CALL.match(line)
            if match is None or match[3].startswith("-"):
                continue
            self._apply(match[1], match[2], str(below))
        return self

    def _apply(self, name: str, arguments: str, below: str) -> None:
        descriptor, texts = _DESCRIPTOR.match(arguments), _TEXT.findall(arguments)
        path = descriptor[1] if descriptor else texts[0] if texts else ""
        if not path.startswith(below) and not any(text.startswith(below) for text in texts):
            return
        if name in ("write", "pwrite64", "writev", "ftruncate"):
            self.dirty.add(path)
        elif name in ("fsync", "fdatasync"):
            self.dirty.discard(path)
            self.entries.pop(path, None)
        elif name.startswith("rename"):
            self._rename(*[text for text in texts if text][:2])
        elif name in ("openat", "creat") and "O_CREAT" in arguments:
            self._note(texts[0])
        elif name.startswith(("mkdir", "symlink", "link")):
            self._note(texts[-1])
        elif name in ("unlink", "unlinkat", "rmdir") and texts:
            self.dirty.discard(texts[0])

    def _note(self, path: str) -> None:
        self.entries.setdefault(os.path.dirname(path), set()).add(path)  # noqa: PTH120

    def _rename(self, old: str, new: str) -> None:
        """From here on the new name is what readers see: all of it must be on the disk already."""
        lost = [path for path in self.dirty if path == old or path.startswith(old + "/")]
        lost += [
            entry for folder, found in self.entries.items() for entry in found if (folder + "/").startswith(old + "/")
        ]
        self.faults += [f"{path} is not on the disk when {new} appears" for path in lost]
        self.renamed.append(new)
        self._note(new)
