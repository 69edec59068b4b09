"""One number with a Gaussian of variance 1 around it: squared error."""

from __future__ import annotations

from torch import Tensor

from ludus.components.heads import Predictor, PredictorConfig
from ludus.registry import PREDICTORS


class GaussianConfig(PredictorConfig):
    """Gaussian of variance 1 (Dreamer 1 and 2, PlaNet)."""


@PREDICTORS.register("gaussian")
class Gaussian(Predictor):
    """Trained by half the squared error."""

    Config = GaussianConfig

    def loss(self, params: Tensor, target: Tensor) -> Tensor:
        """Half the squared error."""
        return 0.5 * (params.squeeze(-1) - target).square()

    def mean(self, params: Tensor) -> Tensor:
        """The output itself."""
        return params.squeeze(-1)
