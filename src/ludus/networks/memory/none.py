"""No memory: features pass through."""

from __future__ import annotations

from torch import Tensor

from ludus.config.model import Model
from ludus.networks.memory import MemoryCore
from ludus.registry import MEMORY
from ludus.types import Tree


class NoMemoryConfig(Model):
    """Nothing to configure."""


@MEMORY.register("none")
class NoMemory(MemoryCore):
    """The identity."""

    Config = NoMemoryConfig
    recurrent = False

    def __init__(self, cfg: NoMemoryConfig, in_dim: int) -> None:
        super().__init__()
        self.out_dim = in_dim

    def initial_state(self, batch: int) -> Tree:
        """Nothing."""
        return ()

    def forward(self, x_TBD: Tensor, state: Tree, first_TB: Tensor) -> tuple[Tensor, Tree]:
        """The inputs themselves."""
        return x_TBD, state
