"""`logging.wandb.enabled=true`: being offline is said, and a mistake is one line before a run exists."""

from __future__ import annotations

import types
from pathlib import Path

import pytest

from fake_wandb import FakeWandb
from faults.support import SMALL
from ludus import cli

wandb = pytest.importorskip("wandb")


class Client:
    """Stands in for a run of the client."""

    def __init__(self, mode: str, folder: Path) -> None:
        self.settings = types.SimpleNamespace(mode=mode)
        self.dir = str(folder / "wandb" / "offline-run-1" / "files")

        self.logged: list[dict[str, object]] = []

    def define_metric(self, *_: object, **__: object) -> None: ...
    def log(self, row: dict[str, object]) -> None:
        self.logged.append(row)

    def finish(self) -> None: ...


@pytest.fixture(autouse=True)
def nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(wandb, "init", lambda **given: Client(given["mode"], Path(given["dir"])))


def train(*words: str) -> object:
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", *SMALL, "training.total_timesteps=64", "logging.wandb.enabled=true", *words])
    return stop.value.code


@pytest.mark.parametrize("console", ["true", "false"])
@pytest.mark.parametrize("logs", ["", "1"])
def test_offline_is_always_said(
    console: str, logs: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LUDUS_DISABLE_SESSION_LOGS", logs)
    assert train(f"logging.console={console}") == 0
    said = capsys.readouterr()
    assert "W&B is offline: there is no key for" in said.out + said.err
    assert "`wandb sync " in said.out + said.err
    log = Path("runs/@last/run.log")
    assert log.read_text().count("W&B is offline") == 1


def test_online_says_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    assert train() == 0
    said = capsys.readouterr()
    assert "offline" not in said.out + said.err


def test_an_online_run_tells_its_dashboard_and_sends_its_report_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("wandb_workspaces")
    client = Client("online", tmp_path)
    client.entity = "alice"  # type: ignore[attr-defined]
    monkeypatch.setattr(wandb, "init", lambda **_: client)
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    with FakeWandb() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.address)
        assert train() == 0
        assert server.saved == [True]
    said = capsys.readouterr()
    assert "W&B dashboard: http" in said.out + said.err and "/alice/ludus" in said.out + said.err
    (report,) = [row["report"] for row in client.logged if "report" in row]
    assert isinstance(report, wandb.Html)


def test_online_without_a_key_is_one_line_before_there_is_a_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setattr(wandb, "init", lambda **_: pytest.fail("the client was asked"))
    assert train() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: WANDB_MODE=online: there is no key for ") and "wandb login" in line
    assert not Path("runs").exists()


def test_a_mode_that_does_not_exist_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "onlin")
    assert train() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: WANDB_MODE=onlin: ") and not Path("runs").exists()


def test_what_the_client_refuses_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise wandb.Error("the key is\nnot valid")

    monkeypatch.setattr(wandb, "init", refuse)
    assert train() == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: logging.wandb: the key is not valid; ")
