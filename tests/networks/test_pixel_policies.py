"""PPO from pixels: acting, targets and update see one policy, in either precision, and the choice is kept."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.algorithms import Context
from ludus.algorithms._on_policy import advantages
from ludus.data.rollout import minibatches
from ludus.errors import DataError
from ludus.experiment import build
from ludus.networks import precision as module
from ludus.networks.encoders import Encoder
from ludus.networks.precision import Precision
from ludus.registry import ALGORITHMS
from ludus.session.player import build_player
from ludus.types import Spaces
from support import close, config, moment

NUMBERS = {"lr": 1e-3, "clip": 0.2, "clip_value": 0.0, "value_coef": 0.5, "entropy_coef": 0.0}


class Flash(gym.Env):
    """One of four quarters of the picture is lit; naming it pays 1. Episodes end, or are cut, at random lengths."""

    metadata = {"render_modes": []}

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (1, 36, 36), np.uint8)
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 9))
        return self._show(), {}

    def step(self, action):
        reward = float(action == self.lit)
        self.left -= 1
        over, cut = self.left == 0, bool(self.np_random.random() < 0.1)
        return self._show(), reward, over, cut, {}

    def _show(self):
        self.lit = int(self.np_random.integers(4))
        picture = self.np_random.integers(0, 60, (1, 36, 36), np.uint8)
        row, column = divmod(self.lit, 2)
        picture[0, 18 * row : 18 * row + 18, 18 * column : 18 * column + 18] += 150
        return picture


@pytest.fixture(autouse=True)
def _registered():
    gym.register("TestFlash-v0", Flash)
    yield
    del gym.registry["TestFlash-v0"]


def pixels(precision: str = "float32", memory: str = "none", steps: int = 4_096, **algorithm):
    return config(
        {"name": "ppo", "rollout_steps": 16, "batch_size": 0.5, "lr": 1e-3, **algorithm},
        env="TestFlash-v0",
        network={"memory": memory, "encoder": {"type": "nature", "features": 32}},
        training={"total_timesteps": steps},
        runtime={"precision": precision, "threads": 1},
    )


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-3)])
def test_ratio_is_one_on_the_first_minibatch(precision: str, tolerance: float, memory: str) -> None:
    """What acting computed is what learning starts from: bytes, layout, scale and precision are the same."""
    cfg = pixels(precision, memory)
    run = build(cfg)
    ppo, now = run.algorithm, moment(cfg.algorithm.config)
    for _ in range(3):
        ppo.collect(now)
        ppo.update_controller(now)
    ppo.collect(now)
    columns, state = ppo.experience
    assert columns["obs"].dtype == torch.uint8
    assert columns["first"][1:].any()
    for batch in minibatches(columns, state, 2, ppo.rng, sequences=ppo.policy.recurrent):
        with torch.no_grad():
            params, value, _ = ppo.policy(batch["obs"], batch["state"], batch["first"])
        ratio = (ppo.policy.distribution.log_prob(params, batch["action"]) - batch["log_prob"]).exp()
        torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=tolerance, rtol=0)
        torch.testing.assert_close(value, batch["value"], atol=10 * tolerance, rtol=10 * tolerance)
    close(run)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_kept_outputs_are_those_of_one_pass_over_the_rollout(memory: str) -> None:
    cfg = pixels(memory=memory)
    run = build(cfg)
    ppo, now = run.algorithm, moment(cfg.algorithm.config)
    ppo.collect(now)
    ppo.update_controller(now)
    rollout = ppo.collector.collect(ppo.behaviour, 16)
    kept, _ = advantages(ppo.policy, rollout, 0.99, 0.95)
    assert rollout.finals is not None
    assert rollout.extras["params"].shape == (16, 4, 4) and rollout.extras["value"].shape == (16, 4)
    whole, _ = advantages(ppo.policy, replace(rollout, extras={}), 0.99, 0.95)
    for name, column in kept.items():
        torch.testing.assert_close(column, whole[name], atol=1e-5, rtol=1e-5, msg=name)
    close(run)


def test_images_are_stored_once_in_the_layout_of_the_convolutions() -> None:
    cfg = pixels()
    run = build(cfg)
    ppo = run.algorithm
    ppo.collect(moment(cfg.algorithm.config))
    for batch in minibatches(ppo.experience.columns, (), 2, ppo.rng, sequences=False):
        assert batch["obs"].movedim(2, -1).is_contiguous()
    close(run)


def test_small_policies_keep_no_outputs() -> None:
    cfg = config({"name": "ppo", "rollout_steps": 16})
    run = build(cfg)
    rollout = run.algorithm.collector.collect(run.algorithm.behaviour, 16)
    assert not rollout.extras
    close(run)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_learns_from_pixels(precision: str) -> None:
    run = build(pixels(precision, gamma=0.0, epochs=4))
    run.run()
    mean = run.algorithm.collector.statistics()
    assert mean["roll/ep_rew/mean"] / mean["roll/ep_len/mean"] > 0.8, "chance is 0.25"
    close(run)


def test_the_precision_of_a_run_is_saved_and_kept() -> None:
    run = build(pixels("bfloat16"))
    assert run.precision.state_dict() == {"name": "bfloat16"}
    run.algorithm.collect(moment(run.config.algorithm.config))
    state = run.state_dict()
    other = build(pixels("float32"))
    other.load_state_dict(state)
    assert other.algorithm.policy.trunk.encoder.precision.dtype == torch.bfloat16
    spaces = Spaces(gym.spaces.Box(0, 255, (1, 36, 36), np.uint8), gym.spaces.Discrete(4))
    assert build_player(pixels(), spaces, state).algorithm.policy.trunk.encoder.precision.dtype == torch.bfloat16
    close(run)
    close(other)


LEARNING = ["ppo", "ppo_replay", "reinforce", "dqn", "sac"]


@pytest.mark.parametrize("name", LEARNING)
def test_every_network_computes_in_the_precision_of_the_run(name: str) -> None:
    """Online and target networks, also after a saved choice has been loaded."""
    spaces = Spaces(gym.spaces.Box(0, 255, (1, 36, 36), np.uint8), gym.spaces.Discrete(4))
    picture = torch.full((1, 1, 1, 36, 36), 77, dtype=torch.uint8)
    features = []
    for chosen, saved in (("float32", None), ("bfloat16", None), ("float32", "bfloat16")):
        precision = Precision(chosen)
        torch.manual_seed(0)
        cfg = config(name, network={"encoder": {"type": "nature", "features": 32}})
        rng = np.random.default_rng(0)
        context = Context(
            spaces=spaces,
            network=cfg.network,
            num_envs=4,
            device=torch.device("cpu"),
            rng=rng,
            evaluation_rng=rng,
            precision=precision,
        )
        algorithm = ALGORITHMS[name](cfg.algorithm.config, context)
        if saved:
            precision.load_state_dict({"name": saved})
        encoders = [part for part in algorithm.learner.model.modules() if isinstance(part, Encoder)]
        assert len(encoders) == 1 + (name in ("dqn", "sac"))
        features.append([encoder(picture) for encoder in encoders])
    plain, half, loaded = features
    for a, b, c in zip(plain, half, loaded, strict=True):
        assert not torch.equal(a, b) and torch.equal(b, c)
        torch.testing.assert_close(a, b, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(("has_it", "name"), [(True, "bfloat16"), (False, "float32")])
def test_auto_follows_the_processor(has_it: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_bfloat16", lambda: has_it)
    assert Precision("auto").name == name
    assert Precision("float32").name == "float32"
    assert Precision().dtype == torch.float32


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(DataError, match="unknown precision 'float8'"):
        Precision().load_state_dict({"name": "float8"})


def test_large_images_never_compile(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured: the convolutions are the same kernels either way."""
    monkeypatch.setenv("LUDUS_CACHE", str(tmp_path))
    cfg = pixels().model_copy(update={"runtime": pixels().runtime.model_copy(update={"compile": "always"})})
    run = build(cfg)
    assert run.algorithm.learner.compiler is None
    close(run)
