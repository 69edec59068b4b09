"""What will not fit is refused before the first step, with the number and the knob."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from algorithms.test_world_models import phased, seen
from ludus.config.model import Choice
from ludus.data.buffers import Buffers, make_buffers
from ludus.errors import ResourceError
from ludus.preflight import check, check_room_for_ranks, disk_needed, memory_parts, size, width_of
from ludus.registry import ALGORITHMS, BUFFERS
from ludus.run import Run
from ludus.types import Spaces
from ludus.watch import ram
from ludus.watch.ram import MB
from support import build, close, config

Usage = namedtuple("Usage", "total used free")


def _built(num_envs: int = 4, rollout_steps: int = 64, **sections: Any) -> Run:
    cfg = config(
        {"name": "ppo", "rollout_steps": rollout_steps},
        environment={"num_envs": num_envs, "vectorization": "sync"},
        training={"total_timesteps": num_envs * rollout_steps},
        **sections,
    )
    return build(cfg)


@pytest.fixture
def run() -> Any:
    run = _built()
    yield run
    close(run)


def _parts(run: Run) -> dict[str, int]:
    return {part.name: part.bytes for part in memory_parts(run)}


def test_the_rollout_is_what_the_collector_allocates(run: Run) -> None:
    estimated = _parts(run)["rollouts"]
    run.run()
    store = run.collector._storage
    arrays = (store.raw, store.action, store.reward, store.terminated, store.truncated, store.first)
    allocated = sum(array.nbytes for array in arrays)
    assert estimated == pytest.approx(2 * allocated, rel=0.05)  # and a shuffled copy while updating


def test_bytes_grow_with_what_they_are_made_of() -> None:
    small, wide, long = _built(), _built(num_envs=16), _built(rollout_steps=640)
    deep = _built(network={"actor": {"hidden_dims": [512, 512]}, "critic": {"hidden_dims": [512, 512]}})
    parts = [_parts(run) for run in (small, wide, long, deep)]
    for run in (small, wide, long, deep):
        close(run)
    assert parts[1]["rollouts"] == 4 * parts[0]["rollouts"]
    assert parts[2]["rollouts"] == pytest.approx(10 * parts[0]["rollouts"], rel=0.02)
    assert parts[3]["network"] > 50 * parts[0]["network"]
    assert parts[3]["updates"] > 5 * parts[0]["updates"]


def test_the_network_is_weights_gradients_and_two_moments(run: Run) -> None:
    count = sum(parameter.numel() for parameter in run.algorithm.policy.parameters())
    assert _parts(run)["network"] == 4 * 4 * count


def test_pixels_count_as_the_bytes_they_are(run: Run) -> None:
    from gymnasium import spaces

    pixels = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    stand_in = SimpleNamespace(
        collector=SimpleNamespace(num_envs=8),
        spaces=Spaces(pixels, run.spaces.action),
        normalizer=None,
        buffers={},
        phase_configs=run.phase_configs,
        algorithm=run.algorithm,
        learners={},
    )
    (rollouts,) = memory_parts(stand_in)  # type: ignore[arg-type]
    assert rollouts.bytes == pytest.approx(2 * 65 * 8 * 4 * 84 * 84, rel=0.01)


def test_the_header_says_how_much(run: Run, tmp_path: Path) -> None:
    (line,) = check(run, tmp_path / "runs")
    assert line.startswith("~")
    assert "MB (" in line


def test_too_large_a_rollout_is_refused_with_number_and_knob(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 10_000_000
    run.phase_configs[0] = run.phase_configs[0].model_copy(update={"rollout_steps": steps})
    monkeypatch.setattr(ram, "available", lambda: 1024 * MB)
    with pytest.raises(ResourceError) as caught:
        check(run)
    line = caught.value.line()
    assert caught.value.exit_code == 5
    assert "1.0 GB are free" in line
    assert "lower algorithm.batch_size" in line  # a quarter of such a rollout at once
    run.phase_configs[0] = run.phase_configs[0].model_copy(update={"batch_size": 64})
    with pytest.raises(ResourceError, match=r"lower environment\.num_envs or algorithm\.rollout_steps"):
        check(run)


def test_a_replay_larger_than_memory_is_refused_by_name(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every observation is stored once, with an action, a reward and 9 bytes of our own."""
    monkeypatch.setattr(ram, "available", lambda: 200 * MB)
    collector: Any = run.collector
    spaces = Spaces(collector.env.observation_space, collector.env.action_space)
    for steps, fits in ((8_000_000, False), (4_000_000, True)):
        wanted = {"main": Choice("uniform", BUFFERS["uniform"].Config(size=steps))}
        made = make_buffers(wanted, {}, spaces=spaces, num_envs=8, stream=lambda _: np.random.default_rng(0))
        run.buffers = Buffers(made)
        if fits:
            assert "buffer main of 4,000,000 steps 159 MB" in check(run)[0]
        else:
            with pytest.raises(ResourceError, match=r"buffer main of 8,000,000 steps .*; lower buffers\.main\.size"):
                check(run)


def test_an_update_is_estimated_from_its_layers(run: Run) -> None:
    """Outputs of two networks of 64-64 with their tanh, kept with their gradients for 64 of 256 steps."""
    each = 2 * 4 * 64 + 2 + 1
    (part,) = [part for part in memory_parts(run) if part.name == "updates"]
    assert part.bytes == pytest.approx(2 * 64 * 4 * each, rel=0.05)  # what passes observations on counts too


def test_tight_memory_is_a_warning(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    total = sum(_parts(run).values())
    monkeypatch.setattr(ram, "available", lambda: int(1.1 * total))
    assert "memory is tight" in check(run)[1]


@pytest.mark.parametrize(("free", "outcome"), [(10**12, "fine"), (1.2, "warned"), (0.9, "refused")])
def test_room_for_checkpoints(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, outcome: str
) -> None:
    room = int(free * needed(run, tmp_path, monkeypatch))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(room, 0, room))
    folder = tmp_path / "not" / "yet" / "there"
    if outcome == "refused":
        with pytest.raises(ResourceError, match=r"checkpoints need about .* training\.checkpoints\.keep .* --runs-dir"):
            check(run, folder)
    else:
        assert len(check(run, folder)) == (2 if outcome == "warned" else 1)


def needed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes below which a disk is refused."""
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=middle: Usage(free, 0, free))
        try:
            check(run, tmp_path)
        except ResourceError:
            low = middle
        else:
            high = middle
    return high


def test_the_room_asked_for_is_about_what_a_run_takes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between what the checkpoints that are there at once take, and twice that."""
    from ludus.archive import checkpoint
    from ludus.archive.record import size_of

    asked = needed(run, tmp_path, monkeypatch)
    state = {**run.state_dict(), "about": {"config": run.config.model_dump(mode="json")}}
    one = size_of(checkpoint.save(tmp_path, state, name="step=0"))
    there = (run.config.training.checkpoints.keep + 2) * one
    assert there <= asked <= 2 * there


def test_looking_changes_nothing(run: Run) -> None:
    before = run.algorithm.learner.theta.clone()
    check(run)
    assert run.algorithm.learner.theta.equal(before)
    assert not any(module._forward_hooks for module in run.algorithm.policy.modules())


@pytest.mark.parametrize(
    ("count", "text"), [(100_000, "0.1 MB"), (12 * MB, "12 MB"), (999 * MB, "999 MB"), (3482 * MB, "3.4 GB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


def test_more_environments_than_memory_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ram, "available", lambda: 100 * MB)
    with pytest.raises(ResourceError, match=r"environment.num_envs: 1,000,000 environments need at least .* GB"):
        _built(num_envs=1_000_000)


def test_environments_to_evaluate_in_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.preflight import check_environments

    monkeypatch.setattr(ram, "available", lambda: 100 * MB)
    cfg = config({"name": "ppo"}, training={"total_timesteps": 64, "evaluation": {"num_envs": 1_000_000}})
    with pytest.raises(ResourceError, match=r"training.evaluation.num_envs: 1,000,000 environments"):
        check_environments(cfg)


def test_a_network_larger_than_memory_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ram, "available", lambda: 1024 * MB)
    with pytest.raises(ResourceError, match=r"the network needs at least 1\.\d GB, 1\.0 GB are free; lower the hidden"):
        _built(network={"actor": {"hidden_dims": [200, 700_000]}})  # 560 MB of weights, and as much of gradients


def test_the_address_space_is_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = int(ram._STATM.read_bytes().split()[0]) * ram._PAGE
    monkeypatch.setattr(ram.resource, "getrlimit", lambda _: (taken + 50 * MB, -1))
    assert ram.available() <= 60 * MB


def test_looking_at_what_a_network_takes_does_not_import_a_compiler() -> None:
    """It takes torch a second, of every start of every command that builds a network."""
    code = (
        "import sys\nfrom ludus.config.compose import load\nfrom ludus.experiment import build\n"
        "build(load('CartPole-v1:ppo').config)\nprint('torch._dynamo' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.strip() == "False", ended.stderr


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("ppo", "the hidden dims under network"),
        ("tdmpc", "algorithm.size"),
        ("world_models", "the widths under algorithm"),
        ("diffusion_policy", "the widths under algorithm"),
    ],
)
def test_the_settings_that_make_networks_smaller_are_there(name: str, knobs: str) -> None:
    assert width_of(ALGORITHMS[name]) == knobs


def test_what_a_world_model_keeps_of_every_stored_step_is_counted() -> None:
    """In memory, and in every checkpoint."""
    run = build(phased())
    estimated = _parts(run)["encoded steps"]
    steps, latent = run.buffers["replay"].size, 3
    assert estimated == steps * (8 * latent + 16)
    needed = disk_needed(run)
    run.algorithm.stored_bytes = lambda: 0
    assert needed - disk_needed(run) == (run.config.training.checkpoints.keep + 2) * estimated
    seen(run)
    held = sum(column.nbytes for column in run.algorithm.encoded.columns.values())
    rows = run.algorithm.encoded.columns["first"].size
    assert held / rows == pytest.approx(8 * latent + 16, rel=0.2)
    close(run)


def test_more_ranks_than_memory_are_refused_before_they_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ram, "available", lambda: 2048 * MB)
    check_room_for_ranks(8)
    with pytest.raises(ResourceError, match=r"runtime.ranks: 1,000 processes need at least 146.5 GB, 2.0 GB are free"):
        check_room_for_ranks(1_000)
