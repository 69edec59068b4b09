"""What an update function sees of its learner: networks by name, noise, optimizer steps, slow copies."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ludus.learning.torch_private import reparametrized
from ludus.math.losses import Scalar
from ludus.types import Tree

if TYPE_CHECKING:
    from ludus.learning.learner import Learner

Batch = dict[str, Tree]
"""Columns [T, B, ...] (`state`: [B, ...]), each a tensor or a tree of them."""
Scalars = Mapping[str, Scalar]
Metrics = dict[str, Tensor]
Outputs = dict[str, Tensor]
Results = Metrics | tuple[Metrics, Outputs]
Steps = Generator[None, None, Results]
"""What a function returns that yields after each of its steps (`learning/accumulate.py`)."""
Running = Results | Steps
UpdateFunction = Callable[..., Running]
"""(nets, batch, scalars, **static) -> metrics, or (metrics, outputs); metrics are tensors without dimensions."""


class Networks:
    """Networks are attributes: `nets.policy` is the module itself, `nets.target_critic` the slow copy of `critic`."""

    def __init__(self, learner: Learner) -> None:
        self.__dict__.update(learner.networks)
        self._learner = learner
        self.norms: list[Tensor] = []
        """Gradient norms of the steps so far, as vectors; `norm_names` has a name for each number in them."""
        self.norm_names: list[str] = []

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def noise(self, shape: Sequence[int]) -> Tensor:
        """Standard normal numbers, [..., B, D]; whatever is random in an update comes from here."""
        return self._learner.draw(shape)

    def step(self, group: str, loss: Tensor, lr: Scalar, **rates: Scalar | None) -> None:
        """One optimizer step on a group, along the gradient of a loss that may depend on other groups too.

        `rates` are learning rates for some of its parameters (`Group.rates`); where one is None, theirs is `lr`.
        """
        self._descend(group, loss, fresh=True)
        self._follow(group, lr, rates)

    def polyak(self, name: str, tau: Scalar) -> None:
        """The slow copy of a network moves the fraction `tau` of the way to it."""
        self._learner.polyak(name, tau)

    def _descend(self, group: str, loss: Tensor, *, fresh: bool) -> None:
        trained = self._learner.groups[group]
        self._learner.look("loss of", {group: loss})
        if fresh:
            trained.grad.zero_()
        loss.backward(inputs=trained.inputs)

    def _follow(self, group: str, lr: Scalar, rates: Mapping[str, Scalar | None]) -> None:
        trained = self._learner.groups[group]
        self.norms += trained.step(lr, rates)
        self.norm_names += trained.norm_names


class TracedNetworks(Networks):
    """The same over given tensors, without an effect on any other: a traced update is one graph.

    The modules are the learner's own; inside the context, their parameters are views of the given tensors.
    """

    def __init__(
        self,
        learner: Learner,
        flat: Mapping[str, Tensor],
        moments: Mapping[str, Sequence[Tensor]],
        corrections: Iterator[Tensor],
        noise: Sequence[Tensor],
    ) -> None:
        super().__init__(learner)
        self._given, self._given_moments = flat, moments
        self._flat, self._moments = dict(flat), dict(moments)
        self._corrections = {group: (next(corrections), next(corrections)) for group in moments}
        self._noise, self._open = noise, ExitStack()
        self.shapes: list[tuple[int, ...]] = []
        """Shapes of the noise that the function asked for."""
        self.stepped: list[str] = []

    def __enter__(self) -> TracedNetworks:
        for name, flat in self._given.items():
            self._set(name, flat)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _set(self, name: str, flat: Tensor) -> None:
        """From here on, the parameters of a group or of a slow copy are views of this tensor."""
        self._flat[name] = flat = flat.detach().requires_grad_(name in self._moments)
        views = self._learner.layout.unflatten(flat, self._learner.where[name])
        self._open.enter_context(reparametrized(self._learner.model, views))

    def noise(self, shape: Sequence[int]) -> Tensor:
        """The next of the given tensors; zeros while nothing but the shapes is known."""
        self.shapes.append(tuple(shape))
        return self._noise[len(self.shapes) - 1] if self._noise else torch.zeros(self.shapes[-1])

    def step(self, group: str, loss: Tensor, lr: Scalar, **rates: Scalar | None) -> None:
        """One optimizer step; what comes after it sees the new weights."""
        assert group not in self.stepped, f"a compiled update can step '{group}' only once"
        trained, flat = self._learner.groups[group], self._flat[group]
        (grad,) = torch.autograd.grad(loss, flat)
        before = flat.detach(), self._moments[group], self._corrections[group]
        after, self._moments[group], norms = trained.pure_step(before, grad, lr, rates)
        self._set(group, after)
        self.norms.append(norms)
        self.norm_names += trained.norm_names
        self.stepped.append(group)

    def polyak(self, name: str, tau: Scalar) -> None:
        """The same with the tensors as they are now."""
        slow = f"target_{name}"
        if slow in self._flat:
            group, where = self._learner.source[name]
            self._set(slow, torch.lerp(self._flat[slow], self._flat[group].detach()[where], tau))

    def write_back(self) -> None:
        """Write what changed into the given tensors."""
        for name, given in self._given.items():
            if name in self.stepped or name not in self._moments:
                given.copy_(self._flat[name].detach())
        for group in self.stepped:
            for given, new in zip(self._given_moments[group], self._moments[group], strict=True):
                given.copy_(new)


def finished(run: Running) -> tuple[Metrics, Outputs]:
    """What an update function returns in the end: (metrics, outputs)."""
    while isinstance(run, Generator):
        try:
            next(run)
        except StopIteration as end:
            run = end.value
    return run if isinstance(run, tuple) else (run, {})
