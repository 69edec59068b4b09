"""A world model: encodes observations, carries a latent state, predicts observations, rewards and ends from it.

Reading order: WorldModelConfig -> WorldModel.losses -> observe. Shapes: T rows, B sequences, A action, F features.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from ludus.components.encoder import Parts, WorldEncoder, WorldEncoderConfig, largest
from ludus.components.images import compute_in
from ludus.components.representation import LatentState, Observed, Representation
from ludus.config.model import Choice, Model, Registered
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Metrics
from ludus.math.symlog import symexp, symlog
from ludus.networks.encoders.mlp import as_vector, vector_dim
from ludus.networks.precision import Precision
from ludus.registry import DECODERS, PREDICTORS, REPRESENTATIONS
from ludus.types import Spaces, Tree

REPRESENTATION = Registered(REPRESENTATIONS, default="rssm")
DECODER = Registered(DECODERS, default="auto")
REWARD, CONTINUES = Registered(PREDICTORS, default="two_hot"), Registered(PREDICTORS, default="bernoulli")


class WorldModelConfig(Model):
    """Parts of a world model, each chosen by `type`."""

    encoder: WorldEncoderConfig = WorldEncoderConfig()
    """Observations -> embedding."""
    representation: Annotated[Choice, REPRESENTATION] = REPRESENTATION.parse({})
    """The latent state."""
    decoder: Annotated[Choice, DECODER] = DECODER.parse({})
    """Features -> observations."""
    reward: Annotated[Choice, REWARD] = REWARD.parse({})
    """Features -> reward."""
    continues: Annotated[Choice, CONTINUES] = CONTINUES.parse({})
    """Features -> probability that the episode goes on."""
    observation_scale: float = Field(default=1.0, ge=0)
    """Weight of the decoder's squared errors; 0.5 makes them the likelihood of Gaussians with deviation 1."""
    reward_scale: float = Field(default=1.0, ge=0)
    """Weight of the reward's loss."""
    continue_scale: float = Field(default=1.0, ge=0)
    """Weight of the continuation's loss; 0: episodes count as endless."""


class WorldModel(nn.Module):
    """Everything that predicts; it knows no policy."""

    def __init__(self, cfg: WorldModelConfig, spaces: Spaces, precision: Precision | None = None) -> None:
        super().__init__()
        self.cfg, self.spaces = cfg, spaces
        self.action_dim = vector_dim(spaces.action)
        make = REPRESENTATIONS[cfg.representation.name]
        self.observed = Parts(spaces.observation)
        self.encoder: WorldEncoder | None = None
        if not make.reads_vectors:
            self.encoder = WorldEncoder(cfg.encoder, spaces.observation)
        elif self.observed.images:
            problem = f"'{cfg.representation.name}' takes vectors, and observations have images"
            raise ConfigError("algorithm.representation.type", problem, "use rssm")
        embed_dim = self.observed.vector_dim if self.encoder is None else self.encoder.out_dim
        self.representation: Representation = make(cfg.representation.config, embed_dim, self.action_dim)
        inputs, heads = self.representation.feature_dim, PREDICTORS
        decoder = "none" if self.encoder is None else cfg.decoder.name
        settings = cfg.decoder.config if decoder == cfg.decoder.name else DECODERS[decoder].Config()
        self.decoder = DECODERS[decoder](settings, inputs, self.representation.memory_dim, spaces.observation)
        self.reward = heads[cfg.reward.name](cfg.reward.config, inputs)
        self.continues = heads[cfg.continues.name](cfg.continues.config, inputs) if cfg.continue_scale else None
        compute_in(self, precision)

    def embed(self, obs_TB: Tree) -> Tensor:
        """Observations as the representation takes them."""
        return symlog(self.observed.vector(obs_TB)) if self.encoder is None else self.encoder(obs_TB)

    def act_vector(self, action_TB: Tensor) -> Tensor:
        """Stored actions as the model takes them: one-hot, or numbers between -1 and 1."""
        return as_vector(action_TB, self.spaces.action)

    def observe(
        self,
        obs_TB: Tree,
        action_TBA: Tensor,
        first_TB: Tensor,
        state: LatentState,
        noise_TBN: Tensor | None,
        *,
        learn: bool = False,
    ) -> Observed:
        """Latent states of observed rows."""
        return self.representation.observe(self.embed(obs_TB), action_TBA, first_TB, state, noise_TBN, learn=learn)

    def imagine(self, state: LatentState, action_BA: Tensor, noise_BN: Tensor | None) -> LatentState:
        """The latent state after an action."""
        return self.representation.imagine(state, action_BA, noise_BN)

    def features(self, state: LatentState) -> Tensor:
        """What heads read."""
        return self.representation.features(state)

    def predict(self, features_TBF: Tensor) -> dict[str, Tensor]:
        """Observations by part: `vector` and `image<i>` as in `decoders/`; empty if nothing can read them."""
        return {"vector": symexp(features_TBF)} if self.encoder is None else self.decoder.predict(features_TBF)

    def targets(self, obs_TB: Tree) -> dict[str, Tensor]:
        """What `predict` would give for these observations if it were perfect."""
        images = self.observed.pixels(obs_TB)
        found = {f"image{i}": image.float() / largest(self.observed.images[i]) for i, image in images.items()}
        return {**found, "vector": self.observed.vector(obs_TB)} if self.observed.others else found

    def losses(self, batch: Batch, noise_TBN: Tensor, discount: float) -> tuple[Tensor, Observed, Metrics]:
        """(loss, states, metrics) of rows; `discount` is what the continuation of a living state is to predict."""
        first_TB, cfg = batch["first"], self.cfg
        state = self.representation.initial_state(first_TB.shape[1])
        action_TBA = self.act_vector(batch["action"])
        seen = self.observe(batch["obs"], action_TBA, first_TB, state, noise_TBN, learn=True)
        observed = self.decoder.losses(seen.features, batch["obs"])
        parts = {name: cfg.observation_scale * loss_TB for name, loss_TB in observed.items()} | seen.losses
        rewards = self.reward(seen.features)
        parts["reward"] = cfg.reward_scale * self.reward.loss(rewards, batch["reward"]) * batch["known"]
        if self.continues is not None:
            lives = (~batch["terminal"]).to(rewards.dtype) * discount
            parts["continue"] = cfg.continue_scale * self.continues.loss(self.continues(seen.features), lives)
        means = {name: loss_TB.mean() for name, loss_TB in parts.items()}
        total = torch.stack(list(means.values())).sum()
        metrics = {f"loss/{name}": loss.detach() for name, loss in means.items()}
        return total, seen, {"loss/world": total.detach(), **metrics, **seen.metrics}

    def initial_state(self, batch: int) -> LatentState:
        """Before an episode."""
        return self.representation.initial_state(batch)

    def rewards(self, features: Tensor) -> Tensor:
        """Predicted rewards [...] of the steps that led to rows."""
        return self.reward.mean(self.reward(features))

    def goes_on(self, features: Tensor, discount: float) -> Tensor:
        """Predicted probability [...] that the episode goes on, if `discount` was learned with it."""
        return (self.lives(features, 1.0) / discount).clamp(max=1.0)

    def lives(self, features: Tensor, otherwise: float) -> Tensor:
        """Predicted probability (or discount) that the episode goes on, [...]."""
        if self.continues is None:
            return torch.full_like(features[..., 0], otherwise)
        return self.continues.mean(self.continues(features))
