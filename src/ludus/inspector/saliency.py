"""What a decision depends on: gradient x input, GradCAM, occlusion.

Shapes: T steps, N variants of one observation, P outputs of the head, C channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ludus.inspector.layers import Watch
from ludus.inspector.observations import Observations
from ludus.inspector.pictures import picture, shades
from ludus.inspector.recording import Played, device_of, normalised
from ludus.types import ActResult, Array, Tree, to_device, tree_fill, tree_index, tree_leaves, tree_map

PATCHES = 12
"""Patches of an image in each direction that are covered one after the other."""
MOST_AT_ONCE = 64


def saliency(played: Played, t: int) -> dict[str, Any]:
    """Gradient x input of the decision, where there is a gradient, and occlusion, which every policy allows."""
    seen = Observations(played.env.observation_space, played.steps, played.player.normalizer)
    leaves = tree_leaves(seen.for_policy())
    gradients, cam, why = gradient_times_input(played, t)
    found: dict[str, Any] = {"without_gradient": why, "labels": seen.names, "target": _target(played)}
    if cam is not None and seen.images:
        name = "what speaks for the chosen action" if float(cam.max()) > 0 else "nothing speaks for the chosen action"
        stretched = _stretched(cam, (seen.spaces[seen.images[-1]].shape or ())[-2:])
        found["cam"] = {"name": name, "picture": picture(shades(stretched, 0.0))}
    covered = occlusion(played, t, leaves, seen)
    for name, parts in (("gradient", gradients), ("occlusion", covered)):
        if parts is not None:
            numbers = [np.abs(parts[i]).ravel() for i in seen.numbers]
            found[name] = [float(x) for x in np.concatenate([*numbers, np.zeros(0)])]
            maps = [np.abs(parts[i]).reshape(-1, *parts[i].shape[-2:]).sum(0) for i in seen.images]
            found[f"{name}_map"] = [picture(shades(one, 0.0)) for one in maps]
    return found


def gradient_times_input(played: Played, t: int) -> tuple[list[Array] | None, Tensor | None, str]:
    """By part of the observation, and GradCAM if there is a convolution; or why there is none."""
    actor: Any = played.actor
    trunk, device = getattr(actor, "trunk", None), device_of(actor)
    if trunk is None or not hasattr(actor, "heads"):
        return None, None, "this policy does not act by an encoder and a head, so there is no gradient to follow"
    obs = tree_index(to_device(normalised(played, t), device), None)
    inputs = [_followed(leaf) for leaf in tree_leaves(obs)]
    wanted = [leaf for leaf in inputs if leaf.requires_grad]
    if not wanted:
        return None, None, "observations are choices, not numbers, so there is no gradient"
    first = torch.tensor([[bool(played.steps[t].first[0])]], device=device)
    with torch.enable_grad(), Watch() as watch:
        features, _ = trunk(tree_fill(obs, inputs), to_device(_state(played, t), device), first)
        out = next(iter(actor.heads.values()))(features)[0, 0]
        last = watch.maps[-1:]
        slopes = iter(torch.autograd.grad(_chosen(out, played, t), [*wanted, *last], allow_unused=True))
    found = []
    for leaf in inputs:
        slope = next(slopes) if leaf.requires_grad else None
        product = torch.zeros_like(leaf, dtype=torch.float32) if slope is None else slope * leaf.detach()
        found.append(product[0, 0].cpu().numpy())
    return found, next((grad_cam(out, slope) for out, slope in zip(last, slopes, strict=True)), None), ""


def grad_cam(maps_NCHW: Tensor, slope_NCHW: Tensor) -> Tensor:
    """[H, W]: the maps of the last convolution, each by its mean slope; only what speaks for the decision."""
    return (slope_NCHW.mean((-2, -1), keepdim=True) * maps_NCHW).sum(1)[-1].clamp(min=0).detach()


def _stretched(cam_HW: Tensor, size: tuple[int, ...]) -> Array:
    return torch.nn.functional.interpolate(cam_HW[None, None].cpu(), size, mode="bilinear")[0, 0].numpy()


def _chosen(out_P: Tensor, played: Played, t: int) -> Tensor:
    """What the head says about the chosen action; of continuous actions the sum of the means."""
    action = np.asarray(played.steps[t].action[0])
    if action.ndim == 0:
        return out_P[int(action)].sum()
    return out_P[: action.size].sum()


def _followed(leaf: Tensor) -> Tensor:
    """A part of the observation as numbers with a gradient; choices stay as they are."""
    return leaf.float().requires_grad_() if leaf.is_floating_point() or leaf.dtype == torch.uint8 else leaf


def occlusion(played: Played, t: int, leaves: Sequence[Array], seen: Observations) -> list[Array]:
    """How much the decision changes when a number, or a patch of an image, is replaced by its mean of the episode."""
    obs = normalised(played, t)
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
