"""What a run in a folder is given besides its loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.archive.store import RunFolder
from ludus.session.furnish import make_sinks
from support import config


@pytest.mark.parametrize(("step_key", "steps"), [(None, [64, 128]), ("updates", [5, 10]), ("epoch", [1, 2])])
def test_curves_are_drawn_over_the_step_key(tmp_path: Path, step_key: str | None, steps: list[int]) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sinks = make_sinks(config(logging={"tensorboard": True}), RunFolder(tmp_path), step_key)
    for epoch in (1, 2):
        row = {"epoch": epoch, "env_steps": 64 * epoch, "updates": 5 * epoch, "phase": "train", "seconds": 0.1}
        for sink in sinks:
            sink.write({**row, "train/x": 1.0})
    for sink in sinks:
        sink.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("train/x")] == steps
