"""Faults 40-43, 47-49 and 53, injected for real: workers are killed, hang, raise and lose their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.conftest import Make, children
from ludus.errors import ConfigError, EnvironmentFailed
from ludus.types import tree_map

TWO = np.zeros(2, int)
FOUR = np.zeros(4, int)
LONG = {"length": 50}


def workers_of(env: Any) -> list[int]:
    return [worker._process.pid for worker in env._workers]


def step_until_failure(env: Any, steps: int = 20) -> EnvironmentFailed:
    with pytest.raises(EnvironmentFailed) as caught:
        for _ in range(steps):
            env.step(np.zeros(env.num_envs, int))
    error = caught.value
    assert "\n" not in error.line() and error.exit_code == 4
    return error


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_an_environment_that_raises_is_named_and_its_traceback_kept(make: Make, backend: str) -> None:
    env = make("Probe/Faulty-v0", vectorization=backend, kwargs={"what": "raise"})
    env.reset([5, 6, 7, 8])
    error = step_until_failure(env)
    assert error.line().startswith("environment 0 (Probe/Faulty-v0, seed 5): step raised ValueError: the floor is")
    assert 'raise ValueError("the floor is' in error.detail and "lava" in error.detail


def test_the_index_is_the_one_of_the_whole_vector(make: Make) -> None:
    """Only environment 3 fails: the last of the second worker."""
    env = make("Probe/RaisesOnReset-v0", vectorization="async", num_envs=4, workers=2)
    env.reset([5, 6, 7, 3])  # seed 3 is one life short
    error = step_until_failure(env)
    assert error.line().startswith("environment 3 (Probe/RaisesOnReset-v0, seed 3): step raised RuntimeError: no more")


def test_a_killed_worker_is_named_with_its_signal(make: Make) -> None:
    env = make("CartPole-v1", vectorization="async", num_envs=4, workers=2)
    env.reset([10, 11, 12, 13])
    env.step(FOUR)
    os.kill(workers_of(env)[1], signal.SIGKILL)
    line = step_until_failure(env).line()
    assert line.startswith("environments 2 to 3 (CartPole-v1, seeds 12, 13): its worker was killed by SIGKILL")
    assert "likely out of memory" in line and "on_worker_death=restart" in line


def test_a_worker_that_dies_in_a_step_names_the_very_environment(make: Make) -> None:
    env = make("Probe/Faulty-v0", vectorization="async", num_envs=2, kwargs={"what": "kill"})
    env.reset([1, 2])
    line = step_until_failure(env).line()
    assert line.startswith("environment 0 (Probe/Faulty-v0, seed 1): its worker was killed by SIGKILL, likely out of")


def test_a_worker_that_leaves_is_named_with_its_exit_code(make: Make) -> None:
    env = make("Probe/Faulty-v0", vectorization="async", num_envs=2, kwargs={"what": "exit"})
    env.reset([1, 2])
    assert "ended with exit code 3" in step_until_failure(env).line()


def test_a_hanging_worker_is_stopped_at_the_deadline(make: Make) -> None:
    fields = {"num_envs": 2, "workers": 1, "step_deadline": 0.5, "kwargs": {"what": "hang"}}
    env = make("Probe/Faulty-v0", vectorization="async", **fields)
    env.reset([1, 2])
    began = time.monotonic()
    line = step_until_failure(env).line()
    assert time.monotonic() - began < 5
    assert line.startswith("environment 0 (Probe/Faulty-v0, seed 1): no answer within 0.5 s, its worker was stopped")
    assert "step_deadline" in line
    env.close()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("what", ["kill", "hang"])
def test_restart_drops_the_broken_episodes(make: Make, tmp_path: Path, what: str) -> None:
    faults = {"what": what, "marker": str(tmp_path / "done"), "at": 6}
    fields = {"on_worker_death": "restart", "step_deadline": 1.0, "kwargs": faults}
    env = make("Probe/Faulty-v0", vectorization="async", num_envs=4, workers=2, **fields)
    last = env.reset([1, 2, 3, 4]).copy()
    old = workers_of(env)
    for _ in range(20):
        result = env.step(FOUR)
        if result.broken is not None:
            break
        last = result.obs.copy()
    assert result.broken is not None and result.broken.sum() == 2
    assert result.broken[:2].all() != result.broken[2:].all()
    rows = result.broken.copy()
    assert (result.truncated == rows).all() and not result.terminated.any()
    assert (result.reward[rows] == 0).all() and (result.raw_reward[rows] == 0).all()
    np.testing.assert_array_equal(result.final_obs[rows], last[rows])  # the last good one, not a half-written one
    assert (result.obs[rows] == 0).all()  # a new life
    assert (result.obs[~rows] == last[~rows] + 1).all()  # the others went on
    assert len(env.restarts) == 1 and len(set(workers_of(env)) & set(old)) == 1
    result = env.step(FOUR)
    assert result.broken is None and (result.obs[rows] == 1).all()


def test_every_part_of_a_broken_observation_is_the_last_good_one(make: Make) -> None:
    env = make("LookAndFeel-v0", vectorization="async", num_envs=2, workers=2, on_worker_death="restart", kwargs=LONG)
    last = tree_map(np.copy, env.reset([1, 2]))
    os.kill(workers_of(env)[0], signal.SIGKILL)
    result = env.step(TWO)
    assert result.broken is not None and result.broken.tolist() == [True, False]
    for part in ("camera", "touch"):
        np.testing.assert_array_equal(result.final_obs[part][0], last[part][0])
        assert (result.obs[part] != last[part]).any()


def test_restarted_environments_get_fresh_seeds(make: Make) -> None:
    env = make("CartPole-v1", vectorization="async", num_envs=2, workers=2, on_worker_death="restart")
    first = env.reset([1, 2]).copy()
    env.step(TWO)
    os.kill(workers_of(env)[0], signal.SIGKILL)
    result = env.step(TWO)
    assert result.broken is not None and result.broken.tolist() == [True, False]
    assert (result.obs[0] != first[0]).any() and np.abs(result.obs[0]).max() <= 0.05
    assert env.restarts[0].startswith("environment 0 (CartPole-v1, seed 1): its worker was killed")  # type: ignore[attr-defined]


def test_a_worker_lost_between_rollouts_is_replaced_at_the_reset(make: Make) -> None:
    env = make("CartPole-v1", vectorization="async", num_envs=2, workers=2, on_worker_death="restart")
    first = env.reset([1, 2]).copy()
    os.kill(workers_of(env)[0], signal.SIGKILL)
    np.testing.assert_array_equal(env.reset([1, 2]), first)
    result = env.step(TWO)
    assert result.broken is None and result.reward.tolist() == [1, 1]


def test_an_environment_that_dies_at_once_again_ends_the_run(make: Make, tmp_path: Path) -> None:
    """No endless chain of restarts."""
    fields = {"on_worker_death": "restart", "kwargs": {"what": "kill_if", "marker": str(tmp_path / "now")}}
    env = make("Probe/Faulty-v0", vectorization="async", num_envs=1, **fields)
    env.reset([1])
    env.step(np.zeros(1, int))
    (tmp_path / "now").touch()
    assert "SIGKILL" in step_until_failure(env).line()
    assert len(env.restarts) == 1  # type: ignore[attr-defined]


def test_workers_ignore_the_signals_of_their_group(make: Make) -> None:
    env = make("CartPole-v1", vectorization="async", num_envs=2)
    env.reset([1, 2])
    for pid in workers_of(env):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(pid, number)
    assert env.step(TWO).reward.tolist() == [1, 1]


def test_close_leaves_no_process_and_may_be_called_twice(make: Make) -> None:
    before = children()
    env = make("CartPole-v1", vectorization="async", num_envs=4, workers=2)
    assert len(children() - before) == 2
    env.reset(range(4))
    env.close()
    env.close()
    assert children() == before


def test_no_orphans_after_the_parent_is_killed(tmp_path: Path) -> None:
    """One worker waits for a command, the other one hangs in a step."""
    faults = {"what": "hang", "at": 5, "marker": str(tmp_path / "hung")}
    script = f"""
import numpy as np
from envs.probes import register_probes
from ludus.config.schema import Environment
from ludus.envs.make import make_vector
from ludus.types import tree_map
register_probes()
env = make_vector(Environment(id="Probe/Faulty-v0", num_envs=2, workers=2, vectorization="async", kwargs={faults}))
env.reset([0, 1])
print(*[w._process.pid for w in env._workers], flush=True)
for _ in range(6): env.step(np.zeros(2, int))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment, text=True)
    with parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        deadline = time.monotonic() + 10
        while not (tmp_path / "hung").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(pids) == 2 and all(Path(f"/proc/{pid}").exists() for pid in pids)
        parent.kill()
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_what_goes_wrong_while_making_is_the_same_line_from_a_worker(make: Make) -> None:
    before = children()
    for backend in ("sync", "async"):
        with pytest.raises(EnvironmentFailed, match="making it raised RuntimeError: no licence") as caught:
            make("Probe/RaisesOnInit-v0", vectorization=backend)
        assert "no licence" in caught.value.detail
        with pytest.raises(ConfigError, match="Text observation space, which is not supported"):
            make("Probe/Spaces-v0", vectorization=backend, kwargs={"observation": "text"})
    assert children() == before


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_nan_passes_through_for_the_collector_to_name(make: Make, backend: str) -> None:
    for what, field in (("nan_obs", "obs"), ("nan_reward", "reward")):
        env = make("Probe/Faulty-v0", vectorization=backend, num_envs=2, kwargs={"what": what, "at": 4})
        env.reset([0, 1])
        for _ in range(4):
            result = env.step(TWO)
            if np.isnan(getattr(result, field)[0]).any():
                break
        assert np.isnan(getattr(result, field)[0]).any()
        assert not result.terminated.any()


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_an_environment_that_ends_the_program_ends_itself_only(make: Make, backend: str) -> None:
    env = make("Probe/Leaves-v0", vectorization=backend, num_envs=2)
    env.reset([1, 2])
    assert "environment 0 (Probe/Leaves-v0, seed 1): step raised SystemExit: 0" in step_until_failure(env).line()


def test_a_worker_whose_environment_raises_ctrl_c_prints_nothing(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    env = make("Probe/Leaves-v0", vectorization="async", num_envs=2, workers=2, kwargs={"kind": "interrupt"})
    env.reset([1, 2])
    assert "step raised KeyboardInterrupt" in step_until_failure(env).line()
    env.close()
    assert capfd.readouterr().err == ""


def test_a_close_that_raises_is_named_after_all_were_closed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from envs.faulty_probes import Unclosable

    monkeypatch.setattr(Unclosable, "closed", 0)
    env = make("Probe/Unclosable-v0", num_envs=3, kwargs={"at": 2})  # the first one is that of the start-up check
    env.reset([5, 6, 7])
    with pytest.raises(EnvironmentFailed, match=r"environment 0 \(Probe/Unclosable-v0, seed 5\): close raised OSError"):
        env.close()
    assert Unclosable.closed == 4
