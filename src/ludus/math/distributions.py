"""Action distributions as data: a flat parameter vector goes in, no object is made per call, so updates compile well.

Shapes: `...` any leading dimensions; parameters [..., P] with P = `param_dim`, actions [..., *action_shape].
Log-probability, entropy and divergence are torch functions; sampling and the mode are numpy, for acting.
Actions count from zero and are not clipped: what an environment gets (shifted, clipped, rescaled) is made afterwards.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, softplus

from ludus.errors import ConfigError
from ludus.types import Array

if TYPE_CHECKING:
    import gymnasium as gym

LOG_2PI = math.log(2 * math.pi)


class Distribution(ABC):
    """One kind of action; holds sizes only."""

    param_dim: int
    action_shape: tuple[int, ...]
    action_dtype: np.dtype

    @abstractmethod
    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """Log-probability (density) of an action, [...]."""

    @abstractmethod
    def entropy(self, params: Tensor) -> Tensor:
        """Entropy in nats, [...]."""

    @abstractmethod
    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """KL(params || other), [...]."""

    @abstractmethod
    def facts(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """What describes a distribution, as functions of its parameters: `probabilities`, or `mean` and `std`."""

    @abstractmethod
    def sample_numpy(self, params: Array, rng: np.random.Generator) -> Array:
        """One action per row of `params`."""

    @abstractmethod
    def mode_numpy(self, params: Array) -> Array:
        """Most likely action per row of `params`."""

    def _flat(self, params: Tensor, action: Tensor) -> Tensor:
        return action.reshape(*params.shape[:-1], -1)

    def _shaped(self, params: Any, action: Any) -> Any:
        return action.reshape(*params.shape[:-1], *self.action_shape)


class Categorical(Distribution):
    """Discrete(n): P = n logits."""

    def __init__(self, n: int) -> None:
        self.param_dim, self.action_shape, self.action_dtype = n, (), np.dtype(np.int64)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """The log-softmax of the chosen class."""
        return log_softmax(params, -1).gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self, params: Tensor) -> Tensor:
        logp = log_softmax(params, -1)
        return -(logp.exp() * logp).sum(-1)

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        logp = log_softmax(params, -1)
        return (logp.exp() * (logp - log_softmax(other, -1))).sum(-1)

    def facts(self) -> dict[str, Callable[[Tensor], Tensor]]:
        return {"probabilities": lambda params: params.softmax(-1)}

    def sample_numpy(self, params: Array, rng: np.random.Generator) -> Array:
        """By the Gumbel-max trick."""
        noise = rng.standard_exponential(params.shape)  # Gumbel-max: -log of a standard exponential is Gumbel noise
        return (np.log(noise, noise) - params.astype(np.float64)).argmin(-1)  # of one type it takes half the time

    def mode_numpy(self, params: Array) -> Array:
        """The class with the largest logit."""
        return params.argmax(-1)


class MultiCategorical(Distribution):
    """MultiDiscrete(nvec): the logits of every component one after another."""

    def __init__(self, nvec: Array) -> None:
        self.parts = [Categorical(int(n)) for n in np.ravel(nvec)]
        self.sizes = [part.param_dim for part in self.parts]
        self.cuts = np.cumsum(self.sizes)[:-1]
        self.param_dim, self.action_shape = sum(self.sizes), tuple(np.shape(nvec))
        self.action_dtype = np.dtype(np.int64)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """Components are independent: their log-probabilities add up."""
        actions = self._flat(params, action).unbind(-1)
        return self._sum("log_prob", params.split(self.sizes, -1), actions)

    def entropy(self, params: Tensor) -> Tensor:
        """Entropies of the components add up."""
        return self._sum("entropy", params.split(self.sizes, -1))

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """Divergences of the components add up."""
        return self._sum("kl", params.split(self.sizes, -1), other.split(self.sizes, -1))

    def facts(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """The probabilities of all components one after another."""
        return {"probabilities": lambda p: torch.cat([part.softmax(-1) for part in p.split(self.sizes, -1)], -1)}

    def sample_numpy(self, params: Array, rng: np.random.Generator) -> Array:
        """By the Gumbel-max trick, all components at once."""
        return self.mode_numpy(params - np.log(rng.standard_exponential(params.shape)))

    def mode_numpy(self, params: Array) -> Array:
        """The class with the largest logit of every component."""
        return self._shaped(params, np.stack([part.argmax(-1) for part in np.split(params, self.cuts, -1)], -1))

    def _sum(self, method: str, *columns: Any) -> Tensor:
        rows = zip(self.parts, *columns, strict=True)
        return torch.stack([getattr(part, method)(*args) for part, *args in rows]).sum(0)


class Bernoulli(Distribution):
    """MultiBinary(n): P = n logits of independent bits."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.param_dim, self.action_shape, self.action_dtype = math.prod(shape), shape, np.dtype(np.int8)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """log sigmoid(x) of a set bit, log sigmoid(-x) of a cleared one, summed."""
        return (self._flat(params, action) * params - softplus(params)).sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        return (softplus(params) - params * params.sigmoid()).sum(-1)

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        return (params.sigmoid() * (params - other) - softplus(params) + softplus(other)).sum(-1)

    def facts(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """The probability that each bit is set."""
        return {"probabilities": torch.sigmoid}

    def sample_numpy(self, params: Array, rng: np.random.Generator) -> Array:
        """A bit is set where its logit plus logistic noise is positive."""
        return self.mode_numpy(params + rng.logistic(size=params.shape))

    def mode_numpy(self, params: Array) -> Array:
        """A bit is set where its logit is positive."""
        return self._shaped(params, (params > 0).astype(np.int8))


class DiagonalGaussian(Distribution):
    """Box: P = mean and log deviation of each component, one after the other."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.size = math.prod(shape)
        self.param_dim, self.action_shape, self.action_dtype = 2 * self.size, shape, np.dtype(np.float32)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """Dimensions are independent: their log-densities add up."""
        mean, log_std = self._split(params)
        z = (self._flat(params, action) - mean) * (-log_std).exp()
        return -(0.5 * z.square() + log_std).sum(-1) - 0.5 * self.size * LOG_2PI

    def entropy(self, params: Tensor) -> Tensor:
        return self._split(params)[1].sum(-1) + 0.5 * self.size * (1 + LOG_2PI)

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """log(s2 / s1) + (s1^2 + (m1 - m2)^2) / (2 s2^2) - 1/2, summed over dimensions."""
        (mean, log_std), (mean_o, log_std_o) = self._split(params), self._split(other)
        spread = (2 * log_std).exp() + (mean - mean_o).square()
        return (log_std_o - log_std + 0.5 * spread * (-2 * log_std_o).exp() - 0.5).sum(-1)

    def facts(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Of the Gaussian itself: before its samples are squashed."""
        return {
            "mean": lambda params: self._shaped(params, self._split(params)[0]),
            "std": lambda params: self._shaped(params, self._split(params)[1].exp()),
        }

    def sample_numpy(self, params: Array, rng: np.random.Generator) -> Array:
        mean, log_std = params[..., : self.size], self._bounded(params[..., self.size :])
        return self._shaped(params, mean + np.exp(log_std) * rng.standard_normal(mean.shape, np.float32))

    def mode_numpy(self, params: Array) -> Array:
        """The mean."""
        return self._shaped(params, params[..., : self.size])

    def reparametrized(self, params: Tensor, noise: Tensor) -> Tensor:
        """Actions as a differentiable function of the parameters; `noise` is standard normal, [..., size]."""
        mean, log_std = self._split(params)
        return self._shaped(params, mean + log_std.exp() * noise)

    def _split(self, params: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = params.chunk(2, -1)
        return mean, self._bounded(log_std)

    @classmethod
    def _bounded(cls, log_std: Any) -> Any:
        return log_std


class SquashedGaussian(DiagonalGaussian):
    """tanh of a Gaussian. Actions are kept before the tanh, where their density is exact.

    log pi(tanh u) = log N(u) - sum log(1 - tanh(u)^2), and log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)).
    Log deviations are kept within [-20, 2]: a network puts them out, and nothing else would hold them.
    """

    LOG_STD = (-20.0, 2.0)

    NODES = torch.linspace(-6.0, 6.0, 128)
    WEIGHTS = torch.softmax(-0.5 * NODES.square(), 0)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """Density before the tanh, divided by the slope of the tanh."""
        return super().log_prob(params, action) - self._log_slope(self._flat(params, action)).sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        """By the trapezoid rule over six deviations, for there is no closed form: right to 1e-4 for every deviation.

        The integrand bends within one unit, which is little of a wide Gaussian: polynomials miss that.
        """
        mean, log_std = (part.unsqueeze(-1) for part in self._split(params))
        u = mean + log_std.exp() * self.NODES.to(params)
        slope = (self._log_slope(u) * self.WEIGHTS.to(params)).sum(-1)
        return super().entropy(params) + slope.sum(-1)

    @classmethod
    def _bounded(cls, log_std: Any) -> Any:
        return log_std.clip(*cls.LOG_STD)

    @staticmethod
    def _log_slope(u: Tensor) -> Tensor:
        return 2 * (math.log(2) - u - softplus(-2 * u))


class TruncatedGaussian(DiagonalGaussian):
    """A Gaussian cut off at -1 and 1; parameters are mean and log deviation before the cut."""

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """Density of the whole Gaussian, divided by its mass between the bounds."""
        return super().log_prob(params, action) - self._inside(params)[0].log().sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        inside, low, high = self._inside(params)
        bend = (low * _density(low) - high * _density(high)) / (2 * inside)
        return super().entropy(params) + (inside.log() + bend).sum(-1)

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        (mean, log_std), (mean_o, log_std_o) = self._split(params), self._split(other)
        (inside, low, high), inside_o = self._inside(params), self._inside(other)[0]
        shift = (_density(low) - _density(high)) / inside  # mean of (x - mean) / std inside the bounds
        square = 1 + (low * _density(low) - high * _density(high)) / inside
        std, gap = log_std.exp(), mean - mean_o
        square_o = (std.square() * square + 2 * std * gap * shift + gap.square()) * (-2 * log_std_o).exp()
        return (0.5 * (square_o - square) + log_std_o - log_std + inside_o.log() - inside.log()).sum(-1)

    def reparametrized(self, params: Tensor, noise: Tensor) -> Tensor:
        """By the inverse of the distribution function, so that gradients flow to the parameters."""
        mean, log_std = self._split(params)
        inside, low, _ = self._inside(params)
        position = torch.special.ndtr(low) + torch.special.ndtr(noise) * inside
        drawn = mean + log_std.exp() * torch.special.ndtri(position.clamp(1e-6, 1 - 1e-6))
        return self._shaped(params, drawn.clamp(-1.0, 1.0))

    def sample_numpy(self, params: Array, rng: np.random.Generator) -> Array:
        noise = rng.standard_normal((*params.shape[:-1], self.size), np.float32)
        return self.reparametrized(torch.from_numpy(np.ascontiguousarray(params)), torch.from_numpy(noise)).numpy()

    def mode_numpy(self, params: Array) -> Array:
        """The mean, or the bound next to it."""
        return np.clip(super().mode_numpy(params), -1.0, 1.0)

    def _inside(self, params: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(probability between the bounds, both bounds in deviations from the mean)."""
        mean, log_std = self._split(params)
        low, high = (-1 - mean) * (-log_std).exp(), (1 - mean) * (-log_std).exp()
        return (torch.special.ndtr(high) - torch.special.ndtr(low)).clamp(min=1e-6), low, high


def _density(x: Tensor) -> Tensor:
    return (-0.5 * x.square()).exp() / math.sqrt(2 * math.pi)


def distribution_for(space: gym.Space, *, squash: bool = False) -> Distribution:
    """The distribution over actions of `space`; `squash` takes tanh for bounded Boxes."""
    from gymnasium import spaces

    match space:
        case spaces.Discrete():
            return Categorical(int(space.n))
        case spaces.MultiDiscrete():
            return MultiCategorical(space.nvec)
        case spaces.MultiBinary():
            return Bernoulli(space.shape)
        case spaces.Box() if np.issubdtype(space.dtype, np.floating) and 0 not in space.shape:
            return SquashedGaussian(space.shape) if squash else DiagonalGaussian(space.shape)
    raise ConfigError(
        "environment",
        f"actions of {space} are not supported",
        "use Discrete, MultiDiscrete, MultiBinary or a float Box",
    )
