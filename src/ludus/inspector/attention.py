"""What a transformer's memory looks at: weights over the steps before each step.

Shapes: T steps, L layers, M remembered steps, N heads, K chunks of Q queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ludus.acting.actor import Actor
from ludus.networks.attention import Attention, AttentionWindow
from ludus.types import Array, Tree, to_device, tree_index, tree_leaves


@torch.no_grad()
def attention_over(actor: Actor | None, obs_T: Tree) -> Array | None:
    """[T, L, M + 1], mean of the heads: the last number is the step itself, those before are the steps before it.

    None for a policy without attention. One pass over all steps equals the single ones of the episode.
    """
    trunk: Any = getattr(actor, "trunk", None)
    layers = [] if trunk is None else [part for part in trunk.memory.modules() if isinstance(part, Attention)]
    if not layers:
        return None
    found: dict[int, Array] = {}

    def note(layer: Attention, inputs: tuple[Tensor, AttentionWindow], _: Tensor) -> None:
        weights_BKNQW, _values = layer.weights(*inputs)
        found[layers.index(layer)] = rows(weights_BKNQW[0].mean(1).cpu().numpy(), inputs[1].memory, inputs[1].steps)

    hooks = [layer.register_forward_hook(note) for layer in layers]
    device = next(trunk.parameters()).device
    steps = len(tree_leaves(obs_T)[0])
    first = torch.zeros(steps, 1, dtype=torch.bool, device=device)
    first[0] = True
    try:
        trunk(tree_index(to_device(obs_T, device), (slice(None), None)), trunk.initial_state(1), first)
    finally:
        for hook in hooks:
            hook.remove()
    return np.stack([found[i] for i in sorted(found)], 1)


def rows(weights_KQW: Array, memory: int, steps: int) -> Array:
    """[T, M + 1] from chunks: query i of a chunk sees keys i ... i + M."""
    chunks, queries, _ = weights_KQW.shape
    seen = [weights_KQW[k, i, i : i + memory + 1] for k in range(chunks) for i in range(queries)]
    return np.stack(seen)[:steps]
