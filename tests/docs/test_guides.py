"""The extension guides as tutorials: what they build does what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.watch.rules import Rules

GUIDES = Path(__file__).parents[2] / "docs" / "extending"


@pytest.fixture
def follow(ludus: Callable[..., Any], blocks: Any, tmp_path: Path) -> Callable[[str], Callable[..., dict[str, Any]]]:
    """Writes the files of a guide; the result trains in full and returns the final numbers."""

    def start(guide: str) -> Callable[..., dict[str, Any]]:
        for block in blocks(GUIDES / guide):
            if block.title:
                (tmp_path / block.title).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / block.title).write_text(block.text)

        def train(line: str) -> dict[str, Any]:
            outcome = ludus(line, as_written=True)
            assert outcome.code == 0, outcome.err
            numbers: dict[str, Any] = json.loads((tmp_path / "runs" / "@last" / "metrics.json").read_text())
            return numbers

        return train

    return start


def rows(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "runs" / "@last" / "metrics.jsonl").read_text().splitlines()]


def test_the_new_algorithm_is_small_and_learns(follow: Any, tmp_path: Path) -> None:
    train = follow("algorithm.md")
    lines = [line for line in (tmp_path / "cem.py").read_text().splitlines() if line.strip()]
    assert len(lines) < 60
    numbers = train("ludus train cem.yaml --plugin cem.py -q")
    assert numbers["solved"]
    assert any({"train/search/score", "train/hp/noise"} <= row.keys() for row in rows(tmp_path))
    saved = tmp_path / "runs" / "@last" / "checkpoints" / "last" / "state.json"
    assert set(json.loads(saved.read_text())["algorithm"]) == {"search"}


def test_its_hook_is_a_word_of_a_phase(follow: Any, tmp_path: Path) -> None:
    follow("algorithm.md")("ludus train cem_phased.yaml --plugin cem.py -q")
    collected = [row["train/hp/noise"] for row in rows(tmp_path)]
    assert collected[0] == 0.2
    assert collected[-1] == 0.02
    assert rows(tmp_path)[-1]["phase"] == "narrow"


def test_the_new_wrapper_changes_time_but_not_the_raw_return(follow: Any, tmp_path: Path) -> None:
    train = follow("wrapper.md")
    line = "ludus train CartPole-v1:random --plugin repeat_action.py --max-timesteps 2048 -q"
    for backend in ("sync", "async"):
        train(f"{line} 'environment.wrappers=[{{id: repeat_action, times: 4}}]' environment.vectorization={backend}")
        last = rows(tmp_path)[-1]
        steps, reward = last["train/roll/ep_len/mean"], last["train/roll/ep_rew/mean"]
        assert 3 * steps < reward <= 4 * steps  # CartPole pays 1 for each of its own steps


def test_a_vectorized_wrapper_equals_the_single_one(follow: Any, tmp_path: Path) -> None:
    train = follow("wrapper.md")
    wrappers = "'environment.wrappers=[{id: enlarge_observation, scale: 2.0}]'"
    line = f"ludus train CartPole-v1:ppo --plugin enlarge_observation.py {wrappers} --max-timesteps 1024 -q"
    curves = []
    for backend in ("native", "sync"):
        train(f"{line} environment.vectorization={backend}")
        curves.append([row["train/loss/total"] for row in rows(tmp_path)])
    assert curves[0] == curves[1]


def test_the_new_environment_is_solved(follow: Any) -> None:
    assert follow("environment.md")("ludus train Corridor-v0:ppo --plugin corridor.py -q")["solved"]


def test_the_new_core_and_encoder_are_in_the_policy(follow: Any, tmp_path: Path) -> None:
    train = follow("network.md")
    train("ludus train CartPole-v1:ppo --plugin fourier.py --plugin leaky.py network.encoder=fourier "
          "network.memory=leaky --max-timesteps 512 -q")  # fmt: skip
    assert rows(tmp_path)[-1]["train/opt/grads/norm/trunk"] > 0


def test_a_phase_of_the_curriculum_has_its_own_time_limit(follow: Any, tmp_path: Path) -> None:
    follow("curriculum.md")("ludus train +experiment=longer_and_longer --max-timesteps 12_288 -q")
    short = [row for row in rows(tmp_path) if row["env_steps"] <= 9_984]
    assert max(row["train/roll/ep_rew/best"] for row in short) <= 100
    assert any("val/roll/ep_rew/mean" in row for row in rows(tmp_path))


def test_the_callback_stops_the_run_and_records(follow: Any, tmp_path: Path) -> None:
    line = "ludus train CartPole-v1:random --plugin patience.py 'training.callbacks=[{type: patience, evaluations: 2}]'"
    numbers = follow("metrics.md")(f"{line} training.evaluation.every_epochs=1 training.evaluation.episodes=5 -q")
    assert numbers["reason"] == "no better evaluation in 2"
    assert rows(tmp_path)[0]["train/stop/patience_left"] == 2.0


def test_the_rules_of_the_page_are_applied(follow: Any, tmp_path: Path) -> None:
    follow("metrics.md")
    rules = Rules.load()
    assert rules["train/explained_variance"].precision == 2
    assert rules["train/explained_variance"].better == "up"  # the package's own rule still holds
    assert rules["train/roll/ep_len/mean"].min == 10
