"""What off-policy algorithms draw: nothing too early, sequences after a burn-in, n-step returns as in the log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ludus.data.buffers.batches import draw, priorities
from scripted import Script, fill, make, marks

CPU = torch.device("cpu")


def moment(type: str = "online", **changes: Any) -> Any:
    cfg = {"batch_size": 32, "learning_starts": 100, "n_step": 3, "gamma": 0.9, "sequence_length": 6, "burn_in": 2}
    return SimpleNamespace(cfg=SimpleNamespace(**{**cfg, **changes}), type=type, position=0, total=1, at=float)


def filled(steps: int, kind: str = "uniform") -> tuple[Any, Script]:
    script = Script(2, 0, dtype=np.float32)
    buffer = make(kind, script, 1_000)
    fill(buffer, script, [("add", 4)] * (steps // 8))
    return buffer, script


@pytest.mark.parametrize(
    ("steps", "type", "batch", "drawn"),
    [
        (96, "online", 32, False),
        (104, "online", 32, True),
        (96, "offline", 32, True),
        (96, "offline", 97, False),
        (104, "online", 105, False),
    ],
)
def test_learning_begins_when_enough_is_stored(steps: int, type: str, batch: int, drawn: bool) -> None:
    """Offline phases have their steps from somewhere else: they wait for one batch only."""
    buffer, _ = filled(steps)
    now = moment(type, batch_size=batch)
    assert (draw(buffer, now, recurrent=False, device=CPU) is not None) == drawn


def test_tensors_are_made_once_and_hold_the_newest_sample() -> None:
    """Also after sizes that changed so often that the arrays were made anew."""
    buffer, _ = filled(400)
    before, _ = draw(buffer, moment(), recurrent=False, device=CPU)
    seen = before["reward"].clone()
    again, _ = draw(buffer, moment(), recurrent=False, device=CPU)
    assert again["obs"] is before["obs"] and not torch.equal(again["reward"], seen)
    for size in (8, 9, 10, 11, 12, 32):
        batch, _ = draw(buffer, moment(batch_size=size), recurrent=False, device=CPU)
        out, _ = buffer._output(size)
        assert len(buffer._outputs) <= 4 and len(buffer.wrapped) <= 4 * len(out)
        for name in batch:
            assert batch[name].data_ptr() == out[name].ctypes.data, name
    assert batch["obs"] is not before["obs"]


def test_only_buffers_with_priorities_ask_for_errors() -> None:
    assert [filled(8, kind)[0].has_priorities for kind in ("uniform", "trajectory", "prioritized")] == [
        False,
        False,
        True,
    ]


def test_no_sequence_is_long_enough_yet() -> None:
    buffer, _ = filled(104)
    assert draw(buffer, moment(sequence_length=500), recurrent=True, device=CPU) is None


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("kind", ["uniform", "prioritized", "trajectory"])
def test_sequences_bootstrap_from_where_the_log_says(kind: str, n_step: int) -> None:
    buffer, script = filled(400, kind)
    batch, index = draw(buffer, moment(n_step=n_step), recurrent=True, device=CPU)
    assert batch["obs"].shape[:2] == (2 + 6 + 1, 32) and batch["reward"].shape == (6, 32)
    assert index.shape == (32,) and batch["state"][0].shape == (32, 1)
    checked = 0
    for t, n in np.argwhere(batch["weight"].numpy() > 0):
        b, episode, step = script.where(batch["obs"][2 + t, n].numpy())
        rewards = script.stretch(b, episode, step, min(n_step, 6 - t))
        reached = script.where(batch["obs"][2 + batch["row"][t, n], n].numpy())
        assert reached == (b, episode, step + len(rewards))
        assert batch["reward"][t, n] == pytest.approx(sum(0.9**k * r for k, r in enumerate(rewards)), abs=1e-5)
        log = script.log[b][episode]
        ended = log.ended == "terminated" and step + len(rewards) == len(log.rewards)
        assert batch["discount"][t, n] == pytest.approx(0.0 if ended else 0.9 ** len(rewards))
        checked += 1
    assert 32 < checked < 6 * 32, "some rows are final observations"
    if kind != "prioritized":
        assert batch["weight"].mean() == pytest.approx(1.0, abs=1e-5)


def test_a_blank_memory_takes_the_place_of_the_stored_one() -> None:
    """Sequences may then begin anywhere, also where no memory was stored."""
    buffer, script = filled(400)
    blank = (torch.full((32, 1), 7.0),)
    batch, _ = draw(buffer, moment(), recurrent=True, device=CPU, blank=blank)
    assert torch.equal(batch["state"][0], blank[0])
    starts = [script.where(obs) for obs in batch["obs"][0].numpy()]
    assert any(t not in script.log[b][episode].memory for b, episode, t in starts)


def test_priorities_of_steps_and_of_sequences() -> None:
    error = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    np.testing.assert_array_equal(priorities(error[:1]), [1.0, 0.0])
    np.testing.assert_allclose(priorities(error), [0.9 * 3 + 0.1 * 2, 0.0])


# ---- what is found, and when -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["uniform", "prioritized", "trajectory"])
def test_a_sequence_is_found_wherever_in_the_ring_memory_is_stored(kind: str) -> None:
    """Rollouts of 64 steps store memory once in 64 slots; where in the ring that is must not matter."""
    script = Script(2, 0, dtype=np.float32, ends=0.02)
    buffer = make(kind, script, 1_000)
    fill(buffer, script, [("add", 64)])
    for _ in range(40):
        fill(buffer, script, [("add", 64)])
        assert buffer.can_sample_sequences(1, 8, state=True)
        assert draw(buffer, moment(), recurrent=True, device=CPU) is not None


def test_a_sequence_is_found_in_the_oldest_slots() -> None:
    """One memory at the very beginning of a long row: there until it has left the ring, then not."""
    script = Script(1, 0, dtype=np.float32, ends=0.0)
    buffer = make("uniform", script, 2_000)
    fill(buffer, script, [("add", 1_500)])
    assert buffer.can_sample_sequences(1, 8, state=True)
    buffer._put_state = lambda *_: None  # from here on none is stored
    fill(buffer, script, [("add", 100)] * 5)
    assert buffer.can_sample_sequences(1, 8, state=True)
    fill(buffer, script, [("add", 1)])
    assert not buffer.can_sample_sequences(1, 8, state=True)


@pytest.mark.parametrize("type", ["online", "offline"])
def test_learning_goes_on_when_episodes_get_shorter(type: str) -> None:
    """Final observations take the places of steps: what was enough to begin with is enough for ever."""
    script = Script(2, 0, dtype=np.float32, ends=0.0)
    buffer = make("uniform", script, 200)
    fill(buffer, script, [("add", 100)])
    now = moment(type, batch_size=199, learning_starts=200)
    assert draw(buffer, now, recurrent=False, device=CPU) is not None
    script.ends = 0.9
    fill(buffer, script, [("add", 300)])
    assert len(buffer) < 150
    assert draw(buffer, now, recurrent=False, device=CPU) is not None


# ---- prioritized -------------------------------------------------------------------------------------------------


def test_sequences_are_drawn_by_their_priorities_however_few_places_there_are() -> None:
    """One slot in 32 has stored memory, and its error is small: draws and weights still follow the errors."""
    script = Script(1, 0, dtype=np.float32, ends=0.0)
    buffer = make("prioritized", script, 1_024, alpha=1.0, beta=1.0)
    fill(buffer, script, [("add", 32)] * 30)
    slots = np.flatnonzero(buffer.storage.data["flags"] & 8)[:-1]
    small, large = slots[::2], slots[1::2]
    buffer.update_priorities(small, np.full(len(small), 0.01))
    buffer.update_priorities(large, np.full(len(large), 0.04))
    drawn, weight = [], []
    for _ in range(40):
        sample = buffer.sample_sequences(50, 33, state=True)
        drawn.append(sample["index"].copy())
        weight.append(sample["weight"].copy())
    index, weights = np.concatenate(drawn), np.concatenate(weight)
    assert np.isin(index, slots).all()
    assert np.isin(index, large).mean() == pytest.approx(0.8, abs=0.05)
    np.testing.assert_allclose(weights[np.isin(index, large)], 0.25, rtol=0.01)
    np.testing.assert_allclose(weights[np.isin(index, small)], 1.0, rtol=0.01)


def test_only_places_with_memory_have_a_priority() -> None:
    """The rest can never be drawn, so that its priority would stay the largest for ever."""
    script = Script(2, 0, dtype=np.float32, ends=0.1)
    with_memory, without = (make("prioritized", script, 400, memory=flag) for flag in (True, False))
    for _ in range(20):
        rollout = script.rollout(16)
        for buffer in (with_memory, without):
            buffer.add(rollout, mark=marks(rollout))
    assert (with_memory.tree.leaves > 0).sum() == pytest.approx(len(without) / 16, abs=2)
    assert (without.tree.leaves > 0).sum() == len(without)


def test_places_that_are_counted_are_drawn_by_their_priorities_too() -> None:
    """Nearly all the weight lies where no sequence of that length can begin: draws by chance alone run out."""
    script = Script(1, 0, dtype=np.float32, ends=0.0)
    buffer = make("prioritized", script, 400, memory=False, alpha=1.0, beta=1.0)
    fill(buffer, script, [("add", 300)])
    slots = np.arange(300)
    buffer.update_priorities(slots, np.where(slots < 100, np.where(slots % 2, 3e-4, 1e-4), 1.0))
    sample = buffer.sample_sequences(4_000, 200)
    assert sample["index"].max() <= 100
    odd = sample["index"] % 2 == 1
    assert odd[sample["index"] < 100].mean() == pytest.approx(0.75, abs=0.05)


def test_the_importance_weights_follow_the_schedule_of_beta() -> None:
    """(N P)^-beta, divided by the largest, at the start and at the end of the run."""
    script = Script(1, 0, dtype=np.float32, ends=0.0)
    buffer = make("prioritized", script, 200, memory=False, alpha=1.0, beta={"start": 0.4, "end": 1.0})
    fill(buffer, script, [("add", 100)])
    error = 0.5 + np.arange(100) / 100
    buffer.update_priorities(np.arange(100), error)
    for env_steps, beta in ((0, 0.4), (50, 0.7), (100, 1.0)):
        now = moment()
        now.position, now.total = env_steps, 100
        batch, index = draw(buffer, now, recurrent=False, device=CPU)
        expected = (error[index].min() / error[index]) ** beta
        np.testing.assert_allclose(batch["weight"][0].numpy(), expected, rtol=1e-4)


def test_a_new_step_has_the_largest_priority_there_ever_was() -> None:
    script = Script(1, 0, dtype=np.float32, ends=0.0)
    buffer = make("prioritized", script, 400, memory=False, alpha=1.0)
    fill(buffer, script, [("add", 100)])
    buffer.update_priorities(np.arange(100), np.full(100, 0.01))
    buffer.update_priorities(np.array([0]), np.array([50.0]))
    buffer.update_priorities(np.array([0]), np.array([0.01]))
    fill(buffer, script, [("add", 1)])
    assert (buffer.sample(64)["index"] == 100).mean() > 0.9  # 50 of 51
