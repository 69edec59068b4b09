"""Faults 7, 56 and 59-61: replay data that is damaged, too large, left behind or ahead of its checkpoint."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from faults.conftest import Ludus
from faults.processes import Server
from faults.support import contents, only_run, outcome, refused
from ludus.metrics.sinks.jsonl import read_rows

DQN = [
    "CartPole-v1:dqn",
    "environment.num_envs=2",
    "algorithm.train_freq=2",
    "algorithm.learning_starts=64",
    "algorithm.batch_size=16",
    "algorithm.epoch_steps=64",
    "network.encoder.hidden_dims=[16]",
    "buffers.replay.size=4096",
    "training.total_timesteps=1024",
    "training.checkpoints.every_steps=64",
    "training.evaluation.every_steps=null",
    "training.stop.eval_reward=null",
    "runtime.compile=never",
    "-q",
]


@pytest.fixture(scope="module")
def _cut(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed in the middle, and beside it one that was not."""
    folder = tmp_path_factory.mktemp("replay")
    for name, prelude in (
        ("whole", ""),
        ("cut", "inject.signal_on_call('ludus.data.collector:Collector.collect', 9, at=100)"),
    ):
        (folder / name).mkdir()
        done = server.run("train", *DQN, cwd=folder / name, prelude=prelude)
        assert done.code == (0 if name == "whole" else -9), done.err
    return folder


@pytest.fixture
def cut(_cut: Path, tmp_path: Path) -> Path:
    """A copy of the killed run, in the test's own folder."""
    shutil.copytree(_cut / "cut" / "runs", tmp_path / "runs", symlinks=True)
    return only_run(tmp_path)


@pytest.mark.parametrize("name", ["obs.bin", "reward.bin"])
def test_07_a_damaged_replay_buffer_is_refused(ludus: Ludus, cut: Path, name: str) -> None:
    """Never trained on, and never silently empty; begun anew only when asked for."""
    path = cut / "buffers" / "replay" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    before = contents(cut, without=(".lock",))
    refused(ludus("resume", "@last"), 3, "buffers", "--rebuild-buffer")
    assert contents(cut, without=(".lock",)) == before
    anew = ludus("resume", "@last", "--rebuild-buffer")
    assert anew.code == 0, anew.err
    assert list(read_rows(cut / "metrics.jsonl"))[-1]["env_steps"] == 1024


def test_07_a_missing_replay_buffer_is_refused(ludus: Ludus, cut: Path) -> None:
    shutil.rmtree(cut / "buffers")
    refused(ludus("resume", "@last"), 3, "buffers", "--rebuild-buffer")


def test_56_a_replay_buffer_larger_than_memory(ludus: Ludus, tmp_path: Path) -> None:
    """Refused before the first step, with the number and what to lower."""
    refused(ludus("train", *DQN, "buffers.replay.size=100_000_000_000"), 5, "buffers.replay", "GB")
    assert not (tmp_path / "runs").exists()


def test_59_replay_data_belongs_to_its_run(ludus: Ludus, cut: Path) -> None:
    """A killed run's data lies in its folder, is counted there, and goes when it is cleaned up."""
    stored = sum(path.stat().st_size for path in (cut / "buffers").rglob("*") if path.is_file())
    (record,) = json.loads(ludus("list", "--json").out)
    assert record["size"] > stored > 0
    ludus("cleanup", "--keep-best", "0", "--keep-recent", "0", "--yes")
    assert not (cut / "buffers").exists()
    assert (cut / "config.yaml").is_file() and (cut / "metrics.jsonl").is_file()


def test_60_rows_ahead_of_the_checkpoint_are_cut(ludus: Ludus, _cut: Path, cut: Path) -> None:
    """Steps stored after the checkpoint come from a policy that is gone: the resumed run never sees them."""
    with (cut / "buffers" / "replay" / "reward.bin").open("ab") as file:
        file.write(b"\x7f" * 4096)
    done = ludus("resume", "@last")
    assert done.code == 0, done.err
    assert outcome(cut) == outcome(only_run(_cut / "whole"))


def test_61_a_resume_owes_no_burst_of_updates(ludus: Ludus, cut: Path) -> None:
    """As many updates per step after a resume as before it."""
    ludus("resume", "@last")
    rows = [row for row in read_rows(cut / "metrics.jsonl") if row["env_steps"] > 128]
    ratios = {round((b["updates"] - a["updates"]) / (b["env_steps"] - a["env_steps"]), 6) for a, b in pairwise(rows)}
    assert len(ratios) == 1
