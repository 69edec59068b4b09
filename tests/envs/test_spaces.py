"""Fault 52: every kind of space is supported on both backends, or refused by name; nothing is cast in silence."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from envs.conftest import Make
from envs.space_probes import ACTIONS, OBSERVATIONS, REFUSED_ACTIONS, REFUSED_OBSERVATIONS, Spaces
from ludus.envs.spaces import ConvertSpaces, convert_spaces
from ludus.errors import ConfigError
from ludus.spaces import action_conversion, observation_conversion
from ludus.types import space_tree, tree_index, tree_leaves, tree_map, tree_paths
from support import config, run

EXPECTED: dict[str, tuple[type, tuple[int, ...], Any]] = {
    "box": (spaces.Box, (3,), np.float32),
    "box64": (spaces.Box, (3,), np.float32),
    "box_2d": (spaces.Box, (2, 3), np.float32),
    "box_ints": (spaces.Box, (2,), np.int32),
    "scalar": (spaces.Box, (), np.float32),
    "unbounded": (spaces.Box, (2,), np.float32),
    "image_hwc": (spaces.Box, (3, 12, 10), np.uint8),
    "image_chw": (spaces.Box, (4, 12, 10), np.uint8),
    "image_grey": (spaces.Box, (1, 12, 10), np.uint8),
    "discrete": (spaces.Discrete, (), np.int64),
    "discrete_start": (spaces.Discrete, (), np.int64),
    "multi_discrete": (spaces.MultiDiscrete, (2,), np.int64),
    "multi_discrete_start": (spaces.MultiDiscrete, (2,), np.int64),
    "multi_discrete_2d": (spaces.MultiDiscrete, (4,), np.int64),
    "multi_binary": (spaces.MultiBinary, (4,), np.int8),
    "multi_binary_2d": (spaces.MultiBinary, (6,), np.int8),
    "dict": (spaces.Dict, [(2,), ()], {"a": np.float32, "b": np.int64}),
    "dict_nested": (spaces.Dict, [(2,), (2,)], {"a": {"b": np.int8}, "c": (np.int64,)}),
    "dict_with_image": (spaces.Dict, [(), (3, 8, 8)], {"a": np.int64, "image": np.uint8}),
    "tuple": (spaces.Tuple, [(), (), ()], (np.int64, np.int64, np.int64)),
    "tuple_uneven": (spaces.Tuple, [(), (3,)], (np.int64, np.float32)),
}


def inside(space: gym.Space, batch: Any) -> bool:
    return all(space.contains(tree_map(np.asarray, tree_index(batch, b))) for b in range(2))


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_observations_arrive_in_their_space(make: Make, kind: str) -> None:
    env = make("Probe/Spaces-v0", num_envs=2, kwargs={"observation": kind})
    cls, shape, dtype = EXPECTED[kind]
    assert isinstance(env.observation_space, cls)
    leaves = tree_leaves(space_tree(env.observation_space))
    assert tree_paths(space_tree(env.observation_space)) == tree_paths(dtype)
    assert [leaf.shape for leaf in leaves] == (shape if isinstance(shape, list) else [shape])
    obs = env.reset([1, 2])
    assert [leaf.dtype for leaf in tree_leaves(obs)] == [leaf.dtype for leaf in leaves] == tree_leaves(dtype)
    assert inside(env.observation_space, obs)
    for _ in range(6):
        result = env.step(np.zeros(2, int))
        assert inside(env.observation_space, result.obs)
    assert env.info.is_image == kind.startswith("image")


@pytest.mark.parametrize("kind", ACTIONS)
def test_actions_reach_the_environment_inside_its_space(make: Make, kind: str) -> None:
    env = make("Probe/Spaces-v0", num_envs=2, kwargs={"action": kind})
    space = env.action_space
    assert isinstance(space, spaces.Discrete) or len(space.shape or ()) == 1
    space.seed(0)
    env.reset([1, 2])
    for _ in range(10):
        action = np.stack([space.sample() for _ in range(2)])
        if isinstance(space, spaces.Box):
            action = action * 100  # far outside wherever there is an outside
        assert (env.step(action).reward == 1).all(), kind


def test_async_takes_all_of_them_too(make: Make) -> None:
    for observation, action in (
        ("dict", "box64"),
        ("dict_with_image", "discrete"),
        ("image_hwc", "multi_discrete_start"),
    ):
        seen = []
        for backend in ("sync", "async"):
            kwargs = {"observation": observation, "action": action}
            env = make("Probe/Spaces-v0", num_envs=2, vectorization=backend, kwargs=kwargs)
            space = env.action_space
            space.seed(0)
            seen.append([tree_map(np.copy, env.reset([1, 2]))])
            for _ in range(6):
                result = env.step(np.stack([space.sample() for _ in range(2)]))
                assert (result.reward == 1).all()
                seen[-1].append(tree_map(np.copy, result.obs))
        for one, other in zip(*(tree_leaves(tuple(each)) for each in seen), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("kind", "name"), [*((k, "observation") for k in REFUSED_OBSERVATIONS), *((k, "action") for k in REFUSED_ACTIONS)]
)
def test_the_rest_is_refused_by_name(make: Make, kind: str, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make("Probe/Spaces-v0", kwargs={name: kind})
    line = caught.value.line()
    assert "Probe/Spaces-v0" in line and f"{name} space" in line and "not supported" in line
    guilty = {"dict_with_text": "Text", "tuple_with_sequence": "'0'"}
    assert guilty.get(kind, kind.split("_")[0]).lower() in line.lower()


def test_values_cross_the_border_unharmed() -> None:
    image = np.arange(12 * 10 * 3, dtype=np.uint8).reshape(12, 10, 3)
    port = observation_conversion(OBSERVATIONS["image_hwc"](), "x")
    assert port.convert is not None
    np.testing.assert_array_equal(port.convert(image)[1], image[..., 1])
    np.testing.assert_array_equal(port.convert(np.stack([image, image]))[1, 2], image[..., 2])  # batched as well
    port = observation_conversion(OBSERVATIONS["discrete_start"](), "x")
    assert port.space == spaces.Discrete(5) and port.convert is not None and port.convert(7) == 4
    port = observation_conversion(OBSERVATIONS["dict"](), "x")
    assert port.convert is not None
    seen = port.convert({"a": np.array([0.5, -0.5]), "b": 2})
    assert seen["a"].dtype == np.float32 and seen["a"].tolist() == [0.5, -0.5] and seen["b"] == 2
    port = observation_conversion(OBSERVATIONS["dict_with_image"](), "x")
    pixels = np.arange(2 * 8 * 8 * 3).reshape(2, 8, 8, 3).astype(np.uint8)
    seen = port.convert({"a": np.array([0, 1]), "image": pixels})  # a batch
    np.testing.assert_array_equal(seen["image"][1, 2], pixels[1, ..., 2])
    port = action_conversion(ACTIONS["multi_discrete_start"](), "x")
    assert port.convert is not None and port.convert(np.array([1, 2])).tolist() == [6, 1]


def test_supported_spaces_cost_no_wrapper() -> None:
    plain = Spaces("box", "discrete")
    assert convert_spaces(plain, "x") is plain
    assert isinstance(convert_spaces(Spaces("image_hwc"), "x"), ConvertSpaces)


def test_small_uint8_grids_are_no_images() -> None:
    grid = spaces.Box(0, 3, (4, 4), np.uint8)
    assert observation_conversion(grid, "x").space is grid


@pytest.mark.parametrize(
    ("shape", "crossed"),
    [
        ((64, 64, 3), (3, 64, 64)),
        ((3, 64, 64), (3, 64, 64)),
        ((84, 84, 4), (4, 84, 84)),
        ((48, 64, 3), (3, 48, 64)),
        ((9, 9, 20), (20, 9, 9)),  # a grid of one-hots: more channels than cells in a row
        ((4, 4, 16), (16, 4, 4)),  # 2048
        ((20, 9, 9), (20, 9, 9)),
        ((40, 44, 2), (2, 40, 44)),
        ((2, 40, 44), (2, 40, 44)),
        ((12, 12, 6), (6, 12, 12)),
        ((10, 10, 10), (10, 10, 10)),
    ],
)
@pytest.mark.parametrize("most", [1, 255])
def test_the_axes_of_images(shape: tuple[int, ...], crossed: tuple[int, ...], most: int) -> None:
    """Two equal sides are height and width; else 1, 3 or 4 channels; else the shorter end. Values do not matter."""
    port = observation_conversion(spaces.Box(0, most, shape, np.uint8), "x")
    assert port.space.shape == crossed
    assert observation_conversion(port.space, "x").convert is None, "it is not guessed again"
    image = np.random.default_rng(0).integers(0, most + 1, (2, *shape), np.uint8)
    moved = image if port.convert is None else port.convert(image)
    expected = image if shape == crossed and shape[0] != shape[2] else np.moveaxis(image, -1, 1)
    np.testing.assert_array_equal(moved, expected)


class Number(gym.Env):
    """An observation that is one number, of shape ()."""

    observation_space, action_space = spaces.Box(-1, 1, (), np.float32), spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.float32(0.5), {}

    def step(self, action: Any) -> Any:
        return np.float32(self.np_random.uniform(-1, 1)), 1.0, self.np_random.random() < 0.2, False, {}


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
@pytest.mark.parametrize("encoder", [[], [8]])
def test_a_number_can_be_learned_from(algorithm: str, encoder: list[int]) -> None:
    gym.register("Number-v0", entry_point=Number)
    replay = (
        {"learning_starts": 16, "batch_size": 8, "epoch_steps": 64} if algorithm == "dqn" else {"rollout_steps": 16}
    )
    network = {"encoder": {"type": "mlp", "hidden_dims": encoder}}
    one = run(
        config({"name": algorithm, **replay}, env="Number-v0", network=network, training={"total_timesteps": 128})
    )
    assert one.progress.updates > 0
    del gym.registry["Number-v0"]


@pytest.mark.parametrize("shape", [(3, 3, 3), (5, 3, 3), (2, 2, 1)])
def test_the_tiniest_images_can_be_learned_from(shape: tuple[int, ...]) -> None:
    """`auto` picks an encoder that fits whatever there is."""

    class Tiny(Number):
        observation_space = spaces.Box(0, 255, shape, np.uint8)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.zeros(shape, np.uint8), {}

        def step(self, action: Any) -> Any:
            return self.np_random.integers(0, 256, shape, np.uint8), *super().step(action)[1:]

    gym.register("Tiny-v0", entry_point=Tiny)
    one = run(config({"name": "ppo", "rollout_steps": 8}, env="Tiny-v0", training={"total_timesteps": 64}))
    assert one.progress.updates > 0
    del gym.registry["Tiny-v0"]


@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
def test_trees_of_a_vector_class_equal_those_of_single_environments(make: Make, mode: str) -> None:
    """Gymnasium's own vector of a Dict environment, under the contract."""
    kwargs = {"observation": "dict_with_image"}

    def vector(num_envs: int, observation: str, autoreset_mode: Any) -> Any:
        if autoreset_mode.name != mode:
            autoreset_mode = gym.vector.AutoresetMode.NEXT_STEP  # it does not have the other one
        makers = [lambda: Spaces(observation) for _ in range(num_envs)]
        return gym.vector.SyncVectorEnv(makers, autoreset_mode=autoreset_mode)

    if (id := f"Probe/Vector{mode}-v0") not in gym.registry:
        gym.register(id, Spaces, vector_entry_point=vector)
    seen: list[list[Any]] = []
    for backend in ("sync", "native"):
        env = make(id, num_envs=2, vectorization=backend, kwargs=kwargs)
        seen.append([tree_map(np.copy, env.reset([1, 2]))])
        for _ in range(12):
            result = env.step(np.zeros(2, int))
            last = result.final_obs if result.final_obs is not None else tree_map(np.zeros_like, result.obs)
            seen[-1].append(tree_map(np.copy, (result.obs, tree_index(last, result.done))))
    for one, other in zip(*(tree_leaves(tuple(each)) for each in seen), strict=True):
        np.testing.assert_array_equal(one, other)
