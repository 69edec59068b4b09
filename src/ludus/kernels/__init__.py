"""Autograd kernels of memory cores, with hand-written backward passes."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd.function import FunctionCtx


class Kept(FunctionCtx):
    """What a forward pass keeps for its backward pass."""

    saved_tensors: tuple[Tensor, ...]
    arrays: Any
    """Everything that is no tensor."""
