"""The first policy is looked at before its first update, and a wild learning rate raises the right alerts."""

from __future__ import annotations

from typing import Any

import torch

from ludus.orchestration.callbacks.watching import FirstPolicy
from ludus.run import Run
from ludus.watch.monitor import Monitor
from ludus.watch.rules import SHIPPED, Rules
from support import build, close, config


def _watched(lr: float = 3e-4, bias: float = 0.0, name: str = "ppo", **training: Any) -> tuple[Run, Monitor]:
    monitor = Monitor(Rules.load(SHIPPED))
    algorithm = {"name": name, "lr": lr, **({"rollout_steps": 32} if name == "ppo" else {"learning_starts": 16})}
    training = {"total_timesteps": 512, "evaluation": {"every_epochs": None}, **training}
    run = build(config(algorithm, training=training), sinks=[monitor], callbacks=[FirstPolicy(monitor)])
    if bias:
        run.algorithm.policy.actor[-1].bias.data[0] = bias
    return run, monitor


def _alerts(monitor: Monitor) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for alert in monitor.alerts:
        found.setdefault(alert.key, []).append(f"{alert.problem}; {alert.tip}")
    return found


def test_a_wild_learning_rate_raises_alerts_that_say_so() -> None:
    run, monitor = _watched(lr=1.0)
    run.run()
    close(run)
    found = _alerts(monitor)
    assert "lower the learning rate" in found["train/policy/kl"][0]
    assert "lower the learning rate" in found["train/policy/clip_fraction"][0]
    assert not any("first policy" in text for texts in found.values() for text in texts)


def test_a_first_policy_that_prefers_an_action_is_named_before_any_update() -> None:
    run, monitor = _watched(bias=5.0, total_timesteps=128)
    told = []
    monitor.listeners.append(lambda event: told.append((run.progress.updates, event.text)))
    run.run()
    close(run)
    (updates, text), *_ = told
    assert updates == 0
    assert "the first policy is far from uniform: entropy 0.0" in text
    assert "small gain for the last layer of the actor" in text


def test_a_resumed_run_still_knows_what_its_first_policy_was_like() -> None:
    run, monitor = _watched(bias=5.0, total_timesteps=128)
    run.run()
    close(run)
    state = next(callback for callback in run.callbacks if isinstance(callback, FirstPolicy)).state_dict()
    later = Monitor(Rules.load(SHIPPED))
    FirstPolicy(later).load_state_dict(state)
    assert [alert.problem for alert in later.alerts] == [monitor.alerts[0].problem]


def test_looking_changes_no_weight_and_off_policy_algorithms_are_not_looked_at() -> None:
    run, _ = _watched(total_timesteps=256)
    plain = build(run.config)
    for each in (run, plain):
        each.run()
        close(each)
    assert torch.equal(run.algorithm.learner.theta, plain.algorithm.learner.theta)
    run, monitor = _watched(name="dqn", total_timesteps=64)
    run.algorithm.act = None  # would fail if it was asked
    run.run()
    close(run)
    assert monitor.alerts == []
