"""Numbers that are not finite: the run ends, or earlier weights come back and it is counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ludus.errors import ConfigError
from ludus.orchestration.callbacks import Callback
from ludus.session.loading import transfer
from ludus.types import Report
from support import build, close, config, moment

SMALL = {"name": "ppo", "rollout_steps": 16, "epochs": 1}


def poisoned(choice: str):
    run = build(config(SMALL, training={"total_timesteps": 640, "on_nan": choice}))
    update, calls = run.algorithm.update_controller, [0]

    def hook(now):
        calls[0] += 1
        report = update(now)
        if calls[0] == 3:
            run.algorithm.learner.theta.fill_(math.nan)
            return Report(report.env_steps, report.updates, {**report.metrics, "loss/policy": math.nan})
        return report

    run.hooks["update_controller"] = hook
    return run


def test_raise_names_metric_and_step() -> None:
    run = poisoned("raise")
    with pytest.raises(ConfigError, match=r"step 192: loss/policy is nan"):
        run.run()
    close(run)


@pytest.mark.parametrize("choice", ["skip", "rollback"])
def test_earlier_weights_come_back(choice: str) -> None:
    run = poisoned(choice)
    run.run()
    assert run.progress.env_steps == 640
    assert run.nan_guard.count == 1
    assert torch.isfinite(run.algorithm.learner.theta).all()
    close(run)


def test_skip_undoes_exactly_one_update() -> None:
    run = build(config(SMALL, training={"on_nan": "skip"}))
    algorithm, guard = run.algorithm, run.nan_guard
    now = moment(run.config.algorithm.config)
    algorithm.collect(now)
    guard.check("update_controller", algorithm.update_controller(now), 0)
    good = algorithm.learner.theta.clone()
    algorithm.collect(now)
    report = algorithm.update_controller(now)
    assert not torch.equal(algorithm.learner.theta, good)
    kept = guard.check("update_controller", Report(0, report.updates, {"loss": math.inf, "kl": 1.0}), 0)
    assert torch.equal(algorithm.learner.theta, good)
    assert kept.metrics == {"kl": 1.0, "alerts/nan": 1.0}
    close(run)


def test_a_run_that_is_only_nan_ends() -> None:
    run = build(config(SMALL, training={"on_nan": "skip"}))
    with pytest.raises(ConfigError, match="diverged"):
        for _ in range(100):
            run.nan_guard.check("update_controller", Report(0, 1, {"loss": math.nan}), 0)
    close(run)


def test_a_sound_update_forgives_the_bad_ones_before_it() -> None:
    """Ten in a row end a run, not ten in all."""
    run = build(config(SMALL, training={"on_nan": "skip"}))
    bad, good = Report(0, 1, {"loss": math.nan}), Report(0, 1, {"loss": 1.0})
    for report in (*[bad] * 6, good, *[bad] * 6, good, *[bad] * 10):
        run.nan_guard.check("update_controller", report, 0)
    assert run.nan_guard.count == 22
    with pytest.raises(ConfigError, match="diverged"):
        run.nan_guard.check("update_controller", bad, 0)
    close(run)


OFF_POLICY = {
    "sac": "Pendulum-v1",
    "td3": "Pendulum-v1",
    "dqn": "CartPole-v1",
}


@pytest.mark.parametrize("choice", ["skip", "rollback"])
@pytest.mark.parametrize("name", OFF_POLICY)
def test_one_bad_update_of_many_is_undone(name: str, choice: str) -> None:
    settings = {"name": name, "learning_starts": 32, "batch_size": 8}
    buffers = {"replay": {"type": "prioritized", "size": 1_000}}
    training = {"total_timesteps": 200, "on_nan": choice}
    run = build(config(settings, OFF_POLICY[name], training=training, buffers=buffers))
    learner, update, calls = run.algorithm.learner, run.algorithm.learner.update, []

    def poisoned(function, batch, *arguments, **static):
        calls.append(learner.theta.clone())
        reward = batch["reward"] * (math.nan if len(calls) == 20 else 1.0)
        return update(function, {**batch, "reward": reward}, *arguments, **static)

    learner.update = poisoned
    run.run()
    close(run)
    assert run.progress.env_steps == 200 and len(calls) > 40
    assert run.nan_guard.count == 1
    assert torch.isfinite(learner.theta).all()
    if choice == "skip":
        assert torch.equal(calls[20], calls[19]), "that update was undone, and no other"
    assert np.isfinite(run.buffers["replay"].tree.leaves).all()


def test_sound_rollouts_do_not_hide_a_run_of_bad_updates() -> None:
    run = build(config(SMALL, training={"on_nan": "skip"}))
    with pytest.raises(ConfigError, match="diverged"):
        for _ in range(30):
            run.nan_guard.check("collect", Report(64, 0, {"roll/ep_rew/mean": 1.0}), 0)
            run.nan_guard.check("update_controller", Report(0, 1, {"loss": math.nan}), 0)
    close(run)


@pytest.mark.parametrize("choice", ["skip", "rollback"])
@pytest.mark.parametrize("way", ["resume", "warm start"])
def test_weights_that_were_loaded_come_back(choice: str, way: str) -> None:
    """The very first update after a resume or a warm start is bad: what comes back is not the random beginning."""
    trained = build(config(SMALL, training={"total_timesteps": 640}))
    trained.run()
    close(trained)
    run = build(config(SMALL, training={"total_timesteps": 1_280, "on_nan": choice}))
    if way == "resume":
        run.load_state_dict(trained.state_dict())
    else:
        transfer(run, trained.state_dict())
    loaded, update = run.algorithm.learner.theta.clone(), run.algorithm.update_controller

    def hook(now):
        report = update(now)
        return Report(report.env_steps, report.updates, {**report.metrics, "loss/policy": math.nan})

    run.hooks["update_controller"] = hook
    run.callbacks.append(StopAfterOne())
    run.run()
    close(run)
    assert run.nan_guard.count == 1
    assert torch.equal(run.algorithm.learner.theta, loaded)


class StopAfterOne(Callback):
    def on_epoch_end(self, run) -> None:
        run.stop("enough")


def test_a_resumed_run_goes_on_counting() -> None:
    """Ten in a row are ten in a row though the run was killed in between; the metric counts all of them."""
    run = build(config(SMALL, training={"on_nan": "skip"}))
    bad = Report(0, 1, {"loss": math.nan})
    for _ in range(6):
        run.nan_guard.check("update_controller", bad, 0)
    again = build(config(SMALL, training={"on_nan": "skip"}))
    again.load_state_dict(run.state_dict())
    assert again.nan_guard.check("update_controller", bad, 0).metrics == {"alerts/nan": 7.0}
    with pytest.raises(ConfigError, match="diverged"):
        for _ in range(4):
            again.nan_guard.check("update_controller", bad, 0)
    close(run)
    close(again)


def test_a_bad_step_among_sound_ones_is_named_by_no_sound_number() -> None:
    """Metrics are means of the sound steps; the one that ended the run was none of them."""
    run = build(config(SMALL, training={"on_nan": "skip"}))
    with pytest.raises(ConfigError, match="loss/policy is nan"):
        for _ in range(11):
            run.algorithm.learner._bad = "loss/policy"
            run.nan_guard.check("update_controller", Report(0, 1, {"loss/policy": 0.25}), 0)
    close(run)
