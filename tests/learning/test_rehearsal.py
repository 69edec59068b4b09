"""An update of tiny size tells what the real one needs; nothing is changed by asking."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch

from ludus.data.buffers.rows import blank_steps, rows_of
from ludus.data.buffers.sampling import tensors
from ludus.errors import ResourceError
from ludus.learning.rehearsal import Rehearsal
from ludus.preflight import check, memory_parts
from ludus.run import Run
from ludus.watch import ram
from support import build, config

SMALL: dict[str, Any] = {"size": "tiny", "batch_size": 3, "sequence_length": 6}
MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "dreamer": ({"name": "dreamer", "horizon": 4, **SMALL}, "CartPole-v1"),
    "dreamer v2": ({"name": "dreamer", "variant": "v2", "horizon": 4, "imagine_last": 2, **SMALL}, "CartPole-v1"),
    "dreamer v1": ({"name": "dreamer", "variant": "v1", "horizon": 4, **SMALL}, "Pendulum-v1"),
    "planet": ({"name": "planet", **SMALL}, "Pendulum-v1"),
    "tdmpc": ({"name": "tdmpc", "size": "tiny", "batch_size": 64}, "Pendulum-v1"),
}


def model(name: str, **changes: Any) -> Run:
    settings, env = MODELS[name]
    return build(config({**settings, **changes}, env, environment={"num_envs": 1}))


def updates(run: Run) -> int:
    return next(part.bytes for part in memory_parts(run) if part.name == "updates")


def real(run: Run) -> int:
    """What the update of the config's own size keeps."""
    algorithm: Any = run.algorithm
    cfg, rehearsal, device = run.config.algorithm.config, Rehearsal(algorithm.learner), torch.device("cpu")
    if run.config.algorithm.name == "tdmpc":
        blank = algorithm._batch(blank_steps(run.spaces, cfg.batch_size, cfg.horizon))
        return rehearsal.kept(algorithm.learn, blank, defaultdict(float))
    rows = tensors(rows_of(blank_steps(run.spaces, cfg.batch_size, cfg.sequence_length - 1)), device)
    if run.config.algorithm.name == "planet":
        return rehearsal.kept(algorithm.update, rows, {"lr": 0.0})
    rows["scale"] = algorithm.scale.value
    functions = [algorithm.update] if cfg.fused else [algorithm.learn_world, algorithm.learn_controller_alone]
    return max(rehearsal.kept(f, rows, defaultdict(float), **algorithm._static(cfg)) for f in functions)


@pytest.mark.parametrize("name", MODELS)
def test_a_tiny_update_tells_what_the_whole_one_keeps(name: str) -> None:
    run = model(name)
    learner = run.algorithm.learner
    weights, stream = learner.theta.clone(), learner.generator.bit_generator.state
    assert updates(run) / 1.5 == pytest.approx(real(run), rel=0.05)
    assert torch.equal(learner.theta, weights) and learner.generator.bit_generator.state == stream
    assert learner.updates == 0 and learner.metrics() == {}


@pytest.mark.parametrize(
    ("name", "field", "value", "most"),
    [("dreamer", "horizon", 40, 11), ("dreamer", "sequence_length", 60, 11), ("tdmpc", "batch_size", 640, 11)],
)
def test_it_grows_with_what_it_is_made_of(name: str, field: str, value: int, most: float) -> None:
    ratio = updates(model(name, **{field: value})) / updates(model(name))
    assert 3 < ratio < most


def test_a_run_that_is_too_large_is_told_its_size_before_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    run = model("dreamer", batch_size=4096, sequence_length=64, horizon=15)
    monkeypatch.setattr(ram, "available", lambda: 2 * 2**30)
    with pytest.raises(ResourceError, match=r"needs about .* GB, 2\.0 GB are free; updates .*batch_size") as e:
        check(run)
    assert "\n" not in e.value.line()


def test_a_network_that_is_too_large_names_the_setting_that_the_algorithm_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ram, "available", lambda: 2**20)
    with pytest.raises(ResourceError, match=r"the network needs at least .*lower algorithm\.size"):
        model("dreamer")


@pytest.mark.parametrize(("precision", "told"), [("bfloat16", 1), ("auto", 0), ("float32", 0)])
def test_a_precision_that_nothing_computes_in_is_told(precision: str, told: int) -> None:
    run = build(config("random", runtime={"precision": precision}))
    assert sum("runtime.precision" in line for line in check(run)) == told
