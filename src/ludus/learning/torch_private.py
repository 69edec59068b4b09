"""Every private symbol of torch that learning uses, so that a new version of torch is checked in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

fused_adam = torch._fused_adam_
"""Adam in place over lists of tensors, one kernel for each; what `torch.optim.Adam(fused=True)` calls."""
fused_adamw = torch._fused_adamw_
"""The same with decoupled weight decay."""


def reparametrized(module: nn.Module, tensors: Mapping[str, Tensor]) -> AbstractContextManager[None]:
    """Inside it, the named parameters of a module are these tensors, for each of its methods.

    `torch.func.functional_call` does the same, but for `forward` only.
    """
    from torch.nn.utils.stateless import _reparametrize_module

    return _reparametrize_module(module, dict(tensors), tie_weights=True)


def load_machine_code(path: str) -> Callable[[list[Tensor]], list[Tensor]]:
    """A function of tensors from a shared library that `torch._inductor.aot_compile` wrote."""
    return torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1).run
