"""V and M together: a world model that sees with a variational autoencoder and remembers with an MDN-RNN.

It offers what `WorldModel` does, so that players and `ludus imagine` take either. Shapes: T rows, B sequences,
A action, F features.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from ludus.components.conv_vae import ConvVAE, VisionConfig
from ludus.components.encoder import Parts, largest
from ludus.components.heads import Predictor
from ludus.components.mdn_rnn import MDNRNN, MemoryConfig
from ludus.components.representation import LatentState, Observed
from ludus.config.model import Choice, Model, Registered
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Metrics
from ludus.networks.encoders import image_shape, is_image
from ludus.networks.encoders.mlp import as_vector, vector_dim
from ludus.registry import PREDICTORS
from ludus.types import Spaces, Tree

REWARD, CONTINUES = Registered(PREDICTORS, default="gaussian"), Registered(PREDICTORS, default="bernoulli")


class VisionMemoryConfig(Model):
    """V, M, and what dreams are paid and ended by."""

    vision: VisionConfig = VisionConfig()
    """V, the variational autoencoder."""
    memory: MemoryConfig = MemoryConfig()
    """M, the MDN-RNN."""
    reward: Annotated[Choice, REWARD] = REWARD.parse({})
    """Memory and latent numbers -> reward."""
    continues: Annotated[Choice, CONTINUES] = CONTINUES.parse({})
    """Memory and latent numbers -> probability that the episode goes on."""
    reward_scale: float = Field(default=1.0, ge=0)
    """Weight of the reward's loss."""
    continue_scale: float = Field(default=1.0, ge=0)
    """Weight of the continuation's loss."""


class Memory(nn.Module):
    """M with its heads: what one optimizer trains."""

    def __init__(self, cfg: VisionMemoryConfig, action_dim: int) -> None:
        super().__init__()
        self.rnn = MDNRNN(cfg.memory, cfg.vision.latent, action_dim)
        self.reward: Predictor = PREDICTORS[cfg.reward.name](cfg.reward.config, self.rnn.feature_dim)
        self.continues: Predictor = PREDICTORS[cfg.continues.name](cfg.continues.config, self.rnn.feature_dim)
        self.cfg = cfg

    def losses(self, batch: Batch, action_TBA: Tensor, noise_TBN: Tensor) -> tuple[Tensor, Metrics]:
        """(loss, metrics) of encoded rows: the mixtures, and in rows that something led to, reward and end."""
        first_TB = batch["first"]
        state = self.rnn.initial_state(first_TB.shape[1])
        seen = self.rnn.observe(batch["posterior"], action_TBA, first_TB, state, noise_TBN, learn=True)
        led = ~first_TB
        parts = {
            **seen.losses,
            "reward": self.cfg.reward_scale * self.reward.loss(self.reward(seen.features), batch["reward"]) * led,
            "continue": self.cfg.continue_scale
            * self.continues.loss(self.continues(seen.features), (~batch["terminal"]).float()) * led,
        }  # fmt: skip
        means = {f"loss/{name}": loss_TB.sum() / led.sum().clamp(min=1) for name, loss_TB in parts.items()}
        return sum(means.values()), {name: loss.detach() for name, loss in means.items()}


class VisionMemory(nn.Module):
    """V, then M; images only."""

    def __init__(self, cfg: VisionMemoryConfig, spaces: Spaces) -> None:
        super().__init__()
        space = spaces.observation
        if not is_image(space):
            problem = f"world_models sees one image, and observations are {space}"
            raise ConfigError("algorithm.name", problem, "use dreamer, or the wrappers pixels_only and resize")
        self.spaces, self.observed, self.action_dim = spaces, Parts(space), vector_dim(spaces.action)
        self.vision = ConvVAE(cfg.vision, image_shape(space), largest(self.observed.images[0]))
        self.memory = Memory(cfg, self.action_dim)

    @property
    def representation(self) -> MDNRNN:
        """The latent state."""
        return self.memory.rnn

    @property
    def continues(self) -> Predictor:
        """Head of ends."""
        return self.memory.continues

    def act_vector(self, action_TB: Tensor) -> Tensor:
        """Stored actions as the model takes them: one-hot, or numbers between -1 and 1."""
        return as_vector(action_TB, self.spaces.action)

    def observe(
        self, obs_TB: Tree, action_TBA: Tensor, first_TB: Tensor, state: LatentState, noise_TBN: Tensor | None
    ) -> Observed:
        """Latent states of observed rows."""
        return self.representation.observe(self.vision.encode(obs_TB), action_TBA, first_TB, state, noise_TBN)

    def imagine(
        self, state: LatentState, action_BA: Tensor, noise_BN: Tensor | None, temperature: float = 1.0
    ) -> LatentState:
        """The latent state after an action."""
        return self.representation.imagine(state, action_BA, noise_BN, temperature)

    def features(self, state: LatentState) -> Tensor:
        """What the controller and the heads read: h and z."""
        return self.representation.features(state)

    def predict(self, features: Tensor) -> dict[str, Tensor]:
        """The decoded image, between 0 and 1."""
        return {"image0": self.vision.decode(features[..., self.representation.memory_dim :])}

    def targets(self, obs_TB: Tensor) -> dict[str, Tensor]:
        """What `predict` would give for these observations if it were perfect."""
        return {"image0": obs_TB.float() * self.vision.scale}

    def initial_state(self, batch: int) -> LatentState:
        """Before an episode."""
        return self.representation.initial_state(batch)

    def rewards(self, features: Tensor) -> Tensor:
        """Predicted rewards [...] of the steps that led to rows."""
        return self.memory.reward.mean(self.memory.reward(features))

    def goes_on(self, features: Tensor, discount: float = 1.0) -> Tensor:
        """Predicted probability [...] that the episode goes on; no discount is mixed into it."""
        return self.memory.continues.mean(self.memory.continues(features))
