"""Weights & Biases: offline without key or network, and nothing secret in its files."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ludus.errors import MissingExtra
from ludus.metrics.sinks import wandb as sink_module
from ludus.metrics.sinks.wandb import WandbSink, choose_mode


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match=r"logging\.wandb.*pip install 'ludus-rl\[wandb\]'"):
        WandbSink(tmp_path, name="x", project="p")


@pytest.mark.parametrize(
    ("key", "network", "asked", "mode"),
    [
        (True, True, None, "online"),
        (True, False, None, "offline"),
        (False, True, None, "offline"),
        (True, True, "disabled", "disabled"),
    ],
)
def test_mode(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: bool, network: bool, asked: str | None, mode: str
) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if key:
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    if asked:
        monkeypatch.setenv("WANDB_MODE", asked)
    monkeypatch.setattr(sink_module, "_reachable", lambda *_: network)
    assert choose_mode() == mode


def test_a_key_in_netrc_counts_under_the_address_of_the_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sink_module, "_reachable", lambda *_: True)

    def mode(host: str) -> str:
        (tmp_path / ".netrc").write_text(f"machine {host} login user password secret\n")
        (tmp_path / ".netrc").chmod(0o600)
        return choose_mode()

    own = urlsplit(wandb.Settings().base_url).netloc  # the client's default has moved between versions
    assert [mode(host) for host in (own, "api.wandb.ai", "wandb.example.com")] == ["online", "online", "offline"]
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.com:8080")
    assert [mode(host) for host in (own, "api.wandb.ai", "wandb.example.com:8080")] == ["offline", "offline", "online"]
    (tmp_path / ".netrc").write_text("nonsense {")
    assert choose_mode() == "offline"


def test_the_server_is_that_of_wandb_login_and_never_that_of_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "own"))
    monkeypatch.setattr(sink_module, "_reachable", lambda *_: True)
    monkeypatch.chdir(tmp_path)
    for place, host in (("own", "https://own.example.com"), ("wandb", "http://evil.example.com")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "settings").write_text(f"[default]\nbase_url = {host}\n")
    (tmp_path / ".netrc").write_text("machine own.example.com login user password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert choose_mode() == "online"
    assert sink_module._server().geturl() == "https://own.example.com"
    (tmp_path / "own" / "settings").write_text("nonsense")
    assert choose_mode() == "offline"


@pytest.mark.slow
def test_an_offline_run_holds_the_rows_and_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    canaries = {"WANDB_API_KEY": "deadbeef" * 5, "HF_TOKEN": "hf_canarycanarycanary"}
    for name, value in canaries.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(sys, "argv", ["ludus", "train", "--token", "canaryargument"])
    sink = WandbSink(tmp_path, name="x", project="p", tags=["t"], config={"seed": 1})
    for epoch in range(3):
        sink.write({"epoch": epoch, "env_steps": 256 * epoch, "train/loss/policy": 0.5})
    video = tmp_path / "epoch=3.mp4"
    video.write_bytes(b"not really a film")
    report = tmp_path / "report.html"
    report.write_text("<p>a report</p>")
    for _ in range(2):
        for path in (video, report, tmp_path / "other.txt"):
            sink.file(path, 768)
    sink.close()
    assert sink.mode == "offline"
    assert [path.read_bytes() for path in tmp_path.rglob("media/**/*.mp4")] == [b"not really a film"]  # once each
    assert [path.read_text() for path in tmp_path.rglob("media/html/*.html")] == ["<p>a report</p>"]
    deadline = time.monotonic() + 60.0
    while not any(b"train/loss/policy" in path.read_bytes() for path in tmp_path.rglob("*.wandb")):
        assert time.monotonic() < deadline, "W&B's own process writes the rows, at the latest before it ends"
        time.sleep(0.05)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for secret in (*canaries.values(), "canaryargument"):
        assert not [path for path, data in files.items() if secret.encode() in data]
    kept = b"".join(data for path, data in files.items() if path.suffix == ".wandb")
    for private in (b"requirements.txt", b"torch=="):
        assert private not in kept, private
