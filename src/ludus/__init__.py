"""One reinforcement-learning lab. Everything public is listed here and imported when it is first used.

train, load_run, load_policy, make_env, runs, compare and pull are functions; Run and Policy are what they return;
LudusError is the base of every error that a user can mend.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from ludus.errors import LudusError as LudusError
    from ludus.hub.pull import pull as pull
    from ludus.interface import compare as compare
    from ludus.interface import load_run as load_run
    from ludus.interface import make_env as make_env
    from ludus.interface import runs as runs
    from ludus.interface import train as train
    from ludus.policy import Policy as Policy
    from ludus.policy import load_policy as load_policy
    from ludus.saved import SavedRun

    Run = SavedRun

_PUBLIC = {
    "train": "ludus.interface:train",
    "load_run": "ludus.interface:load_run",
    "load_policy": "ludus.policy:load_policy",
    "make_env": "ludus.interface:make_env",
    "runs": "ludus.interface:runs",
    "compare": "ludus.interface:compare",
    "pull": "ludus.hub.pull:pull",
    "Run": "ludus.saved:SavedRun",
    "Policy": "ludus.policy:Policy",
    "LudusError": "ludus.errors:LudusError",
}
__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'ludus' has no attribute '{name}'; public are {', '.join(_PUBLIC)}")
    module, _, attribute = _PUBLIC[name].partition(":")
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return list(__all__)
