"""SGD with momentum, and LaProp (Ziyin et al. 2020): one step of each, in place."""

from __future__ import annotations

from torch import Tensor

from ludus.config.optimizer import OptimizerConfig
from ludus.math.policy_gradient import Scalar


def sgd(cfg: OptimizerConfig, theta: Tensor, grad: Tensor, lr: Scalar, momentum: Tensor) -> None:
    """Weights follow the momentum."""
    if cfg.weight_decay:
        grad = grad.add(theta, alpha=cfg.weight_decay)
    momentum.mul_(cfg.betas[0]).add_(grad)
    theta.sub_(momentum, alpha=float(lr))


def laprop(
    cfg: OptimizerConfig, theta: Tensor, grad: Tensor, lr: Scalar, count: int, momentum: Tensor, square: Tensor
) -> None:
    """Gradients are normalised before they are averaged; `count` is the number of this step."""
    beta1, beta2 = cfg.betas
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    scaled = grad / (square / (1 - beta2**count)).sqrt_().add_(cfg.eps)
    momentum.lerp_(scaled, 1 - beta1)
    if cfg.weight_decay:
        theta.mul_(1 - float(lr) * cfg.weight_decay)
    theta.sub_(momentum, alpha=float(lr) / (1 - beta1**count))
