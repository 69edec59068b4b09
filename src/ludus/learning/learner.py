"""Gradient, clipping and one optimizer step for a loss function: eager, or compiled ahead of time.

All parameters of the model are views into one flat tensor, so that clipping and Adam are a handful of kernels however
many layers there are. The loss is a plain function of (model, batch, numbers); both paths call the same one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ludus.learning.compiled import Compiler
from ludus.learning.optimizer import Optimizer, OptimizerConfig, Rates, traced_norm, traced_share
from ludus.learning.package import Compiled
from ludus.types import Tree, tree_leaves, tree_map

Batch = dict[str, Tree]
Loss = Callable[..., tuple[Tensor, dict[str, Tensor]]]
"""(model, batch, numbers, **flags) -> (loss, metrics); numbers may be floats or 0-d tensors, flags are static."""


class Learner:
    """Owns a model's flat parameters, its optimizer and the running sums of its metrics.

    `rates` names numbers that are learning rates of their own, and the parameters they are for; one that a step is not
    given is `lr`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        optimizer: OptimizerConfig,
        *,
        max_grad_norm: float | None,
        parts: Mapping[str, Sequence[str]],
        rates: Mapping[str, Sequence[str]] | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        self.model, self.loss, self.max_grad_norm = model, loss, max_grad_norm
        self.layout = Layout(model, parts)
        self.apart = {name: self.layout.stretch(prefixes) for name, prefixes in (rates or {}).items()}
        self.theta, self.grad = flatten(model, self.layout)
        self.optimizer = Optimizer(optimizer, self.theta)
        self.compiler = compiler
        self.version = 0  # counts steps, so that copies of the weights know when they are stale
        self.batch: Batch | None = None
        """The newest batch, for whoever wants to know what went wrong."""
        self.watched = False
        """Look at every step: one that is not finite is kept out of the metrics and named by `take_bad`."""
        self._bad: str | None = None
        self._variants: dict[Any, Variant] = {}
        self._last: tuple[Variant, Tensor] | None = None

    def step(self, batch: Batch, numbers: Mapping[str, float], *, accumulate: int = 1, **flags: Any) -> None:
        """One update; `numbers` must contain `lr`. Metrics are summed on the device and read by `metrics()`.

        With `accumulate` the batch goes through the model in so many parts whose gradients are added up; a loss that is
        a mean over steps then has the same gradient as in one pass. Such a step is never compiled.
        """
        self.batch = batch
        variant = self._variant(batch, numbers, flags, may_compile=accumulate == 1)
        if variant.compiled is None:
            names, row = self._in_place(parts_of(batch, accumulate), numbers, flags)
            variant.names = names
        else:
            row = self._run(variant, leaves_of(batch), numbers)
        self._count(variant, row)

    def _count(self, variant: Variant, row: Tensor) -> None:
        self.version += 1
        self._last = variant, row
        if self.watched and not bool(row.isfinite().all()):
            self._bad = next(name for name, value in variant.row(row).items() if not math.isfinite(value))
            return
        variant.add(row)

    def take_bad(self) -> str | None:
        """The metric that was not finite in a step since the last call, if the learner is watched."""
        bad, self._bad = self._bad, None
        return bad

    def _variant(
        self, batch: Batch, numbers: Mapping[str, float], flags: Mapping[str, Any], *, may_compile: bool
    ) -> Variant:
        """One for each set of flags; compiled ones also for each shape of batch."""
        wanted = may_compile and self.compiler is not None and self.compiler.wants(batch, self.theta.device.type)
        leaves = leaves_of(batch) if wanted else []
        key = (tuple([x.shape for x in leaves]), tuple(numbers), tuple(flags.items()))
        variant = self._variants.get(key)
        if variant is None:
            variant = self._variants[key] = Variant()
            if wanted:
                self._compile(variant, batch, leaves, numbers, flags)
        return variant

    def _compile(
        self,
        variant: Variant,
        batch: Batch,
        leaves: list[Tensor],
        numbers: Mapping[str, float],
        flags: Mapping[str, Any],
    ) -> None:
        assert self.compiler is not None
        example = [*self._weights(), self._number_tensor(numbers), *leaves]
        function = self._pure_step(variant, batch, tuple(numbers), flags)
        variant.compiled = self.compiler.get(function, example, batch["first"].numel())

    def _in_place(
        self, parts: Sequence[tuple[float, Batch]], numbers: Mapping[str, float], flags: Mapping[str, Any]
    ) -> tuple[list[str], Tensor]:
        self.grad.zero_()
        told: list[Tensor] = []
        for share, part in parts:
            loss, metrics = self.loss(self.model, part, numbers, **flags)
            (loss if len(parts) == 1 else share * loss).backward()
            told.append(share * torch.stack([*metrics.values(), loss]).detach())
        norms = torch.stack([self.grad[part].norm() for part in self.layout.parts.values()])
        total = norms.norm() if len(norms) > 1 else norms[0]
        if self.max_grad_norm is not None:
            self.grad.mul_((self.max_grad_norm / (total + 1e-6)).clamp(max=1.0))
        self.optimizer.step(self.grad, self._rates(numbers) or numbers["lr"])
        with torch.no_grad():
            return self._names(metrics), torch.cat([sum(told[1:], told[0]), total.unsqueeze(0), norms])

    def _rates(self, numbers: Mapping[str, Any]) -> Rates:
        """Learning rates along the flat tensor; nothing where one is for all."""
        own = sorted((where.start, where.stop, name) for name, where in self.apart.items() if name in numbers)
        rates: Rates = []
        done = 0
        for start, stop, name in own:
            rates += [(slice(done, start), numbers["lr"]), (slice(start, stop), numbers[name])]
            done = stop
        rates.append((slice(done, self.theta.numel()), numbers["lr"]))
        return [(where, rate) for where, rate in rates if where.start < where.stop] if own else []

    def _names(self, metrics: Mapping[str, Tensor]) -> list[str]:
        norms = [f"opt/grads/norm/{part}" for part in self.layout.parts]
        return [*metrics, "loss/total", "opt/grads/norm/all", *norms]

    # ---- the same step as one function of tensors, for the compiler ------------------------------

    def _weights(self) -> list[Tensor]:
        return [self.theta, *self.optimizer.tensors]

    def _run(self, variant: Variant, leaves: list[Tensor], numbers: Mapping[str, float]) -> Tensor:
        assert variant.compiled is not None
        arguments = [*self._weights(), self._number_tensor(numbers), *leaves]
        self.optimizer.count += 1
        (row,) = variant.compiled(arguments)
        return row

    def _number_tensor(self, numbers: Mapping[str, float]) -> Tensor:
        return torch.from_numpy(np.array([*numbers.values(), *self.optimizer.corrections()], np.float32))

    def _pure_step(
        self, variant: Variant, batch: Batch, names: Sequence[str], flags: Mapping[str, Any]
    ) -> Callable[..., tuple[Tensor]]:
        moments = len(self.optimizer.tensors)

        def update(*arguments: Tensor) -> tuple[Tensor]:
            theta, state = arguments[0], arguments[1 : 1 + moments]
            values = arguments[1 + moments].unbind()
            numbers = dict(zip(names, values, strict=False))
            leaf = theta.detach().requires_grad_()
            parameters = self.layout.unflatten(leaf)
            filled = refill(batch, list(arguments[2 + moments :]))

            def model(*inputs: Any) -> Any:
                return torch.func.functional_call(self.model, parameters, inputs)

            loss, metrics = self.loss(model, filled, numbers, **flags)
            variant.names = self._names(metrics)
            (grad,) = torch.autograd.grad(loss, leaf)
            norms = torch.stack([traced_norm(grad[part]) for part in self.layout.parts.values()])
            total = norms.norm()
            if self.max_grad_norm is not None:
                grad = grad * traced_share(self.max_grad_norm, total)
            spread = [rate.expand(where.stop - where.start) for where, rate in self._rates(numbers)]
            lr = torch.cat(spread) if spread else numbers["lr"]
            new_theta, new_state = self.optimizer.pure(theta, state, grad, lr, values[len(names) :])
            theta.copy_(new_theta)
            for old, new in zip(state, new_state, strict=True):
                old.copy_(new)
            return (torch.cat([torch.stack([*metrics.values(), loss, total]), norms]).detach(),)

        return update

    # ---- metrics and state -----------------------------------------------------------------------

    def last(self, name: str) -> float:
        """A metric of the newest step; waits for the device."""
        assert self._last is not None
        variant, row = self._last
        return variant.row(row)[name]

    def metrics(self) -> dict[str, float]:
        """Means since the last call, read once; each over the steps that had it, whatever their flags."""
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for _, variant in sorted(self._variants.items(), key=lambda item: str(item[0])):  # a resumed run adds up alike
            for name, value in variant.take().items():
                sums[name] = sums.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + variant.count
            variant.count = 0
        return {name: value / counts[name] for name, value in sums.items() if counts[name]}

    def state_dict(self) -> dict[str, Any]:
        """Weights by name and the optimizer."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copies into the flat storage; views stay views."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.version += 1


@dataclass
class Variant:
    """Steps with one set of flags (compiled: and one shape of batch): what they report, and their compiled form."""

    names: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    """Which parts of the weights these steps change, where a learner has several."""
    sums: Tensor | None = None
    count: int = 0
    compiled: Compiled | None = None

    def add(self, row: Tensor) -> None:
        """One more step, summed on the device."""
        self.sums = row.clone() if self.sums is None else self.sums.add_(row)
        self.count += 1

    def row(self, row: Tensor) -> dict[str, float]:
        """A row of numbers by name."""
        return dict(zip(self.names, row.tolist(), strict=True))

    def take(self) -> dict[str, float]:
        """Sums since the last call."""
        taken, self.sums = self.sums, None
        return {} if taken is None else self.row(taken)


class Layout:
    """Where each parameter lies in the flat tensor; parameters of one part lie side by side."""

    def __init__(self, model: nn.Module, parts: Mapping[str, Sequence[str]]) -> None:
        named = dict(model.named_parameters())
        part_of = {n: next((p for p, prefixes in parts.items() if n.startswith(tuple(prefixes))), None) for n in named}
        lost = [name for name, part in part_of.items() if part is None]
        assert not lost, f"parameters in no part: {lost}"
        self.names = [name for part in parts for name in named if part_of[name] == part]
        self.shapes = [named[name].shape for name in self.names]
        self.sizes = [named[name].numel() for name in self.names]
        self.parts: dict[str, slice] = {}
        start = 0
        for part in parts:
            size = sum(s for n, s in zip(self.names, self.sizes, strict=True) if part_of[n] == part)
            if size:
                self.parts[part] = slice(start, start + size)
            start += size

    def stretch(self, prefixes: Sequence[str]) -> slice:
        """Where the parameters with these prefixes lie, which must be side by side."""
        inside = [i for i, name in enumerate(self.names) if name.startswith(tuple(prefixes))]
        if not inside:
            return slice(0, 0)
        first, last = inside[0], inside[-1]
        assert last - first + 1 == len(inside), f"parameters {prefixes} do not lie side by side"
        return slice(sum(self.sizes[:first]), sum(self.sizes[: last + 1]))

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Named views of a flat tensor."""
        pieces = theta.split(self.sizes)
        return {n: piece.view(s) for n, piece, s in zip(self.names, pieces, self.shapes, strict=True)}


def flatten(model: nn.Module, layout: Layout) -> tuple[Tensor, Tensor]:
    """Moves parameters and their gradients into two flat tensors; the module keeps views of them."""
    named = dict(model.named_parameters())
    theta = torch.cat([named[name].detach().reshape(-1) for name in layout.names])
    grad = torch.zeros_like(theta)
    values, slopes = layout.unflatten(theta), layout.unflatten(grad)
    for name, parameter in named.items():
        parameter.data = values[name]
        parameter.grad = slopes[name]
    return theta, grad


def leaves_of(batch: Batch) -> list[Tensor]:
    """Tensors of a batch in key order, trees of tuples opened."""
    return [leaf for tree in batch.values() for leaf in tree_leaves(tree)]


def parts_of(batch: Batch, count: int) -> list[tuple[float, Batch]]:
    """A batch [T, B, ...] (`state`: [B, ...]) cut along B into at most `count` parts, each with its share of it.

    Parts are views: what a loss writes into one is in the batch. A column of one dimension has no B and stays whole.
    """
    if count == 1:
        return [(1.0, batch)]
    columns = {name: column for name, column in batch.items() if name != "state"}
    size = next(column.shape[1] for column in columns.values() if column.ndim > 1)
    found = []
    for index in torch.arange(size).tensor_split(min(count, size)):
        where = slice(int(index[0]), int(index[-1]) + 1)
        part = {name: column[:, where] if column.ndim > 1 else column for name, column in columns.items()}
        if "state" in batch:
            part["state"] = tree_map(lambda leaf, where=where: leaf[where], batch["state"])
        found.append((len(index) / size, part))
    return found


def refill(batch: Batch, leaves: list[Tensor]) -> Batch:
    """A batch of the same structure with other tensors."""
    queue = iter(leaves)
    return {name: tree_map(lambda _: next(queue), tree) for name, tree in batch.items()}
