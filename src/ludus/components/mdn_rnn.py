"""M of World Models (Ha & Schmidhuber 2018): an LSTM that predicts the next latent numbers as mixtures of Gaussians.

h_t remembers everything before row t: h_t = LSTM(z_{t-1}, a_{t-1}, h_{t-1}), and zero where an episode begins.
Shapes: T rows, B sequences, Z latent numbers, H units, K components, A action.
"""

from __future__ import annotations

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from ludus.components.conv_vae import sample
from ludus.components.representation import LatentState, Observed, Representation
from ludus.config.model import Model
from ludus.math.mixtures import mixture_log_likelihood, mixture_mode, mixture_sample
from ludus.networks.memory.lstm import LSTM, LSTMConfig


class MemoryConfig(Model):
    """LSTM and mixtures."""

    units: PositiveInt = 256
    """Units of the LSTM."""
    mixtures: PositiveInt = 5
    """Gaussians in the mixture of each latent number."""


class MDNRNN(Representation):
    """A latent state of h, c and z; z is seen, or drawn from the mixtures that h predicts."""

    Config = MemoryConfig

    def __init__(self, cfg: MemoryConfig, latent: int, action_dim: int) -> None:
        super().__init__()
        self.latent, self.memory_dim, self.noise_dim = latent, cfg.units, 2 * latent
        self.feature_dim = cfg.units + latent
        self.core = LSTM(LSTMConfig(hidden_dim=cfg.units), latent + action_dim)
        self.mixture = nn.Linear(cfg.units, latent * 3 * cfg.mixtures)

    def initial_state(self, batch: int) -> LatentState:
        """Nothing remembered, nothing seen."""
        h, c = self.core.initial_state(batch)
        return {"h": h, "c": c, "z": h.new_zeros(batch, self.latent)}

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
        """States given posteriors [T, B, 2 Z] of V. With `learn` they have no c: the scan keeps none."""
        z = sample(embed_TBE, None if noise_TBN is None else noise_TBN[..., : self.latent])
        x = torch.cat([torch.cat([state["z"].unsqueeze(0), z[:-1]]), action_TBA], -1)
        keep = ~first_TB.unsqueeze(-1)
        if not learn:
            states = self._follow(x, z, keep, state)
            return Observed(states, self.features(states), {}, {})
        forgets = torch.cat([torch.zeros_like(first_TB[:1]), first_TB[:-1]])  # a first row leaves nothing behind
        h = self.core(x, (state["h"], state["c"]), forgets)[0] * keep
        known = {"h": h, "z": z}
        loss = -mixture_log_likelihood(self._mixtures(h), z).sum(-1) * ~first_TB
        return Observed(known, self.features(known), {"memory": loss}, {})

    def _follow(self, x_TBD: Tensor, z_TBZ: Tensor, keep_TB1: Tensor, state: LatentState) -> LatentState:
        memory, hs, cs = (state["h"], state["c"]), [], []
        for x, keep in zip(x_TBD.unbind(), keep_TB1.unbind(), strict=True):
            memory = tuple(part * keep for part in self.core.cell(x, memory))
            hs.append(memory[0])
            cs.append(memory[1])
        return {"h": torch.stack(hs), "c": torch.stack(cs), "z": z_TBZ}

    def imagine(
        self, state: LatentState, action_BA: Tensor, noise_BN: Tensor | None, temperature: float = 1.0
    ) -> LatentState:
        """The state after an action; its z is drawn with noise [B, 2 Z], or the likeliest."""
        h, c = self.core.cell(torch.cat([state["z"], action_BA], -1), (state["h"], state["c"]))
        mixtures = self._mixtures(h)
        if noise_BN is None:
            return {"h": h, "c": c, "z": mixture_mode(mixtures)}
        chooses, noise = noise_BN.chunk(2, -1)
        return {"h": h, "c": c, "z": mixture_sample(mixtures, chooses, noise, temperature)}

    def _mixtures(self, h: Tensor) -> Tensor:
        """[..., Z, 3 K]"""
        return self.mixture(h).unflatten(-1, (self.latent, -1))

    def features(self, state: LatentState) -> Tensor:
        """h and z."""
        return torch.cat([state["h"], state["z"]], -1)
