"""A number as a distribution over bins that grow exponentially: errors weigh the same on every scale of rewards."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from ludus.components.heads import Predictor, PredictorConfig
from ludus.math.symlog import symexp_bins, two_hot_cross_entropy, two_hot_mean
from ludus.registry import PREDICTORS


class TwoHotConfig(PredictorConfig):
    """Cross-entropy over bins (Dreamer 3)."""

    bins: int = Field(default=255, ge=3)
    """Bins."""
    limit: float = Field(default=20.0, gt=0, le=80)
    """symlog of the largest bin."""
    output_scale: float = Field(default=0.0, ge=0)
    """Scale of the output layer's first weights; 0: every prediction begins at zero."""


@PREDICTORS.register("two_hot")
class TwoHot(Predictor):
    """Trained by cross-entropy with two-hot targets."""

    Config = TwoHotConfig

    def __init__(self, cfg: TwoHotConfig, inputs: int) -> None:
        super().__init__(cfg, inputs, cfg.bins)
        self.register_buffer("bins", symexp_bins(cfg.limit, cfg.bins), persistent=False)
        self.bins: Tensor

    def loss(self, params: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy towards the two bins next to the target."""
        return two_hot_cross_entropy(params, target, self.bins)

    def mean(self, params: Tensor) -> Tensor:
        """The bins, weighed by their probabilities."""
        return two_hot_mean(params, self.bins)
