"""Random streams: independent by name and by neighbouring seed, and exactly restorable."""

from __future__ import annotations

import json
import zlib

import torch

from ludus.seeding import Streams
from support import build, close, config


def test_names_and_seeds_share_nothing() -> None:
    seen: set[int] = set()
    for seed in range(20):
        for name in ("training environments", "evaluation 0", "evaluation 4096", "weights"):
            numbers = Streams(seed).integers(name, 16)
            assert len(set(numbers)) == 16
            assert not seen & set(numbers)
            seen |= set(numbers)


def test_same_name_same_stream() -> None:
    assert Streams(3).generator("x").random(5).tolist() == Streams(3).generator("x").random(5).tolist()
    assert Streams(3).generator("x").random(5).tolist() != Streams(3).generator("y").random(5).tolist()


def test_a_generator_goes_on_after_json() -> None:
    run, other = (build(config(experiment={"seed": seed}), will_checkpoint=True) for seed in (1, 2))
    run.exploration.random(3)
    state = run.state_dict()
    saved = {**state, "exploration": json.loads(json.dumps(state["exploration"]))}
    expected = run.exploration.random(4).tolist(), torch.rand(4).tolist()
    other.load_state_dict(saved)
    assert (other.exploration.random(4).tolist(), torch.rand(4).tolist()) == expected
    close(run)
    close(other)


def test_training_evaluation_and_confirmation_share_no_episode() -> None:
    """Also not with the seed 1,000 further on, which other tools give to their evaluation environments."""
    names = ("training environments", "evaluation 4096", "confirmation 4096", "evaluate", "video 4096")
    drawn = [seed for run in (42, 1042, 2042) for name in names for seed in Streams(run).integers(name, 100)]
    assert len(set(drawn)) == len(drawn)


def test_a_seed_and_a_name_are_two_things() -> None:
    """Seeds that differ by just what two names differ by: a sum of both would be the same stream."""
    names = sorted(("exploration", "evaluation"), key=lambda name: zlib.crc32(name.encode()))
    apart = zlib.crc32(names[1].encode()) - zlib.crc32(names[0].encode())
    assert Streams(5 + apart).integers(names[0], 4) != Streams(5).integers(names[1], 4)
