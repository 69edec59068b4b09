"""Before the first step: will it fit? Memory of rollouts, buffers, network and updates, and room for checkpoints."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ludus.config.schema import ExperimentConfig
from ludus.envs.make import describe, number_of_envs, resolve
from ludus.envs.vector.buffers import VectorArrays
from ludus.errors import ResourceError
from ludus.learning.learner import Learner
from ludus.types import space_tree, tree_leaves, tree_map, zeros
from ludus.watch import ram
from ludus.watch.ram import MB

if TYPE_CHECKING:
    import gymnasium as gym

    from ludus.orchestration.orchestrator import Orchestrator

TIGHT = 0.8
"""Share of what is free from which on a run is warned about."""
FEW = 256
"""Environments for which there is room anywhere."""
ROW = 128
"""Least bytes of one environment among the arrays of a native one, besides those everybody has."""
OBJECT = 4096
"""Least bytes that a Gymnasium environment takes by itself: wrappers, spaces, a generator."""
REST, PER_ENV = 32 * 1024, 8 * 1024
"""Bytes of a checkpoint beside weights and moments: counters, settings and sums, and the state of an environment."""


@dataclass(frozen=True)
class Part:
    """Something that takes memory, and what makes it smaller."""

    name: str
    bytes: int
    knobs: str


def check_environments(config: ExperimentConfig) -> None:
    """Refuse more environments than there could be room for before they are made; few are not worth a look."""
    cfg, evaluation = config.environment, config.training.evaluation.num_envs
    for where, count in (("environment", number_of_envs(cfg)), ("training.evaluation", evaluation or 0)):
        if count <= FEW or cfg.vectorization == "envpool":
            continue
        native = cfg.vectorization in ("auto", "native") and resolve(cfg).spec.vector_entry_point is not None
        needed, free = VectorArrays.size(describe(cfg), count) + count * (ROW if native else OBJECT), ram.available()
        if needed > free:
            problem = f"{count:,} environments need at least {size(needed)}, {size(free)} are free"
            raise ResourceError(f"{where}.num_envs", problem, "lower it")


class RoomForNetwork(TorchDispatchMode):
    """While inside, weights that cannot fit are refused before they are allocated.

    The least a network takes is its weights and their gradients; `check` knows the rest once it is there.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: torch would import all of its compiler for that, a second of every start."""
        return False

    def __init__(self) -> None:
        super().__init__()
        self._bytes, self._free = 0, ram.available()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.empty.memory_format:
            self._bytes += math.prod(args[0]) * (kwargs.get("dtype") or torch.get_default_dtype()).itemsize
            if 2 * self._bytes > self._free:
                problem = f"the network needs at least {size(2 * self._bytes)}, {size(self._free)} are free"
                raise ResourceError("memory", problem, "lower the hidden dims under network")
        return func(*args, **kwargs)


def check(config: ExperimentConfig, run: Orchestrator, folder: Path | None = None) -> list[str]:
    """`memory ~N MB (...)` for the header, then warnings; what cannot fit is refused with the number and the knob."""
    if config.logging.wandb.enabled:
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
        lines += _disk(config, run, folder)
    return lines


def memory_parts(run: Orchestrator) -> Iterator[Part]:
    """What the run will allocate once it starts."""
    collector: Any = run.stateful.get("collector")
    steps = max((getattr(cfg, "rollout_steps", 0) for cfg in run.phase_configs), default=0)
    if collector is not None:
        env = collector.env
        step = _step_bytes(env.observation_space, env.action_space, normalized=collector.normalizer is not None)
        # the collector's arrays, and a shuffled copy of them while updating
        rollout = 2 * (steps + 1) * env.num_envs * step
        yield Part("rollouts", rollout, "environment.num_envs or algorithm.rollout_steps")
    buffers: Any = run.stateful["buffers"]
    for name, buffer in buffers.items():
        if buffer.cfg.storage == "ram" and not buffer.allocated:
            yield Part(f"buffer {name} of {buffer.size:,} steps", buffer.bytes, f"buffers.{name}.size")
    for learner in _learners(run):
        gradients = learner.theta.numel() * learner.theta.element_size()
        yield Part("network", learner.bytes + gradients, "the hidden dims under network")
        yield _updates(run, learner, steps)


def size(count: float) -> str:
    """`0.4 MB`, `12 MB`, `3.4 GB`."""
    if count >= 1000 * MB:
        return f"{count / (1024 * MB):,.1f} GB"
    return f"{count / MB:,.{0 if count >= 10 * MB else 1}f} MB"


def _learners(run: Orchestrator) -> list[Learner]:
    return [part for part in run.algorithm.state().values() if isinstance(part, Learner)]


def _step_bytes(observation: gym.Space, action: gym.Space, *, normalized: bool) -> int:
    """One environment, one step: observation (and its normalised twin), action, reward, flags."""
    parts = tree_leaves(space_tree(observation))
    twin = sum(4 * _numbers(part) for part in parts if part.dtype != np.uint8) if normalized else 0
    return sum(map(_space_bytes, parts)) + twin + _space_bytes(action) + 4 + 3


def _space_bytes(space: gym.Space) -> int:
    return _numbers(space) * np.dtype(space.dtype or np.float32).itemsize


def _numbers(space: gym.Space) -> int:
    return int(np.prod(space.shape or (), dtype=np.int64))


def _updates(run: Orchestrator, learner: Learner, steps: int) -> Part:
    """A new rollout goes through the network as a whole; then one minibatch at a time, kept for its gradients."""
    collector: Any = run.stateful.get("collector")
    rollout = steps * collector.num_envs if collector is not None else 0
    assert run.spaces is not None
    outputs = _outputs_per_step(learner, run.spaces.observation)
    whole = 2 * rollout * max(outputs, default=0)  # a layer's output, and the next one's
    per_batch = getattr(run.phase_configs[0], "steps_per_batch", lambda size: size)
    recurrent = any(getattr(network, "recurrent", False) for network in learner.networks.values())
    batch = max(per_batch(rollout), steps if recurrent else 0)  # whole sequences
    kept = 2 * batch * sum(outputs)  # and the gradients of all
    if whole > kept:
        return Part("updates", whole, "environment.num_envs or algorithm.rollout_steps")
    return Part("updates", kept, "algorithm.batch_size or the hidden dims under network")


def _outputs_per_step(learner: Learner, space: gym.Space) -> list[int]:
    """Bytes that each layer puts out for one observation, measured with one; none for models of another shape."""
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
            model(obs, model.initial_state(1), first)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _disk(config: ExperimentConfig, run: Orchestrator, folder: Path) -> list[str]:
    """Checkpoints: weights and moments, those that stay, the best, and the one being written; buffers: the steps that
    are alive, and those that only a checkpoint still refers to."""
    one = sum(learner.bytes for learner in _learners(run))
    buffers: Any = run.stateful["buffers"]
    steps = sum(buffer.bytes for buffer in buffers.values() if buffer.own)
    keep = config.training.checkpoints.keep
    collector: Any = run.stateful.get("collector")
    envs = collector.num_envs if collector is not None else 0
    wanted = (keep + 2) * (one + REST + envs * PER_ENV) + (keep + 1) * steps
    free = _free(folder)
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
    """Bytes where a folder is or will be; one that cannot be at all is refused by whoever makes it."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return 0
