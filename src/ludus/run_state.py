"""What a checkpoint holds of a run: the state of every part that changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from ludus.orchestration.evaluator import EvalResult
from ludus.progress import Progress
from ludus.types import Stateful, check_form

if TYPE_CHECKING:
    from ludus.orchestration.callbacks import Callback
    from ludus.run import Run


OWN = ("collector", "buffers", "reward_normalizer", "torch", "exploration")
"""What each of several ranks has for itself; everything else is the same on all of them."""


def own_state(run: Run) -> dict[str, Any]:
    """What only this rank knows."""
    parts = {name: part.state_dict() for name, part in _parts(run).items() if name in OWN}
    return {**parts, **_streams(run)}


def common_state(run: Run) -> dict[str, Any]:
    """What all ranks begin with: the state without that of one rank and of its callbacks."""
    return {name: part for name, part in state_of(run, without=OWN).items() if name != "callbacks"}


def state_of(run: Run, without: Collection[str] = ()) -> dict[str, Any]:
    """Everything that changes."""
    return {
        "algorithm": {name: part.state_dict() for name, part in run.algorithm.state().items()},
        "run": _numbers(run),
        "callbacks": {name: callback.state_dict() for name, callback in _callbacks(run).items()},
        **{name: part.state_dict() for name, part in _parts(run).items() if name not in without},
        **({} if without else _streams(run)),
        **({} if run.progress == run.epoch_start else {"epoch": epoch_so_far(run)}),
    }


def _numbers(run: Run) -> dict[str, Any]:
    return {
        "best": run.best.state_dict() if run.best else None,
        "last": run.last.state_dict() if run.last else None,
        "seconds": run.seconds,
        "entered": run.entered,
        "epoch_start": asdict(run.epoch_start),
        "epoch_position": run.epoch_position,
        "settings": [cfg.model_dump(mode="json") for cfg in run.phase_configs],
    }


def _streams(run: Run) -> dict[str, Any]:
    return {"torch": {"cpu": torch.get_rng_state()}, "exploration": dict(run.exploration.bit_generator.state)}


def epoch_so_far(run: Run) -> dict[str, Any]:
    """What the end of the epoch will read: a checkpoint that a signal asked for is taken within one."""
    learners = {name: learner.sums.unread() for name, learner in run.learners.items()}
    return {"metrics": run.recorder.epoch_state(), "learners": learners, "to_confirm": run.to_confirm}


def load(run: Run, state: Mapping[str, Any]) -> None:
    """Continue exactly where the state was taken; the environments of the phase are entered first."""
    saved_by = 1 + len(state.get("ranks", {}))
    if saved_by != run.ranks.count:
        raise ValueError(f"it was saved by {saved_by} rank(s), runtime.ranks is {run.ranks.count}")
    run.shards = dict(state.get("ranks", {}))
    load_common(run, state)
    load_own(run, state)
    for name, callback in _callbacks(run).items():
        if state["callbacks"].get(name):
            callback.load_state_dict(state["callbacks"][name])


def load_common(run: Run, state: Mapping[str, Any]) -> None:
    """Take over what is the same on all ranks."""
    own = state["run"]
    parts = {name: part for name, part in _parts(run).items() if name not in OWN}
    check_form({"run": _numbers(run), **{name: part.state_dict() for name, part in parts.items()}}, state)
    run.scheduler.load_state_dict(state["scheduler"])
    run.entered = own["entered"]
    if run.entered >= 0:
        run.enter(run.phase)
    for name, part in run.algorithm.state().items():
        part.load_state_dict(state["algorithm"][name])
    for name, part in parts.items():
        part.load_state_dict(state[name])
    saved = zip(run.phase_configs, own["settings"], strict=True)
    run.phase_configs = [type(cfg).model_validate(settings) for cfg, settings in saved]
    run.best, run.last = EvalResult.from_state(own["best"]), EvalResult.from_state(own["last"])
    run.seconds_before, run.epoch_position = own["seconds"], own["epoch_position"]
    run.epoch_start = Progress(**own["epoch_start"])
    if (begun := state.get("epoch")) is not None:
        run.recorder.load_epoch_state(begun["metrics"])
        run.to_confirm = begun["to_confirm"]
        for name, learner in run.learners.items():
            learner.sums.load_unread(begun["learners"][name], learner.theta)


def load_own(run: Run, state: Mapping[str, Any]) -> None:
    """Take over what one rank has for itself."""
    for name, part in _parts(run).items():
        if name in OWN:
            part.load_state_dict(state[name])
    torch.set_rng_state(torch.as_tensor(state["torch"]["cpu"]))
    run.exploration.bit_generator.state = state["exploration"]


def _parts(run: Run) -> dict[str, Stateful]:
    """What a checkpoint holds besides the algorithm, in the order in which it is loaded."""
    parts: dict[str, Stateful | None] = {
        "scheduler": run.scheduler,
        "evaluation_due": run.evaluation_due,
        "recorder": run.recorder,
        "nan_guard": run.nan_guard,
        "compiler": run.compiler,
        "precision": run.precision,
        "collector": run.collector,
        "buffers": run.buffers,
        "normalizer": run.normalizer,
        "reward_normalizer": run.reward_normalizer,
    }
    return {name: part for name, part in parts.items() if part is not None}


def _callbacks(run: Run) -> dict[str, Callback]:
    names = [type(callback).__name__ for callback in run.callbacks]
    return {f"{name} {names[:i].count(name)}": run.callbacks[i] for i, name in enumerate(names)}
