"""One learner for every algorithm: networks, optimizers and slow copies that update functions work on.

    learner = Learner({"actor": actor, "critic": critic}, groups, targets=["critic"], generator=rng)

    def update(nets, batch, c):
        loss = (nets.critic(batch["obs"]) - batch["target"]).square().mean()
        nets.step("critic", loss, c["lr"])
        nets.polyak("critic", c["tau"])
        return {"loss/critic": loss}

    learner.update(update, batch, {"lr": 3e-4, "tau": 0.005})

An update function is a plain function of (nets, batch, scalars, **static). Run as it stands, it works in place; traced
once, the same function is one compiled package. Everything that changes between two calls must therefore come through
`nets`, `batch` or `scalars`: what it takes from elsewhere is a constant of the compiled code.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ludus.learning.accumulate import accumulated
from ludus.learning.allocation import keep_freed_memory
from ludus.learning.compiled import Compiler
from ludus.learning.flat import FlatParameters
from ludus.learning.group import Group, TrainedGroup
from ludus.learning.networks import Batch, Networks, Outputs, TracedNetworks, UpdateFunction, finished
from ludus.learning.variant import Variant
from ludus.math.losses import Scalar
from ludus.types import Tree, tree_leaves, tree_map


class Learner:
    """Owns the flat weights of some networks, their optimizers and slow copies, and the sums of their metrics.

    The networks named in `targets` get a slow copy `target_<name>`. `generator` is where the noise of updates comes
    from: one of the run's training streams, which checkpoints keep.
    """

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        groups: Mapping[str, Group],
        *,
        targets: Sequence[str] = (),
        generator: np.random.Generator,
        compiler: Compiler | None = None,
    ) -> None:
        slow = {f"target_{name}": copy.deepcopy(networks[name]).requires_grad_(False) for name in targets}
        self.networks: dict[str, nn.Module] = {**networks, **slow}
        self.model = nn.ModuleDict(self.networks)
        self.generator, self.compiler = generator, compiler
        trained = [prefix for group in groups.values() for part in group.parts.values() for prefix in group.full(part)]
        copies = [f"target_{prefix}" for name in targets for prefix in trained if prefix.startswith(f"{name}.")]
        self.layout = FlatParameters(self.model, [*trained, *copies])
        self.theta, self.grad = self.layout.theta, self.layout.grad
        alone = len(groups) == 1
        self.groups = {k: TrainedGroup("all" if alone else k, group, self.layout) for k, group in groups.items()}
        if alone:
            next(iter(self.groups.values())).inputs = None  # a gradient for all parameters is less work
        self._locate(targets)
        self.version = 0
        """Counts updates, so that copies of the weights know when they are stale."""
        self.batch: Batch | None = None
        self.scalars: Mapping[str, float] = {}
        """Batch and scalars of the newest update, for the dump of a run that diverged."""
        self.watched = False
        """Look at the metrics of every update: one that is not finite stays out of the sums; `take_bad` names it."""
        self.observer: Callable[[str, Mapping[str, Tree]], None] | None = None
        """Called with each batch, each loss (before its gradient is taken) and all metrics of an update (`--debug`)."""
        self._bad: str | None = None
        self._variants: dict[tuple[object, ...], Variant] = {}
        self._last: tuple[Variant, Tensor] | None = None
        keep_freed_memory()  # the layers of a batch are freed and wanted again at every update

    def _locate(self, targets: Sequence[str]) -> None:
        """Where each group and each slow copy lies in the flat tensor, and what a slow copy follows."""
        self.where = {label: group.where for label, group in self.groups.items()}
        self.source: dict[str, tuple[str, slice]] = {}
        """Name of a network with a slow copy -> its group, and where it lies in the group's flat tensor."""
        for name in targets:
            span, slow = self.layout.span([f"{name}."]), self.layout.span([f"target_{name}."])
            for label, group in self.groups.items():
                if span.stop and group.where.start <= span.start < group.where.stop:
                    self.where[f"target_{name}"], self.source[name] = slow, (label, group.inside(span))
        # one argument of a compiled update for each: it would write to a part of a tensor by going through all of it
        self._flat = {name: self.theta[where] for name, where in self.where.items()}
        self._arguments = [*self._flat.values(), *(m for g in self.groups.values() for m in g.optimizer.tensors)]

    @property
    def updates(self) -> int:
        """Updates so far: steps of the group that took most."""
        return max(group.optimizer.count for group in self.groups.values())

    @property
    def bytes(self) -> int:
        """Size of weights, slow copies and moments: what a checkpoint holds of it."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._arguments)

    def update(
        self,
        function: UpdateFunction,
        batch: Batch,
        scalars: Mapping[str, float],
        *,
        accumulate: int = 1,
        **static: object,
    ) -> Outputs:
        """Run an update function; its outputs are returned, its metrics summed on the device and read by `metrics()`.

        `accumulate` cuts the batch into that many parts whose gradients are added up (`learning/accumulate.py`); such
        an update is never compiled. Compiled updates exist once for each set of `static` arguments.
        """
        self.batch, self.scalars = batch, scalars
        self.look("batch", batch)
        variant = self._variant(function, static, may_compile=accumulate == 1)
        if variant.compiled is not None:
            row, outputs = self._run(variant)
        else:
            if accumulate == 1:
                nets = Networks(self)
                metrics, outputs = finished(function(nets, batch, scalars, **static))
            else:
                nets, metrics, outputs = accumulated(self, function, batch, accumulate, scalars, static)
            variant.names = [*metrics, *nets.norm_names]
            with torch.no_grad():
                row = torch.cat([torch.stack([*metrics.values()]), *nets.norms])
            self.look("loss", metrics)
        self._count(variant, row)
        return outputs

    def look(self, what: str, tensors: Mapping[str, Tree]) -> None:
        """Show tensors to the observer, if there is one."""
        if self.observer is not None:
            self.observer(what, tensors)

    def _count(self, variant: Variant, row: Tensor) -> None:
        self.version += 1
        self._last = variant, row
        if self.watched and not bool(row.isfinite().all()):
            self._bad = next(name for name, value in variant.row(row).items() if not math.isfinite(value))
            return
        variant.add(row)

    def take_bad(self) -> str | None:
        """The metric that was not finite in an update since the last call, if the learner is watched."""
        bad, self._bad = self._bad, None
        return bad

    def draw(self, shape: Sequence[int]) -> Tensor:
        """Standard normal numbers from the learner's generator."""
        return torch.from_numpy(self.generator.standard_normal(tuple(shape), np.float32)).to(self.theta.device)

    @torch.no_grad()
    def polyak(self, name: str, tau: Scalar) -> None:
        """The slow copy of a network moves the fraction `tau` of the way to it; 1 copies it."""
        if name in self.source:
            group, where = self.source[name]
            self._flat[f"target_{name}"].lerp_(self.groups[group].theta[where], tau)

    # ---- the same update as one function of tensors, for the compiler ------------------------------

    def _variant(self, function: UpdateFunction, static: Mapping[str, object], *, may_compile: bool) -> Variant:
        """One for each function and set of static arguments; compiled ones also for each shape of batch."""
        assert self.batch is not None
        wanted = may_compile and self.compiler is not None and self.compiler.wants(self.batch, self.theta.device.type)
        self._leaves: list[Tensor] = tree_leaves(self.batch) if wanted else []
        shapes = tuple([leaf.shape for leaf in self._leaves])
        key = (function, shapes, tuple(self.scalars), tuple(static.items()))
        variant = self._variants.get(key)
        if variant is None:
            variant = self._variants[key] = Variant(f"{getattr(function, '__qualname__', function)} {key[1:]}")
            if wanted:
                self._compile(variant, function, static)
        return variant

    def _compile(self, variant: Variant, function: UpdateFunction, static: Mapping[str, object]) -> None:
        """Trace the update on copies of its tensors; neither they nor any random stream move."""
        assert self.compiler is not None and self.batch is not None

        def update(*arguments: Tensor) -> tuple[Tensor, ...]:
            queue = iter(arguments)
            flat = {name: next(queue) for name in self._flat}
            moments = {label: [next(queue) for _ in g.optimizer.tensors] for label, g in self.groups.items()}
            numbers = iter(next(queue).unbind())
            scalars = {name: next(numbers) for name in self.scalars}
            batch = tree_map(lambda _: next(queue), self.batch)
            with TracedNetworks(self, flat, moments, numbers, list(queue)) as nets:
                metrics, outputs = finished(function(nets, batch, scalars, **static))
                nets.write_back()
            variant.names, variant.outputs = [*metrics, *nets.norm_names], list(outputs)
            variant.stepped, variant.noise = nets.stepped, nets.shapes
            row = torch.cat([torch.stack([*metrics.values()]), *nets.norms])
            return (row.detach(), *(output.detach() for output in outputs.values()))

        def noise() -> list[Tensor]:
            return [torch.zeros(shape) for shape in variant.noise]

        example = [*self._arguments, self._numbers(), *self._leaves]
        with torch.random.fork_rng(devices=[]):
            variant.compiled = self.compiler.get(update, example, self.batch["first"].numel(), noise)

    def _numbers(self) -> Tensor:
        corrections = [number for group in self.groups.values() for number in group.optimizer.corrections()]
        return torch.from_numpy(np.array([*self.scalars.values(), *corrections], np.float32))

    def _run(self, variant: Variant) -> tuple[Tensor, Outputs]:
        assert variant.compiled is not None
        noise = [self.draw(shape) for shape in variant.noise]
        arguments = [*self._arguments, self._numbers(), *self._leaves, *noise]
        for label in variant.stepped:
            self.groups[label].optimizer.count += 1
        row, *outputs = variant.compiled(arguments)
        return row, dict(zip(variant.outputs, outputs, strict=True))

    # ---- metrics and state -----------------------------------------------------------------------

    def last(self, name: str) -> float:
        """A metric of the newest update; waits for the device."""
        assert self._last is not None
        variant, row = self._last
        return variant.row(row)[name]

    def metrics(self) -> dict[str, float]:
        """Means since the last call; each over the updates that had this metric."""
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for variant in sorted(self._variants.values(), key=lambda one: one.label):  # a resumed run adds up alike
            for name, value in variant.take().items():
                sums[name] = sums.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + variant.count
            variant.count = 0
        return {name: value / counts[name] for name, value in sums.items() if counts[name]}

    def state_dict(self) -> dict[str, Any]:
        """Weights by name, slow copies included, and the optimizers by group."""
        optimizers = {label: group.optimizer.state_dict() for label, group in self.groups.items()}
        return {"model": self.model.state_dict(), "optimizer": optimizers}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copies into the flat storage; views stay views."""
        self.model.load_state_dict(state["model"])
        self.load_optimizers(state["optimizer"])
        self.version += 1

    def load_optimizers(self, state: Mapping[str, Any]) -> None:
        """Copies the moments of every group in place."""
        for label, group in self.groups.items():
            group.optimizer.load_state_dict(state[label])
