"""Autograd kernels of memory cores, with hand-written backward passes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


class Kept(FunctionCtx):
    """What a forward pass keeps for its backward pass."""

    saved_tensors: tuple[Tensor, ...]
    arrays: Any
    """Everything that is no tensor."""


def plain() -> bool:
    """Whether the network is being written to a file: no exporter knows hand-written kernels, so formulas take over."""
    return torch.jit._trace.is_tracing() or torch.compiler.is_exporting()
