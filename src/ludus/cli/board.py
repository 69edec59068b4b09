"""Several runs at once on the terminal: one progress line for each that trains, one line for each that ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.cli.table import say
from ludus.terminal import quiet
from ludus.text import clean, points, rate

if TYPE_CHECKING:
    from rich.live import Live

    from ludus.sweeps.engines import Job

BAR = 16


class Board:
    """Shows jobs; in a pipe only what ended. `budget` is that of every run, or 0 where they differ."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.live: Live | None = None
        if sys.stdout.isatty() and not quiet():
            from rich.live import Live

            self.live = Live(auto_refresh=False, transient=True)

    def __enter__(self) -> Board:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.live is not None:
            self.live.console.print(clean(text, 400), markup=False, highlight=False)
        elif not quiet():
            say(clean(text, 400))
            sys.stdout.flush()

    def watch(self, running: Sequence[tuple[Job, Path | None]]) -> None:
        """Renew the lines of the runs that train."""
        if self.live is None:
            return
        from rich.text import Text

        width = max((len(job.name) for job, _ in running), default=0)
        lines = [f"{job.name:<{width}}  {self._progress(folder)}" for job, folder in running]
        self.live.update(Text("\n".join(lines)), refresh=True)

    def _progress(self, folder: Path | None) -> str:
        from ludus.archive import history
        from ludus.metrics.names import EVAL_RETURN, RETURN

        row: dict[str, Any] = dict(history.last_row(folder)) if folder is not None else {}
        if not row:
            return "starts"
        steps = history.number(row.get("env_steps")) or history.number(row.get("updates"))
        full = min(BAR, int(BAR * steps / max(self.budget, 1)))
        bar = f"{'━' * full}{'─' * (BAR - full)} " if self.budget else ""
        speed = steps / max(history.number(row.get("seconds")), 1e-9)
        found = [
            f"{key.split('/')[0]} {points(history.number(row[key]))}" for key in (RETURN, EVAL_RETURN) if key in row
        ]
        return f"{bar}{steps:>9,.0f} steps  {rate(speed):>6}/s  {'  '.join(found)}"
