"""How much memory an update needs: run on networks that take no step, for a batch of one, it is measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ludus.learning.learner import Batch, Learner, Networks, Scalars, UpdateFunction
from ludus.learning.several_steps import finished

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ludus.learning.learner import FixedFunction
    from ludus.math.policy_gradient import Scalar


class Rehearsal:
    """`kept` runs an update function of a learner and counts the bytes that its gradients would need."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.weights = {part.untyped_storage().data_ptr() for part in learner.model.parameters()}

    def kept(self, function: UpdateFunction, batch: Batch, scalars: Scalars, **static: object) -> int:
        """Bytes of the tensors that are kept until the last step of the function; nothing changes."""
        found: dict[int, int] = {}

        def count(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.weights:
                found[storage.data_ptr()] = storage.nbytes()
            return tensor

        nets = RehearsingNetworks(self.learner)
        with saved_tensors_hooks(count, lambda tensor: tensor):
            finished(function(nets, batch, scalars, **static))
        return sum(found.values())


class RehearsingNetworks(Networks):
    """The same networks without noise, steps or compiled parts."""

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self.losses: list[Tensor] = []
        """Kept, so that no graph is freed before all are counted."""

    def noise(self, shape: Sequence[int]) -> Tensor:
        return torch.zeros(tuple(shape), device=self._learner.theta.device)

    def step(self, group: str, loss: Tensor, lr: Scalar, **rates: Any) -> None:
        self.losses.append(loss)

    def polyak(self, name: str, tau: Scalar) -> None:
        """Slow copies stay where they are."""

    def whole(self, columns: Tensor) -> Tensor:
        """Other ranks do not rehearse."""
        return columns

    def fixed(self, function: FixedFunction, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            return function(self, inputs)
