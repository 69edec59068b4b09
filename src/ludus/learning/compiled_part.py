"""A module without gradients as machine code, where the updates of a run are compiled: planning while collecting."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module

from ludus.learning.compiled import Compiler
from ludus.learning.package import Compiled


class CompiledPart:
    """Runs a module that returns one tensor, by code for each shape of its inputs, or as it is.

    `size` is that of the updates which are compiled or not: a resumed run decides alike before its first update.
    """

    def __init__(self, module: nn.Module, compiler: Compiler | None, size: int) -> None:
        self.module, self.compiler, self.size = module, compiler, size
        self.names, parameters = zip(*module.named_parameters(), strict=True)
        self.parameters: tuple[nn.Parameter, ...] = parameters
        self.known: dict[tuple[torch.Size, ...], Compiled | None] = {}

    @torch.no_grad()
    def __call__(self, *inputs: Tensor) -> Tensor:
        """The module's output."""
        if self.compiler is None or self.size not in self.compiler.sizes or inputs[0].device.type != "cpu":
            return self.module(*inputs)
        inputs = tuple(x.contiguous() for x in inputs)
        key = tuple(x.shape for x in inputs)
        if key not in self.known:
            self.known[key] = self._compile(self.compiler, inputs)
        code = self.known[key]
        return self.module(*inputs) if code is None else code([*self.parameters, *inputs])[0]

    def _compile(self, compiler: Compiler, inputs: tuple[Tensor, ...]) -> Compiled | None:
        count = len(self.names)

        def run(*arguments: Tensor) -> tuple[Tensor]:
            with _reparametrize_module(self.module, dict(zip(self.names, arguments[:count], strict=True))):
                return (self.module(*arguments[count:]),)

        return compiler.get(run, [*(p.detach() for p in self.parameters), *inputs], self.size)()
