"""The console: a live table with sparklines on a terminal, plain lines elsewhere, and a plain copy for run.log.

`write` stores the row and redraws only from time to time: the display takes less than one per cent of the run's time,
whatever the number of epochs per second.
"""

from __future__ import annotations

import logging
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ludus.console import plain as pipe
from ludus.console import screen
from ludus.console.history import History
from ludus.metrics.names import EVAL_RETURN, RETURN
from ludus.metrics.sinks import Row, Sink
from ludus.progress import Budget
from ludus.terminal import mute
from ludus.text import ascii_only, clean, duration
from ludus.watch.monitor import Event, Monitor
from ludus.watch.rules import Rules

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.live import Live

log = logging.getLogger(__name__)
_FASTEST = 1 / 8
_SHARE = 0.008
_SPEED_WINDOW = 10.0
_SILENCE, _PIPE_SILENCE = 1.0, 15.0
"""Seconds without a row after which the clock on the screen goes on by itself, and after which a pipe gets a line."""
ONGOING = " ..."
"""How a note ends that tells what goes on until the next row; the screen shows it with a clock."""


class Console(Sink):
    """Header, live table, progress bar and summary; `copy` gets every line as plain text, even when `quiet`."""

    def __init__(
        self,
        rules: Rules | None = None,
        monitor: Monitor | None = None,
        *,
        console: RichConsole | None = None,
        copy: Callable[[str], None] | None = None,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from rich.console import Console as RichConsole

        self._console = console or RichConsole(highlight=False, soft_wrap=True)
        self._plain = quiet or not self._console.is_terminal or self._console.is_dumb_terminal
        self._ascii = self._console.options.ascii_only
        self._copy, self._silent = copy, quiet
        self._rules = rules or Rules.load()
        self._monitor = monitor
        self._clock = clock
        self._history = History()
        self._rows: list[Row] = []
        self._speed: deque[tuple[float, float]] = deque()
        self._live: Live | None = None
        self._due, self._line_due, self._cost = float("inf"), float("inf"), 0.0
        self._budget, self._learning_starts = Budget(0), 0
        self._threshold: float | None = None
        self._lock = threading.RLock()  # the thread that ticks draws too
        self._announced: deque[str] = deque()
        self._doing, self._doing_at, self._heard, self._ticked = "", 0, clock(), -float("inf")
        self._under_way: Callable[[], tuple[int, str]] | None = None
        if monitor is not None:
            monitor.listeners.append(self._alert)

    def start(
        self,
        header: Mapping[str, str],
        budget: Budget,
        *,
        position: int = 0,
        threshold: float | None = None,
        learning_starts: int = 0,
        under_way: Callable[[], tuple[int, str]] | None = None,
    ) -> None:
        """Show who runs what and begin; `position` is where a resumed run goes on, in the unit of its budget.

        The speed before step `learning_starts` says nothing about the time that is left. `under_way` tells the position
        between two rows, and what is going on.
        """
        self._under_way = under_way
        self._budget, self._threshold, self._learning_starts = budget, threshold, learning_starts
        self._heard = self._clock()
        self._speed.append((float(self._history.position.get("seconds", 0.0)), position))
        plain: list[screen.Line] = [[(clean(key).ljust(13), ""), (clean(value), "")] for key, value in header.items()]
        facts = dict(header)
        title = "ludus · " + clean(facts.pop("run", "training"))
        self._print(plain if self._plain else screen.header(title, facts, min(self._console.width, 120)), plain)
        if not self._plain:
            self._open()
        self._line_due = self._clock() + 1.0
        self._due = self._line_due if self._plain else self._clock()

    def replay(self, rows: Iterable[Row]) -> None:
        """Read the earlier rows of a resumed run, before `start`."""
        self._history.extend(rows)

    def write(self, row: Row) -> None:
        """Store the row; redraw if it is time."""
        with self._lock:
            self._rows.append(row)
            self._heard, self._doing = self._clock(), ""
            if self._heard >= self._due or len(self._rows) >= 4096:
                self._draw()
            elif EVAL_RETURN in row and (self._plain or self._copy is not None):
                self._drain()
                self._plain_line(row)

    def note(self, text: str, style: str = "") -> None:
        """Print one line above the table."""
        width = 10_000 if self._plain else self._console.width
        text = clean(text, 2000)
        with self._lock:
            if text.endswith(ONGOING):
                self._doing, self._doing_at = text.removesuffix(ONGOING), self._position()
            self._print([[(part, style)] for part in textwrap.wrap(text, width)], [[(text, "")]])

    def announce(self, text: str) -> None:
        """Note a line that the next tick prints: a signal handler may come while something is being drawn."""
        self._announced.append(text)

    def tick(self) -> None:
        """Print what was announced; let the clock go on if there was no row for a while."""
        with self._lock:
            while self._announced:
                self.note(self._announced.popleft(), screen.WARN)
            now = self._clock()
            if now - max(self._heard, self._ticked) < (_PIPE_SILENCE if self._live is None else _SILENCE):
                return
            self._ticked = now
            if self._rows:
                self._drain()
            if self._live is not None:
                self._redraw()
            elif self._under_way is not None and self._line_due < float("inf"):
                text = pipe.waiting(self._progress(now - self._heard), self._activity())
                self._print([[(text, "")]])

    def summary(self, result: Mapping[str, object]) -> None:
        """Print the end of a run. Optional keys of `result`: state, mean and std of the last evaluation, threshold,
        reason, seconds, env_steps, epochs, updates, folder, and next: pairs of a command and its purpose."""
        self.tick()
        self.close()
        alerts = self._monitor.recap() if self._monitor else []
        width = min(self._console.width, 120)
        curves = screen.curves(self._history, self._rules, width)
        self._print([[], *curves, [], *screen.verdict(result, width), *screen.facts(result, alerts, width)])

    def close(self) -> None:
        """Draw the last state, leave it on the screen and restore the cursor."""
        with self._lock:
            self._drain()
            if self._live is not None:
                live, self._live = self._live, None
                self._heard, self._doing = self._clock(), ""
                live.update(screen.drawn(self._frame(), self._ascii))
                self._out(live.stop)
            self._due = self._line_due = float("inf")

    def _alert(self, event: Event) -> None:
        self.note(f"{'⚠' if event.begins else '✓'} {event.text}", screen.WARN if event.begins else screen.GOOD)

    def _open(self) -> None:
        from rich.live import Live

        self._live = Live(console=self._console, auto_refresh=False)
        self._out(self._live.start)
        for _ in range(2):  # the first drawing fills caches, the second is timed
            begin = time.perf_counter()
            self._redraw()
            self._cost = time.perf_counter() - begin

    def _draw(self) -> None:
        begin = time.perf_counter()
        last = self._rows[-1]
        self._drain()
        self._plain_line(last)
        if self._plain:
            return
        self._redraw()
        cost = time.perf_counter() - begin
        self._cost = min(cost, 2 * self._cost)  # one slow redraw must not freeze the screen
        self._due = self._clock() + max(_FASTEST, self._cost / _SHARE)

    def _redraw(self) -> None:
        if self._live is not None:
            self._out(self._live.update, screen.drawn(self._frame(), self._ascii), refresh=True)

    def _plain_line(self, last: Row) -> None:
        """A progress line for outputs without the table: at every evaluation, and less and less often between them."""
        evaluated = EVAL_RETURN in last
        if not evaluated and self._clock() < self._line_due:
            return
        at = self._progress()
        running = "" if evaluated else pipe.progress(at, self._history, self._rules)
        text = running or pipe.evaluation(at, last, self._threshold)
        line: screen.Line = [(text, "")]
        self._print([line] if self._plain else [], [line])
        seconds = float(self._history.position.get("seconds", 0.0))
        self._line_due = self._clock() + min(max(2.0, seconds / 50), 60.0)
        if self._plain:
            self._due = self._line_due

    def _drain(self) -> None:
        self._history.extend(self._rows)
        self._rows.clear()
        if self._history.position:
            seconds, steps = (float(self._history.position.get(key, 0.0)) for key in ("seconds", self._budget.unit))
            self._speed.append((seconds, steps))
            learns = self._learning_starts <= steps
            while len(self._speed) > 2 and (
                self._speed[1][0] <= seconds - _SPEED_WINDOW or (learns and self._speed[0][1] < self._learning_starts)
            ):
                self._speed.popleft()

    def _progress(self, waited: float = 0.0) -> screen.Standing:
        at = self._history.position
        (begin, before), (end, after) = self._speed[0], self._speed[-1]
        position = int(at.get(self._budget.unit, before))
        if waited:
            position = max(position, self._position())
        speed = (after - before) / (end - begin) if end > begin else 0.0
        if waited and (not speed or after <= self._learning_starts <= position):  # rows say nothing of the speed yet
            speed = (position - after) / waited
        return screen.Standing(
            position=position,
            total=self._budget.total,
            noun=self._budget.noun,
            speed=speed,
            seconds=float(at.get("seconds", 0.0)) + waited,
            epoch=int(at.get("epoch", 0)),
            updates=int(at.get("updates", 0)),
            phase=str(at.get("phase", "")),
            learning_starts=self._learning_starts,
        )

    def _position(self) -> int:
        """Where the run is now, in the unit of its budget."""
        return self._under_way()[0] if self._under_way is not None else 0

    def _activity(self) -> str:
        """What the run does between two rows: what was noted last, until the run is further than it was then."""
        if self._doing and self._position() > self._doing_at:
            self._doing = ""
        return self._doing or (self._under_way()[1] if self._under_way is not None else "")

    def _frame(self) -> list[screen.Line]:
        width, height = min(self._console.width, 120), self._console.height
        waited = self._clock() - self._heard
        waited = waited if waited >= _SILENCE else 0.0
        status = self._status(waited, width)
        lines = screen.table(self._history, self._rules, width, max(height - 4 - len(status), 3))
        return [*lines, [], screen.progress(self._progress(waited), width), *status]

    def _status(self, waited: float, width: int) -> list[screen.Line]:
        """What goes on below the progress bar, while no row comes and before the first episode has ended."""
        if (doing := self._activity()) and (waited or self._doing):
            return [[(clean(f"{doing}  {duration(waited)}" if self._doing else doing, width), screen.DIM)]]
        if RETURN in self._history.series or self._budget.unit != "env_steps":
            return []
        return [[(clean("no episode has ended yet, so there is no return", width), screen.DIM)]]

    def _print(self, lines: Iterable[screen.Line], plain: Iterable[screen.Line] | None = None) -> None:
        """Print `lines` on the screen and `plain` (default: the same without colours) to the copy."""
        lines = list(lines)
        for text in filter(None, screen.texts(lines if plain is None else plain)):
            try:
                if self._copy is not None:
                    self._copy(text)
            except OSError as error:  # it ends the copy, not the run
                self._copy = None
                log.warning("run.log cannot be written: %s; training goes on without it", error)
        if not self._plain:
            if lines:
                self._out(self._console.print, screen.drawn(lines, self._ascii), end="")
            return
        for text in screen.texts(lines) if not self._silent else ():
            self._out(print, ascii_only(text) if self._ascii else text, file=self._console.file, flush=True)

    def _out(self, write: Callable[..., object], *args: object, **options: object) -> None:
        """Write to the screen; if that fails (full disk, closed terminal or pipe), training goes on without it."""
        try:
            write(*args, **options)
        except OSError:
            self._silent = True
            mute(self._console.file)
