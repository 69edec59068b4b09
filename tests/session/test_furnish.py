"""What a run in a folder is given besides its loop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ludus.archive.store import RunFolder
from ludus.config.compose import load
from ludus.envs.make import make_vector
from ludus.session.furnish import header, make_sinks, under_way
from support import build, close, config


@pytest.mark.parametrize(("step_key", "steps"), [(None, [64, 128]), ("updates", [5, 10]), ("epoch", [1, 2])])
def test_curves_are_drawn_over_the_step_key(tmp_path: Path, step_key: str | None, steps: list[int]) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sinks = make_sinks(config(logging={"tensorboard": True}), RunFolder(tmp_path), step_key)
    for epoch in (1, 2):
        row = {"epoch": epoch, "env_steps": 64 * epoch, "updates": 5 * epoch, "phase": "train", "seconds": 0.1}
        for sink in sinks:
            sink.write({**row, "train/x": 1.0})
    for sink in sinks:
        sink.close()
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("train/x")] == steps


@pytest.mark.parametrize(
    ("spec", "overrides", "updates", "algorithm"),
    [
        ("CartPole-v1:dreamer", [], "0.5 per environment step, eager", r"dreamer, [\d,]+ parameters"),
        ("CartPole-v1:dreamer", ["algorithm.train_ratio=64"], "0.125 per environment step, eager", r"dreamer, .*"),
        (
            "CartPole-v1:dreamer_v2",
            [],
            "0.5 update_world_model and 0.5 update_controller per environment step, eager",
            r"dreamer, .*",
        ),
        ("+experiment=dreamer_cartpole", [], "0.25 per environment step in phase joint, eager", r"dreamer, .*"),
        ("Pendulum-v1:planet", [], "1 per environment step, eager", r"planet, [\d,]+ parameters"),
        ("Pendulum-v1:sac", [], "1 per environment step, eager", r"sac, .*, memory none"),
        ("CartPole-v1:ppo", [], "eager", r"ppo, .*, memory none"),
    ],
)
def test_the_header_tells_how_often_it_learns(
    tmp_path: Path, spec: str, overrides: list[str], updates: str, algorithm: str
) -> None:
    run = build(load(spec, [*overrides, "runtime.compile=never"]).config)
    told = header(run, RunFolder(tmp_path), spec, "1 MB")
    close(run)
    assert told["updates"].startswith(updates) and re.fullmatch(algorithm, told["algorithm"])


def test_what_is_under_way_is_known_between_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The position counts every step of a rollout; an evaluation says how far it is."""
    run = build(config(training={"total_timesteps": 512, "evaluation": {"every_epochs": 1, "episodes": 3}}))
    assert run.collector is not None and run.evaluator is not None
    seen: list[tuple[int, str]] = []
    for env in (run.collector.env, make_vector(run.config.environment, num_envs=3)):
        step = env.step
        monkeypatch.setattr(env, "step", lambda action, step=step: (seen.append(under_way(run)), step(action))[1])
    run.evaluator._env = env
    run.run()
    close(run)
    positions = [position for position, told in seen if not told]
    assert positions[:4] == [0, 4, 8, 12] and positions[-1] == 508
    evaluated = [told for position, told in seen if told and position == 512]
    assert evaluated[0] == "evaluation" and evaluated[-1] == "evaluation, 2 of 3 episodes"
    assert under_way(run) == (512, "")
