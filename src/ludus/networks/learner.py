"""Gradient, clipping and one optimizer step for a loss function: eager, or compiled ahead of time.

All parameters of the model are views into one flat tensor, so that clipping and Adam are a handful of kernels however
many layers there are. The loss is a plain function of (model, batch, numbers); both paths call the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ludus.networks.compiled import Compiler
from ludus.networks.optimizer import Optimizer, OptimizerConfig, Rates, traced_norm, traced_share
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
        self._names: list[str] = []
        self._sums: Tensor | None = None
        self._last: Tensor | None = None
        self._count = 0
        self._compiled: dict[Any, Callable[[list[Tensor]], list[Tensor]] | None] = {}

    def step(self, batch: Batch, numbers: Mapping[str, float], *, accumulate: int = 1, **flags: Any) -> None:
        """One update; `numbers` must contain `lr`. Metrics are summed on the device and read by `metrics()`.

        With `accumulate` the batch goes through the model in so many parts whose gradients are added up; a loss that is
        a mean over steps then has the same gradient as in one pass. Such a step is never compiled.
        """
        self.batch = batch
        leaves = [] if self.compiler is None or accumulate > 1 else leaves_of(batch)
        compiled = self._compiled_for(batch, leaves, numbers, flags) if leaves else None
        if compiled is None:
            row = self._in_place(parts_of(batch, accumulate), numbers, flags)
        else:
            row = self._run(compiled, leaves, numbers)
        if self._sums is None:
            self._sums = torch.zeros_like(row)
        self._sums += row
        self._last = row
        self._count += 1
        self.version += 1

    def _in_place(
        self, parts: Sequence[tuple[float, Batch]], numbers: Mapping[str, float], flags: Mapping[str, Any]
    ) -> Tensor:
        self.grad.zero_()
        told: list[Tensor] = []
        for share, part in parts:
            loss, metrics = self.loss(self.model, part, numbers, **flags)
            (loss if len(parts) == 1 else share * loss).backward()
            told.append(share * torch.stack([*metrics.values(), loss]).detach())
            self._remember_names(metrics)
        norms = torch.stack([self.grad[part].norm() for part in self.layout.parts.values()])
        total = norms.norm() if len(norms) > 1 else norms[0]
        if self.max_grad_norm is not None:
            self.grad.mul_((self.max_grad_norm / (total + 1e-6)).clamp(max=1.0))
        self.optimizer.step(self.grad, self._rates(numbers) or numbers["lr"])
        with torch.no_grad():
            return torch.cat([sum(told[1:], told[0]), total.unsqueeze(0), norms])

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

    def _remember_names(self, metrics: Mapping[str, Tensor]) -> None:
        if not self._names:
            parts = [f"opt/grads/norm/{part}" for part in self.layout.parts]
            self._names = [*metrics, "loss/total", "opt/grads/norm/all", *parts]

    # ---- the same step as one function of tensors, for the compiler ------------------------------

    def _compiled_for(
        self, batch: Batch, leaves: list[Tensor], numbers: Mapping[str, float], flags: Mapping[str, Any]
    ) -> Any:
        assert self.compiler is not None
        key = (tuple([x.shape for x in leaves]), tuple(numbers), tuple(flags.items()))
        if key not in self._compiled:
            first = not self._compiled  # only the shape a run starts with is worth building for
            example = [self.theta, *self.optimizer.tensors, self._number_tensor(numbers), *leaves]
            function = self._pure_step(batch, tuple(numbers), flags)
            facts = (flags, self.max_grad_norm, self.optimizer.cfg, tuple(numbers), self.apart, self.model)
            identity = f"{self.loss.__qualname__} {facts!r}"
            owners = [self.loss, *{type(module) for module in self.model.modules()}]
            self._compiled[key] = self.compiler.get(function, example, identity, owners, may_build=first)
            with torch.no_grad():  # a package from the cache was never traced here: ask for the metrics' names once
                self._remember_names(self.loss(self.model, batch, numbers, **flags)[1])
        return self._compiled[key]

    def _run(self, compiled: Any, leaves: list[Tensor], numbers: Mapping[str, float]) -> Tensor:
        arguments = [self.theta, *self.optimizer.tensors, self._number_tensor(numbers), *leaves]
        self.optimizer.count += 1
        (row,) = compiled(arguments)
        return row

    def _number_tensor(self, numbers: Mapping[str, float]) -> Tensor:
        return torch.from_numpy(np.array([*numbers.values(), *self.optimizer.corrections()], np.float32))

    def _pure_step(self, batch: Batch, names: Sequence[str], flags: Mapping[str, Any]) -> Callable[..., tuple[Tensor]]:
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
        return float(self._last[self._names.index(name)])

    def metrics(self) -> dict[str, float]:
        """Means over the steps since the last call, read once."""
        if self._sums is None or self._count == 0:
            return {}
        means = (self._sums / self._count).tolist()
        self._sums.zero_()
        self._count = 0
        return dict(zip(self._names, means, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Weights by name and the optimizer."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copies into the flat storage; views stay views."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.version += 1


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
