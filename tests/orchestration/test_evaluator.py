"""Evaluation: current weights, own environments, own random streams, exact episode counts, nothing changed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ludus.archive.fingerprint import fingerprint
from ludus.data.normalizer import ObservationNormalizer
from ludus.experiment import build
from ludus.metrics.sinks import Sink
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.evaluator import Evaluator
from ludus.orchestration.nan_guard import copied
from ludus.play import episodes
from ludus.seeding import Streams
from ludus.session.player import build_player
from ludus.types import ActResult, Spaces, StepResult
from support import close, config, moment, run
from vector_script import BOX, Planned

SMALL = {"name": "ppo", "rollout_steps": 32, "epochs": 2}


def weights(orchestrator) -> torch.Tensor:
    return orchestrator.algorithm.learner.theta.clone()


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("normalize", [False, "rolling"])
@pytest.mark.parametrize("memory", ["none", "gru"])
def test_turning_it_on_changes_no_weight(memory: str, normalize, deterministic: bool) -> None:
    parts = {"network": {"memory": memory}, "environment": {"normalize_obs": normalize}}
    without = run(config(SMALL, **parts))
    on = {"evaluation": {"every_epochs": 1, "episodes": 3, "deterministic": deterministic}}
    with_it = run(config(SMALL, training={"total_timesteps": 1_024, **on}, **parts))
    assert with_it.last is not None and without.last is None
    assert torch.equal(weights(with_it), weights(without))


def test_the_normalizer_is_frozen_during_evaluation() -> None:
    cfg = config(SMALL, environment={"normalize_obs": "rolling"})
    orchestrator = build(cfg)
    orchestrator.algorithm.collect(moment(cfg.algorithm.config))
    normalizer = orchestrator.evaluator.normalizer
    before = {k: np.array(v) for k, v in normalizer.state_dict().items()}
    orchestrator.evaluator.evaluate(0)
    assert all(np.array_equal(v, normalizer.state_dict()[k]) for k, v in before.items())
    close(orchestrator)


def test_it_uses_the_current_weights() -> None:
    """A policy forced to push right must be seen at once."""
    cfg = config(SMALL, training={"evaluation": {"episodes": 4}})
    orchestrator = build(cfg)
    policy, learner = orchestrator.algorithm.policy, orchestrator.algorithm.learner
    for action in (0, 1):
        with torch.no_grad():
            policy.actor[-1].bias.copy_(torch.tensor([10.0, -10.0] if action == 0 else [-10.0, 10.0]))
        learner.version += 1
        seen = []
        env_factory = orchestrator.evaluator._make_env
        env = env_factory(4)
        step = env.step
        env.step = lambda a, step=step, seen=seen: seen.append(np.array(a)) or step(a)
        orchestrator.evaluator._env = env
        result = orchestrator.evaluator.evaluate(0)
        assert set(np.concatenate(seen).tolist()) == {action}
        assert result.mean < 12
        env.close()
    close(orchestrator)


@pytest.mark.parametrize(("episodes", "envs"), [(1, None), (5, 2), (7, 3), (3, 8), (20, None)])
def test_exact_number_of_finished_episodes(episodes: int, envs: int | None) -> None:
    orchestrator = build(config(SMALL, training={"evaluation": {"episodes": episodes, "num_envs": envs}}))
    result = orchestrator.evaluator.evaluate(0)
    assert result.episodes == len(result.lengths) == episodes
    assert result.returns == tuple(float(length) for length in result.lengths), "CartPole pays 1 a step"
    assert max(result.lengths) <= result.total_vec_steps < result.total_timesteps + 1
    assert result.total_timesteps == result.total_vec_steps * (envs or min(episodes, 16)) >= sum(result.lengths)
    close(orchestrator)


class Uneven:
    """Three environments: the first ends every step, the others every tenth; each pays its own number once."""

    id, num_envs = "Uneven-v0", 3

    def reset(self, seeds):
        self.t = 0
        return np.zeros((3, 4), np.float32)

    def step(self, action):
        self.t += 1
        ended = np.array([True, self.t % 10 == 0, self.t % 10 == 0])
        self.raw_reward = np.where(ended, [0.0, 1.0, 2.0], 0.0)
        nothing = np.zeros(3, bool)
        return StepResult(np.zeros((3, 4), np.float32), self.raw_reward, ended, nothing, None, self.raw_reward)

    def close(self):
        pass


def test_every_environment_has_its_share() -> None:
    """First come, first counted would favour whoever ends early."""
    orchestrator = build(config(SMALL, training={"evaluation": {"episodes": 7, "num_envs": 3}}))
    orchestrator.evaluator._env = Uneven()
    result = orchestrator.evaluator.evaluate(0)
    assert sorted(result.returns) == [0, 0, 0, 1, 1, 2, 2]
    close(orchestrator)


def test_repeatable_and_different_later() -> None:
    orchestrator = build(config(SMALL, training={"evaluation": {"episodes": 8, "deterministic": False}}))
    evaluator = orchestrator.evaluator
    first, again, later = evaluator.evaluate(100), evaluator.evaluate(100), evaluator.evaluate(200)
    assert first.returns == again.returns
    assert first.returns != later.returns
    close(orchestrator)


def test_a_confirmation_plays_other_episodes() -> None:
    orchestrator = build(config(SMALL, training={"evaluation": {"episodes": 8, "deterministic": False}}))
    evaluator = orchestrator.evaluator
    first, fresh, again = evaluator.evaluate(100), evaluator.confirm(100, 8), evaluator.confirm(100, 8)
    assert fresh.returns == again.returns
    assert fresh.returns != first.returns
    assert evaluator.confirm(100, 3).episodes == 3
    assert evaluator.evaluate(100).returns == first.returns, "what comes later does not know of it"
    close(orchestrator)


class Doubter(Callback):
    """Asks for fresh episodes after every evaluation."""

    def on_evaluation(self, run, result) -> None:
        run.confirm(5)


class Rows(Sink):
    """Keeps the rows, without timings."""

    def __init__(self) -> None:
        self.rows: list[dict] = []

    def write(self, row) -> None:
        self.rows.append({k: v for k, v in row.items() if "time/" not in k and k != "seconds"})


class Saver(Callback):
    """Keeps the state at the end of an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch, self.state = epoch, None

    def on_epoch_end(self, run) -> None:
        if run.progress.epochs == self.epoch:
            self.state = copied(run.state_dict())


REPLAY = {"learning_starts": 64, "batch_size": 16, "epoch_steps": 128}
ALGORITHMS = {
    "ppo": (SMALL, {}, {"network": {"memory": "gru"}, "environment": {"normalize_obs": "rolling"}}),
    "dqn": ({"name": "dqn", **REPLAY}, {"deterministic": False}, {}),
    "sac": ({"name": "sac", **REPLAY}, {"deterministic": False}, {"env": "Pendulum-v1"}),
    "reinforce": ({"name": "reinforce", "rollout_steps": 64}, {}, {}),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_confirming_changes_no_weight_and_is_exact_over_resume(name: str) -> None:
    algorithm, habit, parts = ALGORITHMS[name]
    training = {"total_timesteps": 1_024, "evaluation": {"every_steps": 200, "episodes": 2, **habit}}
    cfg = config(algorithm, training=training, **parts)

    def train(*callbacks, state=None):
        sink = Rows()
        found = build(cfg, sinks=[sink], callbacks=callbacks, will_checkpoint=True)
        if state is not None:
            found.load_state_dict(state)
        found.run()
        close(found)
        return fingerprint(found.state_dict()["algorithm"]), sink.rows

    plain, _ = train()
    saver = Saver(3)
    whole, rows = train(Doubter(), saver)
    assert whole == plain
    assert sum(row.get("val/roll/episodes") == 5 for row in rows) >= 2
    resumed, later = train(Doubter(), state=saver.state)
    assert resumed == whole
    assert later == rows[-len(later) :] and 0 < len(later) < len(rows)


def test_timeout_reports_what_finished() -> None:
    orchestrator = build(
        config(SMALL, env="Pendulum-v1", training={"evaluation": {"episodes": 4_000, "timeout_seconds": 0.2}})
    )
    result = orchestrator.evaluator.evaluate(0)
    assert result.episodes < 4_000
    assert result.seconds < 5
    close(orchestrator)


def test_training_environments_are_untouched() -> None:
    cfg = config(SMALL)
    plain, watched = build(cfg), build(cfg)
    now = moment(cfg.algorithm.config)
    for orchestrator in (plain, watched):
        orchestrator.algorithm.collect(now)
        if orchestrator is watched:
            orchestrator.evaluator.evaluate(0)
        orchestrator.algorithm.collect(now)
    a, b = plain.algorithm.experience.columns, watched.algorithm.experience.columns
    assert all(torch.equal(a[name], b[name]) for name in a)
    close(plain)
    close(watched)


class Watching:
    """A policy that notes what it sees."""

    deterministic_evaluation = True

    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []

    def initial_state(self, batch: int):
        return ()

    def act(self, obs, state, first, *, deterministic):
        self.seen.append(obs.copy())
        return ActResult(np.zeros(len(obs), np.int64), state, {})


def planned(episodes: int, plans) -> tuple[Evaluator, Planned, ObservationNormalizer]:
    """An evaluator of planned episodes whose normaliser has learned something."""
    env, normalizer = Planned(plans), ObservationNormalizer("rolling", BOX)
    normalizer.update(np.random.default_rng(0).normal(3.0, 5.0, (100, 3)).astype(np.float32))
    cfg = config(SMALL, training={"evaluation": {"episodes": episodes, "num_envs": len(plans)}}).training.evaluation
    streams = Streams(0)
    made = Evaluator(
        cfg, Watching(), lambda _: env, streams, rng=streams.generator("evaluation"), normalizer=normalizer
    )
    return made, env, normalizer


def test_returns_are_what_the_environment_pays() -> None:
    """Not what its wrappers make of it for the learner: a tenth and one more."""
    evaluator, *_ = planned(4, [[(4, "terminated")], [(2, "truncated")]])
    result = evaluator.evaluate(0)
    assert sorted(result.returns) == [3, 3, 10, 10]
    assert sorted(result.lengths) == [2, 2, 4, 4]


def test_a_lost_life_is_not_the_end() -> None:
    evaluator, *_ = planned(2, [[(2, "life"), (3, "terminated")]])
    assert evaluator.evaluate(0).returns == (9, 9)


def test_the_policy_sees_normalised_observations() -> None:
    evaluator, env, normalizer = planned(2, [[(4, "terminated")]])
    evaluator.evaluate(0)
    seen, shown = evaluator.algorithm.seen, env.shown
    assert len(seen) == 8
    for ours, raw in zip(seen, shown, strict=False):
        np.testing.assert_array_equal(ours, normalizer.apply(raw))
        assert not np.array_equal(ours, raw)


def test_a_video_shows_the_same_policy() -> None:
    """Its observations are normalised, too."""
    evaluator, env, normalizer = planned(2, [[(4, "terminated")]])
    assert sum(len(step.frames) for step in episodes(evaluator.act, env, [1], 1, render=True)) == 5
    for ours, raw in zip(evaluator.algorithm.seen, env.shown, strict=False):
        np.testing.assert_array_equal(ours, normalizer.apply(raw))
    assert len(evaluator.algorithm.seen) == 4


def test_a_player_has_the_normaliser_of_its_checkpoint() -> None:
    """What play, evaluate and the inspector see is what the trained policy saw."""
    cfg = config(SMALL, environment={"normalize_obs": "rolling"}, training={"total_timesteps": 256})
    trained = run(cfg)
    collector = trained.algorithm.collector
    spaces = Spaces(collector.env.observation_space, collector.env.action_space)
    player = build_player(cfg, spaces, trained.state_dict())
    assert player.normalizer is not None and player.normalizer.parts.moments.count == 256
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_array_equal(player.normalizer.apply(obs), trained.evaluator.normalizer.apply(obs))
    assert not np.array_equal(player.normalizer.apply(obs), obs)
