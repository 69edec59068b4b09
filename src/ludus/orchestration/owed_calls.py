"""Hooks in a ratio to environment steps: how many calls of each are owed, to the exact fraction."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ludus.orchestration.phases import HookCall


class OwedCalls:
    """What the hooks of one cycle are owed; each is counted in parts, the denominator of its ratio."""

    def __init__(self, calls: Sequence[HookCall]) -> None:
        self._ratios = [call.per_env_step for call in calls]
        self._parts = [1 if ratio is None else ratio.denominator for ratio in self._ratios]
        self._owed = [0] * len(calls)

    def add(self, env_steps: int) -> None:
        """Environment steps were taken."""
        for i, ratio in enumerate(self._ratios):
            if ratio is not None:
                self._owed[i] += ratio.numerator * env_steps

    def due(self, i: int) -> int:
        """Whole calls that hook `i` is owed."""
        return self._owed[i] // self._parts[i]

    def pay(self, i: int, *, worked: bool) -> None:
        """Hook `i` was called. If it was not ready, whole calls are forgiven: they would come as a burst later."""
        owed, parts = self._owed[i], self._parts[i]
        self._owed[i] = owed - parts if worked else owed % parts

    def state_dict(self) -> list[str]:
        """Fractions of calls."""
        return [str(Fraction(owed, parts)) for owed, parts in zip(self._owed, self._parts, strict=True)]

    def load_state_dict(self, state: Sequence[str]) -> None:
        """Go on from there."""
        self._owed = [int(Fraction(owed) * parts) for owed, parts in zip(state, self._parts, strict=True)]
