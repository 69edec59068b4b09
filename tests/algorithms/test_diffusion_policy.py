"""Diffusion policy: what it learns from, what acts, and whose noise it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from demonstrations import CART, PENDULUM, demonstrations
from ludus.config.schema import ExperimentConfig
from ludus.data.buffers import all_steps as all_steps_module
from ludus.data.datasets.statistics import Episode
from ludus.data.datasets.write import write_dataset
from ludus.errors import ConfigError
from ludus.learning import package
from ludus.math.diffusion import ddim_step, ddpm_step, descent, squared_cosine
from ludus.session.player import build_player
from ludus.types import Spaces
from support import build, moment

SMALL: dict[str, Any] = {"batch_size": 8, "denoiser": {"widths": [8, 16], "groups": 4}}
SHORT: dict[str, Any] = {"prediction_horizon": 4, "action_horizon": 2}
KINDS = {
    "unet": {"denoiser": {"widths": [16], "groups": 4}},
    "transformer": {"denoiser": {"type": "transformer", "width": 16, "layers": 1, "heads": 2}},
}
LONG_WAY = Spaces(gym.spaces.Box(-100, 100, (2,), np.float32), gym.spaces.Box(-5, 5, (2,), np.float32))


def sections(path: Path, updates: int = 6, **settings: Any) -> dict[str, Any]:
    return {
        "algorithm": {"name": "diffusion_policy", **SMALL, **settings},
        "buffers": {"demos": {"path": str(path)}},
        "training": {"total_updates": updates, "epoch_updates": 2},
        "runtime": {"compile": "never"},
    }


def made(path: Path, **settings: Any) -> Any:
    """A built run."""
    return build(ExperimentConfig.model_validate(sections(path, **settings)))


@pytest.fixture
def demos(tmp_path: Path) -> Path:
    return demonstrations(tmp_path / "demos-v0", PENDULUM)[0]


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """Three episodes in which observations and actions count the steps: 9 of them, 7 and 5."""
    made = []
    for i, steps in enumerate((9, 7, 5)):
        t = np.arange(steps + 1, dtype=np.float32)
        obs, action = np.stack([t, 10.0 * i + 0 * t], -1), np.stack([t[:-1] / 4, 0 * t[:-1] + 3], -1)
        made.append(Episode(obs, action, np.zeros(steps, np.float32), True))
    write_dataset(tmp_path / "counted-v0", LONG_WAY, made, policy="test")
    return tmp_path / "counted-v0"


# ---- learning --------------------------------------------------------------------------------------


def test_windows_are_padded_at_the_edges_and_what_is_beyond_weighs_nothing(counted: Path) -> None:
    """The first action belongs to the older of two observations."""
    run = made(counted, **SHORT)
    algorithm, buffer = run.algorithm, run.buffers["demos"]
    algorithm.learn_ranges(buffer)
    batch = algorithm.draw(buffer, 400, np.random.default_rng(0))
    obs = algorithm.seen.restored(batch["obs"])[..., 0].round().long()
    action = (4 * algorithm.acted.restored(batch["action"])[..., 0]).round().long()
    assert obs.shape == (2, 400) and action.shape == (4, 400) and batch["time"].shape == (1, 400)
    episode = algorithm.seen.restored(batch["obs"])[0, :, 1].div(10).round().long()
    last = torch.tensor([8, 6, 4])[episode]
    now = obs[1]
    assert torch.equal(obs[0], (now - 1).clamp(min=0)), "the first observation is repeated"
    rows = now - 1 + torch.arange(4).unsqueeze(1)
    assert torch.equal(action, rows.clamp(min=0).minimum(last)), "edges are repeated"
    real = (rows >= 0) & (rows <= last)
    assert torch.equal(batch["weight"] > 0, real)
    torch.testing.assert_close(batch["weight"].mean(), torch.tensor(1.0))
    assert set(now.tolist()) == set(range(9)), "every step is the newest of some window"
    run.close()


def test_the_ranges_are_those_of_all_steps_that_are_learned_from(counted: Path) -> None:
    run = made(counted, **SHORT)
    run.algorithm.update_controller(moment(run.config.algorithm.config))
    buffer = run.buffers["demos"]
    held = {round(float(x)) for x in buffer.held_out.sample(50)["obs"][..., 1].ravel()}
    kept = {0, 10, 20} - held
    assert len(held) == 1
    longest = {0: 8, 10: 6, 20: 4}
    assert run.algorithm.seen.low.tolist() == [0.0, min(kept)]
    assert run.algorithm.seen.high.tolist() == [max(longest[i] for i in kept), max(kept)]
    assert run.algorithm.acted.high[1] == run.algorithm.acted.low[1] == 3.0
    run.close()


def test_ranges_are_found_piece_by_piece(counted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made(counted, **SHORT)
    run.algorithm.learn_ranges(run.buffers["demos"])
    whole = run.algorithm.seen.low.tolist(), run.algorithm.seen.high.tolist()
    monkeypatch.setattr(all_steps_module, "PIECE", 4)
    run.algorithm.learn_ranges(run.buffers["demos"])
    assert (run.algorithm.seen.low.tolist(), run.algorithm.seen.high.tolist()) == whole
    run.close()


def test_the_loss_is_that_of_the_noise_where_there_are_steps(demos: Path) -> None:
    run = made(demos)
    algorithm = run.algorithm
    algorithm.learn_ranges(run.buffers["demos"])
    batch = algorithm.draw(run.buffers["demos"], 8, np.random.default_rng(0))
    noise, seen = torch.randn(16, 8, 1), []

    class Known(torch.nn.Module):
        def time(self, time_N: torch.Tensor) -> torch.Tensor:
            seen.append(time_N)
            return time_N

        def seen(self, obs_BOD: torch.Tensor) -> torch.Tensor:
            assert obs_BOD.shape == (8, 2, 3)
            return obs_BOD

        def forward(self, x_BTA: torch.Tensor, time: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
            signal = squared_cosine(100)[time][:, None, None]
            clean = batch["action"].transpose(0, 1)
            found = (x_BTA - signal.sqrt() * clean) / (1 - signal).sqrt()
            return found + 2.0

    torch.testing.assert_close(algorithm.loss(Known(), batch, noise), torch.tensor(4.0), rtol=1e-3, atol=1e-3)
    assert torch.equal(seen[0], batch["time"][0]) and len(set(seen[0].tolist())) > 1
    run.close()


def test_every_diffusion_time_is_learned(demos: Path) -> None:
    run = made(demos, diffusion_steps=4, sampling_steps=2)
    run.algorithm.learn_ranges(run.buffers["demos"])
    batch = run.algorithm.draw(run.buffers["demos"], 64, np.random.default_rng(0))
    assert set(batch["time"].flatten().tolist()) == {0, 1, 2, 3}
    run.close()


def test_averaged_weights_are_validated(demos: Path) -> None:
    settings = sections(demos)
    settings["buffers"]["demos"]["held_out"] = 0.5
    run = build(ExperimentConfig.model_validate(settings))
    algorithm, nets = run.algorithm, run.algorithm.learner.networks
    algorithm.update_controller(moment(run.config.algorithm.config))
    before = algorithm.metrics()["loss/validation"]
    for name, same in (("denoiser", True), ("target_denoiser", False)):
        with torch.no_grad():
            for parameter in nets[name].parameters():
                parameter.add_(0.1)
        assert (algorithm.metrics()["loss/validation"] == before) == same
    run.close()


def test_averaged_weights_follow_and_they_act(demos: Path) -> None:
    run = made(demos, lr=1e-2)
    algorithm, now = run.algorithm, moment(run.config.algorithm.config)
    nets = algorithm.learner.networks
    expected = None
    for k in range(4):
        algorithm.update_controller(now)
        weights = [parameter.detach().clone() for parameter in nets["denoiser"].parameters()]
        tau = (1 + k) ** -0.75
        expected = weights if k == 0 else [e + tau * (w - e) for e, w in zip(expected, weights, strict=True)]
        for slow, wanted in zip(nets["target_denoiser"].parameters(), expected, strict=True):
            torch.testing.assert_close(slow, wanted)

    def action() -> np.ndarray:
        obs, first = np.zeros((2, 3), np.float32), np.ones(2, bool)
        return algorithm.act(obs, algorithm.initial_state(2), first, deterministic=True).action

    before = action()
    with torch.no_grad():
        for parameter in nets["denoiser"].parameters():
            parameter.add_(1.0)
    algorithm.learner.version += 1
    assert np.array_equal(action(), before)
    with torch.no_grad():
        for parameter in nets["target_denoiser"].parameters():
            parameter.add_(0.1)
    algorithm.learner.version += 1
    assert not np.array_equal(action(), before)
    with torch.no_grad():
        for parameter in nets["target_denoiser"].parameters():
            parameter.zero_()  # no noise is found any more
    algorithm.learner.version += 1
    x, plan = (
        torch.from_numpy(np.random.default_rng(0).standard_normal((16, 1), np.float32)),
        descent(algorithm.signal, 10),
    )
    for signal, after in zip(plan.signal, plan.after, strict=True):
        x = ddim_step(x, torch.zeros_like(x), signal, after)
    np.testing.assert_allclose(action()[0], algorithm.acted.restored(x)[1].numpy(), atol=1e-5)
    run.close()


def test_the_share_of_averaged_weights_has_a_limit(demos: Path) -> None:
    run = made(demos, ema_max=0.2)
    seen: list[float] = []
    update = run.algorithm.learner.update
    run.algorithm.learner.update = lambda f, b, scalars, **s: seen.append(scalars["tau"]) or update(f, b, scalars, **s)
    for _ in range(3):
        run.algorithm.update_controller(moment(run.config.algorithm.config))
    assert seen == pytest.approx([1.0, 0.8, 0.8])
    run.close()


def test_the_learning_rate_warms_up_and_falls_along_a_cosine(demos: Path) -> None:
    cfg = made(demos).config.algorithm.config
    found = [moment(cfg, at, 4_000).at(cfg.lr) for at in (0, 249, 499, 2_000, 4_000)]
    assert found == pytest.approx([2e-7, 5e-5 * 0.9905, 1e-4 * 0.9622, 5e-5, 0.0], rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_what_the_demonstrations_do(tmp_path: Path, kind: str) -> None:
    """Actions are 1.5 times the first number seen; observations are noise, so only the newest tells."""
    path = demonstrations(tmp_path / "demos-v0", PENDULUM, episodes=20, steps=20)[0]
    settings = {**KINDS[kind], "prediction_horizon": 2, "action_horizon": 1, "batch_size": 32, "lr": 3e-3}
    run = made(path, updates=150, **settings)
    run.run()
    obs = np.random.default_rng(5).uniform(-1, 1, (64, 3)).astype(np.float32)
    algorithm = run.algorithm
    acted = algorithm.act(obs, algorithm.initial_state(64), np.ones(64, bool), deterministic=False).action[:, 0]
    assert np.corrcoef(acted, obs[:, 0])[0, 1] > 0.4
    assert algorithm.metrics()["loss/validation"] < 1.0
    run.close()


# ---- acting ----------------------------------------------------------------------------------------


def player(spaces: Spaces = PENDULUM, **settings: Any) -> Any:
    """A policy that was never trained, with weights that depend on what it sees."""
    algorithm = {"name": "diffusion_policy", **SMALL, **settings}
    cfg = ExperimentConfig.model_validate({"algorithm": algorithm, "training": {"total_updates": 1}})
    one = build_player(cfg, spaces, None).algorithm
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in one.learner.networks["target_denoiser"].parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=rng))
    one.learner.version += 1
    return one


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", ["ddim", "ddpm"])
def test_environments_do_not_mix_and_each_has_its_own_queue(kind: str, sampler: str) -> None:
    """Episodes that begin at different times: the same actions as in an environment alone."""
    one = player(**KINDS[kind], sampler=sampler, sampling_steps=4, action_horizon=3)
    obs = np.random.default_rng(0).uniform(-1, 1, (12, 4, 3)).astype(np.float32)
    first = np.zeros((12, 4), bool)
    first[0] = first[5, 1] = first[6, 2] = first[7, 2] = True

    def acted(columns: list[int]) -> np.ndarray:
        state, found = one.initial_state(len(columns)), []
        for t in range(12):
            result = one.act(obs[t, columns], state, first[t, columns], deterministic=True)
            state = result.state
            found.append(result.action)
        return np.stack(found)

    together = acted([0, 1, 2, 3])
    for b in range(4):
        np.testing.assert_allclose(acted([b])[:, 0], together[:, b], atol=1e-4)


def test_a_queue_is_executed_before_the_next_sequence_is_sampled() -> None:
    one, asked = player(action_horizon=3), []
    choose = one.behaviour.actor.choose

    class Watched:
        def refresh(self) -> None:
            choose.refresh()

        def __call__(self, seen: torch.Tensor, rng: Any) -> torch.Tensor:
            asked.append(seen.clone())
            return torch.arange(3.0).view(1, 3, 1).expand(len(seen), 3, 1) + 10 * len(asked)

    one.behaviour.actor.choose = Watched()
    obs = [np.full((2, 3), t, np.float32) for t in range(7)]
    state, actions = one.initial_state(2), []
    for t in range(7):
        first = np.array([t == 0, t in (0, 4)])
        before = {name: leaf.clone() for name, leaf in state.items()}
        outputs, after = one.behaviour.actor(obs[t], state, first)
        assert all(torch.equal(state[name], leaf) for name, leaf in before.items()), "memory is not changed in place"
        actions.append(outputs("action")[:, 0].tolist())
        state = after
    assert actions == [[10, 10], [11, 11], [12, 12], [20, 20], [21, 30], [22, 31], [40, 32]]
    assert [seen[:, :, 0].tolist() for seen in asked] == [
        [[0, 0], [0, 0]], [[2, 3], [2, 3]], [[4, 4]], [[5, 6]]]  # fmt: skip


def test_actions_are_those_from_the_newest_observation_on() -> None:
    """Of a sequence that begins at the older of two observations the second action is the first to be executed."""
    one = player(action_horizon=4)
    sampler, seen = one.behaviour.actor.choose, torch.rand(2, 2, 3)
    one.acted.fit(torch.tensor([-3.0]), torch.tensor([1.0]))
    sampler.refresh()
    net, plan = one.averaged, descent(squared_cosine(100), 10)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 1, 16, 1), np.float32))[0].expand(2, 16, 1)
    with torch.no_grad():
        for time, signal, after in zip(*plan, strict=True):
            x = ddim_step(x, net(x, net.time(time[None]), net.seen(seen)), signal, after)
    torch.testing.assert_close(sampler(seen, None), 2 * x[:, 1:5] - 1, atol=1e-4, rtol=1e-4)


def test_ddpm_takes_fresh_noise_at_every_step() -> None:
    one = player(sampler="ddpm", diffusion_steps=10, action_horizon=4)
    sampler, seen = one.behaviour.actor.choose, torch.rand(2, 2, 3)
    one.acted.fit(torch.tensor([-3.0]), torch.tensor([1.0]))
    sampler.refresh()
    net, plan = one.averaged, descent(squared_cosine(10), 10)
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal((11, 1, 16, 1), np.float32)).expand(11, 2, 16, 1)
    x = noise[0]
    with torch.no_grad():
        for i, (time, signal, after) in enumerate(zip(*plan, strict=True)):
            x = ddpm_step(x, net(x, net.time(time[None]), net.seen(seen)), signal, after, noise[1 + i])
    torch.testing.assert_close(sampler(seen, None), 2 * x[:, 1:5] - 1, atol=1e-4, rtol=1e-4)


def test_noise_comes_from_the_stream_of_evaluation() -> None:
    one, obs = player(), np.zeros((2, 3), np.float32)
    before = one.behaviour.evaluation_rng.bit_generator.state

    def act() -> np.ndarray:
        return one.act(obs, one.initial_state(2), np.ones(2, bool), deterministic=False).action

    torch.manual_seed(0)
    first = act()
    assert first[0] != first[1] and not np.array_equal(act(), first), "everybody gets noise of their own"
    one.behaviour.evaluation_rng.bit_generator.state = before
    torch.manual_seed(1)
    assert np.array_equal(act(), first)
    greedy = one.act(obs, one.initial_state(2), np.ones(2, bool), deterministic=True).action
    np.testing.assert_allclose(greedy[0], greedy[1], atol=1e-5)  # rows of one product may be rounded apart
    assert PENDULUM.action.contains(first[0])


def test_dictionaries_of_vectors_are_joined(tmp_path: Path) -> None:
    parts = {"arm": gym.spaces.Box(-1, 1, (2, 2), np.float32), "grip": gym.spaces.Discrete(3)}
    spaces = Spaces(gym.spaces.Dict(parts), gym.spaces.Box(-1, 1, (2, 1), np.float32))
    run = made(demonstrations(tmp_path / "demos-v0", spaces)[0])
    run.run()
    obs = {"arm": np.zeros((3, 2, 2), np.float32), "grip": np.array([0, 1, 2])}
    algorithm = run.algorithm
    action = algorithm.act(obs, algorithm.initial_state(3), np.ones(3, bool), deterministic=False).action
    assert action.shape == (3, *run.spaces.action.shape) and action[0].size == 2 and np.isfinite(action).all()
    run.close()


# ---- runs ------------------------------------------------------------------------------------------


def test_discrete_actions_images_and_lengths_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs continuous actions, not Discrete\(2\).*use behaviour_cloning"):
        made(demonstrations(tmp_path / "cart-v0", CART)[0])
    picture = Spaces(gym.spaces.Box(0, 255, (3, 8, 8), np.uint8), PENDULUM.action)
    with pytest.raises(ConfigError, match="reads no images"):
        made(demonstrations(tmp_path / "picture-v0", picture)[0])
    with pytest.raises(ConfigError, match="7 actions cannot be halved 1 times"):
        made(demonstrations(tmp_path / "pendulum-v0", PENDULUM)[0], prediction_horizon=7, action_horizon=4)


def test_it_collects_nothing(demos: Path) -> None:
    given = {**sections(demos), "environment": {"id": "Pendulum-v1"}, "training": {"total_timesteps": 64}}
    with pytest.raises(ConfigError, match="diffusion_policy takes no environment steps; set it: the budget in updates"):
        build(ExperimentConfig.model_validate(given))


@pytest.mark.parametrize("kind", KINDS)
def test_a_traced_update_is_the_eager_one(demos: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph that a compiler gets, run as it is: the same weights, averaged ones included."""

    def traced(function: Any, example: Any, *_: Any) -> Any:
        graph = package.trace(function, example)
        used.append(kind)
        return lambda: lambda arguments: list(graph(*arguments))

    used: list[str] = []
    monkeypatch.setattr(package, "obtain", traced)
    monkeypatch.setattr(package, "has_compiler", lambda: True)
    found = []
    for mode in ("never", "always"):
        given = sections(demos, **KINDS[kind], lr=1e-3)
        run = build(ExperimentConfig.model_validate({**given, "runtime": {"compile": mode}}))
        for _ in range(3):
            run.algorithm.update_controller(moment(run.config.algorithm.config))
        found.append(run.algorithm.learner.theta.clone())
        run.close()
    assert used == [kind], "one shape, one graph"
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)
