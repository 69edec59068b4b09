"""A run that learns nothing says so: on the console, in metrics.json and in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ludus import cli

QUICK = ("training.evaluation.every_steps=0", "training.checkpoints.every_steps=0", "environment.num_envs=2")


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """`ludus train` in an empty directory; (what it said, the run's folder)."""
    monkeypatch.chdir(tmp_path)

    def train(*words: str) -> tuple[str, Path]:
        with pytest.raises(SystemExit) as end:
            cli.main(["train", *words, "runtime.compile=never"])
        captured = capsys.readouterr()
        assert not end.value.code, captured.err
        return captured.out + captured.err, (tmp_path / "runs" / "@last").resolve()

    return train


def told(folder: Path) -> list[bool]:
    """Whether metrics.json, report.md and report.html say that nothing was learned."""
    alerts = json.loads((folder / "metrics.json").read_text())["alerts"]
    lines = [line for line in alerts if "nothing was learned" in line]
    assert len(lines) <= 1 and all("\n" not in line for line in lines)
    pages = [(folder / name).read_text() for name in ("report.md", "report.html")]
    return [bool(lines), *("nothing was learned" in page for page in pages)]


def test_a_budget_that_ends_before_learning_starts(trained) -> None:
    said, folder = trained("CartPole-v1:dqn", "training.total_timesteps=200", "algorithm.learning_starts=300", *QUICK)
    assert "learning starts at step 300, and the run ends at step 200" in said
    assert "nothing was learned; lower algorithm.learning_starts" in said
    assert told(folder) == [True, True, True]


def test_reinforce_whose_episodes_never_end(trained, tmp_path: Path) -> None:
    settings = {"environment": {"id": "MountainCar-v0"}, "algorithm": {"name": "reinforce", "rollout_steps": 16}}
    (tmp_path / "never.yaml").write_text(json.dumps({**settings, "training": {"total_timesteps": 128}}))
    said, folder = trained("never.yaml", *QUICK)
    assert "learning starts" not in said
    assert "environment.max_episode_steps" in said
    assert told(folder) == [True, True, True]


def test_a_buffer_that_fills_first_is_told(trained) -> None:
    words = ("training.total_timesteps=200", "algorithm.batch_size=8")
    said, _ = trained("CartPole-v1:dqn", *words, "algorithm.learning_starts=100", *QUICK)
    assert "updates wait until step 100: until then the buffer only fills" in said
    said, _ = trained("CartPole-v1:ppo", "training.total_timesteps=64", "algorithm.rollout_steps=32", *QUICK)
    assert "updates wait" not in said


@pytest.mark.parametrize(
    "words",
    [
        ("CartPole-v1:dqn", "training.total_timesteps=200", "algorithm.learning_starts=100", "algorithm.batch_size=8"),
        ("random.yaml", "training.total_timesteps=64"),
        ("CartPole-v1:dqn", "training.total_timesteps=64", "training.phases=[{name: a, hooks: [collect]}]"),
    ],
    ids=["learns", "nothing to learn", "only collects"],
)
def test_nobody_else_is_told(trained, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "random.yaml").write_text("environment: {id: CartPole-v1}\nalgorithm: {name: random}\n")
    said, folder = trained(*words, *QUICK)
    assert "learning starts" not in said and "nothing was learned" not in said
    assert told(folder) == [False, False, False]
