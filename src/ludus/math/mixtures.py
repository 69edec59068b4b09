"""Mixtures of Gaussians for single numbers, as a mixture density network has them (Bishop 1994).

Parameters are [..., 3 K]: logits of the K weights, means, logarithms of the deviations. Noise is standard normal and
comes from outside. Shapes: `...` any leading dimensions, K components.
"""

from __future__ import annotations

import math

from torch import Tensor

from ludus.math.latents import one_hot_mode, one_hot_sample, uniform

LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


def mixture_log_likelihood(params_3K: Tensor, x: Tensor) -> Tensor:
    """Log-likelihood [...] of numbers."""
    logits, mean, log_std = params_3K.chunk(3, -1)
    distance = (x.unsqueeze(-1) - mean) * (-log_std).exp()
    return (logits.log_softmax(-1) - 0.5 * distance.square() - log_std - LOG_ROOT_2PI).logsumexp(-1)


def mixture_sample(params_3K: Tensor, chooses: Tensor, noise: Tensor, temperature: float = 1.0) -> Tensor:
    """Samples [...]: `chooses` picks the component, `noise` the place in it; both are noise.

    The temperature divides the logits and multiplies the variances (Ha & Schmidhuber 2018): above 1 less is certain.
    """
    logits, mean, log_std = params_3K.chunk(3, -1)
    chosen = one_hot_sample((logits / temperature).log_softmax(-1), uniform(chooses))
    return (chosen * (mean + log_std.exp() * (math.sqrt(temperature) * noise.unsqueeze(-1)))).sum(-1)


def mixture_mode(params_3K: Tensor) -> Tensor:
    """The mean [...] of the component with the largest weight."""
    logits, mean, _ = params_3K.chunk(3, -1)
    return (one_hot_mode(logits) * mean).sum(-1)
