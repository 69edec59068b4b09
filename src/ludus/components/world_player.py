"""Acting with a world model: the latent state and the last action are carried from step to step."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from ludus.acting.actor import Actor, Outputs
from ludus.acting.behaviour import SampleClipped
from ludus.acting.exploration import Level, is_box, scale_to
from ludus.acting.facts import Makers, policy_facts
from ludus.components.vision_memory import VisionMemory
from ludus.components.world_model import WorldModel
from ludus.math.distributions import Distribution, SquashedGaussian
from ludus.types import Array, Tree, to_device, tree_index

Heads = Mapping[str, Callable[[Tensor], Tensor]]


class WorldPlayer(Actor):
    """An actor whose memory is the latent state of a world model and the last action."""

    recurrent = True

    def __init__(self, world: WorldModel | VisionMemory, heads: Heads) -> None:
        self.world, self.heads = world, heads
        self.device = next(world.parameters()).device

    def refresh(self) -> None:
        """Nothing to copy."""

    def initial_state(self, batch: int) -> Tree:
        """Zeros."""
        action = torch.zeros(batch, self.world.action_dim, device=self.device)
        return {"latent": self.world.representation.initial_state(batch), "action": action}

    @torch.no_grad()
    def __call__(
        self, obs_B: Array, state: Tree, first_B: Array, rng: np.random.Generator | None = None
    ) -> tuple[Outputs, Tree]:
        obs, first = tree_index(to_device((obs_B, first_B), self.device), None)
        noise = None
        if rng is not None:
            drawn = rng.standard_normal((1, len(first_B), self.world.representation.noise_dim), np.float32)
            noise = torch.from_numpy(drawn).to(self.device)
        seen = self.world.observe(obs, state["action"].unsqueeze(0), first, state["latent"], noise)
        after = {"latent": tree_index(seen.states, -1), "action": state["action"]}
        return Outputs(len(first_B), self.heads, seen.features[0], self.read), after

    @torch.no_grad()
    def read(self, features_BF: Tensor, head: str) -> Array:
        """The output of a head."""
        return self.heads[head](features_BF).cpu().numpy()

    def remember(self, state: Tree, action_B: Array) -> Tree:
        """The memory after an action."""
        action = torch.as_tensor(action_B, device=self.device).unsqueeze(0)
        return {**state, "action": self.world.act_vector(action).squeeze(0)}


class SampleWorldPolicy(SampleClipped):
    """Draws from the policy of a world model; continuous actions are stored between -1 and 1.

    While training, Gaussian noise of deviation `sigma` is added to continuous actions (Dreamer 1), or discrete ones are
    replaced by any action with that probability.
    """

    scaled = True

    def __init__(self, distribution: Distribution, space: gym.Space, sigma: Level) -> None:
        super().__init__(distribution, space)
        self._scale, self.sigma = scale_to(space), sigma

    def explore(self, outputs: Outputs, rng: np.random.Generator) -> Array:
        drawn = self.draw(outputs, rng)
        if not self.sigma.value:
            return drawn
        if is_box(self.space):
            noise = np.float32(self.sigma.value) * rng.standard_normal(drawn.shape, np.float32)
            return self.unbounded(np.clip(self.stored(drawn) + noise, -1.0, 1.0))
        chance, random = rng.random((2, len(drawn)))
        return np.where(chance < self.sigma.value, (random * self.distribution.param_dim).astype(np.int64), drawn)

    def stored(self, drawn: Array) -> Array:
        if not is_box(self.space):
            return drawn
        return np.tanh(drawn) if isinstance(self.distribution, SquashedGaussian) else np.clip(drawn, -1.0, 1.0)

    def unbounded(self, stored: Array) -> Array:
        """The drawn action that is stored like this."""
        squashed = isinstance(self.distribution, SquashedGaussian)
        return np.arctanh(np.clip(stored, -0.999999, 0.999999)) if squashed else stored

    def for_environment(self, stored: Array) -> Array:
        return self._scale(stored)

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        found = policy_facts(self.distribution, outputs("actor"), drawn)
        return {"value": lambda: outputs("critic"), **found}
