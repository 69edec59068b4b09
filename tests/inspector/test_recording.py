"""Recorded episodes: the same wish gives the same bytes, and every number is what its name says."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ludus.inspector import columns, pictures, recording
from ludus.inspector.attention import rows
from ludus.inspector.dreams import imagined
from ludus.inspector.inside import look
from ludus.inspector.recording import Played, Wish, play, write
from ludus.play import episodes
from ludus.session.player import policy_in, run_config, seeded
from ludus.types import Array

Recorded = tuple[Played, dict[str, Any], Path]


@pytest.fixture(scope="module")
def record(runs: Path, ids: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Recorded]:
    """Plays and writes an episode once."""
    known: dict[tuple[Any, ...], Recorded] = {}

    def record(name: str, seed: int = 3, mode: str = "evaluation", steps: int = 40, again: int = 0) -> Recorded:
        key = (name, seed, mode, steps, again)
        if key not in known:
            folder = tmp_path_factory.mktemp("episode")
            wish = Wish(ids[name], "last", seed, mode, steps)
            played, places = play(runs, wish, [], folder / "frames.bin", lambda _: None)
            write(played, folder, places)
            known[key] = played, json.loads((folder / "episode.json").read_text()), folder
        return known[key]

    return record


def array(meta: dict[str, Any], folder: Path, name: str) -> Array:
    """A column of a recording."""
    place = meta["arrays"][name]
    data = (folder / "arrays.bin").read_bytes()[place["at"] :]
    return np.frombuffer(data, f"<{place['type']}", int(np.prod(place["shape"]))).reshape(place["shape"])


@pytest.mark.parametrize(
    "name", ["CartPole-v1-ppo", "CartPole-v1-ppo_gtrxl_masked", "CartPole-v1-dreamer", "Pendulum-v1-sac"]
)
@pytest.mark.parametrize("mode", ["greedy", "sampled"])
def test_the_same_wish_gives_the_same_episode(record: Callable[..., Recorded], name: str, mode: str) -> None:
    first, second = (record(name, mode=mode, again=again)[2] for again in (0, 1))
    for file in ("episode.json", "arrays.bin", "frames.bin"):
        assert (first / file).read_bytes() == (second / file).read_bytes()
    assert (record(name, seed=4, mode=mode)[2] / "arrays.bin").read_bytes() != (first / "arrays.bin").read_bytes()


def test_a_sampled_episode_is_not_the_greedy_one(record: Callable[..., Recorded]) -> None:
    greedy, sampled = (record("CartPole-v1-ppo", mode=mode, steps=600) for mode in ("greedy", "sampled"))
    assert (greedy[1]["greedy"], sampled[1]["greedy"]) == (True, False)
    probabilities, action = (array(*sampled[1:], name) for name in ("probabilities", "action"))
    assert (action != probabilities.argmax(1)).any()
    assert (array(*greedy[1:], "action") == array(*greedy[1:], "probabilities").argmax(1)).all()


def test_it_is_the_episode_that_evaluation_plays(record: Callable[..., Recorded], runs: Path) -> None:
    from ludus.archive.store import RunFolder
    from ludus.envs.make import make_vector

    played, meta, folder = record("CartPole-v1-ppo", mode="greedy", steps=600)
    run = RunFolder.load(runs, played.wish.run)
    config = seeded(run_config(run), 3)
    with make_vector(config.environment, num_envs=1, vectorization="sync") as env:
        act, _ = policy_in(config, run, "step=1024", env, True)
        steps = list(episodes(act, env, [3], 1))
    assert [int(step.action[0]) for step in steps] == array(meta, folder, "action").astype(int).tolist()
    assert meta["return"] == steps[-1].ended[0].total
    assert meta["end"] == "terminated"
    assert (meta["wish"]["checkpoint"], meta["greedy"]) == ("step=1024", True)


def test_every_picture_has_its_place(record: Callable[..., Recorded]) -> None:
    _, meta, folder = record("CartPole-v1-ppo")
    index, data = meta["frames"]["index"], (folder / "frames.bin").read_bytes()
    assert index[-1] == len(data)
    assert meta["frames"]["before"] == list(range(meta["steps"] + 1))
    assert len(index) == meta["steps"] + 2
    assert all(data[at : at + 4] == b"\x89PNG" for at in index[:-1])


def test_images_are_shown_channel_by_channel(record: Callable[..., Recorded]) -> None:
    _, meta, folder = record("MiniGrid-Empty-8x8-v0-ppo_rgb")
    assert meta["observation"]["images"]
    assert len(meta["seen"]["index"]) == meta["steps"] + 1
    assert (folder / "seen.bin").stat().st_size == meta["seen"]["index"][-1]


def test_numbers_follow_from_each_other(record: Callable[..., Recorded]) -> None:
    _, meta, folder = record("CartPole-v1-ppo", steps=600)
    reward, total, value, to_go, advantage, td, p, entropy = (
        array(meta, folder, name)
        for name in ("reward", "total", "value", "to_go", "advantage", "td_error", "probabilities", "entropy")
    )
    gamma = meta["gamma"]
    np.testing.assert_allclose(total, np.cumsum(reward))
    expected = [sum(gamma**k * r for k, r in enumerate(reward[t:])) for t in range(len(reward))]
    np.testing.assert_allclose(to_go, expected, rtol=1e-6)
    np.testing.assert_allclose(advantage, to_go - value)
    np.testing.assert_allclose(td[:-1], reward[:-1] + gamma * value[1:] - value[:-1], atol=1e-6)
    assert td[-1] == pytest.approx(reward[-1] - value[-1])  # nothing follows the end
    np.testing.assert_allclose(entropy, -(p * np.log(p)).sum(1), rtol=1e-4)


def test_a_cut_episode_is_worth_what_follows(record: Callable[..., Recorded]) -> None:
    played, meta, folder = record("Pendulum-v1-sac", steps=100)
    assert (meta["end"], meta["steps"]) == ("truncated", 40)
    reward, to_go = (array(meta, folder, name) for name in ("reward", "to_go"))
    assert to_go[-1] == pytest.approx(reward[-1] + meta["gamma"] * played.last_value)
    assert record("Pendulum-v1-sac", steps=10)[1]["end"] == "cut"


def test_columns_by_hand() -> None:
    reward, ended, done = np.array([1.0, 2.0, 3.0]), np.array([True, False, False]), np.array([True, False, False])
    following = np.array([9.0, 5.0, 10.0])
    assert columns.returns_to_go(reward, ended, done, following, 0.5).tolist() == [1.0, 2 + 0.5 * 8, 3 + 0.5 * 10]
    error = columns.td_errors(reward, ended, np.ones(3), following, 0.5)
    assert error.tolist() == [0.0, 3.5, 7.0]
    assert columns.generalized_advantages(error, done, 0.5, 0.5).tolist() == [0.0, 3.5 + 0.25 * 7, 7.0]
    assert columns.entropy(None, np.ones((2, 3)))[0] == pytest.approx(1.5 * np.log(2 * np.pi * np.e))  # type: ignore[index]
    assert np.isnan(columns.norm(()))
    assert columns.norm((np.array([3.0]), np.array([4.0]), np.array([100]))) == 5.0


def test_attention_is_that_of_acting(record: Callable[..., Recorded]) -> None:
    _, meta, folder = record("CartPole-v1-ppo_gtrxl_masked")
    attention = array(meta, folder, "attention")
    assert attention.shape == (meta["steps"], 1, 65)
    np.testing.assert_allclose(attention.sum(-1), 1, rtol=1e-5)
    assert attention[0, 0, -1] == 1  # the first step sees only itself
    assert (attention[3, 0, :-4] == 0).all()
    assert (attention[3, 0, -4:] > 0).all()
    assert meta["memory"]


def test_what_the_environment_tells_is_kept(record: Callable[..., Recorded]) -> None:
    _, meta, _ = record("CartPole-v1-ppo_gtrxl_masked")
    assert meta["info"]["raw_reward"] == [1.0] * meta["steps"]  # its reward is normalised for learning


def test_rows_of_chunks() -> None:
    weights = np.arange(24.0).reshape(2, 3, 4)  # 2 chunks of 3 queries, a memory of 1
    assert rows(weights, 1, 5).tolist() == [[0, 1], [5, 6], [10, 11], [12, 13], [17, 18]]


def test_what_is_hidden_has_no_weight(record: Callable[..., Recorded]) -> None:
    """Velocities are masked: neither a gradient nor an occlusion may point at them, both point at the others."""
    played, _, _ = record("CartPole-v1-ppo_gtrxl_masked")
    found = look(played, 7)
    for name in ("gradient", "occlusion"):
        assert found[name][1] == found[name][3] == 0
        assert found[name][0] > 0
        assert found[name][2] > 0
    assert found["target"] == "probabilities"
    assert all(layer["units"] > 0 for layer in found["units"])


def test_every_kind_of_policy_can_be_looked_into(record: Callable[..., Recorded]) -> None:
    for name in ("CartPole-v1-dqn", "Pendulum-v1-sac", "CartPole-v1-dreamer"):
        found = look(record(name)[0], 2)
        assert max(found["occlusion"]) > 0
        assert ("gradient" in found) == (name != "CartPole-v1-dreamer")
        assert bool(found["without_gradient"]) == (name == "CartPole-v1-dreamer")
    images = look(record("MiniGrid-Empty-8x8-v0-ppo_rgb")[0], 1)
    assert images["occlusion_map"]
    assert images["filters"]
    assert len(images["maps"]) == len(images["filters"]) == len(images["strongest"])
    assert images["cam"]


def test_an_episode_that_takes_too_much_memory_is_cut(
    runs: Path, ids: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MOST_BYTES", 1_000_000)  # an image of 84 x 84 x 3 needs 21,168
    wish = Wish(ids["MiniGrid-Empty-8x8-v0-ppo_rgb"], "last", 3, "evaluation", 30)
    played, _ = play(runs, wish, [], tmp_path / "frames.bin", lambda _: None)
    assert len(played.steps) == 30
    monkeypatch.setattr(recording, "MOST_BYTES", 1)
    assert len(play(runs, wish, [], tmp_path / "frames.bin", lambda _: None)[0].steps) == 1


def test_grad_cam_by_hand() -> None:
    import torch

    from ludus.inspector.saliency import grad_cam

    maps = torch.tensor([[[[1.0, 2.0], [0.0, 4.0]], [[3.0, 0.0], [1.0, 1.0]]]])
    slope = torch.tensor([[[[1.0, 1.0], [1.0, 1.0]], [[-4.0, 0.0], [0.0, 0.0]]]])  # means 1 and -1
    assert grad_cam(maps, slope).tolist() == [[0.0, 2.0], [0.0, 3.0]]


def test_a_channel_shows_the_pixels_that_excite_it_most(record: Callable[..., Recorded]) -> None:
    """A channel that only answers to the brightest place of the image shows that place, in the size of its filter."""
    import torch

    from ludus.inspector.layers import _seen_by
    from ludus.inspector.observations import Observations

    played, _, _ = record("MiniGrid-Empty-8x8-v0-ppo_rgb")
    actor: Any = played.actor
    seen = Observations(played.env.observation_space, played.steps, None)
    first = next(part for part in actor.trunk.encoder.modules() if isinstance(part, torch.nn.Conv2d))
    obs = torch.from_numpy(played.steps[0].obs)[None]
    (kernel, _), (stride, _) = first.kernel_size, first.stride
    patch = _seen_by(actor.trunk.encoder, obs, 0, (0, 2, 3), seen)
    whole = pictures.shades(obs.float()[0, 0].mean(0).numpy())
    low, left = 2 * stride - first.padding[0], 3 * stride - first.padding[1]
    np.testing.assert_array_equal(patch, whole[low : low + kernel, left : left + kernel])


def test_gradients_are_those_of_the_network(record: Callable[..., Recorded]) -> None:
    """By finite differences: what the head says about the chosen action, times the input."""
    import torch

    played, _, _ = record("CartPole-v1-dqn")
    step = played.steps[5]
    actor: Any = played.actor
    head = actor.heads["q"]

    def chosen(obs: Array) -> float:
        features, _ = actor.trunk(torch.from_numpy(obs)[None], (), torch.zeros(1, 1, dtype=torch.bool))
        return head.double()(features.double())[0, 0][int(step.action[0])].item()

    expected = []
    for i in range(4):
        moved = np.zeros((1, 4), np.float32)
        moved[0, i] = 1e-4
        slope = (chosen(step.obs + moved) - chosen(step.obs - moved)) / 2e-4
        expected.append(abs(slope * step.obs[0, i]))
    head.float()
    np.testing.assert_allclose(look(played, 5)["gradient"], expected, rtol=2e-2, atol=1e-4)


def test_a_dead_unit_is_counted(record: Callable[..., Recorded]) -> None:
    import torch

    played, _, _ = record("CartPole-v1-dqn", again=5)
    actor: Any = played.actor
    before = look(played, 0)["units"][0]["dead"]
    layer = next(part for part in actor.heads["q"].modules() if isinstance(part, torch.nn.Linear))
    alive = int((layer.weight @ torch.from_numpy(played.steps[0].obs[0]) + layer.bias).argmax())
    with torch.no_grad():
        layer.weight[alive] = 0
        layer.bias[alive] = -1
    assert look(played, 0)["units"][0]["dead"] == before + 1


def test_a_world_model_imagines_from_a_step(record: Callable[..., Recorded]) -> None:
    played, meta, _ = record("CartPole-v1-dreamer")
    found = imagined(played, 4)
    part = found["parts"][0]
    rows = min(17, meta["steps"] - 4 + 1)
    assert found["from"] == 4
    assert len(part["real"]) == len(part["predicted"]) == rows
    assert part["labels"][0] == "cart position"
    assert part["predicted"][0] == part["reconstructed"][0]  # the step itself is seen
    assert part["predicted"][-1] != part["reconstructed"][-1]
    assert set(found["lines"]) == {"reward", "value", "continues"}
    last = imagined(played, meta["steps"] - 1)
    assert last["parts"]


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3), (5, 7, 4)])
def test_a_png_is_read_by_others(shape: tuple[int, ...]) -> None:
    Image = pytest.importorskip("PIL.Image")
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    found = Image.open(io.BytesIO(pictures.png(image)))
    assert np.array_equal(np.asarray(found), image)


def test_a_grid_holds_every_map() -> None:
    maps = np.stack([np.full((2, 3), i, np.uint8) for i in range(5)])
    found = pictures.grid(maps)
    assert found.shape == (2 * 3 - 1, 3 * 4 - 1)
    assert [found[0, 0], found[0, 4], found[0, 8], found[3, 0], found[3, 4]] == [0, 1, 2, 3, 4]
    assert found[3, 8] == 128
