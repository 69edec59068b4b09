"""One hash over everything a checkpoint says about learning, wall-clock times left out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ludus.runs.tree import flatten


def fingerprint(state: Mapping[str, Any]) -> str:
    """sha256 over weights, optimizer, normalisers, environments, random streams, settings and counters.

    What merely watches a run (callbacks) or describes it (about) is left out: a repetition may be watched by others;
    and so is where in its files a buffer keeps its steps (`places`), since their content is in the sums.
    """
    import torch

    tree, tensors = flatten(_without_times({k: v for k, v in state.items() if k not in ("callbacks", "about")}))
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _without_times(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {k: _without_times(v) for k, v in state.items() if not (isinstance(k, str) and _is_time(k))}
    return state


def _is_time(key: str) -> bool:
    return key in ("seconds", "places") or "time/" in key or "system/" in key
