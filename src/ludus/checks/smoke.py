"""Smoke tests of every shipped config, each in its own process so that a crash does not end the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

Kind = Literal["train", "env", "video"]
QUIET = {"OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}


class Result(NamedTuple):
    """The result of one smoke test."""

    spec: str
    status: Literal["PASS", "FAIL", "MISSING"]
    seconds: float
    detail: str = ""
    """The failure, or how to install the missing package."""


def targets(filter: str | None = None, limit: int | None = None, skip: Sequence[str] = ()) -> list[str]:
    """Every `Env:variant` whose name contains `filter` and none of `skip`."""
    from ludus.config.compose import find_targets

    wanted, *unwanted = (text.lower().replace("/", "-") for text in (filter or "", *skip))
    names = [(target.spec, target.spec.lower()) for target in find_targets()]
    return [spec for spec, name in names if wanted in name and not any(text in name for text in unwanted)][:limit]


def run(
    kind: Kind,
    specs: Sequence[str],
    *,
    timesteps: int,
    timeout: float,
    jobs: int = 1,
    python: str = sys.executable,
    plugins: Sequence[str] = (),
) -> Iterator[Result]:
    """Run the smoke tests, `jobs` at a time, and yield their results as they finish."""
    with ThreadPoolExecutor(jobs) as pool:
        pending = [pool.submit(one, kind, spec, timesteps, timeout, python, plugins) for spec in specs]
        try:
            for future in as_completed(pending):
                yield future.result()
        finally:
            for future in pending:
                future.cancel()


def one(
    kind: Kind, spec: str, timesteps: int, timeout: float, python: str = sys.executable, plugins: Sequence[str] = ()
) -> Result:
    """Run one smoke test in a new process."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        overlay = Path.cwd() / "configs"
        if overlay.is_dir():
            (Path(folder) / "configs").symlink_to(overlay)
        command = [python, "-m", "ludus.checks.trial", kind, spec, str(timesteps), str(Path.cwd()), *plugins]
        code, out, err = _finish(command, folder, timeout)
    seconds = time.monotonic() - began
    if code is None:
        return Result(spec, "FAIL", seconds, f"took longer than {timeout:g} s")
    if code:
        said = [line.strip() for line in err.splitlines() if line.strip()] or [f"exit code {code}"]
        return Result(spec, "FAIL", seconds, f"died of {signal.Signals(-code).name}" if code < 0 else said[-1])
    return Result(spec, seconds=seconds, **json.loads(out.splitlines()[-1]))


def _finish(command: list[str], folder: str, timeout: float) -> tuple[int | None, str, str]:
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, **QUIET}, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                               start_new_session=True)  # fmt: skip
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too
        process.communicate()
        return None, "", ""
    return process.returncode, out, err


def summary(results: Sequence[Result]) -> str:
    """`12 passed, 1 failed, 2 missing`"""
    words = {"PASS": "passed", "FAIL": "failed", "MISSING": "missing"}
    counted = {word: sum(result.status == status for result in results) for status, word in words.items()}
    return ", ".join(f"{count} {word}" for word, count in counted.items() if count) or "nothing to do"


def exit_code(results: Sequence[Result], *, strict: bool = False) -> int:
    """1 if a test failed or, with `strict`, is missing; otherwise 0."""
    return int(any(result.status == "FAIL" or (strict and result.status == "MISSING") for result in results))
