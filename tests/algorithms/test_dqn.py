"""DQN learns the values it should, in every variant; what it stores, samples and skips is what its config says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus.config.compose import load
from ludus.data.buffers.batches import draw
from ludus.errors import ConfigError
from ludus.math.values import chosen
from ludus.orchestration.callbacks import Callback
from support import build, close, config, moment, run
from toy_learners import Recorded

SMALL = {"name": "dqn", "batch_size": 16, "learning_starts": 64, "epoch_steps": 128, "update_ratio": 0.25}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"double": False},
    "double": {},
    "dueling": {"dueling": True},
    "noisy": {"noisy": True, "epsilon": 0.0},
    "c51": {"atoms": 11, "v_max": 50},
    "rainbow": {"dueling": True, "noisy": True, "atoms": 11, "v_max": 50, "n_step": 3, "epsilon": 0.0},
}
GRU = {"memory": {"type": "gru", "hidden_dim": 8}, "encoder": {"hidden_dims": [8]}}


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_trains(variant: str, kind: str) -> None:
    cfg = config({**SMALL, **VARIANTS[variant]}, buffers={"replay": {"type": kind, "size": 500}},
                 training={"total_timesteps": 512})  # fmt: skip
    done = run(cfg)
    assert done.progress.env_steps == 512
    assert done.progress.updates == pytest.approx((512 - 64) * 0.25, abs=2)
    assert done.progress.epochs == 4 and done.progress.cycles == 128
    assert torch.isfinite(done.algorithm.learner.theta).all()


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("kind", ["uniform", "prioritized", "trajectory"])
def test_with_memory_it_learns_from_sequences(kind: str, stored: bool) -> None:
    algorithm = {**SMALL, "sequence_length": 8, "burn_in": 2, "stored_state": stored, "n_step": 2, "train_freq": 2}
    done = run(config(algorithm, network=GRU, buffers={"replay": {"type": kind, "size": 500}},
                      training={"total_timesteps": 512}))  # fmt: skip
    assert done.progress.updates > 50
    assert torch.isfinite(done.algorithm.learner.theta).all()


def test_nothing_is_learned_too_early_and_nothing_is_owed_for_it() -> None:
    done = build(config({**SMALL, "learning_starts": 400}, training={"total_timesteps": 512}))
    updates = []
    advance = done.scheduler.advance
    done.scheduler.advance = lambda report, **more: (updates.append((done.progress.env_steps, report.updates)),
                                                     advance(report, **more))[1]  # type: ignore[method-assign] # fmt: skip
    done.run()
    close(done)
    assert sum(count for steps, count in updates if steps < 400) == 0
    assert sum(count for _, count in updates) == pytest.approx((512 - 400) * 0.25, abs=2)


@pytest.mark.parametrize("network", [{}, GRU], ids=["none", "gru"])
def test_accumulating_changes_neither_gradients_nor_priorities(network: dict[str, Any]) -> None:
    """Three parts of a batch of 16, of different sizes; some steps weigh less than others."""
    found = []
    for accumulate in (1, 3):
        cfg = config({**SMALL, "accumulate": accumulate, "sequence_length": 8, "n_step": 2}, network=network,
                     buffers={"replay": {"type": "prioritized", "size": 500}})  # fmt: skip
        built = build(cfg)
        now = moment(cfg.algorithm.config)
        for _ in range(60):
            built.algorithm.collect(now)
        for _ in range(3):  # the second and third batch depend on the priorities that the first left
            assert built.algorithm.update_controller(now).updates == 1
        priorities = torch.from_numpy(built.algorithm.replay["replay"].tree.leaves.copy())
        found.append((built.algorithm.learner.grad.clone(), priorities))
        assert len(priorities.unique()) > 10
        close(built)
    torch.testing.assert_close(found[0], found[1], atol=1e-6, rtol=1e-3)


def test_more_parts_than_samples_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.accumulate: a batch of 16 cannot be cut into 17 parts"):
        build(config({**SMALL, "accumulate": 17}))


def test_the_loss_is_the_papers() -> None:
    """Double Q-learning on a real batch, written out by hand."""
    built = build(config(SMALL, training={"total_timesteps": 4096}))
    dqn, cfg = built.algorithm, built.config.algorithm.config
    for _ in range(40):
        dqn.collect(moment(cfg))
    slow_weights(dqn, 0.9)
    batch, _ = draw(dqn.replay["replay"], moment(cfg), recurrent=False, device=dqn.replay.device)
    nets = Recorded(dqn.learner)
    _, outputs = dqn.update(nets, batch, {"lr": 1e-3}, double=True, burn_in=0)
    target = {name: 0.9 * value for name, value in dqn.net.named_parameters()}
    online = dqn.net(batch["next_obs"], (), batch["first"])[0]
    slow = torch.func.functional_call(dqn.net, target, (batch["next_obs"], (), batch["first"]))[0]
    wanted = batch["reward"] + batch["discount"] * chosen(slow, online.argmax(-1))
    value = chosen(dqn.net(batch["obs"], (), batch["first"])[0], batch["action"])
    loss = torch.nn.functional.smooth_l1_loss(value, wanted)
    assert nets.losses["q"] == pytest.approx(float(loss.detach()))
    torch.testing.assert_close(outputs["error"], (value - wanted).abs().detach())
    close(built)


@pytest.mark.parametrize("double", [True, False])
def test_the_loss_of_sequences_is_that_of_a_walk(double: bool) -> None:
    """Two networks with weights of their own, step by step from the stored memory on; only the last steps count."""
    built = build(config({**SMALL, "sequence_length": 5, "burn_in": 3}, network=GRU))
    dqn, cfg = built.algorithm, built.config.algorithm.config
    for _ in range(60):
        dqn.collect(moment(cfg))
    slow_weights(dqn, -0.7)
    batch, _ = draw(dqn.replay["replay"], moment(cfg), recurrent=True, device=dqn.replay.device)
    nets = Recorded(dqn.learner)
    _, outputs = dqn.update(nets, batch, {"lr": 1e-3}, double=double, burn_in=3)

    def walk(net: Any) -> torch.Tensor:
        state, rows = batch["state"], []
        for t in range(len(batch["obs"])):
            out, state = net(batch["obs"][t : t + 1], state, batch["first"][t : t + 1])
            rows.append(out[0])
        return torch.stack(rows)[3:]

    with torch.no_grad():
        online, slow = walk(dqn.net), walk(nets.target_q)
        assert (online - slow).abs().max() > 0.05
        after = [values.gather(0, batch["row"].unsqueeze(-1).expand(-1, -1, 2)) for values in (online, slow)]
        wanted = batch["reward"] + batch["discount"] * chosen(after[1], after[0 if double else 1].argmax(-1))
        value = chosen(online[:-1], batch["action"])
        expected = torch.nn.functional.smooth_l1_loss(value, wanted, reduction="none") * batch["weight"]
    assert nets.losses["q"] == pytest.approx(float(expected.mean()))
    torch.testing.assert_close(outputs["error"], (value - wanted).abs() * (batch["weight"] > 0))
    close(built)


def slow_weights(dqn: Any, factor: float) -> None:
    """The target network gets weights of its own."""
    dqn.learner.theta[dqn.learner.where["target_q"]].mul_(factor)


def test_the_target_network_has_the_weights_that_are_saved() -> None:
    one, other = (run(config({**SMALL, "target_every": 10}, training={"total_timesteps": n})) for n in (512, 448))
    target, online = (one.algorithm.learner.model[name] for name in ("target_q", "q"))
    inputs = (torch.randn(1, 5, 4), (), torch.zeros(1, 5, dtype=torch.bool))
    assert not torch.equal(target(*inputs)[0], online(*inputs)[0])
    other.algorithm.learner.load_state_dict(one.algorithm.learner.state_dict())
    assert torch.equal(other.algorithm.learner.model["target_q"](*inputs)[0], target(*inputs)[0])


def test_the_numpy_actor_sees_the_newest_weights() -> None:
    built = build(config({**SMALL, "dueling": True}))
    dqn = built.algorithm
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    first = np.zeros(5, bool)
    for _ in range(2):
        found = dqn.act(obs, (), first, deterministic=True).action
        values = dqn.net(torch.from_numpy(obs)[None], (), torch.zeros(1, 5, dtype=torch.bool))[0][0]
        np.testing.assert_array_equal(found, values.argmax(-1).numpy())
        dqn.learner.theta.mul_(-1.7)
    close(built)


def test_evaluation_of_noisy_networks_draws_nothing() -> None:
    built = build(config({**SMALL, "noisy": True}))
    before = torch.get_rng_state()
    obs = np.zeros((3, 4), np.float32)
    first = np.ones(3, bool)
    answers = [built.algorithm.act(obs, (), first, deterministic=True).info["q"] for _ in range(2)]
    np.testing.assert_array_equal(*answers)
    assert torch.equal(before, torch.get_rng_state())
    close(built)


@pytest.mark.parametrize(
    ("settings", "more", "where"),
    [
        ({"learning_starts": 5000}, {"buffers": {"replay": {"size": 400}}}, "algorithm.learning_starts"),
        ({"atoms": 5, "v_min": 1, "v_max": 0}, {}, "algorithm.v_min"),
        ({}, {"env": "Pendulum-v1"}, "algorithm.name"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], more: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match=where.replace(".", r"\.")):
        build(config({**SMALL, **settings}, **more))


def test_a_phase_names_a_buffer_that_is_there() -> None:
    phases = [{"name": "a", "hooks": ["collect"], "buffer": "reply"}]
    with pytest.raises(ConfigError, match=r"training\.phases\.a\.buffer.*did you mean 'replay'"):
        build(config(SMALL, training={"phases": phases}))


def test_a_hybrid_curriculum_is_yaml_only(tmp_path: Path) -> None:
    small = ["training.total_timesteps=3072", "environment.num_envs=4", "algorithm.batch_size=16",
             "training.phases.1.duration_updates=20", "training.evaluation.every_steps=0"]  # fmt: skip
    done = run(load("+experiment=cartpole_hybrid", small).config)
    assert done.scheduler.finished and done.progress.env_steps == 3072
    assert done.progress.updates == pytest.approx(20 + (3072 - 2048) / 2, abs=2)


def test_offline_pretraining_on_the_steps_of_another_run(tmp_path: Path) -> None:
    first = build(config(SMALL, training={"total_timesteps": 512}))
    first.buffers.attach(tmp_path / "buffers")  # type: ignore[attr-defined]
    first.run()
    first.state_dict()
    close(first)
    phases = [
        {
            "name": "pretrain",
            "type": "offline",
            "duration_updates": 30,
            "hooks": ["update_controller"],
            "buffer": "demos",
        },
        {"name": "online", "hooks": ["collect", {"update_controller": {"per_env_step": 0.25}}]},
    ]
    buffers = {"demos": {"type": "stored", "path": str(tmp_path)}}
    done = run(config(SMALL, training={"total_timesteps": 512, "phases": phases}, buffers=buffers))
    assert done.progress.updates == pytest.approx(30 + (512 - 64) * 0.25, abs=2)
    assert len(done.algorithm.replay["demos"]) == 512


def test_a_run_repeats_itself_and_goes_on_from_its_state() -> None:
    """In one process; tests/test_resume.py does it with kill -9."""
    cfg = config({**SMALL, **VARIANTS["rainbow"]}, buffers={"replay": {"type": "prioritized", "size": 300}},
                 training={"total_timesteps": 768})  # fmt: skip
    whole = run(cfg)
    half = build(cfg.model_copy(update={"training": cfg.training.model_copy(update={"total_timesteps": 768})}))
    half.callbacks.append(_StopAt(384))  # type: ignore[arg-type]
    half.run()
    state = half.state_dict()
    again = build(cfg)
    again.load_state_dict(state)
    again.run()
    assert torch.equal(whole.algorithm.learner.theta, again.algorithm.learner.theta)
    for done in (half, again):
        close(done)


class _StopAt(Callback):
    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_epoch_end(self, run: Any) -> None:
        if run.progress.env_steps >= self.steps:
            run.stop("here")


# ---- values of a solved MDP --------------------------------------------------------------------------------------


def optimal_values(env: Any, gamma: float) -> np.ndarray:
    """Q* of a toy-text MDP by policy iteration on its own transition table."""
    table = env.unwrapped.P
    states, actions = len(table), len(table[0])
    P, R = np.zeros((states, actions, states)), np.zeros((states, actions))
    for s in range(states):
        for a in range(actions):
            for p, after, reward, over in table[s][a]:
                R[s, a] += p * reward
                P[s, a, after] += 0.0 if over else p
    policy = np.zeros(states, int)
    while True:
        chosen_P, chosen_R = P[np.arange(states), policy], R[np.arange(states), policy]
        V = np.linalg.solve(np.eye(states) - gamma * chosen_P, chosen_R)
        Q = R + gamma * P @ V
        if (Q.argmax(1) == policy).all() or np.allclose(Q.max(1), V):
            return Q
        policy = Q.argmax(1)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["double", "c51"])
def test_values_approach_the_optimum_of_a_solved_mdp(variant: str) -> None:
    import gymnasium as gym

    gamma = 0.9
    expected = optimal_values(gym.make("FrozenLake-v1", is_slippery=False), gamma)
    # at the end of the range the mass that is left on other atoms would pull the mean one way only
    settings = {"double": {}, "c51": {"atoms": 21, "v_min": 0.0, "v_max": 2.0}}[variant]
    algorithm = {**SMALL, **settings, "gamma": gamma, "epsilon": 1.0, "lr": 1e-2, "tau": 0.05, "target_every": 1,
                 "batch_size": 64, "train_freq": 4}  # fmt: skip
    cfg = config(algorithm, env="FrozenLake-v1", environment={"kwargs": {"is_slippery": False}, "num_envs": 8},
                 network={"critic": {"hidden_dims": []}}, training={"total_timesteps": 12_000})  # fmt: skip
    done = run(cfg)
    dqn = done.algorithm
    states = np.arange(16)
    found, _ = dqn.explorer.values(states, (), np.ones(16, bool), noise=False)
    seen = {int(s) for s in dqn.replay["replay"].storage.data["obs"]}
    live = [s for s in sorted(seen) if expected[s].max() > 0]
    assert len(live) >= 10
    assert np.abs(found[live].max(1) - expected[live].max(1)).max() < 0.05
