"""control.json: obeyed once, refused in one line, never in the way of training."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ludus.orchestration.callbacks.control import LIMIT, NAME, Control
from orchestration.settings_stand_in import StandIn


class Desk:
    """A control with its run folder, its run, and a counter of checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.saved = folder, StandIn(lr=1e-3), 0
        (folder / "config.yaml").write_text("seed: 1\n")
        self.control = Control(folder, self.save)

    def save(self) -> None:
        self.saved += 1

    def write(self, content: Any) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        (self.folder / "new").write_text(text)
        (self.folder / "new").replace(self.folder / NAME)

    def epoch(self) -> None:
        self.control.on_epoch_end(self.run)  # type: ignore[arg-type]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_without_the_file_nothing_happens(desk: Desk) -> None:
    desk.epoch()
    assert desk.run.said == []


def test_settings_change_once_and_config_yaml_never(desk: Desk) -> None:
    desk.epoch()
    desk.write({"set": {"lr": 1e-4, "clip": "lin_0.1"}})
    for _ in range(3):
        desk.epoch()
    assert desk.run.settings.lr.start == 1e-4
    assert desk.run.said == ["control.json: lr 0.001 -> 0.0001", desk.run.said[1]]
    assert desk.run.said[1].startswith("control.json: clip 0.2 -> {'start': 0.1")
    assert (desk.folder / "config.yaml").read_text() == "seed: 1\n"
    desk.write({"set": {"lr": 5e-4}})
    desk.epoch()
    assert desk.run.settings.lr.start == 5e-4


def test_checkpoint_and_stop(desk: Desk) -> None:
    desk.write({"checkpoint": True})
    desk.epoch()
    desk.epoch()
    assert (desk.saved, desk.run.interrupted) == (1, None)
    desk.write({"stop": True})
    desk.epoch()
    assert "control.json" in (desk.run.interrupted or "")
    assert len(desk.run.said) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[1]", "valid dictionary"),
        ('{"sett": {}}', "sett: Extra inputs"),
        ('{"set": {"lrr": 1}}', "algorithm.lrr"),
        ('{"set": {"lr": -1}}', "must start above 0"),
        ('{"set": {"lr": NaN}}', "finite"),
        ('{"set": {"optimizer": {}}}', "fixed"),
        ('{"stop": "soon"}', "stop: Input should be a valid boolean"),
        ("[" * 100_000, "larger than 64 kB"),
        ("[" * 60_000, "not JSON"),
        ("\x00\xff", "not JSON"),
        ('{"' + "x\\u001b[2J" * 5_000 + '": 1}', "control.json"),
    ],
)
def test_nonsense_is_one_line_and_changes_nothing(desk: Desk, content: str, words: str) -> None:
    before = desk.run.settings
    desk.write(content)
    for _ in range(3):
        desk.epoch()
    (line,) = desk.run.said
    assert line.startswith("⚠ control.json") or "⚠ algorithm" in line
    assert words in line
    assert line.isprintable()
    assert len(line) < 300
    assert "training goes on unchanged" in line
    assert (desk.run.settings, desk.saved, desk.run.interrupted) == (before, 0, None)


def test_a_bad_field_keeps_the_good_ones_out_too(desk: Desk) -> None:
    desk.write({"set": {"lr": 1e-4, "clip": -1}, "stop": True})
    desk.epoch()
    assert desk.run.settings.lr.start == 1e-3
    assert desk.run.interrupted is None


def test_links_pipes_and_folders_are_refused(desk: Desk) -> None:
    secret = desk.folder / "secret"
    secret.write_text(json.dumps({"stop": True}))
    (desk.folder / NAME).symlink_to(secret)
    desk.epoch()
    (desk.folder / NAME).unlink()
    os.mkfifo(desk.folder / NAME)
    desk.epoch()
    (desk.folder / NAME).unlink()
    (desk.folder / NAME).mkdir()
    desk.epoch()
    assert desk.run.interrupted is None
    assert len(desk.run.said) == 3


def test_a_resumed_run_does_not_obey_again(desk: Desk) -> None:
    desk.write({"stop": True})
    desk.epoch()
    resumed = Desk(desk.folder)
    resumed.control.load_state_dict(json.loads(json.dumps(desk.control.state_dict())))
    resumed.epoch()
    assert resumed.run.interrupted is None
    resumed.write({"set": {"lr": 2e-4}})
    resumed.epoch()
    assert resumed.run.settings.lr.start == 2e-4


def test_the_limit_is_what_the_message_says() -> None:
    assert LIMIT == 64 * 1024
