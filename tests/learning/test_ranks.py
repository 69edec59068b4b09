"""Ranks that learn together do what one process does with the batches of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from golden.fingerprints import A2C, CONTINUOUS, DQN, NETWORK, ON_POLICY, PPO, WORLD
from ludus.algorithms import Algorithm
from ludus.data.rollout import Rollout
from ludus.learning.accumulate import parts_of
from ludus.learning.learner import Learner
from ludus.learning.ranks import ALONE, Ranks
from ludus.math.policy_gradient import normalized
from ludus.math.running import RunningMoments
from ludus.registry import ALGORITHMS
from ludus.types import tree_map
from support import build, config, moment, run
from toy_learners import LR, batches, fit, learner
from two_ranks import together

FAST = {"target_every": 10_000}
CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "ppo": ({"name": "ppo", **PPO, "batch_size": 0.25}, "CartPole-v1", {}),
    "ppo memory": ({"name": "ppo", **PPO, "batch_size": 0.25}, "CartPole-v1", {"memory": "gru"}),
    "a2c": ({"name": "a2c", **A2C}, "Pendulum-v1", {}),
    "reinforce": ({"name": "reinforce", **ON_POLICY, "targets": "advantages"}, "CartPole-v1", {}),
    "dqn": ({"name": "dqn", **DQN, **FAST}, "CartPole-v1", {}),
    "sac": ({"name": "sac", **CONTINUOUS}, "Pendulum-v1", {}),
    "sac memory": ({"name": "sac", **CONTINUOUS}, "Pendulum-v1", {"memory": "gru"}),
    "td3": ({"name": "td3", **CONTINUOUS}, "Pendulum-v1", {}),
}
Call = tuple[str, Any, dict[str, float], dict[str, Any], list[torch.Tensor]]


def recorded(
    algorithm: dict[str, Any], env: str, network: dict[str, Any] | None, steps: int = 256
) -> tuple[Any, list[Call], torch.Tensor]:
    """(config, updates of a short run in one process, weights after them)."""
    sections = {} if network is None else {"network": {**NETWORK, **network}}
    cfg = config(algorithm, env, **sections, training={"total_timesteps": steps})
    calls: list[Call] = []
    noise: list[torch.Tensor] = []
    whole_update, whole_draw = Learner.update, Learner.draw

    def update(self: Learner, function: Any, batch: Any, scalars: Any, *, accumulate: int = 1, **static: Any) -> Any:
        noise.clear()
        copy = {name: tree_map(torch.clone, tree) for name, tree in batch.items()}
        found = whole_update(self, function, batch, scalars, accumulate=accumulate, **static)
        calls.append((function.__name__, copy, dict(scalars), static, list(noise)))
        return found

    def draw(self: Learner, shape: Any) -> torch.Tensor:
        noise.append(whole_draw(self, shape))
        return noise[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "update", update)
        patch.setattr(Learner, "draw", draw)
        done = run(cfg)
    return cfg, calls, weights(done.algorithm)


def weights(algorithm: Algorithm) -> torch.Tensor:
    return algorithm.state()["learner"].theta.detach().clone()


def repeated(ranks: Ranks, cfg: Any, calls: list[Call]) -> torch.Tensor:
    """The weights after the same updates, of which each rank sees its half."""
    algorithm = build(cfg).algorithm
    own: Learner = algorithm.state()["learner"]
    own.ranks = ranks
    for name, batch, scalars, static, noise in calls:
        if ranks.count > 1:
            batch = parts_of(batch, ranks.count)[ranks.rank][1]
        left = iter(noise)

        def draw(shape: Any, left: Any = left) -> torch.Tensor:
            whole, width = next(left), shape[-2]
            return whole[..., width * ranks.rank : width * (ranks.rank + 1), :]

        own.draw = draw
        own.update(getattr(algorithm, name), batch, scalars, **static)
    return weights(algorithm)


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_take_the_steps_of_one_process_that_accumulates_two_parts(case: str) -> None:
    algorithm, env, network = CASES[case]
    cfg, calls, expected = recorded({**algorithm, "accumulate": 2}, env, network)
    assert len(calls) >= 3
    found = together(repeated, cfg, calls)
    for weights_of_rank in found:
        assert torch.equal(weights_of_rank, expected)


def test_two_ranks_of_dreamer_take_the_steps_of_one_process() -> None:
    """Not to the bit: Dreamer accumulates no parts, and a mean over a whole batch rounds otherwise than two halves."""
    cfg, calls, expected = recorded(
        {"name": "dreamer", **WORLD, "optimizer": {"type": "sgd"}}, "CartPole-v1", None, 112
    )
    assert len(calls) >= 3
    (one, scale), (other, other_scale) = (found.tensor_split([-2]) for found in together(repeated_dreamer, cfg, calls))
    assert torch.equal(one, other) and torch.equal(scale, other_scale)
    start = weights(build(cfg).algorithm)
    moved = (expected - start).abs().max()
    assert moved > 1e-4
    assert (one - expected).abs().max() < 1e-2 * moved
    alone, whole_scale = repeated_dreamer(ALONE, cfg, calls).tensor_split([-2])
    assert torch.equal(alone, expected)
    assert torch.allclose(scale, whole_scale, rtol=1e-4, atol=1e-7) and whole_scale.any()


def repeated_dreamer(ranks: Ranks, cfg: Any, calls: list[Call]) -> torch.Tensor:
    """Weights, then both ends of the range of returns.

    Imagination starts in every row: its noise has the rows of the batch one after the other, [H, T * B, ...].
    """
    algorithm, scale = build(cfg).algorithm, torch.zeros(2)
    own: Learner = algorithm.state()["learner"]
    own.ranks = ranks
    for name, batch, scalars, static, noise in calls:
        rows, columns = batch["first"].shape
        part = {name: tree for name, tree in batch.items() if name != "scale"}
        part = {**parts_of(part, ranks.count)[ranks.rank][1], "scale": batch["scale"]}
        left, half = iter(noise), columns // ranks.count

        def draw(shape: Any, left: Any = left, columns: int = columns, half: int = half) -> torch.Tensor:
            whole, own_columns = next(left), slice(half * ranks.rank, half * (ranks.rank + 1))
            if whole.shape[-2] == columns:
                return whole[..., own_columns, :]
            return whole.unflatten(-2, (-1, columns))[..., own_columns, :].flatten(-3, -2)

        own.draw = draw
        scale = own.update(getattr(algorithm, name), part, scalars, **static)["scale"]
    return torch.cat([weights(algorithm), scale])


def test_every_algorithm_that_claims_to_be_data_parallel_is_compared() -> None:
    compared = {case.partition(" ")[0] for case in CASES} | {"dreamer"}
    assert compared == {name for name in ALGORITHMS.names() if ALGORITHMS[name].data_parallel}


# ---- statistics of a batch -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [(), (1,), (0, 1)])
def test_advantages_are_normalised_over_the_batch_of_all_ranks(weighted: tuple[int, ...]) -> None:
    """Also where only one rank has steps that do not count."""
    generator = torch.Generator().manual_seed(3)
    advantage, weight = torch.randn(5, 6, generator=generator), torch.ones(5, 6)
    for rank in weighted:
        weight[2, 3 * rank] = 0.0
    found = torch.cat(together(normalized_part, advantage, weight, weighted), 1)
    assert torch.equal(found, normalized(advantage, weight if weighted else None))


def normalized_part(
    ranks: Ranks, advantage: torch.Tensor, weight: torch.Tensor, weighted: tuple[int, ...]
) -> torch.Tensor:
    return ranks.normalized(ranks.own(advantage), ranks.own(weight) if ranks.rank in weighted else None)


@pytest.mark.parametrize("ended", [(4, 1), (3, 0), (0, 0)])
def test_returns_of_reinforce_are_compared_with_those_of_all_ranks(ended: tuple[int, int]) -> None:
    """Also where no episode ended on one of them: it learns nothing itself, but takes the step of the other."""
    cfg = config({"name": "reinforce", **ON_POLICY, "targets": "advantages", "normalize": True})
    found = together(reinforced, cfg, ended)
    whole = reinforced(ALONE, cfg, ended)
    assert [one["updates"] for one in found] == [whole["updates"]] * 2 == [int(any(ended))] * 2
    for name in ("target", "weight"):
        if whole[name] is not None:
            both = np.concatenate([one[name] for one in found], 1)
            np.testing.assert_array_equal(both, whole[name])


def reinforced(ranks: Ranks, cfg: Any, ended: tuple[int, int]) -> dict[str, Any]:
    """What REINFORCE learns from two environments on each rank, in which episodes ended or did not."""
    done = np.zeros((8, 4), bool)
    for rank, when in enumerate(ended):
        if when:
            done[when, 2 * rank] = True
    own = slice(None) if ranks.count == 1 else slice(2 * ranks.rank, 2 * ranks.rank + 2)
    rewards = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    algorithm: Any = build(cfg).algorithm
    algorithm.learner.ranks = ranks
    width = len(range(4)[own])
    rewards = np.ascontiguousarray(rewards[:, own])
    obs, none = np.zeros((9, width, 4), np.float32), np.zeros((8, width), bool)
    steps = Rollout(
        obs=obs,
        action=np.zeros((8, width), np.int64),
        reward=rewards,
        terminated=done[:, own],
        truncated=none,
        first=np.zeros((9, width), bool),
        state=(),
        last_state=(),
        ends=None,
        raw_obs=obs,
        raw_reward=rewards,
        start=0,
    )
    algorithm.rollout = lambda *_: steps
    now = moment(cfg.algorithm.config)
    algorithm.collect(now)
    seen = algorithm.experience
    arrays = {name: None if seen is None else seen[name].numpy() for name in ("target", "weight")}
    return {**arrays, "updates": algorithm.update_controller(now).updates}


@pytest.mark.parametrize("shape", [(), (3,)])
def test_moments_of_several_ranks_are_those_of_all_samples(shape: tuple[int, ...]) -> None:
    samples = np.random.default_rng(0).normal(5.0, 2.0, size=(3, 2, 10, *shape))
    one, other = together(merged_moments, samples)
    whole = RunningMoments(shape)
    for batch in samples:
        whole.update(batch.reshape(-1, *shape))
    for name, expected in whole.state_dict().items():
        np.testing.assert_array_equal(one[name], other[name])
        np.testing.assert_allclose(one[name], expected, rtol=1e-12)


def merged_moments(ranks: Ranks, samples: Any) -> dict[str, Any]:
    moments = RunningMoments(samples.shape[3:])
    for batch in samples:
        moments.update(batch[ranks.rank], ranks.everyone)
    return moments.state_dict()


# ---- what updates report ---------------------------------------------------------------------------------------------


def test_metrics_and_the_divergence_that_stops_epochs_are_means_over_ranks() -> None:
    (metrics, last), (others, last_other) = together(fitted, False)
    assert metrics == others and last == last_other
    alone = []
    for part in range(2):
        own = learner()
        own.update(fit, batches(2)[part], LR)
        alone.append(own.last("loss/error"))
    assert last == pytest.approx(np.mean(alone), rel=1e-6)
    assert metrics["loss/error"] == pytest.approx(last)


def test_a_number_that_is_not_finite_on_one_rank_is_bad_on_all() -> None:
    assert together(fitted, True) == [("loss/error", None)] * 2


def fitted(ranks: Ranks, broken: bool) -> Any:
    own = learner()
    own.ranks, own.watched = ranks, broken
    batch = batches(2)[ranks.rank]
    if broken and ranks.rank == 1:

        def spoiled(nets: Any, batch: Any, c: Any) -> dict[str, torch.Tensor]:
            return {name: value * torch.nan for name, value in fit(nets, batch, c).items()}

        own.update(spoiled, batch, LR)
    else:
        own.update(fit, batch, LR)
    return (own.take_bad(), None) if broken else (own.metrics(), own.last("loss/error"))


def test_plain_data_and_bytes_reach_every_rank() -> None:
    (gathered, first, data, everywhere), others = together(exchanged)
    assert gathered == others[0] == [{"rank": 0, "text": "ü"}, {"rank": 1, "text": "üü"}]
    assert first == others[1] == [0, None, float("inf")]
    assert (data, others[2]) == (b"", b"\x00\xff" * 70_000)
    assert (everywhere, others[3]) == ([True, False], [True, False])


def exchanged(ranks: Any) -> tuple[Any, ...]:
    gathered = ranks.gather({"rank": ranks.rank, "text": "ü" * (ranks.rank + 1)})
    first = ranks.from_first([ranks.rank, None, float("inf")])
    data = b""
    if ranks.rank == 0:
        ranks.send(b"\x00\xff" * 70_000, 1)
    else:
        data = ranks.receive(0)
    return gathered, first, data, [ranks.everywhere(True), ranks.everywhere(ranks.rank == 0)]
