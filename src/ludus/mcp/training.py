"""Tools that start and stop trainings; they exist only if the user allowed them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from ludus.archive import checkpoint
from ludus.archive.record import works
from ludus.archive.store import read_or_empty, runs_in
from ludus.errors import ConfigError
from ludus.interpreter import running_module
from ludus.mcp.runs import SafeIndex
from ludus.secrets import hide
from ludus.text import clean

PATIENCE = 120.0
"""Seconds until a training must have its folder."""
_SPEC = re.compile(
    r"\+experiment=[\w./-]+|[\w.+-]+(?:/[\w.+-]+)*:[\w.-]+|[\w.-]+(?:/[\w.-]+)*\.(?:ya?ml|json)(?::[\w.-]+)?"
)
_CODE = re.compile(r"alert_command|resume_path|^[+~]*(?:environment\.)?(?:env_)?id=.*:", re.IGNORECASE)


def checked(spec: str, overrides: list[str]) -> tuple[str, list[str]]:
    """The words of an agent: a known form of spec, and settings that neither name a program nor code to import."""
    if not _SPEC.fullmatch(spec) or ".." in spec or spec.startswith("/"):
        raise ConfigError(
            clean(spec, 80), "is no spec", "write Env:variant, +experiment=name or a file below this folder"
        )
    if not Path(spec.partition(":")[0]).resolve().is_relative_to(Path.cwd().resolve()):
        raise ConfigError(clean(spec, 80), "is a link that leads out of this folder", "put the file itself there")
    for word in overrides:
        if "=" not in word or word.startswith("-"):
            raise ConfigError(clean(word, 80), "is no override", "write key=value")
        if _CODE.search(word):
            raise ConfigError(clean(word, 80), "may not be set by an agent", "ask the user to start it")
    return spec, overrides


class Training:
    """Trainings as processes of their own, which outlive the server."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir

    def start_training(self, spec: str, overrides: list[str] | None = None, seed: int | None = None) -> dict[str, Any]:
        """Start a training in the background and return its run; follow it with run_status and run_logs."""
        spec, words = checked(spec, overrides or [])
        words = [*words, *([] if seed is None else [f"experiment.seed={int(seed)}"]), "logging.console=false", "-q"]
        return self._start(spec, ["train", spec, *words], set(runs_in(self.runs_dir)))

    def resume_training(self, run: str) -> dict[str, Any]:
        """Go on with a run that was stopped or lost, in the background, exactly where it was saved."""
        record = SafeIndex(self.runs_dir).get(run)
        if record.state in ("running", "finished"):
            raise ConfigError(record.id, f"is {record.state}", "list_runs shows which were stopped or lost")
        return self._start(record.id, ["resume", record.id], set(runs_in(self.runs_dir)) - {record.id})

    def _start(self, name: str, words: list[str], before: set[str]) -> dict[str, Any]:
        """A process of its own, once it works on a run that was not there before."""
        command = running_module("ludus", *words, "--runs-dir", str(self.runs_dir))
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )
            threading.Thread(target=process.wait, daemon=True).start()  # no zombie stays
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                if run := self._run_of(process.pid, before):
                    return {"run": run, "pid": process.pid, "next": "run_status tells how far it is"}
                if process.returncode is not None and not self._run_of(process.pid, before):
                    said.seek(0)
                    lines = said.read()[-2000:].decode(errors="replace").strip().splitlines()
                    problem = clean(hide(lines[-1].removeprefix("error: ") if lines else "said nothing"), 500)
                    raise ConfigError(clean(name, 80), problem)
                time.sleep(0.1)
        process.terminate()
        raise ConfigError(clean(name, 80), f"made no run folder within {PATIENCE:g} s", "train it in a terminal")

    def stop_training(self, run: str) -> dict[str, Any]:
        """Ask a running training to save and end; it can be resumed to the bit."""
        record = SafeIndex(self.runs_dir).get(run)
        if record.state != "running" or record.pid is None or not works(record):
            raise ConfigError(record.id, f"is not running here: {record.state}", "list_runs shows what is")
        if not checkpoint.checkpoints(record.folder):
            raise ConfigError(record.id, "has only just begun", "ask again in a few seconds")
        os.kill(record.pid, signal.SIGTERM)
        return {"run": record.id, "pid": record.pid, "next": f"it saves and ends; ludus resume {record.id} goes on"}

    def _run_of(self, pid: int, before: set[str]) -> str | None:
        """The new run that a process works on, once it has begun: before its first checkpoint no signal is heard."""
        new = [name for name in runs_in(self.runs_dir) if name not in before]
        mine = (name for name in new if self._status(name).get("pid") == pid)
        return next((name for name in mine if checkpoint.checkpoints(self.runs_dir / name)), None)

    def _status(self, name: str) -> dict[str, object]:
        return read_or_empty(self.runs_dir / name / "status.json")
