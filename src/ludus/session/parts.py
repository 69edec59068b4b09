"""The parts of a run that its folder has to do with."""

from __future__ import annotations

from typing import Any

from ludus.data.buffers import Buffers
from ludus.data.collector import Collector
from ludus.errors import EnvironmentFailed
from ludus.learning.compiled import Compiler
from ludus.orchestration.orchestrator import Orchestrator


def collector_of(run: Orchestrator) -> Collector | None:
    """The one collector of a run; none if it only learns from stored steps."""
    collector = run.stateful.get("collector")
    assert collector is None or isinstance(collector, Collector)
    return collector


def compiler_of(run: Orchestrator) -> Compiler:
    """What decides which updates are compiled."""
    compiler = run.stateful["compiler"]
    assert isinstance(compiler, Compiler)
    return compiler


def buffers_of(run: Orchestrator) -> Buffers:
    """All buffers of a run."""
    buffers = run.stateful["buffers"]
    assert isinstance(buffers, Buffers)
    return buffers


def close(run: Orchestrator) -> None:
    """Shut all environments down, and what a callback holds open; an environment that cannot be closed fails no run."""
    parts: list[Any] = [callback for callback in run.callbacks if hasattr(callback, "close")]
    for part in filter(None, (*parts, run.evaluator, collector_of(run))):
        try:
            part.close()
        except EnvironmentFailed as error:
            run.say(error.line())
