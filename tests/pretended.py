"""An accelerator that is not there: real numbers on the CPU that say they lie elsewhere, and complain like a GPU.

Every tensor remembers where it pretends to be, by its storage. What arrives with tensors of two places at once, or goes
to numpy from somewhere else than the CPU, is refused with the words of torch; everything else is computed, forwards and
backwards, Python, numpy and all. So code with a wrong device fails on a machine without a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CPU = torch.device("cpu")
aten = torch.ops.aten
ANYWHERE = (aten.copy_, aten._to_copy)
"""Operations that go from one place to another."""
INDEXED = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)
"""Their indices may lie on the CPU."""
MADE = (torch.from_numpy, torch.tensor, torch.as_tensor, torch.asarray)
TO_NUMPY = (Tensor.numpy, Tensor.__array__)
BRACKETS = (Tensor.__getitem__, Tensor.__setitem__)


class WrongDevice(RuntimeError):
    """What a real accelerator would have raised."""


class Places:
    """Where storages pretend to be; they are kept, so that no other takes the place of one that is gone."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[torch.device, Any]] = {}
        self.here = CPU
        """Where something that is made of nothing belongs."""

    def of(self, tensor: Tensor) -> torch.device:
        with torch._C.DisableTorchFunction():
            known = self._known.get(tensor.untyped_storage()._cdata)
        return CPU if known is None else known[0]

    def put(self, tensor: Tensor, device: torch.device) -> None:
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
            self._known[storage._cdata] = (device, storage)

    def common(self, tensors: list[Tensor], what: Any) -> torch.device:
        """The one place of all of them; a number on the CPU may go with anything."""
        pairs = [(self.of(t), t.dim()) for t in tensors]
        found, wide = {device for device, _ in pairs}, {device for device, size in pairs if size or device != CPU}
        if len(wide) > 1:
            names = " and ".join(sorted(str(device) for device in wide))
            raise WrongDevice(f"{what}: expected all tensors to be on the same device, but found {names}")
        return next(iter(wide or found or {self.here}))


class _Operations(TorchDispatchMode):
    """Looks at every operation, also those of backward passes."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        places, packet = self.places, func.overloadpacket
        given = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, Tensor)]
        if packet in INDEXED:
            rest = [t for t in tree_leaves(args[1]) if isinstance(t, Tensor) and places.of(t) != CPU]
            device = places.common([args[0], *rest, *(t for t in args[2:] if isinstance(t, Tensor))], func)
        elif packet in ANYWHERE:
            device = places.of(args[0])
        else:
            device = places.common(given, func)
        before = {t.untyped_storage()._cdata for t in given}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in before:
                places.put(tensor, device)
        return out


class _Functions(TorchFunctionMode):
    """Takes `device` out of every call, and answers for it."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        places, kwargs = self.places, dict(kwargs or {})
        if getattr(func, "__self__", None) is Tensor.device:
            return places.of(args[0])
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        away = next((places.of(t) for t in given if places.of(t) != CPU), CPU)
        if away != CPU:
            self._check_numpy(func, args, kwargs, away)
        if func is Tensor.backward:
            return self._backward(*args, **kwargs)
        target, args, kwargs = _without_device(func, args, kwargs, places)
        outer, places.here = places.here, target or (away if given else CPU)
        try:
            out = func(*args, **kwargs)
        finally:
            places.here = outer
        return self._answer(func, args, out, target, away)

    def _check_numpy(self, func: Any, args: Any, kwargs: Any, away: torch.device) -> None:
        if func in TO_NUMPY:
            raise WrongDevice(f"can't convert {away} device type tensor to numpy; use Tensor.cpu() first")
        arrays = any(isinstance(leaf, np.ndarray) and leaf.ndim for leaf in tree_leaves((args, kwargs)))
        if arrays and func not in (*MADE, *BRACKETS, Tensor.__deepcopy__):
            raise WrongDevice(f"{func}: a numpy array meets a tensor on {away}")

    def _backward(self, loss: Tensor, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False,
                  inputs: Any = None) -> None:  # fmt: skip
        """Backward passes written in Python are looked at, too."""
        self.places.common([loss, *([] if gradient is None else [gradient])], "backward")
        outer, self.places.here = self.places.here, self.places.of(loss)
        try:
            with self:
                torch.autograd.backward(loss, gradient, retain_graph, create_graph, inputs=inputs)
        finally:
            self.places.here = outer

    def _answer(self, func: Any, args: Any, out: Any, target: torch.device | None, away: torch.device) -> Any:
        if func is Tensor.__deepcopy__:
            self.places.put(out, self.places.of(args[0]))
        if func is torch.from_numpy or (func in MADE and target is None and not isinstance(args[0], Tensor)):
            self.places.put(out, CPU)
        if target is None or not isinstance(out, Tensor):
            return out
        if func not in MADE and not (args and isinstance(args[0], Tensor)):  # a factory
            self.places.put(out, target)
        elif not isinstance(args[0], Tensor) or self.places.of(args[0]) != target:  # from one place to another
            out = out.detach().clone().requires_grad_(out.requires_grad) if out.is_leaf else out.clone()
            self.places.put(out, target)
        return out


def _without_device(func: Any, args: Any, kwargs: dict[str, Any], places: Places) -> tuple[Any, Any, Any]:
    """(where the call sends something, if anywhere; the call without it)."""
    target = None
    if kwargs.get("device") is not None:
        target = torch.device(kwargs["device"])
        kwargs["device"] = CPU
    if func is Tensor.cpu:
        target = CPU
    if func is Tensor.to:
        named = [a for a in args[1:] if isinstance(a, str | torch.device)]
        if named:
            target = torch.device(named[0])
            args = tuple(CPU if a is named[0] else a for a in args)
        elif len(args) > 1 and isinstance(args[1], Tensor):
            target = places.of(args[1])
    return target, args, kwargs


@contextmanager
def pretending() -> Iterator[Places]:
    """Inside, `torch.device("cuda")` is there."""
    places = Places()
    with _Operations(places), _Functions(places):
        yield places
