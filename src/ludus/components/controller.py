"""C of World Models (Ha & Schmidhuber 2018): features straight to actions, by weights that are a flat vector.

Shapes: K candidates, R rollouts of each, P weights, F features, O outputs, B environments.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from ludus.acting.actor import Outputs
from ludus.acting.behaviour import Strategy
from ludus.acting.exploration import Level, UniformActions, is_box, scale_to, unit_space
from ludus.acting.facts import Makers
from ludus.components.vision_memory import VisionMemory
from ludus.components.world_player import WorldPlayer
from ludus.types import Array, State, Tree

LEAST_SPREAD = 1e-3
"""A feature that hardly ever changes is no more than a bias."""


class Controller:
    """A linear map, or one hidden layer of tanh units.

    One output per number of an action, or per discrete action but the first, whose output is always 0: the same
    choices with fewer weights to find.
    """

    def __init__(self, features: int, space: gym.Space, hidden: int) -> None:
        self.space, self.discrete = space, not is_box(space)
        outputs = int(space.n) - 1 if isinstance(space, gym.spaces.Discrete) else int(np.prod(space.shape or ()))
        self.layers = list(pairwise([features, hidden, outputs] if hidden else [features, outputs]))
        self.weights = sum((inputs + 1) * outputs for inputs, outputs in self.layers)
        self.stamp: list[int] = []
        """What the standard of features was computed from; empty: they are taken as they are."""
        self.middle, self.spread = torch.zeros(features), torch.ones(features)

    def standardize(self, features_NF: Tensor, stamp: list[int]) -> None:
        """From now on features are told apart by how far they are from the mean of these, in deviations."""
        self.stamp, self.middle = list(stamp), features_NF.mean(0)
        self.spread = features_NF.std(0).clamp(min=LEAST_SPREAD)

    def __call__(self, weights_KP: Tensor, features_KRF: Tensor) -> Tensor:
        """Outputs [K, R, O] of every candidate for its own features."""
        x, done = (features_KRF - self.middle.to(features_KRF)) / self.spread.to(features_KRF), 0
        for i, (inputs, outputs) in enumerate(self.layers):
            size = inputs * outputs
            matrix = weights_KP[:, done : done + size].view(-1, inputs, outputs)
            bias = weights_KP[:, done + size : done + size + outputs].unsqueeze(1)
            x = torch.baddbmm(bias, x.tanh() if i else x, matrix)
            done += size + outputs
        return torch.cat([torch.zeros_like(x[..., :1]), x], -1) if self.discrete else x

    def state_dict(self) -> State:
        """The standard of features; weights are those of the evolution."""
        return {"stamp": list(self.stamp), "middle": self.middle.clone(), "spread": self.spread.clone()}

    def load_state_dict(self, state: State) -> None:
        """Take it over."""
        if state["middle"].shape != self.middle.shape:
            raise ValueError(f"{len(state['middle'])} features, not {len(self.middle)}")
        self.stamp = [int(number) for number in state["stamp"]]
        self.middle, self.spread = torch.as_tensor(state["middle"]), torch.as_tensor(state["spread"])

    def act_vector(self, outputs_KRO: Tensor) -> Tensor:
        """Actions as a world model takes them: one-hot, or numbers between -1 and 1."""
        if not self.discrete:
            return outputs_KRO.tanh()
        best = outputs_KRO.argmax(-1, keepdim=True)
        return torch.zeros_like(outputs_KRO).scatter_(-1, best, 1.0)


class Pilot(WorldPlayer):
    """Acts by a controller on what V sees and M remembers; V's mean is seen, so nothing is random.

    `weights` gives one row for all environments, or one for each.
    """

    def __init__(self, world: VisionMemory, controller: Controller, weights: Callable[[], Tensor]) -> None:
        super().__init__(world, {})
        self.controller, self.weights = controller, weights

    @torch.no_grad()
    def __call__(
        self, obs_B: Array, state: Tree, first_B: Array, rng: np.random.Generator | None = None
    ) -> tuple[Outputs, Tree]:
        _, after = super().__call__(obs_B, state, first_B)
        latent = after["latent"]

        def read(_: None, head: str) -> Array:
            if head == "last":
                return state["action"].cpu().numpy() * ~first_B[:, None]
            return self.decide(self.world.features(latent)).cpu().numpy()

        return Outputs(len(first_B), ("actor", "last"), read=read), after

    @torch.no_grad()
    def decide(self, features_BF: Tensor) -> Tensor:
        """Outputs [B, O]."""
        weights = self.weights()
        if len(weights) == 1:
            return self.controller(weights, features_BF.unsqueeze(0)).squeeze(0)
        return self.controller(weights, features_BF.unsqueeze(1)).squeeze(1)


class Steer(Strategy):
    """What the controller says; while collecting with noise on it, or with random actions among it."""

    scaled = True

    def __init__(self, space: gym.Space, noise: Level) -> None:
        self.space, self.noise, self._scale = space, noise, scale_to(space)

    def draw(self, outputs: Outputs, rng: np.random.Generator | None) -> Array:
        """The action itself: a controller is not random."""
        raw = outputs("actor")
        return np.tanh(raw).reshape(outputs.batch, *(self.space.shape or ())) if is_box(self.space) else raw.argmax(-1)

    def explore(self, outputs: Outputs, rng: np.random.Generator) -> Array:
        drawn, level = self.draw(outputs, rng), np.float32(self.noise.value)
        if is_box(self.space):
            return np.clip(drawn + level * rng.standard_normal(drawn.shape, np.float32), -1.0, 1.0)
        chance, random = rng.random((2, len(drawn)))
        return np.where(chance < level, (random * outputs("actor").shape[-1]).astype(np.int64), drawn)

    def for_environment(self, stored: Array) -> Array:
        """Scaled to the bounds of a Box."""
        return self._scale(stored)

    def facts(self, outputs: Outputs, drawn: Array) -> Makers:
        """None: an action that is certain needs no explanation."""
        return {}


class RandomWalk(UniformActions):
    """Continuous actions that change by a little noise at every step: a car that is steered at random gets nowhere."""

    blind = False

    def __init__(self, space: gym.Space, step: float) -> None:
        super().__init__(unit_space(space))
        self.step = step

    def draw(self, outputs: Outputs, rng: np.random.Generator | None) -> Array:
        """The last action, moved on."""
        assert rng is not None, "no random action is greedier than another"
        last = outputs("last").reshape(outputs.batch, *(self.space.shape or ()))
        return np.clip(last + np.float32(self.step) * rng.standard_normal(last.shape, np.float32), -1.0, 1.0)
