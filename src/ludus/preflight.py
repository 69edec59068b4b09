"""Before the first step: device and threads, and whether memory and disk suffice."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ludus.config.schema import ExperimentConfig
from ludus.envs.make import cores, describe, number_of_envs, resolve
from ludus.envs.vector.buffers import VectorArrays
from ludus.errors import ConfigError, ResourceError
from ludus.learning.allocation import keep_freed_memory
from ludus.learning.learner import Learner
from ludus.learning.ranks import ALONE, Ranks
from ludus.learning.rehearsal import Rehearsal
from ludus.networks.encoders import is_image
from ludus.registry import ALGORITHMS
from ludus.types import Spaces, space_tree, tree_leaves, tree_map, zeros
from ludus.watch import ram
from ludus.watch.ram import MB

if TYPE_CHECKING:
    import gymnasium as gym

    from ludus.algorithms import Algorithm
    from ludus.run import Run

TIGHT = 0.8
"""Share of the free memory or disk above which there is a warning."""
FEW = 256
"""So few environments fit on any machine."""
PROCESS = 150 * MB
"""Least memory that a process with torch has for itself."""
ROW = 128
"""Least bytes of one environment in the arrays of a native backend, besides observations and rewards."""
OBJECT = 4096
"""Least bytes of a Gymnasium environment: wrappers, spaces, a generator."""
REST, PER_ENV = 32 * 1024, 8 * 1024
"""Bytes of a checkpoint besides weights and moments: for counters and settings, and for each environment."""


@dataclass(frozen=True)
class Part:
    """Something that takes memory, and the settings that make it smaller."""

    name: str
    bytes: int
    knobs: str


def check_environments(config: ExperimentConfig) -> None:
    """Refuse, before they are made, more environments than memory can hold."""
    cfg, evaluation = config.environment, config.training.evaluation.num_envs
    for where, count in (("environment", number_of_envs(cfg)), ("training.evaluation", evaluation or 0)):
        if count <= FEW or cfg.vectorization == "envpool":
            continue
        native = cfg.vectorization in ("auto", "native") and resolve(cfg).spec.vector_entry_point is not None
        needed, free = VectorArrays.size(describe(cfg), count) + count * (ROW if native else OBJECT), ram.available()
        if needed > free:
            problem = f"{count:,} environments need at least {size(needed)}, {size(free)} are free"
            raise ResourceError(f"{where}.num_envs", problem, "lower it")


def check_processes(config: ExperimentConfig, ranks: Ranks) -> None:
    """Refuse to build a run of several ranks where there is one process."""
    if config.runtime.ranks != ranks.count:
        problem = f"{config.runtime.ranks} ranks are asked for, and this command trains in {ranks.count} process"
        raise ConfigError("runtime.ranks", problem, "use ludus train or ludus resume")


def check_ranks(config: ExperimentConfig) -> None:
    """Refuse what the ranks that a config asks for cannot share."""
    count, name = config.runtime.ranks, config.algorithm.name
    if not ALGORITHMS[name].data_parallel:
        able = ", ".join(name for name in ALGORITHMS.names() if ALGORITHMS[name].data_parallel)
        raise ConfigError("runtime.ranks", f"{name} does not learn over several ranks", f"set it to 1, or use {able}")
    if config.training.evaluation.background:
        problem = "a run over several ranks evaluates in its first rank"
        raise ConfigError("training.evaluation.background", problem, "set it to false")
    envs = number_of_envs(config.environment)
    if envs % count:
        problem = f"{envs} cannot be divided among {count} ranks"
        raise ConfigError("environment.num_envs", problem, f"use a multiple of {count}")
    config.algorithm.config.of_one_rank(count)


def check_room_for_ranks(count: int) -> None:
    """Refuse, before they are started, more processes on this machine than its memory can hold."""
    needed, free = count * PROCESS, ram.available()
    if needed > free:
        problem = f"{count:,} processes need at least {size(needed)}, {size(free)} are free"
        raise ResourceError("runtime.ranks", problem, "lower it, or start the ranks on several machines with torchrun")


def pick_device(name: str, ranks: Ranks = ALONE) -> torch.device:
    """`auto` is an accelerator if there is one, else the CPU; a named device must exist. Each rank has its own GPU."""
    if ranks.count > 1 and name in ("auto", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", ranks.local_rank % torch.cuda.device_count())
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    missing = (name.startswith("cuda") and not torch.cuda.is_available()) or (
        name == "mps" and not torch.backends.mps.is_available()
    )
    if missing:
        raise ConfigError("experiment.device", f"'{name}' is not available on this machine", "use auto or cpu")
    return torch.device(name)


def set_threads(config: ExperimentConfig, *, large: bool, ranks: Ranks = ALONE) -> None:
    """One thread for small networks, where more are slower; one per core, shared by the ranks, for large ones."""
    threads = config.runtime.threads
    if large:
        keep_freed_memory()
    torch.set_num_threads(threads if threads != "auto" else max(1, cores() // ranks.local_count) if large else 1)


def decline_compiling(run: Run) -> None:
    """Say why nothing is compiled where the algorithm or the device rules it out."""
    compiled = [learner for learner in run.learners.values() if learner.compiler]
    if run.ranks.count > 1:
        run.compiler.decline("ranks exchange their gradients in the middle of an update")
    elif not compiled:
        run.compiler.decline("this algorithm compiles none with this network")
    elif compiled[0].theta.device.type != "cpu":
        run.compiler.decline("they are compiled for the CPU only")


class RoomForNetwork(TorchDispatchMode):
    """A context in which weights that cannot fit are refused before they are allocated.

    A network takes at least its weights and their gradients; `check` adds the rest once it exists.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: otherwise torch imports its compiler, which takes a second at every start."""
        return False

    def __init__(self, algorithm: type[Algorithm]) -> None:
        super().__init__()
        self._bytes, self._free, self._remedy = 0, ram.available(), f"lower {width_of(algorithm)}"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.empty.memory_format:
            self._bytes += math.prod(args[0]) * (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
            if 2 * self._bytes > self._free:
                problem = f"the network needs at least {size(2 * self._bytes)}, {size(self._free)} are free"
                raise ResourceError("memory", problem, self._remedy)
        return func(*args, **kwargs)


def check(run: Run, folder: Path | None = None) -> list[str]:
    """`~N MB (...)` for the header, then warnings; what cannot fit is refused with the number and the setting to lower.

    `folder` is where checkpoints and buffers will be written, if anywhere.
    """
    if run.config.logging.wandb.enabled:
        from ludus.metrics.sinks import wandb

        wandb.check()
    parts = list(memory_parts(run))
    total, free = sum(part.bytes for part in parts), ram.available()
    biggest = max(parts, key=lambda part: part.bytes)
    if total > free:
        problem = f"the run needs about {size(total)}, {size(free)} are free; {biggest.name} {size(biggest.bytes)}"
        raise ResourceError("memory", problem, f"lower {biggest.knobs}")
    shown = ", ".join(f"{part.name} {size(part.bytes)}" for part in parts if part.bytes >= 0.05 * total)
    lines = [f"~{size(total)} ({shown})"]
    if total > TIGHT * free:
        lines.append(f"memory is tight: about {size(total)} of {size(free)}; lower {biggest.knobs}")
    if folder is not None:
        lines += _disk(run, folder)
    images = any(is_image(leaf) for leaf in tree_leaves(space_tree(run.spaces.observation)))
    if run.config.runtime.precision == "bfloat16" and not images:
        lines.append("runtime.precision: only convolutions compute in bfloat16, and observations have no images")
    return lines


def memory_parts(run: Run) -> Iterator[Part]:
    """The memory that the run will allocate once it starts."""
    steps = max((cfg.longest_rollout for cfg in run.phase_configs), default=0)
    if run.collector is not None:
        step = _step_bytes(run.spaces, normalized=run.normalizer is not None)
        # the collector's arrays, and a shuffled copy of them while updating
        rollout = 2 * (steps + 1) * run.collector.num_envs * step
        yield Part("rollouts", rollout, "environment.num_envs or algorithm.rollout_steps")
    for name, buffer in run.buffers.items():
        if buffer.cfg.storage == "ram" and not buffer.allocated:
            yield Part(f"buffer {name} of {buffer.size:,} steps", buffer.bytes, buffer.knobs)
    if kept := run.algorithm.stored_bytes():
        yield Part("encoded steps", kept, "the size of the buffers")
    for learner in run.learners.values():
        gradients = learner.theta.numel() * learner.theta.element_size()
        yield Part("network", saved_bytes(learner) + gradients, width_of(type(run.algorithm)))
        yield _updates(run, learner, steps)


def saved_bytes(learner: Learner) -> int:
    """Size of weights, slow copies and moments: what a checkpoint holds of a learner."""
    moments = [tensor for group in learner.groups.values() for tensor in group.optimizer.tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in (learner.theta, *moments))


def width_of(algorithm: type[Algorithm]) -> str:
    """The settings that make the networks of an algorithm smaller."""
    if algorithm.networks:
        return "the hidden dims under network"
    return "algorithm.size" if "size" in algorithm.Config.model_fields else "the widths under algorithm"


def size(count: float) -> str:
    """`0.4 MB`, `12 MB`, `3.4 GB`."""
    if count >= 1000 * MB:
        return f"{count / (1024 * MB):,.1f} GB"
    return f"{count / MB:,.{0 if count >= 10 * MB else 1}f} MB"


def _step_bytes(spaces: Spaces, *, normalized: bool) -> int:
    """One environment, one step: observation (and its normalised twin), action, reward, flags."""
    parts = tree_leaves(zeros(spaces.observation, 1))
    twin = sum(4 * part.size for part in parts if part.dtype != np.uint8) if normalized else 0
    return sum(part.nbytes for part in parts) + twin + int(zeros(spaces.action, 1).nbytes) + 4 + 3


def _updates(run: Run, learner: Learner, steps: int) -> Part:
    """Outputs of the layers: for a whole rollout without gradients, or for one minibatch with them."""
    rehearsal = Rehearsal(learner)
    kept = max((run.algorithm.activations(cfg, rehearsal) for cfg in run.phase_configs), default=0)
    if kept:
        kept += kept // 2  # gradients of the layers that are gone through backwards
        return Part("updates", kept, "algorithm.batch_size, algorithm.size or the length of sequences and dreams")
    rollout = steps * run.collector.num_envs if run.collector is not None else 0
    outputs = _outputs_per_step(learner, run.spaces.observation)
    whole = 2 * rollout * max(outputs, default=0)  # a layer's output, and the next one's
    recurrent = any(getattr(network, "recurrent", False) for network in learner.networks.values())
    batch = max(run.phase_configs[0].steps_per_batch(rollout), steps if recurrent else 0)  # whole sequences
    kept = 2 * batch * sum(outputs)  # with their gradients
    if whole > kept:
        return Part("updates", whole, "environment.num_envs or algorithm.rollout_steps")
    return Part("updates", kept, "algorithm.batch_size or the hidden dims under network")


def _outputs_per_step(learner: Learner, space: gym.Space) -> list[int]:
    """Bytes of the output of each layer for one observation, measured; empty for other kinds of models."""
    model: Any = next((network for network in learner.networks.values() if hasattr(network, "parts")), None)
    found: list[int] = []

    def count(_: Any, __: Any, output: Any) -> None:
        tensors = [part for part in (output if isinstance(output, tuple) else (output,)) if hasattr(part, "numel")]
        found.append(sum(tensor.numel() * tensor.element_size() for tensor in tensors))

    if model is None:
        return []
    hooks = [module.register_forward_hook(count) for module in model.modules() if not any(module.children())]
    try:
        with torch.no_grad():
            obs = tree_map(lambda leaf: torch.as_tensor(leaf, device=learner.theta.device), zeros(space, 1, 1))
            first = torch.ones(1, 1, dtype=torch.bool, device=learner.theta.device)
            model(obs, model.trunk.initial_state(1), first)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def disk_needed(run: Run) -> int:
    """Bytes of the checkpoints that stay, the best and the one being written, and of the buffers: the steps that can be
    sampled and those that only a checkpoint refers to."""
    one = sum(saved_bytes(learner) for learner in run.learners.values()) + run.algorithm.stored_bytes()
    keep = run.config.training.checkpoints.keep
    envs = run.collector.num_envs if run.collector is not None else 0
    return (keep + 2) * (one + REST + envs * PER_ENV) + (keep + 1) * _stored(run)


def _stored(run: Run) -> int:
    return sum(buffer.bytes for buffer in run.buffers.values() if buffer.own)


def _disk(run: Run, folder: Path) -> list[str]:
    """Compare what the run needs with what is free on the disk."""
    steps, wanted, free = _stored(run), disk_needed(run), _free(folder)
    if wanted > free:
        kinds = f"checkpoints and buffers of {size(steps)}" if steps else "checkpoints"
        problem = f"{kinds} need about {size(wanted)}, {size(free)} are free"
        raise ResourceError(
            str(folder), problem, "lower training.checkpoints.keep or choose another place with --runs-dir"
        )
    if wanted > TIGHT * free:
        return [f"the disk is nearly full: checkpoints need about {size(wanted)} of {size(free)}"]
    return []


def _free(folder: Path) -> int:
    """Free bytes on the disk where a folder is or will be; 0 if it cannot be made there."""
    for place in (folder, *folder.parents):
        with suppress(OSError):
            return shutil.disk_usage(place).free
    return 0
