"""A deployed policy acts to the bit as `ludus evaluate` does, without an environment, for one observation or many."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import ludus
from ludus.errors import ConfigError, DataError
from ludus.seeding import Streams

SMALL = {"environment.num_envs": 4, "training.evaluation.episodes": 2, "runtime.compile": "never"}
PPO = {"training.total_timesteps": 256, "algorithm.rollout_steps": 32, "algorithm.batch_size": 0.5, **SMALL}
REPLAY = {"training.total_timesteps": 160, "algorithm.learning_starts": 64, "buffers.replay.size": 500, **SMALL}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("CartPole-v1:ppo", PPO),
    "ppo with memory": ("CartPole-v1:ppo_gru_masked", PPO),
    "dqn": ("CartPole-v1:dqn", REPLAY),
    "sac": ("Pendulum-v1:sac", REPLAY),
    "box actions and a running normaliser": ("Pendulum-v1:ppo", {**PPO, "environment.normalize_obs": "rolling"}),
    "picture and vector": ("LookAndFeel-v0:ppo", PPO),
    "one-hot states": ("FrozenLake-v1:ppo", PPO),
    "stacked vectors": ("CartPole-v1:ppo", {**PPO, "environment.frame_stack": 3}),
    "rescaled actions": (
        "Pendulum-v1:ppo",
        {**PPO, "environment.wrappers": [{"id": "rescale_action", "low": -0.5, "high": 0.1}]},
    ),
}


class Camera(gym.Env):
    """A moving bright column; an episode is twelve steps; the reward is 1 for the action that its place asks for."""

    observation_space = gym.spaces.Box(0, 255, (24, 24, 3), np.uint8)
    action_space = gym.spaces.Discrete(3, start=5)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.place = 0, int(self.np_random.integers(24))
        return self._picture(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        reward = float(action - 5 == self.place // 8)
        self.place, self.t = int(self.np_random.integers(24)), self.t + 1
        return self._picture(), reward, self.t >= 12, False, {}

    def _picture(self) -> np.ndarray:
        picture = np.full((24, 24, 3), 10, np.uint8)
        picture[:, self.place] = (250, 120, 30)
        return picture


def played(
    act: Callable[[Any], Any], reset: Callable[[Any], None], env: Callable[[], gym.Env], seeds: list[int]
) -> list[float]:
    """The return of the first episode of each of some environments that are stepped together."""
    envs = [env() for _ in seeds]
    obs = [one.reset(seed=seed)[0] for one, seed in zip(envs, seeds, strict=True)]
    totals, open_ones = np.zeros(len(envs)), np.ones(len(envs), bool)
    while open_ones.any():
        actions = act(obs if len(envs) > 1 else obs[0])
        done = np.zeros(len(envs), bool)
        for i, one in enumerate(envs):
            obs[i], reward, terminated, truncated, _ = one.step(actions[i] if len(envs) > 1 else actions)
            totals[i] += np.float32(reward) if open_ones[i] else 0.0
            done[i] = terminated or truncated
            if done[i]:
                obs[i] = one.reset()[0]
        open_ones &= ~done
        reset(done)
    return totals.tolist()


def batched(policy: ludus.Policy) -> Callable[[Any], Any]:
    """Takes lists of observations, also of dicts."""

    def act(obs: Any) -> Any:
        if isinstance(obs, list) and isinstance(obs[0], dict):
            return policy({key: np.stack([one[key] for one in obs]) for key in obs[0]})
        return policy(np.stack(obs) if isinstance(obs, list) else obs)

    return act


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_acts_like_evaluate(case: str, number: int, tmp_path: Path) -> None:
    spec, overrides = CASES[case]
    run = ludus.train(spec, overrides, seed=1, quiet=True, runs_dir=tmp_path)
    check(run, number)


@pytest.mark.parametrize("number", [1, 3])
def test_pictures_go_through_the_pipeline_of_the_config(number: int, tmp_path: Path) -> None:
    pipeline = {"environment": {"grayscale_obs": True, "resize_obs": 16, "frame_stack": 2}}
    run = ludus.train("ppo", {**PPO, **pipeline}, env=Camera, seed=1, quiet=True, runs_dir=tmp_path)
    policy = check(run, number)
    assert policy.observation_space == Camera.observation_space and policy.action_space == Camera.action_space


def check(run: ludus.Run, number: int) -> ludus.Policy:
    policy = run.policy(seed=9)
    expected = run.evaluate(number, seed=9)
    seeds = Streams(9).integers("evaluate", number)
    returns = played(batched(policy), policy.reset, lambda: ludus.make_env(run), seeds)
    assert sorted(expected.returns) == sorted(returns)  # an evaluation lists them as they end
    return policy


def test_samples_like_evaluate(tmp_path: Path) -> None:
    run = ludus.train("CartPole-v1:ppo", PPO, quiet=True, runs_dir=tmp_path)
    policy, expected = run.policy(deterministic=False, seed=4), run.evaluate(1, deterministic=False, seed=4)
    seeds = Streams(4).integers("evaluate", 1)
    assert expected.returns == tuple(played(policy, policy.reset, lambda: ludus.make_env(run), seeds))


def test_needs_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ludus.train("CartPole-v1:ppo", PPO, quiet=True, runs_dir=tmp_path)
    monkeypatch.setattr(gym, "make", lambda *_, **__: pytest.fail("made an environment"))
    assert ludus.load_policy(run.folder)(np.zeros(4)) in (0, 1)


def test_memory_carries_over_and_reset_forgets(tmp_path: Path) -> None:
    run = ludus.train("CartPole-v1:ppo_gru_masked", PPO, quiet=True, runs_dir=tmp_path)
    policy, obs = run.policy(), np.array([0.02, 0.0, 0.01, 0.0], np.float32)
    policy(obs)
    first = policy.info["probabilities"].copy()
    policy(obs)
    assert (policy.info["probabilities"] != first).any()
    policy.reset()
    policy(obs)
    assert (policy.info["probabilities"] == first).all()


def test_one_of_a_batch_begins_anew(tmp_path: Path) -> None:
    run = ludus.train("CartPole-v1:ppo_gru_masked", PPO, quiet=True, runs_dir=tmp_path)
    policy, obs = run.policy(), np.full((2, 4), 0.02, np.float32)
    policy(obs)
    first = policy.info["probabilities"].copy()
    policy.reset([False, True])
    policy(obs)
    assert (policy.info["probabilities"][1] == first[1]).all() and (policy.info["probabilities"][0] != first[0]).any()


def test_frames_of_an_older_episode_are_forgotten(tmp_path: Path) -> None:
    run = ludus.train("CartPole-v1:ppo", CASES["stacked vectors"][1], quiet=True, runs_dir=tmp_path)
    policy, fresh, rng = run.policy(), run.policy(), np.random.default_rng(0)
    for _ in range(3):
        policy(rng.normal(size=(2, 4)).astype(np.float32))
    policy.reset([False, True])
    obs = rng.normal(size=(2, 4)).astype(np.float32)
    policy(obs)
    fresh(obs)
    ours, theirs = policy.info["probabilities"], fresh.info["probabilities"]
    np.testing.assert_array_equal(ours[1], theirs[1])
    assert (ours[0] != theirs[0]).any()


def test_misuse_is_one_sentence(tmp_path: Path) -> None:
    run = ludus.train("CartPole-v1:ppo", PPO, quiet=True, runs_dir=tmp_path)
    policy = run.policy()
    shapes, numbers = [np.zeros(3), np.zeros((2, 2, 4)), np.zeros((0, 4)), []], [np.full(4, np.nan), np.full(4, 1e300)]
    for wrong in (*shapes, *numbers, {"obs": np.zeros(4)}, "left", None):
        with pytest.raises(ConfigError, match="make_env") as caught:
            policy(wrong)
        assert "\n" not in str(caught.value)
    policy(np.zeros((2, 4)))
    with pytest.raises(ConfigError, match=r"3 observations after 2.*policy\.reset"):
        policy(np.zeros((3, 4)))
    with pytest.raises(ConfigError, match=r"\(3,\) is the shape of done, there are 2"):
        policy.reset([True, False, True])
    with pytest.raises(ConfigError, match="no such run"):
        ludus.load_policy("Missing", runs_dir=tmp_path)
    with pytest.raises(ConfigError, match="checkpoint"):
        run.policy(checkpoint="step=77")


def test_numbers_that_the_space_cannot_hold_are_refused(tmp_path: Path) -> None:
    """numpy would cut a picture with numbers from 0 to 1 down to a black one."""
    policy = ludus.train("LookAndFeel-v0:ppo", PPO, quiet=True, runs_dir=tmp_path).policy()
    good = {key: np.zeros(space.shape, space.dtype) for key, space in policy.observation_space.spaces.items()}
    picture = next(key for key, value in good.items() if value.dtype == np.uint8)
    policy({**good, picture: good[picture].astype(int) + 255})
    for wrong in (good[picture] + 0.5, good[picture].astype(int) + 256, (good[picture].astype(int) - 1).tolist()):
        with pytest.raises(ConfigError, match=r"no uint8|out of bounds"):
            policy({**good, picture: wrong})
    for wrong in (good[picture], [0], None, {}):
        with pytest.raises(ConfigError, match="make_env"):
            policy(wrong)


def test_states_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    policy = ludus.train("FrozenLake-v1:ppo", PPO, quiet=True, runs_dir=tmp_path).policy()
    assert policy(15) in range(4)
    for wrong in (-1, 16, 3.5, True + 0.1):
        policy.reset()
        with pytest.raises(ConfigError, match=r"none of its choices|no int64"):
            policy(wrong)


def test_a_machine_with_other_cores_loads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `num_envs: auto` is another number there, which the batch size need not divide."""
    changes = {**PPO, "environment.num_envs": "auto", "algorithm.batch_size": 16 * 32}
    monkeypatch.setattr("ludus.envs.make.cores", lambda: 2)
    run = ludus.train("CartPole-v1:ppo", changes, quiet=True, runs_dir=tmp_path)
    monkeypatch.setattr("ludus.envs.make.cores", lambda: 1)
    assert ludus.load_policy(run.folder)(np.zeros(4)) in (0, 1)
    with pytest.raises(ConfigError, match="512 does not divide the rollout of 8 x 32"):
        ludus.train("CartPole-v1:ppo", changes, quiet=True, runs_dir=tmp_path)


def test_loading_leaves_the_random_numbers_of_the_program_alone(tmp_path: Path) -> None:
    run = ludus.train("CartPole-v1:ppo", PPO, quiet=True, runs_dir=tmp_path)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    policy = run.policy(deterministic=False)
    policy(np.zeros(4))
    run.evaluate(1)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_damaged_file_of_spaces_is_named(tmp_path: Path) -> None:
    run = ludus.train("CartPole-v1:ppo", PPO, quiet=True, runs_dir=tmp_path)
    path = run.folder / "spaces.json"
    path.write_text(json.dumps({"carried": 0, "observation": {"type": "box"}}))
    with pytest.raises(DataError, match=r"spaces\.json.*remove it"):
        run.policy()
    path.unlink()
    assert run.policy()(np.zeros(4)) in (0, 1)
