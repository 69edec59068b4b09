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

Reading order: Learner.update -> Networks.step -> TrainedGroup.step (`learning/optimizer.py`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from ludus.learning.allocation import keep_freed_memory
from ludus.learning.flat import FlatParameters
from ludus.learning.metric_sums import MetricSums
from ludus.learning.names import Named, check_free
from ludus.learning.optimizer import OptimizerConfig, TrainedGroup
from ludus.learning.ranks import ALONE, Ranks
from ludus.learning.several_steps import Running, finished
from ludus.math.policy_gradient import Scalar
from ludus.types import Tree

if TYPE_CHECKING:
    from ludus.learning.compiled import Compiler

Batch = dict[str, Tree]
"""Columns [T, B, ...] (`state`: [B, ...]), each a tensor or a tree of them."""
Scalars = Mapping[str, Scalar]
Metrics = dict[str, Tensor]
Outputs = dict[str, Tensor]
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
        self.networks: dict[str, nn.Module] = Named("network", {**networks, **slow})
        check_free(self.networks, (*dir(Networks), "norms", "norm_names"))
        self.model = nn.ModuleDict(self.networks)
        self.generator, self.compiler, self.whole = generator, compiler, whole
        trained = [prefix for group in groups.values() for part in group.parts.values() for prefix in group.full(part)]
        copies = [f"target_{prefix}" for name in targets for prefix in trained if prefix.startswith(f"{name}.")]
        self.layout = FlatParameters(self.model, [*trained, *copies])
        self.theta, self.grad = self.layout.theta, self.layout.grad
        made = {k: TrainedGroup(k, group, self.layout, alone=len(groups) == 1) for k, group in groups.items()}
        self.groups: dict[str, TrainedGroup] = Named("group", made)
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
        self.sums = MetricSums()
        self._bad: str | None = None
        self._last: tuple[list[str], Tensor] | None = None
        if compiler is not None:
            from ludus.learning.traced import CompiledUpdates

            self.compiled = CompiledUpdates(self)
        keep_freed_memory()  # the layers of a batch are freed and wanted again at every update

    def _place(self, targets: Sequence[str]) -> None:
        """Find each slow copy and the network that it follows; one without parameters follows nothing."""
        self.where = {label: group.where for label, group in self.groups.items()}
        """Where each group and each slow copy lies in the flat tensor."""
        self.follows: dict[str, tuple[Tensor, Tensor] | None] = Named("network", dict.fromkeys(self.networks))
        """(slow copy, network) inside the flat tensor, for networks that have a slow copy with parameters."""
        for name in targets:
            span, slow_span = (self.layout.span([f"{prefix}{name}."]) for prefix in ("", "target_"))
            if span.stop:
                self.where[f"target_{name}"] = slow_span
                self.follows[name] = self.theta[slow_span], self.theta[span]

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
        whole = self.compiler is not None and self.whole and accumulate == 1
        names, row, outputs = (whole and self.compiled.run(kind, static)) or self._run(function, accumulate, static)
        self.updating, self.version = False, self.version + 1
        if self.watched:
            row = self.ranks.average(row)
        self._last = names, row
        if self.watched and not bool(row.isfinite().all()):
            self._bad = next(name for name, value in zip(names, row.tolist(), strict=True) if not math.isfinite(value))
        else:
            self.sums.add(kind, names, row)
        return outputs

    def _run(
        self, function: UpdateFunction, accumulate: int, static: Mapping[str, object]
    ) -> tuple[list[str], Tensor, Outputs]:
        """(names of metrics, their values, outputs) of an update in place."""
        assert self.batch is not None
        nets = Networks(self)
        if accumulate == 1:
            metrics, outputs = finished(function(nets, {**self.batch}, self.scalars, **static))
        else:
            from ludus.learning.accumulate import accumulated

            nets, metrics, outputs = accumulated(self, function, accumulate, static)
        with torch.no_grad():
            row = nets.row(metrics)
        self.look("loss", metrics)
        return [*metrics, *nets.norm_names], row, outputs

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
        if (follows := self.follows[name]) is not None:
            slow, network = follows
            slow.lerp_(network, tau)
            increment_version(self.networks[f"target_{name}"].parameters())

    # ---- metrics and state -----------------------------------------------------------------------

    @property
    def updates(self) -> int:
        """Updates so far: steps of the group that took most."""
        return max(group.optimizer.count for group in self.groups.values())

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
        return self.sums.take_means(self.ranks)

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
        compiles = learner.compiler is not None and not learner.whole
        with torch.no_grad():
            found = learner.compiled.part(function, inputs) if compiles else None
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
