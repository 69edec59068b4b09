"""Every algorithm with every encoder and memory core on an accelerator, as far as that can be tried without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.algorithms import Context
from ludus.data.collector import Collector
from ludus.data.rollout import minibatches
from ludus.envs.spaces import EnvInfo
from ludus.envs.vector import VectorEnv
from ludus.registry import ALGORITHMS, BUFFERS, ENCODERS, MEMORY
from ludus.types import Spaces, StepResult
from pretended import WrongDevice, pretending
from support import config, moment

CUDA = torch.device("cuda")
B = 3
SIDES = {"nature": 36, "impala": 8, "small": 5, "minatar": 5}
REPLAY = {"learning_starts": 8, "batch_size": 4, "train_freq": 6}
SEQUENCES = {"sequence_length": 3, "burn_in": 1}
WORLD = {"size": "tiny", "batch_size": 2, "sequence_length": 4, "learning_starts": 8, "train_freq": 6, "horizon": 2}
SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"rollout_steps": 4, "epochs": 1, "batch_size": 0.5, "entropy_coef": 0.1, "clip_value": 0.2, "target_kl": 9},
    "reinforce": {"rollout_steps": 8},
    "a2c": {"rollout_steps": 4, "normalize_advantage": True},
    "ppo_replay": {"rollout_steps": 4, "epochs": 1, "batch_size": 0.5},
    "dqn": {**REPLAY, **SEQUENCES},
    "sac": {**REPLAY, **SEQUENCES},
    "td3": {**REPLAY, **SEQUENCES},
    "q_learning": {"rollout_steps": 8},
    "random": {},
    "behaviour_cloning": {"batch_size": 4, **SEQUENCES},
    "diffusion_policy": {"batch_size": 4, "denoiser": {"widths": (8, 16)}, "sampling_steps": 2},
    "iql": {**REPLAY, **SEQUENCES},
    "dreamer": WORLD,
    "planet": {**WORLD, "candidates": 6, "elites": 2, "rounds": 2},
    "tdmpc": {**REPLAY, "size": "tiny", "candidates": 6, "policy_candidates": 2, "elites": 2, "rounds": 2},
    "world_models": {"vision": {"latent": 3, "depth": 2}, "memory": {"units": 4}, "sequence_length": 3},
}
ENCODERS_HERE = sorted(set(ENCODERS.names()) - {"auto", "cnn"})


class Noise(VectorEnv):
    """Random observations; episodes end at random, cut or not."""

    backend = "noise"

    def __init__(self, observation: gym.Space, action: gym.Space) -> None:
        super().__init__(EnvInfo("Noise-v0", observation, action), B)
        observation.seed(0)
        self.rng = np.random.default_rng(0)

    def _any(self) -> np.ndarray:
        return np.stack([np.asarray(self.observation_space.sample()) for _ in range(B)])

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        return self._any()

    def step(self, action: np.ndarray) -> StepResult:
        assert isinstance(action, np.ndarray)
        self.raw_reward = self.rng.normal(size=B).astype(np.float32)
        terminated, truncated = self.rng.random((2, B)) < 0.15
        return StepResult(self._any(), self.raw_reward, terminated, truncated, self._any(), self.raw_reward)

    def render(self, index: int = 0, *, final: bool = False) -> np.ndarray:
        raise AssertionError


def spaces_for(algorithm: str, encoder: str, discrete: bool) -> Spaces:
    action = gym.spaces.Discrete(3) if discrete else gym.spaces.Box(-1, 2, (2,), np.float32)
    if algorithm == "q_learning":
        return Spaces(gym.spaces.Discrete(4), action)
    if encoder == "mlp":
        return Spaces(gym.spaces.Box(-1, 1, (4,), np.float32), action)
    return Spaces(gym.spaces.Box(0, 255, (2, SIDES[encoder], SIDES[encoder]), np.uint8), action)


def learned(algorithm: str, encoder: str, memory: str, device: torch.device, *, discrete: bool = True,
            buffer: str = "uniform", **settings: Any) -> Any:  # fmt: skip
    """The algorithm after it has acted, learned and acted again."""
    heads = {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}}
    core = {"type": memory, **({} if memory == "none" else {"hidden_dim": 8})}
    network = {"encoder": encoder if encoder != "mlp" else {"type": "mlp", "hidden_dims": [8]}, "memory": core, **heads}
    cfg = config({"name": algorithm, **SETTINGS[algorithm], **settings}, network=network)
    spaces, now = spaces_for(algorithm, encoder, discrete), moment(cfg.algorithm.config)
    made = {
        name: BUFFERS[buffer](BUFFERS[buffer].Config(size=300), spaces, B, name=name, rng=np.random.default_rng(1))
        for name in ALGORITHMS[algorithm].buffers
    }
    collector = Collector(Noise(spaces.observation, spaces.action), [1, 2, 3])
    torch.manual_seed(0)
    context = Context(
        spaces=spaces,
        network=cfg.network,
        num_envs=B,
        device=device,
        rng=np.random.default_rng(2),
        evaluation_rng=np.random.default_rng(3),
        collector=None if "demos" in made else collector,
        buffers=made,
    )
    one = ALGORITHMS[algorithm](cfg.algorithm.config, context)
    hooks, updates = one.hooks(), 0
    if "demos" in made:
        somebody = ALGORITHMS["random"](ALGORITHMS["random"].Config(), replace(context, collector=collector))
        made["demos"].add(somebody.rollout(now, 24))
    for _ in range(2):
        if "demos" not in made:
            hooks["collect"](now)
        updates += sum(hook(now).updates for name, hook in hooks.items() if name.startswith(("update", "encode")))
    assert updates or algorithm == "random"
    one.metrics()
    obs, first = collector.env.reset([1]), np.ones(B, bool)
    for deterministic in (True, False):
        found = one.act(obs, one.initial_state(B), first, deterministic=deterministic)
        assert isinstance(found.action, np.ndarray)
    for part in one.state().values():
        part.load_state_dict(part.state_dict())
    return one


def check(algorithm: str, encoder: str, memory: str, **settings: Any) -> None:
    with pretending() as places:
        one = learned(algorithm, encoder, memory, CUDA, **settings)
        if hasattr(one, "learner"):
            assert places.of(one.learner.theta) == CUDA
            assert bool(torch.isfinite(one.learner.theta).all())


EVERY = [(encoder, memory) for encoder in ENCODERS_HERE for memory in MEMORY.names()]
TOGETHER = [
    pytest.param(encoder, memory, marks=[] if "mlp" in encoder or memory in ("none", "gru") else pytest.mark.slow)
    for encoder, memory in EVERY
]
"""Encoders and cores meet in two sizes of arrays only: most pairs of images and cores are left to the slow tests."""


@pytest.mark.parametrize(("encoder", "memory"), TOGETHER)
@pytest.mark.parametrize("algorithm", ["ppo", "reinforce", "ppo_replay", "dqn", "sac", "td3"])
def test_every_tensor_is_where_it_should_be(algorithm: str, encoder: str, memory: str) -> None:
    check(algorithm, encoder, memory, discrete=algorithm != "td3")


OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("ppo", {"discrete": False}),
    ("ppo", {"accumulate": 2, "batch_size": 0.25}),
    ("ppo", {"memory_lr": 1e-3}),
    ("reinforce", {"discrete": False, "accumulate": 2}),
    ("ppo_replay", {"discrete": False}),
    ("dqn", {"dueling": True, "double": True, "n_step": 3}),
    ("dqn", {"noisy": True, "buffer": "prioritized"}),
    ("dqn", {"atoms": 11, "dueling": True}),
    ("dqn", {"accumulate": 2, "stored_state": False}),
    ("sac", {"discrete": False, "buffer": "prioritized"}),
    ("sac", {"alpha": 0.1}),
    ("td3", {"discrete": False, "policy_delay": 1}),
    ("q_learning", {}),
    ("random", {}),
    ("dreamer", {}),
    ("dreamer", {"discrete": False, "variant": "v1"}),
    ("dreamer", {"discrete": False, "variant": "v2", "actor_gradient": "both"}),
    ("planet", {"discrete": False}),
    ("planet", {"discrete": False, "representation": {"type": "identity", "dynamics": "stochastic"}}),
    ("tdmpc", {"discrete": False, "critics": 3}),
    ("behaviour_cloning", {}),
    ("behaviour_cloning", {"discrete": False}),
    ("iql", {}),
    ("iql", {"discrete": False}),
    ("diffusion_policy", {"discrete": False}),
    ("diffusion_policy", {"discrete": False, "sampler": "ddpm", "denoiser": {"type": "transformer", "width": 8}}),
    ("tdmpc", {"discrete": False, "variant": "v1", "buffer": "prioritized"}),
]


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize(("algorithm", "settings"), OTHERS, ids=str)
def test_options_too(algorithm: str, settings: dict[str, Any], memory: str) -> None:
    if algorithm not in ("q_learning", "random", "dreamer", "planet", "tdmpc", "diffusion_policy") or memory == "none":
        check(algorithm, "mlp", memory, **settings)


def test_images_of_world_models() -> None:
    check("dreamer", "small", "none")


@pytest.mark.parametrize("train_in", ["environment", "dream"])
@pytest.mark.parametrize("discrete", [True, False])
def test_vision_memory_and_controller(discrete: bool, train_in: str) -> None:
    c = {"population": 4, "rollouts": 2, "dream_steps": 2, "train_in": train_in}
    walk = {} if discrete else {"random_step": 0.2}
    check("world_models", "impala", "none", discrete=discrete, controller=c, **walk)


def test_every_algorithm_is_tried() -> None:
    """One that is new belongs into this file."""
    assert set(SETTINGS) == set(ALGORITHMS.names())
    assert set(ENCODERS_HERE) == {"mlp", *SIDES}


@pytest.mark.parametrize("memory", ["none", "trxl", "mamba"])
def test_the_pretended_device_computes_the_same(memory: str) -> None:
    """What is refused there would be refused by a real one, and nothing else is different."""
    with pretending():
        there = learned("ppo", "small", memory, CUDA).learner.theta.cpu().numpy().copy()
    here = learned("ppo", "small", memory, torch.device("cpu")).learner.theta.numpy()
    np.testing.assert_allclose(there, here, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x + torch.ones(3),
        lambda x: x.index_select(0, torch.arange(2)),
        lambda x: torch.cat([x, torch.ones(3)]),
        lambda x: x.numpy(),
        lambda x: np.asarray(x),
        lambda x: x * np.ones(3, np.float32),
        lambda x: torch.nn.Linear(3, 3)(x),
        lambda x: (x.clone().requires_grad_() * 2).backward(torch.ones(3)),
    ],
)
def test_what_a_gpu_refuses_is_refused(wrong: Any) -> None:
    with pretending(), pytest.raises((WrongDevice, RuntimeError), match=r"device|cuda"):
        wrong(torch.ones(3, device=CUDA))


@pytest.mark.parametrize(
    "right",
    [
        lambda x: x + torch.tensor(2.0),
        lambda x: x[torch.arange(2)],
        lambda x: x.cpu() + torch.ones(3),
        lambda x: x + torch.ones(3).to(x),
        lambda x: x.copy_(torch.ones(3)),
        lambda x: float(x.sum()) + x.tolist()[0],
        lambda x: x + torch.as_tensor(np.ones(3, np.float32), device=x.device),
    ],
)
def test_what_a_gpu_takes_is_taken(right: Any) -> None:
    with pretending():
        right(torch.ones(3, device=CUDA))


def test_a_policy_acts_and_learns_elsewhere() -> None:
    """The shortest of them, single steps and sequences."""
    check("ppo", "mlp", "none")
    check("ppo", "mlp", "gru")


@pytest.mark.parametrize("sequences", [False, True])
def test_minibatches_are_taken_where_the_columns_are(sequences: bool) -> None:
    with pretending() as places:
        columns = {"obs": torch.ones(4, 6, 3, device=CUDA), "advantage": torch.ones(4, 6, device=CUDA)}
        state = (torch.ones(6, 2, device=CUDA),)
        found = list(minibatches(columns, state, 3, np.random.default_rng(0), sequences=sequences))
        assert len(found) == 3
        assert all(places.of(batch["obs"]) == CUDA for batch in found)
