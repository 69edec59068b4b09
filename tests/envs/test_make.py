"""From a config to environments: names, arguments, backends, and what is said when they do not fit (fault 43)."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from envs.conftest import Make
from envs.probes import Counter
from ludus.config.schema import Environment, Wrapper
from ludus.envs import catalog
from ludus.envs.make import cores, make_env, make_vector
from ludus.errors import ConfigError, EnvironmentFailed, LudusError, MissingExtra
from ludus.registry import WRAPPERS


def refusal(id: str, **fields: Any) -> str:
    with pytest.raises(LudusError) as caught:
        make_vector(Environment(id=id, **fields))
    line = caught.value.line()
    assert caught.value.exit_code in (2, 4) and "\n" not in line and len(line) < 400
    return line


@pytest.mark.parametrize(
    ("id", "remedy"),
    [
        ("CartPole-v2", "use 'CartPole-v1'"),
        ("CartPole", "use 'CartPole-v1'"),
        ("Carpole-v1", "did you mean 'CartPole-v1'?"),
        ("cartpole-v1", "did you mean 'CartPole-v1'?"),
        ("Taxi-v3", "'Taxi-v3' is deprecated; use 'Taxi-v4'"),
        ("LunarLander-v2", "use 'LunarLander-v3'"),
        ("Bandt-v0", "did you mean 'Bandit-v0'?"),
        ("no such thing", "add --import PACKAGE"),
        ("os:CartPole-v1", "add --import os and write CartPole-v1"),
        ("mine.envs:Mine", "add --import mine.envs:Mine"),
    ],
)
def test_unknown_ids_are_answered_with_a_known_one(id: str, remedy: str) -> None:
    line = refusal(id)
    assert line.startswith("environment.id: ") and remedy in line


PARTS = ("gymnasium.envs.box2d", "gymnasium.envs.mujoco", "ludus.envs.suites.atari")
"""What an earlier test may have imported already."""


@pytest.mark.parametrize(
    ("id", "module", "extra"),
    [
        ("LunarLander-v3", "Box2D", "box2d"),
        ("HalfCheetah-v5", "mujoco", "mujoco"),
        ("ALE/Pong-v5", "ale_py", "atari"),
        ("MiniGrid-DoorKey-8x8-v0", "minigrid", "minigrid"),
        ("dm_control/cartpole-swingup-v0", "shimmy", "dmc"),
        ("VizdoomBasic-v1", "vizdoom", "vizdoom"),
    ],
)
def test_missing_packages_are_named_by_their_extra(monkeypatch: Any, id: str, module: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for name in [name for name in sys.modules if name.startswith(PARTS)]:
        monkeypatch.delitem(sys.modules, name)
    assert f"pip install 'ludus-rl[{extra}]'" in refusal(id)


def test_missing_envpool_is_named(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(MissingExtra, match=r"pip install 'ludus-rl\[envpool\]'"):
        make_vector(Environment(id="CartPole-v1", vectorization="envpool"))


def test_constructor_arguments_are_checked_and_reach_the_environment(make: Make) -> None:
    line = refusal("FrozenLake-v1", kwargs={"is_slipery": False})
    assert line.startswith("environment.kwargs.is_slipery: ") and "did you mean 'is_slippery'?" in line
    assert "max_episode_steps" in refusal("CartPole-v1", kwargs={"max_episode_steps": 3})
    assert "render_mode" in refusal("CartPole-v1", kwargs={"render_mode": "human"})
    env = make("FrozenLake-v1", kwargs={"map_name": "8x8"})
    assert env.observation_space == gym.spaces.Discrete(64)


def test_overrides_win(make: Make) -> None:
    cfg = Environment(id="CartPole-v1", num_envs=2, vectorization="sync")
    with make_vector(cfg, num_envs=3) as env:
        assert (env.num_envs, env.backend) == (3, "sync")
    with make_vector(cfg, vectorization="native", max_episode_steps=9, reward_threshold=1.0) as env:
        assert (env.num_envs, env.backend, env.max_episode_steps, env.reward_threshold) == (2, "native", 9, 1.0)
    with make_vector(cfg, num_envs=None, id="Pendulum-v1", vectorization="auto") as env:
        assert (env.id, env.backend) == ("Pendulum-v1", "sync")
    with make_vector(Environment(id="Probe/Constant-v0", num_envs="auto")) as env:
        assert env.num_envs == 8 * cores()


def test_auto_takes_native_where_it_is_equal() -> None:
    def backend(**fields: Any) -> str:
        with make_vector(Environment(**{"id": "CartPole-v1", "num_envs": 2, **fields})) as env:
            return env.backend

    assert backend() == "native"
    assert backend(id="CartPole-v0") == "native"
    assert backend(kwargs={"sutton_barto_reward": True}) == "native"
    assert backend(wrappers=[{"id": "mask_observation", "indices": [1, 3]}]) == "native"
    assert backend(wrappers=[{"id": "cart_pole_shaping"}]) == "sync"
    assert backend(id="Acrobot-v1") == "sync"


def test_native_is_refused_by_name_where_it_cannot_be() -> None:
    assert "'Acrobot-v1' cannot run natively: it has no vector entry point" in refusal(
        "Acrobot-v1", vectorization="native"
    )
    line = refusal("CartPole-v1", vectorization="native", wrappers=[{"id": "cart_pole_shaping"}])
    assert "wrappers.0 (cart_pole_shaping) works on single environments only" in line


class Twin(gym.vector.SyncVectorEnv):
    """A vector entry point whose constructor chooses the autoreset mode."""

    def __init__(self, num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP, **_: Any) -> None:
        if autoreset_mode not in self.accepts:
            autoreset_mode = AutoresetMode.NEXT_STEP
        fns = [lambda: gym.make("Probe/Counter-v0", disable_env_checker=True)] * num_envs
        super().__init__(fns, autoreset_mode=autoreset_mode)

    accepts = (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)


class Breaks(Twin):
    def step(self, actions: Any) -> Any:
        raise ValueError("broken glass")


class SelfReset(Twin):
    accepts = (AutoresetMode.DISABLED,)


class Stubborn(Twin):
    accepts = ()


@pytest.mark.parametrize("cls", [Twin, SelfReset])
def test_vector_classes_with_a_choice_of_autoreset_are_adapted(make: Make, cls: Any) -> None:
    from envs.test_contract import assert_same, play

    id = f"Probe/{cls.__name__}-v0"
    if id not in gym.registry:
        gym.register(id, "envs.probes:Counter", vector_entry_point=cls)
    env = make(id, vectorization="auto", num_envs=3)
    assert env.backend == "native"
    seeds = [0, 1, 2]  # gymnasium seeds the others with seed + index
    assert_same(play(make("Probe/Counter-v0", num_envs=3), 30, seeds=seeds), play(env, 30, seeds=seeds))


def test_native_environments_that_raise_are_named(make: Make) -> None:
    if "Probe/Breaks-v0" not in gym.registry:
        gym.register("Probe/Breaks-v0", "envs.probes:Counter", vector_entry_point=Breaks)
    env = make("Probe/Breaks-v0", vectorization="native")
    env.reset(range(4))
    with pytest.raises(EnvironmentFailed, match=r"Probe/Breaks-v0.*: step raised ValueError: broken glass"):
        env.step(np.zeros(4, int))


def test_vector_classes_that_only_know_the_next_step_are_not(monkeypatch: Any) -> None:
    if "Probe/Stubborn-v0" not in gym.registry:
        gym.register("Probe/Stubborn-v0", "envs.probes:Counter", vector_entry_point=Stubborn)
    monkeypatch.setitem(gym.vector.VectorEnv.metadata, "autoreset_mode", AutoresetMode.SAME_STEP)  # as ALE's does
    assert "only resets in the step after" in refusal("Probe/Stubborn-v0", vectorization="native")
    with make_vector(Environment(id="Probe/Stubborn-v0")) as env:
        assert env.backend == "sync"


def test_native_classes_that_show_something_else_are_not_taken_by_auto() -> None:
    if "Probe/Other-v0" not in gym.registry:
        gym.register("Probe/Other-v0", "envs.probes:Constant", vector_entry_point=Twin)
    with make_vector(Environment(id="Probe/Other-v0")) as env:
        assert env.backend == "sync"
    with make_vector(Environment(id="Probe/Other-v0", vectorization="native")) as env:
        assert env.backend == "native" and env.observation_space.shape == (2,)


def test_envpool_refusals() -> None:
    assert "EnvPool has no 'Probe/Counter-v0'" in refusal("Probe/Counter-v0", vectorization="envpool")
    line = refusal("CartPole-v1", vectorization="envpool", wrappers=[{"id": "clip_reward"}])
    assert "single environments only, not on the envpool backend" in line
    assert "EnvPool does not know it" in refusal("CartPole-v1", vectorization="envpool", kwargs={"gravity": 1})


def test_a_window_is_never_hidden(monkeypatch: Any) -> None:
    monkeypatch.setattr(catalog, "_set_by_us", set())
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        monkeypatch.delenv(name, raising=False)
    catalog.headless("human")
    assert "SDL_VIDEODRIVER" not in os.environ
    catalog.headless(None)
    assert os.environ["SDL_VIDEODRIVER"] == "dummy" and os.environ["SDL_AUDIODRIVER"] == "dummy"
    catalog.headless("human")  # the same process shows a window later
    assert "SDL_VIDEODRIVER" not in os.environ
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    catalog.headless("rgb_array")
    assert os.environ["SDL_VIDEODRIVER"] == "x11"  # the user's choice stays


PLUGIN = """
import gymnasium as gym
from ludus.registry import WRAPPERS

@WRAPPERS.register("double_reward")
class DoubleReward(gym.RewardWrapper):
    def __init__(self, env, factor: int = 2):
        super().__init__(env)
        self.factor = factor
    def reward(self, reward):
        return self.factor * reward

class Plain(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}
    def step(self, action):
        return int(action), 1.5, False, False, {}

gym.register("Plugin/Plain-v0", Plain)
"""


def test_wrappers_and_environments_from_a_plugin_file_work_everywhere(make: Make, tmp_path: Path) -> None:
    """Loaded by path, so no worker could import it by name."""
    import importlib.util

    path = tmp_path / "my_plugin.py"
    path.write_text(textwrap.dedent(PLUGIN))
    spec = importlib.util.spec_from_file_location("my_plugin", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["my_plugin"] = module
    try:
        spec.loader.exec_module(module)
        for backend in ("sync", "async"):
            env = make("Plugin/Plain-v0", vectorization=backend, wrappers=[{"id": "double_reward", "factor": 3}])
            env.reset(range(4))
            result = env.step(np.array([0, 1, 1, 0]))
            assert result.obs.tolist() == [0, 1, 1, 0]
            assert (result.reward == 4.5).all() and (result.raw_reward == 1.5).all()
        assert "did you mean 'factor'?" in refusal("Plugin/Plain-v0", wrappers=[{"id": "double_reward", "facto": 1}])
    finally:
        del sys.modules["my_plugin"]
        del WRAPPERS._classes["double_reward"]
        del gym.registry["Plugin/Plain-v0"]


def test_what_cannot_be_shown_is_refused(monkeypatch: Any) -> None:
    with pytest.raises(ConfigError, match="'Bandit-v0' cannot be shown as 'rgb_array'"):
        make_vector(Environment(id="Bandit-v0"), render_mode="rgb_array")
    monkeypatch.setitem(sys.modules, "pygame", None)
    for backend in ("sync", "native"):
        with make_vector(Environment(id="CartPole-v1", vectorization=backend), render_mode="rgb_array") as env:
            env.reset(range(8))
            with pytest.raises(MissingExtra, match=r"pip install 'ludus-rl\[video\]'"):
                env.render()


def test_single_environments() -> None:
    env = make_env(Environment(id="Probe/Spaces-v0", kwargs={"action": "discrete_start"}), render_mode="rgb_array")
    assert env.action_space == gym.spaces.Discrete(4) and env.render_mode == "rgb_array"
    env.reset(seed=0)
    assert env.step(0)[1] == 1.0
    env.close()


CORE = ("classic_control", "toy_text", "box2d")
IDS = [id for id, spec in gym.registry.items() if any(f"gymnasium.envs.{c}" in str(spec.entry_point) for c in CORE)]


@pytest.mark.parametrize("id", IDS)
def test_every_classic_toy_and_box2d_environment_runs(id: str) -> None:
    if "gymnasium.envs.box2d" in str(gym.registry[id].entry_point):
        pytest.importorskip("Box2D")
    with make_vector(Environment(id=id, num_envs=1, vectorization="sync")) as env:
        env.reset([0])
        env.action_space.seed(0)
        for _ in range(3):
            result = env.step(np.asarray([env.action_space.sample()]))
        assert np.isfinite(result.obs).all() and np.isfinite(result.reward).all()


def test_unknown_wrappers_are_answered_with_a_known_one() -> None:
    bad = Wrapper.model_construct(id="mask_observatoin")  # past the schema
    cfg = Environment(id="CartPole-v1").model_copy(update={"wrappers": (bad,)})
    with pytest.raises(ConfigError, match="did you mean 'mask_observation'"):
        make_vector(cfg)


@pytest.mark.parametrize("each", [True, False])
def test_every_seed_counts_in_a_vector_class(make: Make, each: bool) -> None:
    """One seed each where a class runs environments one by one, else all of them together in the one it takes."""
    told: list[Any] = []

    class Alone(gym.vector.VectorEnv):
        metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

        def __init__(self, num_envs: int) -> None:
            single = Counter()
            self.num_envs = num_envs
            self.single_observation_space, self.single_action_space = single.observation_space, single.action_space

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            told.append(seed)
            return np.stack([self.single_observation_space.sample()] * self.num_envs), {}

    class Listening(Twin):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            told.append(seed)
            return super().reset(seed=seed, options=options)

    id = f"Probe/Seeds{each}-v0"
    gym.register(id, "envs.probes:Counter", vector_entry_point=Listening if each else Alone)
    env = make(id, vectorization="native", num_envs=2)
    told.clear()
    for seeds in ([1, 2], [1, 3], [1, 2], [2, 1]):
        env.reset(seeds)
    assert told[0] == told[2]
    assert len({repr(seed) for seed in told}) == 3, "each of them matters, and whose it is"
    del gym.registry[id]
