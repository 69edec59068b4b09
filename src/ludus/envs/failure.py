"""One line for what an environment raised; its traceback goes along for the run log."""

from __future__ import annotations

import traceback

from ludus.errors import EnvironmentFailed


def raised(where: str, verb: str, error: Exception) -> EnvironmentFailed:
    """`<where>: <verb> raised ValueError: ...`"""
    text = str(error).partition("\n")[0][:200]
    failure = EnvironmentFailed(where, f"{verb} raised {type(error).__name__}: {text}", "its traceback is in run.log")
    failure.detail = "".join(traceback.format_exception(error))
    return failure
