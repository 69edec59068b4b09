"""Whatever learns from a buffer: it begins, goes on, tells the buffer its errors, and uses the one it is given."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.config.compose import load
from ludus.errors import ConfigError
from ludus.session.loading import transfer
from ludus.session.player import build_player
from ludus.types import Spaces
from support import build, close, config, moment, run

HEADS = {"actor": {"hidden_dims": [16]}, "critic": {"hidden_dims": [16]}}
GRU = {**HEADS, "memory": {"type": "gru", "hidden_dim": 8}}
ENVS = {"dqn": "CartPole-v1", "sac": "Pendulum-v1", "td3": "Pendulum-v1"}
QUICK = {"batch_size": 8, "learning_starts": 32, "epoch_steps": 64, "update_ratio": 0.25}


def small(
    name: str, size: int = 500, kind: str = "uniform", *, network: Any = HEADS, steps: int = 256, **settings: Any
):
    algorithm = {"name": name, **(QUICK if name in ENVS else {}), **settings}
    return config(algorithm, env=ENVS.get(name, "CartPole-v1"), environment={"num_envs": 2}, network=network,
                  buffers={"replay": {"type": kind, "size": size}}, training={"total_timesteps": steps})  # fmt: skip


# ---- it begins and goes on ---------------------------------------------------------------------------------------


class Fades(gym.Env):
    """Episodes of 100 steps at first, of 2 steps later."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    total = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t, self.total = self.t + 1, self.total + 1
        return np.zeros(2, np.float32), 0.0, self.t >= (100 if self.total < 150 else 2), False, {}


if "Probe/Fades-v0" not in gym.registry:
    gym.register("Probe/Fades-v0", Fades)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_once_it_has_learned_it_never_acts_at_random_again(name: str) -> None:
    """Final observations of short episodes take the places of steps: fewer are stored than when learning began."""
    cfg = config({"name": name, **QUICK, "learning_starts": 95}, env="Probe/Fades-v0", environment={"num_envs": 1},
                 network=HEADS, buffers={"replay": {"size": 100}}, training={"total_timesteps": 600})  # fmt: skip
    one = build(cfg)
    blind = []
    for cycle in range(400):
        one.algorithm.collect(moment(cfg.algorithm.config, cycle))
        blind.append(one.algorithm.behaviour.uniform)
        updates = one.algorithm.update_controller(moment(cfg.algorithm.config, cycle)).updates
        assert updates == (cycle >= 94)
    assert blind == [True] * 95 + [False] * 305
    assert len(one.algorithm.replay["replay"]) < 95
    close(one)


def test_an_empty_second_buffer_does_not_make_it_blind_again() -> None:
    one = build(small("sac"))
    now = moment(one.config.algorithm.config)
    for _ in range(20):
        one.algorithm.collect(now)
    assert one.algorithm.update_controller(now).updates == 1
    one.algorithm.replay["replay"].start_over()
    one.algorithm.collect(now)
    assert not one.algorithm.behaviour.uniform
    close(one)


def test_learning_starts_as_large_as_the_buffer_still_learns() -> None:
    """CartPole's short episodes never let the buffer hold as many steps as it has places."""
    done = run(small("dqn", 200, learning_starts=200, steps=600))
    assert len(done.algorithm.replay["replay"]) < 200
    assert done.progress.updates == pytest.approx((600 - 200) * 0.25, abs=2)


@pytest.mark.parametrize(
    ("name", "settings", "network", "where"),
    [
        ("dqn", {"batch_size": 64}, HEADS, "algorithm.batch_size"),
        ("sac", {"batch_size": 64}, HEADS, "algorithm.batch_size"),
        ("td3", {"batch_size": 64}, HEADS, "algorithm.batch_size"),
        ("dqn", {"sequence_length": 20, "burn_in": 6}, GRU, "algorithm.sequence_length"),
        ("sac", {"sequence_length": 20, "burn_in": 6}, GRU, "algorithm.sequence_length"),
        ("td3", {"sequence_length": 20, "burn_in": 6}, GRU, "algorithm.sequence_length"),
        ("dqn", {"sequence_length": 8, "train_freq": 19}, GRU, "algorithm.sequence_length"),
        ("ppo_replay", {"rollout_steps": 32}, HEADS, "algorithm.rollout_steps"),
        ("ppo_replay", {"rollout_steps": 16}, GRU, "algorithm.rollout_steps"),
    ],
)
def test_a_buffer_that_never_holds_what_is_drawn_is_refused(name: str, settings: Any, network: Any, where: str) -> None:
    """Fifty places for two environments."""
    with pytest.raises(ConfigError, match=where.replace(".", r"\.") + r".*never fit.*raise buffers\.replay\.size"):
        build(small(name, 50, network=network, **settings))


@pytest.mark.parametrize(
    ("name", "settings", "network"),
    [
        ("dqn", {"batch_size": 50}, HEADS),
        ("dqn", {"sequence_length": 19, "burn_in": 6}, GRU),
        ("dqn", {"sequence_length": 8, "train_freq": 18}, GRU),
        ("dqn", {"sequence_length": 8, "train_freq": 25, "stored_state": False}, GRU),
        ("ppo_replay", {"rollout_steps": 32, "replay_ratio": 0}, GRU),
    ],
)
def test_a_buffer_that_just_holds_it_learns(name: str, settings: Any, network: Any) -> None:
    assert run(small(name, 50, network=network, **settings)).progress.updates > 10


def test_trajectories_are_filled_up_whatever_their_length() -> None:
    assert run(small("dqn", 50, "trajectory", network=GRU, sequence_length=40)).progress.updates > 10


def test_a_phase_is_checked_as_the_run_is() -> None:
    phases = [{"name": "a", "duration_steps": 64, "hooks": ["collect", "update_controller"]},
              {"name": "b", "hooks": ["collect", "update_controller"], "set": {"sequence_length": 40}}]  # fmt: skip
    cfg = small("dqn", 50, network=GRU, sequence_length=8)
    with pytest.raises(ConfigError, match=r"algorithm\.sequence_length.*never fit"):
        build(cfg.model_copy(update={"training": config(training={"phases": phases}).training}))


def test_settings_changed_while_it_runs_are_checked_too() -> None:
    one = build(small("dqn", 50, network=GRU, sequence_length=8))
    with pytest.raises(ConfigError, match=r"algorithm\.sequence_length.*never fit"):
        one.change_settings({"sequence_length": 40})
    assert one.settings.sequence_length == 8
    close(one)


@pytest.mark.parametrize("kind", ["uniform", "prioritized", "trajectory"])
def test_with_memory_no_update_is_left_out(kind: str) -> None:
    """Memory is stored at every fortieth step only; once learning has begun, every update finds a sequence."""
    done = run(small("dqn", 400, kind, network=GRU, sequence_length=4, train_freq=40, steps=1_600))
    assert done.progress.updates == 1_600 * 0.25


@pytest.mark.parametrize("network", [HEADS, GRU], ids=["none", "gru"])
def test_ppo_replays_in_every_cycle_but_the_first(network: Any) -> None:
    one = build(small("ppo_replay", 400, network=network, rollout_steps=48, epochs=1))
    now = moment(one.config.algorithm.config)
    replayed = []
    for _ in range(15):
        one.algorithm.collect(now)
        replayed.append(one.algorithm.experience.columns["weight"].shape[1] == 2 * 2)
        one.algorithm.update_controller(now)
    assert replayed == [False] + [True] * 14
    close(one)


# ---- the budget --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_the_budget_is_never_exceeded(name: str) -> None:
    """Cycles of four steps of two environments, and a budget that is no multiple of eight."""
    done = run(small(name, train_freq=4, steps=102))
    assert done.progress.env_steps == 102 == len(done.buffers["replay"])


# ---- priorities, targets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", [HEADS, GRU], ids=["none", "gru"])
@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_the_errors_of_an_update_become_the_priorities_of_its_steps(name: str, network: Any) -> None:
    one = build(small(name, 500, "prioritized", network=network, sequence_length=4, burn_in=0))
    now = moment(one.config.algorithm.config)
    for _ in range(40):
        one.algorithm.collect(now)
    buffer = one.buffers["replay"]
    seen: dict[str, Any] = {}
    update, sample = one.algorithm.learner.update, "sample" if network is HEADS else "sample_sequences"
    drawn = getattr(buffer, sample)

    def watched(*arguments: Any, **details: Any) -> Any:
        found = drawn(*arguments, **details)
        seen["index"] = found["index"].copy()
        return found

    setattr(buffer, sample, watched)
    one.algorithm.learner.update = lambda *a, **k: seen.update(outputs=update(*a, **k)) or seen["outputs"]
    assert one.algorithm.update_controller(now).updates == 1
    error = seen["outputs"]["error"].numpy()
    error = error[0] if len(error) == 1 else 0.9 * error.max(0) + 0.1 * error.mean(0)
    assert np.ptp(error) > 0
    expected = dict(zip(seen["index"].tolist(), (error + buffer.cfg.eps) ** buffer.cfg.alpha, strict=True))
    found = {index: buffer.tree.leaves[index] for index in expected}
    assert found == pytest.approx(expected, rel=1e-4)
    close(one)


@pytest.mark.parametrize("tau", [1.0, 0.25])
def test_dqns_target_follows_every_few_updates(tau: float) -> None:
    one = build(small("dqn", target_every=3, tau=tau))
    now = moment(one.config.algorithm.config)
    for _ in range(20):
        one.algorithm.collect(now)
    learner = one.algorithm.learner
    online, target = (learner.theta[learner.where[name]] for name in ("q", "target_q"))
    before = target.clone()
    for update in range(1, 7):
        one.algorithm.update_controller(now)
        if update % 3:
            assert torch.equal(target, before)
        else:
            torch.testing.assert_close(target, before + tau * (online - before))
            assert not torch.equal(target, before)
            before = target.clone()
    close(one)


@pytest.mark.parametrize("optimizer", [False, True])
@pytest.mark.parametrize("name", ["dqn", "sac", "td3"])
def test_a_warm_start_begins_with_the_targets_of_its_weights(name: str, optimizer: bool) -> None:
    """Slow copies are taken over like all other weights."""
    cfg = small(name)
    state = run(cfg).state_dict()
    other = cfg.model_copy(update={"experiment": cfg.experiment.model_copy(update={"seed": 9})})
    one = build(other)
    transfer(one, state, optimizer=optimizer)
    weights, ours = state["algorithm"]["learner"]["model"], one.algorithm.learner.model.state_dict()
    assert [key for key in ours if key.startswith("target_q" if name == "dqn" else "target_critic")]
    assert all(torch.equal(ours[key], torch.as_tensor(weights[key])) for key in ours)
    assert one.algorithm.learner.updates == (0 if not optimizer else run(cfg).algorithm.learner.updates)
    close(one)


# ---- exploration is part of the state ----------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [{"start": 1.0, "end": 0.0, "to": 0.5}, {"start": 0.0, "end": 1.0, "from": 0.999}])
@pytest.mark.parametrize("name", ["dqn", "td3", "q_learning"])
def test_a_player_explores_as_much_as_training_did(name: str, schedule: dict[str, float]) -> None:
    """Schedules that are at 0 in the last checkpoint, where they end or not: its stochastic actions are greedy."""
    field = "exploration_noise" if name == "td3" else "epsilon"
    if name == "q_learning":
        cfg = config({"name": name, field: schedule, "initial_value": 1.0}, env="CliffWalking-v1")
    else:
        cfg = small(name, **{field: schedule})
    done = run(cfg)
    env = done.algorithm.collector.env
    spaces = Spaces(env.observation_space, env.action_space)
    player = build_player(cfg, spaces, done.state_dict())
    rng = np.random.default_rng(0)
    obs = np.flatnonzero(np.ptp(done.algorithm.table.q_SA, 1) > 0) if name == "q_learning" else (
        rng.normal(size=(200, *(spaces.observation.shape or ()))).astype(np.float32))  # fmt: skip
    q = done.algorithm.table.q_SA[obs] if name == "q_learning" else None
    if q is not None:  # ties are drawn, whatever epsilon is
        obs = obs[(q == q.max(1, keepdims=True)).sum(1) == 1].repeat(20)
    assert len(obs) >= 20
    first = np.ones(len(obs), bool)
    greedy, sampled = (player.algorithm.act(obs, (), first, deterministic=flag).action for flag in (True, False))
    np.testing.assert_array_equal(greedy, sampled)


# ---- which buffer ------------------------------------------------------------------------------------------------


def test_buffer_means_the_one_that_is_learned_from() -> None:
    cfg = load("CartPole-v1:dqn", ["buffer.type=prioritized", "buffer.size=5000", "runtime.compile=never"]).config
    one = build(cfg)
    assert list(one.buffers) == ["replay"]
    buffer = one.buffers["replay"]
    assert type(buffer).__name__ == "Prioritized" and buffer.size == 5_000
    close(one)


@pytest.mark.parametrize(
    ("name", "buffer", "remedy"),
    [("dqn", "reply", "did you mean 'replay'"), ("sac", "main", "known: replay"), ("ppo", "replay", "remove it")],
)
def test_a_buffer_nobody_uses_is_refused(name: str, buffer: str, remedy: str) -> None:
    cfg = config(name, env=ENVS.get(name, "CartPole-v1"), buffers={buffer: {"size": 5_000}})
    with pytest.raises(ConfigError, match=rf"buffers\.{buffer}: neither the algorithm nor a phase uses it; {remedy}"):
        build(cfg)


@pytest.mark.parametrize(
    ("name", "given", "kind", "size"),
    [("dreamer", {"storage": "disk"}, "online", "auto"), ("planet", {"max_gb": 1.0}, "online", "auto"),
     ("dreamer", "uniform", "uniform", "auto"), ("dreamer", {"size": 500}, "online", 500),
     ("sac", {"storage": "disk"}, "uniform", 1_000_000), ("td3", "prioritized", "prioritized", 1_000_000),
     ("ppo_replay", {"type": "trajectory"}, "trajectory", 4_096), ("sac", {"type": "online", "size": 9}, "online", 9)],
)  # fmt: skip
def test_what_is_not_said_of_a_buffer_is_as_the_algorithm_has_it(name: str, given: Any, kind: str, size: Any) -> None:
    """Who wants its steps on the disk wants neither another size nor other draws."""
    env = "CartPole-v1" if name == "ppo_replay" else "Pendulum-v1"
    found = config(name, env=env, buffers={"replay": given}).buffers["replay"]
    assert (found.name, found.config.size) == (kind, size)
    assert found.config.storage == (given.get("storage", "ram") if isinstance(given, dict) else "ram")


def test_what_is_not_said_of_an_optimizer_is_as_the_algorithm_has_it() -> None:
    for name, eps in (("sac", 1e-8), ("td3", 1e-8), ("dqn", 1e-5)):
        given = {"name": name, "optimizer": {"weight_decay": 0.1}}
        cfg = config(given, env=ENVS[name]).algorithm.config.optimizer
        assert (cfg.eps, cfg.weight_decay) == (eps, 0.1)
        assert config(given | {"optimizer": {"eps": 1e-3}}, env=ENVS[name]).algorithm.config.optimizer.eps == 1e-3


def test_a_stored_buffer_has_the_size_that_it_has() -> None:
    found = config("sac", env="Pendulum-v1", buffers={"replay": {"type": "stored", "path": "runs/x"}}).buffers["replay"]
    assert found.name == "stored" and found.config.model_dump() == {"path": "runs/x", "buffer": "replay"}
    assert config("sac", env="Pendulum-v1", buffers={"mine": {}}).buffers["mine"].config.size == 100_000


def test_a_buffer_that_only_a_phase_names_is_used() -> None:
    phases = [{"name": "a", "hooks": ["collect", "update_controller"], "buffer": "mine"}]
    done = run(config({"name": "dqn", **QUICK}, buffers={"mine": {"size": 500}},
                      training={"total_timesteps": 256, "phases": phases}))  # fmt: skip
    assert len(done.buffers["mine"]) == 256 and done.progress.updates > 0


def test_a_size_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"buffers\.replay\.size: 7 steps are too few for 2 environments; use at least 8"
    ):
        build(small("dqn", 7, batch_size=2, learning_starts=2))
    close(build(small("dqn", 8, batch_size=2, learning_starts=2)))


# ---- what a phase may set ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [("dqn", "epoch_steps", 5), ("dqn", "stored_state", False), ("sac", "target_entropy", -3.0),
     ("sac", "epoch_steps", 5), ("td3", "epoch_steps", 5)],
)  # fmt: skip
def test_a_phase_cannot_set_what_only_the_start_of_a_run_reads(name: str, field: str, value: Any) -> None:
    phases = [{"name": "a", "hooks": ["collect", "update_controller"], "set": {field: value}}]
    with pytest.raises(ConfigError, match=rf"training\.phases\.a\.set\.{field}: is fixed for the whole run"):
        build(config(name, env=ENVS[name], training={"phases": phases}))
