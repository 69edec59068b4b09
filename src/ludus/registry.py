"""Name -> class. `type: gru` in a YAML means the class registered as "gru", by convention in `<package>/gru.py`.

Names resolve in this order: already registered (a plugin), the package's table `NAMES` (name -> `module:Class`) or its
module of that name, the installed entry points (group `ludus.<kind>`). What is shipped cannot be replaced. Config files
can only choose names from here, never a dotted path.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import sys
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from ludus.errors import ConfigError
from ludus.text import did_you_mean

T = TypeVar("T")


class UnknownName(KeyError):
    """A name no registry entry, module or entry point answers to."""

    def __init__(self, kind: str, name: str, options: Iterable[str]) -> None:
        self.kind, self.name = kind, name
        close = did_you_mean(name, options)
        self.remedy = close if close.startswith("did") else f"{close}; --plugin FILE adds one of yours"
        super().__init__(f"unknown {kind} '{name}'; {self.remedy}")

    def __str__(self) -> str:
        return str(self.args[0])


class Registry(Generic[T]):
    """Classes of one kind by name; modules of its package are imported only when a name asks for them."""

    def __init__(self, kind: str, package: str) -> None:
        self.kind, self.package = kind, package
        self._classes: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator; two classes of one name are an error, and shipped names are taken."""

        def add(cls: type[T]) -> type[T]:
            if not cls.__module__.startswith("ludus."):
                self._import_shipped()  # otherwise a plugin could take a shipped name unnoticed
            known = self._classes.get(name)
            if known is not None and known is not cls and not _is_reload(known, cls):
                file = getattr(sys.modules.get(cls.__module__), "__file__", None)
                problem = f"{self.kind} '{name}' is registered twice: {_path(known)} and {_path(cls)}"
                raise ConfigError(str(file or cls.__module__), problem, "choose another name")
            self._classes[name] = cls
            return cls

        return add

    def __getitem__(self, name: str) -> type[T]:
        if name not in self:
            raise UnknownName(self.kind, name, self.names())
        return self._classes[name]

    def __contains__(self, name: str) -> bool:
        if name not in self._classes:
            self._import(name)
        return name in self._classes

    def names(self) -> list[str]:
        """Every name there is; imports the whole package, so only listings and error messages call it."""
        self._import_shipped()
        return sorted({*self._classes, *self._entry_points()})

    def _import(self, name: str) -> None:
        self._import_shipped(name)
        if name not in self._classes and name in self._entry_points():
            self.register(name)(self._entry_points()[name].load())
        if name not in self._classes:  # several names may share a module
            self._import_shipped()

    def _import_shipped(self, only: str | None = None) -> None:
        """Import what the package has under one name, or all of it."""
        package = importlib.import_module(self.package)
        for name, place in getattr(package, "NAMES", {}).items():
            if only in (None, name):
                module, _, cls = place.partition(":")
                self._classes[name] = getattr(importlib.import_module(module), cls)
        for found in pkgutil.iter_modules(package.__path__):
            if only in (None, found.name) and not found.name.startswith("_"):
                importlib.import_module(f"{self.package}.{found.name}")

    def _entry_points(self) -> dict[str, Any]:
        return {point.name: point for point in importlib.metadata.entry_points(group=f"ludus.{self.kind}")}


def _place(cls: type) -> tuple[str, str]:
    module = sys.modules.get(cls.__module__)
    return getattr(module, "__file__", None) or cls.__module__, cls.__qualname__


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _is_reload(known: type, cls: type) -> bool:
    """Whether a file was run again, as a module of any name; a second class of one name in the same run of it finds the
    first one there."""
    there = vars(sys.modules[cls.__module__]).get(cls.__name__) if cls.__module__ in sys.modules else None
    return _place(known) == _place(cls) and there is not known


ALGORITHMS: Registry[Any] = Registry("algorithm", "ludus.algorithms")
ENCODERS: Registry[Any] = Registry("encoder", "ludus.networks.encoders")
MEMORY: Registry[Any] = Registry("memory", "ludus.networks.memory")
DENOISERS: Registry[Any] = Registry("denoiser", "ludus.networks.denoisers")
WRAPPERS: Registry[Any] = Registry("wrapper", "ludus.envs.wrappers")
BUFFERS: Registry[Any] = Registry("buffer", "ludus.data.buffers")
REPRESENTATIONS: Registry[Any] = Registry("representation", "ludus.components.representation")
DYNAMICS: Registry[Any] = Registry("dynamics", "ludus.components.dynamics")
DECODERS: Registry[Any] = Registry("decoder", "ludus.components.decoders")
PREDICTORS: Registry[Any] = Registry("predictor", "ludus.components.heads")
EXPERTS: Registry[Any] = Registry("expert", "ludus.envs.experts")
CALLBACKS: Registry[Any] = Registry("callback", "ludus.orchestration.callbacks")
