"""A policy at work: samples actions while collecting, acts for evaluation, keeps its fast copy of the weights fresh."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from ludus.acting.actors import TorchActor, make_actor
from ludus.learning.learner import Learner
from ludus.networks.policy import Policy
from ludus.types import ActResult, Array, Spaces, Tree, tree_map


class PolicyBehaviour:
    """Draws actions from a policy; collecting and evaluating use separate random streams."""

    def __init__(
        self,
        policy: Policy,
        learner: Learner,
        spaces: Spaces,
        *,
        rng: np.random.Generator,
        evaluation_rng: np.random.Generator,
        keep_outputs: bool = False,
    ) -> None:
        self.policy, self.learner, self.distribution = policy, learner, policy.distribution
        self.rng, self.evaluation_rng = rng, evaluation_rng
        self.actor = make_actor(policy)
        self.device = next(policy.parameters()).device
        box = spaces.action if isinstance(spaces.action, gym.spaces.Box) else None
        self.bounds = None if box is None else (box.low.astype(np.float32), box.high.astype(np.float32))
        self._keep = keep_outputs and isinstance(self.actor, TorchActor)
        self._outputs: list[tuple[Array, Array]] = []
        self._version = -1

    def initial_state(self, batch: int) -> Tree:
        """Memory before an episode."""
        return self.actor.initial_state(batch)

    def act(self, obs_B: Array, state: Tree, first_B: Array) -> tuple[Array, Array, Tree]:
        """(action as drawn, action for the environment, memory) with the weights of the newest update."""
        self._refresh()
        params, state = self.actor(obs_B, state, first_B)
        if self._keep:
            assert isinstance(self.actor, TorchActor) and self.actor.value_B is not None
            self._outputs.append((params, self.actor.value_B))
        action = self.distribution.sample_numpy(params, self.rng)
        return action, self.for_environment(action), state

    def take_outputs(self) -> tuple[Tensor, Tensor] | None:
        """(params_TBP, value_TB) of every `act` since the last call, if they are kept."""
        taken, self._outputs = self._outputs, []
        if not taken:
            return None
        params, values = zip(*taken, strict=True)
        return torch.as_tensor(np.stack(params), device=self.device), torch.as_tensor(
            np.stack(values), device=self.device
        )

    def evaluate(self, obs_B: Array, state: Tree, first_B: Array, *, deterministic: bool) -> ActResult:
        """The same policy off the record: other random stream, greedy if asked."""
        self._refresh()
        params, state = self.actor(obs_B, state, first_B)
        if deterministic:
            action = self.distribution.mode_numpy(params)
        else:
            action = self.distribution.sample_numpy(params, self.evaluation_rng)
        return ActResult(self.for_environment(action), state, {"params": params})

    def for_environment(self, action: Array) -> Array:
        """Clipped to the bounds there are; what is stored and learned from stays as drawn."""
        return action if self.bounds is None else np.clip(action, *self.bounds)

    def to_tensors(self, state: Tree) -> Tree:
        """Memory from the actor as tensors for the policy."""
        return tree_map(lambda leaf: torch.as_tensor(leaf, device=self.device), state)

    def _refresh(self) -> None:
        if self._version != self.learner.version:
            self.actor.refresh()
            self._version = self.learner.version
