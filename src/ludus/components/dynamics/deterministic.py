"""An ensemble that predicts one next vector each."""

from __future__ import annotations

from torch import Tensor

from ludus.components.dynamics import Ensemble, EnsembleConfig
from ludus.registry import DYNAMICS


class DeterministicConfig(EnsembleConfig):
    """Networks that predict the mean."""


@DYNAMICS.register("deterministic")
class Deterministic(Ensemble):
    """Trained by squared error."""

    Config = DeterministicConfig
    noise_dim = 1
    outputs_per_number = 1

    def loss(self, vector: Tensor, action: Tensor, following: Tensor) -> Tensor:
        change = self.outputs(vector, action)
        return (change - (following - vector)).square().sum(-1).mean(0)

    def sample(self, vector: Tensor, action: Tensor, noise: Tensor | None) -> Tensor:
        change = self.outputs(vector, action)
        return vector + (change.mean(0) if noise is None else self.pick(change, noise[..., -1]))
