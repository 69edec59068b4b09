"""Settings of optimizers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from ludus.config.model import Model


class OptimizerConfig(Model):
    """How gradients change parameters."""

    type: Literal["adam", "adamw", "laprop", "sgd"] = "adam"
    """`adamw` decays weights apart from the gradient; `laprop` normalises gradients before it averages them (Ziyin et
    al. 2020); `sgd` has momentum."""
    eps: float = Field(default=1e-5, gt=0)
    """Added to the denominator of Adam and LaProp."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of Adam's moments; the first is the momentum of SGD."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Pull towards zero."""
    agc: float | None = Field(default=None, gt=0)
    """Adaptive gradient clipping: no parameter tensor's gradient norm is more than this share of the tensor's own
    (Brock et al. 2021); none: off."""


class WithOptimizer(Model):
    """A config with the field `optimizer`: what is not said of it is as the class has it."""

    @model_validator(mode="before")
    @classmethod
    def keep_own_optimizer(cls, given: Any) -> Any:
        """Fill in what the class has set."""
        if not isinstance(given, dict) or not isinstance(wanted := given.get("optimizer"), dict):
            return given
        own = cls.model_fields["optimizer"].default.model_dump(exclude_unset=True)
        return {**given, "optimizer": {**own, **wanted}}
