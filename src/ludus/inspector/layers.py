"""What the layers of a policy do: filters and activations of convolutions, what excites them most, dead units.

Shapes: T steps, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ludus.inspector.observations import Observations
from ludus.inspector.pictures import grid, picture, shades
from ludus.inspector.recording import Played, device_of, normalised
from ludus.types import Array, Tree, to_device, tree_fill, tree_index, tree_leaves

MOST_STEPS = 512
"""Steps over which units are watched."""
MOST_STRONGEST = 9
"""Channels of a layer: each takes a pass forward and back."""
ACTIVATIONS = ("relu", "relu_", "tanh", "elu", "silu", "gelu", "leaky_relu", "mish", "softplus")
CONVOLUTIONS = ("conv2d",)


class Watch(TorchFunctionMode):
    """Notes what convolutions and activation functions return: encoders call functions, which no module hook sees."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: list[Tensor] = []
        self.active: list[tuple[str, Tensor]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
        if name in CONVOLUTIONS:
            self.maps.append(out)  # what follows in place, such as relu_, is seen too
        elif name in ACTIVATIONS:
            self.active.append((name.rstrip("_"), out))
        return out


@torch.no_grad()
def layers(played: Played, t: int) -> dict[str, Any]:
    """Filters and maps of convolutions at step t, and units that never change over the episode."""
    actor: Any = played.actor
    trunk, world = getattr(actor, "trunk", None), played.player.algorithm.world
    part: nn.Module | None = trunk.encoder if trunk is not None else getattr(world, "encoder", None)
    if part is None:
        return {"filters": [], "maps": [], "units": [], "strongest": []}
    seen = Observations(played.env.observation_space, played.steps[:MOST_STEPS], played.player.normalizer)
    device = device_of(actor) if trunk is not None else next(part.parameters()).device
    obs_T = tree_index(to_device(seen.for_policy(), device), (slice(None), None))
    with Watch() as whole:
        if trunk is not None:
            first = torch.zeros(len(seen.steps), 1, dtype=torch.bool, device=device)
            first[0] = True
            features, _ = trunk(obs_T, trunk.initial_state(1), first)
            next(iter(actor.heads.values()))(features)
        else:
            part(obs_T)
    with Watch() as now:
        part(tree_index(to_device(normalised(played, t), device), None))
    convolutions = [layer for layer in part.modules() if isinstance(layer, nn.Conv2d)]
    return {
        "filters": [_filters(layer) for layer in convolutions],
        "maps": [_map(out) for out in now.maps],
        "units": [_units(i, name, out) for i, (name, out) in enumerate(whole.active)],
        "strongest": strongest(part, obs_T, whole.maps, seen),
    }


def _filters(layer: nn.Conv2d) -> dict[str, Any]:
    weight = layer.weight.detach().cpu().numpy()
    name = f"{weight.shape[1]} to {weight.shape[0]} channels, {weight.shape[2]} x {weight.shape[3]}"
    return {"name": name, "picture": picture(grid(np.stack([shades(one.mean(0)) for one in weight])))}


def _map(out: Tensor) -> dict[str, Any]:
    maps = out.detach().float().cpu().numpy()[-1]
    most = float(maps.max())
    name = f"{maps.shape[0]} maps of {maps.shape[1]} x {maps.shape[2]}"
    return {"name": name, "picture": picture(grid(shades(maps, 0.0, most if most > 0 else 1.0)))}


def _units(i: int, name: str, out: Tensor) -> dict[str, Any]:
    """Units of an activation: the channels of maps [T, C, H, W], or the last dimension."""
    values = out.detach().float().cpu()
    flat = values.movedim(1, -1).flatten(0, -2) if values.ndim == 4 else values.flatten(0, -2)
    dead = (flat.amax(0) - flat.amin(0)).abs() < 1e-6
    return {"name": f"{i + 1}: {name}", "units": flat.shape[1], "dead": int(dead.sum()), "mean": float(flat.mean())}


def strongest(part: nn.Module, obs_T: Tree, maps: Sequence[Tensor], seen: Observations) -> list[dict[str, Any]]:
    """Of each convolution the channels' maximal activations: the step, and the part of the image that made it."""
    if len(seen.images) != 1:  # of several images nobody knows which one a map belongs to
        return []
    found = []
    for layer, out in enumerate(maps):
        patches, steps = [], []
        for channel in range(min(out.shape[1], MOST_STRONGEST)):
            values = out[:, channel]
            at = int(values.argmax())
            if len(out) != len(seen.steps) or float(values.max()) <= float(values.min()):
                continue
            step, *place = (int(i) for i in np.unravel_index(at, tuple(values.shape)))
            patches.append(_seen_by(part, tree_index(obs_T, slice(step, step + 1)), layer, (channel, *place), seen))
            steps.append(step)
        if patches:
            size = tuple(max(patch.shape[i] for patch in patches) for i in range(2))
            tiles = [np.pad(p, [(0, size[0] - p.shape[0]), (0, size[1] - p.shape[1])]) for p in patches]
            name = f"layer {layer + 1}, up to {size[0]} x {size[1]} pixels, at steps {', '.join(map(str, steps))}"
            found.append({"name": name, "picture": picture(grid(np.stack(tiles)))})
    return found


@torch.enable_grad()
def _seen_by(part: nn.Module, obs_1: Tree, layer: int, unit: tuple[int, ...], seen: Observations) -> Array:
    """The pixels that a unit of a convolution depends on, as shades of their mean over channels."""
    leaves = tree_leaves(obs_1)
    image = leaves[seen.images[0]].float().requires_grad_()
    with Watch() as watch:
        part(tree_fill(obs_1, [image if i == seen.images[0] else leaf for i, leaf in enumerate(leaves)]))
    (slope,) = torch.autograd.grad(watch.maps[layer][(0, *unit)], image)
    touched = slope.abs().flatten(0, -3).sum(0).cpu().numpy() > 0
    rows, columns = np.flatnonzero(touched.any(1)), np.flatnonzero(touched.any(0))
    shown = shades(image.detach().flatten(0, -3).mean(0).cpu().numpy())
    if not len(rows):  # the activation function lets nothing through
        return shown[:1, :1]
    return shown[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
