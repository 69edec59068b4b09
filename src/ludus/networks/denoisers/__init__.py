"""Networks that say which noise is in a sequence of actions; `type:` in the config picks the file.

    forward(x_BTA, time, seen) -> noise_BTA

What depends on the diffusion time alone (`time`) and on the observations alone (`seen`) is computed apart: a policy
knows the first before an episode begins and needs the second once for all steps of its sampling.

Shapes: N times, B samples, T actions in a sequence, A size of an action, O observations, D size of an observation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

if TYPE_CHECKING:
    from ludus.config.model import Model


Denoises = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(x_BTA, time, seen) -> noise_BTA"""


class Sizes(NamedTuple):
    """What a denoiser is built for."""

    action: int
    length: int
    """Actions in a sequence."""
    observation: int
    observations: int
    """Newest observations that are seen; the oldest belongs to the first action."""


class Denoiser(nn.Module, ABC):
    """Predicts the noise in sequences of actions, given some observations."""

    Config: type[Model]

    @abstractmethod
    def time(self, time_N: Tensor) -> Tensor:
        """What it has to know about diffusion times, [N, ...]."""

    @abstractmethod
    def seen(self, obs_BOD: Tensor) -> Tensor:
        """What it has to know about observations, [B, ...]."""

    @abstractmethod
    def forward(self, x_BTA: Tensor, time: Tensor, seen: Tensor) -> Tensor:
        """The noise in each sequence; one `time` may be for all of them."""

    def for_few(self) -> Denoises:
        """The same for a few samples and without gradients, with the weights as they are now."""
        return self
