"""`ludus smoke` and `ludus bench env`: tables, JSON and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ludus.checks import smoke
from ludus.checks.smoke import Result
from ludus.cli import bench
from ludus.cli.smoke import smoke as command
from ludus.errors import ConfigError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the engine was asked for; it answers PASS, FAIL, MISSING in turn."""
    seen: dict[str, Any] = {}

    def run(kind: str, specs: list[str], **options: Any) -> Iterator[Result]:
        seen.update(kind=kind, specs=specs, **options)
        for spec, status in zip(specs, ["PASS", "FAIL", "MISSING"], strict=False):
            yield Result(spec, status, 1.25, "" if status == "PASS" else "because")  # type: ignore[arg-type]

    monkeypatch.setattr(smoke, "run", run)
    return seen


def test_a_table_a_summary_and_a_code(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert command("train", filter="CartPole", limit=3, timesteps=50) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["PASS", "FAIL", "MISSING", "1"]
    assert lines[1].endswith("because") and lines[-1] == "1 passed, 1 failed, 1 missing"
    assert asked["kind"] == "train" and asked["timesteps"] == 50
    assert len(asked["specs"]) == 3 and all("CartPole" in spec for spec in asked["specs"])


def test_json_and_names(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert command("env", ["CartPole-v1:ppo"], as_json=True, jobs=3) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"spec": "CartPole-v1:ppo", "status": "PASS", "seconds": 1.25, "detail": ""}
    ]
    assert asked["kind"] == "env" and asked["jobs"] == 3
    command("env", ["CartPole-v1:ppo"], video=True)
    assert asked["kind"] == "video"


def test_nothing_fits() -> None:
    with pytest.raises(ConfigError, match="no name contains it"):
        command("env", filter="Nowhere")
    with pytest.raises(ConfigError, match="give one or the other"):
        command("env", ["CartPole-v1:ppo"], filter="Cart")


def test_speed_by_backend(capsys: pytest.CaptureFixture[str]) -> None:
    bench.env(["CartPole-v1", "Acrobot-v1"], num_envs="1,2", backends="sync,native", seconds=0.01, as_json=True)
    rows = json.loads(capsys.readouterr().out)
    assert [(row["id"], row["backend"], row["num_envs"]) for row in rows] == [
        (id, backend, count)
        for id in ("CartPole-v1", "Acrobot-v1")
        for backend in ("sync", "native")
        for count in (1, 2)
    ]
    assert all(row["steps"] > 0 and row["rollout"] > 0 for row in rows[:6])
    assert all(row["steps"] is None and "no vector entry point" in row["problem"] for row in rows[6:])
    bench.env(["CartPole-v1"], num_envs="2", backends="native", seconds=0.01)
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["environment", "backend", "environments"] and row.startswith("CartPole-v1  native")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backends": "sink"}, "'sink' is no backend"),
        ({"num_envs": "8,x"}, "not a list of different whole numbers"),
    ],
)
def test_wrong_options_are_one_line(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        bench.env(["CartPole-v1"], **options)


def test_help_is_light() -> None:
    code = (
        "import sys; from ludus.cli import run\n"
        "for words in (['smoke', '--help'], ['smoke', 'env', '--help'], ['bench', 'env', '--help']):\n"
        "    assert run(words) == 0\n"
        "assert not {'torch', 'gymnasium'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
