"""Signals ask a run to stop, whoever sends them; the third one does not ask."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from ludus.session import signals
from ludus.session.signals import stopping

SIGNALS = [signal.Signals[f"SIG{name}"] for name in ("TERM", "INT", "HUP", "USR1", "USR2", "XCPU")]


@pytest.fixture
def run() -> Any:
    told: list[str] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    yield SimpleNamespace(interrupt=told.append, told=told)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU"])
def test_each_of_them_asks_the_run_to_stop(run: Any, name: str) -> None:
    number = signal.Signals[name]
    signal.signal(number, lambda *_: None)  # does not end this process where nobody listens
    with stopping(run):
        os.kill(os.getpid(), number)
    assert run.told and run.told[0].startswith(name)


def test_it_is_acknowledged_once(run: Any) -> None:
    told: list[str] = []
    with stopping(run, told.append):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    (line,) = told
    assert line == "SIGINT: stopping after this update; press Ctrl-C twice more to end at once, without saving ..."
    with stopping(run, told.append):
        os.kill(os.getpid(), signal.SIGTERM)
    assert told[1] == "SIGTERM: stopping after this update ..."


def test_the_third_ends_the_process(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(signals.os, "_exit", ended.append)
    with stopping(run):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert ended == []
        os.kill(os.getpid(), signal.SIGINT)
    assert ended == [130]


def test_a_limit_on_cpu_time_is_not_impatient(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals.os, "_exit", lambda code: pytest.fail(f"ended with {code}"))
    with stopping(run):
        for _ in range(5):
            os.kill(os.getpid(), signal.SIGXCPU)


def test_what_nohup_ignores_stays_ignored(run: Any) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stopping(run):
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    assert run.told == []


def test_what_was_there_before_is_there_afterwards(run: Any) -> None:
    with stopping(run):
        pass
    assert all(signal.getsignal(number) == signal.SIG_DFL for number in SIGNALS)
