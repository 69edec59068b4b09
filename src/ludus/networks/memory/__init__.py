"""Memory cores behind one signature; `type:` in the config picks the file.

    forward(x_TBD, state, first_TB) -> (y_TBH, state)

`first_TB` marks steps that begin an episode: resets are an input, and nothing may leak across them. One call over T
steps equals T calls over one step, for any pattern of `first` (tests/contracts/test_memory.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ludus.types import Tree

if TYPE_CHECKING:
    from ludus.config.model import Model


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
