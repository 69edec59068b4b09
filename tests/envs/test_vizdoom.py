"""ViZDoom: where scenarios come from, what an episode's end looks like, shaping, and a clean working directory."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from envs.conftest import Make
from ludus.config.compose import find_targets, load
from ludus.config.schema import Environment
from ludus.envs.make import make_env, make_vector
from ludus.errors import ConfigError, EnvironmentFailed

vizdoom = pytest.importorskip("vizdoom")

from ludus.envs.suites.vizdoom import SCENARIOS, find_scenario  # noqa: E402 - registers its ids

PACKAGE = Path(vizdoom.scenarios_path)


@pytest.fixture
def doom() -> Iterator[Any]:
    made: list[gym.Env] = []

    def build(id: str = "VizDoom-Basic-v0", **fields: Any) -> gym.Env:
        made.append(make_env(Environment(id=id, **fields)))
        return made[-1]

    yield build
    for env in made:
        env.close()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with a scenario of one's own: basic without the attack button."""
    text = (PACKAGE / "basic.cfg").read_text().replace("        ATTACK\n", "")
    (tmp_path / "basic.cfg").write_text(text)
    shutil.copy(PACKAGE / "basic.wad", tmp_path)
    return tmp_path


def test_scenarios_come_from_the_package(doom: Any) -> None:
    assert find_scenario("basic") == PACKAGE / "basic.cfg"
    env = doom()
    assert env.unwrapped.buttons == ("MOVE_LEFT", "MOVE_RIGHT", "ATTACK") and env.action_space == gym.spaces.Discrete(4)


def test_scenarios_come_from_a_folder_of_the_user(doom: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIZDOOM_SCENARIOS_DIR", str(elsewhere))
    assert find_scenario("basic") == elsewhere / "basic.cfg"
    assert find_scenario("take_cover") == PACKAGE / "take_cover.cfg"  # what is not there
    env = doom()
    env.reset(seed=0)
    assert env.unwrapped.buttons == ("MOVE_LEFT", "MOVE_RIGHT")


def test_scenarios_come_from_a_path_in_the_config(
    doom: Any, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("VIZDOOM_SCENARIOS_DIR", str(tmp_path_factory.mktemp("empty")))
    monkeypatch.chdir(elsewhere)
    for path in (str(elsewhere / "basic.cfg"), "basic.cfg"):
        env = doom(kwargs={"config_path": path})
        env.reset(seed=0)
        assert env.unwrapped.buttons == ("MOVE_LEFT", "MOVE_RIGHT")


@pytest.mark.parametrize("kwargs", [{"scenario": "nowhere"}, {"config_path": "/nowhere.cfg"}])
def test_a_missing_scenario_names_the_three_places(kwargs: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        make_vector(Environment(id="VizDoom-Basic-v0", kwargs=kwargs))
    line = caught.value.line()
    assert "nowhere" in line and "\n" not in line
    assert all(place in line for place in ("config_path", "VIZDOOM_SCENARIOS_DIR", "package vizdoom"))


def test_a_missing_wad_is_one_line(elsewhere: Path) -> None:
    (elsewhere / "basic.wad").unlink()
    kwargs = {"config_path": str(elsewhere / "basic.cfg")}
    with pytest.raises(ConfigError, match=r"basic\.cfg needs .*basic\.wad"):
        make_vector(Environment(id="VizDoom-Basic-v0", kwargs=kwargs, num_envs=1))


def test_bad_arguments() -> None:
    for kwargs in ({"frame_skip": 0}, {"actions": "x"}, {"resolution": "1x1"}):
        with pytest.raises(EnvironmentFailed, match="making it raised ValueError"):
            make_env(Environment(id="VizDoom-Basic-v0", kwargs=kwargs))


def test_the_working_directory_stays_clean(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for backend in ("sync", "async"):
        env = make("VizDoom-Basic-v0", vectorization=backend, num_envs=2, workers=2)
        env.reset([0, 1])
        env.step(np.zeros(2, int))
        env.close()
    assert list(tmp_path.iterdir()) == []


def test_no_two_engines_start_in_one_folder_at_once(doom: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One removed the folder that the other had just made: it crashed, once in some thousand starts."""
    monkeypatch.chdir(tmp_path)
    env = doom().unwrapped
    start = env.game.init
    locked = []

    def watched() -> None:
        here = os.open(tmp_path, os.O_RDONLY)
        try:
            fcntl.flock(here, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked.append(True)
        os.close(here)
        start()

    game = env.game
    env.game = SimpleNamespace(init=watched)
    env._start()
    env.game = game
    assert locked


def test_the_pipeline(make: Make) -> None:
    env = make("VizDoom-Basic-v0", num_envs=2, grayscale_obs=True, resize_obs=84, frame_stack=4)
    assert env.observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    first = env.reset([0, 1]).copy()
    assert (first[:, 0] == first[:, 3]).all() and first.std() > 10
    again = env.reset([0, 1])
    np.testing.assert_array_equal(first, again)
    assert (env.reset([2, 3]) != first).any()


@pytest.mark.parametrize("skip", [1, 4, 7])
def test_time_is_up_with_a_true_screen(doom: Any, skip: int) -> None:
    """300 tics, however many to a step; the package's own environment shows black then."""
    env = doom(kwargs={"frame_skip": skip})
    env.reset(seed=0)
    total, steps, truncated = 0.0, 0, False
    while not truncated:
        obs, reward, terminated, truncated, _ = env.step(0)
        assert not terminated
        total, steps = total + reward, steps + 1
    assert (total, steps) == (-300, -(-300 // skip)) and obs.std() > 10


def test_death_keeps_the_last_screen(doom: Any) -> None:
    env = doom("VizDoom-DeadlyCorridor-v0")
    before, _ = env.reset(seed=0)
    terminated = False
    while not terminated:
        obs, reward, terminated, truncated, _ = env.step(0)
        assert not truncated
        if not terminated:
            before = obs
    np.testing.assert_array_equal(obs, before)
    assert reward <= -90 and obs.std() > 5


def test_buttons_are_pressed(doom: Any) -> None:
    single = doom().unwrapped
    assert [single.pressed(a).tolist() for a in range(3)] == [[False] * 3, [True, False, False], [False, True, False]]
    both = doom(kwargs={"actions": "combined"})
    assert both.action_space == gym.spaces.MultiBinary(3)
    pictures = []
    for env, action in ((doom(), 1), (both, np.array([1, 0, 0])), (both, np.array([0, 1, 0]))):
        env.reset(seed=0)
        for _ in range(5):
            obs = env.step(action)[0]
        pictures.append(obs.copy())
    np.testing.assert_array_equal(pictures[0], pictures[1])
    assert (pictures[0] != pictures[2]).any()


def test_mouse_buttons_are_left_out(doom: Any) -> None:
    buttons = doom("VizDoom-Deathmatch-v0").unwrapped.buttons
    assert len(buttons) == 17 and not any(name.endswith("_DELTA") for name in buttons)


@pytest.mark.parametrize("actions", ["single", "combined"])
def test_shaping_pays_for_what_the_game_counts(doom: Any, actions: str) -> None:
    shaper = {"id": "vizdoom_shaping", "variables": {"AMMO2": 2.0}, "attack": -0.5}
    env = doom(kwargs={"actions": actions, "frame_skip": 4}, wrappers=[shaper])
    fire, wait = (3, 0) if actions == "single" else (np.array([0, 0, 1]), np.array([0, 0, 0]))
    env.reset(seed=0)
    assert env.step(wait)[1] == -4
    paid = [env.step(fire) for _ in range(4)]
    rewards = [reward - info["raw_reward"] for _, reward, _, _, info in paid]
    assert min(rewards) == -2.5 and max(rewards) == -0.5  # a bullet leaves in one of them
    assert sum(rewards) == -4 * 0.5 - 2.0 * rewards.count(-2.5)


def test_shaping_refuses_what_it_does_not_know() -> None:
    def refusal(id: str, **arguments: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            make_env(Environment(id=id, wrappers=[{"id": "vizdoom_shaping", **arguments}]))
        return caught.value.line()

    assert "is for VizDoom, not for CartPoleEnv" in refusal("CartPole-v1")
    assert "'LUCK' is no game variable" in refusal("VizDoom-Basic-v0", variables={"LUCK": 1.0})
    assert "no button ATTACK" in refusal("VizDoom-TakeCover-v0", attack=-1.0)


def test_every_scenario_has_a_config_and_runs(doom: Any) -> None:
    configured = {target.spec.partition(":")[0] for target in find_targets("VizDoom")}
    assert configured == {f"VizDoom-{name}-v0" for name in SCENARIOS if name != "HealthGatheringSupreme"}
    for stem in sorted(configured):
        config = load(f"{stem}:ppo").config.environment
        assert config.id == stem and config.reward_threshold is not None
        env = make_env(config)
        env.action_space.seed(0)
        env.reset(seed=0)
        for _ in range(3):
            obs = env.step(env.action_space.sample())[0]
        assert obs.shape == (4, 84, 84)
        env.close()


@pytest.mark.slow
def test_episodes_are_saved_by_replay(make: Make) -> None:
    shaped = {"grayscale_obs": True, "resize_obs": 42, "wrappers": [{"id": "vizdoom_shaping"}]}
    one, other = (make("VizDoom-DefendTheCenter-v0", num_envs=2, **shaped) for _ in range(2))
    assert one.choose_snapshot_method() == other.choose_snapshot_method() == "replay"
    one.reset([0, 1]), other.reset([2, 3])
    rng = np.random.default_rng(0)
    for _ in range(40):
        one.step(rng.integers(4, size=2))
    other.restore(one.snapshot())
    for action in rng.integers(4, size=(60, 2)):
        a, b = one.step(action), other.step(action)
        for x, y in zip(a[:4], b[:4], strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("word", ["vizdoom_path", "ViZDoomPath"])
def test_a_scenario_from_elsewhere_starts_no_other_program(doom: Any, elsewhere: Path, word: str) -> None:
    program = elsewhere / "program"
    program.write_text(f"#!/bin/sh\ntouch {elsewhere / 'canary'}\n")
    program.chmod(0o755)
    scenario = elsewhere / "basic.cfg"
    scenario.write_text(f"{scenario.read_text()}\n{word} = program\n")
    env = doom(kwargs={"config_path": str(scenario)})
    assert env.unwrapped.game.get_vizdoom_path() == vizdoom.exe_path
    env.reset(seed=0)
    assert not (elsewhere / "canary").exists()


@pytest.mark.parametrize("name", ["scenario_config_file", "config_file", "vizdoom_path", "game_args"])
def test_the_packages_own_environments_start_no_other_program(doom: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=f"environment.kwargs.{name}: may not be set by a config; known: frame_skip"):
        doom("VizdoomBasic-v1", kwargs={name: "/tmp/program"})
    assert doom("VizdoomBasic-v1", kwargs={"frame_skip": 2}).unwrapped.frame_skip == 2
