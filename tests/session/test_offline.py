"""Runs that only learn from stored steps: no environment is made, nothing else is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ludus.archive import checkpoint
from ludus.config.read import to_yaml
from ludus.data.buffers.saving import describe_space, read_space
from ludus.data.buffers.stored import StoredConfig
from ludus.envs import deployment, make
from ludus.errors import ConfigError
from ludus.interface import make_env
from ludus.metrics.sinks.jsonl import read_rows
from ludus.policy import load_policy

DQN = {"name": "dqn", "batch_size": 16, "lr": "lin_0.001", "learning_starts": 32, "target_every": 10}


@pytest.fixture
def steps(ludus: Any, tmp_path: Path) -> Path:
    """A run that has stored 256 steps of CartPole."""
    algorithm, training = {**DQN, "update_ratio": 0.05}, {"total_timesteps": 256}
    environment = {"id": "CartPole-v1", "num_envs": 4}
    file = write(tmp_path, "collect", environment=environment, algorithm=algorithm, training=training)
    done = ludus("train", file, "-q")
    assert done.code == 0, done.err
    return (tmp_path / "runs" / "@last").resolve()


@pytest.fixture
def no_environments(steps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments cannot be looked up, described or made, as if their package were not installed."""

    def absent(cfg: Any, *_: Any, **__: Any) -> None:
        raise AssertionError(f"somebody asked for {cfg.id}")

    for module in (make, deployment):
        monkeypatch.setattr(module, "resolve", absent)


def write(folder: Path, name: str, **sections: Any) -> str:
    """A config file; its path."""
    path = folder / f"{name}.yaml"
    path.write_text(to_yaml({"experiment": {"name": name}, "runtime": {"compile": "never"}, **sections}))
    return str(path)


def offline(folder: Path, steps: Path, environment: str = "Nowhere-v0", **training: Any) -> str:
    """A config that learns from stored steps; its path."""
    training = {"total_updates": 60, "epoch_updates": 20, "checkpoints": {"every_updates": 20, "keep": 9}, **training}
    section = {"environment": {"id": environment}} if environment else {}
    buffers = {"replay": {"type": "stored", "path": str(steps)}}
    return write(folder, "offline", algorithm=DQN, buffers=buffers, training=training, **section)


def last_run(folder: Path) -> Path:
    return (folder / "runs" / "@last").resolve()


@pytest.mark.usefixtures("no_environments")
def test_it_trains_without_any_environment(ludus: Any, tmp_path: Path, steps: Path) -> None:
    done = ludus("train", offline(tmp_path, steps), "-q")
    assert done.code == 0, done.err
    run = last_run(tmp_path)
    rows = list(read_rows(run / "metrics.jsonl"))
    assert [(row["epoch"], row["env_steps"], row["updates"]) for row in rows] == [(1, 0, 20), (2, 0, 40), (3, 0, 60)]
    assert [row["train/hp/lr"] for row in rows] == pytest.approx([1e-3, 2e-3 / 3, 1e-3 / 3]), "its schedules move"
    assert all(row["train/time/eta_seconds"] >= 0 for row in rows[:-1])
    assert list(checkpoint.checkpoints(run)) == ["update=0", "update=20", "update=40", "update=60"]
    assert str((run / "checkpoints" / "last").readlink()) == "update=60"
    weights = [checkpoint.load(path)["algorithm"]["learner"] for path in checkpoint.checkpoints(run).values()]
    assert not all((weights[-2]["model"][name] == weights[-1]["model"][name]).all() for name in weights[-1]["model"])
    status = json.loads((run / "status.json").read_text())
    assert (status["state"], status["updates"], status["env_steps"]) == ("finished", 60, 0)
    assert "60 / 60 updates" in done.out or "for 0 steps, 3 epochs, 60 updates" in done.out


@pytest.mark.usefixtures("no_environments")
@pytest.mark.parametrize("environment", ["", "Nowhere-v0"])
def test_its_policy_needs_no_environment_either(ludus: Any, tmp_path: Path, steps: Path, environment: str) -> None:
    assert ludus("train", offline(tmp_path, steps, environment), "-q").code == 0
    assert load_policy(last_run(tmp_path))(np.zeros((3, 4))).shape == (3,)


def test_sampled_actions_explore_no_more_than_at_the_end_of_a_schedule(ludus: Any, tmp_path: Path, steps: Path) -> None:
    """A run that has never explored does not act at random, as one does that is about to begin."""
    assert ludus("train", offline(tmp_path, steps), "-q").code == 0
    sampled, greedy = (load_policy(last_run(tmp_path), deterministic=habit, seed=1) for habit in (False, True))
    obs = np.random.default_rng(0).normal(size=(1000, 4))
    other = np.mean(sampled(obs) != greedy(obs))
    assert 0.01 < other < 0.05, "0.05 / 2 of the actions are drawn and differ"


def test_a_run_without_an_environment_says_so(ludus: Any, tmp_path: Path, steps: Path) -> None:
    assert ludus("train", offline(tmp_path, steps, ""), "-q").code == 0
    with pytest.raises(ConfigError, match="has no environment; name one"):
        make_env(last_run(tmp_path))


def test_it_plays_and_is_evaluated_later(ludus: Any, tmp_path: Path, steps: Path) -> None:
    assert ludus("train", offline(tmp_path, steps, "CartPole-v1"), "-q").code == 0
    done = ludus("evaluate", "@last/update=40", "-n", "2", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["checkpoint"] == "update=40"
    assert ludus("play", "@last", "--episodes", "1", "--render", "none").code == 0
    done = ludus("play", "@last/step=40")
    assert (done.code, "no such checkpoint" in done.err, "update=40" in done.err) == (2, True, True)


def test_evaluation_may_name_an_environment(ludus: Any, tmp_path: Path, steps: Path) -> None:
    evaluation = {"every_updates": 20, "episodes": 2}
    done = ludus("train", offline(tmp_path, steps, "CartPole-v1", evaluation=evaluation), "-q")
    assert done.code == 0, done.err
    rows = list(read_rows(last_run(tmp_path) / "metrics.jsonl"))
    assert all("val/roll/ep_rew/mean" in row for row in rows)
    best = json.loads((last_run(tmp_path) / "metrics.json").read_text())
    assert str((last_run(tmp_path) / "checkpoints" / "best").readlink()) == f"update={best['best_step']}"
    assert best["threshold"] == 475.0


@pytest.mark.usefixtures("no_environments")
def test_without_one_it_says_that_it_is_not_evaluated(ludus: Any, tmp_path: Path, steps: Path) -> None:
    done = ludus("train", offline(tmp_path, steps, "", evaluation={"every_updates": 20}), "-q")
    assert done.code == 0, done.err
    assert done.out.count("environment.id is not set: the run is not evaluated\n") == 1
    assert "ludus play @last --env ID" in done.out
    done = ludus("play", "@last")
    assert done.code == 2
    assert "environment.id is not set: the run learned without an environment; name one: --env ID" in done.err


def test_a_run_without_an_environment_is_played_in_one_that_is_named(ludus: Any, tmp_path: Path, steps: Path) -> None:
    assert ludus("train", offline(tmp_path, steps, ""), "-q").code == 0
    assert ludus("play", "@last", "--env", "CartPole-v1", "--episodes", "1", "--render", "none").code == 0
    assert ludus("evaluate", "@last", "--env", "CartPole-v1", "-n", "2").code == 0
    done = ludus("evaluate", "@last", "--env", "Acrobot-v1", "-n", "2")
    assert (done.code, "does not fit" in done.err) == (3, True)
    done = ludus("play", str(steps.name), "--env", "Acrobot-v1")
    assert (done.code, "the run has its own environment, CartPole-v1" in done.err) == (2, True)


def test_an_environment_with_other_spaces_is_refused(ludus: Any, tmp_path: Path, steps: Path) -> None:
    done = ludus("train", offline(tmp_path, steps, "Acrobot-v1", evaluation={"every_updates": 20}), "-q")
    assert done.code == 2
    assert "environment.id: its observation or action space differs from that of the stored steps" in done.err


def test_a_goal_that_nobody_evaluates_is_refused(ludus: Any, tmp_path: Path, steps: Path) -> None:
    done = ludus("train", offline(tmp_path, steps, "CartPole-v1", stop={"eval_reward": "threshold"}), "-q")
    assert done.code == 2
    assert "training.stop.eval_reward: nothing is evaluated in this run; set it to null" in done.err


@pytest.mark.usefixtures("no_environments")
def test_a_finished_run_can_be_extended(ludus: Any, tmp_path: Path, steps: Path) -> None:
    assert ludus("train", offline(tmp_path, steps), "-q").code == 0
    done = ludus("resume", "@last")
    assert "give it a larger training.total_updates, or another goal of training.stop, to go on" in done.out
    assert ludus("resume", "@last", "training.total_updates=80").code == 0
    assert str((last_run(tmp_path) / "checkpoints" / "last").readlink()) == "update=80"


@pytest.mark.usefixtures("no_environments")
def test_it_goes_back_to_an_earlier_update(ludus: Any, tmp_path: Path, steps: Path) -> None:
    assert ludus("train", offline(tmp_path, steps), "-q").code == 0
    run = last_run(tmp_path)
    before = checkpoint.load(checkpoint.find(run, "last"))
    done = ludus("resume", "@last/update=20")
    assert done.code == 0, done.err
    assert "resumed at 20 updates, 2 later rows set aside" in done.out
    assert {"superseded=40", "superseded=60"} <= {path.name for path in (run / "checkpoints").iterdir()}
    after = checkpoint.load(checkpoint.find(run, "last"))
    names = before["algorithm"]["learner"]["model"]
    assert all((names[name] == after["algorithm"]["learner"]["model"][name]).all() for name in names)


def test_actions_of_another_scale_are_refused(ludus: Any, tmp_path: Path) -> None:
    """PPO stores actions as the environment takes them, SAC learns from actions between -1 and 1."""
    environment = {"id": "Pendulum-v1", "num_envs": 2}
    replay = {"name": "ppo_replay", "rollout_steps": 16, "epochs": 1}
    steps = write(tmp_path, "a", environment=environment, algorithm=replay, training={"total_timesteps": 64})
    assert ludus("train", steps, "-q").code == 0
    buffers = {"replay": {"type": "stored", "path": str(last_run(tmp_path))}}
    sac = {"name": "sac", "batch_size": 8}
    file = write(tmp_path, "b", algorithm=sac, buffers=buffers, training={"total_updates": 4})
    done = ludus("train", file, "-q")
    assert done.code == 2
    assert "actions there are in the bounds of the environment, this algorithm learns from actions scaled" in done.err


@pytest.mark.parametrize("field", ["normalize_obs", "normalize_reward"])
def test_statistics_of_collected_steps_are_refused(ludus: Any, tmp_path: Path, steps: Path, field: str) -> None:
    done = ludus("train", offline(tmp_path, steps), f"environment.{field}=true", "-q")
    assert done.code == 2
    assert f"environment.{field}: its statistics come from collected steps" in done.err


def test_steps_that_do_not_say_their_spaces_are_refused(ludus: Any, tmp_path: Path, steps: Path) -> None:
    index = steps / "buffers" / "replay" / "index.json"
    content = json.loads(index.read_text())
    del content["observation"]
    index.write_text(json.dumps(content))
    done = ludus("train", offline(tmp_path, steps), "-q")
    assert done.code == 2
    assert "does not say which spaces its steps have; collect them again" in done.err
    content["observation"] = {"type": "box", "shape": [4]}
    index.write_text(json.dumps(content))
    assert ludus("train", offline(tmp_path, steps), "-q").code == 3


def test_an_online_run_still_needs_an_environment(ludus: Any, tmp_path: Path) -> None:
    done = ludus("train", write(tmp_path, "none", algorithm=DQN), "-q")
    assert done.code == 2
    assert "environment: is missing" in done.err
    done = ludus("train", write(tmp_path, "none", algorithm=DQN, training={"total_updates": 5}), "-q")
    assert done.code == 2
    assert "environment.id: the run has neither an environment nor stored steps to learn from" in done.err
    assert "set buffers.replay to" in done.err
    iql = {"algorithm": "iql", "buffers": {"demos": {"type": "uniform"}}, "training": {"total_updates": 5}}
    assert "set buffers.demos to" in ludus("train", write(tmp_path, "iql", **iql), "-q").err


def test_a_link_to_the_newest_run_is_written_down_as_that_run(tmp_path: Path) -> None:
    """The run that reads it would become the newest one."""
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "@last").symlink_to("a")
    assert StoredConfig(path=str(tmp_path / "runs" / "@last")).path == str(tmp_path / "runs" / "a")
    assert StoredConfig(path="elsewhere").path == "elsewhere"


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Box(0, 255, (3, 8, 8), np.uint8),
        gym.spaces.Box(np.array([-np.inf, -0.1], np.float32), np.array([0.3, np.inf], np.float32)),
        gym.spaces.Box(-1.0, 1.0, (), np.float64),
        gym.spaces.Discrete(3, start=-1),
        gym.spaces.MultiDiscrete([2, 3], start=[1, 0]),
        gym.spaces.MultiBinary([2, 3]),
        gym.spaces.Dict(image=gym.spaces.Box(0, 255, (1, 4, 4), np.uint8), speed=gym.spaces.Box(-1, 1, (2,))),
        gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Box(0, 1, (1,))]),
    ],
    ids=str,
)
def test_a_space_comes_back_from_its_description(space: gym.Space) -> None:
    assert read_space(json.loads(json.dumps(describe_space(space)))) == space
