"""An implicit model seen as a world model, for `ludus imagine`: latent states stand for observations.

Its rewards belong to a state and the action taken there; here a row has what led to it. Features of a row are therefore
its latent state, the state before and the action in between. Shapes: T rows, B sequences, Z latent, A action.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ludus.components.encoder import Parts
from ludus.components.implicit_model import ImplicitModel
from ludus.components.representation import LatentState, Observed
from ludus.types import Spaces, Tree


class LatentView(nn.Module):
    """What `ludus imagine` asks of a world model."""

    def __init__(self, model: ImplicitModel, spaces: Spaces, latent: int) -> None:
        super().__init__()
        self.model, self.spaces, self.latent = model, spaces, latent
        self.observed, self.continues = Parts(spaces.observation), model.ends

    def act_vector(self, action_TB: Tensor) -> Tensor:
        """Stored actions as vectors [T, B, A]."""
        return self.model.act_vector(action_TB)

    def initial_state(self, batch: int) -> LatentState:
        """Nothing is carried: a latent state is a function of its observation."""
        return {}

    def observe(
        self, obs_TB: Tree, action_TBA: Tensor, first_TB: Tensor, state: LatentState, noise: Tensor | None
    ) -> Observed:
        """Latent states of observed rows; nothing led to the first row of an episode."""
        z = self.model.encode(obs_TB)
        led = torch.cat([torch.cat([torch.zeros_like(z[:1]), z[:-1]]), action_TBA], -1) * ~first_TB.unsqueeze(-1)
        states = {"z": z, "led": led}
        return Observed(states, self.features(states), {}, {})

    def imagine(self, state: LatentState, action_BA: Tensor, noise: Tensor | None) -> LatentState:
        """The latent state after an action."""
        led = torch.cat([state["z"], action_BA], -1)
        return {"z": self.model.dynamics(led), "led": led}

    def features(self, state: LatentState) -> Tensor:
        """The latent state and what led to it."""
        return torch.cat([state["z"], state["led"]], -1)

    def predict(self, features_TBF: Tensor) -> dict[str, Tensor]:
        """Latent states."""
        return {"latent": features_TBF[..., : self.latent]}

    def targets(self, obs_TB: Tree) -> dict[str, Tensor]:
        """The encoder's latent states."""
        return {"latent": self.model.encode(obs_TB)}

    def rewards(self, features: Tensor) -> Tensor:
        """Predicted rewards [...] of the steps that led to rows."""
        return self.model.coding.mean(self.model.reward(features[..., self.latent :]))

    def goes_on(self, features: Tensor, discount: float) -> Tensor:
        """Predicted probability [...] that the episode does not end with this row."""
        return self.model.lives(features[..., : self.latent])
