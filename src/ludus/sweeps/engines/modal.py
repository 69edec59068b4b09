"""Containers of Modal. They share no disk with this machine: a run's folder comes back when its call has ended.

Calls outlive this process. Their ids are in `calls.json` of the sweep, so that a sweep that was left (`--detach`) or
killed finds their results again.
"""

from __future__ import annotations

import io
import os
import secrets
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ludus import files
from ludus.archive.store import read_or_empty
from ludus.errors import ConfigError, MissingExtra
from ludus.network import silence
from ludus.sweeps.engines import KILLED, Job, Task
from ludus.sweeps.engines.modal_app import RUNS, Returned, Worker, app_of
from ludus.sweeps.spec import Limits, SweepSpec

CALLS = "calls.json"
ROOT = "LUDUS_MODAL_RUNS"
"""Variable that names another folder of the container for runs."""
PATIENCE = 3.0
"""Seconds that Modal may take to answer; its own client would try for a minute."""


class ModalEngine:
    """Calls of one function at Modal, each of which carries out some runs."""

    def __init__(self, scratch: Path, runs_dir: Path, worker: Worker, containers: int, *, secret: bool = False) -> None:
        require_server()
        import modal

        self.modal: Any = modal
        self.scratch, self.runs_dir, self.worker = scratch, runs_dir, worker
        known: dict[str, Any] = read_or_empty(scratch / CALLS)
        self.calls: dict[str, list[Any]] = dict(known.get("calls") or {})
        """Run -> the call that carries it out, and which of its runs it is."""
        self.root = str(known.get("root") or f"{os.environ.get(ROOT, RUNS)}/{secrets.token_hex(6)}")
        """Folder of this sweep in the volume: another one may have its name."""
        self.pending: list[ModalTask] = []
        self.results: dict[str, list[Returned] | int] = {}
        app, self.function = app_of(worker, containers, secret=secret)
        try:
            app.deploy()
        except modal.exception.Error as error:
            raise ConfigError("--engine modal", " ".join(str(error).split())[:200], "see modal.com") from None

    def start(self, job: Job) -> ModalTask:
        """Take the job; it is sent with others, at the latest when somebody waits."""
        task = ModalTask(self, job)
        if job.name not in self.calls:
            self.pending.append(task)
            if len(self.pending) >= self.worker.runs:
                self.send()
        return task

    def send(self) -> None:
        """Send what is pending, as one call."""
        if not self.pending:
            return
        sent, self.pending = self.pending, []
        arguments = [[word for word in one.job.arguments if not word.startswith("--runs-dir=")] for one in sent]
        call = self.function.spawn(arguments, self.root)
        for position, one in enumerate(sent):
            self.calls[one.job.name] = [call.object_id, position]
        self._remember()

    def wait(self, tasks: Sequence[Task], seconds: float) -> None:
        """Send what is left, and wait."""
        self.send()
        time.sleep(seconds)

    def close(self) -> None:
        """Send what is left; calls go on by themselves."""
        self.send()

    def result(self, job: Job) -> int | None:
        """Exit code of a run whose call has ended, whose folder is then here; None before that."""
        if job.name not in self.calls:
            return None
        call, position = self.calls[job.name]
        if call not in self.results:
            found = self._poll(call)
            if found is None:
                return None
            self.results[call] = found
        del self.calls[job.name]
        self._remember()
        ended = self.results[call]
        if isinstance(ended, int):
            return ended
        code, log, folder = ended[position]
        job.log.write_text(log)
        unpack(folder, self.runs_dir)
        return code

    def _remember(self) -> None:
        files.write_json(self.scratch / CALLS, {"root": self.root, "calls": self.calls})

    def _poll(self, call: str) -> list[Returned] | int | None:
        try:
            found: list[Returned] = self.modal.FunctionCall.from_id(call).get(timeout=0)
        except TimeoutError:
            return None
        except self.modal.exception.Error:  # it failed, took too long, or is too long ago
            return KILLED
        return found

    def cancel(self, job: Job) -> None:
        """Take a job back."""
        self.pending = [one for one in self.pending if one.job != job]
        if job.name in self.calls:
            call, _ = self.calls[job.name]
            self.modal.FunctionCall.from_id(call).cancel(terminate_containers=True)
            self.results[call] = KILLED


class ModalTask:
    """One run of a call."""

    def __init__(self, engine: ModalEngine, job: Job) -> None:
        self.engine, self.job = engine, job
        self.stopped = False

    def code(self) -> int | None:
        """Exit code; KILLED if the call was."""
        return self.engine.result(self.job) if not self.stopped else KILLED

    def stop(self, folder: Path | None) -> None:
        """Cancel the call: what its volume has is gone on with."""
        self.engine.cancel(self.job)
        self.stopped = self.job.name not in self.engine.calls


def unpack(archive: bytes, runs_dir: Path) -> None:
    """Put the folders of an archive among the runs; nothing of it can get outside."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        tar.extractall(runs_dir, filter="data")


def sent(scratch: Path) -> bool:
    """Whether a sweep has calls whose results were not fetched."""
    return bool(read_or_empty(scratch / CALLS).get("calls"))


def check(spec: SweepSpec) -> None:
    """Refuse what a container cannot know or do; no client, token or network are one line each, at once."""
    if spec.plugins or spec.base.endswith((".yaml", ".yml", ".json")):
        what = spec.plugins[0] if spec.plugins else spec.base
        raise ConfigError("--engine modal", f"{what} stays on this machine", "sweep an Env:variant without plugins")
    if spec.pruning.type not in ("none", "wilcoxon") or spec.limits != Limits():
        problem = "a run comes back when it has ended, so none is stopped before"
        raise ConfigError("--engine modal", problem, "write --prune none, and use --timeout")
    require_server()


def require_server() -> None:
    """Refuse to begin without client, token or network, within seconds."""
    try:
        import modal.config
    except ImportError:
        raise MissingExtra("--engine modal", "modal") from None
    config = modal.config.config
    if not config.get("token_id") or not config.get("token_secret"):
        raise ConfigError("--engine modal", "there is no token", "run modal token new")
    server = urlsplit(config["server_url"].partition(",")[0])
    if why := silence(server.hostname or "", server.port or 443, PATIENCE):
        problem = f"{server.netloc} does not answer: {why}"
        raise ConfigError("--engine modal", problem, "check the network, or train with --engine local")
