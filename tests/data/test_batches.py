"""What off-policy algorithms draw: nothing too early, sequences after a burn-in, n-step returns as in the log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ludus.data.batches import draw, priorities
from scripted import Script, fill, make

CPU = torch.device("cpu")


def moment(type: str = "online", **changes: Any) -> Any:
    cfg = {"batch_size": 32, "learning_starts": 100, "n_step": 3, "gamma": 0.9, "sequence_length": 6, "burn_in": 2}
    return SimpleNamespace(cfg=SimpleNamespace(**{**cfg, **changes}), type=type, env_steps=0, total_steps=1, at=float)


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


def test_no_sequence_is_long_enough_yet() -> None:
    buffer, _ = filled(104)
    assert draw(buffer, moment(sequence_length=500), recurrent=True, device=CPU) is None


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("kind", ["uniform", "prioritized", "trajectory"])
def test_sequences_bootstrap_from_where_the_log_says(kind: str, n_step: int) -> None:
    buffer, script = filled(400, kind)
    batch, index = draw(buffer, moment(n_step=n_step), recurrent=True, device=CPU)
    assert batch["obs"].shape[:2] == (2 + 6 + 1, 32) and batch["reward"].shape == (6, 32) == batch["error"].shape
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
    np.testing.assert_array_equal(priorities({"error": error[:1]}), [1.0, 0.0])
    np.testing.assert_allclose(priorities({"error": error}), [0.9 * 3 + 0.1 * 2, 0.0])
