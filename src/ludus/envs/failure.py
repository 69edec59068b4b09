"""Calls into environments whose failures become one line for the user, with the traceback for the run log."""

from __future__ import annotations

import signal
import traceback

import gymnasium as gym
import numpy as np

from ludus.envs.deadline import Late, Within
from ludus.errors import EnvironmentFailed, LudusError, MissingExtra
from ludus.types import Array


def raised(where: str, verb: str, error: BaseException) -> EnvironmentFailed:
    """`<where>: <verb> raised ValueError: ...`, also for sys.exit; Ctrl-C of the user is raised again.

    A KeyboardInterrupt comes from the user only if the signal still raises one: not during training, not in a worker.
    """
    pass_on(error)
    text = str(error).partition("\n")[0][:200]
    problem, remedy = f"{verb} raised {type(error).__name__}: {text}", "its traceback is in run.log, or add --debug"
    failure = EnvironmentFailed(where, problem, remedy)
    failure.detail = "".join(traceback.format_exception(error))
    return failure


def pass_on(error: BaseException) -> None:
    """Raise again what is not the environment's fault, or is an error of ours already."""
    if isinstance(error, LudusError | Late):
        raise error
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        raise error


def close(env: gym.Env, where: str, deadline: float) -> None:
    """Close one environment; EnvironmentFailed if that raises or hangs."""
    try:
        with Within(deadline, where, "close"):
            env.close()
    except BaseException as error:  # whatever an environment raises is reported with its traceback
        raise raised(where, "close", error) from error


def frame(env: gym.Env, id: str) -> Array:
    """The rendered image of an environment, uint8 [H, W, 3], in a new array."""
    try:
        return np.array(env.render())
    except gym.error.DependencyNotInstalled as error:
        raise MissingExtra(f"rendering {id}", "video") from error
