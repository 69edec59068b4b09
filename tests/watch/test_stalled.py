"""A run that hangs is noticed while it hangs."""

from __future__ import annotations

import threading
import time

from ludus.watch.monitor import Event, Monitor
from ludus.watch.rules import Rules
from ludus.watch.stalled import Stalled


def _watch(seconds: float) -> tuple[Stalled, list[Event], threading.Event]:
    monitor, told, heard = Monitor(Rules()), [], threading.Event()

    def listen(event: Event) -> None:
        told.append(event)
        heard.set()

    monitor.listeners.append(listen)
    return Stalled(monitor, seconds), told, heard


def test_silence_is_told_once_and_the_next_row_ends_it() -> None:
    sink, told, heard = _watch(0.05)
    try:
        assert heard.wait(5)
        time.sleep(0.15)
        assert [event.begins for event in told] == [True]
        assert "no progress for 0.05 s" in told[0].text
        sink.write({"env_steps": 8, "updates": 0})
        assert [event.begins for event in told] == [True, False]
        heard.clear()
        assert heard.wait(5)  # and it may stall again
    finally:
        sink.close()


def test_rows_without_progress_are_silence() -> None:
    sink, told, heard = _watch(0.2)
    try:
        for _ in range(100):
            sink.write({"env_steps": 8, "updates": 0})
            if heard.wait(0.05):
                break
        assert [event.begins for event in told] == [True]
    finally:
        sink.close()


def test_a_long_evaluation_is_progress_until_it_stands_still() -> None:
    monitor, heard, played = Monitor(Rules()), threading.Event(), iter(range(6))
    monitor.listeners.append(lambda _: heard.set())
    played_out = threading.Event()

    def under_way() -> int:
        number = next(played, 5)
        if number == 5:
            played_out.set()
        else:
            assert not heard.is_set()
        return number

    sink = Stalled(monitor, 1.2, under_way)  # looks four times in that time: each look sees another episode
    try:
        assert played_out.wait(20)
        assert not heard.is_set()
        assert heard.wait(20)
    finally:
        sink.close()


def test_a_moving_run_is_left_alone_and_closing_ends_the_thread() -> None:
    sink, told, _ = _watch(0.4)
    for step in range(30):
        sink.write({"env_steps": 0, "updates": step})
        time.sleep(0.02)
    sink.close()
    assert told == []
    assert not sink._thread.is_alive()
