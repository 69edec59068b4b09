"""Runs of a diffusion policy: no environment to train, one to play; a killed run goes on to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from demonstrations import PENDULUM, demonstrations
from ludus.archive import checkpoint
from ludus.config.schema import ExperimentConfig
from ludus.experiment import build
from ludus.policy import load_policy
from ludus.session.loading import transfer
from test_resume import finished, kill_when_past, only_run, outcome
from test_resume import ludus as started


def sections(path: Path, updates: int = 6, **settings: Any) -> dict[str, Any]:
    denoiser = {"widths": [8, 16], "groups": 4}
    return {
        "algorithm": {"name": "diffusion_policy", "batch_size": 8, "denoiser": denoiser, **settings},
        "buffers": {"demos": {"path": str(path)}},
        "training": {"total_updates": updates, "epoch_updates": 2},
        "runtime": {"compile": "never"},
    }


@pytest.fixture
def demos(tmp_path: Path) -> Path:
    return demonstrations(tmp_path / "demos-v0", PENDULUM)[0]


def test_a_checkpoint_plays_without_the_data_set(ludus: Any, tmp_path: Path, demos: Path) -> None:
    (tmp_path / "run.yaml").write_text(json.dumps(sections(demos)))
    done = ludus("train", str(tmp_path / "run.yaml"), "-q")
    assert done.code == 0, done.err
    state = checkpoint.load(checkpoint.find((tmp_path / "runs" / "@last").resolve()))
    assert bool(state["algorithm"]["seen"]["known"])
    demos.rename(tmp_path / "elsewhere")
    policy = load_policy(tmp_path / "runs" / "@last", seed=1)
    assert policy(np.zeros((3, 3))).shape == (3, 1)
    done = ludus("evaluate", "@last", "--env", "Pendulum-v1", "-n", "2", "--json")
    assert done.code == 0, done.err
    done = ludus("play", "@last", "--env", "Pendulum-v1", "--episodes", "1", "--render", "none")
    assert done.code == 0, done.err


def test_a_warm_start_acts_as_the_policy_that_it_begins_with(demos: Path) -> None:
    """Its weights mean nothing without the ranges of observations and actions."""
    source, fresh = (build(ExperimentConfig.model_validate(sections(demos))) for _ in range(2))
    source.run()
    transfer(fresh, source.state_dict())
    seen, first = np.ones((1, 3), np.float32), np.ones(1, bool)
    acted = [
        run.algorithm.act(seen, run.algorithm.initial_state(1), first, deterministic=True).action
        for run in (source, fresh)
    ]
    assert np.array_equal(*acted)
    for run in (source, fresh):
        run.close()


def test_resumed_in_another_process_it_ends_the_same(ludus: Any, tmp_path: Path, demos: Path) -> None:
    (tmp_path / "run.yaml").write_text(json.dumps(sections(demos, updates=8)))
    assert ludus("train", str(tmp_path / "run.yaml"), "training.checkpoints.every_updates=4", "-q").code == 0
    run = (tmp_path / "runs" / "@last").resolve()
    before = checkpoint.load(checkpoint.find(run, "last"))
    assert ludus("resume", "@last/update=4").code == 0
    after = checkpoint.load(checkpoint.find(run, "last"))
    for name, tensor in before["algorithm"]["learner"]["model"].items():
        assert torch.equal(tensor, after["algorithm"]["learner"]["model"][name]), name


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"action_horizon": 16}, "action_horizon 16 is too long: of 16 actions 15 follow the newest of 2"),
        ({"sampling_steps": 200}, "sampling_steps 200 are more than diffusion_steps 100"),
        ({"denoiser": "convolution"}, "unknown denoiser 'convolution'"),
        ({"denoiser": {"widths": [8, 16], "depth": 3}}, "depth"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    ludus: Any, tmp_path: Path, settings: dict[str, Any], problem: str
) -> None:
    (tmp_path / "run.yaml").write_text(json.dumps(sections(tmp_path / "none", **settings)))
    done = ludus("train", str(tmp_path / "run.yaml"), "-q")
    assert (done.code, problem in done.err) == (2, True), done.err


@pytest.mark.integration
def test_killed_and_resumed_it_equals_an_uninterrupted_run(tmp_path: Path, demos: Path) -> None:
    """kill -9 in the middle of training, evaluations in between."""
    given = sections(demos, updates=240)
    given["environment"] = {"id": "Pendulum-v1", "max_episode_steps": 20}
    given["training"] |= {"epoch_updates": 20, "checkpoints": {"every_updates": 20}}
    given["training"]["evaluation"] = {"every_updates": 60, "episodes": 2}
    (tmp_path / "run.yaml").write_text(json.dumps(given))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    words = ["train", str(tmp_path / "run.yaml"), "-q"]
    finished(started(*words, folder=whole))
    kill_when_past(started(*words, folder=broken), broken, 60)
    finished(started("resume", "@last", folder=broken))
    assert outcome(only_run(broken)) == outcome(only_run(whole))
