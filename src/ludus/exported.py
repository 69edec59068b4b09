"""Greedy policies as ONNX or TorchScript files, for programs without Ludus; a JSON file beside each says how to use it.

Inputs are the parts of an observation as the network sees it ([B, ...]) and, for a policy with memory, `first` (bool
[B]) and the memory; outputs are the action and the memory after it. The JSON file also has the spaces of the
environment and, from the inside to the outside, the `wrappers` between it and the network: the program has to do what
they do to observations (stack frames, say) and to actions (map them to other numbers).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ludus import files
from ludus.acting.actor import TorchActor
from ludus.acting.behaviour import Behaviour, SampleClipped
from ludus.acting.exploration import AddNoise, EpsilonGreedy, SampleSquashed, is_box
from ludus.acting.numpy_actor import NumpyActor
from ludus.acting.uniform import single_bounds
from ludus.data.buffers.saving import describe_space
from ludus.data.normalizer import CLIP
from ludus.errors import ConfigError, DataError, MissingExtra
from ludus.math.distributions import Bernoulli, Categorical, DiagonalGaussian, Distribution, MultiCategorical
from ludus.types import Array, Tree, space_tree, tree_fill, tree_leaves, tree_map, tree_paths

if TYPE_CHECKING:
    from ludus.policy import Policy

FORMATS = ("onnx", "torchscript")
OPSET = 18
STEPS, BATCH = 5, 3
"""Size of the comparison with the policy itself."""
TOLERANCE = 1e-4


class GreedyNetwork(nn.Module):
    """Observation parts, and of a recurrent policy `first` and memory -> action, memory."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        behaviour = policy.player.algorithm.behaviour
        actor = behaviour.actor if isinstance(behaviour, Behaviour) else None
        if not isinstance(actor, TorchActor | NumpyActor):
            name = policy.config.algorithm.name
            raise ConfigError("export", f"policies of {name} cannot be exported", "use ludus.load_policy in Python")
        self.space, self.recurrent = policy.network_spaces.observation, actor.recurrent
        self.trunk = actor.trunk
        self.head = next(iter(actor.heads.values()))
        self.greedy = greedy_action(behaviour.strategy)
        self.memory = self.trunk.initial_state(1)
        parts = None if policy.player.normalizer is None else policy.player.normalizer.parts
        self.scales = [
            part and (torch.from_numpy(part.shift), torch.from_numpy(part.scale)) for part in tree_leaves(parts)
        ]

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs, in order."""
        parts = [path or "obs" for path in tree_paths(space_tree(self.space))]
        return [*parts, *(["first", *self.memories] if self.recurrent else [])]

    @property
    def memories(self) -> list[str]:
        """Names of the tensors of the memory."""
        return [f"memory_{i}" for i in range(len(tree_leaves(self.memory)))] if self.recurrent else []

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, in order."""
        return ["action", *(f"next_{name}" for name in self.memories)]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """One step."""
        count = len(tree_leaves(space_tree(self.space)))
        parts, rest = inputs[:count], inputs[count:]
        if any(scale is not None for scale in self.scales):
            parts = tuple(x if s is None else scaled(x, *s) for x, s in zip(parts, self.scales, strict=True))
        obs = tree_fill(space_tree(self.space), (part.unsqueeze(0) for part in parts))
        first = rest[0] if self.recurrent else torch.zeros(parts[0].shape[0], dtype=torch.bool)
        state = tree_fill(self.memory, rest[1:]) if self.recurrent else ()
        features, state = self.trunk(obs, state, first.unsqueeze(0))
        return self.greedy(self.head(features)[0]), *(tree_leaves(state) if self.recurrent else ())

    def example(self, batch: int, rng: np.random.Generator) -> list[Tensor]:
        """Inputs that fit: observations from the space, memories of a first step."""
        space = self.space
        space.seed(int(rng.integers(2**31)))
        drawn = [space.sample() for _ in range(batch)]
        leaves = [tree_leaves(_finite(space_tree(space), obs)) for obs in drawn]
        parts = [torch.from_numpy(np.stack(column)) for column in zip(*leaves, strict=True)]
        if not self.recurrent:
            return parts
        memory = tree_leaves(self.trunk.initial_state(batch))
        return [*parts, torch.ones(batch, dtype=torch.bool), *(leaf.contiguous() for leaf in memory)]


def _finite(spaces: Tree, obs: Tree) -> Tree:
    """Samples as arrays of their space's type; unbounded ones are drawn from a normal distribution by Gymnasium."""
    return tree_map(lambda space, value: np.asarray(value, space.dtype), spaces, obs)


def scaled(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """A normalised observation, as `ObservationNormalizer.apply` computes it."""
    return ((x - shift) * scale).clamp(-CLIP, CLIP)


def greedy_action(strategy: object) -> Callable[[Tensor], Tensor]:
    """How the output of the head [B, ...] becomes the greedy action, in torch."""
    if isinstance(strategy, EpsilonGreedy):
        atoms = torch.as_tensor(strategy.atoms)
        return lambda out: (out if strategy.head.atoms == 1 else (out.softmax(-1) * atoms).sum(-1)).argmax(-1)
    if isinstance(strategy, AddNoise | SampleSquashed) and is_box(strategy.space):
        space, shape = strategy.space, strategy.space.shape
        middle, half = (torch.from_numpy((space.high + sign * space.low) / 2) for sign in (1, -1))
        size = int(np.prod(shape))
        return _clipped(lambda out: middle + half * out[..., :size].tanh().reshape(-1, *shape), single_bounds(space))
    assert isinstance(strategy, SampleClipped)
    mode = _mode(strategy.distribution)
    return mode if strategy.bounds is None else _clipped(mode, strategy.bounds)


def _clipped(mode: Callable[[Tensor], Tensor], bounds: tuple[Array, Array]) -> Callable[[Tensor], Tensor]:
    low, high = map(torch.from_numpy, bounds)
    return lambda out: torch.maximum(torch.minimum(mode(out).float(), high), low)


def _mode(distribution: Distribution) -> Callable[[Tensor], Tensor]:
    shape = distribution.action_shape
    if isinstance(distribution, Categorical):
        return lambda params: params.argmax(-1)
    if isinstance(distribution, MultiCategorical):
        sizes = distribution.sizes
        return lambda params: torch.stack([part.argmax(-1) for part in params.split(sizes, -1)], -1).reshape(-1, *shape)
    if isinstance(distribution, Bernoulli):
        return lambda params: (params > 0).to(torch.int8).reshape(-1, *shape)
    assert isinstance(distribution, DiagonalGaussian)
    return lambda params: params[..., : distribution.size].reshape(-1, *shape)


def export_policy(policy: Policy, kind: str, path: Path) -> Path:
    """Write the policy and its JSON file; refuses to leave a file that acts otherwise than the policy."""
    network = GreedyNetwork(policy).eval()
    write, load = {"onnx": (_write_onnx, _load_onnx), "torchscript": (_write_torchscript, _load_torchscript)}[kind]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = files.beside(path)
    try:
        with torch.no_grad():
            write(network, beside)
            _compare(network, load(beside), path)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    files.write_json(path.with_suffix(path.suffix + ".json"), _facts(policy, network, kind))
    return path


def _facts(policy: Policy, network: GreedyNetwork, kind: str) -> dict[str, object]:
    memory = zip(network.memories, tree_leaves(network.memory), strict=True) if network.recurrent else ()
    return {
        "policy": policy.name,
        "format": kind,
        "observation": describe_space(policy.network_spaces.observation),
        "action": describe_space(policy.network_spaces.action),
        "inputs": network.inputs,
        "outputs": network.outputs,
        "memory": {name: {"shape": list(leaf.shape[1:]), "dtype": str(leaf.dtype)} for name, leaf in memory},
        "environment": {
            "observation": describe_space(policy.observation_space),
            "action": describe_space(policy.action_space),
        },
        "wrappers": [{"setting": call.where, **call.arguments} for call in policy.wrappers],
    }


def _write_torchscript(network: GreedyNetwork, path: Path) -> None:
    inputs = tuple(network.example(BATCH, np.random.default_rng(0)))
    with warnings.catch_warnings():  # about lengths in the trace; `_compare` tries other ones
        warnings.simplefilter("ignore", torch.jit._trace.TracerWarning)
        traced = torch.jit.trace(network, inputs, check_trace=False)
    torch.jit.freeze(traced).save(str(path))


def _load_torchscript(path: Path) -> Callable[[list[Tensor]], list[Tensor]]:
    module = torch.jit.load(str(path))
    return lambda inputs: list(out if isinstance(out := module(*inputs), tuple) else (out,))


def _write_onnx(network: GreedyNetwork, path: Path) -> None:
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise MissingExtra("export --format onnx", "onnx") from None
    inputs = tuple(network.example(BATCH, np.random.default_rng(0)))
    batch = torch.export.Dim("batch")
    torch.onnx.export(
        network,
        inputs,
        str(path),
        input_names=network.inputs,
        output_names=network.outputs,
        dynamic_shapes=(tuple({0: batch} for _ in inputs),),
        opset_version=OPSET,
        dynamo=True,
        verbose=False,
        external_data=False,
    )


def _load_onnx(path: Path) -> Callable[[list[Tensor]], list[Tensor]]:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("export --format onnx", "onnx") from None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]

    def call(inputs: list[Tensor]) -> list[Tensor]:
        fed = dict(zip(names, (x.numpy() for x in inputs), strict=True))
        return [torch.from_numpy(np.asarray(out)) for out in session.run(None, fed)]

    return call


def _compare(network: GreedyNetwork, exported: Callable[[list[Tensor]], list[Tensor]], path: Path) -> None:
    """Several steps with other batch sizes and episode starts; actions and memories have to agree."""
    for batch in (1, BATCH + 1):
        rng = np.random.default_rng(batch)
        inputs = network.example(batch, rng)
        for _ in range(STEPS):
            ours, theirs = network(*inputs), exported(inputs)
            if not all(torch.allclose(a.float(), b.float(), atol=TOLERANCE) for a, b in zip(ours, theirs, strict=True)):
                raise DataError(
                    str(path), "acts otherwise than the policy", "report it: this network cannot be exported"
                )
            following = network.example(batch, rng)
            inputs = (
                following
                if len(ours) == 1
                else [*following[: -len(ours)], torch.from_numpy(rng.random(batch) < 0.3), *ours[1:]]
            )
