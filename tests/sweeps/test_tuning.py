"""Tuning: what it searches, what it says about the gain, and what it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.config.compose import load
from ludus.errors import ConfigError
from ludus.sweeps import tuning
from ludus.sweeps.ledger import Ledger
from ludus.sweeps.store import SweepFolder
from sweeps.toy import ToyEngine, spec_of, sweep

FRESH = {"trials": 1, "seeds": (1001, 1002, 1003)}


def tuned(root: Path, objective: Any) -> tuple[Ledger, tuning.Verdict]:
    """A tuning of three candidates and the base, and its verdict."""
    spec = spec_of("algorithm.lr=1e-3,3e-3,1e-1", seeds=(1, 2), begin_as_is=True, confirmation=FRESH)
    sweep(root, spec, ToyEngine(objective))
    ledger = Ledger(SweepFolder.load(root, "toy"))
    ledger.read_all()
    found = tuning.verdict(ledger)
    assert found is not None
    return ledger, found


def lucky(values: dict[str, float]) -> float:
    """3e-3 is better by 10 on the seeds of the search, by 2 on fresh ones."""
    gain = (10 if values["seed"] < 1000 else 2) if values.get("lr") == 3e-3 else 0
    return 100 + gain + values["seed"] / 1000


def test_the_gain_on_fresh_seeds_is_what_counts(tmp_path: Path) -> None:
    _, found = tuned(tmp_path, lucky)
    assert (found.number, found.seeds) == (2, 3)
    assert (found.searched, found.fresh) == (pytest.approx(10), pytest.approx(2))
    assert found.lines()[-1] == "20% of the gain survives on fresh seeds"


def test_a_gain_that_was_luck_is_said_to_be_so(tmp_path: Path) -> None:
    _, found = tuned(tmp_path, lambda values: lucky(values) - (5 if values.get("lr") == 3e-3 else 0))
    assert not found.survives
    assert found.lines()[-1] == "nothing of the gain survives on fresh seeds: keep the settings as they are"


def test_nothing_better_is_said_to_be_so(tmp_path: Path) -> None:
    _, found = tuned(tmp_path, lambda values: 100 - values.get("lr", 0.0))
    assert found.lines()[-1] == "the search found nothing better than the settings as they are: keep them"


def test_the_winner_becomes_a_variant_with_its_provenance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ledger, found = tuned(tmp_path / "runs", lucky)
    path = tuning.write_variant(ledger, found, "CartPole-v1:ppo_tuned")
    assert path == tmp_path / "configs" / "environments" / "CartPole-v1.yaml"
    config = load("CartPole-v1:ppo_tuned").config.algorithm.config
    assert (config.lr.start, config.epochs) == (3e-3, load("CartPole-v1:ppo").config.algorithm.config.epochs)
    assert "# ludus tune CartPole-v1:ppo, sweep toy, trial 2 of 4" in path.read_text()
    assert "20% of the gain survives" in path.read_text()
    assert load("CartPole-v1:dqn").config.algorithm.name == "dqn"  # the shipped variants are still there
    with pytest.raises(ConfigError, match="exists already"):
        tuning.write_variant(ledger, found, "CartPole-v1:ppo_tuned")


@pytest.mark.parametrize("target", ["tuned", "CartPole-v1:", "CartPole-v1:a b", "Pendulum-v1:tuned", "CartPole-v1:ppo"])
def test_a_place_that_cannot_be_is_one_line(target: str) -> None:
    with pytest.raises(ConfigError, match="--write"):
        tuning.target_file(target, "CartPole-v1:ppo")


def test_a_schedule_keeps_its_shape() -> None:
    keys = {one.key for one in tuning.space("CartPole-v1:ppo", [])}
    assert {"algorithm.lr.start", "algorithm.clip.start", "algorithm.gamma"} <= keys
    assert "algorithm.lr" in {one.key for one in tuning.space("CartPole-v1:dqn", [])}
    with pytest.raises(ConfigError, match="random has nothing to tune"):
        tuning.space("CartPole-v1:random", [])


def test_a_run_that_does_not_reach_the_threshold_counts_with_its_budget() -> None:
    tuned, base = tuning.Reached(475, 5, (4_096, 6_144), 20_000), tuning.Reached(475, 5, (2_048,), 20_000)
    assert (tuned.mean, base.mean) == (14_048, 16_409.6)
    first, second = tuned.lines(base)
    assert first == "  steps to 475: 5,120 (2 of 5 runs) against 2,048 (1 of 5 runs)"
    assert second.endswith("14,048 against 16,410: sooner") and base.lines(tuned)[1].endswith("not sooner")
    assert tuning.Reached(475, 2, (), 100).words() == "never (0 of 2 runs)"


def test_a_tuning_has_three_stages_unless_it_is_short_or_cma_es() -> None:
    options = {"name": None, "sampler": "tpe", "trials": 20}
    spec = tuning.spec_of("CartPole-v1:ppo", ["algorithm.gamma=0.98"], 20_000, 2, 5, options)
    assert spec.stages is not None and (spec.stages.coarse, spec.stages.fine) == (6, 4)
    assert spec.name == "tune-CartPole-v1-ppo" and spec.seeds == (1, 2)
    for other in ({"trials": 9}, {"sampler": "cmaes"}):
        assert tuning.spec_of("CartPole-v1:ppo", [], None, 1, 2, {**options, **other}).stages is None


def test_runs_are_evaluated_often_enough() -> None:
    words = tuning.steps_of("CartPole-v1:ppo", [], 20_000)
    assert words == ["training.total_timesteps=20000", "training.evaluation.every_steps=2000"]
    assert tuning.steps_of("CartPole-v1:ppo", [], None) == []
