"""One line for what an environment raised; its traceback goes along for the run log."""

from __future__ import annotations

import signal
import traceback

from ludus.errors import EnvironmentFailed


def raised(where: str, verb: str, error: BaseException) -> EnvironmentFailed:
    """`<where>: <verb> raised ValueError: ...`; sys.exit ends no more than the environment, Ctrl-C stays Ctrl-C.

    A KeyboardInterrupt is the user's only where the signal still raises one: not in a training, not in a worker.
    """
    pass_on(error)
    text = str(error).partition("\n")[0][:200]
    failure = EnvironmentFailed(where, f"{verb} raised {type(error).__name__}: {text}", "its traceback is in run.log")
    failure.detail = "".join(traceback.format_exception(error))
    return failure


def pass_on(error: BaseException) -> None:
    """Raise what no environment has to answer for."""
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        raise error
