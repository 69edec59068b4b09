"""The user's program gets every new alert as one argument, and its failures cost nothing."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

from ludus.errors import ConfigError
from ludus.watch.alert_command import AlertCommand
from ludus.watch.monitor import Monitor
from ludus.watch.rules import Rules

_NOTE = "import sys, pathlib; pathlib.Path(sys.argv[1]).open('a').write(repr(sys.argv[2:]) + '\\n')"


def _monitor(command: AlertCommand) -> Monitor:
    monitor = Monitor(Rules({"*/kl": {"max": 0.1, "tip": "$(touch owned); `id`"}}))
    monitor.listeners.append(command)
    return monitor


def test_beginnings_arrive_as_one_argument_without_a_shell(tmp_path: Path) -> None:
    command = AlertCommand([sys.executable, "-c", _NOTE, str(tmp_path / "seen")], "cart_1")
    monitor = _monitor(command)
    for value in (0.5, 0.01, 0.7):
        monitor.write({"epoch": 1, "env_steps": 1, "train/kl": value})
    command.close()
    lines = (tmp_path / "seen").read_text().splitlines()
    assert lines == [
        "['ludus cart_1: train/kl = 0.500: above 0.1; $(touch owned); `id`']",
        "['ludus cart_1: train/kl = 0.700: above 0.1; $(touch owned); `id`']",
    ]


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "import time; time.sleep(60)"])
def test_a_failing_or_hanging_program_is_one_warning(code: str, caplog: pytest.LogCaptureFixture) -> None:
    command = AlertCommand([sys.executable, "-c", code], "cart_1", timeout=0.5)
    monitor = _monitor(command)
    with caplog.at_level(logging.WARNING):
        for value in (0.5, 0.01, 0.7):
            monitor.write({"epoch": 1, "env_steps": 1, "train/kl": value})
        command._queue.put(None)
        command._thread.join(10)
    assert len(caplog.records) == 1
    assert "logging.alert_command" in caplog.records[0].message


def test_a_program_that_is_not_there_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"logging\.alert_command: 'no-such-program' is not a program"):
        AlertCommand(["no-such-program", "x"], "cart_1")
