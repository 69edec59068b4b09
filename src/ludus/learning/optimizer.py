"""Adam, AdamW and SGD on one flat tensor.

Written out instead of taken from torch.optim: importing that pulls in the compiler (over a second of start-up), and one
fused kernel on one tensor is all a small network needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from ludus.config.model import Model
from ludus.learning.torch_private import fused_adam, fused_adamw
from ludus.math.losses import Scalar

COLUMNS = 256
Rates = list[tuple[slice, Scalar]]
"""Stretches that cover a flat tensor, each with its learning rate."""


class OptimizerConfig(Model):
    """How gradients change parameters."""

    type: Literal["adam", "adamw", "sgd"] = "adam"
    """`adamw` decays weights apart from the gradient; `sgd` has momentum."""
    eps: float = Field(default=1e-5, gt=0)
    """Added to the denominator of Adam."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of Adam's moments; the first is the momentum of SGD."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Pull towards zero."""


class Optimizer:
    """One optimizer over one flat tensor, in place (`step`) or as a pure function (`pure`)."""

    def __init__(self, cfg: OptimizerConfig, theta: Tensor) -> None:
        self.cfg, self.theta = cfg, theta
        self.count = 0
        moments = 1 if cfg.type == "sgd" else 2
        self.tensors = [torch.zeros_like(theta) for _ in range(moments)]
        self._count_tensor = torch.zeros((), dtype=torch.float32, device=theta.device)

    @torch.no_grad()
    def step(self, grad: Tensor, lr: Scalar | Rates) -> None:
        """One step along `grad`, in place."""
        self.count += 1
        self._count_tensor.fill_(self.count)
        if not isinstance(lr, list):
            self._follow(self.theta, grad, self.tensors, lr)
            return
        for where, rate in lr:
            self._follow(self.theta[where], grad[where], [tensor[where] for tensor in self.tensors], rate)

    def _follow(self, theta: Tensor, grad: Tensor, moments: Sequence[Tensor], lr: Scalar) -> None:
        cfg = self.cfg
        if cfg.type == "sgd":
            (momentum,) = moments
            if cfg.weight_decay:
                grad = grad.add(theta, alpha=cfg.weight_decay)
            momentum.mul_(cfg.betas[0]).add_(grad)
            theta.sub_(momentum, alpha=float(lr))
            return
        fused = fused_adamw if cfg.type == "adamw" else fused_adam
        fused(
            [theta],
            [grad],
            [moments[0]],
            [moments[1]],
            [],
            [self._count_tensor],
            lr=lr,
            beta1=cfg.betas[0],
            beta2=cfg.betas[1],
            weight_decay=cfg.weight_decay,
            eps=cfg.eps,
            amsgrad=False,
            maximize=False,
        )

    def corrections(self) -> tuple[float, float]:
        """Bias correction of Adam's next step: factors of its learning rate and of its `eps`."""
        (beta1, beta2), count = self.cfg.betas, self.count + 1
        scale = math.sqrt(1 - beta2**count)
        return scale / (1 - beta1**count), scale

    def pure(
        self, theta: Tensor, state: Sequence[Tensor], grad: Tensor, lr: Scalar, corrections: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """The same step without side effects, for compilation; `lr` has no dimension or the parameters' one."""
        cfg, (beta1, beta2) = self.cfg, self.cfg.betas
        if cfg.type == "sgd":
            momentum = state[0] * beta1 + grad + cfg.weight_decay * theta
            return theta - lr * momentum, [momentum]
        if cfg.type == "adamw":
            theta = theta * (1 - lr * cfg.weight_decay)
        elif cfg.weight_decay:
            grad = grad + cfg.weight_decay * theta
        first = torch.lerp(state[0], grad, 1 - beta1)
        second = state[1] * beta2 + grad * grad * (1 - beta2)
        rate, eps = lr * corrections[0], cfg.eps * corrections[1]
        return theta - rate * first / (second.sqrt() + eps), [first, second]

    def state_dict(self) -> dict[str, Any]:
        """Moments and the number of steps."""
        return {"count": self.count, "moments": {str(i): tensor for i, tensor in enumerate(self.tensors)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copies the moments in place."""
        self.count = int(state["count"])
        for i, tensor in enumerate(self.tensors):
            tensor.copy_(torch.as_tensor(state["moments"][str(i)]))


def traced_norm(flat: Tensor) -> Tensor:
    """Norm of a long vector, for compiled code: sums of columns take a third of the time of one long sum."""
    whole = flat.numel() // COLUMNS * COLUMNS
    columns = flat[:whole].view(-1, COLUMNS).square().sum(0)
    return (columns.sum() + flat[whole:].square().sum()).sqrt()


def traced_share(longest: float, norm: Tensor) -> Tensor:
    """Factor that clips a gradient of this norm, in compiled code: a reduction is computed once, not per weight."""
    return torch.stack([longest / (norm + 1e-6), torch.ones_like(norm)]).amin()
