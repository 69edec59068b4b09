"""Which updates of a run are compiled ahead of time, decided by its config before the first step.

The number of planned updates decides, for each batch size; the contents of the cache never do. The decision is part of
the checkpoint, because compiled and eager updates differ in their last bits. Minibatches of any other size, such as
those of a shorter last rollout, are always eager. So are the updates before number `begins`: the code is built
meanwhile, and that update waits for it, so that the clock decides nothing either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from torch import Tensor

from ludus.learning import package
from ludus.learning.package import Compiled

Found = TypeVar("Found")
UPDATES_THAT_PAY = 30_000  # a build costs about as much time as this many small updates save


class Compiler:
    """Knows which batch sizes are compiled, and finds or builds their packages.

    `planned` maps the steps in a full minibatch to the number of updates that the run plans with it; compiling pays
    from `pays_from` updates on. Updates before number `begins` are eager.
    """

    def __init__(
        self,
        mode: Literal["auto", "always", "never"],
        *,
        planned: Mapping[int, int],
        pays_from: int = UPDATES_THAT_PAY,
        begins: int = 0,
        folder: Path | None = None,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder, self.announce = folder or package.default_folder(), announce
        self.begins = begins
        self.reason = ""
        """Why updates are eager; empty where they are compiled."""
        self.sizes = self._decide(mode, planned, pays_from)

    def _decide(self, mode: str, planned: Mapping[int, int], pays_from: int) -> frozenset[int]:
        if mode == "never":
            self.reason = "runtime.compile is never"
            return frozenset()
        wanted = {size for size, updates in planned.items() if mode == "always" or updates >= pays_from}
        if not wanted:
            most = max(planned.values(), default=0)
            self.reason = f"{most:,} updates are planned, compiling pays from {pays_from:,} on"
        elif not package.has_compiler():
            self.reason, wanted = "there is no C++ compiler; install g++ to compile updates", set()
        return frozenset(wanted)

    def wants(self, batch: Mapping[str, Any], device: str) -> bool:
        """Whether updates with batches of this size are compiled."""
        return bool(self.sizes) and device == "cpu" and batch["first"].numel() in self.sizes

    def get(
        self,
        function: Callable[..., Any],
        example: Sequence[Tensor],
        size: int,
        late: Callable[[], Sequence[Tensor]] = tuple,
    ) -> Callable[[], Compiled | None]:
        """Begin to make machine code of the function. The answer waits for it, and gives None where there is none.

        `late` makes examples of further arguments, which are known after the function ran once, on copies.
        """

        def begin() -> Callable[[], Compiled]:
            package.on_copies(function, example)
            return package.obtain(function, [*example, *late()], self.folder, self.announce)

        build = self._or_none(begin, size)
        return lambda: None if build is None else self._or_none(build, size)

    def _or_none(self, work: Callable[[], Found], size: int) -> Found | None:
        """What `work` gives; None, after one line to the user, where there is no code for batches of this size."""
        try:
            return work()
        except package.Unavailable as problem:
            self.sizes -= {size}
            self.reason = str(problem)
            self.announce(f"updates run eagerly, which is slower and rounds differently: {problem}")
            return None

    def decline(self, reason: str) -> None:
        """This run cannot use compiled updates."""
        self.sizes, self.reason = frozenset(), reason

    def describe(self) -> str:
        """`compiled`, or `eager` with the reason."""
        late = f" from update {self.begins:,} on" if self.begins else ""
        return f"compiled{late}" if self.sizes else f"eager ({self.reason})"

    def state_dict(self) -> dict[str, Any]:
        """The decision: a resumed run must not decide again."""
        return {"sizes": sorted(self.sizes), "reason": self.reason}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the decision of the saved run."""
        self.sizes, self.reason = frozenset(state["sizes"]), str(state["reason"])
