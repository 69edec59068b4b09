"""A probability."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ludus.components.heads import Predictor, PredictorConfig
from ludus.registry import PREDICTORS


class BernoulliConfig(PredictorConfig):
    """Probability of an event."""


@PREDICTORS.register("bernoulli")
class BernoulliHead(Predictor):
    """Trained by cross-entropy; targets may lie between 0 and 1."""

    Config = BernoulliConfig

    def loss(self, params: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy."""
        return binary_cross_entropy_with_logits(params.squeeze(-1), target, reduction="none")

    def mean(self, params: Tensor) -> Tensor:
        """The probability."""
        return params.squeeze(-1).sigmoid()
