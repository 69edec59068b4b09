"""Weights of one run as the start of another, as far as they fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from ludus.errors import ConfigError
from ludus.learning.learner import Learner

if TYPE_CHECKING:
    from ludus.orchestration.orchestrator import Orchestrator


@dataclass
class Transfer:
    """Which tensors were taken over, which did not fit, which the other run does not have."""

    loaded: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For the console and run.log."""
        return [
            f"weights taken over: {len(self.loaded)} tensors",
            *([f"did not fit: {', '.join(self.skipped)}"] if self.skipped else []),
            *([f"not in the other run: {', '.join(self.missing)}"] if self.missing else []),
        ]


def transfer(run: Orchestrator, state: Mapping[str, Any], *, optimizer: bool = False) -> Transfer:
    """Copy every tensor whose name and shape agree, and the observation statistics; all else starts afresh."""
    report = Transfer()
    for name, part in run.algorithm.state().items():
        if isinstance(part, Learner):
            _copy(part, state["algorithm"].get(name, {}), report, optimizer=optimizer)
    if not report.loaded:
        raise ConfigError("--init-from", "no tensor of that run fits this network", "use a run of the same network")
    if "normalizer" in run.stateful and "normalizer" in state:
        run.stateful["normalizer"].load_state_dict(state["normalizer"])
    return report


def _copy(learner: Learner, state: Mapping[str, Any], report: Transfer, *, optimizer: bool) -> None:
    theirs: Mapping[str, torch.Tensor] = state.get("model", {})
    ours = learner.model.state_dict()
    for name, tensor in ours.items():
        if name not in theirs:
            report.missing.append(name)
        elif theirs[name].shape != tensor.shape:
            report.skipped.append(f"{name} {tuple(theirs[name].shape)} -> {tuple(tensor.shape)}")
        else:
            tensor.copy_(theirs[name])
            report.loaded.append(name)
    report.skipped += [f"{name} (no such tensor here)" for name in theirs if name not in ours]
    learner.version += 1
    if optimizer:
        if report.missing or report.skipped:
            raise ConfigError("--mode", "the optimizer's state fits only an equal network", "use warm_start")
        learner.load_optimizers(state["optimizer"])
