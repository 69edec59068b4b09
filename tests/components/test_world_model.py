"""A world model as a whole: its size, what its rows mean, which observations it takes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from ludus.algorithms.dreamer import DreamerConfig
from ludus.components.actor import WorldPolicy
from ludus.components.encoder import Parts, WorldEncoder, WorldEncoderConfig
from ludus.components.images import Convolution, ImageConfig, ImageDecoder, ImageEncoder
from ludus.components.implicit_model import ImplicitModel, ImplicitModelConfig
from ludus.components.world_model import WorldModel, WorldModelConfig
from ludus.errors import ConfigError
from ludus.math.symlog import symexp, symlog
from ludus.networks.precision import Precision
from ludus.registry import DECODERS, PREDICTORS
from ludus.types import Spaces
from support import build, close, config, moment


def test_size_1m_has_as_many_parameters_as_the_reference() -> None:
    """24 numbers and 6 actions, like DMC walker: 640,867 (pytorch/rl#4133), to the last one."""
    cfg = DreamerConfig.model_validate({"size": "1m"})
    action = gym.spaces.Box(-1, 1, (6,), np.float32)
    world = WorldModel(cfg, Spaces(gym.spaces.Box(-np.inf, np.inf, (24,), np.float32), action))
    features = world.representation.feature_dim
    parts = {
        **dict(world.named_children()),
        "actor": WorldPolicy(cfg.actor, features, action),
        "critic": PREDICTORS[cfg.critic.name](cfg.critic.config, features),
    }
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}
    assert sum(counts.values()) == 640_867, counts


# ---- what rows mean --------------------------------------------------------------------------------


class Ends(gym.Env):
    """Rewards tell the action that led to them, nothing else does; episodes of five steps end in one of two ways."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t, self.terminates = 0, bool(self.np_random.integers(2))
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        over, sign = self.t == 5, 1 if self.terminates else -1
        obs = np.array([over * sign, 0.2 * self.t, 0], np.float32)
        return obs, float(action) - 1.0, over and self.terminates, over and not self.terminates, {}


if "Probe/Ends-v0" not in gym.registry:
    gym.register("Probe/Ends-v0", Ends)

TINY = {"deter": 16, "hidden": 16, "stoch": 4, "classes": 4}


@pytest.fixture(scope="module")
def taught() -> Iterator[tuple[Any, Any]]:
    """A world model after some updates on random steps, and rows that it has not seen."""
    learning = {"lr": 1e-2, "warmup_updates": 0, "optimizer": {"type": "adam"}, "gamma": 0.9}
    algorithm = {"name": "dreamer", "size": "tiny", "fused": False, "representation": TINY, "learning_starts": 300,
                 "batch_size": 16, "sequence_length": 7, "reward": "gaussian", **learning}  # fmt: skip
    one = build(config(algorithm, env="Probe/Ends-v0", environment={"num_envs": 4}))
    now = moment(one.config.algorithm.config, total_steps=100_000)
    for _ in range(100):
        one.algorithm.collect(now)
    for _ in range(110):
        one.algorithm.update_world_model(now)
    yield one.algorithm, one.algorithm.replay.rows(now)
    close(one)


def seen(algorithm: Any, batch: Any) -> Any:
    world = algorithm.learner.networks["world"]
    with torch.no_grad():
        blank = world.representation.initial_state(batch["first"].shape[1])
        return world, world.observe(
            batch["obs"], world.act_vector(batch["action"]), batch["first"], blank, None
        ).features


def test_rewards_are_learned_with_the_action_that_led_to_them(taught: Any) -> None:
    """One row later or earlier, the action would say nothing about them: the variance is 2/3."""
    algorithm, batch = taught
    world, features = seen(algorithm, batch)
    steps = ~batch["first"]
    error = (world.reward.mean(world.reward(features)) - batch["reward"])[steps].square().mean().item()
    assert batch["reward"][steps].var().item() > 0.5 and error < 0.03


def test_terminations_are_learned_and_truncations_are_none(taught: Any) -> None:
    """The continuation head predicts the discount of states that live on, 0 where the episode terminated."""
    algorithm, batch = taught
    world, features = seen(algorithm, batch)
    lives, cut = world.lives(features, 1.0), batch["last"] & ~batch["terminal"]
    assert batch["terminal"].any() and cut.any()
    assert lives[batch["terminal"]].max().item() < 0.15
    assert lives[cut].min().item() > 0.75
    assert lives[~batch["last"]].mean().item() == pytest.approx(0.9, abs=0.04)


def test_the_reward_of_a_step_before_the_sequence_is_not_learned() -> None:
    """`known` is False there; a row that begins an episode has the known reward 0."""
    world, batch = small_world(reward="gaussian"), rows(T=3, B=2)
    noise = torch.zeros(3, 2, world.representation.noise_dim)
    losses = []
    for known in (True, False):
        batch["known"] = torch.ones(3, 2, dtype=torch.bool)
        batch["known"][0] = known
        batch["reward"][0] = 1e3
        losses.append(world.losses(batch, noise, 1.0)[2]["loss/reward"].item())
    assert losses[0] > 1e4 > 10 > losses[1]


# ---- observations and switches ---------------------------------------------------------------------


def small_world(observation: gym.Space | None = None, **settings: Any) -> WorldModel:
    torch.manual_seed(0)
    cfg = DreamerConfig.model_validate({"size": "tiny", "representation": TINY, **settings})
    space = observation or gym.spaces.Box(-1, 1, (3,), np.float32)
    return WorldModel(cfg, Spaces(space, gym.spaces.Discrete(2)))


def rows(T: int, B: int, **obs: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    flags = {name: torch.zeros(T, B, dtype=torch.bool) for name in ("first", "terminal", "last")}
    flags["first"][0] = True
    return {"obs": obs.get("obs", torch.randn(T, B, 3, generator=generator)), **flags,
            "action": torch.randint(2, (T, B), generator=generator), "reward": torch.randn(T, B, generator=generator),
            "known": torch.ones(T, B, dtype=torch.bool)}  # fmt: skip


def test_the_loss_is_the_sum_of_the_means_of_its_parts() -> None:
    world, batch = small_world(observation_scale=0.5, reward_scale=3.0, continue_scale=5.0), rows(4, 2)
    plain = small_world()
    plain.load_state_dict(world.state_dict())
    noise = torch.zeros(4, 2, world.representation.noise_dim)
    (total, _, found), (_, _, once) = (one.losses(batch, noise, 0.9) for one in (world, plain))
    parts = {name for name in found if name.startswith("loss/") and name != "loss/world"}
    assert parts == {"loss/vector", "loss/dynamics", "loss/representation", "loss/reward", "loss/continue"}
    assert total.item() == pytest.approx(sum(found[name].item() for name in parts), rel=1e-5)
    assert found["loss/vector"].item() == pytest.approx(once["loss/vector"].item() / 2, rel=1e-5)
    assert found["loss/reward"].item() == pytest.approx(3 * once["loss/reward"].item(), rel=1e-5)
    assert found["loss/continue"].item() == pytest.approx(5 * once["loss/continue"].item(), rel=1e-5)


def test_without_a_continuation_head_episodes_are_endless() -> None:
    world = small_world(continue_scale=0.0)
    found = world.losses(rows(3, 2), torch.zeros(3, 2, world.representation.noise_dim), 0.9)[2]
    assert world.continues is None and "loss/continue" not in found
    assert world.lives(torch.zeros(2, world.representation.feature_dim), 0.7).tolist() == pytest.approx([0.7, 0.7])


def test_identity_needs_no_encoder_and_takes_no_images() -> None:
    world = small_world(representation="identity")
    assert world.encoder is None and not list(world.decoder.parameters())
    torch.testing.assert_close(
        world.embed(torch.tensor([[[torch.e - 1, 0.0, 1 - torch.e]]])), torch.tensor([[[1.0, 0, -1]]])
    )
    with pytest.raises(ConfigError, match=r"algorithm\.representation\.type.*images.*rssm"):
        small_world(gym.spaces.Box(0, 255, (3, 16, 16), np.uint8), representation="identity")


SIDES = [(4, 4), (6, 6), (1, 10), (7, 9), (10, 10), (16, 16), (8, 64), (64, 5), (33, 48), (64, 64), (96, 96)]


@pytest.mark.parametrize(("height", "width"), SIDES)
def test_images_of_many_sizes_are_encoded_and_decoded(height: int, width: int) -> None:
    torch.manual_seed(0)
    shape = (2, height, width)
    cfg = ImageConfig(depth=1)
    encoder, decoder = ImageEncoder(cfg, shape, 255.0), ImageDecoder(cfg, 5, 2, 4, shape)
    image = torch.randint(256, (2, 3, *shape), dtype=torch.uint8)
    embed, back = encoder(image), decoder(torch.randn(2, 3, 5))
    assert embed.shape == (2, 3, encoder.out_dim) and encoder.out_dim <= 4 * 36
    assert back.shape == image.shape and back.min() >= 0 and back.max() <= 1
    alone = encoder(image[1:, 2:])
    torch.testing.assert_close(alone[0, 0], embed[1, 2], atol=1e-5, rtol=1e-4)


def test_an_image_of_middle_grey_is_zero_to_the_encoder() -> None:
    encoder = ImageEncoder(ImageConfig(depth=1), (1, 8, 8), 2.0)
    assert encoder(torch.full((1, 1, 1, 8, 8), 1, dtype=torch.uint8)).eq(0).all()


def test_an_image_is_decoded_from_memory_and_latent() -> None:
    torch.manual_seed(0)
    decoder, features = ImageDecoder(ImageConfig(depth=1), 5, 2, 4, (1, 8, 8)), torch.randn(1, 1, 5)
    for number in range(5):
        other = features.clone()
        other[..., number] += 1
        assert not torch.equal(decoder(other), decoder(features))


@pytest.mark.parametrize("side", [4, 6, 7])
def test_pixels_of_any_image_may_be_dark_and_bright(side: int) -> None:
    """Also where the image is as small as the grid that larger ones are reduced to."""
    torch.manual_seed(0)
    decoder = ImageDecoder(ImageConfig(depth=1), 5, 2, 4, (1, side, side))
    ends = [decoder.latent[1].bias, *(stage.layer.bias for stage in decoder.stages)][-1]
    for wanted in (-9.0, 9.0):
        torch.nn.init.constant_(ends, wanted)
        pixels = decoder(torch.randn(1, 3, 5))
        assert (pixels < 0.1).all() if wanted < 0 else (pixels > 0.9).all()


DICT = gym.spaces.Dict({"b": gym.spaces.Box(0, 255, (1, 8, 8), np.uint8), "a": gym.spaces.Box(-1, 1, (2,), np.float32),
                        "c": gym.spaces.Discrete(3)})  # fmt: skip


def test_images_and_vectors_are_read_together() -> None:
    """Every part of an observation matters and is reconstructed."""
    torch.manual_seed(0)
    encoder = WorldEncoder(WorldEncoderConfig(units=6, depth=1), DICT)
    parts = Parts(DICT)
    obs = {"a": torch.randn(2, 3, 2), "b": torch.randint(256, (2, 3, 1, 8, 8), dtype=torch.uint8),
           "c": torch.randint(3, (2, 3))}  # fmt: skip
    whole = encoder(obs)
    assert whole.shape == (2, 3, encoder.out_dim) and parts.vector_dim == 5 and len(parts.images) == 1
    for name, other in (("a", obs["a"] + 1), ("b", 255 - obs["b"]), ("c", (obs["c"] + 1) % 3)):
        assert not torch.equal(encoder({**obs, name: other}), whole)
    decoder = DECODERS["auto"](DECODERS["auto"].Config(units=6, depth=1), 4, 2, DICT)
    losses = decoder.losses(torch.randn(2, 3, 4), obs)
    assert {loss.shape for loss in losses.values()} == {(2, 3)} and len(losses) == 2
    predicted = decoder.predict(torch.randn(7, 4))
    assert sorted(tuple(leaf.shape) for leaf in predicted.values()) == [(7, 1, 8, 8), (7, 5)]


def test_decoders_predict_in_the_numbers_of_the_observation() -> None:
    """Squared error after symlog, without one half; images between 0 and 1."""
    space = gym.spaces.Box(-1e6, 1e6, (1,), np.float32)
    decoder = DECODERS["auto"](DECODERS["auto"].Config(units=6, layers=0), 1, 0, space)
    with torch.no_grad():
        decoder.vector[1].weight.fill_(1.0)
    features, obs = torch.tensor([[[2.0]]]), torch.tensor([[[torch.e**3 - 1]]])
    assert decoder.losses(features, obs)["vector"].item() == pytest.approx(1.0, rel=1e-5)
    assert decoder.predict(features)["vector"].item() == pytest.approx(torch.e**2 - 1, rel=1e-5)


def test_an_image_is_learned_as_a_sum_over_pixels_on_the_scale_of_its_space() -> None:
    """Codes of a grid up to 5 are as bright as pixels up to 255."""
    torch.manual_seed(0)
    space = gym.spaces.Box(0, 5, (2, 7, 7), np.uint8)
    decoder = DECODERS["auto"](DECODERS["auto"].Config(units=4, depth=1), 3, 0, space)
    features, image = torch.randn(2, 3, 3), torch.randint(6, (2, 3, 2, 7, 7), dtype=torch.uint8)
    predicted = decoder.predict(features)["image0"]
    expected = (predicted - image / 5).square().flatten(2).sum(-1)
    torch.testing.assert_close(decoder.losses(features, image)["image0"], expected)


@pytest.mark.parametrize("squeezed", [True, False])
def test_vectors_are_squeezed_only_if_asked_for(squeezed: bool) -> None:
    """On their way in and on their way out (Dreamer 1 and 2 take them as they are)."""
    torch.manual_seed(0)
    space, x = gym.spaces.Box(-99, 99, (3,), np.float32), 50 * torch.randn(2, 3, 3)
    encoder = WorldEncoder(WorldEncoderConfig(units=6, symlog=squeezed), space)
    assert encoder.layers is not None
    wanted = symlog(x) if squeezed else x
    torch.testing.assert_close(encoder(x), encoder.layers(wanted))
    decoder = DECODERS["auto"](DECODERS["auto"].Config(units=6, symlog=squeezed), 4, 0, space)
    features = torch.randn(2, 3, 4)
    said = decoder.vector(features)
    torch.testing.assert_close(decoder.losses(features, x)["vector"], (said - wanted).square().sum(-1))
    torch.testing.assert_close(decoder.predict(features)["vector"], symexp(said) if squeezed else said)


def test_the_player_carries_state_and_action_like_the_rows() -> None:
    """Acting step by step sees the features that learning sees in one go, over the end of an episode."""
    from ludus.components.world_player import WorldPlayer

    world, batch = small_world(), rows(5, 2)
    batch["first"][3, 1] = True
    blank = world.representation.initial_state(2)
    with torch.no_grad():
        expected = world.observe(batch["obs"], world.act_vector(batch["action"]), batch["first"], blank, None).features
    player = WorldPlayer(world, {"all": lambda x: x})
    state = player.initial_state(2)
    for t in range(5):
        outputs, state = player(batch["obs"][t].numpy(), state, batch["first"][t].numpy(), None)
        np.testing.assert_allclose(outputs("all"), expected[t], atol=1e-5)
        following = batch["action"][t + 1].numpy() if t < 4 else np.zeros(2, np.int64)
        state = player.remember(state, following)


def test_nothing_random_happens_while_a_player_is_deterministic() -> None:
    from ludus.components.world_player import WorldPlayer

    world, batch = small_world(), rows(1, 2)
    player = WorldPlayer(world, {"all": lambda x: x})
    args = batch["obs"][0].numpy(), player.initial_state(2), batch["first"][0].numpy()
    a, b = (player(*args, None)[0]("all") for _ in range(2))
    c, d, e = (player(*args, np.random.default_rng(seed))[0]("all") for seed in (1, 1, 2))
    assert (a == b).all() and (c == d).all() and (c != e).any()


@pytest.mark.parametrize("name", ["dreamer", "planet", "tdmpc"])
def test_convolutions_compute_in_the_precision_of_the_run(name: str) -> None:
    """Everything before and after them stays float32, gradients included; a copy follows too."""
    space, act = gym.spaces.Box(0, 255, (1, 16, 16), np.uint8), gym.spaces.Box(-1, 1, (2,), np.float32)
    make, cfg = (ImplicitModel, ImplicitModelConfig()) if name == "tdmpc" else (WorldModel, WorldModelConfig())
    found, seen = {}, []
    for precision in (Precision("float32"), Precision("bfloat16")):
        torch.manual_seed(0)
        world = copy.deepcopy(make(cfg, Spaces(space, act), precision))
        kernels = [part for part in world.modules() if isinstance(part, Convolution)]
        hooks = [part.register_forward_hook(lambda _, __, out: seen.append(out.dtype)) for part in kernels]
        obs = torch.arange(2 * 256, dtype=torch.float32).view(2, 1, 1, 16, 16).remainder(256).to(torch.uint8)
        out = world.encode(obs) if name == "tdmpc" else world.embed(obs)
        if name != "tdmpc":
            image = world.decoder.predict(torch.ones(2, 1, world.representation.feature_dim))["image0"]
            assert image.dtype == torch.float32
            out = torch.cat([out.flatten(), image.flatten()])
        out.square().sum().backward()
        assert out.dtype == torch.float32 and {part.layer.weight.grad.dtype for part in kernels} == {torch.float32}
        found[precision.name] = out.detach()
        assert set(seen) == {precision.dtype} and hooks
        seen.clear()
    torch.testing.assert_close(found["bfloat16"], found["float32"], atol=0.1, rtol=0.1)
    assert not torch.equal(found["bfloat16"], found["float32"])
