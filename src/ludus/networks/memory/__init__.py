"""Memory cores behind one signature; `type:` in the config picks the file.

    forward(x_TBD, state, first_TB) -> (y_TBH, state)

`first_TB` marks steps that begin an episode: resets are an input, and nothing may leak across them. One call over T
steps equals T calls over one step, for any pattern of `first` (tests/contracts/test_memory.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ludus.types import Array, Tree

if TYPE_CHECKING:
    from ludus.config.model import Model


Step = Callable[[Array, Tree, Array], tuple[Array, Tree]]
"""(x_BD, state, first_B) -> (y_BH, state) in numpy."""
Take = Callable[[Tensor], Array]


class MemoryCore(nn.Module, ABC):
    """A sequence model with explicit state."""

    Config: type[Model]
    out_dim: int
    recurrent: bool = True
    """Whether the state matters: sequences must then stay whole in minibatches."""

    @abstractmethod
    def initial_state(self, batch: int) -> Tree:
        """State before an episode, batch first."""

    @abstractmethod
    def forward(self, x_TBD: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """Outputs for T steps and the state after the last one."""

    def numpy_step(self, take: Take) -> Step | None:
        """One step in numpy on weights that `take` copies or views, for acting on the CPU; none acts in torch."""
        return None
