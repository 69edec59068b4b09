"""One update over several networks: gradient steps on parts of one flat tensor, and targets that follow slowly.

An update is a plain function of (networks, batch, numbers, **flags). It calls networks by name, asks for a gradient
step on a part as soon as its loss is known, and lets the targets follow. Run as it stands it works in place; traced
once, the same function is the whole update as one compiled package.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ludus.learning.allocation import keep_freed_memory
from ludus.learning.compiled import Compiler
from ludus.learning.learner import Batch, Layout, Learner, Variant, refill
from ludus.learning.optimizer import Optimizer, OptimizerConfig, traced_norm, traced_share

TARGET = "target"


class Networks:
    """What an update function sees of its learner."""

    def __init__(self, learner: JointLearner) -> None:
        self.learner = learner
        self.norms: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Any:
        """A network by name; `target_<name>` is its slow copy."""
        return self.learner.model[name]

    def descend(self, part: str, loss: Tensor, lr: Any) -> None:
        """One optimizer step on a part, along the gradient of a loss that may depend on others too."""
        learner = self.learner
        grad = learner.grad[learner.layout.parts[part]]
        grad.zero_()
        loss.backward(inputs=learner.parameters[part])
        self.norms[part] = norm = grad.norm()
        if learner.max_grad_norm is not None:
            grad.mul_((learner.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        learner.optimizer.parts[part].step(grad, lr)

    def follow(self, tau: Any) -> None:
        """Targets move the fraction `tau` towards their networks."""
        theta, followed = self.learner.theta, self.learner.followed
        theta[self.learner.layout.parts[TARGET]].lerp_(theta[followed], tau)


class _Traced(Networks):
    """The same as pure functions of tensors, so that the whole update is one graph."""

    def __init__(
        self,
        learner: JointLearner,
        theta: Mapping[str, Tensor],
        moments: Mapping[str, Sequence[Tensor]],
        corrections: Sequence[Tensor],
    ) -> None:
        super().__init__(learner)
        self.theta, self.moments = theta, moments
        pairs = zip(corrections[::2], corrections[1::2], strict=True)
        self.corrections = dict(zip(moments, pairs, strict=True))
        self.flat = {part: flat.detach().requires_grad_(part in moments) for part, flat in theta.items()}
        self.state = dict(moments)

    def __getitem__(self, name: str) -> Any:
        part = self.learner.part_of[name]
        named = self.learner.unflatten(part, self.flat[part])
        inside = {key.removeprefix(f"{name}."): value for key, value in named.items() if key.startswith(f"{name}.")}
        module = self.learner.model[name]
        return lambda *inputs: torch.func.functional_call(module, inside, inputs)

    def descend(self, part: str, loss: Tensor, lr: Any) -> None:
        learner, flat = self.learner, self.flat[part]
        (grad,) = torch.autograd.grad(loss, flat)
        self.norms[part] = norm = traced_norm(grad)
        if learner.max_grad_norm is not None:
            grad = grad * traced_share(learner.max_grad_norm, norm)
        optimizer = learner.optimizer.parts[part]
        new, self.state[part] = optimizer.pure(flat.detach(), self.state[part], grad, lr, self.corrections[part])
        self.flat[part] = new.detach().requires_grad_()

    def follow(self, tau: Any) -> None:
        parts = [part for part, where in self.learner.layout.parts.items() if where.stop <= self.learner.followed.stop]
        source = torch.cat([self.flat[part] for part in parts]).detach()
        self.flat[TARGET] = torch.lerp(self.flat[TARGET], source, tau)

    def write_back(self) -> None:
        """What changed, into the tensors the update was given."""
        for part, flat in self.flat.items():
            self.theta[part].copy_(flat.detach())
        for part, state in self.state.items():
            for moment, new in zip(self.moments[part], state, strict=True):
                moment.copy_(new)


class JointOptimizer:
    """One optimizer per part, its moments side by side like the parameters they belong to."""

    def __init__(self, cfg: OptimizerConfig, theta: Tensor, layout: Layout, parts: Sequence[str]) -> None:
        self.cfg = cfg
        self.parts = {part: Optimizer(cfg, theta[layout.parts[part]]) for part in parts}
        trained = max(layout.parts[part].stop for part in parts)
        self.tensors = [torch.zeros_like(theta[:trained]) for _ in next(iter(self.parts.values())).tensors]
        for part, optimizer in self.parts.items():
            optimizer.tensors = [tensor[layout.parts[part]] for tensor in self.tensors]

    @property
    def count(self) -> int:
        """Steps of the part that took most."""
        return max(optimizer.count for optimizer in self.parts.values())

    def state_dict(self) -> dict[str, Any]:
        """Moments and numbers of steps, part by part."""
        return {part: optimizer.state_dict() for part, optimizer in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copies the moments in place."""
        for part, optimizer in self.parts.items():
            optimizer.load_state_dict(state[part])


class JointLearner(Learner):
    """Owns several networks in one flat tensor, an optimizer for each part, and their targets.

    `parts` says which networks are trained together; the networks named in `targets` get slow copies `target_<name>`.
    """

    model: nn.ModuleDict
    optimizer: JointOptimizer  # type: ignore[assignment]

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        update: Callable[..., tuple[Tensor, dict[str, Tensor]]],
        optimizer: OptimizerConfig,
        *,
        parts: Mapping[str, Sequence[str]],
        targets: Sequence[str] = (),
        max_grad_norm: float | None = None,
        compiler: Compiler | None = None,
    ) -> None:
        slow = {f"target_{name}": copy.deepcopy(networks[name]).requires_grad_(False) for name in targets}
        groups = {**parts, TARGET: list(slow)} if slow else dict(parts)
        self.part_of = {name: part for part, names in groups.items() for name in names}
        prefixes = {part: [f"{name}." for name in names] for part, names in groups.items()}
        super().__init__(
            nn.ModuleDict({**networks, **slow}),
            update,
            optimizer,
            max_grad_norm=max_grad_norm,
            parts=prefixes,
            compiler=compiler,
        )
        trained = [part for part in parts if part in self.layout.parts]
        self.optimizer = JointOptimizer(optimizer, self.theta, self.layout, trained)
        self.parameters = {
            part: [p for name, p in self.model.named_parameters() if name.startswith(tuple(prefixes[part]))]
            for part in trained
        }
        self.followed = self._followed(targets)
        keep_freed_memory()  # layers of a batch are half a megabyte each, freed and wanted again at every update
        # apart, because compiled code would write to a part of a tensor by going through all of it
        self._apart = [self.theta[where] for where in self.layout.parts.values()]
        self._apart += [tensor for part in self.optimizer.parts.values() for tensor in part.tensors]

    def _followed(self, targets: Sequence[str]) -> slice:
        """Targets copy whole parts from the beginning of the flat tensor: following is then one operation."""
        if TARGET not in self.layout.parts:
            return slice(0, 0)
        where = self.layout.parts[TARGET]
        names = [name.removeprefix("target_") for name in self.layout.names if name.startswith("target_")]
        assert names == self.layout.names[: len(names)], "targets must be the first parts, complete and in order"
        return slice(0, where.stop - where.start)

    def unflatten(self, part: str, flat: Tensor) -> dict[str, Tensor]:
        """Named views of one part of the flat tensor."""
        layout = self.layout
        inside = [i for i, name in enumerate(layout.names) if self.part_of[name.split(".")[0]] == part]
        pieces = flat.split([layout.sizes[i] for i in inside])
        return {layout.names[i]: piece.view(layout.shapes[i]) for i, piece in zip(inside, pieces, strict=True)}

    # ---- one step: in place, or as one function of tensors -----------------------------------------

    def _in_place(
        self, parts: Sequence[tuple[float, Batch]], numbers: Mapping[str, float], flags: Mapping[str, Any]
    ) -> tuple[list[str], Tensor]:
        ((_, batch),) = parts
        networks = Networks(self)
        loss, metrics = self.loss(networks, batch, numbers, **flags)
        with torch.no_grad():
            row = torch.stack([*metrics.values(), loss, *networks.norms.values()])
        return names_of(metrics, networks), row

    def _weights(self) -> list[Tensor]:
        return self._apart

    def _run(self, variant: Variant, leaves: list[Tensor], numbers: Mapping[str, float]) -> Tensor:
        assert variant.compiled is not None
        arguments = [*self._apart, self._number_tensor(numbers), *leaves]
        for part in variant.parts:
            self.optimizer.parts[part].count += 1
        (row,) = variant.compiled(arguments)
        return row

    def _number_tensor(self, numbers: Mapping[str, float]) -> Tensor:
        corrections = [number for optimizer in self.optimizer.parts.values() for number in optimizer.corrections()]
        return torch.from_numpy(np.array([*numbers.values(), *corrections], np.float32))

    def _pure_step(
        self, variant: Variant, batch: Batch, names: Sequence[str], flags: Mapping[str, Any]
    ) -> Callable[..., tuple[Tensor]]:
        parts, trained, moments = list(self.layout.parts), list(self.optimizer.parts), len(self.optimizer.tensors)

        def update(*arguments: Tensor) -> tuple[Tensor]:
            queue = iter(arguments)
            theta = {part: next(queue) for part in parts}
            state = {part: [next(queue) for _ in range(moments)] for part in trained}
            values = next(queue).unbind()
            numbers = dict(zip(names, values, strict=False))
            networks = _Traced(self, theta, state, values[len(names) :])
            filled = refill(batch, list(queue))
            loss, metrics = self.loss(networks, filled, numbers, **flags)
            variant.names, variant.parts = names_of(metrics, networks), list(networks.norms)
            row = torch.stack([*metrics.values(), loss, *networks.norms.values()]).detach()
            networks.write_back()
            return (row,)

        return update


def names_of(metrics: Mapping[str, Tensor], networks: Networks) -> list[str]:
    """What a row of an update holds."""
    return [*metrics, "loss/total", *(f"opt/grads/norm/{part}" for part in networks.norms)]
