"""--debug names the first tensor that is not finite, dumps what led there, and changes no weight."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from demonstrations import CART, PENDULUM, demonstrations
from ludus.algorithms import PhaseContext
from ludus.errors import ConfigError
from ludus.learning.learner import Learner
from ludus.metrics.sinks import Row, Sink
from ludus.orchestration.callbacks.debug import Debug, NotFinite, dump_divergence
from ludus.registry import ALGORITHMS
from ludus.run import Run
from ludus.types import Report
from ludus.watch.finite import bad_part
from ludus.watch.tensors import weight_statistics
from support import build, close, config

NAN = float("nan")


def _build(memory: str = "none", **training: Any) -> Run:
    network = {"encoder": {"type": "mlp", "hidden_dims": [8]}, "memory": {"type": memory}}
    training = {"total_timesteps": 256, **training}
    algorithm = {"name": "ppo", "rollout_steps": 32, "epochs": 2, "batch_size": 0.5}
    return build(config(algorithm, network=network, training=training))


def _run(folder: Path, memory: str = "none", prepare: Callable[[Run], None] = lambda _: None) -> Run:
    run, debug = _build(memory), Debug(folder)
    run.callbacks.append(debug)
    prepare(run)
    try:
        run.run()
    finally:
        close(run)
        debug.close()
    return run


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_weights_are_those_of_a_run_without_it(tmp_path: Path, memory: str) -> None:
    plain = _build(memory)
    plain.run()
    close(plain)
    watched = _run(tmp_path, memory)
    assert torch.equal(plain.algorithm.learner.theta, watched.algorithm.learner.theta)
    assert watched.algorithm.learner.observer is None  # the hooks are gone
    assert not any(module._forward_hooks for module in watched.algorithm.policy.modules())


BOXES = ("sac", "td3", "planet", "tdmpc", "diffusion_policy")
ENVIRONMENTS = {**dict.fromkeys(BOXES, "Pendulum-v1"), "q_learning": "FrozenLake-v1"}
SMALL = {"rollout_steps": 4, "batch_size": 8, "learning_starts": 16, "epochs": 1, "sequence_length": 4, "size": "tiny"}
SMALL |= {"candidates": 4, "policy_candidates": 1, "elites": 2, "rounds": 1, "train_ratio": 16}
SMALL |= {"denoiser": {"widths": (8,)}}
SMALL |= {"vision": {"depth": 2}, "memory": {"units": 4}, "controller": {"population": 4}}
PICTURES = {"world_models": [{"id": "draw_cart_pole", "size": 12}]}
SHIPPED = [name for name in ALGORITHMS.names() if ALGORITHMS[name].__module__.startswith("ludus.")]


def _short(name: str, demos: Path | None = None) -> Run:
    options = {key: value for key, value in SMALL.items() if key in ALGORITHMS[name].Config.model_fields}
    heads = {head: {"hidden_dims": [8]} for head in ("actor", "critic")}
    training = {"total_timesteps": 48, "evaluation": {"every_epochs": None}}
    env, more = ENVIRONMENTS.get(name, "CartPole-v1"), {"environment": {"wrappers": PICTURES.get(name, [])}}
    if demos is not None:
        more["buffers"], training["total_updates"] = {"demos": {"path": str(demos)}}, 4
    return build(config({"name": name, **options}, env, network=heads, training=training, **more))


@pytest.mark.parametrize("name", SHIPPED)
def test_every_algorithm_can_be_watched_and_learns_the_same(tmp_path: Path, name: str) -> None:
    found = []
    rows: list[dict[str, Any]] = []
    demos = None
    if "demos" in ALGORITHMS[name].buffers:
        demos, _ = demonstrations(tmp_path / "demos-v0", PENDULUM if name == "diffusion_policy" else CART)
    for debug in (None, Debug(tmp_path)):
        run = _short(name, demos)
        run.callbacks += [debug] if debug else []
        run.recorder.sinks += [_Rows(rows)] if debug else []
        run.run()
        close(run)
        found.append([part.theta for part in run.algorithm.state().values() if isinstance(part, Learner)])
    for plain, watched in zip(*found, strict=True):
        assert torch.equal(plain, watched)
    lines = (tmp_path / "debug" / "weights.jsonl").read_text().splitlines() if found[0] else []
    assert bool(lines) == bool(found[0])
    assert all("grad_norm" in layer for name, layer in _layers(lines).items() if not name.startswith("target_"))
    if found[0]:
        check_dead_units(next(row for row in rows if "train/activations/dead_max" in row))


def check_dead_units(row: dict[str, Any]) -> None:
    """Every layer is in the row; networks that only follow do not count."""
    start, end = "train/activations/", "/dead_pct"
    layers = {key.removeprefix(start).removesuffix(end): row[key] for key in row if key.endswith(end)}
    assert row["train/activations/dead_max"] == max(
        dead for layer, dead in layers.items() if not layer.startswith("target_")
    )
    assert {f"{start}{layer}/{fact}" for layer in layers for fact in ("mean", "std")} <= set(row)


def test_the_trace_ends_after_some_updates_also_within_an_epoch(tmp_path: Path) -> None:
    """An epoch of an off-policy algorithm is a thousand updates, and their trace takes minutes to write."""
    run, debug = _short("dqn"), Debug(tmp_path)
    run.callbacks.append(debug)
    trace, update, without = tmp_path / "debug" / "trace.json", run.hooks["update_controller"], []

    def hook(now: PhaseContext) -> Report:
        report = update(now)
        without.append(not trace.exists())
        return report

    run.hooks["update_controller"] = hook
    run.run()
    close(run)
    assert 0 < sum(without) < len(without)


def _layers(lines: list[str]) -> dict[str, Any]:
    return json.loads(lines[-1])["layers"] if lines else {}


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_a_bad_gradient_of_a_critic_is_named(tmp_path: Path, name: str) -> None:
    run, debug = _short(name), Debug(tmp_path)
    run.callbacks.append(debug)
    run.algorithm.learner.model["critic"].layers[0].bias.register_hook(lambda grad: grad * NAN)
    try:
        with pytest.raises(NotFinite, match=r"gradient of critic\.layers\.0\.bias is not finite"):
            run.run()
    finally:
        close(run)
        debug.close()


def test_what_debug_leaves(tmp_path: Path) -> None:
    _run(tmp_path)
    folder = tmp_path / "debug"
    trace = json.loads((folder / "trace.json").read_text())
    names = {event.get("name", "") for event in trace["traceEvents"]}
    assert any(name.startswith("aten::") for name in names)
    assert "aten::" in (folder / "profile.txt").read_text()
    weights = [json.loads(line) for line in (folder / "weights.jsonl").read_text().splitlines()]
    layer = weights[-1]["layers"]["policy.actor.0.weight"]
    assert weights[-1]["env_steps"] == 256
    assert {"mean", "std", "min", "max", "norm", "grad_norm", "grad_max", "histogram"} == set(layer)
    assert sum(layer["histogram"]) == 2 * 8
    activations = [json.loads(line) for line in (folder / "activations.jsonl").read_text().splitlines()]
    assert all({"mean", "std", "dead_pct"} == set(layer) for layer in activations[-1]["layers"].values())
    assert activations[-1]["layers"]


def test_updates_are_never_compiled_under_it(tmp_path: Path) -> None:
    class Refuses:
        def get(self, *_: Any, **__: Any) -> None:
            raise AssertionError("hooks cannot look into compiled code")

    compiler = Refuses()
    run = _run(tmp_path, prepare=lambda run: setattr(run.algorithm.learner, "compiler", compiler))
    assert run.algorithm.learner.compiler is compiler


def test_dead_units_are_counted(tmp_path: Path) -> None:
    def kill(run: Run) -> None:
        modules = run.algorithm.policy.trunk.encoder.modules()
        first = next(module for module in modules if isinstance(module, torch.nn.Linear))
        first.weight.data[:4] = 0.0  # half of the units no longer depend on anything
        first.bias.data[:4] = 100.0  # nor come back: tanh is flat there

    rows: list[dict[str, Any]] = []
    _run(tmp_path, prepare=lambda run: (kill(run), run.recorder.sinks.append(_Rows(rows)))[0])
    last = json.loads((tmp_path / "debug" / "activations.jsonl").read_text().splitlines()[-1])
    tanh = [layer for name, layer in last["layers"].items() if name.startswith("policy.trunk.encoder")][-1]
    assert tanh["dead_pct"] == 50.0
    dead = {key: value for key, value in rows[0].items() if key.endswith("/dead_pct")}
    assert rows[0]["train/activations/dead_max"] == max(dead.values()) == 50.0
    assert rows[0]["epoch"] == 1


class _Rows(Sink):
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def write(self, row: Row) -> None:
        self.rows.append(dict(row))


def _bad_weight(run: Run) -> None:
    run.algorithm.policy.actor[0].weight.data[0, 0] = NAN


def _bad_activation(run: Run) -> None:
    layer = run.algorithm.policy.critic[0]
    original = layer.forward
    layer.forward = lambda x: original(x) * (NAN if torch.is_grad_enabled() else 1.0)


def _bad_loss(run: Run) -> None:
    original = run.algorithm.loss

    def loss(*arguments: Any, **static: Any) -> Any:
        total, metrics = original(*arguments, **static)
        return total, {**metrics, "loss/value": metrics["loss/value"] * float("inf")}

    run.algorithm.loss = loss


def _bad_total(run: Run) -> None:
    original = run.algorithm.loss
    run.algorithm.loss = lambda *arguments, **static: (NAN * original(*arguments, **static)[0], {})


def _bad_batch(run: Run) -> None:
    original = run.hooks["collect"]

    def collect(now: PhaseContext) -> Report:
        report = original(now)
        run.algorithm.experience.columns["advantage"][3, 1] = NAN
        return report

    run.hooks["collect"] = collect


def _bad_gradient(run: Run) -> None:
    run.algorithm.policy.critic[0].bias.register_hook(lambda grad: grad * NAN)


def _bad_step(run: Run) -> None:
    cfg = run.phase_configs[0]
    never = cfg.lr.model_copy(update={"start": NAN, "end": NAN})  # no config can say this
    run.phase_configs[0] = cfg.model_copy(update={"lr": never})


@pytest.mark.parametrize(
    ("inject", "words"),
    [
        (_bad_weight, "output of layer policy.actor.0 (Linear) is not finite: nan in 132 of 264 values"),
        (_bad_activation, "output of layer policy.critic.0 (Linear) is not finite: nan in 64 of 64 values"),
        (_bad_loss, "loss loss/value is not finite: infinite in 1 of 1 values"),
        (_bad_total, "loss of policy is not finite: nan in 1 of 1 values"),
        (_bad_batch, "batch advantage is not finite: nan in 1 of 64 values"),
        (_bad_gradient, "gradient of policy.critic.0.bias is not finite: nan in 1 of 1 values"),
        (_bad_step, "weight policy.trunk.encoder"),
    ],
)
def test_the_first_bad_tensor_is_named_and_dumped(tmp_path: Path, inject: Callable[[Run], None], words: str) -> None:
    with pytest.raises(NotFinite) as caught:
        _run(tmp_path, prepare=inject)
    line = caught.value.line()
    assert words in line
    assert "\n" not in line
    assert str(tmp_path / "nan_dump") in line
    step = json.loads((tmp_path / "nan_dump" / "step.json").read_text())
    assert step["learner"] == "learner"
    assert step["env_steps"] in (0, 128)
    assert step["phase"] == "train"
    weights = load_file(tmp_path / "nan_dump" / "weights.safetensors")
    assert "policy.actor.0.weight" in weights


def test_the_dump_holds_the_batch_and_the_weights_before_the_bad_update(tmp_path: Path) -> None:
    with pytest.raises(NotFinite):
        _run(tmp_path, prepare=_bad_gradient)
    batch = load_file(tmp_path / "nan_dump" / "batch.safetensors")
    assert {"obs", "action", "advantage", "target", "log_prob"} <= set(batch)
    assert batch["obs"].shape == (1, 64, 4)
    weights = load_file(tmp_path / "nan_dump" / "weights.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())  # stopped before the optimizer
    fresh = _build()
    close(fresh)
    assert torch.equal(weights["policy.actor.0.weight"], fresh.algorithm.policy.actor[0].weight)
    step = json.loads((tmp_path / "nan_dump" / "step.json").read_text())
    assert (step["updates"], step["scalars"]["lr"]) == (0, 3e-4)


def test_a_run_without_debug_that_diverged_can_still_be_dumped(tmp_path: Path) -> None:
    run = _build()
    _bad_step(run)
    with pytest.raises(ConfigError, match="diverged"):
        run.run()
    close(run)
    assert "weight policy.trunk.encoder" in (bad_part(run.algorithm.learner) or "")
    place = dump_divergence(tmp_path, run, "loss is nan")
    assert place == tmp_path / "nan_dump"
    step = json.loads((tmp_path / "nan_dump" / "step.json").read_text())
    assert step["tensor"].startswith("weight policy.trunk.encoder")
    assert step["problem"] == "loss is nan"


_FAILING = """
import sys
from pathlib import Path
from ludus.metrics.sinks import Row, Sink
from ludus.orchestration.callbacks.debug import Debug, NotFinite
from support import build, config

run = build(config({"name": "ppo", "rollout_steps": 32}))
run.callbacks.append(Debug(Path(sys.argv[1])))
run.algorithm.policy.critic[0].bias.register_hook(lambda grad: grad * float("nan"))
try:
    run.run()
except NotFinite:
    sys.exit(2)
"""


def test_a_failed_run_leaves_its_trace_and_the_exit_code_it_should(tmp_path: Path) -> None:
    """A profiler that still runs when the interpreter ends makes torch crash (139 instead of 2)."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", _FAILING, str(tmp_path)], env=environment, capture_output=True)
    assert done.returncode == 2, done.stderr.decode()
    assert (tmp_path / "debug" / "trace.json").exists()


def test_weight_statistics_are_right() -> None:
    layer = torch.nn.Linear(4, 1, bias=False)
    layer.weight.data = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    layer.weight.grad = torch.tensor([[0.0, 0.0, 3.0, 4.0]])
    found = weight_statistics(layer)["weight"]
    assert (found["mean"], found["min"], found["max"]) == (2.5, 1.0, 4.0)
    assert found["std"] == pytest.approx(1.118, abs=1e-3)
    assert (found["grad_norm"], found["grad_max"]) == (5.0, 4.0)
    assert sum(found["histogram"]) == 4
