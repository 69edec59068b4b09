"""Update functions as machine code: the eager update as one pure function of tensors, traced, compiled and run.

Reading order: CompiledUpdates.run -> compile -> TracedNetworks -> pure_step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module

from ludus.learning.adaptive_clipping import LEAST_NORM
from ludus.learning.learner import FixedFunction, Learner, Networks, Outputs, UpdateFunction
from ludus.learning.optimizer import Optimizer, TrainedGroup
from ludus.learning.package import Compiled
from ludus.learning.several_steps import finished
from ludus.math.policy_gradient import Scalar
from ludus.types import tree_fill, tree_leaves

COLUMNS = 256


@dataclass
class CompiledUpdate:
    """One update function with one set of static arguments, for one shape of batch."""

    code: Compiled | None = None
    wait: Callable[[], Compiled | None] | None = None
    """Waits for the code, where that is still in the making."""
    names: list[str] = field(default_factory=list)
    """Metrics, in the order of a row."""
    outputs: list[str] = field(default_factory=list)
    """Outputs, after the row of metrics."""
    stepped: list[str] = field(default_factory=list)
    """Groups that take a step in it."""
    noise: list[tuple[int, ...]] = field(default_factory=list)
    """Shapes of the noise that it is given."""


class CompiledUpdates:
    """The compiled updates of a learner."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.known: dict[tuple[object, ...], CompiledUpdate] = {}
        # one argument for each group and slow copy: code would write to a part of a tensor by going through all of it
        self._flat = {name: learner.theta[where] for name, where in learner.where.items()}
        self._arguments = [*self._flat.values(), *(m for g in learner.groups.values() for m in g.optimizer.tensors)]
        for module in [] if learner.whole else learner.model.modules():
            if getattr(module, "repeated", False):
                module.forward = RepeatedModule(self, module)

    def run(
        self, kind: tuple[UpdateFunction, object, object], static: Mapping[str, object]
    ) -> tuple[list[str], Tensor, Outputs] | None:
        """(names of metrics, their values, outputs) of an update; None where it has to be eager."""
        learner = self.learner
        assert learner.compiler is not None and learner.batch is not None
        if not self.wanted():
            return None
        leaves = [packed(leaf) for leaf in tree_leaves(learner.batch)]
        update = self.find(kind, leaves, static)
        code = self.code_of(update)
        if code is None:
            return None
        noise = [learner.draw(shape) for shape in update.noise]
        arguments = [*self._arguments, self._numbers(), *leaves, *noise]
        for label in update.stepped:
            learner.groups[label].optimizer.count += 1
        row, *outputs = code(arguments)
        return update.names, row, dict(zip(update.outputs, outputs, strict=True))

    def wanted(self) -> bool:
        """Whether the update at hand is compiled, or parts of it."""
        learner = self.learner
        assert learner.batch is not None
        return learner.compiler is not None and learner.compiler.wants(learner.batch, learner.theta.device.type)

    def code_of(self, update: CompiledUpdate) -> Compiled | None:
        """Code for the update at hand, if it is not an eager one; waits for the build where that goes on."""
        learner = self.learner
        assert learner.compiler is not None
        if update.wait is not None and learner.updates >= learner.compiler.begins:
            update.code, update.wait = update.wait(), None
        return update.code

    def find(
        self, kind: tuple[UpdateFunction, object, object], leaves: list[Tensor], static: Mapping[str, object]
    ) -> CompiledUpdate:
        """One for each kind of update and shape of batch, compiled when it is first asked for."""
        key = (kind, tuple([form(leaf) for leaf in leaves]))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._compile(kind[0], leaves, static)
        return found

    def _compile(self, function: UpdateFunction, leaves: list[Tensor], static: Mapping[str, object]) -> CompiledUpdate:
        """Trace the update on copies of its tensors; neither they nor any random stream move."""
        learner, made = self.learner, CompiledUpdate()
        assert learner.compiler is not None and learner.batch is not None

        def update(*arguments: Tensor) -> tuple[Tensor, ...]:
            queue = iter(arguments)
            flat = {name: next(queue) for name in self._flat}
            moments = {label: [next(queue) for _ in g.optimizer.tensors] for label, g in learner.groups.items()}
            numbers = iter(next(queue).unbind())
            scalars = {name: next(numbers) for name in learner.scalars}
            batch = tree_fill(learner.batch, queue)
            with TracedNetworks(learner, flat, moments, numbers, list(queue)) as nets:
                metrics, outputs = finished(function(nets, batch, scalars, **static))
                check_kept(learner.model, buffers)
                nets.write_back()
            made.names, made.outputs = [*metrics, *nets.norm_names], list(outputs)
            made.stepped, made.noise = nets.stepped, nets.shapes
            return (nets.row(metrics).detach(), *(output.detach() for output in outputs.values()))

        def noise() -> list[Tensor]:
            return [torch.zeros(shape) for shape in made.noise]

        example = [*self._arguments, self._numbers(), *leaves]
        buffers = {name: buffer.clone() for name, buffer in learner.model.named_buffers()}
        with torch.random.fork_rng(devices=[]), _reparametrize_module(learner.model, buffers):
            made.wait = learner.compiler.get(update, example, learner.batch["first"].numel(), noise)
        return made

    def part(self, function: FixedFunction, inputs: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Outputs of a part of an update; None where it has to be eager."""
        learner = self.learner
        assert learner.compiler is not None and learner.batch is not None
        if not self.wanted():
            return None
        leaves = [leaf.contiguous() for leaf in inputs.values()]
        key = (function, tuple(inputs), tuple([form(leaf) for leaf in leaves]))
        if key not in self.known:
            self.known[key] = self._compile_part(function, dict(zip(inputs, leaves, strict=True)))
        found = self.known[key]
        code = self.code_of(found)
        return None if code is None else dict(zip(found.outputs, code([*self._flat.values(), *leaves]), strict=True))

    def _compile_part(self, function: FixedFunction, inputs: Mapping[str, Tensor]) -> CompiledUpdate:
        learner, made = self.learner, CompiledUpdate()
        assert learner.compiler is not None and learner.batch is not None

        def part(*arguments: Tensor) -> tuple[Tensor, ...]:
            queue = iter(arguments)
            flat = {name: next(queue) for name in self._flat}
            with TracedNetworks(learner, flat, {}, iter(()), ()) as nets:
                outputs = function(nets, dict(zip(inputs, queue, strict=True)))
            made.outputs = list(outputs)
            return tuple(outputs.values())

        example = [*self._flat.values(), *inputs.values()]
        made.wait = learner.compiler.get(part, example, learner.batch["first"].numel())
        return made

    def _numbers(self) -> Tensor:
        numbers = [number for group in self.learner.groups.values() for number in corrections(group.optimizer)]
        return torch.from_numpy(np.array([*self.learner.scalars.values(), *numbers], np.float32))


class RepeatedModule:
    """A module that runs many times in an update: its forward and backward pass as machine code.

    It takes the place of the module's `forward`. Outside of updates, and where there is no code, the module runs as it
    is.
    """

    def __init__(self, updates: CompiledUpdates, module: nn.Module) -> None:
        self.updates, self.module, self.eager = updates, module, module.forward
        self.names, self.parameters = zip(*module.named_parameters(), strict=True)
        self.known: dict[tuple[object, ...], tuple[CompiledUpdate, CompiledUpdate]] = {}

    def __call__(self, *inputs: Tensor | None) -> Any:
        """The module's outputs."""
        learner = self.updates.learner
        given = [packed(x) for x in inputs if x is not None]
        if len(given) < len(inputs) or not learner.updating or not self.updates.wanted():
            return self.eager(*inputs)
        key = tuple([form(x) for x in given])
        if key not in self.known:
            self.known[key] = self._compile(given)
        forward, backward = map(self.updates.code_of, self.known[key])
        if forward is None or backward is None:
            return self.eager(*inputs)
        if torch.is_grad_enabled():
            return RunCode.apply((forward, backward), len(given), *given, *self.parameters)
        return tuple(forward([*self.parameters, *given]))

    def _compile(self, given: list[Tensor]) -> tuple[CompiledUpdate, CompiledUpdate]:
        """(forward, backward) pass."""
        learner, count = self.updates.learner, len(self.names)
        assert learner.compiler is not None and learner.batch is not None

        def forward(*arguments: Tensor) -> tuple[Tensor, ...]:
            weights = dict(zip(self.names, arguments[:count], strict=True))
            with _reparametrize_module(self.module, weights):
                return tuple(self.eager(*arguments[count:]))

        def backward(*arguments: Tensor) -> tuple[Tensor, ...]:
            inputs = [x.detach().requires_grad_() for x in arguments[: count + len(given)]]
            with torch.enable_grad():
                outputs = forward(*inputs)
            grads = torch.autograd.grad(outputs, inputs, arguments[count + len(given) :], allow_unused=True)
            return tuple(torch.zeros_like(x) if grad is None else grad for x, grad in zip(inputs, grads, strict=True))

        size, example = learner.batch["first"].numel(), [x.detach().clone() for x in (*self.parameters, *given)]
        with torch.no_grad():
            outputs = [torch.zeros_like(x) for x in forward(*example)]
            first = CompiledUpdate(wait=learner.compiler.get(forward, example, size))
            if not self.updates.wanted():  # it cannot be compiled
                return first, first
            return first, CompiledUpdate(wait=learner.compiler.get(backward, [*example, *outputs], size))


class RunCode(torch.autograd.Function):
    """Compiled forward and backward passes as one operation of autograd."""

    @staticmethod
    def forward(ctx: Any, code: tuple[Compiled, Compiled], count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        """`tensors` are `count` inputs, then the parameters."""
        ctx.code, ctx.count = code[1], count
        ctx.save_for_backward(*tensors)
        return tuple(code[0]([*tensors[count:], *tensors[:count]]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        """Gradients of the inputs and the parameters that need one."""
        inputs, parameters = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        found = ctx.code([*parameters, *inputs, *(grad.contiguous() for grad in grads)])
        ordered = [*found[len(parameters) :], *found[: len(parameters)]]
        needed = ctx.needs_input_grad[2:]
        return None, None, *(grad if need else None for grad, need in zip(ordered, needed, strict=True))


class TracedNetworks(Networks):
    """Networks over given tensors, without an effect on any other: a traced update is one graph.

    The modules are the learner's own; inside the context, their parameters are views of the given tensors.
    """

    def __init__(
        self,
        learner: Learner,
        flat: Mapping[str, Tensor],
        moments: Mapping[str, Sequence[Tensor]],
        numbers: Iterator[Tensor],
        noise: Sequence[Tensor],
    ) -> None:
        super().__init__(learner)
        self._given, self._given_moments = flat, moments
        self._flat, self._moments = dict(flat), dict(moments)
        self._corrections = {group: (next(numbers), next(numbers)) for group in moments}
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
        # `torch.func.functional_call` does the same, but for `forward` only
        self._open.enter_context(_reparametrize_module(self._learner.model, views, tie_weights=True))

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
        after, self._moments[group], norms = pure_step(trained, before, grad, lr, rates)
        self._set(group, after)
        self.norms.append(norms)
        self.norm_names += trained.norm_names
        self.stepped.append(group)

    def polyak(self, name: str, tau: Scalar) -> None:
        """The same with the tensors as they are now."""
        if self._learner.follows[name] is not None:
            slow = f"target_{name}"
            label, group = next(item for item in self._learner.groups.items() if name in item[1].networks)
            where = group.inside(self._learner.layout.span([f"{name}."]))
            self._set(slow, torch.lerp(self._flat[slow], self._flat[label].detach()[where], tau))

    def write_back(self) -> None:
        """Write what changed into the given tensors."""
        for name, given in self._given.items():
            if name in self.stepped or name not in self._moments:
                given.copy_(self._flat[name].detach())
        for group in self.stepped:
            for given, new in zip(self._given_moments[group], self._moments[group], strict=True):
                given.copy_(new)


# ---- tensors as compiled code reads them ---------------------------------------------------------


def check_kept(model: nn.Module, buffers: Mapping[str, Tensor]) -> None:
    """Refuse an update that changes a buffer, such as the statistics of BatchNorm: for code they are constants."""
    for name, buffer in model.named_buffers():
        if buffer is not buffers[name] or buffer._version:
            raise TypeError(f"it changes the buffer {name}, and compiled updates change parameters only")


def packed(leaf: Tensor) -> Tensor:
    """The tensor without gaps in memory: code is made for a copy, which has none."""
    if leaf.is_contiguous() or leaf.stride() == torch.empty_like(leaf, device="meta").stride():
        return leaf
    return leaf.contiguous()


def form(leaf: Tensor) -> tuple[object, ...]:
    """What code takes for granted about a tensor, without a look at it."""
    return leaf.shape, leaf.dtype, None if leaf.is_contiguous() else leaf.stride()


# ---- one step as a pure function -----------------------------------------------------------------


def pure_step(
    group: TrainedGroup,
    before: tuple[Tensor, Sequence[Tensor], Sequence[Tensor]],
    grad: Tensor,
    lr: Scalar,
    own: Mapping[str, Scalar | None],
) -> tuple[Tensor, list[Tensor], Tensor]:
    """`TrainedGroup.step` as a function of (weights, moments, corrections): (weights, moments, gradient norms)."""
    norms = [traced_norm(grad[where]) for where in group.parts.values()]
    total = torch.stack(norms).norm() if norms else traced_norm(grad)
    if group.max_grad_norm is not None:
        grad = grad * traced_share(group.max_grad_norm, total)
    if group.optimizer.cfg.agc is not None:
        grad = adaptively_clipped(grad, before[0], group.sizes, group.optimizer.cfg.agc)
    spread = [torch.as_tensor(rate).expand(where.stop - where.start) for where, rate in group.spread(lr, own)]
    theta, moments = pure(group.optimizer, *before, grad, torch.cat(spread) if spread else lr)
    return theta, moments, torch.stack([total, *norms])


def pure(
    optimizer: Optimizer, theta: Tensor, moments: Sequence[Tensor], factors: Sequence[Tensor], grad: Tensor, lr: Scalar
) -> tuple[Tensor, list[Tensor]]:
    """`Optimizer.step` without side effects: (weights, moments); `lr` has no dimension or the parameters' one."""
    cfg, (beta1, beta2) = optimizer.cfg, optimizer.cfg.betas
    if cfg.type == "sgd":
        momentum = moments[0] * beta1 + grad + cfg.weight_decay * theta
        return theta - lr * momentum, [momentum]
    if cfg.type == "laprop":
        second = moments[1] * beta2 + grad * grad * (1 - beta2)
        scaled = grad / (second.sqrt() / factors[1] + cfg.eps)
        first = torch.lerp(moments[0], scaled, 1 - beta1)
        theta = theta * (1 - lr * cfg.weight_decay) if cfg.weight_decay else theta
        return theta - lr * first * (factors[0] / factors[1]), [first, second]
    if cfg.type == "adamw":
        theta = theta * (1 - lr * cfg.weight_decay)
    elif cfg.weight_decay:
        grad = grad + cfg.weight_decay * theta
    first = torch.lerp(moments[0], grad, 1 - beta1)
    second = moments[1] * beta2 + grad * grad * (1 - beta2)
    rate, eps = lr * factors[0], cfg.eps * factors[1]
    return theta - rate * first / (second.sqrt() + eps), [first, second]


def corrections(optimizer: Optimizer) -> tuple[float, float]:
    """Bias correction of Adam's next step: factors of its learning rate and of its `eps`."""
    (beta1, beta2), count = optimizer.cfg.betas, optimizer.count + 1
    scale = math.sqrt(1 - beta2**count)
    return scale / (1 - beta1**count), scale


def adaptively_clipped(grad: Tensor, theta: Tensor, sizes: Sequence[int], share: float) -> Tensor:
    """`clip_adaptively` without side effects."""
    pairs = zip(grad.split(list(sizes)), theta.split(list(sizes)), strict=True)
    parts = [g / (g.norm() / (share * t.norm().clamp(min=LEAST_NORM))).clamp(min=1.0) for g, t in pairs]
    return torch.cat(parts)


def traced_norm(flat: Tensor) -> Tensor:
    """Norm of a long vector: sums of columns take a third of the time of one long sum."""
    whole = flat.numel() // COLUMNS * COLUMNS
    columns = flat[:whole].view(-1, COLUMNS).square().sum(0)
    return (columns.sum() + flat[whole:].square().sum()).sqrt()


def traced_share(longest: float, norm: Tensor) -> Tensor:
    """Factor that clips a gradient of this norm: a reduction is computed once, not per weight."""
    return torch.stack([longest / (norm + 1e-6), torch.ones_like(norm)]).amin()
