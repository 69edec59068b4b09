"""A hash of the training state in a checkpoint, without wall-clock times."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from ludus.archive.tree import flatten


def fingerprint(state: Mapping[str, object]) -> str:
    """sha256 over weights, optimizer, normalisers, environments, random streams, settings and counters.

    Left out: callbacks and `about`, which do not influence training, and `places`, the positions of a buffer's steps in
    its files, since the checksums cover their content.
    """
    import torch

    tree, tensors = flatten(_without_times({k: v for k, v in state.items() if k not in ("callbacks", "about")}))
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _without_times(state: Mapping[str, object]) -> dict[str, object]:
    kept = {key: value for key, value in state.items() if not (isinstance(key, str) and _is_time(key))}
    return {key: _without_times(value) if isinstance(value, Mapping) else value for key, value in kept.items()}


def _is_time(key: str) -> bool:
    return key in ("seconds", "places") or "time/" in key or "system/" in key
