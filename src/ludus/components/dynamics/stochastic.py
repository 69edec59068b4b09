"""An ensemble of Gaussians: each member predicts a mean and a deviation (Chua et al. 2018, arXiv:1805.12114)."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softplus

from ludus.components.dynamics import Ensemble, EnsembleConfig
from ludus.registry import DYNAMICS

LOG_STD = (-5.0, 1.0)


class StochasticConfig(EnsembleConfig):
    """Networks that predict mean and deviation."""


@DYNAMICS.register("stochastic")
class Stochastic(Ensemble):
    """Trained by likelihood."""

    Config = StochasticConfig
    outputs_per_number = 2

    @property
    def noise_dim(self) -> int:  # type: ignore[override]
        """One number for each component of the vector, and one for the member."""
        return self.vector_dim + 1

    def loss(self, vector: Tensor, action: Tensor, following: Tensor) -> Tensor:
        mean, log_std = self._split(self.outputs(vector, action))
        z = (following - vector - mean) * (-log_std).exp()
        return (0.5 * z.square() + log_std).sum(-1).mean(0)

    def sample(self, vector: Tensor, action: Tensor, noise: Tensor | None) -> Tensor:
        outputs = self.outputs(vector, action)
        if noise is None:
            return vector + self._split(outputs)[0].mean(0)
        mean, log_std = self._split(self.pick(outputs, noise[..., -1]))
        return vector + mean + log_std.exp() * noise[..., :-1]

    def _split(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """(mean, log deviation), softly kept within bounds."""
        mean, raw = outputs.chunk(2, -1)
        low, high = LOG_STD
        return mean, low + softplus(high - softplus(high - raw) - low)
