"""`ludus wandb dashboard` against a GraphQL server on 127.0.0.1: one view, however often it is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("wandb_workspaces")

from fake_wandb import FakeWandb
from ludus import cli
from ludus.metrics.panels import PANELS


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeWandb]:
    with FakeWandb() as found:
        monkeypatch.setenv("WANDB_BASE_URL", found.address)
        monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        yield found


def ludus(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        cli.main(["wandb", "dashboard", *words])
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def test_one_view_however_often(server: FakeWandb, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ludus(capsys, "--project", "p")
    assert code == 0, err
    assert out.splitlines()[1] == "made" and "/alice/p" in out
    assert ludus(capsys, "--project", "p")[1].splitlines()[1].startswith("is there already")
    assert server.saved == [True] and len(server.views) == 1
    assert ludus(capsys, "--project", "p", "--overwrite")[1].splitlines()[1] == "replaced"
    assert server.saved == [True, False] and len(server.views) == 1
    assert "env_steps" in server.views[0]["spec"] and "val/roll/ep_rew/mean" in server.views[0]["spec"]


def test_an_online_run_makes_it_once_and_tells_where_it_is(server: FakeWandb) -> None:
    from ludus.metrics.sinks.wandb import _dashboard

    first, second = (_dashboard("alice", "p") for _ in range(2))
    assert first == second and first.startswith("W&B dashboard: http") and "/alice/p" in first
    assert server.saved == [True]
    server.project = False
    assert _dashboard("alice", "p").startswith("no W&B dashboard: alice/p: there is no such project")


def test_the_specification_is_the_same_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    first, second = (ludus(capsys, "--dry-run")[1] for _ in range(2))
    assert first == second and "__id__" not in first
    sections = [one["name"] for one in json.loads(first)["section"]["panelBankConfig"]["sections"]]
    assert sections == [*PANELS, "Videos"]


def test_the_latest_run_is_selected(server: FakeWandb, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ludus.archive.store import RunFolder

    assert "there is no run" in ludus(capsys, "--select-latest")[2]
    run = RunFolder.create(tmp_path / "runs", "cart", config_yaml="algorithm: ppo\n")
    assert ludus(capsys, "--select-latest")[0] == 0
    assert run.id in server.views[0]["spec"]


def test_mistakes_are_one_line(
    server: FakeWandb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.project = False
    code, _, err = ludus(capsys, "--project", "nowhere")
    assert code == 2 and "there is no such project" in err and err.count("\n") == 1
    monkeypatch.delenv("WANDB_API_KEY")
    code, _, err = ludus(capsys)
    assert code == 2 and "WANDB_API_KEY" in err and "wandb login" in err and err.count("\n") == 1


def test_every_panel_shows_metrics_that_are_logged(tmp_path: Path) -> None:
    from ludus import train
    from ludus.archive import history

    settings = ["training.total_timesteps=256", "training.evaluation={every_steps: 256, episodes: 1}"]
    run = train("CartPole-v1:ppo", settings, quiet=True, runs_dir=tmp_path)
    logged = set(history.metric_names(list(history.rows(run.folder))))
    assert {key for panels in PANELS.values() for keys in panels.values() for key in keys} <= logged
