"""Orders of the page to the worker process: one after the other, each remembered, each with a deadline."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ludus.interpreter import running_module
from ludus.text import clean

MOST_EPISODES = 40
"""Recordings that are kept; the oldest goes first."""
DEADLINE = 600.0
"""Seconds after which an order is given up and its process ended."""
MODES = ("evaluation", "greedy", "sampled")
"""How actions are chosen: as the run evaluates, or as said."""
FILES = ("episode.json", "arrays.bin", "frames.bin", "seen.bin")


@dataclass
class Job:
    """One order and how far it is."""

    id: str
    order: dict[str, Any]
    state: str = "waiting"
    """waiting, working, ready or failed."""
    progress: int = 0
    error: str = ""
    over: threading.Event = field(default_factory=threading.Event, repr=False)

    def facts(self) -> dict[str, Any]:
        """For the page."""
        return {"id": self.id, "state": self.state, "progress": self.progress, "error": self.error}


class Workshop:
    """Takes orders and has them done by a process of its own, which a bad environment may end."""

    def __init__(self, runs: Path, plugins: Sequence[str] = (), *, deadline: float = DEADLINE) -> None:
        self.runs, self.plugins, self.deadline = runs, list(plugins), deadline
        self.folder = Path(tempfile.mkdtemp(prefix="ludus-inspect-"))
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._queue: queue.Queue[Job | None] = queue.Queue()
        self._lock, self._closed = threading.Lock(), False
        self._process: subprocess.Popen[str] | None = None
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._thread = threading.Thread(target=self._work, name="ludus-inspect-jobs", daemon=True)
        self._thread.start()

    def episode(self, wish: dict[str, Any], stamp: str) -> Job:
        """Order an episode, or find it; `stamp` changes with the content of its checkpoint."""
        key = hashlib.sha256(json.dumps([wish, stamp], sort_keys=True).encode()).hexdigest()[:20]
        return self._ordered(key, {"do": "episode", "wish": wish, "folder": str(self.folder / key)})

    def look(self, what: str, episode: Job, t: int) -> Job:
        """Order a look inside (`inside` or `dream`) at step t of an episode."""
        order = {**episode.order, "do": what, "t": t, "file": f"{what}-{t}.json"}
        return self._ordered(f"{episode.id}-{what}-{t}", order)

    def get(self, id: str) -> Job | None:
        """The job of an id."""
        with self._lock:
            return self._jobs.get(id)

    def file(self, job: Job, name: str) -> Path | None:
        """A finished file of a job."""
        allowed = FILES if job.order["do"] == "episode" else (job.order["file"],)
        path = Path(job.order["folder"]) / name
        return path if job.state == "ready" and name in allowed and path.is_file() else None

    def close(self) -> None:
        """End the process and remove all recordings; orders that still wait are dropped."""
        self._closed = True
        self._queue.put(None)
        while self._thread.is_alive():  # it may just have started another process
            self._end()
            self._thread.join(timeout=0.2)
        if self._process is not None:
            self._end()
            self._process.wait()
            _release(self._process)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._said.close()

    def _ordered(self, key: str, order: dict[str, Any]) -> Job:
        with self._lock:
            known = self._jobs.get(key)
            if known is not None and known.state != "failed":
                self._jobs.move_to_end(key)
                return known
            job = self._jobs[key] = Job(key, order)
            self._forget()
        self._queue.put(job)
        return job

    def _forget(self) -> None:
        done = [job for job in self._jobs.values() if job.order["do"] == "episode" and job.state in ("ready", "failed")]
        for old in done[: max(len(done) - MOST_EPISODES, 0)]:
            shutil.rmtree(old.order["folder"], ignore_errors=True)
            for key in [key for key in self._jobs if key.startswith(old.id)]:
                del self._jobs[key]

    def _work(self) -> None:
        while (job := self._queue.get()) is not None and not self._closed:
            job.state = "working"
            job.error = self._do(job)
            job.state = "failed" if job.error else "ready"
            job.over.set()

    def _do(self, job: Job) -> str:
        """Have one order done; returns what went wrong, or ''."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(self.deadline, self._end)
        timer.start()
        try:
            order = {**job.order, "runs": str(self.runs), "plugins": self.plugins}
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                job.progress = int(answer.get("progress", job.progress))
                if "error" in answer:
                    return clean(answer["error"], 2000)
                if "done" in answer:
                    return ""
        except (OSError, ValueError) as error:
            return f"the process that plays does not answer: {clean(error)}"
        finally:
            timer.cancel()
        return self._died(process)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            command = running_module("ludus.inspector.worker")
            self._said.seek(0)
            self._said.truncate()
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._said, text=True)
        return self._process

    def _died(self, process: subprocess.Popen[str]) -> str:
        code = process.wait()
        _release(process)
        self._said.seek(max(self._said.seek(0, os.SEEK_END) - 4000, 0))  # an environment may have said gigabytes
        text = self._said.read().decode(errors="replace")
        last = [line.strip() for line in text.splitlines() if line.strip()]
        why = f": {clean(last[-1], 300)}" if last else ""
        ended = f"signal {-code}" if code < 0 else f"exit {code}"
        return f"the process that plays this environment ended ({ended}){why}; the page goes on, try another episode"

    def _end(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()


def _release(process: subprocess.Popen[str]) -> None:
    """Close what led to a process that has ended."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # an order that nobody read
                pipe.close()
