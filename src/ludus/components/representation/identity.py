"""No latent at all: the state is the observed vector itself, and an ensemble predicts the next one (Chua et al. 2018).

Images cannot be states; use `rssm` for them.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from ludus.components.representation import LatentState, Observed, Representation
from ludus.config.model import Choice, Model, Registered
from ludus.registry import DYNAMICS, REPRESENTATIONS


class IdentityConfig(Model):
    """The observation is the state."""

    dynamics: Annotated[Choice, Registered(DYNAMICS, default="deterministic")] = Registered(
        DYNAMICS, default="deterministic"
    ).parse({})
    """Ensemble that predicts the next observation."""


@REPRESENTATIONS.register("identity")
class Identity(Representation):
    """Vectors as they are observed (after symlog); imagined ones come from an ensemble."""

    Config = IdentityConfig
    reads_vectors = True

    def __init__(self, cfg: IdentityConfig, embed_dim: int, action_dim: int) -> None:
        super().__init__()
        self.dynamics = DYNAMICS[cfg.dynamics.name](cfg.dynamics.config, embed_dim, action_dim)
        self.feature_dim, self.noise_dim = embed_dim, self.dynamics.noise_dim

    def initial_state(self, batch: int) -> LatentState:
        device = next(self.parameters()).device
        return {"vector": torch.zeros(batch, self.feature_dim, device=device)}

    def features(self, state: LatentState) -> Tensor:
        return state["vector"]

    def observe(
        self,
        embed_TBE: Tensor,
        action_TBA: Tensor,
        first_TB: Tensor,
        state: LatentState,
        noise_TBN: Tensor | None,
        *,
        learn: bool = False,
    ) -> Observed:
        losses = {}
        if learn:
            loss_TB = self.dynamics.loss(embed_TBE[:-1], action_TBA[1:], embed_TBE[1:]) * ~first_TB[1:]
            losses["dynamics"] = torch.cat([torch.zeros_like(loss_TB[:1]), loss_TB])
        return Observed({"vector": embed_TBE}, embed_TBE, losses, {})

    def imagine(self, state: LatentState, action_BA: Tensor, noise_BN: Tensor | None) -> LatentState:
        return {"vector": self.dynamics.sample(state["vector"], action_BA, noise_BN)}
