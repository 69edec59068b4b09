"""The tool that shows one step of an episode; a process of its own plays it."""

from __future__ import annotations

import atexit
import functools
from pathlib import Path
from typing import Any

from ludus.errors import ConfigError, DataError
from ludus.inspector.jobs import MODES, Workshop
from ludus.inspector.steps import step_of
from ludus.mcp.runs import SafeIndex
from ludus.session.player import checkpoint_name

MOST_STEPS = 100_000


class Steps:
    """Episodes of the runs of one folder."""

    def __init__(self, runs_dir: Path) -> None:
        self.runs_dir = runs_dir

    @functools.cached_property
    def shop(self) -> Workshop:
        """Plays episodes and remembers them; they are forgotten when the server ends."""
        made = Workshop(self.runs_dir.resolve())
        atexit.register(made.close)
        return made

    def step(
        self, run: str, checkpoint: str | None, seed: int, t: int, mode: str
    ) -> tuple[dict[str, Any], bytes | None]:
        """Facts and picture of step t."""
        if mode not in MODES:
            raise ConfigError("mode", f"'{mode[:40]}' is unknown", f"use {', '.join(MODES)}")
        if not (0 <= seed < 2**31 and 0 <= t < MOST_STEPS):
            raise ConfigError("seed and t", "are not possible", f"count from 0; t is below {MOST_STEPS:,}")
        folder = SafeIndex(self.runs_dir).folder(run)
        name = checkpoint_name(folder, checkpoint)
        wish = {"run": folder.id, "checkpoint": name, "mode": mode, "seed": seed, "steps": max(1000, t + 1)}
        job = self.shop.episode(wish, str((folder.path / "checkpoints" / name).stat().st_mtime_ns))
        job.over.wait()
        if job.error:
            raise DataError(folder.id, job.error)
        return step_of(Path(job.order["folder"]), t)
