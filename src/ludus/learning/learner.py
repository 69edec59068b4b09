"""One learner for every algorithm: networks, optimizers and slow copies that update functions work on.

    learner = Learner({"actor": actor, "critic": critic}, groups, targets=["critic"], generator=rng)

    def update(nets, batch, c):
        loss = (nets.critic(batch["obs"]) - batch["target"]).square().mean()
        nets.step("critic", loss, c["lr"])
        nets.polyak("critic", c["tau"])
        return {"loss/critic": loss}

    learner.update(update, batch, {"lr": 3e-4, "tau": 0.005})

An update function is a plain function of (nets, batch, scalars, **static). Run as it stands, it works in place; traced
once, the same function is machine code (`learning/traced.py`). Everything that changes between two calls must therefore
come through `nets`, `batch` or `scalars`: what it takes from elsewhere is a constant of the compiled code.

Reading order: Learner.update -> Networks.step -> TrainedGroup.step -> learning/optimizer.py.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate as running_sums
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ludus.learning.allocation import keep_freed_memory
from ludus.learning.optimizer import Optimizer, OptimizerConfig, Rates, clip_adaptively
from ludus.learning.ranks import ALONE, Ranks
from ludus.math.policy_gradient import Scalar, normalized
from ludus.types import Tree

if TYPE_CHECKING:
    from ludus.learning.compiled import Compiler

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
FixedFunction = Callable[[Any, Mapping[str, Tensor]], dict[str, Tensor]]
"""(nets, inputs) -> outputs, without gradients or noise."""
Prefixes = Mapping[str, Sequence[str]]


class Group(NamedTuple):
    """Networks that one optimizer trains. Prefixes are those of parameter names inside their network."""

    networks: tuple[str, ...]
    optimizer: OptimizerConfig
    max_grad_norm: float | None = None
    """Largest norm of the group's gradient: a longer one is scaled down to it. None: gradients are not clipped."""
    parts: Prefixes = MappingProxyType({"": ("",)})
    """Name -> prefixes of parameters whose gradient norm is a metric of its own; together they cover the group."""
    rates: Prefixes = MappingProxyType({})
    """Keyword of `step` -> prefixes of the parameters whose learning rate it gives."""

    def full(self, prefixes: Sequence[str]) -> list[str]:
        """Prefixes of full names."""
        return [f"{network}.{prefix}" for network in self.networks for prefix in prefixes]


class Learner:
    """Owns the flat weights of some networks, their optimizers and slow copies, and the sums of their metrics.

    The networks named in `targets` get a slow copy `target_<name>`. `generator` is where the noise of updates comes
    from: one of the run's training streams, which checkpoints keep. A compiler compiles updates as a `whole`, or only
    their parts that `Networks.fixed` runs and modules marked `repeated`: a long unrolled update would take minutes.
    """

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        groups: Mapping[str, Group],
        *,
        targets: Sequence[str] = (),
        generator: np.random.Generator,
        compiler: Compiler | None = None,
        whole: bool = True,
    ) -> None:
        slow = {f"target_{name}": copy.deepcopy(networks[name]).requires_grad_(False) for name in targets}
        self.networks: dict[str, nn.Module] = {**networks, **slow}
        self.model = nn.ModuleDict(self.networks)
        self.generator, self.compiler, self.whole = generator, compiler, whole
        trained = [prefix for group in groups.values() for part in group.parts.values() for prefix in group.full(part)]
        copies = [f"target_{prefix}" for name in targets for prefix in trained if prefix.startswith(f"{name}.")]
        self.layout = FlatParameters(self.model, [*trained, *copies])
        self.theta, self.grad = self.layout.theta, self.layout.grad
        alone = len(groups) == 1
        self.groups = {k: TrainedGroup("all" if alone else k, group, self.layout) for k, group in groups.items()}
        if alone:
            next(iter(self.groups.values())).inputs = None  # a gradient for all parameters is less work
        self._place(targets)
        self.version = 0
        """Counts updates, so that copies of the weights know when they are stale."""
        self.batch: Batch | None = None
        self.scalars: Mapping[str, float] = {}
        """Batch and scalars of the newest update, for the dump of a run that diverged."""
        self.updating = False
        """Whether an update runs: modules are compiled in updates only."""
        self.watched = False
        """Look at the metrics of every update: one that is not finite stays out of the sums; `take_bad` names it."""
        self.ranks: Ranks = ALONE
        """The processes that learn together; each sees its part of every batch, all take the same steps."""
        self.observer: Callable[[str, Mapping[str, Tree]], None] | None = None
        """Called with each batch, each loss (before its gradient is taken) and all metrics of an update (`--debug`)."""
        self._bad: str | None = None
        self._sums: dict[tuple[object, ...], Sums] = {}  # one for each function and set of static arguments
        self._resumed: dict[str, Sums] = {}  # those of a checkpoint within an epoch, by label
        self._last: tuple[list[str], Tensor] | None = None
        if compiler is not None:
            from ludus.learning.traced import CompiledUpdates, RepeatedModule

            self.compiled = CompiledUpdates(self)
            for module in [] if whole else self.model.modules():
                if getattr(module, "repeated", False):
                    module.forward = RepeatedModule(self.compiled, module)
        keep_freed_memory()  # the layers of a batch are freed and wanted again at every update

    def _place(self, targets: Sequence[str]) -> None:
        """Find each slow copy and the network that it follows; one without parameters follows nothing."""
        self.where = {label: group.where for label, group in self.groups.items()}
        """Where each group and each slow copy lies in the flat tensor."""
        self._follows: dict[str, tuple[Tensor, Tensor]] = {}
        for name in targets:
            span, slow_span = (self.layout.span([f"{prefix}{name}."]) for prefix in ("", "target_"))
            if span.stop:
                self.where[f"target_{name}"] = slow_span
                self._follows[name] = self.theta[slow_span], self.theta[span]

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
        self.batch, self.scalars, self.updating = batch, scalars, True
        self.look("batch", batch)
        kind = (function, tuple(scalars), tuple(static.items()))
        compiles = self.compiler is not None and self.whole and accumulate == 1
        done = self.compiled.run(kind, static) if compiles else None
        names, row, outputs = done or self._run(function, accumulate, static)
        self.updating = False
        self.version += 1
        if self.watched:
            row = self.ranks.average(row)
        self._last = names, row
        if self.watched and not bool(row.isfinite().all()):
            self._bad = next(name for name, value in zip(names, row.tolist(), strict=True) if not math.isfinite(value))
        elif (sums := self._sums.get(kind) or self._resumed.pop(label_of(kind), None)) is not None:
            sums.add(row)
            self._sums[kind] = sums
        else:
            self._sums[kind] = Sums(names, row.clone())
        return outputs

    def _run(
        self, function: UpdateFunction, accumulate: int, static: Mapping[str, object]
    ) -> tuple[list[str], Tensor, Outputs]:
        """(names of metrics, their values, outputs) of an update in place."""
        assert self.batch is not None
        nets = Networks(self)
        if accumulate == 1:
            metrics, outputs = finished(function(nets, self.batch, self.scalars, **static))
        else:
            from ludus.learning.accumulate import accumulated

            nets, metrics, outputs = accumulated(self, function, accumulate, static)
        with torch.no_grad():
            row = nets.row(metrics)
        self.look("loss", metrics)
        return [*metrics, *nets.norm_names], row, outputs

    def in_parts(self, accumulate: int) -> bool:
        """Whether an update function sees only a part of a batch: of an accumulated one, or of that of all ranks."""
        return accumulate > 1 or self.ranks.count > 1

    def normalized(self, advantage: Tensor, weight: Tensor | None) -> Tensor:
        """Advantages [..., B] scaled to zero mean and unit deviation, over the batch of all ranks."""
        if self.ranks.count == 1:
            return normalized(advantage, weight)
        both = torch.stack([advantage, torch.ones_like(advantage) if weight is None else weight])
        every, weights = self.ranks.whole(both)
        return self.ranks.own(normalized(every, None if bool((weights == 1).all()) else weights))

    def look(self, what: str, tensors: Mapping[str, Tree]) -> None:
        """Show tensors to the observer, if there is one."""
        if self.observer is not None:
            self.observer(what, tensors)

    def draw(self, shape: Sequence[int]) -> Tensor:
        """Standard normal numbers from the learner's generator."""
        return torch.from_numpy(self.generator.standard_normal(tuple(shape), np.float32)).to(self.theta.device)

    @torch.no_grad()
    def polyak(self, name: str, tau: Scalar) -> None:
        """The slow copy of a network moves the fraction `tau` of the way to it; 1 copies it."""
        if name in self._follows:
            slow, network = self._follows[name]
            slow.lerp_(network, tau)

    # ---- metrics and state -----------------------------------------------------------------------

    @property
    def updates(self) -> int:
        """Updates so far: steps of the group that took most."""
        return max(group.optimizer.count for group in self.groups.values())

    @property
    def bytes(self) -> int:
        """Size of weights, slow copies and moments: what a checkpoint holds of it."""
        moments = [tensor for group in self.groups.values() for tensor in group.optimizer.tensors]
        return sum(tensor.numel() * tensor.element_size() for tensor in (self.theta, *moments))

    def take_bad(self) -> str | None:
        """The metric that was not finite in an update since the last call, if the learner is watched."""
        bad, self._bad = self._bad, None
        return bad

    def last(self, name: str) -> float:
        """A metric of the newest update; waits for the device."""
        assert self._last is not None
        names, row = self._last
        return float(self.ranks.average(row[names.index(name)].clone()))

    def metrics(self) -> dict[str, float]:
        """Means since the last call; each over the updates that had this metric."""
        taken, self._sums, self._resumed = self._labelled(), {}, {}
        totals: dict[str, float] = {}
        counts: dict[str, int] = {}
        for _, sums in sorted(taken, key=lambda pair: pair[0]):  # a resumed run adds up alike
            for name, value in zip(sums.names, sums.total.tolist(), strict=True):
                totals[name] = totals.get(name, 0.0) + value
                counts[name] = counts.get(name, 0) + sums.count
        means = [value / counts[name] for name, value in totals.items()]
        if self.ranks.count > 1 and means:  # all ranks made the same updates, so they have the same names
            means = self.ranks.average(torch.tensor(means, dtype=torch.float64)).tolist()
        return dict(zip(totals, means, strict=True))

    def _labelled(self) -> list[tuple[str, Sums]]:
        return [*self._resumed.items(), *((label_of(kind), sums) for kind, sums in self._sums.items())]

    def unread(self) -> list[dict[str, Any]]:
        """Sums that `metrics()` would read, for a checkpoint within an epoch."""
        return [{"kind": label, **vars(sums)} for label, sums in self._labelled()]

    def load_unread(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Go on adding up within an epoch."""
        self._sums = {}
        self._resumed = {
            one["kind"]: Sums(list(one["names"]), torch.as_tensor(one["total"]).to(self.theta), one["count"])
            for one in state
        }

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


def label_of(kind: tuple[object, ...]) -> str:
    """A kind of update as text that is the same in every process."""
    return f"{getattr(kind[0], '__qualname__', kind[0])} {kind[1:]}"


@dataclass
class Sums:
    """Sums of the metrics of one kind of update, on the device."""

    names: list[str]
    total: Tensor
    count: int = 1

    def add(self, row: Tensor) -> None:
        """One more update."""
        self.total.add_(row)
        self.count += 1


class Networks:
    """What an update function sees: `nets.critic` is the module itself, `nets.target_critic` its slow copy."""

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

    def whole(self, columns: Tensor) -> Tensor:
        """Columns [..., B] of the batch of all ranks, for what a part of it cannot tell."""
        return self._learner.ranks.whole(columns)

    def fixed(self, function: FixedFunction, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A part of an update without gradients that runs many times: machine code if updates are compiled."""
        learner = self._learner
        with torch.no_grad():
            found = None
            if learner.compiler is not None and not learner.whole:
                found = learner.compiled.part(function, inputs)
            return function(self, inputs) if found is None else found

    def row(self, metrics: Metrics) -> Tensor:
        """Metrics and gradient norms as one vector."""
        return torch.cat([torch.stack([*metrics.values()]), *self.norms])

    def _descend(self, group: str, loss: Tensor, *, fresh: bool) -> None:
        trained = self._learner.groups[group]
        self._learner.look("loss of", {group: loss})
        if fresh:
            trained.grad.zero_()
        loss.backward(inputs=trained.inputs)

    def _follow(self, group: str, lr: Scalar, rates: Mapping[str, Scalar | None]) -> None:
        trained = self._learner.groups[group]
        self._learner.ranks.average(trained.grad)
        self.norms.append(trained.step(lr, rates))
        self.norm_names += trained.norm_names


def finished(run: Running) -> tuple[Metrics, Outputs]:
    """What an update function returns in the end: (metrics, outputs)."""
    while isinstance(run, Generator):
        try:
            next(run)
        except StopIteration as end:
            run = end.value
    return run if isinstance(run, tuple) else (run, {})


class TrainedGroup:
    """A group at work: its stretch of the flat weights and gradients, and its optimizer."""

    def __init__(self, label: str, group: Group, flat: FlatParameters) -> None:
        self.networks, self.max_grad_norm = group.networks, group.max_grad_norm
        self.where = flat.span(group.full([""]))
        self.theta, self.grad = flat.theta[self.where], flat.grad[self.where]
        self.optimizer = Optimizer(group.optimizer, self.theta)
        views = flat.unflatten(self.theta, self.where)
        self.sizes = [view.numel() for view in views.values()]
        self._pairs = self.grad.split(self.sizes), self.theta.split(self.sizes)
        self.inputs: list[nn.Parameter] | None = [flat.named[name] for name in views]
        """Parameters that get the gradient of the group's losses; None where there are no others."""
        self._rates = {name: self.inside(flat.span(group.full(prefixes))) for name, prefixes in group.rates.items()}
        spans = {name: flat.span(group.full(prefixes)) for name, prefixes in group.parts.items() if name}
        self.parts = {name: self.inside(span) for name, span in spans.items() if span.stop}
        self._part_grads = [self.grad[where] for where in self.parts.values()]
        self.norm_names = [f"opt/grads/norm/{name}" for name in (label, *self.parts)]

    def inside(self, span: slice) -> slice:
        """A stretch of the learner's flat tensor, seen from the group's own."""
        return slice(span.start - self.where.start, span.stop - self.where.start) if span.stop else span

    def step(self, lr: Scalar, own: Mapping[str, Scalar | None]) -> Tensor:
        """Clip the gradient and take an optimizer step; returns the gradient norms of `norm_names`."""
        norms = [grad.norm() for grad in self._part_grads] or [self.grad.norm()]
        total = torch.stack(norms).norm() if len(norms) > 1 else norms[0]
        if self.max_grad_norm is not None:
            self.grad.mul_((self.max_grad_norm / (total + 1e-6)).clamp(max=1.0))
        if self.optimizer.cfg.agc is not None:
            clip_adaptively(*self._pairs, self.optimizer.cfg.agc)
        self.optimizer.step(self.grad, self.spread(lr, own) or lr)
        return torch.stack([total, *norms] if self.parts else norms)

    def spread(self, lr: Scalar, own: Mapping[str, Scalar | None]) -> Rates:
        """Learning rates along the group's flat tensor; empty where one rate is for all."""
        given = [(self._rates[name], rate) for name, rate in own.items() if rate is not None]
        rates: Rates = []
        done = 0
        for where, rate in sorted(given, key=lambda item: item[0].start):
            rates += [(slice(done, where.start), lr), (where, rate)]
            done = where.stop
        rates.append((slice(done, len(self.theta)), lr))
        return [(where, rate) for where, rate in rates if where.start < where.stop] if given else []


class FlatParameters:
    """Moves the parameters of a model and their gradients into two flat tensors; the model keeps views of them.

    Clipping, Adam and polyak averaging are then a handful of kernels, however many layers there are. The parameters lie
    in the order of `prefixes`: first all whose names begin with the first one, and so on.
    """

    def __init__(self, model: nn.Module, prefixes: Sequence[str]) -> None:
        self.named = dict(model.named_parameters())
        self.names = [name for prefix in prefixes for name in self.named if name.startswith(prefix)]
        assert sorted(self.names) == sorted(self.named), "each parameter must be in exactly one group and part"
        self.sizes = [self.named[name].numel() for name in self.names]
        self.starts = [0, *running_sums(self.sizes)]
        self.theta = torch.cat([self.named[name].detach().reshape(-1) for name in self.names])
        self.grad = torch.zeros_like(self.theta)
        values, slopes = self.unflatten(self.theta), self.unflatten(self.grad)
        for name, parameter in self.named.items():
            parameter.data, parameter.grad = values[name], slopes[name]

    def span(self, prefixes: Sequence[str]) -> slice:
        """Where the parameters with these prefixes lie, which must be neighbours."""
        inside = [i for i, name in enumerate(self.names) if name.startswith(tuple(prefixes))]
        if not inside:
            return slice(0, 0)
        assert inside[-1] - inside[0] + 1 == len(inside), f"not neighbours in the flat tensor: {prefixes}"
        return slice(self.starts[inside[0]], self.starts[inside[-1] + 1])

    def unflatten(self, flat: Tensor, where: slice | None = None) -> dict[str, Tensor]:
        """Named views of a flat tensor like `theta`, or of one like its stretch `where`."""
        inside = [i for i, at in enumerate(self.starts[:-1]) if where is None or where.start <= at < where.stop]
        names, pieces = [self.names[i] for i in inside], flat.split([self.sizes[i] for i in inside])
        return {name: piece.view_as(self.named[name]) for name, piece in zip(names, pieces, strict=True)}
