"""Image wrappers: values against other people's, any order of axes, single environments and whole vectors alike."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from envs.conftest import Make
from envs.test_contract import assert_same, play
from ludus.config.schema import Environment
from ludus.envs.make import make_env, make_vector
from ludus.envs.vector import VectorEnv
from ludus.envs.wrappers.images import coverage
from ludus.errors import ConfigError, DataError
from ludus.registry import WRAPPERS
from ludus.types import Array


class Screen(gym.Env):
    """Random pictures; `layout` is the order of their axes."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, layout: str = "HWC", height: int = 12, width: int = 10, steps: int = 5, render_mode: Any = None):
        shapes = {"HWC": (height, width, 3), "CHW": (3, height, width), "HW": (height, width)}
        self.observation_space = Box(0, 255, shapes[layout], np.uint8)
        self.action_space = gym.spaces.Discrete(2)
        self.render_mode, self._steps, self._t = render_mode, steps, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._t = 0
        return self._picture(), {}

    def step(self, action: Any) -> Any:
        self._t += 1
        return self._picture(), 1.0, self._t >= self._steps, False, {}

    def render(self) -> Array:
        return np.full((6, 8, 3), self._t, np.uint8)

    def _picture(self) -> Array:
        return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)


@pytest.fixture(autouse=True, scope="module")
def screen() -> None:
    gym.register("Screen-v0", Screen)
    gym.register("FlatScreen-v0", FlatScreen)


def shown(layout: str, *wrappers: dict[str, Any], **fields: Any) -> tuple[Array, Array]:
    """A picture [H, W, C] and what becomes of it."""
    kwargs = {"layout": layout, **fields.pop("kwargs", {})}
    plain = make_env(Environment(id="Screen-v0", kwargs=kwargs)).reset(seed=3)[0]
    env = make_env(Environment(id="Screen-v0", kwargs=kwargs, wrappers=wrappers, **fields))
    obs, _ = env.reset(seed=3)
    assert env.observation_space.contains(obs) and obs.dtype == np.uint8 and obs.ndim == 3
    return plain.transpose(1, 2, 0), obs


LAYOUTS = ("HWC", "CHW", "HW")


class FlatScreen(Screen):
    """The same pictures as one row of numbers."""

    def __init__(self, layout: str = "HWC", **options: Any) -> None:
        super().__init__(layout, **options)
        self.picture_space = self.observation_space
        self.observation_space = Box(0, 255, (int(np.prod(self.picture_space.shape)),), np.uint8)

    def _picture(self) -> Array:
        return self.np_random.integers(0, 256, self.picture_space.shape, np.uint8).ravel()


@pytest.mark.parametrize(("layout", "shape"), [("HWC", [12, 10, 3]), ("CHW", [3, 12, 10]), ("HW", [12, 10])])
def test_a_flat_picture_of_a_known_shape_is_a_picture(layout: str, shape: list[int]) -> None:
    picture, plain = shown(layout)
    kwargs, wrappers = {"layout": layout}, [{"id": "unflatten", "shape": shape}]
    env = make_env(Environment(id="FlatScreen-v0", kwargs=kwargs, wrappers=wrappers))
    obs, _ = env.reset(seed=3)
    np.testing.assert_array_equal(obs, plain)
    assert env.observation_space.contains(obs) and env.observation_space.shape == plain.shape
    assert picture.shape == (*obs.shape[1:], obs.shape[0])


@pytest.mark.parametrize(
    ("shape", "words"),
    [([12, 10, 4], "has 480 numbers, the observation 360"), ([12, 30, -1], "numbers"), ([360], "shape")],
)
def test_a_shape_that_does_not_fit_is_refused(shape: list[int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_env(Environment(id="FlatScreen-v0", wrappers=[{"id": "unflatten", "shape": shape}]))


def test_only_vectors_are_unflattened() -> None:
    with pytest.raises(ConfigError, match="needs a vector"):
        make_env(Environment(id="Screen-v0", wrappers=[{"id": "unflatten", "shape": [12, 10, 3]}]))


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_gray_is_opencvs_to_the_bit(layout: str) -> None:
    picture, gray = shown(layout, {"id": "grayscale"})
    # cv2.cvtColor(x, COLOR_RGB2GRAY): 9798, 19235 and 3735 parts of 32768, rounded
    expected = (picture.astype(int) @ [9798, 19235, 3735] + 16384) >> 15
    np.testing.assert_array_equal(gray, expected[None])


def test_known_colours_are_gray_as_in_opencv() -> None:
    known = {(255, 0, 0): 76, (0, 255, 0): 150, (0, 0, 255): 29, (255, 255, 255): 255, (10, 200, 30): 124}
    wrapper = WRAPPERS["grayscale"](Screen(height=2, width=len(known)))
    image = np.array([list(known)] * 2, np.uint8)
    assert wrapper.observation(image).tolist() == [[list(known.values())] * 2]


def test_gray_images_stay_and_stacks_are_refused() -> None:
    picture, gray = shown("HW", {"id": "grayscale"})
    np.testing.assert_array_equal(gray[0], picture[..., 0])
    with pytest.raises(ConfigError, match="put it before frame_stack"):
        make_env(Environment(id="Screen-v0", wrappers=[{"id": "frame_stack"}, {"id": "grayscale"}]))


def area(line: Array, new: int) -> list[Fraction]:
    """Means of equal parts of a line, by the definition."""
    size = Fraction(len(line), new)
    means = []
    for i in range(new):
        begin, end = i * size, (i + 1) * size
        pieces = range(floor(begin), ceil(end))
        means.append(sum((min(end, j + 1) - max(begin, j)) * int(line[j]) for j in pieces) / size)
    return means


@pytest.mark.parametrize(("old", "new"), [(12, 7), (12, 4), (5, 12), (7, 7), (10, 3)])
def test_coverage_is_exact(old: int, new: int) -> None:
    line = np.random.default_rng(0).integers(0, 256, old)
    weights, units = coverage(old, new)
    assert [Fraction(int(s), units) for s in weights @ line] == area(line, new)


def test_areas_are_means_and_ties_are_opencvs() -> None:
    picture, small = shown("HWC", {"id": "resize", "size": [5, 4]})
    assert small.shape == (3, 5, 4)
    channel = picture[..., 1]
    rows = np.array([area(channel[:, j], 5) for j in range(channel.shape[1])]).T
    exact = np.array([area_of_fractions(row, 4) for row in rows])
    np.testing.assert_array_equal(small[1], [[round(value) for value in row] for row in exact])
    wrapper = WRAPPERS["resize"](Screen(height=2, width=4), size=(1, 2))
    image = np.repeat(np.array([[0, 1, 3, 4], [1, 0, 4, 3]], np.uint8)[..., None], 3, -1)
    assert wrapper.observation(image)[0].tolist() == [[1, 4]]  # 0.5 and 3.5: cv2.resize(..., INTER_AREA) gives 1 and 4


def area_of_fractions(line: Any, new: int) -> list[Fraction]:
    size, means = Fraction(len(line), new), []
    for i in range(new):
        begin, end = i * size, (i + 1) * size
        pieces = range(floor(begin), ceil(end))
        means.append(sum((min(end, j + 1) - max(begin, j)) * line[j] for j in pieces) / size)
    return means


def test_sizes() -> None:
    for size, shape in ((True, (3, 84, 84)), (6, (3, 6, 6)), ([6, 9], (3, 6, 9))):
        assert shown("HWC", {"id": "resize", "size": size})[1].shape == shape
    assert shown("HWC", {"id": "resize"})[1].shape == (3, 84, 84)
    picture, same = shown("CHW", {"id": "resize", "size": [12, 10]})
    np.testing.assert_array_equal(same.transpose(1, 2, 0), picture)
    with pytest.raises(ConfigError, match="size must be positive"):
        shown("HWC", {"id": "resize", "size": 0})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_crops(layout: str) -> None:
    picture, part = shown(layout, {"id": "crop", "top": 1, "bottom": 2, "right": 3})
    np.testing.assert_array_equal(part.transpose(1, 2, 0), picture[1:-2, :-3])
    with pytest.raises(ConfigError, match="leaves nothing"):
        shown(layout, {"id": "crop", "top": 6, "bottom": 6})
    with pytest.raises(ConfigError, match="cannot be negative"):
        shown(layout, {"id": "crop", "top": -1})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_channels_come_first_asked_or_not(layout: str) -> None:
    picture, asked = shown(layout, {"id": "channels_first"})
    _, anyway = shown(layout)
    np.testing.assert_array_equal(asked, anyway)
    np.testing.assert_array_equal(asked.transpose(1, 2, 0), picture)


def test_the_fields_are_the_pipeline_of_deepmind() -> None:
    cfg = Environment(id="Screen-v0", grayscale_obs=True, resize_obs=True, frame_stack=4, num_envs=2)
    env = make_vector(cfg)
    assert env.reset([1, 2]).shape == (2, 4, 84, 84) and env.observation_space.dtype == np.uint8 and env.info.is_image
    wrappers = [{"id": "grayscale"}, {"id": "resize"}, {"id": "frame_stack", "frames": 4}]
    listed = make_vector(Environment(id="Screen-v0", wrappers=wrappers, num_envs=2))
    assert_same(play(env, 12), play(listed, 12))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stacks_hold_the_last_frames_oldest_first(layout: str) -> None:
    plain = make_env(Environment(id="Screen-v0", kwargs={"layout": layout}))
    env = make_env(Environment(id="Screen-v0", kwargs={"layout": layout}, frame_stack=3))
    for seed in (1, None):
        frames = [plain.reset(seed=seed)[0]]
        seen = env.reset(seed=seed)[0]
        np.testing.assert_array_equal(seen, np.concatenate([frames[0]] * 3))
        for _ in range(4):
            frames.append(plain.step(0)[0])
            before, kept = seen, seen.copy()
            seen = env.step(0)[0]
            expected = [frames[max(0, len(frames) - 3 + i)] for i in range(3)]
            np.testing.assert_array_equal(seen, np.concatenate(expected))
            np.testing.assert_array_equal(before, kept)


class Whole(VectorEnv):
    """A sync vector that says it is native: the wrappers of its environments work on the vector."""

    def __new__(cls, wrappers: list[dict[str, Any]], **fields: Any) -> Any:
        venv: VectorEnv = make_vector(Environment(vectorization="sync", num_envs=4, **fields))
        for wrapper in wrappers:
            arguments = {name: value for name, value in wrapper.items() if name != "id"}
            venv = WRAPPERS[wrapper["id"]].vectorize(venv, **arguments)
        return venv


PIPELINES: dict[str, list[dict[str, Any]]] = {
    "grayscale": [{"id": "grayscale"}],
    "resize": [{"id": "resize", "size": 6}],
    "crop": [{"id": "crop", "left": 2}],
    "channels_first": [{"id": "channels_first"}],
    "frame_stack": [{"id": "frame_stack", "frames": 3}],
    "all": [{"id": "crop", "top": 1}, {"id": "grayscale"}, {"id": "resize", "size": 7}, {"id": "frame_stack"}],
}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_whole_vectors_see_what_single_environments_see(make: Make, name: str, layout: str) -> None:
    wrappers, kwargs = PIPELINES[name], {"layout": layout}
    whole = Whole(wrappers, id="Screen-v0", kwargs=kwargs)
    single = make("Screen-v0", kwargs=kwargs, wrappers=wrappers)
    assert whole.observation_space == single.observation_space
    assert_same(play(whole, 17), play(single, 17))


def test_vectors_are_stacked_natively_too(make: Make) -> None:
    one, two = (make("CartPole-v1", vectorization=backend, frame_stack=3) for backend in ("sync", "native"))
    assert two.backend == "native" and one.observation_space == two.observation_space
    assert one.observation_space.shape == (12,)
    assert_same(play(one, 60), play(two, 60))


@pytest.mark.parametrize("backend", ["sync", "async", "native"])
def test_a_restored_stack_has_its_old_frames(make: Make, backend: str) -> None:
    env, other = (make("CartPole-v1", vectorization=backend, frame_stack=3) for _ in range(2))
    assert env.choose_snapshot_method() == "adapter"
    for each, seed in ((env, 1), (other, 50)):
        each.reset(range(seed, seed + 4))
        for _ in range(5):
            each.step(np.ones(4, int))
    state, last = env.snapshot(), env.step(np.zeros(4, int)).obs.copy()
    other.restore(state)
    np.testing.assert_array_equal(other.step(np.zeros(4, int)).obs, last)


def test_a_stack_of_another_size_is_no_state(make: Make) -> None:
    env, other = (make("CartPole-v1", vectorization="native", frame_stack=frames) for frames in (3, 2))
    env.reset(range(4))
    other.reset(range(4))
    with pytest.raises(DataError, match="state of its wrappers does not fit"):
        other.restore(env.snapshot())
    with pytest.raises(DataError, match="state of its wrappers does not fit"):
        other.restore({})


def test_pixels_are_what_is_drawn(make: Make) -> None:
    env = make("Screen-v0", wrappers=[{"id": "pixels_only"}], num_envs=2)
    assert env.observation_space == Box(0, 255, (3, 6, 8), np.uint8)
    assert (env.reset([1, 2]) == 0).all() and (env.step(np.zeros(2, int)).obs == 1).all()
    np.testing.assert_array_equal(env.render(0), np.full((6, 8, 3), 1))


def test_pixels_need_something_to_draw() -> None:
    with pytest.raises(ConfigError, match="cannot be shown as 'rgb_array'"):
        make_env(Environment(id="Bandit-v0", wrappers=[{"id": "pixels_only"}]))


@pytest.mark.parametrize("id", ["grayscale", "resize", "crop", "channels_first"])
def test_only_images_are_pictures(id: str) -> None:
    with pytest.raises(ConfigError, match=r"needs images \(uint8, 0 to 255\)"):
        make_env(Environment(id="CartPole-v1", wrappers=[{"id": id}]))


def test_other_names() -> None:
    pairs = {
        "grayscale": ("GrayscaleObservation",),
        "resize": ("ResizeObservation",),
        "crop": ("CropObservation",),
        "frame_stack": ("FrameStack", "FrameStackObservation", "VecObservationStackWrapper"),
        "pixels_only": ("PixelObservationWrapper", "AddRenderObservation"),
    }
    for name, others in pairs.items():
        assert all(WRAPPERS[other] is WRAPPERS[name] for other in others)


class Cells(gym.Env):
    """Cells of a grid with the number of each cell in its channels."""

    action_space = Discrete(2)

    def __init__(self, shape: tuple[int, ...] = (9, 12, 20)) -> None:
        self.observation_space = Box(0, 255, shape, np.uint8)
        self._picture = (np.arange(np.prod(shape)) % 251).reshape(shape).astype(np.uint8)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._picture, {}

    def step(self, action: Any) -> Any:
        return self._picture, 0.0, False, False, {}


gym.register("Cells-v0", entry_point=Cells, max_episode_steps=5)


def cells(shape: tuple[int, ...], *wrappers: Any, **fields: Any) -> tuple[np.ndarray, np.ndarray]:
    """(the picture, what the policy sees of it)"""
    settings = {"kwargs": {"shape": shape}, "wrappers": wrappers, "num_envs": 1, "vectorization": "sync", **fields}
    cfg = Environment(id="Cells-v0", **settings)
    with make_vector(cfg) as env:
        seen = env.reset([0])[0].copy()
        assert seen.shape == env.observation_space.shape
    return Cells(shape)._picture, seen


@pytest.mark.parametrize("shape", [(40, 44, 2), (9, 9, 20), (20, 22, 30)])
def test_frames_are_stacked_along_the_channels(shape: tuple[int, ...]) -> None:
    """Of images with any number of channels, and the stack is not taken for something else afterwards."""
    wrappers = [{"id": "channels_first", "channels": "last"}] if shape == (20, 22, 30) else []
    picture, seen = cells(shape, *wrappers, frame_stack=4)
    np.testing.assert_array_equal(seen, np.concatenate([np.moveaxis(picture, -1, 0)] * 4))


def test_where_the_shape_says_nothing_the_config_does() -> None:
    """9 x 12 cells of 20 channels look like 9 channels of 12 x 20 pixels."""
    picture, guessed = cells((9, 12, 20))
    np.testing.assert_array_equal(guessed, picture)
    _, told = cells((9, 12, 20), {"id": "channels_first", "channels": "last"})
    np.testing.assert_array_equal(told, np.moveaxis(picture, -1, 0))
    _, told = cells((9, 9, 20), {"id": "channels_first", "channels": "first"})
    np.testing.assert_array_equal(told, Cells((9, 9, 20))._picture)
    with pytest.raises(ConfigError, match="channels: Input should be 'auto', 'first' or 'last'"):
        cells((9, 9, 20), {"id": "channels_first", "channels": "middle"})
