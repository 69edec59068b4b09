"""The one loop that plays episodes: shares, lost workers, frames, memory, and how greedy it is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ludus.errors import EnvironmentFailed
from ludus.play import MOST_LOST, PlayedStep, episodes, greedy, policy_of, random_policy
from ludus.types import ActResult, StepResult
from vector_script import Planned


class _Env:
    """Two steps an episode, reward 1, autoreset as in the contract; frames show (episode, step)."""

    def __init__(self) -> None:
        self.at, self.final = [0, 0], [0, 0]
        self.id, self.num_envs = "Stepped-v0", 1

    def reset(self, seeds: list[int]) -> np.ndarray:
        return np.array([self.at], np.float32)

    def step(self, action: np.ndarray) -> Any:
        self.at[1] += 1
        done = self.at[1] == 2
        if done:
            self.final, self.at = self.at, [self.at[0] + 1, 0]
        flags = np.array([done])
        obs, paid = np.array([self.at], np.float32), np.ones(1, np.float32)
        return StepResult(obs, paid, flags, ~flags & flags, None, paid)

    def render(self, index: int = 0, *, final: bool = False) -> tuple[int, int]:
        return tuple(self.final if final else self.at)  # type: ignore[return-value]


class _Algorithm:
    """Counts its steps in its memory, which must be fresh in every episode."""

    deterministic_evaluation = False

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def initial_state(self, batch: int) -> np.ndarray:
        return np.zeros(batch)

    def act(self, obs: np.ndarray, state: np.ndarray, first: np.ndarray, *, deterministic: bool) -> ActResult:
        state = np.where(first, 0, state) + 1
        self.calls.append((obs.tolist(), int(state[0]), bool(first[0]), deterministic))
        return ActResult(np.zeros(1, np.int64), state, {})


def test_memory_starts_afresh_observations_are_normalised_and_every_state_is_shown() -> None:
    algorithm: Any = _Algorithm()
    normalizer: Any = SimpleNamespace(apply=lambda obs: obs * 10)
    act = policy_of(algorithm, normalizer, deterministic=True)
    steps = list(episodes(act, _Env(), [0], 2, render=True))  # type: ignore[arg-type]
    frames = [frame for step in steps for frame in step.frames]
    assert frames == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [call[1:] for call in algorithm.calls] == [(1, True, True), (2, False, True)] * 2
    assert algorithm.calls[1][0] == [[0.0, 10.0]] and steps[1].obs.tolist() == [[0.0, 1.0]]
    assert [(end.total, end.length) for step in steps for end in step.ended] == [(2.0, 2), (2.0, 2)]
    assert [(step.t, bool(step.first[0]), float(step.total[0])) for step in steps] == [
        (0, True, 1.0),
        (1, False, 2.0),
        (2, True, 1.0),
        (3, False, 2.0),
    ]


@pytest.mark.parametrize(
    ("wishes", "expected"), [((None, None), False), ((None, True), True), ((False, True), False), ((True, None), True)]
)
def test_greedy_as_asked_else_as_evaluated_else_as_the_algorithm_does(
    wishes: tuple[bool | None, ...], expected: bool
) -> None:
    algorithm: Any = _Algorithm()
    assert greedy(algorithm, *wishes) is expected
    assert greedy(SimpleNamespace(deterministic_evaluation=True)) is True  # type: ignore[arg-type]


def still(obs: np.ndarray, state: Any, first: np.ndarray) -> ActResult:
    """Always the first action."""
    return ActResult(np.zeros(len(first), np.int64), state, {})


def ends(steps: Any) -> list[tuple[int, float, int]]:
    return [tuple(end) for step in steps for end in step.ended]


def test_every_environment_plays_its_share_and_no_more() -> None:
    """First come, first counted would take all episodes from the environment with the short ones."""
    env = Planned([[(1, "terminated")], [(4, "truncated")]])
    found = ends(episodes(still, env, [1, 2], 3))
    assert found == [(0, 1.0, 1), (0, 1.0, 1), (1, 10.0, 4)]


def test_a_lost_life_is_not_the_end_of_an_episode() -> None:
    assert ends(episodes(still, Planned([[(2, "life"), (3, "terminated")]]), [1], 1)) == [(0, 9.0, 5)]


def test_an_episode_that_is_lost_with_its_worker_is_played_again() -> None:
    env = Planned([[(2, "broken"), (3, "terminated")]])
    steps = list(episodes(still, env, [1], 1))
    assert len(ends(steps)) == 1 and steps[-1].length[0] == 3


def test_workers_that_always_end_end_the_evaluation() -> None:
    with pytest.raises(EnvironmentFailed, match=f"ended {MOST_LOST + 1} times in a row"):
        list(episodes(still, Planned([[(1, "broken")]]), [1], 1))


def test_steps_and_seconds_are_limited() -> None:
    plan = [[(4, "terminated")]]
    assert len(list(episodes(still, Planned(plan), [1], 5, max_steps=7))) == 7
    assert list(episodes(still, Planned(plan), [1], 5, timeout=0.0)) == []


def test_what_a_step_tells_stays_as_it_was() -> None:
    """Environments overwrite their arrays at the next step."""
    env = Planned([[(4, "terminated")], [(3, "truncated")]])
    steps, seen = [], []
    for step in episodes(still, env, [1, 2], 4):
        steps.append(step)
        seen.append([np.array(value) for value in step[:-2] if isinstance(value, np.ndarray)])
    for step, before in zip(steps, seen, strict=True):
        for now, then in zip([value for value in step[:-2] if isinstance(value, np.ndarray)], before, strict=True):
            np.testing.assert_array_equal(now, then)
    assert PlayedStep._fields[-2:] == ("ended", "frames")


def test_random_actions_are_those_of_the_seed() -> None:
    env = Planned([[(4, "terminated")]] * 3)
    drawn = [[random_policy(env, seed)(None, None, None).action.tolist() for _ in range(1)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] and len(drawn[0][0]) == 3
