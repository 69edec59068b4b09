"""Mistakes a user can mend, each with the exit code of its kind; everything else is a bug and keeps its traceback."""

from __future__ import annotations

import errno


class LudusError(Exception):
    """One line: where, what is wrong, what to do. The command line prints it and exits with `exit_code`."""

    exit_code = 1
    detail = ""
    """More for the run log, such as a worker's traceback; never on the one line."""

    def __init__(self, where: str, problem: str, remedy: str = "") -> None:
        self.where, self.problem, self.remedy = where, problem, remedy
        super().__init__(self.line())

    def __reduce__(self) -> tuple[object, ...]:
        return LudusError.__new__, (type(self), *self.args), vars(self)  # a worker sends it: no constructor is called

    def line(self) -> str:
        """The whole message on one line, control characters escaped and untrusted text cut."""
        parts = [part for part in (self.where, self.problem) if part]
        text = ": ".join(parts) + (f"; {self.remedy}" if self.remedy else "")
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)[:2000]


class ConfigError(LudusError):
    """Bad usage or configuration."""

    exit_code = 2


class Diverged(ConfigError):
    """A loss, gradient or metric that is not finite: the remedy is in the config."""


class DataError(LudusError):
    """A file that cannot be read, is corrupt or does not fit."""

    exit_code = 3


class EnvironmentFailed(LudusError):
    """An environment died, hung, raised or returned something it must not."""

    exit_code = 4


class RankLost(LudusError):
    """Another process of a training over several ranks failed, died or hung; its own exit code, if it told one."""

    exit_code = 4

    def __init__(self, where: str, problem: str, remedy: str = "", *, exit_code: int = 4) -> None:
        super().__init__(where, problem, remedy)
        self.exit_code = exit_code


class ResourceError(LudusError):
    """Out of memory or disk."""

    exit_code = 5


_REMEDIES: dict[int | None, str] = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM), "free some space"),
    **dict.fromkeys((errno.EROFS, errno.EIO), "choose a place that can be written"),
    errno.EMFILE: "raise the limit: ulimit -n",
    errno.ENFILE: "close what holds files open",
}


def of_system(error: OSError, where: str = "") -> LudusError:
    """What the operating system refused, as an error of ours; `where` if it names no file itself."""
    place, text = where or str(error.filename or ""), error.strerror or str(error)
    if error.errno in _REMEDIES:
        return ResourceError(place, text, _REMEDIES[error.errno])
    return DataError(place, text, "see that it is there and that you may use it")


class Missing(ConfigError):
    """Something the user has to install or to bring along."""


class MissingExtra(Missing):
    """A part that needs an optional dependency which is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(what, "an optional dependency is missing", f"pip install 'ludus-rl[{extra}]'")
