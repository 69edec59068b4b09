"""Statistics of the weights, gradients and activations of every layer, for --debug."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from ludus.watch.finite import tensors_of

BINS = 16
SAME = 1e-6
"""A unit is dead if its output varies less than this over a batch."""


@torch.no_grad()
def weight_statistics(model: nn.Module) -> dict[str, dict[str, float | list[int]]]:
    """Moments and histogram of every parameter, and the norm of its newest gradient."""
    found = {}
    for name, parameter in model.named_parameters():
        values = parameter.detach().float().flatten()
        low, high = float(values.min()), float(values.max())
        entry: dict[str, float | list[int]] = {
            **_moments(values),
            "min": low,
            "max": high,
            "norm": float(values.norm()),
            "histogram": torch.histc(values.cpu(), BINS, low, high).int().tolist() if low < high else [],
        }
        if parameter.grad is not None:
            grad = parameter.grad.detach().float()
            entry |= {"grad_norm": float(grad.norm()), "grad_max": float(grad.abs().max())}
        found[name] = entry
    return found


class Activations:
    """Keeps the newest output of every layer and passes each output to `look`."""

    def __init__(self, model: nn.Module, look: Callable[[str, nn.Module, Tensor], None]) -> None:
        self._outputs: dict[str, Tensor] = {}
        self._look = look
        leaves = [(name, module) for name, module in model.named_modules() if name and not any(module.children())]
        self._hooks = [module.register_forward_hook(partial(self._hook, name)) for name, module in leaves]

    def statistics(self) -> dict[str, dict[str, float]]:
        """Mean, standard deviation and share of dead units of the newest outputs."""
        return {name: _activation(output) for name, output in self._outputs.items()}

    def remove(self) -> None:
        """Remove the hooks from the model."""
        for hook in self._hooks:
            hook.remove()

    def _hook(self, name: str, module: nn.Module, _: object, output: object) -> None:
        for _, tensor in tensors_of(output):
            self._look(name, module, tensor)
            if tensor.is_floating_point():
                self._outputs[name] = tensor.detach()
            return


@torch.no_grad()
def _activation(output: Tensor) -> dict[str, float]:
    units = output.float().reshape(-1, output.shape[-1]) if output.ndim else output.reshape(1, 1)
    moved = units.amax(0) - units.amin(0)
    dead = float((moved < SAME).float().mean()) if len(units) > 1 else 0.0
    return {**_moments(output.float().flatten()), "dead_pct": 100 * dead}


def _moments(values: Tensor) -> dict[str, float]:
    return {"mean": float(values.mean()), "std": float(values.std(correction=0))}
