"""A step that was lost with its worker is no transition: nobody learns from it, nobody counts its episode."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.algorithms import Algorithm, Context
from ludus.data.buffers.rows import sample_rows
from ludus.data.collector import Collector
from ludus.errors import EnvironmentFailed
from ludus.orchestration.evaluator import Evaluator
from ludus.registry import ALGORITHMS, BUFFERS
from ludus.seeding import Streams
from ludus.types import ActResult, Spaces
from support import config, moment
from vector_script import BOX, Planned

SPACES = Spaces(BOX, gym.spaces.Discrete(2))
GAMMA, LAMBDA = 0.9, 0.8


def made(settings: dict[str, Any], plan: list[tuple[int, str]], **context: Any) -> tuple[Algorithm, Any]:
    """An algorithm that collects in one planned environment."""
    cfg = config(settings, network={"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}})
    collector = Collector(Planned([plan]), [0])
    torch.manual_seed(0)
    algorithm = ALGORITHMS[settings["name"]](
        cfg.algorithm.config,
        Context(
            spaces=SPACES,
            network=cfg.network,
            num_envs=1,
            device=torch.device("cpu"),
            rng=np.random.default_rng(0),
            evaluation_rng=np.random.default_rng(0),
            collector=collector,
            **context,
        ),
    )
    return algorithm, moment(cfg.algorithm.config)


def gradient(policy: torch.nn.Module, loss: torch.Tensor) -> torch.Tensor:
    grads = torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)
    pairs = zip(policy.parameters(), grads, strict=True)
    return torch.cat([torch.zeros(p.numel()) if g is None else g.flatten() for p, g in pairs])


def learned(algorithm: Any) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in algorithm.policy.parameters()])


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("clip_value", [None, 0.2])
def test_ppo_learns_from_the_true_steps_only(clip_value: float | None, accumulate: int) -> None:
    """The third of six steps was lost: the gradient is that of the other five."""
    settings = {"name": "ppo", "rollout_steps": 6, "epochs": 1, "batch_size": 1 / accumulate, "max_grad_norm": None}
    settings |= {"gamma": GAMMA, "gae_lambda": LAMBDA, "entropy_coef": 0.1, "clip_value": clip_value}
    ppo, now = made({**settings, "accumulate": accumulate}, [(3, "broken"), (9, "terminated")])
    ppo.collect(now)
    action = ppo.experience.columns["action"][:, 0]
    obs = torch.from_numpy(np.concatenate(ppo.collector.env.shown))
    params, value, _ = ppo.policy(obs.unsqueeze(1), (), torch.zeros(7, 1, dtype=torch.bool))
    params, value, v = params[:, 0], value[:, 0], value[:, 0].detach().tolist()
    advantage = {}
    for steps in ((0, 1), (3, 4, 5)):  # each stretch bootstraps from the observation after it
        following = 0.0
        for t in reversed(steps):
            reward = float(obs[t, 2]) / 10 + 1.1
            following = reward + GAMMA * v[t + 1] - v[t] + GAMMA * LAMBDA * following
            advantage[t] = following
    real = torch.tensor(sorted(advantage))
    a = torch.tensor([advantage[int(t)] for t in real])
    log_pi = params.log_softmax(-1)[real]
    taken = log_pi.gather(1, action[real].unsqueeze(1))[:, 0]
    ratio = (taken - taken.detach()).exp()
    entropy = -(log_pi.exp() * log_pi).sum(-1).mean()
    error = 0.5 * (value[real] - (a + value[real].detach())).square().mean()
    loss = -(ratio * (a - a.mean()) / (a.std() + 1e-8)).mean() + 0.5 * error - 0.1 * entropy
    expected = gradient(ppo.policy, loss)
    ppo.update_controller(now)
    torch.testing.assert_close(learned(ppo), expected, atol=1e-6, rtol=1e-4)


def test_reinforce_leaves_the_lost_episode_out() -> None:
    settings = {"name": "reinforce", "rollout_steps": 6, "max_grad_norm": None, "gamma": GAMMA, "entropy_coef": 0.1}
    reinforce, now = made(settings, [(3, "broken"), (3, "terminated")])
    reinforce.collect(now)
    action = reinforce.experience["action"][3:, 0]
    obs = torch.from_numpy(np.concatenate(reinforce.collector.env.shown[3:6]))
    params = reinforce.policy(obs.unsqueeze(1), (), torch.zeros(3, 1, dtype=torch.bool))[0][:, 0]
    log_pi = params.log_softmax(-1)
    returns = torch.tensor([1.1 + GAMMA * (1.2 + GAMMA * 1.3), 1.2 + GAMMA * 1.3, 1.3])
    entropy = -(log_pi.exp() * log_pi).sum(-1).mean()
    loss = -(returns * log_pi.gather(1, action.unsqueeze(1))[:, 0]).mean() - 0.1 * entropy
    expected = gradient(reinforce.policy, loss)
    reinforce.update_controller(now)
    torch.testing.assert_close(learned(reinforce), expected, atol=1e-6, rtol=1e-4)


def replay(kind: str, **context: Any) -> Any:
    buffer = BUFFERS[kind]
    return buffer(buffer.Config(size=64), SPACES, 1, name="replay", rng=np.random.default_rng(0), **context)


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_replay_holds_no_lost_step(kind: str) -> None:
    """Step 2 of every first episode was lost: the step before it goes on in its observation, and is not terminal."""
    buffer = replay(kind)
    settings = {"name": "dqn", "train_freq": 20, "learning_starts": 8, "batch_size": 8}
    dqn, now = made(settings, [(3, "broken"), (4, "terminated")], buffers={"replay": buffer})
    dqn.collect(now)
    drawn = buffer.sample(400, n_step=2, gamma=GAMMA)
    obs, after, ended = drawn["obs"][0], drawn["next_obs"][0], drawn["terminated"][0]
    lost = (obs[:, 1] % 2 == 0) & (obs[:, 2] == 2)
    assert not lost.any()
    before = (obs[:, 1] % 2 == 0) & (obs[:, 2] == 1)
    assert before.any()
    np.testing.assert_array_equal(after[before][:, 1:], obs[before][:, 1:] + [0, 1])
    assert not ended[before].any()
    np.testing.assert_allclose(drawn["reward"][0][before], 1.2, rtol=1e-6)
    rows = buffer.sample_sequences(50, 6)
    real = rows["mask"].astype(bool)
    steps = rows["obs"][:-1][real]
    assert not ((steps[:, 1] % 2 == 0) & (steps[:, 2] == 2)).any()
    assert rows["truncated"][real][(steps[:, 1] % 2 == 0) & (steps[:, 2] == 1)].all()


@pytest.mark.parametrize("lost", [1, 3])
def test_a_world_model_reads_no_lost_step(lost: int) -> None:
    """Rows lead from one observation to the next one or to a new episode; the row before a new one is the last."""
    buffer = replay("uniform")
    settings = {"name": "dqn", "train_freq": 40, "learning_starts": 8, "batch_size": 8}
    dqn, now = made(settings, [(lost, "broken"), (4, "terminated")], buffers={"replay": buffer})
    dqn.collect(now)
    rows = sample_rows(buffer, 200, 9)
    obs, first = rows["obs"], rows["first"]
    follows = (obs[1:, :, 1:] == obs[:-1, :, 1:] + [0, 1]).all(-1)
    begins = (obs[1:, :, 1] == obs[:-1, :, 1] + 1) & (obs[1:, :, 2] == 0)
    assert (follows ^ begins).all()
    np.testing.assert_array_equal(first[1:], begins)
    np.testing.assert_array_equal(rows["last"][:-1], first[1:])
    np.testing.assert_array_equal(rows["terminal"][1:], obs[1:, :, 2] == 4)
    assert (obs[first][:, 1] % 2 == 0).any() and not rows["reward"][1:][begins].any()


def test_ppo_replay_weighs_the_lost_step_nothing() -> None:
    settings = {"name": "ppo_replay", "rollout_steps": 6, "epochs": 1, "batch_size": 1.0, "replay_ratio": 0}
    settings |= {"gamma": GAMMA, "gae_lambda": LAMBDA}
    found, now = made(settings, [(3, "broken"), (9, "terminated")], buffers={"replay": replay("uniform")})
    found.collect(now)
    assert found.experience.columns["used"][:, 0].tolist() == [1, 1, 0, 1, 1, 1]
    assert found.experience.columns["weight"][2, 0] == 0
    report = found.update_controller(now)
    assert np.isfinite(list(report.metrics.values())).all()


class Idle(Algorithm):
    """Does nothing at all."""

    Config = None

    def __init__(self) -> None:
        pass

    def hooks(self) -> Any:
        return {}

    def state(self) -> Any:
        return {}

    def act(self, obs: Any, state: Any, first: Any, *, deterministic: bool) -> ActResult:
        return ActResult(np.zeros(len(obs), np.int64), state, {})


def test_evaluation_plays_a_lost_episode_again() -> None:
    env = Planned([[(3, "broken"), (4, "terminated")], [(2, "truncated")]])
    cfg = config("ppo", training={"evaluation": {"episodes": 6, "num_envs": 2}}).training.evaluation
    evaluator = Evaluator(cfg, Idle(), lambda _: env, Streams(0), rng=np.random.default_rng(0))
    result = evaluator.evaluate(0)
    assert sorted(result.returns) == [3, 3, 3, 10, 10, 10]
    assert sorted(result.lengths) == [2, 2, 2, 4, 4, 4]


def test_an_evaluation_whose_episodes_are_all_lost_ends() -> None:
    """One of two environments never comes to an end: the run says so instead of playing for ever."""
    env = Planned([[(3, "broken")], [(2, "truncated")]])
    plan = {"episodes": 6, "num_envs": 2, "timeout_seconds": 5}
    cfg = config("ppo", training={"evaluation": plan}).training.evaluation
    evaluator = Evaluator(cfg, Idle(), lambda _: env, Streams(0), rng=np.random.default_rng(0))
    with pytest.raises(EnvironmentFailed, match="11 times in a row"):
        evaluator.evaluate(0)
