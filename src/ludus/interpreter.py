"""Starts interpreters that import from where this one does: never from the working directory alone."""

from __future__ import annotations

import sys


def running(code: str, *arguments: str) -> list[str]:
    """The command of a new interpreter that runs some code with this one's import path."""
    path = [place for place in sys.path if isinstance(place, str)]  # others are never imported from
    return [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {path!r}; {code}", *arguments]


def running_module(name: str, *arguments: str) -> list[str]:
    """The same for `python -m name`, which would look into the working directory first."""
    return running(f"import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)", *arguments)
