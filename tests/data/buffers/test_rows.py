"""Rows of a world model, held against a log of what really happened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ludus.data.buffers.rows import sample_rows
from scripted import Script, fill, make

KINDS = ["uniform", "online"]


def hand_made(ends: str) -> Any:
    """One environment: an episode of three steps that ends like that, then one that goes on."""
    script = Script(1, 0, ends=0.0, dtype=np.float32)
    buffer = make("uniform", script, 50, memory=False)
    chosen = iter(["", "", ends, "", "", ""])

    class Fixed:
        """Follows the plan; rewards and actions count up."""

        count = 0

        def choice(self, *_: Any, **__: Any) -> str:
            return next(chosen)

        def integers(self, *_: Any) -> int:
            Fixed.count += 1
            return Fixed.count

    script.rng = Fixed()  # type: ignore[assignment]
    Fixed.count = 0
    fill(buffer, script, [("add", 6)])
    return buffer


def whole(buffer: Any, length: int) -> dict[str, Any]:
    """The one sequence that begins with the first step."""
    for _ in range(200):
        rows = sample_rows(buffer, 1, length)
        if rows["obs"][0, 0, -1, 1:3].tolist() == [0, 0]:
            return {name: np.array(column)[:, 0] for name, column in rows.items()}
    raise AssertionError("never drawn")


@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_a_row_has_what_led_to_it(ends: str) -> None:
    """Steps have the actions 1, 3, 5 | 7, 9, 11 and the rewards 2, 4, 6 | 8, 10, 12; the bar is the end."""
    rows = whole(hand_made(ends), 8)
    assert rows["obs"][:, -1, 1:3].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1], [1, 2], [1, 3]]
    assert rows["action"].tolist() == [0, 1, 3, 5, 0, 7, 9, 11]
    assert rows["reward"].tolist() == [0, 2, 4, 6, 0, 8, 10, 12]
    assert rows["first"].tolist() == [True, False, False, False, True, False, False, False]
    assert rows["last"].tolist() == [False, False, False, True, False, False, False, False]
    assert rows["terminal"].any() == (ends == "terminated") and not rows["terminal"][~rows["last"]].any()
    assert rows["known"].all()


def test_what_led_to_the_first_row_of_a_sequence_is_not_known() -> None:
    """Unless it begins an episode; it always begins without a memory."""
    buffer, seen = hand_made("terminated"), set()
    for _ in range(100):
        rows = sample_rows(buffer, 4, 3)
        assert rows["first"][0].all() and not rows["action"][0].any() and not rows["reward"][0].any()
        starts = rows["obs"][0, :, -1, 2] == 0
        np.testing.assert_array_equal(rows["known"][0], starts)
        assert rows["known"][1:].all()
        seen |= set(starts.tolist())
    assert seen == {True, False}


def check(script: Script, rows: dict[str, Any], i: int) -> set[str]:
    """One column of rows against the log; returns which kinds of rows there were."""
    kinds = set()
    for t in range(len(rows["first"])):
        b, episode, step = script.where(rows["obs"][t, i])
        log = script.log[b][episode]
        np.testing.assert_array_equal(rows["obs"][t, i], script.obs(b, episode, step))
        over = step == len(log.rewards) and log.ended
        if t:
            before = script.where(rows["obs"][t - 1, i])
            follows = before == (b, episode, step - 1) and log.added[step - 1]
            assert rows["first"][t, i] == (not follows), "a gap begins anew like an episode"
            assert rows["known"][t, i]
            assert rows["action"][t, i] == (log.actions[step - 1] if follows else 0)
            assert rows["reward"][t, i] == (log.rewards[step - 1] if follows else 0)
            assert rows["terminal"][t, i] == (follows and over == "terminated")
            if follows and over:
                assert rows["last"][t, i]
            elif rows["last"][t, i]:
                assert not log.added[step], "the steps after it went elsewhere"
            kinds.add("gap" if not follows and step else over or "step")
    return kinds


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_what_happened(kind: str) -> None:
    """Over ends of both kinds, gaps whose steps went elsewhere, and the wrap-around of a full buffer."""
    kinds: set[str] = set()
    for seed in range(6):
        script = Script(2, seed, ends=0.15, dtype=np.float32)
        buffer = make(kind, script, 60, memory=False)
        for part in [("add", 12), ("elsewhere", 2), ("add", 9), ("barrier", 5), ("add", 30)]:
            fill(buffer, script, [part])
            rows = sample_rows(buffer, 16, 6)
            for i in range(16):
                kinds |= check(script, rows, i)
    assert kinds == {"step", "terminated", "truncated", "gap"}


def test_rows_outlive_the_next_draw() -> None:
    """All but the observations: a world model's batch waits for the controller while others are drawn."""
    buffer = hand_made("terminated")
    rows = sample_rows(buffer, 4, 3)
    kept = {name: np.array(rows[name]) for name in rows if name != "obs"}
    for _ in range(5):
        sample_rows(buffer, 4, 3)
    for name, column in kept.items():
        np.testing.assert_array_equal(rows[name], column)
