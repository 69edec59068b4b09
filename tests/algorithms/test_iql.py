"""Implicit Q-learning: its three losses by hand, and better actions than those of its data set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from demonstrations import CART, PENDULUM, demonstrations
from ludus.algorithms.iql import IQLConfig
from ludus.config.schema import ExperimentConfig
from ludus.data.datasets.statistics import Episode
from ludus.data.datasets.write import write_dataset
from ludus.errors import ConfigError
from ludus.math.values import expectile_loss
from ludus.types import Spaces
from support import build, close, moment, run

pytest.importorskip("minari")

PARTS = ("actor.", "value.", "trunk.", "critic.")
SMALL = {"actor": {"hidden_dims": [32]}, "critic": {"hidden_dims": [32]}}


def config(folder: Path, updates: int = 60, **sections: Any) -> ExperimentConfig:
    algorithm = {"name": "iql", "batch_size": 32, "lr": 1e-2, **sections.pop("algorithm", {})}
    training = {"total_updates": updates, "epoch_updates": updates // 2}
    data = {"algorithm": algorithm, "buffers": {"demos": {"path": str(folder)}}, "training": training, "network": SMALL}
    return ExperimentConfig.model_validate({**data, "runtime": {"compile": "never"}, **sections})


def test_an_expectile_weighs_the_better_ones_more() -> None:
    """0.5 is the mean; 0.9 of equally many 0 and 1 is 0.9."""
    error = torch.tensor([-2.0, 0.0, 3.0])
    assert torch.equal(expectile_loss(error, 0.5), 0.5 * error.square())
    value = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.SGD([value], 0.2)
    for _ in range(200):
        optimizer.zero_grad()
        expectile_loss(torch.tensor([0.0, 1.0]) - value, 0.9).mean().backward()
        optimizer.step()
    assert float(value.detach()) == pytest.approx(0.9, abs=1e-3)


def test_one_update_by_hand(tmp_path: Path) -> None:
    """Value towards the expectile of the slow critics, actor by the new advantages, critics towards the new value.

    Steps count as the buffer weighs them.
    """
    folder, _ = demonstrations(tmp_path / "demos-v0", PENDULUM)
    built = build(config(folder, algorithm={"beta": 2.0, "max_weight": 1.5, "expectile": 0.8}))
    algorithm, nets = built.algorithm, built.algorithm.learner.networks
    state = built.buffers["demos"].rng.bit_generator.state
    sample = built.buffers["demos"].sample(32, n_step=1, gamma=0.99)
    batch = {
        name: torch.from_numpy(np.array(sample[name][0]))
        for name in ("obs", "next_obs", "action", "reward", "discount")
    }
    built.buffers["demos"].rng.bit_generator.state = state
    assert batch["action"].abs().max() <= 1 and torch.allclose(
        batch["action"][:, 0], (0.75 * batch["obs"][:, 0]).clamp(-1, 1)
    )

    counts, update = torch.linspace(0.1, 1.9, 32), algorithm.update
    algorithm.update = lambda nets, rows, c, **more: update(nets, {**rows, "weight": counts[None]}, c, **more)

    def q(critic: Any) -> torch.Tensor:
        return critic(batch["obs"][None], batch["action"][None])[:, 0, :, 0]

    with torch.no_grad():
        slow = q(nets["target_critic"]).amin(0)
        value = nets["value"](batch["obs"])[:, 0]
        expected = {"loss/value": (counts * expectile_loss(slow - value, 0.8)).mean()}
    q_before, before = q(nets["critic"]).detach(), {name: p.clone() for name, p in nets["actor"].named_parameters()}
    params = nets["actor"](batch["obs"]).detach()
    algorithm.update_controller(replace(moment(built.config.algorithm.config), type="offline"))
    with torch.no_grad():
        value = nets["value"](batch["obs"])[:, 0]
        weight = (2.0 * (slow - value)).exp().clamp(max=1.5)
        mean, log_std = params.chunk(2, -1)
        log_pi = torch.distributions.Normal(mean, log_std.exp()).log_prob(batch["action"]).sum(-1)
        target = batch["reward"] + batch["discount"] * nets["value"](batch["next_obs"])[:, 0]
    expected["loss/actor"] = -(counts * weight * log_pi).mean()
    expected["loss/critic"] = (counts * (q_before - target).square()).mean(1).sum()
    found = algorithm.learner.metrics()
    for name, loss in expected.items():
        assert found[name] == pytest.approx(float(loss), rel=1e-4), name
    assert any(not torch.equal(p, before[name]) for name, p in nets["actor"].named_parameters())
    moved = nets["target_critic"].layers[0].weight - nets["critic"].layers[0].weight
    assert 0 < moved.abs().max() < 0.011, "the slow critics follow"
    close(built)


def test_the_actor_has_a_rate_of_its_own_and_the_slow_trunk_follows(tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0", PENDULUM)
    network = {**SMALL, "memory": {"type": "gru", "hidden_dim": 8}}
    settings = {"actor_lr": 1e-9, "tau": 0.5, "batch_size": 4, "sequence_length": 6, "burn_in": 2}
    built = build(config(folder, algorithm=settings, network=network))
    model = built.algorithm.learner.model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    built.algorithm.update_controller(replace(moment(built.config.algorithm.config), type="offline"))
    after = model.state_dict()
    far = {part: max((after[n] - before[n]).abs().max() for n in before if n.startswith(part)) for part in PARTS}
    assert far["actor."] < 1e-7 and min(far["value."], far["trunk."], far["critic."]) > 1e-4
    slow = [name for name in before if name.startswith("target_trunk.")]
    for name in slow:
        torch.testing.assert_close(after[name], (before[name] + after[name.removeprefix("target_")]) / 2)
    assert slow
    close(built)


def bandit(folder: Path, discrete: bool) -> Path:
    """One state, actions at random; the larger the action, the more it pays."""
    rng, see = np.random.default_rng(0), gym.spaces.Box(-1.0, 1.0, (1,))
    actions = rng.integers(2, size=400) if discrete else rng.uniform(-1, 1, (400, 1)).astype(np.float32)
    reward = actions.reshape(-1).astype(np.float32)
    space = gym.spaces.Discrete(2) if discrete else gym.spaces.Box(-1.0, 1.0, (1,))
    made = [Episode(np.zeros((2, 1), np.float32), actions[i : i + 1], reward[i : i + 1], True) for i in range(400)]
    write_dataset(folder, Spaces(see, space), made, policy="test")
    return folder


@pytest.mark.parametrize("discrete", [True, False])
def test_it_learns_better_actions_than_it_was_shown(tmp_path: Path, discrete: bool) -> None:
    done = run(config(bandit(tmp_path / "demos-v0", discrete), 120, algorithm={"beta": 5.0, "tau": 0.1}))
    action = done.algorithm.act(np.zeros((1, 1), np.float32), (), np.ones(1, bool), deterministic=True).action
    assert action[0] == 1 if discrete else float(action[0, 0]) > 0.4


@pytest.mark.parametrize("spaces", [CART, PENDULUM], ids=["discrete", "box"])
def test_a_memory_begins_empty(tmp_path: Path, spaces: Spaces) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0", spaces)
    network = {**SMALL, "memory": {"type": "gru", "hidden_dim": 8}}
    settings = {"batch_size": 4, "sequence_length": 6, "burn_in": 2, "n_step": 2}
    done = run(config(folder, 6, algorithm=settings, network=network))
    assert done.progress.updates == 6
    assert np.isfinite(done.algorithm.learner.theta.numpy()).all()


def test_unbounded_actions_are_refused(tmp_path: Path) -> None:
    spaces = Spaces(PENDULUM.observation, gym.spaces.Box(-np.inf, np.inf, (1,), np.float32))
    folder, _ = demonstrations(tmp_path / "demos-v0", spaces)
    with pytest.raises(ConfigError, match="iql needs Discrete or a bounded Box as actions"):
        build(config(folder))


def test_a_weight_beyond_single_precision_is_refused() -> None:
    with pytest.raises(ValidationError, match="max_weight"):
        IQLConfig(max_weight=1e39)


def test_it_goes_on_online_in_a_buffer_of_its_own(tmp_path: Path) -> None:
    """The data set takes no steps: a phase that collects names another buffer."""
    folder, _ = demonstrations(tmp_path / "demos-v0", PENDULUM)
    phases = [
        {"name": "offline", "type": "offline", "duration_updates": 4, "hooks": ["update_controller"]},
        {"name": "online", "buffer": "own", "hooks": ["collect", {"update_controller": {"per_env_step": 0.1}}]},
    ]
    changes = {
        "environment": {"id": "Pendulum-v1", "num_envs": 2},
        "buffers": {"demos": {"path": str(folder)}, "own": {"size": 500}},
        "training": {"total_timesteps": 120, "phases": phases},
    }
    done = run(config(folder, algorithm={"batch_size": 8, "learning_starts": 16}, **changes))
    assert done.progress.env_steps == 120 and done.progress.updates > 4 and len(done.buffers["own"]) == 120
