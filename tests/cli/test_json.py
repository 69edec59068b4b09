"""`--json` on every command that prints facts: one value, nothing else on standard output."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faults.support import SMALL
from ludus import cli

EVALUATED = ["training.evaluation.every_steps=64", "training.evaluation.episodes=2"]
TRAIN = ["train", *(word for word in SMALL if "evaluation" not in word), *EVALUATED, "training.total_timesteps=64"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("json")


@pytest.fixture
def ludus(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command where one small run is."""
    monkeypatch.chdir(place)
    monkeypatch.delenv("DISPLAY", raising=False)

    def run(*words: str) -> SimpleNamespace:
        with pytest.raises(SystemExit) as stop:
            cli.main(words)
        captured = capsys.readouterr()
        return SimpleNamespace(code=stop.value.code, out=captured.out, err=captured.err)

    if not (place / "runs").exists():
        assert run(*TRAIN, "--seed", "1").code == 0
    return run


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("config show CartPole-v1:ppo seed=4", {"spec", "hash", "remarks", "origin", "config"}),
        ("verify @last", {"run", "identical", "difference", "rows", "env_steps", "weights"}),
        ("report", {"run", "html", "markdown", "address"}),
        ("play --episodes 2", {"run", "checkpoint", "seed", "video", "episodes", "mean", "std", "returns", "lengths"}),
        ("play @last --random --episodes 1", {"run", "checkpoint", "returns"}),
        ("model CartPole-v1:ppo", {"algorithm", "observation", "action", "parameters", "parts"}),
        ("model FrozenLake-v1:q_learning", {"algorithm", "parameters", "parts"}),
        ("cleanup", {"removed", "freed", "problems", "runs"}),
        ("show", {"id", "checkpoints", "alerts"}),
        ("compare", {"groups", "notes"}),
        ("evaluate -n 2", {"run", "mean", "returns"}),
        ("env info CartPole-v1", {"id", "action", "observation"}),
        ("env list CartPole", {"CartPole-v1"}),
        ("task list", {"tune_hyperparams"}),
    ],
)
def test_an_object(ludus: Any, words: str, keys: set[str]) -> None:
    result = ludus(*words.split(), "--json")
    assert result.code == 0, result.err
    assert keys <= json.loads(result.out).keys()


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("config validate CartPole-v1:ppo", {"spec", "hash", "error"}),
        ("list", {"id", "state"}),
        ("env check CartPole-v1 --backend sync", {"backend", "check", "status"}),
        ("bench env CartPole-v1 --num-envs 1 --backends sync --seconds 0.01", {"backend"}),
    ],
)
def test_a_list(ludus: Any, words: str, keys: set[str]) -> None:
    result = ludus(*words.split(), "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert found and keys <= found[0].keys()


def test_a_bad_config_is_a_fact_too(ludus: Any) -> None:
    result = ludus("config", "validate", "CartPole-v1:ppo", "CartPole-v1:pop", "--json")
    good, bad = json.loads(result.out)
    assert result.code == 2 and result.err == ""
    assert good["error"] is None and "has no variant 'pop'" in bad["error"] and bad["hash"] is None


def test_the_last_lines_of_training(ludus: Any) -> None:
    result = ludus(*TRAIN, "--seed", "1,2", "--json", "--runs-dir", "other")
    assert result.code == 0, result.err
    *before, first, second = result.out.splitlines()
    found = [json.loads(line) for line in (first, second)]
    assert [one["env_steps"] for one in found] == [64, 64] and found[0]["run"] != found[1]["run"]
    assert {"state", "mean", "seconds", "folder", "solved"} <= found[0].keys()
    (told,) = [line for line in before if line.startswith("2 seeds: last evaluation ")]
    assert told.endswith(", solved by 0 of 2")
    (command,) = [line for line in before if "ludus compare" in line]
    assert ludus(*command.split()[2:]).code == 0
    resumed = ludus("resume", "@last", "training.total_timesteps=128", "--json", "--runs-dir", "other")
    assert json.loads(resumed.out.splitlines()[-1])["env_steps"] == 128


def test_one_seed_is_not_summed_up(ludus: Any) -> None:
    assert "seeds" not in ludus(*TRAIN, "--seed", "3", "--runs-dir", "single").out


def test_play_without_a_display_says_how_to_see_something(ludus: Any) -> None:
    assert ludus("play", "--episodes", "1").out.splitlines()[-1].endswith("--video auto records it")
    assert "--video" not in ludus("play", "--episodes", "1", "--render", "none").out
