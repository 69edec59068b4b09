"""The console: a live table with sparklines on a terminal, plain lines everywhere else.

`write` only keeps the row unless a redraw is due, and redraws come no faster than their own cost allows, so the display
takes less than one per cent of the run however many epochs a second there are.
"""

from __future__ import annotations

import os
import textwrap
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ludus.metrics import screen
from ludus.metrics.history import History
from ludus.metrics.monitor import Monitor
from ludus.metrics.names import EVAL_RETURN, RETURN
from ludus.metrics.rules import Rules
from ludus.metrics.sinks import Row, Sink
from ludus.metrics.summary import summary
from ludus.metrics.text import ascii_only, clean, duration, number, rate

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import ConsoleOptions, RenderResult
    from rich.live import Live

_FASTEST = 1 / 8
_SHARE = 0.008
_SPEED_WINDOW = 10.0


class Console(Sink):
    """Header, live table and progress bar, summary."""

    def __init__(
        self,
        rules: Rules | None = None,
        monitor: Monitor | None = None,
        *,
        console: RichConsole | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or _terminal()
        self._plain = not self._console.is_terminal or self._console.is_dumb_terminal
        self._ascii = self._console.options.ascii_only
        self._rules = rules or Rules.load()
        self._monitor = monitor
        self._clock = clock
        self._history = History()
        self._rows: list[Row] = []
        self._speed: deque[tuple[float, float]] = deque()
        self._live: Live | None = None
        self._due, self._cost = float("inf"), 0.0
        self._total, self._alerts, self._silent = 0, 0, False
        self._threshold: float | None = None

    def start(
        self, header: Mapping[str, str], total_steps: int, *, env_steps: int = 0, threshold: float | None = None
    ) -> None:
        """Show who runs what and begin; `env_steps` is where a resumed run goes on."""
        self._total, self._threshold = total_steps, threshold
        self._speed.append((0.0, env_steps))
        if self._plain:
            self._print([[(clean(key).ljust(13), ""), (clean(value), "")] for key, value in header.items()])
        else:
            facts = dict(header)
            title = "ludus · " + clean(facts.pop("run", "training"))
            self._print(screen.header(title, facts, min(self._console.width, 120)))
            self._open()
        self._due = self._clock() + (1.0 if self._plain else 0.0)

    def write(self, row: Row) -> None:
        """Keep the row; draw when it is time."""
        self._rows.append(row)
        if self._clock() >= self._due or (self._plain and EVAL_RETURN in row) or len(self._rows) >= 4096:
            self._draw()

    def note(self, text: str, style: str = "") -> None:
        """One line above the table."""
        width = 10_000 if self._plain else self._console.width
        self._print([[(part, style)] for part in textwrap.wrap(clean(text, 2000), width)])

    def summary(self, result: Mapping[str, Any]) -> None:
        """The end: `result` may hold mean and std (of the deciding evaluation), threshold, reason, seconds, env_steps,
        epochs, updates, folder, and next: pairs of a command and what it does."""
        self.close()
        alerts = self._monitor.recap() if self._monitor else []
        width = min(self._console.width, 120)
        self._print([[], *summary(result, self._history, self._rules, alerts, width)])

    def close(self) -> None:
        """Draw the last state, leave it on the screen and give the cursor back."""
        self._drain()
        if self._live is not None:
            live, self._live = self._live, None
            live.update(_Screen(self._frame(), self._ascii))
            live.stop()
        self._due = float("inf")

    def _open(self) -> None:
        from rich.live import Live

        self._live = Live(console=self._console, auto_refresh=False)
        self._live.start()
        for _ in range(2):  # the first drawing warms caches; the second tells what one costs
            begin = time.perf_counter()
            self._live.update(_Screen(self._frame(), self._ascii), refresh=True)
            self._cost = time.perf_counter() - begin

    def _draw(self) -> None:
        begin = time.perf_counter()
        last = self._rows[-1]
        self._drain()
        if self._plain:
            self._print([[(self._evaluation(last) if EVAL_RETURN in last else self._line(), "")]])
            seconds = float(self._history.position.get("seconds", 0.0))
            self._due = self._clock() + min(max(2.0, seconds / 50), 60.0)
            return
        if self._live is not None:
            self._live.update(_Screen(self._frame(), self._ascii), refresh=True)
        cost = time.perf_counter() - begin
        self._cost = min(cost, 2 * self._cost)  # one hiccup of the machine must not freeze the screen
        self._due = self._clock() + max(_FASTEST, self._cost / _SHARE)

    def _drain(self) -> None:
        self._history.extend(self._rows)
        self._rows.clear()
        if self._history.position:
            seconds, steps = (float(self._history.position[key]) for key in ("seconds", "env_steps"))
            self._speed.append((seconds, steps))
            while len(self._speed) > 2 and self._speed[1][0] <= seconds - _SPEED_WINDOW:
                self._speed.popleft()
        started = self._monitor.alerts[self._alerts :] if self._monitor else []
        self._alerts += len(started)
        for alert in started:
            self.note(f"⚠ {alert.line()}", screen.WARN)

    def _progress(self) -> screen.Progress:
        at = self._history.position
        (begin, before), (end, after) = self._speed[0], self._speed[-1]
        fps = (after - before) / (end - begin) if end > begin else 0.0
        steps = int(at.get("env_steps", before))
        return screen.Progress(
            steps, self._total, fps, float(at.get("seconds", 0.0)), int(at.get("epoch", 0)), str(at.get("phase", ""))
        )

    def _frame(self) -> list[screen.Line]:
        width, height = min(self._console.width, 120), self._console.height
        rows = screen.items(self._history, self._rules)
        lines = screen.table(rows, self._rules, width, max(height - 4, 3)) if rows else []
        return [*lines, [], screen.progress(self._progress(), width)]

    def _line(self) -> str:
        p = self._progress()
        share = p.env_steps / p.total if p.total else 1.0
        reward = self._history.series.get(RETURN)
        score = f"  return {number(reward.last, 1)}" if reward else ""
        counts = f"{share:4.0%}  {p.env_steps:,} / {p.total:,} steps  epoch {p.epoch:,}"
        return f"[{duration(p.seconds):>7}] {counts}  {rate(p.fps)} steps/s  ETA {duration(p.eta)}{score}"

    def _evaluation(self, row: Row) -> str:
        p = self._progress()
        mean, std = float(row[EVAL_RETURN]), row.get("val/roll/ep_rew/std")
        spread = f" ± {number(float(std), 1)}" if std is not None else ""
        goal = f"  threshold {number(self._threshold, 1)}" if self._threshold is not None else ""
        return f"[{duration(p.seconds):>7}] evaluation at {p.env_steps:,} steps: return {number(mean, 1)}{spread}{goal}"

    def _print(self, lines: Iterable[screen.Line]) -> None:
        if not self._plain:
            self._console.print(_Screen(list(lines), self._ascii), end="")
            return
        for line in lines:
            text = "".join(part for part, _ in line).rstrip()
            self._say(ascii_only(text) if self._ascii else text)

    def _say(self, text: str) -> None:
        if self._silent:
            return
        try:
            print(text, file=self._console.file, flush=True)
        except BrokenPipeError:  # `| head` took what it wanted: training goes on, and so does the exit
            self._silent = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._console.file.fileno())


class _Screen:
    """Ready-made lines as segments: no measuring, wrapping or markup, so nothing in a text can act as one."""

    def __init__(self, lines: list[screen.Line], plain_ascii: bool) -> None:
        self.lines, self.plain_ascii = lines, plain_ascii

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment
        from rich.style import Style

        for line in self.lines:
            for text, style in line:
                yield Segment(ascii_only(text) if self.plain_ascii else text, Style.parse(style) if style else None)
            yield Segment.line()


def _terminal() -> RichConsole:
    from rich.console import Console as RichConsole

    return RichConsole(highlight=False, soft_wrap=True)
