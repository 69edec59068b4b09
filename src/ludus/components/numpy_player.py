"""Acting with a world model in numpy: for a handful of environments a step in torch is nearly all dispatch.

Weights are views, so that nothing has to follow an update. Outputs are those of torch to rounding
(tests/components/test_numpy_player.py). Images and representations other than `rssm` act through torch.

Reading order: make_player -> NumpyPlayer -> memory_of. Shapes: B environments, D deterministic units, S latent
variables, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import elu, relu, silu

from ludus.acting.actor import Outputs
from ludus.acting.numpy_actor import as_vector_numpy
from ludus.components.actor import WorldPolicy
from ludus.components.encoder import WorldEncoder
from ludus.components.layers import NORM_EPS, Activation, BlockLinear, DenseLayer, Normed
from ludus.components.representation.rssm import GATE_EPS, RSSM, BlockCell, DenseCell
from ludus.components.world_model import WorldModel
from ludus.components.world_player import Heads, WorldPlayer
from ludus.kernels.normalization import silu_numpy
from ludus.types import Array, Tree, tree_leaves, tree_map

if TYPE_CHECKING:
    from torch import Tensor

Function = Callable[[Array], Array]
ACTIVATIONS: dict[Activation, Function] = {
    silu: silu_numpy,
    relu: lambda x: np.maximum(x, 0.0),
    elu: lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
}


def make_player(world: WorldModel, heads: Heads) -> WorldPlayer:
    """The fastest player of this world model; `heads` has an `actor`."""
    encoder, latent = world.encoder, world.representation
    dense = type(encoder) is WorldEncoder and not encoder.images and type(latent) is RSSM
    on_cpu = next(world.parameters()).device.type == "cpu"
    return (NumpyPlayer if dense and on_cpu and type(heads["actor"]) is WorldPolicy else WorldPlayer)(world, heads)


class NumpyPlayer(WorldPlayer):
    """Computes the latent state and the policy; other heads, which nobody reads while collecting, by torch."""

    def __init__(self, world: WorldModel, heads: Heads) -> None:
        super().__init__(world, heads)
        encoder, latent, actor = world.encoder, world.representation, heads["actor"]
        assert isinstance(encoder, WorldEncoder) and isinstance(latent, RSSM) and isinstance(actor, WorldPolicy)
        assert encoder.layers is not None
        self.embed, self.squeezed = mlp(encoder.layers), encoder.symlog
        self.memory, self.cfg = memory_of(latent.row.cell), latent.cfg
        self.inputs, self.normed = dense(latent.row.inputs.joined), normed(latent.row.normed)
        self.posterior = dense(latent.row.output)
        self.hidden, self.output, self.policy = mlp(actor.hidden), dense(actor.output), actor

    def initial_state(self, batch: int) -> Tree:
        return tree_map(lambda leaf: leaf.numpy(), super().initial_state(batch))

    def __call__(
        self, obs_B: Array, state: Tree, first_B: Array, rng: np.random.Generator | None = None
    ) -> tuple[Outputs, Tree]:
        h, z, action = state["latent"]["deter"], state["latent"]["stoch"], state["action"]
        if first_B.any():
            h, z, action = (leaf * ~first_B[:, None] for leaf in (h, z, action))
        h = self.memory(h, z, action)
        x = self.normed(self.inputs(np.concatenate([h, self.embed(self.vector(obs_B))], -1)))
        z = self.latent(self.posterior(x), rng)
        after = {"latent": {"deter": h, "stoch": z}, "action": state["action"]}
        return Outputs(len(first_B), self.heads, np.concatenate([h, z], -1), self.read), after

    def vector(self, obs_B: Tree) -> Array:
        """Observations as the encoder's layers take them."""
        parts, leaves = self.world.observed, tree_leaves(obs_B)
        vector = as_vector_numpy(tuple(leaves[i] for i in parts.others), parts.joined)
        return np.sign(vector) * np.log1p(np.abs(vector)) if self.squeezed else vector

    def latent(self, params: Array, rng: np.random.Generator | None) -> Array:
        """A sample of the posterior, or the likeliest latent."""
        cfg, batch = self.cfg, len(params)
        noise = None if rng is None else rng.standard_normal((1, batch, cfg.stoch), np.float32)[0]
        if cfg.latent == "gaussian":
            mean, raw = np.split(params, 2, -1)
            return (
                mean if noise is None else mean + (np.logaddexp(raw, np.float32(0)) + np.float32(cfg.min_std)) * noise
            )
        p_SC = mixed(params.reshape(batch, cfg.stoch, -1), cfg.unimix)
        if noise is None:
            index = p_SC.argmax(-1)
        else:
            uniform = torch.special.ndtr(torch.from_numpy(noise)).numpy()
            index = (uniform[..., None] >= p_SC.cumsum(-1)[..., :-1]).sum(-1)
        return np.eye(p_SC.shape[-1], dtype=np.float32)[index].reshape(batch, -1)

    def read(self, features_BF: Any, head: str) -> Array:
        if head != "actor":
            return super().read(torch.from_numpy(features_BF), head)
        raw, cfg = self.output(self.hidden(features_BF)), self.policy.cfg
        if self.policy.discrete:
            return np.log(mixed(raw, cfg.unimix))
        return self.policy.params(torch.from_numpy(raw)).numpy()

    def remember(self, state: Tree, action_B: Array) -> Tree:
        return {**state, "action": as_vector_numpy(action_B, self.world.spaces.action)}


def memory_of(cell: nn.Module) -> Callable[[Array, Array, Array], Array]:
    """A cell as a function of memory, latent and action."""
    return block_cell(cell) if isinstance(cell, BlockCell) else dense_cell(cell)  # type: ignore[arg-type]


def block_cell(cell: BlockCell) -> Callable[[Array, Array, Array], Array]:
    """`BlockCell` of one step."""
    parts = [layer(part) for part in (cell.memory, cell.latent, cell.action)]
    summary, own, norm, gates = view(cell.summary.weight.t()), blocks(cell.own), normed(cell.normed), blocks(cell.gates)

    def step(h: Array, z: Array, action: Array) -> Array:
        every = np.concatenate([part(x) for part, x in zip(parts, (h, z, action), strict=True)], -1)
        x = norm(every @ summary + own(h))
        found = gates(x).reshape(len(h), cell.blocks, 3, -1)
        return gated(h, *(found[:, :, i].reshape(h.shape) for i in range(3)))

    return step


def dense_cell(cell: DenseCell) -> Callable[[Array, Array, Array], Array]:
    """`DenseCell` of one step."""
    inputs, norm, gates = dense(cell.inputs.joined), normed(cell.normed), dense(cell.gates)
    norms = [view(part) for part in cell.gate_norm.parameters()]

    def step(h: Array, z: Array, action: Array) -> Array:
        x = norm(inputs(np.concatenate([z, action], -1)))
        found = gates(np.concatenate([x, h], -1))
        if norms:
            found -= found.mean(-1, keepdims=True)
            found *= norms[0] / np.sqrt((found * found).mean(-1, keepdims=True) + np.float32(GATE_EPS))
            found += norms[1]
        return gated(h, *np.split(found, 3, -1))

    return step


def gated(h: Array, reset: Array, candidate: Array, update: Array) -> Array:
    """`rssm.gated`."""
    return h + sigmoid(update - 1) * (np.tanh(sigmoid(reset) * candidate) - h)


def mixed(logits: Array, unimix: float) -> Array:
    """Probabilities with the uniform share mixed in."""
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p *= (1 - unimix) / p.sum(-1, keepdims=True)
    p += np.float32(unimix / p.shape[-1])
    return p


def mlp(layers: nn.Sequential) -> Function:
    """Layers one after the other."""
    functions = [layer(part) for part in layers]  # type: ignore[arg-type]

    def apply(x: Array) -> Array:
        for function in functions:
            x = function(x)
        return x

    return apply


def layer(part: DenseLayer) -> Function:
    """Linear, normalisation, activation."""
    linear, norm = dense(part.linear), normed(part.normed)
    return lambda x: norm(linear(x))


def dense(part: nn.Linear) -> Function:
    """A linear layer."""
    weight, bias = view(part.weight.t()), view(part.bias)

    def apply(x: Array) -> Array:
        x = x @ weight
        x += bias
        return x

    return apply


def normed(part: Normed) -> Function:
    """RMS normalisation in place, then the activation."""
    activation = ACTIVATIONS[part.activation]
    if part.scale is None:
        return activation
    scale, share = view(part.scale), np.float32(1 / len(part.scale))

    def apply(x: Array) -> Array:
        x *= scale / np.sqrt(np.vecdot(x, x) * share + np.float32(NORM_EPS))[:, None]
        return activation(x)

    return apply


def blocks(part: BlockLinear) -> Function:
    """Independent linear maps of the blocks of a vector."""
    weight, bias = view(part.weight), view(part.bias)

    def apply(x: Array) -> Array:
        parts = x.reshape(len(x), part.blocks, -1).swapaxes(0, 1) @ weight
        return parts.swapaxes(0, 1).reshape(len(x), -1) + bias

    return apply


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), for numbers of any size."""
    return 0.5 * np.tanh(0.5 * x) + 0.5


def view(tensor: Tensor) -> Array:
    """The weights themselves."""
    return tensor.detach().numpy()
