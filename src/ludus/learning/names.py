"""Names of networks and groups: a wrong one is told with those that there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NoReturn, TypeVar

Value = TypeVar("Value")


class Named(dict[str, Value]):
    """A dict whose KeyError says what is there."""

    def __init__(self, what: str, values: dict[str, Value]) -> None:
        super().__init__(values)
        self.what = what

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"there is no {self.what} '{name}' among {', '.join(self)}")


def check_free(names: Iterable[str], taken: Collection[str]) -> None:
    """Networks are attributes of `nets`, so that none may have the name of another attribute."""
    for name in names:
        if name in taken:
            raise ValueError(f"'{name}' cannot be the name of a network: nets.{name} has a meaning of its own")
