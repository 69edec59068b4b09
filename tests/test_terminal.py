"""Switches of the process's environment, under their new and their old names."""

from __future__ import annotations

import pytest

from ludus.terminal import NO_LOGS, QUIET, quiet, session_logs


@pytest.fixture(autouse=True)
def _none_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*QUIET, *NO_LOGS):
        monkeypatch.delenv(name, raising=False)


def test_the_names() -> None:
    assert set(QUIET) == {"LUDUS_QUIET", "VIBES_QUIET", "VIBES_DISABLE_CHECKPOINT_LOGS"}
    assert set(NO_LOGS) == {"LUDUS_DISABLE_SESSION_LOGS", "VIBES_DISABLE_SESSION_LOGS"}


@pytest.mark.parametrize("name", QUIET)
@pytest.mark.parametrize(("value", "on"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)])
def test_quiet(monkeypatch: pytest.MonkeyPatch, name: str, value: str, on: bool) -> None:
    assert not quiet()
    monkeypatch.setenv(name, value)
    assert quiet() is on
    assert session_logs()


@pytest.mark.parametrize("name", NO_LOGS)
def test_no_session_logs(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert session_logs()
    monkeypatch.setenv(name, "1")
    assert not session_logs()
    assert not quiet()
