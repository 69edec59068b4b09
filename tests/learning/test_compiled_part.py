"""A module as machine code: when it is used, with which weights, and that it computes the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.learning.compiled import Compiler
from ludus.learning.compiled_part import CompiledPart


class Pretended:
    """A compiler whose code is the function itself; it counts what it was asked for."""

    def __init__(self, sizes: set[int], *, works: bool = True) -> None:
        self.sizes, self.works, self.asked = sizes, works, 0

    def get(self, function: Any, example: list[torch.Tensor], size: int) -> Any:
        self.asked += 1
        assert not any(x.requires_grad for x in example) and size == 8
        return lambda: (lambda arguments: function(*arguments)) if self.works else None


def part(compiler: Any) -> tuple[CompiledPart, torch.nn.Module]:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    return CompiledPart(module, compiler, 8), module


def test_code_is_used_where_updates_of_that_size_are_compiled() -> None:
    """Once for each shape, and with the weights of now; nothing has a gradient."""
    x = torch.randn(5, 3)
    for compiler, count in ((None, 0), (Pretended({9}), 0), (Pretended({8}), 1), (Pretended({8}, works=False), 1)):
        run, module = part(compiler)
        for _ in range(2):
            found = run(x)
            assert not found.requires_grad and torch.equal(found, module(x))
            with torch.no_grad():
                module[0].weight.add_(1.0)
        assert compiler is None or compiler.asked == count
    run(torch.randn(2, 3))
    assert compiler is not None and compiler.asked == 2


def test_the_decision_is_that_of_the_run() -> None:
    """A resumed run takes it over before it has learned anything."""
    compiler = Compiler("never", planned={8: 10**9})
    run, _ = part(compiler)
    run.known[(torch.Size([1, 3]),)] = lambda _: [torch.tensor([[7.0]])]
    assert run(torch.zeros(1, 3)).item() != 7.0
    compiler.load_state_dict({"sizes": [8], "reason": ""})
    assert run(torch.zeros(1, 3)).item() == 7.0
    assert run(torch.zeros(3, 1).expand(3, 1).T).item() == 7.0  # inputs are made contiguous


@pytest.mark.slow
def test_machine_code_computes_the_same(tmp_path: Any) -> None:
    compiler = Compiler("always", planned={8: 1}, folder=tmp_path)
    if not compiler.sizes:
        pytest.skip(compiler.reason)
    run, module = part(compiler)
    x = torch.randn(5, 3)
    torch.testing.assert_close(run(x), module(x).detach())
    assert run.known[(x.shape,)] is not None
