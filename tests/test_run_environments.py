"""Phases in environments of their own: switched, switched back, and checked before the first step."""

from __future__ import annotations

import pytest

from ludus.errors import ConfigError
from support import build, close, config

HOOKS = ["collect", "update_controller"]
SMALL = {"name": "ppo", "rollout_steps": 16, "epochs": 1}


def phased(change: dict, total: int = 256):
    phases = [
        {"name": "plain", "hooks": HOOKS, "duration_steps": 64},
        {"name": "other", "hooks": HOOKS, "duration_steps": 64, "environment": change},
        {"name": "again", "hooks": HOOKS},
    ]
    return config(SMALL, training={"total_timesteps": total, "phases": phases})


def test_a_phase_collects_in_its_own_environment_and_the_next_one_goes_back() -> None:
    run = build(phased({"max_episode_steps": 5}))
    collector = run.algorithm.collector
    seen: dict[str, int | None] = {}
    collect = collector.collect

    def watch(behaviour, steps):
        seen[run.scheduler.phase.name] = collector.env.max_episode_steps
        return collect(behaviour, steps)

    collector.collect = watch
    run.run()
    assert seen == {"plain": 500, "other": 5, "again": 500}
    assert run.progress.env_steps == 256
    close(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_env": 4}, r"phases\.other\.environment\.num_env.*did you mean 'num_envs'"),
        ({"max_episode_steps": 0}, r"phases\.other\.environment\.max_episode_steps"),
        ({"num_envs": 4}, r"phases\.other\.environment\.num_envs: is fixed for the whole run"),
        ({"normalize_obs": "rolling"}, r"environment\.normalize_obs: is fixed for the whole run"),
        ({"id": "Pendulum-v1"}, "space differs"),
        ({"id": "CartPoel-v1"}, "unknown"),
    ],
)
def test_mistakes_are_found_before_the_first_step(change: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(phased(change))
