"""Event files that TensorBoard itself reads back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ludus.errors import MissingExtra
from ludus.metrics.sinks.tensorboard import TensorBoard


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtra, match=r"logging\.tensorboard.*pip install 'ludus-rl\[tensorboard\]'"):
        TensorBoard(tmp_path)


def test_scalars_stand_at_their_environment_steps(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = TensorBoard(tmp_path)
    for epoch in range(3):
        sink.write({"epoch": epoch, "env_steps": 256 * epoch, "phase": "main", "train/loss/policy": 0.5 * epoch})
    sink.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Tags()["scalars"] == ["train/loss/policy"]
    assert [(e.step, e.value) for e in events.Scalars("train/loss/policy")] == [(0, 0.0), (256, 0.5), (512, 1.0)]
