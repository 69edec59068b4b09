"""Checkpoints as versions of a W&B artifact, and back: the real client, with a server on 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_wandb_artifacts import FakeArtifacts
from faults.support import SMALL, TIMING
from ludus import files
from ludus.archive import checkpoint, package
from ludus.archive.fingerprint import fingerprint
from ludus.archive.portable import refuse_private, write_whole
from ludus.archive.store import RunFolder
from ludus.config.read import to_yaml
from ludus.errors import ConfigError, DataError
from ludus.hub import wandb as source
from ludus.metrics.sinks.jsonl import read_rows

wandb = pytest.importorskip("wandb")

ON = ["logging.wandb.enabled=true", "logging.wandb.archive=true", "experiment.name=cart"]
PPO = [*SMALL, "training.total_timesteps=512", "training.checkpoints.every_steps=128", "training.checkpoints.keep=9"]
DQN = ["CartPole-v1:dqn", "algorithm.update_ratio=0.05", "algorithm.batch_size=16", "algorithm.epoch_steps=256"]
DQN += ["training.total_timesteps=2048", "training.checkpoints.every_steps=256", "buffers.replay.size=1600"]
DQN += ["training.evaluation.every_steps=null", "training.stop.eval_reward=null", "runtime.compile=never", "-q"]
RUNS = {
    "ppo": PPO,
    "dqn": DQN,
    "dqn on disk": [*DQN, "buffers.replay.storage=disk"],
}
KEY = "c0ffee" * 6 + "c0ff"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeArtifacts]:
    """A server on which alice is logged in, with a client that gives up soon."""
    for name in ("WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setattr(source, "FIRST_ANSWER", 3)
    with FakeArtifacts() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.address)
        yield server


def last(root: Path) -> RunFolder:
    return RunFolder.load(root, "@last")


def outcome(run: RunFolder) -> tuple[str, list[dict[str, Any]]]:
    rows = [{k: v for k, v in row.items() if not k.startswith(TIMING)} for row in read_rows(run.path / "metrics.jsonl")]
    return fingerprint(checkpoint.load(checkpoint.find(run.path, "last"))), rows


@pytest.mark.parametrize("what", RUNS)
def test_a_run_comes_back_and_goes_on_to_the_bit(what: str, server: FakeArtifacts, ludus: Any, tmp_path: Path) -> None:
    """From the middle, on a machine that has nothing of it, to what the uninterrupted run became."""
    code, _, err = ludus("train", *RUNS[what], *ON, "--runs-dir", tmp_path / "runs")
    assert code == 0, err
    run = last(tmp_path / "runs")
    whole, names = outcome(run), list(checkpoint.checkpoints(run.path))
    shutil.rmtree(tmp_path / "runs")
    middle = len(server.known(run.id)) - 2
    code, out, err = ludus("pull", f"wandb:alice/ludus/{run.id}:v{middle}", "--runs-dir", tmp_path / "new")
    assert code == 0, err
    assert f"from     wandb:alice/ludus/{run.id}:v{middle}" in out and "return" not in out
    pulled = last(tmp_path / "new")
    assert list(checkpoint.checkpoints(pulled.path)) == names[-2:-1]
    code, _, err = ludus("resume", "@last", "--runs-dir", tmp_path / "new")
    assert code == 0, err
    assert outcome(last(tmp_path / "new")) == whole


def test_what_has_not_changed_is_not_sent_again(server: FakeArtifacts, ludus: Any, tmp_path: Path) -> None:
    code, _, err = ludus("train", *DQN, *ON, "--runs-dir", tmp_path / "runs")
    assert code == 0, err
    run = last(tmp_path / "runs")
    versions = server.known(run.id)
    assert len(versions) == 9 and sorted(versions[-1].aliases) == ["best", "latest"]
    assert server.put.count("config.yaml") == server.put.count("spaces.json") == 1
    listed = [name for one in versions for name in one.entries if name.startswith("steps-")]
    sent = [name for name in server.put if name.startswith("steps-")]
    assert len(sent) == len(set(sent)) == len(set(listed)) < len(listed) / 2
    assert not list(run.path.rglob("archive")), "what was sent is still on the disk"


def test_nothing_private_is_sent(
    server: FakeArtifacts, ludus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ludus", "train", "canaryargument"])
    code, _, err = ludus("train", *PPO, *ON, "--runs-dir", tmp_path / "runs")
    assert code == 0, err
    versions = server.known(last(tmp_path / "runs").id)
    assert len(versions) == 5 and all(set(one.entries) <= set(package.LIMITS) for one in versions)
    sent = [*server.stored.values(), *(one.manifest for one in versions), *server.bodies]
    for private in (str(tmp_path), KEY, "canaryargument", socket.gethostname(), "mallory", str(Path.home())):
        assert len(private) < 4 or not [data for data in sent if private.encode() in data], private


def test_what_names_a_local_folder_stays_here(server: FakeArtifacts, ludus: Any, tmp_path: Path) -> None:
    about = f"experiment.description=as in {tmp_path / 'home'} before"
    code, out, err = ludus("train", *PPO, *ON, about, "--runs-dir", tmp_path / "runs")
    assert code == 0, err
    assert (out + err).count("W&B archive: step=0 is left out: config.yaml: names the local folder") == 1, out + err
    assert (out + err).count("W&B archive: ") == 1 and not server.versions


@pytest.mark.parametrize("letters", ["jürgen", 'a"b'], ids=["umlaut", "quote"])
def test_what_json_escapes_stays_here_too(letters: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder whose name JSON writes in another way."""
    home = tmp_path / letters
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "package").mkdir()
    files.write_json(tmp_path / "package" / "state.json", {"plugin": f"{home}/x"})
    with pytest.raises(ConfigError, match="names the local folder"):
        refuse_private(tmp_path / "package", RunFolder(tmp_path / "runs" / "cart"))


@pytest.mark.parametrize("letters", ["my user", "o'brien"])
def test_what_yaml_writes_in_another_way_stays_here_too(
    letters: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks a line where a folder has a space, and doubles quotes."""
    home = tmp_path / letters
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "package").mkdir()
    about = "x" * 100 + f": {home}/a"
    files.write_text(tmp_path / "package" / "config.yaml", to_yaml({"about": about}))
    assert str(home) not in (tmp_path / "package" / "config.yaml").read_text()
    with pytest.raises(ConfigError, match="names the local folder"):
        refuse_private(tmp_path / "package", RunFolder(tmp_path / "runs" / "cart"))


def test_a_run_that_learns_from_the_steps_of_another_one(server: FakeArtifacts, ludus: Any, tmp_path: Path) -> None:
    """It is archived without them, and comes back to be looked at and played."""
    code, _, err = ludus("train", *DQN, "--runs-dir", tmp_path / "runs")
    assert code == 0, err
    other, config = last(tmp_path / "runs").path, tmp_path / "off.yaml"
    config.write_text(f"""
algorithm: {{name: dqn, batch_size: 16}}
buffers: {{replay: {{type: stored, path: {other}}}}}
environment: {{id: CartPole-v1}}
runtime: {{compile: never}}
training: {{total_updates: 20, epoch_updates: 10, evaluation: {{every_updates: null}}}}
""")
    code, out, err = ludus("train", config, *ON, "-q", "--runs-dir", tmp_path / "runs")
    assert code == 0 and "W&B archive: " not in out + err, out + err
    run = last(tmp_path / "runs")
    code, _, err = ludus("pull", f"wandb:alice/ludus/{run.id}", "--runs-dir", tmp_path / "new")
    assert code == 0, err
    assert outcome(last(tmp_path / "new"))[0] == outcome(run)[0]
    assert not [data for data in server.stored.values() if str(tmp_path).encode() in data]


def test_damaged_steps_are_not_archived(ludus: Any, tmp_path: Path) -> None:
    code, _, err = ludus("train", *DQN, "--runs-dir", tmp_path / "runs")
    assert code == 0, err
    run = last(tmp_path / "runs")
    column = run.path / "buffers" / "replay" / "action.bin"
    column.write_bytes(b"\xff" * column.stat().st_size)
    (tmp_path / "archive" / "step").mkdir(parents=True)
    with pytest.raises(DataError, match="is not as it was saved"):
        write_whole(run, checkpoint.find(run.path, "last"), tmp_path / "archive" / "step")


def test_an_archive_without_w_and_b_is_refused(ludus: Any, tmp_path: Path) -> None:
    code, _, err = ludus("train", *PPO, "logging.wandb.archive=true", "--runs-dir", tmp_path / "runs")
    assert code == 2 and "archive needs enabled: true" in err and err.count("\n") == 1, err


def test_offline_it_waits_for_wandb_sync(
    server: FakeArtifacts, ludus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    code, _, err = ludus("train", *PPO, *ON, "--runs-dir", tmp_path / "runs")
    assert code == 0, err
    run = last(tmp_path / "runs")
    (folder,) = run.path.glob("wandb/offline-run-*/archive")
    assert sorted(path.name for path in folder.iterdir()) == sorted(checkpoint.checkpoints(run.path))
    assert not server.asked
    monkeypatch.delenv("WANDB_MODE")
    command = [sys.executable, "-m", "wandb", "sync", str(folder.parent)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(server.known(run.id)) == 5
    code, _, err = ludus("pull", f"wandb:alice/ludus/{run.id}", "--runs-dir", tmp_path / "new")
    assert code == 0, err
    assert outcome(last(tmp_path / "new"))[0] == outcome(run)[0]


@pytest.mark.parametrize(("artifacts", "files"), [(403, 0), (404, 0), (0, 403)])
def test_a_failing_upload_is_one_warning(
    artifacts: int, files: int, server: FakeArtifacts, ludus: Any, tmp_path: Path
) -> None:
    server.refuse_artifacts, server.refuse_files = artifacts, files
    code, out, err = ludus("train", *PPO, *ON, "--runs-dir", tmp_path / "runs")
    assert code == 0, err
    assert (out + err).count("W&B archive: ") == 1 and "training goes on" in out + err, out + err
    run = last(tmp_path / "runs")
    assert not server.known(run.id) and len(checkpoint.checkpoints(run.path)) == 5
    assert not list(run.path.rglob("archive"))
