"""The parts of a run that its folder has to do with."""

from __future__ import annotations

from ludus.data.buffers import Buffers
from ludus.data.collector import Collector
from ludus.networks.compiled import Compiler
from ludus.orchestration.orchestrator import Orchestrator


def collector_of(run: Orchestrator) -> Collector:
    """The one collector of a run."""
    collector = run.stateful["collector"]
    assert isinstance(collector, Collector)
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
    """Shut all environments down, and what a callback holds open."""
    for callback in run.callbacks:
        if hasattr(callback, "close"):
            callback.close()
    run.evaluator.close()
    collector_of(run).close()
