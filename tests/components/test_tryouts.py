"""Waves of episodes: every candidate gets the same starts, and what it is paid is counted once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ludus.components.tryouts import Tryouts


class Environments:
    """Notes the seeds of resets."""

    def __init__(self, num_envs: int) -> None:
        self.seeds: list[list[int]] = []
        self.first = np.ones(num_envs, bool)

    def barrier(self, seeds: list[int]) -> None:
        self.seeds.append(seeds)
        self.first[:] = True


def rollout(reward: list[list[float]], done: list[list[int]], broken: Any = None) -> Any:
    return SimpleNamespace(raw_reward=np.array(reward, np.float32), done=np.array(done, bool), broken=broken)


def begun(candidates: int = 3, rollouts: int = 2, num_envs: int = 4) -> tuple[Tryouts, Environments]:
    one, envs = Tryouts(candidates, rollouts, num_envs), Environments(num_envs)
    one.begin(np.array([70, 80]))
    one.prepare(envs)  # type: ignore[arg-type]
    envs.first[:] = False
    return one, envs


def test_a_generation_of_two_waves() -> None:
    one, envs = begun()
    assert one.candidates.tolist() == [0, 0, 1, 1] and envs.seeds == [[70, 80, 70, 80]]
    assert one.add(rollout([[1, 2, 3, 4], [10, 20, 30, 40]], [[0, 1, 0, 0], [1, 0, 0, 0]])) is None
    envs.first[:2] = [True, False]
    one.prepare(envs)  # type: ignore[arg-type]
    assert len(envs.seeds) == 1  # the wave goes on
    assert one.add(rollout([[100, 100, 5, 6]], [[0, 0, 1, 1]])) is None
    one.prepare(envs)  # type: ignore[arg-type]
    assert one.candidates.tolist() == [2, 2, 2, 2] and envs.seeds[1][:2] == [70, 80]
    score = one.add(rollout([[7, 8, 99, 99]], [[1, 1, 0, 0]]))  # two environments have nothing to do
    assert score is not None
    assert score.tolist() == [(11 + 2) / 2, (38 + 50) / 2, (7 + 8) / 2]
    assert one.seeds is None


def test_a_wave_begins_again_if_somebody_reset_the_environments() -> None:
    one, envs = begun()
    one.add(rollout([[1, 1, 1, 1]], [[0, 1, 0, 0]]))
    envs.first[:] = True  # a checkpoint of environments without snapshots
    one.prepare(envs)  # type: ignore[arg-type]
    assert len(envs.seeds) == 2 and not one.sums.any() and not one.over.any()


def test_a_wave_begins_again_if_an_episode_was_lost() -> None:
    one, envs = begun(candidates=2)
    one.add(rollout([[1, 1, 1, 1]], [[0, 1, 0, 0]]))
    assert one.add(rollout([[5, 5, 5, 5]], [[1, 1, 1, 1]], broken=np.array([[False, False, True, False]]))) is None
    one.prepare(envs)  # type: ignore[arg-type]
    assert len(envs.seeds) == 2 and not one.sums.any()
    one.add(rollout([[1, 1, 1, 1]], [[0, 1, 0, 0]]))
    lost = np.array([[False, True, False, False]])  # of an environment whose episode is over
    assert one.add(rollout([[1, 1, 1, 1]], [[1, 1, 1, 1]], broken=lost)) is not None


@pytest.mark.parametrize("num_envs", [1, 2, 4, 5, 8])
def test_scores_do_not_depend_on_the_number_of_environments(num_envs: int) -> None:
    """An episode that lasts 1 + job steps and pays 1 for each."""
    one, envs = Tryouts(3, 2, num_envs), Environments(num_envs)
    one.begin(np.array([5, 6]))
    score, age = None, np.zeros(num_envs, int)
    while score is None:
        resets = len(envs.seeds)
        one.prepare(envs)  # type: ignore[arg-type]
        age[:] = 0 if len(envs.seeds) > resets else age
        age += 1
        done = age > one.jobs
        score = one.add(rollout([[1.0] * num_envs], [done.tolist()]))
        envs.first, age = done, np.where(done, 0, age)
    assert score.tolist() == [1.5, 3.5, 5.5]


def test_its_state_goes_on_in_the_middle_of_a_wave() -> None:
    one, envs = begun()
    other = Tryouts(3, 2, 4)
    one.add(rollout([[1, 2, 3, 4]], [[0, 1, 0, 0]]))
    other.load_state_dict(one.state_dict())
    for each in (one, other):
        each.prepare(envs)  # type: ignore[arg-type]
        each.add(rollout([[1, 1, 1, 1]], [[1, 1, 1, 1]]))
    assert one.returns.tolist() == other.returns.tolist() and one.wave == other.wave == 1
    assert len(envs.seeds) == 1
