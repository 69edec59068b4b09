"""The newest stretches first, each once, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scripted import Script, fill, make


def starts(script: Script, sample: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [script.where(obs) for obs in sample["obs"][0]]


def endless(envs: int = 1, size: int = 400) -> tuple[Script, Any]:
    script = Script(envs, 0, ends=0.0, dtype=np.float32)
    return script, make("online", script, size, memory=False)


def test_every_stretch_is_drawn_once_in_order_before_others() -> None:
    script, buffer = endless()
    fill(buffer, script, [("add", 23)])
    assert starts(script, buffer.sample_sequences(3, 4)) == [(0, 0, 0), (0, 0, 4), (0, 0, 8)]
    found = starts(script, buffer.sample_sequences(5, 4))
    assert found[:2] == [(0, 0, 12), (0, 0, 16)], "the rest of the batch is uniform"
    later = [one for _ in range(40) for one in starts(script, buffer.sample_sequences(5, 4))]
    assert {t for *_, t in later} == set(range(20)), "nothing new is left: all are drawn alike"
    fill(buffer, script, [("add", 1)])
    assert starts(script, buffer.sample_sequences(1, 4)) == [(0, 0, 20)]


def test_stretches_with_memory_begin_where_it_is_stored() -> None:
    """The memory before the first step of each rollout is; stretches of four steps would begin elsewhere."""
    script = Script(1, 0, ends=0.0, dtype=np.float32)
    buffer = make("online", script, 400)
    fill(buffer, script, [("add", 6)] * 4)
    assert {t for *_, t in starts(script, buffer.sample_sequences(50, 4, state=True))} == {0, 6, 12, 18}


def test_a_stretch_waits_until_it_is_whole() -> None:
    script, buffer = endless()
    fill(buffer, script, [("add", 7)])
    assert buffer.sample_sequences(2, 4)["obs"].shape[:2] == (5, 2)
    state = buffer.rng.bit_generator.state
    fill(buffer, script, [("add", 1)])
    assert starts(script, buffer.sample_sequences(1, 4)) == [(0, 0, 4)]
    assert buffer.rng.bit_generator.state == state, "a batch of new stretches needs no random number"


def test_all_environments_have_their_turn() -> None:
    script, buffer = endless(envs=3)
    fill(buffer, script, [("add", 8)])
    found = [one for _ in range(3) for one in starts(script, buffer.sample_sequences(2, 4))]
    assert sorted(found) == [(b, 0, t) for b in range(3) for t in (0, 4)]


def test_no_environment_is_left_out_where_more_is_collected_than_learned_from() -> None:
    script, buffer = endless(envs=3)
    found = []
    for _ in range(6):
        fill(buffer, script, [("add", 8)])
        found += starts(script, buffer.sample_sequences(2, 4))
    assert [b for b, *_ in found] == [0, 1, 2, 0, 1, 2] * 2
    assert sorted(t for *_, t in found) == [0, 0, 0, 4, 4, 4, 8, 8, 8, 12, 12, 12]


@pytest.mark.parametrize("seed", range(4))
def test_every_step_is_in_one_new_stretch_whatever_ends(seed: int) -> None:
    """No stretch begins with a final observation, and none is left out because of one."""
    script = Script(2, seed, ends=0.3, dtype=np.float32)
    buffer = make("online", script, 1_000, memory=False)
    seen: list[tuple[int, int, int]] = []
    for _ in range(12):
        fill(buffer, script, [("add", 9)])
        while True:
            new = buffer._new(1, 4)
            if not len(new[0]):
                break
            sample = buffer._sequences(*new, np.arange(5)[:, None] + new[1], 1.0, state=False)
            assert sample["mask"][0, 0]
            seen += [script.where(sample["obs"][t, 0]) for t in range(4) if sample["mask"][t, 0]]
    steps = [(b, e, t) for b in range(2) for e, log in enumerate(script.log[b]) for t in range(len(log.rewards))]
    assert len(seen) == len(set(seen)), "a step was in two new stretches"
    for b in range(2):
        mine, all_of = [s for s in seen if s[0] == b], [s for s in steps if s[0] == b]
        assert mine == all_of[: len(mine)] and len(all_of) - len(mine) <= 8


def test_the_queue_is_saved_and_restored(tmp_path: Any) -> None:
    script, buffer = endless(envs=2)
    buffer.attach(tmp_path)
    fill(buffer, script, [("add", 20)])
    buffer.sample_sequences(3, 4)
    other = make("online", script, 400, memory=False)
    other.load(buffer.save("step=1", ()), tmp_path)
    for _ in range(4):
        ours, theirs = (one.sample_sequences(3, 4) for one in (buffer, other))
        assert starts(script, ours) == starts(script, theirs)
        np.testing.assert_array_equal(ours["obs"], theirs["obs"])


def test_stretches_that_were_overwritten_are_not_drawn() -> None:
    script, buffer = endless(size=30)
    fill(buffer, script, [("add", 100)])
    found = starts(script, buffer.sample_sequences(4, 4))
    assert found == [(0, 0, t) for t in (70, 74, 78, 82)]
    for t in range(len(found)):
        assert found[t][2] >= 100 - 30
    np.testing.assert_array_equal(
        buffer.sample_sequences(1, 4)["obs"][:, 0], [script.obs(0, 0, t) for t in range(86, 91)]
    )


def test_after_starting_over_the_queue_is_empty() -> None:
    script, buffer = endless()
    fill(buffer, script, [("add", 12)])
    buffer.sample_sequences(2, 4)
    buffer.start_over()
    fill(buffer, script, [("add", 8)])
    assert starts(script, buffer.sample_sequences(2, 4)) == [(0, 0, 12), (0, 0, 16)]
