"""Which matrix products and convolutions a piece of work consists of, and these again with nothing around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "mv", "dot", "convolution", "convolution_backward"})
Call = tuple[Callable[..., Any], list[Any], dict[str, Any]]


class Products(TorchDispatchMode):
    """Remembers the products that are computed meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation; keep a product with tensors of its own."""
        if func.overloadpacket.__name__ in PRODUCTS:
            self.calls.append((func, [blank(value) for value in args], dict(kwargs or {})))
        return func(*args, **(kwargs or {}))


def blank(value: Any) -> Any:
    """Random numbers of the same shape and layout; what is no tensor stays as it is."""
    if not isinstance(value, Tensor):
        return value
    last = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
    return torch.randn(last + 1, dtype=value.dtype).as_strided(value.shape, value.stride())


def repeat(calls: list[Call]) -> None:
    """Compute the products again, on random numbers."""
    with torch.inference_mode():
        for function, args, kwargs in calls:
            function(*args, **kwargs)


def floor_of(work: Callable[[], Any]) -> Callable[[], None]:
    """The products of one call of `work`, to be repeated."""
    products = Products()
    with products:
        work()
    return lambda: repeat(products.calls)
