"""Which updates of a run are compiled ahead of time, decided by its config before the first step.

The number of planned updates decides, for each batch size; the contents of the cache never do. The decision is part of
the checkpoint, because compiled and eager updates differ in their last bits. Minibatches of any other size, such as
those of a shorter last rollout, are always eager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from ludus.learning import package
from ludus.learning.package import Compiled

UPDATES_THAT_PAY = 30_000  # a build costs about as much time as this many small updates save


class Compiler:
    """Knows which batch sizes are compiled, and finds or builds their packages.

    `planned` maps the steps in a full minibatch to the number of updates that the run plans with it; compiling pays
    from `pays_from` updates on.
    """

    def __init__(
        self,
        mode: Literal["auto", "always", "never"],
        *,
        planned: Mapping[int, int],
        pays_from: int = UPDATES_THAT_PAY,
        folder: Path | None = None,
        announce: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder, self.announce = folder or package.default_folder(), announce
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
    ) -> Compiled | None:
        """The function as machine code; None, after one line to the user, where there is none.

        `late` makes examples of further arguments, which are known after the function ran once, on copies.
        """
        try:
            package.on_copies(function, example)
            return package.obtain(function, [*example, *late()], self.folder, self.announce)
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
        return "compiled" if self.sizes else f"eager ({self.reason})"

    def state_dict(self) -> dict[str, Any]:
        """The decision: a resumed run must not decide again."""
        return {"sizes": sorted(self.sizes), "reason": self.reason}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over the decision of the saved run."""
        self.sizes, self.reason = frozenset(state["sizes"]), str(state["reason"])
