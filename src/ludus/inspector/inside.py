"""Looks into a policy at one step: what its decision depends on, and what its layers do.

Reading order: saliency -> occlusion; layers -> Watch. Shapes: T steps, N variants of one observation, C channels.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ludus.inspector.observations import Observations
from ludus.inspector.pictures import grid, png, shades
from ludus.inspector.recording import Played
from ludus.types import ActResult, Array, Tree, to_device, tree_fill, tree_index, tree_leaves, tree_map

PATCHES = 12
"""Patches of an image in each direction that are covered one after the other."""
MOST_AT_ONCE = 64
MOST_STEPS = 512
"""Steps over which units are watched."""
ACTIVATIONS = ("relu", "relu_", "tanh", "elu", "silu", "gelu", "leaky_relu", "mish", "softplus")
CONVOLUTIONS = ("conv2d",)


def look(played: Played, t: int) -> dict[str, Any]:
    """Everything about one step."""
    return {"t": t, **saliency(played, t), **layers(played, t)}


# ---- what a decision depends on ------------------------------------------------------------------


def saliency(played: Played, t: int) -> dict[str, Any]:
    """Gradient x input of the decision, where there is a gradient, and occlusion, which every policy allows."""
    seen = Observations(played.env.observation_space, played.steps, played.player.normalizer)
    leaves = tree_leaves(seen.for_policy())
    gradients, why = gradient_times_input(played, t)
    found: dict[str, Any] = {"without_gradient": why, "labels": seen.names, "target": _target(played)}
    covered = occlusion(played, t, leaves, seen)
    for name, parts in (("gradient", gradients), ("occlusion", covered)):
        if parts is not None:
            numbers = [np.abs(parts[i]).ravel() for i in seen.numbers]
            found[name] = [float(x) for x in np.concatenate([*numbers, np.zeros(0)])]
            maps = [np.abs(parts[i]).reshape(-1, *parts[i].shape[-2:]).sum(0) for i in seen.images]
            found[f"{name}_map"] = [picture(shades(one, 0.0)) for one in maps]
    return found


def gradient_times_input(played: Played, t: int) -> tuple[list[Array] | None, str]:
    """By part of the observation; or why there is none."""
    actor: Any = played.actor
    trunk, device = getattr(actor, "trunk", None), _device(actor)
    if trunk is None or not hasattr(actor, "heads"):
        return None, "this policy does not act by an encoder and a head, so there is no gradient to follow"
    obs = tree_index(to_device(_normalised(played, t), device), None)
    inputs = [_followed(leaf) for leaf in tree_leaves(obs)]
    wanted = [leaf for leaf in inputs if leaf.requires_grad]
    if not wanted:
        return None, "observations are choices, not numbers, so there is no gradient"
    first = torch.tensor([[bool(played.steps[t].first[0])]], device=device)
    with torch.enable_grad():
        features, _ = trunk(tree_fill(obs, inputs), to_device(_state(played, t), device), first)
        out = next(iter(actor.heads.values()))(features)[0, 0]
        slopes = iter(torch.autograd.grad(_chosen(out, played, t), wanted, allow_unused=True))
    found = []
    for leaf in inputs:
        slope = next(slopes) if leaf.requires_grad else None
        product = torch.zeros_like(leaf, dtype=torch.float32) if slope is None else slope * leaf.detach()
        found.append(product[0, 0].cpu().numpy())
    return found, ""


def _chosen(out_P: Tensor, played: Played, t: int) -> Tensor:
    """What the head says about the chosen action; of continuous actions the sum of the means."""
    action = np.asarray(played.steps[t].action[0])
    if action.ndim == 0:
        return out_P[int(action)].sum()
    return out_P[: action.size].sum()


def _followed(leaf: Tensor) -> Tensor:
    """A part of the observation as numbers with a gradient; choices stay as they are."""
    return leaf.float().requires_grad_() if leaf.is_floating_point() or leaf.dtype == torch.uint8 else leaf


def _device(actor: Any) -> torch.device:
    """Where an actor computes: an encoder of vectors may have no weights of its own, heads have."""
    parts = [actor.trunk, *actor.heads.values()] if hasattr(actor, "trunk") else []
    return next((p.device for part in parts for p in part.parameters()), torch.device("cpu"))


def occlusion(played: Played, t: int, leaves: Sequence[Array], seen: Observations) -> list[Array]:
    """How much the decision changes when a number, or a patch of an image, is replaced by its mean of the episode."""
    obs = _normalised(played, t)
    own = tree_leaves(obs)
    base = _decision(played, obs, t, 1)[0]
    found = []
    for i, leaf in enumerate(own):
        neutral = np.asarray(leaves[i].mean(0) if leaves[i].dtype.kind == "f" else np.median(leaves[i], 0)).astype(
            leaf.dtype
        )
        change = np.zeros(leaf.shape[1:], np.float64)
        masks = list(_patches(leaf.shape[1:]) if i in seen.images else _places(leaf.shape[1:]))
        for start in range(0, len(masks), MOST_AT_ONCE):
            batch = masks[start : start + MOST_AT_ONCE]
            variants = np.repeat(leaf, len(batch), 0)
            for row, mask in zip(variants, batch, strict=True):
                row[mask] = neutral[mask]
            tree = tree_fill(
                obs, [variants if k == i else np.repeat(part, len(batch), 0) for k, part in enumerate(own)]
            )
            for mask, decision in zip(batch, _decision(played, tree, t, len(batch)), strict=True):
                change[mask] = np.abs(decision - base).sum()
        found.append(change)
    return found


def _decision(played: Played, obs_N: Tree, t: int, count: int) -> Array:
    """[N, ...]: probabilities, means or values of actions for variants of the observation at step t."""
    state = tree_map(lambda leaf: _repeated(leaf, count), _state(played, t))
    first = np.repeat(played.steps[t].first, count)
    result: ActResult = played.player.algorithm.act(obs_N, state, first, deterministic=True)
    name = next((name for name in ("q", "probabilities", "mean") if name in result.info), None)
    told = result.action if name is None else result.info[name]
    return np.asarray(told, np.float64).reshape(count, -1)


def _target(played: Played) -> str:
    known = played.facts[0]
    return next((name for name in ("q", "probabilities", "mean") if name in known), "action")


def _normalised(played: Played, t: int) -> Tree:
    obs, normalizer = played.steps[t].obs, played.player.normalizer
    return obs if normalizer is None else normalizer.apply(obs)


def _state(played: Played, t: int) -> Tree:
    state = played.states[t]
    return played.player.algorithm.initial_state(1) if state is None else state


def _repeated(leaf: Any, count: int) -> Any:
    return leaf.repeat_interleave(count, 0) if isinstance(leaf, Tensor) else np.repeat(leaf, count, 0)


def _places(shape: tuple[int, ...]) -> Iterator[Any]:
    return iter(np.ndindex(*shape)) if shape else iter([()])


def _patches(shape: tuple[int, ...]) -> Iterator[Any]:
    _, height, width = shape
    tall, wide = (max(-(-side // PATCHES), 1) for side in (height, width))
    for y in range(0, height, tall):
        for x in range(0, width, wide):
            yield (slice(None), slice(y, y + tall), slice(x, x + wide))


# ---- what layers do ------------------------------------------------------------------------------


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
        return {"filters": [], "maps": [], "units": []}
    seen = Observations(played.env.observation_space, played.steps[:MOST_STEPS], played.player.normalizer)
    device = _device(actor) if trunk is not None else next(part.parameters()).device
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
        part(tree_index(to_device(_normalised(played, t), device), None))
    convolutions = [layer for layer in part.modules() if isinstance(layer, nn.Conv2d)]
    return {
        "filters": [_filters(layer) for layer in convolutions],
        "maps": [_map(out) for out in now.maps],
        "units": [_units(i, name, out) for i, (name, out) in enumerate(whole.active)],
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


def picture(image: Array) -> str:
    """A picture as text for JSON."""
    return base64.b64encode(png(image)).decode()
