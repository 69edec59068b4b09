"""What every algorithm has learned after a few updates, as numbers that a refactoring must not change.

`python tests/golden/fingerprints.py --write [part of a name ...]` renews `fingerprints.json`, all of it or some cases.
Do that only for a change that is meant to change learning curves, and say so in the changelog.

A fingerprint knows no name and no layout: it is a hash of all values of a group in ascending order. Only `groups` knows
where a run keeps its tensors.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # when run as a script

from demonstrations import CART, PENDULUM, demonstrations
from ludus.metrics.sinks import Sink
from ludus.registry import ALGORITHMS, MEMORY
from support import config, run

FILE = Path(__file__).with_name("fingerprints.json")
IMAGE = "GoldenQuarters-v0"
ROWS = 4
SAMPLES = 9
TIMING = ("seconds", "train/time/", "val/time/", "train/system/")

# ---- the cases -------------------------------------------------------------------------------------

NETWORK = {
    "encoder": {"type": "mlp", "hidden_dims": [16]},
    "actor": {"hidden_dims": [12]},
    "critic": {"hidden_dims": [12]},
}
ON_POLICY = {"rollout_steps": 16, "lr": {"start": 1e-2, "end": 1e-3}}
A2C = {**ON_POLICY, "gae_lambda": 0.9, "epoch_steps": 64}
PPO = {**ON_POLICY, "epochs": 3, "batch_size": 0.5, "entropy_coef": 0.01, "clip": 0.05}
REPLAY = {"learning_starts": 32, "batch_size": 8, "train_freq": 4, "update_ratio": 0.25, "epoch_steps": 64, "lr": 3e-3}
SEQUENCES = {"sequence_length": 6, "burn_in": 2}
DQN = {**REPLAY, **SEQUENCES, "target_every": 5}
RAINBOW = {**DQN, "dueling": True, "noisy": True, "atoms": 11, "n_step": 3, "epsilon": 0.0}
CONTINUOUS = {**REPLAY, **SEQUENCES}
WORLD = {"size": "tiny", "batch_size": 4, "sequence_length": 6, "train_ratio": 6, "learning_starts": 32, "horizon": 3}
WORLD |= {"train_freq": 4, "epoch_steps": 64, "lr": 3e-3, "warmup_updates": 4, "exploration": 0.1}
PLANNER = {"candidates": 12, "elites": 3, "rounds": 2}
STOCHASTIC = {"type": "identity", "dynamics": "stochastic"}
TDMPC = {"size": "tiny", "batch_size": 8, "update_ratio": 0.25, "learning_starts": 32, "train_freq": 4, "lr": 3e-3}
TDMPC |= {"epoch_steps": 64, "candidates": 12, "policy_candidates": 3, "elites": 4, "rounds": 2}
TRIED = {"population": 4, "rollouts": 2, "dream_steps": 3, "hidden": 2, "temperature": 1.2}
EVOLVED = {"vision": {"latent": 3, "depth": 2}, "memory": {"units": 4}, "controller": TRIED, "rollout_steps": 8}
EVOLVED |= {"vision_batch": 4, "vision_lr": 3e-3, "memory_batch": 3, "sequence_length": 4, "epoch_steps": 64}
EVOLVED |= {"optimizer": {"eps": 1e-3}}  # gradients that rounding alone makes are not steps of full length
DIFFUSION = {"batch_size": 8, "lr": 3e-3, "denoiser": {"widths": [8, 16], "groups": 4}, "diffusion_steps": 20}
TRANSFORMER = {"type": "transformer", "width": 16, "layers": 2, "heads": 2}
NORMALIZED = {"normalize_obs": "rolling", "normalize_reward": True}
CLONING = {"batch_size": 16, "lr": {"start": 1e-2, "end": 1e-3}, **SEQUENCES}
IQL = {**SEQUENCES, "batch_size": 8, "lr": 3e-3, "beta": 1.0}
OFFLINE = {"training": {"total_updates": 12, "epoch_updates": 3}}
PRIORITIZED = {"buffers": {"replay": {"type": "prioritized", "size": 500}}}
PHASES = [
    {"name": "fill", "hooks": ["collect"], "duration_steps": 64, "set": {"epsilon": 1.0}},
    {"name": "learn", "type": "offline", "hooks": ["update_controller"], "duration_updates": 12, "set": {"lr": 1e-3}},
    {"name": "both", "hooks": ["collect", {"update_controller": {"per_env_step": 0.3}}]},
]

# name -> (algorithm, settings of it, environment, other sections)
BOTH: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "reinforce": ("reinforce", ON_POLICY, "CartPole-v1", {}),
    "reinforce box accumulate": ("reinforce", {**ON_POLICY, "accumulate": 2}, "Pendulum-v1", {}),
    "a2c": ("a2c", {**A2C, "entropy_coef": 0.01, "normalize_advantage": False}, "CartPole-v1", {}),
    "a2c box accumulate": ("a2c", {**A2C, "accumulate": 2}, "Pendulum-v1", {}),
    "ppo": ("ppo", PPO, "CartPole-v1", {}),
    "ppo box normalized": ("ppo", PPO, "Pendulum-v1", {"environment": NORMALIZED}),
    "ppo image": ("ppo", PPO, IMAGE, {"network": {"encoder": "small"}}),
    "ppo accumulate": ("ppo", {**PPO, "accumulate": 2, "batch_size": 0.25}, "CartPole-v1", {}),
    "ppo clip_value target_kl": ("ppo", {**PPO, "clip_value": 0.02, "target_kl": 1e-3}, "CartPole-v1", {}),
    "ppo adamw": ("ppo", {**PPO, "optimizer": {"type": "adamw", "weight_decay": 0.01}}, "FrozenLake-v1", {}),
    "ppo_replay": ("ppo_replay", PPO, "CartPole-v1", {}),
    "ppo_replay box": ("ppo_replay", PPO, "Pendulum-v1", {"environment": NORMALIZED}),
    "behaviour_cloning": ("behaviour_cloning", CLONING, "CartPole-v1", OFFLINE),
    "behaviour_cloning box": ("behaviour_cloning", CLONING, "Pendulum-v1", OFFLINE),
    "iql": ("iql", IQL, "Pendulum-v1", {**OFFLINE, "environment": {"normalize_obs": "rolling"}}),
    "iql discrete": ("iql", {**IQL, "expectile": 0.9, "n_step": 2}, "CartPole-v1", OFFLINE),
    "dqn": ("dqn", DQN, "CartPole-v1", {}),
    "dqn rainbow": ("dqn", RAINBOW, "CartPole-v1", PRIORITIZED),
    "dqn prioritized": ("dqn", {**DQN, "tau": 0.5}, "CartPole-v1", PRIORITIZED),
    "dqn accumulate": ("dqn", {**DQN, "accumulate": 2, "double": False, "stored_state": False}, "CartPole-v1", {}),
    "dqn image": ("dqn", {**DQN, "lr": 1e-4}, IMAGE, {"network": {"encoder": "small"}}),
    "dqn phases": ("dqn", DQN, "CartPole-v1", {"training": {"phases": PHASES}}),
    "sac": ("sac", {**CONTINUOUS, "n_step": 2}, "Pendulum-v1", {"environment": {"normalize_obs": "rolling"}}),
    "sac discrete": ("sac", CONTINUOUS, "CartPole-v1", PRIORITIZED),
    "sac fixed alpha": ("sac", {**CONTINUOUS, "alpha": 0.1, "max_grad_norm": 1.0}, "Pendulum-v1", {}),
    "sac overlap": ("sac", CONTINUOUS, "Pendulum-v1", {"runtime": {"overlap": True}}),
    "td3": ("td3", CONTINUOUS, "Pendulum-v1", {}),
    "td3 prioritized": ("td3", {**CONTINUOUS, "policy_delay": 1, "n_step": 2}, "Pendulum-v1", PRIORITIZED),
}
"""Each without a memory and with a GRU."""
WITHOUT_MEMORY: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "diffusion_policy": ("diffusion_policy", DIFFUSION, "Pendulum-v1", OFFLINE),
    "diffusion_policy transformer": (
        "diffusion_policy",
        {**DIFFUSION, "denoiser": TRANSFORMER},
        "Pendulum-v1",
        OFFLINE,
    ),
    "random": ("random", {"rollout_steps": 32}, "CartPole-v1", {}),
    "q_learning": ("q_learning", {"rollout_steps": 16, "epsilon": 0.3}, "CliffWalking-v1", {}),
    "dreamer": ("dreamer", WORLD, "CartPole-v1", {}),
    "dreamer v2": ("dreamer", {**WORLD, "variant": "v2"}, "CartPole-v1", {}),
    "dreamer v1": ("dreamer", {**WORLD, "variant": "v1"}, "Pendulum-v1", {}),
    "dreamer image": ("dreamer", {**WORLD, "imagine_last": 3, "actor_gradient": "both"}, IMAGE, {}),
    "planet": ("planet", {**WORLD, **PLANNER}, "Pendulum-v1", {}),
    "planet identity": ("planet", {**WORLD, **PLANNER, "representation": STOCHASTIC}, "Pendulum-v1", {}),
    "tdmpc": ("tdmpc", {**TDMPC, "critics": 4}, "Pendulum-v1", {}),
    "tdmpc v1": ("tdmpc", {**TDMPC, "variant": "v1"}, "Pendulum-v1", PRIORITIZED),
    "world_models": ("world_models", EVOLVED, IMAGE, {}),
    "world_models dream": ("world_models", {**EVOLVED, "controller": {**TRIED, "train_in": "dream"}}, IMAGE, {}),
}
COMPILED = ("ppo", "ppo_replay", "dqn", "iql", "sac", "td3 prioritized", "dreamer", "tdmpc")
"""Compiled ones take half a minute each, so that they are few."""


def memory_cases() -> dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]]:
    """PPO with every other core, and the learning rate that a core may have of its own."""
    others = sorted(set(MEMORY.names()) - {"none", "gru"})
    core = {name: {"network": {"memory": {"type": name, "hidden_dim": 8}}} for name in others}
    found = {f"ppo {name}": ("ppo", PPO, "CartPole-v1", core[name]) for name in others}
    slow = {**PPO, "memory_lr": {"start": 1e-3, "end": 1e-4}}
    gru = {"network": {"memory": {"type": "gru", "hidden_dim": 8}}}
    return {**found, "ppo memory_lr gru": ("ppo", slow, "CartPole-v1", gru)}


def cases() -> dict[str, Any]:
    """Name -> config of every run."""
    gru = {"type": "gru", "hidden_dim": 8}
    found = {name: settings(*case) for name, case in {**WITHOUT_MEMORY, **BOTH, **memory_cases()}.items()}
    found |= {f"{name} gru": settings(*case, memory=gru) for name, case in BOTH.items()}
    return found | {f"{name} compiled": settings(*{**BOTH, **WITHOUT_MEMORY}[name], compiled=True) for name in COMPILED}


def settings(
    algorithm: str, values: Mapping[str, Any], env: str, sections: Mapping[str, Any], *, memory: Any = None,
    compiled: bool = False,
) -> Any:  # fmt: skip
    """A run of seven rollouts or eighty steps, evaluated twice; the last rollout is cut short."""
    sections = dict(sections)
    network = {**NETWORK, **({} if memory is None else {"memory": memory}), **sections.pop("network", {})}
    runtime = {"compile": "always" if compiled else "never", "threads": 1, **sections.pop("runtime", {})}
    evaluation = {"every_epochs": 2, "episodes": 2, "deterministic": False}
    training = {"total_timesteps": 168, "evaluation": evaluation, **sections.pop("training", {})}
    environment = {"num_envs": 2, "vectorization": "sync", **sections.pop("environment", {})}
    register_image()
    if "demos" in ALGORITHMS[algorithm].buffers:
        sections["buffers"] = {"demos": {"path": demos(env)}}
    if env != IMAGE:
        environment["max_episode_steps"] = 12  # so that some episodes are cut
    return config(
        {"name": algorithm, **values}, env=env, experiment={"seed": 3, "device": "cpu"}, environment=environment,
        network=network, runtime=runtime, training=training, **sections,
    )  # fmt: skip


@functools.cache
def demos(env: str) -> str:
    """A data set for one of the environments."""
    folder = Path(tempfile.mkdtemp()) / "demos-v0"
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    return str(demonstrations(folder, PENDULUM if env == "Pendulum-v1" else CART)[0])


class Quarters(gym.Env):
    """One quarter of a small picture is lit; naming it pays 1. Episodes end, or are cut, at random."""

    metadata = {"render_modes": []}
    observation_space = gym.spaces.Box(0, 255, (1, 8, 8), np.uint8)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward = float(action == self.lit)
        over, cut = self.np_random.random(2) < 0.1
        return self._show(), reward, bool(over), bool(cut), {}

    def _show(self) -> np.ndarray:
        self.lit = int(self.np_random.integers(4))
        picture = self.np_random.integers(0, 60, (1, 8, 8), np.uint8)
        row, column = divmod(self.lit, 2)
        picture[0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 150
        return picture


def register_image() -> None:
    """Gymnasium knows the small picture."""
    if IMAGE not in gym.registry:
        gym.register(IMAGE, Quarters)


# ---- one run as numbers ----------------------------------------------------------------------------


def groups(done: Any) -> dict[str, list[np.ndarray]]:
    """THE adapter: every float array of a finished run as weights (targets included), moments or normalizer."""
    state = done.state_dict()
    found: dict[str, list[np.ndarray]] = {"weights": [], "moments": [], "normalizer": []}
    for path, array in arrays(state["algorithm"]):
        if "noise_in" not in path[-1] and "noise_out" not in path[-1]:  # the newest draw of a noisy layer
            found["moments" if "optimizer" in path else "weights"].append(array)
    for name in ("normalizer", "reward_normalizer"):
        found["normalizer"] += [array for _, array in arrays(state.get(name, {}))]
    return found


def arrays(tree: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Leaves with floating numbers in them, and where they are."""
    if isinstance(tree, Mapping):
        for name, inner in tree.items():
            yield from arrays(inner, (*path, str(name)))
    elif isinstance(tree, (list, tuple)):
        for i, inner in enumerate(tree):
            yield from arrays(inner, (*path, str(i)))
    elif isinstance(tree, (torch.Tensor, np.ndarray)):
        array = tree.detach().cpu().numpy() if isinstance(tree, torch.Tensor) else tree
        if array.dtype.kind == "f":
            yield path, array


class Rows(Sink):
    """Keeps the first rows without timings."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, row: Mapping[str, Any]) -> None:
        """One more row."""
        if len(self.rows) < ROWS:
            self.rows.append({name: value for name, value in row.items() if not name.startswith(TIMING)})


def fingerprint(cfg: Any) -> dict[str, Any]:
    """Train, and say what came out."""
    rows = Rows()
    done = run(cfg, sinks=[rows])
    found = {name: of_group(arrays) for name, arrays in groups(done).items() if arrays}
    return {"updates": done.progress.updates, **found, "rows": json.loads(json.dumps(rows.rows))}


def of_group(arrays: list[np.ndarray]) -> dict[str, Any]:
    """Hash, sums and some order statistics of all values together."""
    values = np.sort(np.concatenate([array.reshape(-1).astype(np.float64) for array in arrays]))
    picked = np.linspace(0, len(values) - 1, SAMPLES).round().astype(int)
    return {
        "count": len(values),
        "sha256": hashlib.sha256((values + 0.0).tobytes()).hexdigest(),
        "sum": float(values.sum()),
        "abs_sum": float(np.abs(values).sum()),
        "samples": values[picked].tolist(),
    }


def machine() -> dict[str, str]:
    """What the last bits of a result depend on."""
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    named = dict(line.split(":", 1) for line in facts.partition("\n\n")[0].splitlines() if ":" in line)
    wanted = ("model name", "cpu family", "model", "stepping")
    cpu = [value.strip() for name, value in named.items() if name.strip() in wanted]
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "capability": torch.backends.cpu.get_cpu_capability(),
        "processor": " ".join(cpu) or platform.processor(),
        "compiler": compiler(),
    }


def compiler() -> str:
    """Version of the compiler that would build updates."""
    name = os.environ.get("CXX", "g++")
    try:
        return subprocess.run([name, "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def main() -> None:
    """Write the file anew, or some of its cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", nargs="*", metavar="PART", required=True, help="cases whose name contains this")
    parts = parser.parse_args().write
    known = json.loads(FILE.read_text())["cases"] if parts and FILE.exists() else {}
    with tempfile.TemporaryDirectory() as cache:
        os.environ["LUDUS_CACHE"] = cache
        for name, cfg in cases().items():
            if not parts or any(part in name for part in parts):
                known[name] = fingerprint(cfg)
                print(name, known[name]["updates"], flush=True)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(known[name], sort_keys=True)}" for name in sorted(known))
    FILE.write_text(f'{{"machine": {json.dumps(machine())},\n"cases": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
