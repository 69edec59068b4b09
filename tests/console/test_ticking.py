"""The console is alive while the main thread computes."""

from __future__ import annotations

import threading

import pytest

from ludus.console import ticking as module
from ludus.console.ticking import ticking


def test_ticks_come_from_a_thread_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PERIOD", 0.001)
    beats: list[str] = []
    thrice = threading.Event()

    def tick() -> None:
        beats.append(threading.current_thread().name)
        if len(beats) >= 3:
            thrice.set()

    with pytest.raises(KeyError), ticking(tick):
        assert thrice.wait(10.0)
        raise KeyError
    count = len(beats)
    assert set(beats) == {"console"}
    assert not any(thread.name == "console" for thread in threading.enumerate())
    assert len(beats) == count
