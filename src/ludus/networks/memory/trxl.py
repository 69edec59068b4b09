"""Transformer-XL (Dai et al. 2019, arXiv:1901.02860) with a sliding memory of the open episode.

Norms come first in each sublayer, which reinforcement learning needs (Parisotto et al. 2020, "TrXL-I").
"""

from __future__ import annotations

from torch import Tensor

from ludus.networks.attention import AttentionWindow
from ludus.networks.transformer import TransformerBlock, TransformerConfig, TransformerCore
from ludus.registry import MEMORY


class TrXLConfig(TransformerConfig):
    """Transformer-XL blocks."""


class TrXLBlock(TransformerBlock):
    """x + attention(norm(x)), then x + feedforward(norm(x))."""

    def forward(self, x_SBH: Tensor, x_TBH: Tensor, window: AttentionWindow) -> Tensor:
        """The residual stream after the block."""
        x_TBH = x_TBH + self.attention(self.norm(x_SBH), window)
        return x_TBH + self.feedforward(x_TBH)


@MEMORY.register("trxl")
class TrXL(TransformerCore):
    """Residual blocks."""

    Config, Block = TrXLConfig, TrXLBlock
