"""Faults 36-39: numbers out of range, budgets that do not divide, names that lead elsewhere, who overrides whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from faults.conftest import Ludus
from faults.support import SMALL, only_run, refused
from ludus.metrics.sinks.jsonl import read_rows


@pytest.mark.parametrize(
    ("override", "allowed"),
    [
        ("algorithm.gamma=1.5", "between 0 and 1"),
        ("algorithm.gamma=-0.1", "between 0 and 1"),
        ("algorithm.gae_lambda=2", "between 0 and 1"),
        ("algorithm.lr=-1", "above 0"),
        ("algorithm.lr=nan", "must be finite"),
        ("algorithm.lr=inf", "must be finite"),
        ("algorithm.lr=1e400", "must be finite"),
        ("algorithm.clip=0", "above 0"),
        ("algorithm.epochs=0", "above 0"),
        ("algorithm.rollout_steps=0", "above 0"),
        ("algorithm.batch_size=0", "above 0"),
        ("algorithm.batch_size=48", "does not divide the rollout of 4 x 16 = 64 steps"),
        ("algorithm.batch_size=63", "does not divide the rollout"),
        ("algorithm.batch_size=65", "does not divide the rollout"),
        ("algorithm.batch_size=0.015625", "one step per minibatch cannot be normalised"),
        ("algorithm.max_grad_norm=-1", "above 0"),
        ("environment.num_envs=0", "above 0"),
        ("environment.num_envs=2.5", "an integer"),
        ("environment.step_deadline=0", "above 0"),
        ("training.total_timesteps=1e18", "at most 1e+15"),
        ("training.total_timesteps=0", "above 0"),
        ("training.total_timesteps=true", "must be a number, not true"),
        ("algorithm.gamma=true", "not true"),
        ("training.evaluation.episodes=0", "above 0"),
        ("training.checkpoints.keep=0", "above 0"),
        ("training.checkpoints.every_steps=-1", "at least 0"),
        ("experiment.seed=-1", "at least 0"),
        ("experiment.seed=4294967296", "below 4.29497e+09"),
    ],
)
def test_36_numbers_out_of_range(ludus: Ludus, tmp_path: Path, override: str, allowed: str) -> None:
    refused(ludus("train", *SMALL, override), 2, override.partition("=")[0], allowed)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("total", [1, 63, 65, 1_000])
def test_37_a_budget_that_is_no_multiple_of_the_rollout(ludus: Ludus, tmp_path: Path, total: int) -> None:
    """Used up to one vector step; the last update still learns."""
    done = ludus("train", *SMALL, f"training.total_timesteps={total}", "algorithm.lr=lin_0.001")
    assert done.code == 0, done.err
    rows = list(read_rows(only_run(tmp_path) / "metrics.jsonl"))
    assert abs(float(rows[-1]["env_steps"]) - total) < 4
    assert all(float(row["train/hp/lr"]) > 0 for row in rows)


NAMES = {
    "parent": "../../etc/x",
    "absolute": "/abs",
    "home": "~",
    "slash": "a/b",
    "dot": ".",
    "hidden": ".hidden",
    "dots": "..",
    "device": "CON",
    "device with suffix": "nul.txt",
    "option": "-rf",
    "long": "x" * 300,
    "shell": "$(id)",
    "space": "a b",
    "newline": "a\nb",
    "trailing newline": "a\n",
    "NUL": "a\0b",
    "escape": "\x1b[31mred",
    "unicode": "näme",
    "fullwidth": "．．／x",
    "html": "<img src=x onerror=alert(1)>",
    "formula": "=cmd|' /C calc'!A0",
    "empty": "",
    "last": "@last",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_38_names_of_runs(ludus: Ludus, tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.json"
    data = {"environment": {"id": "CartPole-v1"}, "algorithm": "ppo", "experiment": {"name": name}}
    path.write_text(json.dumps(data))
    refused(ludus("train", str(path), "-q"), 2, "experiment.name")
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", [name for name in NAMES.values() if name not in ("@last", "a\0b")])
def test_38_references_to_runs(ludus: Ludus, stopped: Path, tmp_path: Path, name: str) -> None:
    """Nothing outside of `runs` can be named, by whatever way."""
    (tmp_path / "runs" / "linked").symlink_to("/etc")
    for command in ("resume", "play", "show"):
        process = ludus(command, "--", name)
        assert process.code in (2, 3) and "Traceback" not in process.err, f"{command}: {process.err}"
        assert process.err.count("\n") == 1 and process.err[:-1].isprintable()
    refused(ludus("resume", "linked"), 2, "linked")


def test_39_override_order_and_origins(ludus: Ludus, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("environment: {id: CartPole-v1}\nalgorithm:\n  name: ppo\n  gamma: 0.5\n  lr: 0.1\n")
    words = [str(path), "algorithm.gamma=0.7"]
    config = yaml.safe_load(ludus("config", "show", *words).out)
    assert config["algorithm"]["gamma"] == 0.7 and config["algorithm"]["lr"] == 0.1
    shown = ludus("config", "show", *words, "--origin")
    origins = dict(line.split(maxsplit=1) for line in shown.out.splitlines() if line.startswith("algorithm."))
    assert origins["algorithm.gamma"].split() == ["0.7", "algorithm.gamma=0.7"]
    assert origins["algorithm.lr"].endswith("x.yaml:5")
    assert ludus("train", *words, "training.total_timesteps=64", "environment.num_envs=4", "-q").code == 0
    saved = yaml.safe_load((only_run(tmp_path) / "config.yaml").read_text())
    assert saved["algorithm"]["gamma"] == 0.7
    refused(ludus("resume", "@last", "algorithm.gamma=0.9", "training.total_timesteps=999"), 2, "algorithm.gamma")
