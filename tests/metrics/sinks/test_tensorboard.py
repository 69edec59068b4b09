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


def test_panels_and_hyperparameters_are_in_the_same_file(tmp_path: Path) -> None:
    """Custom scalars group the curves; the config is a table that leads to them, schedules by their start."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    from ludus.metrics.panels import PANELS

    config = {"algorithm": {"lr": {"start": 0.001, "end": 0.0, "schedule": "linear"}}, "experiment": {"seed": 7}}
    sink = TensorBoard(tmp_path, config=config)
    sink.close()
    assert len(list(tmp_path.rglob("events*"))) == 1
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    tensor = found.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0]
    layout = Layout.FromString(tensor)
    assert [category.title for category in layout.category] == list(PANELS)
    stored = found.PluginTagToContent("hparams")
    start = HParamsPluginData.FromString(stored["_hparams_/session_start_info"]).session_start_info.hparams
    assert (start["algorithm.lr"].number_value, start["experiment.seed"].number_value) == (0.001, 7)
