"""Recurrent state-space model (Hafner et al. 2019, arXiv:1811.04551): a deterministic memory h and a random latent z.

    h_t = cell(h_{t-1}, z_{t-1}, a_{t-1})      posterior q(z_t | h_t, o_t)      prior p(z_t | h_t)

Everything that does not depend on the carried state is computed for all rows at once: the action's and the embedding's
share of the first layers before the loop, the prior after it.

Reading order: RSSM.observe -> RSSMRow -> BlockCell -> latent.
Shapes: T time, B batch, D deterministic units, U hidden units, S latent variables, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import linear

from ludus.components.layers import BlockLinear, DenseLayer, DenseStack, Normed, SplitLinear, dense, initialize
from ludus.components.representation import LatentState, Observed, Representation
from ludus.config.model import Model
from ludus.errors import ConfigError
from ludus.math import latents
from ludus.registry import REPRESENTATIONS

GATE_EPS = 1e-3


class RSSMConfig(Model):
    """Recurrent state-space model."""

    latent: Literal["categorical", "gaussian"] = "categorical"
    """Kind of random latent."""
    cell: Literal["block_gru", "gru"] = "block_gru"
    """`block_gru` has block-diagonal weights (Dreamer 3), `gru` dense ones."""
    deter: PositiveInt = 512
    """Width of the deterministic memory."""
    hidden: PositiveInt = 64
    """Width of the layers around it."""
    stoch: PositiveInt = 32
    """Latent variables."""
    classes: PositiveInt = 4
    """Classes of a categorical variable."""
    blocks: PositiveInt = 8
    """Blocks of `block_gru`."""
    prior_layers: PositiveInt = 2
    """Layers before the prior's output."""
    unimix: float = Field(default=0.01, ge=0, lt=1)
    """Share of the uniform distribution in categorical latents."""
    min_std: float = Field(default=0.1, gt=0)
    """Least deviation of Gaussian latents."""
    activation: Literal["silu", "elu", "relu"] = "silu"
    """Nonlinearity."""
    norm: bool = True
    """Whether layers are normalised."""
    dynamics_scale: float = Field(default=1.0, ge=0)
    """Weight of KL(sg(posterior) || prior), which trains the prior."""
    representation_scale: float = Field(default=0.1, ge=0)
    """Weight of KL(posterior || sg(prior)), which keeps the posterior predictable."""
    free_nats: float = Field(default=1.0, ge=0)
    """KL below this is not trained."""
    free: Literal["step", "mean"] = "step"
    """Whether `free_nats` counts for each step, or for the mean of the batch (Dreamer 1 and 2)."""


@REPRESENTATIONS.register("rssm")
class RSSM(Representation):
    """Posterior and prior over a random latent beside a recurrent memory."""

    Config = RSSMConfig

    def __init__(self, cfg: RSSMConfig, embed_dim: int, action_dim: int) -> None:
        super().__init__()
        self.cfg, self.categorical = cfg, cfg.latent == "categorical"
        self.latent_dim = cfg.stoch * cfg.classes if self.categorical else cfg.stoch
        outputs = self.latent_dim if self.categorical else 2 * cfg.stoch
        self.row = RSSMRow(cfg, self.latent_dim, outputs, embed_dim, action_dim)
        self.prior_hidden = DenseStack(cfg.deter, cfg.prior_layers, cfg.hidden, cfg.activation, cfg.norm)
        self.prior_out = dense(cfg.hidden, outputs)
        self.feature_dim, self.memory_dim, self.noise_dim = cfg.deter + self.latent_dim, cfg.deter, cfg.stoch

    def initial_state(self, batch: int) -> LatentState:
        device = self.prior_out.weight.device
        return {
            "deter": torch.zeros(batch, self.cfg.deter, device=device),
            "stoch": torch.zeros(batch, self.latent_dim, device=device),
        }

    def features(self, state: LatentState) -> Tensor:
        return torch.cat([state["deter"], state["stoch"]], -1)

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
        keep_TB1 = (~first_TB).unsqueeze(-1).to(embed_TBE.dtype)
        drive_T = self.row.cell.drive(action_TBA * keep_TB1).unbind()
        early_T = self.row.inputs.early(embed_TBE).unbind()
        noise_T = [None] * len(drive_T) if noise_TBN is None else self._random(noise_TBN).unbind()
        h, z = state["deter"], state["stoch"]
        rows: list[tuple[Tensor, Tensor, Tensor]] = []
        for keep, drive, early, noise in zip(keep_TB1.unbind(), drive_T, early_T, noise_T, strict=True):
            h, z, posterior = self.row(h, z, keep, drive, early, noise)
            rows.append((h, z, posterior))
        h_TBD, z_TBS, posterior_TB = (torch.stack(column) for column in zip(*rows, strict=True))
        states = {"deter": h_TBD, "stoch": z_TBS}
        losses, metrics = self._divergence(h_TBD, posterior_TB) if learn else ({}, {})
        return Observed(states, self.features(states), losses, metrics)

    def imagine(self, state: LatentState, action_BA: Tensor, noise_BN: Tensor | None) -> LatentState:
        cell = self.row.cell
        h = cell(state["deter"], state["stoch"], cell.drive(action_BA))
        noise = None if noise_BN is None else self._random(noise_BN)
        return {"deter": h, "stoch": latent(self.cfg, self._prior(h), noise)}

    def _prior(self, h: Tensor) -> Tensor:
        return self.prior_out(self.prior_hidden(h))

    def _random(self, noise: Tensor) -> Tensor:
        """Noise as `latent` takes it: uniform numbers for classes."""
        return latents.uniform(noise) if self.categorical else noise

    def _divergence(self, h_TBD: Tensor, posterior: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """KL from both sides, with free nats; their gradients differ, their values do not."""
        prior, cfg = self._prior(h_TBD), self.cfg
        dynamics, representation = self._kl(posterior.detach(), prior), self._kl(posterior, prior.detach())
        losses = {
            "dynamics": cfg.dynamics_scale * self._free(dynamics),
            "representation": cfg.representation_scale * self._free(representation),
        }
        return losses, {"world/divergence": dynamics.detach().mean()}

    def _kl(self, p: Tensor, q: Tensor) -> Tensor:
        if self.categorical:
            return latents.categorical_kl(log_probabilities(self.cfg, p), log_probabilities(self.cfg, q))
        split = latents.gaussian_split
        return latents.gaussian_kl(*split(p, self.cfg.min_std), *split(q, self.cfg.min_std))

    def _free(self, kl_TB: Tensor) -> Tensor:
        if self.cfg.free == "step":
            return kl_TB.clamp(min=self.cfg.free_nats)
        return kl_TB.mean().clamp(min=self.cfg.free_nats).expand_as(kl_TB)


class RSSMRow(nn.Module):
    """One row: the memory after an action, and the latent that its observation tells."""

    repeated = True

    def __init__(self, cfg: RSSMConfig, latent_dim: int, outputs: int, embed_dim: int, action_dim: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.cell: Cell = (BlockCell if cfg.cell == "block_gru" else DenseCell)(cfg, latent_dim, action_dim)
        self.inputs = SplitLinear(cfg.deter, embed_dim, cfg.hidden)
        self.normed = Normed(cfg.hidden, cfg.activation, cfg.norm)
        self.output = dense(cfg.hidden, outputs)

    def forward(
        self, h: Tensor, z: Tensor, keep: Tensor, drive: Tensor, early: Tensor, noise: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(memory, latent, parameters of the posterior); `keep` is 0 where an episode begins."""
        h = self.cell(h * keep, z * keep, drive)
        posterior = self.output(self.normed(self.inputs(h, early)))
        return h, latent(self.cfg, posterior, noise), posterior


def latent(cfg: RSSMConfig, params: Tensor, noise: Tensor | None) -> Tensor:
    """A sample with a gradient, or the likeliest latent without noise."""
    if cfg.latent == "gaussian":
        mean, std = latents.gaussian_split(params, cfg.min_std)
        return mean if noise is None else mean + std * noise
    log_p = log_probabilities(cfg, params)
    one_hot = latents.one_hot_mode(log_p) if noise is None else latents.one_hot_sample(log_p.detach(), noise)
    return (latents.straight_through(one_hot, log_p) if log_p.requires_grad else one_hot).flatten(-2)


def log_probabilities(cfg: RSSMConfig, logits: Tensor) -> Tensor:
    """[..., S, C] with the uniform share mixed in."""
    return latents.mixed_log_probabilities(logits.unflatten(-1, (cfg.stoch, -1)), cfg.unimix)


class Cell(nn.Module, ABC):
    """A gated recurrent cell; `drive` is the action's share, known before the state is."""

    @abstractmethod
    def drive(self, action_TBA: Tensor) -> Tensor:
        """The action's share of the cell's first layer."""

    @abstractmethod
    def forward(self, h: Tensor, z: Tensor, drive: Tensor) -> Tensor:
        """The next memory [B, D]."""


class DenseCell(Cell):
    """A GRU with one dense layer before it, normalised gates and an update gate that begins closed (Dreamer 2)."""

    def __init__(self, cfg: RSSMConfig, latent_dim: int, action_dim: int) -> None:
        super().__init__()
        self.inputs = SplitLinear(latent_dim, action_dim, cfg.hidden)
        self.normed = Normed(cfg.hidden, cfg.activation, cfg.norm)
        self.gates = dense(cfg.hidden + cfg.deter, 3 * cfg.deter)
        self.gate_norm = nn.LayerNorm(3 * cfg.deter, eps=GATE_EPS) if cfg.norm else nn.Identity()

    def drive(self, action_TBA: Tensor) -> Tensor:
        return self.inputs.early(action_TBA)

    def forward(self, h: Tensor, z: Tensor, drive: Tensor) -> Tensor:
        x = self.normed(self.inputs(z, drive))
        return gated(h, *self.gate_norm(self.gates(torch.cat([x, h], -1))).chunk(3, -1))


class BlockCell(Cell):
    """Block-diagonal GRU (Dreamer 3): each block reads its own part of the memory and a summary of everything."""

    def __init__(self, cfg: RSSMConfig, latent_dim: int, action_dim: int) -> None:
        super().__init__()
        if cfg.deter % cfg.blocks:
            problem = f"{cfg.deter} units cannot be cut into {cfg.blocks} blocks"
            raise ConfigError("algorithm.representation.blocks", problem, "use a divisor of deter")
        width, act, norm = cfg.hidden, cfg.activation, cfg.norm
        self.blocks = cfg.blocks
        self.memory, self.latent = DenseLayer(cfg.deter, width, act, norm), DenseLayer(latent_dim, width, act, norm)
        self.action = DenseLayer(action_dim, width, act, norm)
        fan_in = cfg.blocks * 3 * width + cfg.deter
        # every block reads the same summary: its share of all blocks is one dense layer
        self.summary = nn.Linear(3 * width, cfg.deter, bias=False)
        initialize(self.summary.weight, fan_in)
        self.own = BlockLinear(cfg.deter, cfg.deter, cfg.blocks, fan_in)
        self.normed = Normed(cfg.deter, act, norm)
        self.gates = BlockLinear(cfg.deter, 3 * cfg.deter, cfg.blocks, cfg.deter)

    def drive(self, action_TBA: Tensor) -> Tensor:
        width = 2 * self.action.linear.out_features
        return linear(self.action(action_TBA), self.summary.weight[:, width:])

    def forward(self, h: Tensor, z: Tensor, drive: Tensor) -> Tensor:
        summary = torch.cat([self.memory(h), self.latent(z)], -1)
        x = self.normed(linear(summary, self.summary.weight[:, : summary.shape[-1]]) + drive + self.own(h))
        parts = self.gates(x).unflatten(-1, (self.blocks, 3, -1))
        return gated(h, *(part.flatten(-2) for part in parts.unbind(-2)))


def gated(h: Tensor, reset: Tensor, candidate: Tensor, update: Tensor) -> Tensor:
    """h' = u c + (1 - u) h with c = tanh(r candidate); the update gate begins mostly closed."""
    return torch.lerp(h, (reset.sigmoid() * candidate).tanh(), (update - 1).sigmoid())
