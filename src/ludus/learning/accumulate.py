"""Gradient accumulation: the parts of a batch go through the networks one after the other, in less memory.

The update function runs once for each part, side by side. At every `step` the gradients of all parts are added up, each
weighted by its share of the batch; the last part takes the step, and then all of them go on with the new weights. So a
loss that is a mean over the batch has the gradient that it has in one pass. A function with more than one step has to
`yield` after each of them, so that the parts can wait for each other.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

import torch
from torch import Tensor

from ludus.learning.learner import Batch, Learner, Metrics, Networks, Outputs, UpdateFunction
from ludus.learning.several_steps import Running, finished
from ludus.math.policy_gradient import Scalar
from ludus.types import tree_leaves, tree_map


def accumulated(
    learner: Learner, function: UpdateFunction, count: int, static: Mapping[str, object]
) -> tuple[Networks, Metrics, Outputs]:
    """One update over `count` parts of the learner's batch: (networks with its gradient norms, metrics, outputs)."""
    assert learner.batch is not None
    parts = parts_of(learner.batch, count)
    size, drawn = parts[-1][0].stop, list[Tensor]()
    nets = [PartNetworks(learner, where, size, drawn) for where, _ in parts]
    running = [function(one, part, learner.scalars, **static) for one, (_, part) in zip(nets, parts, strict=True)]
    if nets[0].steps > 1:
        raise TypeError(f"{function.__qualname__} takes several steps: it has to yield after each one to accumulate")
    metrics, outputs = zip(*map(finished, side_by_side(running)), strict=True)
    shares = [one.share for one in nets]
    means = {name: sum(s * m[name].detach() for s, m in zip(shares, metrics, strict=True)) for name in metrics[0]}
    return nets[-1], means, {name: torch.cat([one[name] for one in outputs], 1) for name in outputs[0]}


def parts_of(batch: Batch, count: int) -> list[tuple[slice, Batch]]:
    """A batch cut along B into at most `count` parts, with the slice of B that each holds.

    Parts are views. A column of one dimension has no B and stays whole.
    """
    columns = [leaf for name, tree in batch.items() if name != "state" for leaf in tree_leaves(tree)]
    size = next(leaf.shape[1] for leaf in columns if leaf.ndim > 1)
    count = min(count, size)
    bounds = [part * (size // count) + min(part, size % count) for part in range(count + 1)]

    def cut(name: str, leaf: Tensor, where: slice) -> Tensor:
        return leaf[where] if name == "state" else leaf[:, where] if leaf.ndim > 1 else leaf

    return [
        (where, {name: tree_map(lambda leaf, n=name, w=where: cut(n, leaf, w), tree) for name, tree in batch.items()})
        for where in map(slice, bounds[:-1], bounds[1:])
    ]


def side_by_side(running: Sequence[Running]) -> Sequence[Running]:
    """Drive functions that yield from step to step, all of them to the same one; others have ended already."""
    found: list[Running] = []
    while not found and isinstance(running[0], Generator):
        for run in running:
            assert isinstance(run, Generator)
            try:
                next(run)
            except StopIteration as end:
                found.append(end.value)
    return found or running


class PartNetworks(Networks):
    """The networks, as the function sees them that runs over one part of a batch."""

    def __init__(self, learner: Learner, where: slice, size: int, drawn: list[Tensor]) -> None:
        super().__init__(learner)
        self.where, self.size, self.share = where, size, (where.stop - where.start) / size
        self.steps = 0
        self._drawn, self._asked = drawn, 0

    def noise(self, shape: Sequence[int]) -> Tensor:
        """This part's columns of the noise for the whole batch."""
        if len(shape) < 2 or shape[-2] != self.where.stop - self.where.start:
            raise TypeError(f"noise of shape {tuple(shape)}: to accumulate, it has to be [..., B, D]")
        if self._asked == len(self._drawn):
            self._drawn.append(self._learner.draw((*shape[:-2], self.size, shape[-1])))
        self._asked += 1
        return self._drawn[self._asked - 1][..., self.where, :]

    def step(self, group: str, loss: Tensor, lr: Scalar, **rates: Scalar | None) -> None:
        """Adds to the gradient of the group; the last part takes the optimizer step."""
        self.steps += 1
        self._descend(group, self.share * loss, fresh=self.where.start == 0)
        if self.where.stop == self.size:
            self._follow(group, lr, rates)

    def polyak(self, name: str, tau: Scalar) -> None:
        """Once for all parts."""
        if self.where.stop == self.size:
            super().polyak(name, tau)
