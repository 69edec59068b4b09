"""Compiled updates: which package a config gets, and what a damaged, foreign or unwritable cache does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from ludus.algorithms import AlgorithmConfig
from ludus.learning import package
from ludus.learning.compiled import Compiler
from ludus.registry import ALGORITHMS
from ludus.session import signals
from support import build, close, config

needs_compiler = pytest.mark.skipif(not package.has_compiler(), reason="no C++ compiler on this machine")


class Spaced(gym.Env):
    """Any spaces, random observations, ten steps."""

    def __init__(self, observation: gym.Space, action: gym.Space) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.age = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.age += 1
        return self.observation_space.sample(), 1.0, self.age >= 10, False, {}


BOX = gym.spaces.Box(-1.0, 1.0, (3,))
PIXELS = gym.spaces.Box(0, 255, (1, 20, 20), np.uint8)
SPACES = {
    "MultiAction23": (BOX, gym.spaces.MultiDiscrete([2, 3])),
    "MultiAction32": (BOX, gym.spaces.MultiDiscrete([3, 2])),
    "MultiSeen23": (gym.spaces.MultiDiscrete([2, 3]), gym.spaces.Discrete(2)),
    "MultiSeen32": (gym.spaces.MultiDiscrete([3, 2]), gym.spaces.Discrete(2)),
    "Pixels": (PIXELS, gym.spaces.Discrete(2)),
    "PixelsBox": (PIXELS, gym.spaces.Box(-1.0, 1.0, (1,))),
    "Four": (BOX, gym.spaces.Discrete(4)),
    "Two": (BOX, gym.spaces.Discrete(2)),
}
for name, (seen, acted) in SPACES.items():
    gym.register(f"{name}-v0", entry_point=Spaced, kwargs={"observation": seen, "action": acted})


@dataclass
class Update:
    """The first update of a run as the compiler gets it."""

    function: Any
    example: list[Tensor]
    key: str
    graph: Any


class Taken(Exception):
    """The first update was seen."""


def first_update(cfg: Any) -> Update:
    """What the first update of a config computes."""
    found: list[Update] = []

    def get(self: Compiler, function: Any, example: Any, size: int, late: Any) -> None:
        package.on_copies(function, example)
        example = [*example, *late()]
        graph = package.trace(function, example)
        found.append(Update(function, list(example), package.graph_key(graph, example), graph))
        raise Taken

    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(Compiler, "get", get)
        patched.setattr(package, "has_compiler", lambda: True)
        run = build(cfg)
        with pytest.raises(Taken):
            run.run()
        close(run)
    return found[0]


SMALL_NETWORK = {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}}
BASE: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("CartPole-v1", {"rollout_steps": 8, "epochs": 1}),
    "ppo_replay": ("CartPole-v1", {"rollout_steps": 8, "epochs": 1}),
    "dqn": ("CartPole-v1", {"learning_starts": 16, "batch_size": 8, "atoms": 5}),
    "sac": ("Pendulum-v1", {"learning_starts": 16, "batch_size": 8}),
    "td3": ("Pendulum-v1", {"learning_starts": 16, "batch_size": 8}),
    "behaviour_cloning": ("Pendulum-v1", {"batch_size": 8}),
    "iql": ("Pendulum-v1", {"batch_size": 8}),
    "diffusion_policy": ("Pendulum-v1", {"batch_size": 8, "denoiser": {"widths": [8, 16], "groups": 4}}),
}
OFFLINE = {"behaviour_cloning", "iql", "diffusion_policy"}
IN_PARTS = {"dreamer", "planet", "tdmpc"}
"""Never compiled as a whole: their parts are modules and inputs alone (`Learner(whole=False)`)."""
ADAMW = {"type": "adamw", "weight_decay": 0.1}
COMMON = {"lr": 0.01, "gamma": 0.5, "max_grad_norm": 0.25, "optimizer": ADAMW}
OFF_POLICY = {
    **COMMON,
    "batch_size": 16,
    "learning_starts": 24,
    "train_freq": 2,
    "update_ratio": 0.5,
    "n_step": 3,
    "sequence_length": 4,
    "burn_in": 2,
    "epoch_steps": 10,
}
ACTOR_CRITIC = {**OFF_POLICY, "actor_lr": 0.02, "tau": 0.5, "critics": 3}
ON_POLICY = {
    **COMMON,
    "rollout_steps": 16,
    "epochs": 2,
    "batch_size": 0.5,
    "memory_lr": 0.01,
    "gae_lambda": 0.5,
    "clip": 0.1,
    "entropy_coef": 0.1,
    "value_coef": 1.0,
    "target_kl": 0.1,
}
CHANGES: dict[str, dict[str, Any]] = {
    "ppo": {**ON_POLICY, "clip_value": 0.2, "normalize_advantage": False},
    "ppo_replay": {**ON_POLICY, "replay_ratio": 2, "replay_is_clip": 2.0, "normalize_advantage": False},
    "dqn": {
        **OFF_POLICY,
        "epsilon": 0.5,
        "target_every": 3,
        "tau": 0.5,
        "double": False,
        "dueling": True,
        "atoms": 7,
        "v_min": -5.0,
        "v_max": 10.0,
        "stored_state": False,
    },
    "sac": {**ACTOR_CRITIC, "alpha_lr": 0.02, "alpha": 0.3, "initial_alpha": 0.5, "target_entropy": -3.0},
    "td3": {
        **ACTOR_CRITIC,
        "policy_delay": 1,
        "exploration_noise": 0.3,
        "target_noise": 0.1,
        "noise_clip": 0.2,
    },
}
CLONED = ("lr", "batch_size", "sequence_length", "burn_in", "max_grad_norm", "optimizer")
CHANGES |= {
    "behaviour_cloning": {**{name: OFF_POLICY[name] for name in CLONED}, "loss": "squared_error", "min_std": 0.5},
    "iql": {**ACTOR_CRITIC, "expectile": 0.9, "beta": 1.0, "max_weight": 2.0},
    "diffusion_policy": {
        **{name: OFF_POLICY[name] for name in ("lr", "batch_size", "max_grad_norm", "optimizer")},
        "denoiser": {"widths": [8, 24], "groups": 4},
        "observation_horizon": 3,
        "prediction_horizon": 24,
        "action_horizon": 4,
        "diffusion_steps": 50,
        "sampler": "ddpm",
        "sampling_steps": 5,
        "ema_power": 0.5,
        "ema_max": 0.9,
    },
}
NEVER_COMPILED = {"dqn": {"noisy"}}
NETWORK = {
    "encoder": {"type": "mlp", "hidden_dims": [4], "activation": "relu"},
    "actor": {"hidden_dims": [6]},
    "critic": {"hidden_dims": [6]},
}
RUNTIME = {"threads": 2, "precision": "bfloat16", "overlap": True}


def compiled_config(algorithm: str, changes: dict[str, Any] | None = None, **sections: Any) -> Any:
    env, base = BASE[algorithm]
    network = {**SMALL_NETWORK, **sections.pop("network", {})}
    budget: dict[str, Any] = {"total_timesteps": 512}
    if algorithm in OFFLINE:
        budget, sections["buffers"] = {"total_updates": 8}, {"demos": {"path": demos()}}
    return config(
        {"name": algorithm, **base, **(changes or {})},
        sections.pop("env", env),
        network=network if ALGORITHMS[algorithm].networks else {},
        training=budget,
        runtime={"compile": "always", **sections.pop("runtime", {})},
        **sections,
    )


@cache
def demos() -> str:
    """A data set that all of these tests share."""
    if not find_spec("minari"):
        pytest.skip("the extra offline is not installed")
    from demonstrations import PENDULUM, demonstrations

    KEPT.append(tempfile.TemporaryDirectory())
    return str(demonstrations(Path(KEPT[0].name) / "demos-v0", PENDULUM)[0])


KEPT: list[tempfile.TemporaryDirectory[str]] = []


@cache
def base_update(algorithm: str) -> Update:
    return first_update(compiled_config(algorithm))


def results(function: Any, example: list[Tensor]) -> list[Tensor]:
    """What comes out of an update, and what it made of the tensors it was given."""
    given = [tensor.clone() for tensor in example]
    return [*function(*given), *given]


def assert_no_foreign_code(base: Update, changed: Update) -> None:
    """Where both configs get one package, it computes the update of either."""
    assert changed.key == package.graph_key(changed.graph, changed.example)
    if changed.key != base.key:
        return
    for ours, theirs in zip(
        results(changed.function, changed.example), results(base.graph, changed.example), strict=True
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("algorithm", BASE)
def test_every_field_is_looked_at(algorithm: str) -> None:
    known = set(CHANGES[algorithm]) | NEVER_COMPILED.get(algorithm, set())
    assert known == set(ALGORITHMS[algorithm].Config.model_fields) - {"accumulate"}


def test_every_algorithm_that_compiles_is_looked_at() -> None:
    """Whoever names a size of minibatches has its updates compiled."""
    none = AlgorithmConfig.full_batch
    assert {n for n in ALGORITHMS.names() if ALGORITHMS[n].Config.full_batch is not none} == set(BASE) | IN_PARTS


@pytest.mark.parametrize(
    ("algorithm", "field"), [(name, field) for name, fields in CHANGES.items() for field in fields]
)
def test_a_config_never_gets_another_configs_update(algorithm: str, field: str) -> None:
    changed = first_update(compiled_config(algorithm, {field: CHANGES[algorithm][field]}))
    assert_no_foreign_code(base_update(algorithm), changed)


@pytest.mark.parametrize("part", NETWORK)
@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac"])
def test_a_network_never_gets_another_networks_update(algorithm: str, part: str) -> None:
    changed = first_update(compiled_config(algorithm, network={part: NETWORK[part]}))
    assert_no_foreign_code(base_update(algorithm), changed)


@pytest.mark.parametrize("field", RUNTIME)
def test_a_runtime_setting_never_gets_anothers_update(field: str) -> None:
    threads = torch.get_num_threads()
    try:
        changed = first_update(compiled_config("dqn", runtime={field: RUNTIME[field]}))
        assert_no_foreign_code(base_update("dqn"), changed)
    finally:
        torch.set_num_threads(threads)


def small(divide_by: float) -> dict[str, Any]:
    return {"encoder": {"type": "small", "divide_by": divide_by}}


APART = {
    "order of a MultiDiscrete action": [("ppo", {"env": "MultiAction23-v0"}), ("ppo", {"env": "MultiAction32-v0"})],
    "order of a MultiDiscrete observation": [("ppo", {"env": "MultiSeen23-v0"}), ("ppo", {"env": "MultiSeen32-v0"})],
    "divide_by of ppo": [("ppo", {"env": "Pixels-v0", "network": small(n)}) for n in (10, 255)],
    "divide_by of dqn": [("dqn", {"env": "Pixels-v0", "network": small(n)}) for n in (10, 255)],
    "divide_by of sac": [("sac", {"env": "PixelsBox-v0", "network": small(n)}) for n in (10, 255)],
    "precision of sac": [
        ("sac", {"env": "PixelsBox-v0", "network": small(255), "runtime": {"precision": name}})
        for name in ("float32", "bfloat16")
    ],
    "heads of a denoiser": [
        ("diffusion_policy", {"changes": {"denoiser": {"type": "transformer", "width": 16, "layers": 1, "heads": n}}})
        for n in (2, 4)
    ],
    "groups of a denoiser": [
        ("diffusion_policy", {"changes": {"denoiser": {"widths": [8, 16], "groups": n}}}) for n in (2, 4)
    ],
    "deviation of clones": [("behaviour_cloning", {"changes": {"min_std": least}}) for least in (0.1, 0.5)],
    "expectile": [("iql", {"changes": {"expectile": share}}) for share in (0.7, 0.9)],
    "largest weight": [("iql", {"changes": {"max_weight": most}}) for most in (100.0, 2.0)],
    "actions and atoms of dqn": [
        ("dqn", {"env": "Four-v0", "changes": {"atoms": 1}}),
        ("dqn", {"env": "Two-v0", "changes": {"atoms": 2}}),
    ],
}


@pytest.mark.parametrize("pair", APART.values(), ids=APART.keys())
def test_updates_that_differ_have_packages_of_their_own(pair: list[tuple[str, dict[str, Any]]]) -> None:
    one, other = (first_update(compiled_config(algorithm, **details)) for algorithm, details in pair)
    assert one.key != other.key


@pytest.mark.parametrize(("algorithm", "field"), [("dqn", "v_max"), ("dqn", "v_min"), ("sac", "target_entropy")])
def test_constants_are_inputs(algorithm: str, field: str) -> None:
    changed = first_update(compiled_config(algorithm, {field: CHANGES[algorithm][field]}))
    assert changed.key == base_update(algorithm).key, "a sweep over it compiles once"
    assert_no_foreign_code(base_update(algorithm), changed)


def test_the_key_holds_code_constants_shapes_and_threads(monkeypatch) -> None:
    def key(function: Any, *example: Tensor) -> str:
        return package.graph_key(package.trace(function, example), example)

    x, scale, other = torch.ones(3), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0])
    base = key(lambda a: (a * scale,), x)
    assert key(lambda a: (a * scale,), x) == base
    assert key(lambda a: (a + scale,), x) != base
    assert key(lambda a: (a * other,), x) != base
    assert key(lambda a: (a * scale,), torch.ones(2, 3)) != base
    assert key(lambda a: (a * 2.0,), x) != key(lambda a: (a * 3.0,), x)
    monkeypatch.setattr(package, "processor", lambda: "another processor")
    assert key(lambda a: (a * scale,), x) != base


def test_tracing_leaves_the_tensors_as_they_are() -> None:
    x = torch.ones(3)
    package.trace(lambda a: (a.mul_(2.0).clone(),), [x])
    assert torch.equal(x, torch.ones(3))


# ---- the cache -------------------------------------------------------------------------------------


def double(x: Tensor) -> tuple[Tensor]:
    return (x * 2.0,)


EXAMPLE = [torch.arange(4.0)]


def works(compiled: Any) -> bool:
    (found,) = compiled([torch.arange(4.0)])
    return torch.equal(found, torch.arange(4.0) * 2.0)


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """A cache with one package, built once for all test processes."""
    shared = tmp_path_factory.getbasetemp().parent / "ludus-one-package"
    said: list[str] = []
    assert works(package.obtain(double, EXAMPLE, shared, said.append)())
    return shared


@pytest.fixture
def filled(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "cache", ignore=shutil.ignore_patterns("build-*"))
    return tmp_path / "cache"


class Ended:
    """A compiler process that is over when it begins."""

    def __init__(self, code: int, said: str, options: dict[str, Any]) -> None:
        self.code = code
        options["stderr"].write(said.encode())

    def wait(self, _: float | None = None) -> int:
        return self.code

    poll = wait


def only(folder: Path) -> Path:
    return sorted(folder.glob("*.so"))[0]


@needs_compiler
def test_a_filled_cache_builds_nothing(filled: Path, monkeypatch) -> None:
    monkeypatch.setattr(package, "Build", lambda *_: pytest.fail("built again"))
    said: list[str] = []
    assert works(package.obtain(double, EXAMPLE, filled, said.append)())
    assert said == []


@needs_compiler
@pytest.mark.parametrize("damage", ["cut", "empty", "bits"])
def test_damaged_code_never_runs(filled: Path, damage: str, monkeypatch) -> None:
    path = only(filled)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    for place in range(len(whole) // 2, len(whole) // 2 + 20):
        flipped[place] ^= 1
    path.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "bits": bytes(flipped)}[damage])
    loaded: list[Path] = []
    monkeypatch.setattr(package, "load", lambda path: loaded.append(path))
    monkeypatch.setattr(package, "Build", lambda *_: lambda: "built anew")
    said: list[str] = []
    assert package.obtain(double, EXAMPLE, filled, said.append)() == "built anew"
    assert loaded == [] and not path.exists()
    assert len(said) == 1 and str(path) in said[0] and "damaged" in said[0]


@needs_compiler
def test_a_package_of_another_user_is_not_used(filled: Path, monkeypatch) -> None:
    monkeypatch.setattr(package.os, "getuid", lambda: filled.stat().st_uid + 1)
    said: list[str] = []
    key = package.graph_key(package.trace(double, EXAMPLE), EXAMPLE)
    assert package.find(filled, key, said.append) is None
    assert "another user" in said[0]


@needs_compiler
def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    said: list[str] = []
    assert works(package.obtain(double, EXAMPLE, blocked / "cache", said.append)())
    assert "not kept" in said[-1]
    assert list(tmp_path.iterdir()) == [blocked]


@needs_compiler
def test_a_cache_whose_path_has_a_space(tmp_path: Path) -> None:
    said: list[str] = []
    assert works(package.obtain(double, EXAMPLE, tmp_path / "my cache", said.append)())
    assert only(tmp_path / "my cache") and len(list((tmp_path / "my cache").iterdir())) == 1
    assert len(said) == 1, "it is compiled and kept"


def test_no_compiler_is_one_sentence(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(package, "has_compiler", lambda: False)
    with pytest.raises(package.Unavailable, match="no C\\+\\+ compiler"):
        package.obtain(double, EXAMPLE, tmp_path, lambda _: None)()


def test_a_compiler_that_fails_is_one_sentence(tmp_path: Path, monkeypatch) -> None:
    wrong = tmp_path / "bin"
    wrong.mkdir()
    (wrong / "g++").write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    (wrong / "g++").chmod(0o755)
    monkeypatch.setenv("CXX", str(wrong / "g++"))
    with pytest.raises(package.Unavailable, match="compiling failed") as problem:
        package.obtain(double, EXAMPLE, tmp_path / "cache", lambda _: None)()
    assert "\n" not in str(problem.value)
    assert list((tmp_path / "cache").iterdir()) == []


FULL_DISK = """
import resource, sys
from pathlib import Path
import torch
from ludus.learning import package
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    package.obtain(lambda x: (x * 2,), [torch.ones(3)], Path(sys.argv[1]), lambda _: None)()
except package.Unavailable as problem:
    print(problem)
"""


@needs_compiler
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    """Files may not grow, as on a full disk: torch's own writer aborts the process there."""
    ended = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-500:]
    assert "too large" in ended.stdout and ended.stdout.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_failed_compiler_is_quoted_where_it_names_the_error(tmp_path: Path, monkeypatch) -> None:
    said = "update.cpp:7:1: fatal error: No space left on device\ncompilation terminated.\n"
    monkeypatch.setattr(package, "has_compiler", lambda: True)
    monkeypatch.setattr(package.subprocess, "Popen", lambda *_, **options: Ended(1, said, options))
    with pytest.raises(package.Unavailable, match=r"^compiling failed .update.cpp:7:1: fatal error: No space left"):
        package.obtain(double, EXAMPLE, tmp_path, lambda _: None)()


def test_what_cannot_be_traced_is_one_sentence(tmp_path: Path) -> None:
    def strange(x: Tensor) -> tuple[Tensor]:
        raise ValueError("a plugin's own words\nand more")

    with pytest.raises(package.Unavailable, match=r"cannot be traced .ValueError: a plugin's own words.$"):
        package.obtain(strange, EXAMPLE, tmp_path, lambda _: None)()


def test_code_that_cannot_be_loaded_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(b"no machine code")
    with pytest.raises(package.Unavailable, match="cannot be loaded"):
        package.load(tmp_path / "x.so")


@needs_compiler
def test_a_build_is_on_the_disk_before_it_is_in_the_cache(filled: Path, tmp_path: Path, monkeypatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(package.files.os, "fsync", lambda _: order.append("sync"))
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda path, target: order.append("rename") or replace(path, target))
    made = only(filled)

    def compiled(arguments: list[str], **options: Any) -> Ended:
        shutil.copy(made, Path(arguments[3]) / "update.so")
        return Ended(0, "", options)

    monkeypatch.setattr(package.subprocess, "Popen", compiled)
    assert works(package.obtain(double, EXAMPLE, tmp_path / "empty", lambda _: None)())
    assert order == ["sync", "rename", "sync"], "the file, its name, the folder"


def test_the_compiler_is_out_of_reach_of_ctrl_c(tmp_path: Path, monkeypatch) -> None:
    seen: dict[str, Any] = {}

    def stand_in(arguments: list[str], **options: Any) -> Ended:
        seen.update(options, program=arguments[0])
        return Ended(1, "stopped here", options)

    monkeypatch.setattr(package, "has_compiler", lambda: True)
    monkeypatch.setattr(package.subprocess, "Popen", stand_in)
    with pytest.raises(package.Unavailable, match="stopped here"):
        package.obtain(double, EXAMPLE, tmp_path, lambda _: None)()
    assert seen["program"] == sys.executable
    assert seen["start_new_session"] is True
    assert seen["env"]["TMPDIR"].startswith(str(tmp_path)), "a noexec or full /tmp does not matter"


def test_the_compiler_goes_on_when_every_process_is_told_to_stop(tmp_path: Path) -> None:
    """As `scancel` and systemd do: the run saves and ends, and what it learned was compiled."""
    folder = tmp_path / "torch"  # in the place of torch: it waits for a signal
    (folder / "_inductor").mkdir(parents=True)
    (folder / "_inductor" / "__init__.py").write_text("")
    (folder / "__init__.py").write_text(f"open({str(tmp_path / 'ready')!r}, 'w').close()\nimport time\ntime.sleep(60)")
    arguments = [sys.executable, str(Path(package.__file__).with_name("build_package.py")), str(tmp_path), "1", "{}"]
    process = subprocess.Popen(arguments, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    try:
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
            time.sleep(0.01)
        for number in signals.SIGNALS:
            process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
    finally:
        process.kill()
        process.wait()
