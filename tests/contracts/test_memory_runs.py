"""Memory cores in whole runs: no graph in the state, flat memory, exact checkpoints, resets in evaluation."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.archive import checkpoint
from ludus.config.schema import Network
from ludus.experiment import build
from ludus.networks.policy import PolicyNetwork
from ludus.registry import MEMORY
from ludus.types import Spaces, Tree, tree_map
from ludus.watch import ram as process
from support import close, config, moment

CORES = [name for name in MEMORY.names() if MEMORY[name].recurrent]


def small(memory: str, env: str = "CartPole-v1", steps: int = 2_048, rates: dict[str, float] | None = None, **sections):
    algorithm = {"name": "ppo", "rollout_steps": 64, "batch_size": 0.5, "epochs": 2, **(rates or {})}
    network = {"memory": {"type": memory, "hidden_dim": 16}}
    return config(algorithm, env=env, network=network, training={"total_timesteps": steps}, **sections)


def leaves(tree: Tree) -> list:
    found: list = []
    tree_map(found.append, tree)
    return found


@pytest.mark.parametrize("memory", CORES)
def test_states_are_detached_and_memory_stays_flat(memory: str) -> None:
    cfg = small(memory, steps=1_000_000)
    run = build(cfg)
    now = moment(cfg.algorithm.config, total_steps=1_000_000)
    for update in range(50):
        run.algorithm.collect(now)
        run.algorithm.update_controller(now)
        if update == 10:
            before = process.used()
    for leaf in leaves(run.algorithm.collector.state):
        assert isinstance(leaf, np.ndarray) or not leaf.requires_grad
    assert process.used() - before < 8 * process.MB
    close(run)


@pytest.mark.parametrize(("memory", "rates"), [*((core, {}) for core in CORES), ("gru", {"memory_lr": 1e-3})])
def test_a_checkpoint_goes_on_to_the_bit(memory: str, rates: dict[str, float], tmp_path) -> None:
    """Weights after 2N steps == N steps, through a checkpoint on disk, N steps more; episodes are open at the cut."""

    def trained(run, rollouts: int) -> None:
        now = moment(run.config.algorithm.config)
        for _ in range(rollouts):
            run.algorithm.collect(now)
            run.algorithm.update_controller(now)

    whole, half, rest = (build(small(memory, rates=rates), will_checkpoint=True) for _ in range(3))
    trained(whole, 6)
    trained(half, 3)
    assert half.algorithm.collector.episodes.open_length.any()
    path = checkpoint.save(tmp_path, half.state_dict(), name="step=1")
    rest.load_state_dict(checkpoint.load(path))
    trained(rest, 3)
    assert torch.equal(rest.algorithm.learner.theta, whole.algorithm.learner.theta)
    for run in (whole, half, rest):
        close(run)


@pytest.mark.parametrize("name", ["ppo", "ppo_replay", "reinforce"])
@pytest.mark.parametrize("slow", ["memory", "others"])
def test_the_memory_has_a_learning_rate_of_its_own(name: str, slow: str) -> None:
    """Whichever rate is tiny, the parameters it is for stay where they were; the others learn."""
    rates = {"lr": 1e-2, "memory_lr": "lin_1e-9"} if slow == "memory" else {"lr": 1e-9, "memory_lr": "lin_1e-2"}
    cfg = config(
        {"name": name, "rollout_steps": 64, **rates}, network={"memory": "gru", "encoder": {"hidden_dims": [8]}}
    )
    run = build(cfg)
    before = {key: p.detach().clone() for key, p in run.algorithm.policy.named_parameters()}
    now = moment(cfg.algorithm.config, env_steps=5_000)
    for _ in range(3):
        run.algorithm.collect(now)
        run.algorithm.update_controller(now)
    for key, p in run.algorithm.policy.named_parameters():
        moved = float((p.detach() - before[key]).abs().max())
        still = key.startswith("trunk.memory") == (slow == "memory")
        assert moved < 1e-6 if still else moved > 1e-3, (key, moved)
    close(run)


def test_the_memory_rate_is_annealed_by_its_own_schedule() -> None:
    """At the end of its schedule the memory stands still although the rest goes on."""
    schedule = {"start": 1e-2, "end": 1e-9, "to": 0.5}
    cfg = config({"name": "ppo", "rollout_steps": 64, "memory_lr": schedule}, network={"memory": "mamba2"})
    moved = []
    for done in (0, 5_000):
        run = build(cfg)
        before = [p.detach().clone() for p in run.algorithm.policy.trunk.memory.parameters()]
        now = moment(cfg.algorithm.config, env_steps=done)
        run.algorithm.collect(now)
        run.algorithm.update_controller(now)
        after = run.algorithm.policy.trunk.memory.parameters()
        moved.append(max(float((a - b).detach().abs().max()) for a, b in zip(after, before, strict=True)))
        close(run)
    assert moved[0] > 1e-3 and moved[1] < 1e-6, moved


@pytest.mark.parametrize("memory", CORES)
def test_acting_forgets_at_an_episode_start(memory: str) -> None:
    """What evaluation, play and videos call: after `first` a row acts as a fresh one, the others go on."""
    run = build(small(memory))
    algorithm, rng = run.algorithm, np.random.default_rng(0)
    state, first = algorithm.initial_state(3), np.ones(3, bool)
    for _ in range(7):
        obs = rng.standard_normal((3, 4)).astype(np.float32)
        _, state, _ = algorithm.act(obs, state, first, deterministic=True)
        first = np.zeros(3, bool)
    first[1] = True
    obs = rng.standard_normal((3, 4)).astype(np.float32)
    used = algorithm.act(obs, state, first, deterministic=True).info["probabilities"]
    fresh = algorithm.act(obs, algorithm.initial_state(3), np.ones(3, bool), deterministic=True).info["probabilities"]
    np.testing.assert_array_equal(used[1], fresh[1])
    assert (used[[0, 2]] != fresh[[0, 2]]).any(1).all()
    close(run)


@pytest.mark.parametrize(
    "action", [gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,), np.float32)], ids=["discrete", "box"]
)
@pytest.mark.parametrize("memory", CORES)
def test_images_and_either_kind_of_action(memory: str, action: gym.Space) -> None:
    pixels = gym.spaces.Box(0, 255, (3, 40, 40), np.uint8)
    policy = PolicyNetwork(Network(memory=memory), Spaces(pixels, action))
    obs = torch.randint(0, 256, (4, 2, 3, 40, 40), dtype=torch.uint8)
    first = torch.zeros(4, 2, dtype=torch.bool)
    params, value, _ = policy(obs, policy.trunk.initial_state(2), first)
    assert params.shape[:2] == value.shape == (4, 2)
    assert bool(params.isfinite().all())
