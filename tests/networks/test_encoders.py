"""Image encoders: golden sizes, the published arithmetic, any memory layout, and names that fit or are refused."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from ludus.config.schema import Network
from ludus.data.rollout import take
from ludus.errors import ConfigError
from ludus.networks.encoders import build_encoder, fitting, is_large
from ludus.networks.encoders.impala import Impala
from ludus.networks.encoders.mlp import MLP
from ludus.networks.encoders.nature import Nature
from ludus.networks.encoders.small import Small
from ludus.networks.precision import Precision
from ludus.spaces import observation_conversion

STACK = (4, 84, 84)


def space(*shape: int) -> gym.spaces.Box:
    return gym.spaces.Box(0, 255, shape, np.uint8)


def encoder(name: str, *shape: int, **config):
    torch.manual_seed(0)
    return build_encoder(Network(encoder={"type": name, **config}).encoder, space(*shape))


def images(*shape: int, steps: int = 2, envs: int = 3) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (steps, envs, *shape), np.uint8))


@pytest.mark.parametrize(
    ("name", "shape", "width", "parameters"),
    [
        ("nature", STACK, 512, 1_684_128),  # 8,224 + 32,832 + 36,928 + 1,606,144
        ("impala", STACK, 256, 1_089_232),  # 97,744 in fifteen convolutions + 11 * 11 * 32 * 256 + 256
        ("impala", (3, 64, 64), 256, 622_144),  # Procgen: 97,600 + 8 * 8 * 32 * 256 + 256
        ("small", (3, 7, 7), 128, 141_744),  # 208 + 2,080 + 8,256 + 4 * 4 * 64 * 128 + 128
        ("minatar", (4, 10, 10), 128, 131_792),  # 592 + 8 * 8 * 16 * 128 + 128
    ],
)
def test_golden_sizes(name: str, shape: tuple[int, ...], width: int, parameters: int) -> None:
    one = encoder(name, *shape)
    out = one(images(*shape))
    assert out.shape == (2, 3, width) and one.out_dim == width
    assert out.dtype == torch.float32
    assert sum(p.numel() for p in one.parameters()) == parameters


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        (STACK, "nature"),
        ((3, 96, 96), "nature"),
        ((3, 56, 56), "nature"),
        ((1, 36, 36), "nature"),
        ((3, 7, 7), "small"),
        ((20, 9, 9), "small"),
        ((3, 32, 32), "impala"),
        ((3, 8, 84), "impala"),
        ((3, 5, 40), "small"),
        ((3, 3, 3), "mlp"),
    ],
)
def test_auto_picks_what_fits(shape: tuple[int, ...], name: str) -> None:
    assert fitting(space(*shape)) == name
    built = encoder("auto", *shape)
    assert type(built) is {"nature": Nature, "impala": Impala, "small": Small, "mlp": MLP}[name]
    assert built(images(*shape, steps=1, envs=2)).shape == (1, 2, built.out_dim)
    assert is_large(space(*shape)) is (name in ("nature", "impala"))


def test_cnn_is_nature_and_vectors_get_an_mlp() -> None:
    assert type(encoder("cnn", *STACK)) is Nature
    vector = gym.spaces.Box(-1, 1, (4,), np.float32)
    assert type(build_encoder(Network().encoder, vector)) is MLP
    assert not is_large(vector)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("nature", (3, 7, 7)), ("cnn", (3, 35, 84)), ("impala", (3, 7, 7)), ("small", (3, 3, 7)), ("minatar", (3, 2, 7))],
)
def test_images_too_small_are_refused_by_name(name: str, shape: tuple[int, ...]) -> None:
    meant = "nature" if name == "cnn" else name
    with pytest.raises(ConfigError, match=f"'{meant}' needs images of at least .* not {shape[1]}x{shape[2]}.*auto"):
        encoder(name, *shape)


@pytest.mark.parametrize("name", ["nature", "impala", "small", "minatar"])
def test_vectors_are_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' needs uint8 images"):
        build_encoder(Network(encoder=name).encoder, gym.spaces.Box(-1, 1, (4,), np.float32))


def test_nature_is_the_published_network() -> None:
    """The plain way to write it: floats from 0 to 1, channels first, then one flat vector."""
    one, x = encoder("nature", *STACK), images(*STACK)
    maps = x.flatten(0, 1).float() / 255
    for layer, stride in ((one.first, 4), (one.second, 2), (one.third, 1)):
        maps = nn.functional.conv2d(maps, layer.weight, layer.bias, stride).relu()
    assert maps.shape[1:] == (64, 7, 7)
    in_order = one.dense.weight.unflatten(1, (7, 7, 64)).permute(0, 3, 1, 2).flatten(1)
    expected = nn.functional.linear(maps.flatten(1), in_order, one.dense.bias).relu()
    torch.testing.assert_close(one(x).flatten(0, 1), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["nature", "impala", "small", "minatar"])
def test_memory_layout_changes_nothing(name: str) -> None:
    shape = (3, 12, 14) if name in ("small", "minatar") else (3, 40, 36)
    one, x = encoder(name, *shape), images(*shape)
    arranged = one.arrange(x)
    assert torch.equal(arranged, x) and arranged.dtype == torch.uint8
    assert arranged.movedim(2, -1).is_contiguous()
    torch.testing.assert_close(one(arranged), one(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 12, 14), (3, 40, 36), (20, 9, 9), (2, 40, 44)])
def test_channels_may_come_last(channels: int, height: int, width: int) -> None:
    """An environment's images [H, W, C] are the same features as [C, H, W], also when channels are many."""
    port = observation_conversion(space(height, width, channels), "x")
    last, first = (build_encoder(Network().encoder, s) for s in (port.space, space(channels, height, width)))
    last.load_state_dict(first.state_dict())
    x = images(channels, height, width)
    crossed = torch.from_numpy(port.convert(x.movedim(2, -1).numpy()))
    torch.testing.assert_close(last(crossed), first(x), atol=1e-5, rtol=1e-5)


def test_pixels_are_divided() -> None:
    x = images(3, 7, 7)
    tens, ones = encoder("small", 3, 7, 7, divide_by=10), encoder("small", 3, 7, 7, divide_by=1)
    torch.testing.assert_close(ones(x // 10), tens(x // 10 * 10), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["nature", "impala", "small", "minatar"])
@pytest.mark.parametrize("most", [1, 10, 255])
def test_pixels_are_divided_by_what_they_reach_to(name: str, most: int) -> None:
    """Brightness is divided by 255 whatever the size, codes and one-hots by their own largest."""
    shape = (3, 7, 7) if name in ("small", "minatar") else (3, 40, 36)
    x = images(*shape) % (most + 1) if most < 255 else images(*shape)
    found = []
    for settings in ({}, {"divide_by": most}):
        torch.manual_seed(0)
        choice = Network(encoder={"type": name, **settings}).encoder
        found.append(build_encoder(choice, gym.spaces.Box(0, most, shape, np.uint8))(x))
    assert torch.equal(*found)


def test_a_number_is_a_vector_of_one() -> None:
    """Box of shape (), which has no dimension to flatten."""
    number = gym.spaces.Box(-1, 1, (), np.float32)
    one = build_encoder(Network(encoder={"type": "mlp", "hidden_dims": [8]}).encoder, number)
    assert one(torch.rand(5, 3)).shape == (5, 3, 8)


def test_gains() -> None:
    """Orthogonal with gain sqrt(2); the branches of IMPALA's six blocks end with 1/sqrt(6)."""
    one = encoder("nature", *STACK)
    for layer in (one.first, one.second, one.third, one.dense):
        weight = layer.weight.flatten(1)
        torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(len(weight)), atol=1e-4, rtol=1e-4)
        assert not layer.bias.any()
    deep = encoder("impala", *STACK)
    assert deep.stacks[0].enter.weight.flatten(1).norm(dim=1).square().mean().item() == pytest.approx(2, rel=1e-3)
    outer = deep.stacks[1].first.outer.weight.flatten(1)
    torch.testing.assert_close(outer @ outer.T, torch.eye(32) / 6, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["nature", "impala", "small", "minatar"])
def test_gradients_reach_every_weight(name: str) -> None:
    shape = (3, 8, 8) if name in ("small", "minatar") else (3, 40, 40)
    one = encoder(name, *shape)
    one(images(*shape)).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in one.parameters())


@pytest.mark.parametrize("name", ["nature", "impala", "small", "minatar"])
def test_bfloat16_is_near_and_the_features_stay_float32(name: str) -> None:
    shape = (3, 8, 8) if name in ("small", "minatar") else (3, 40, 40)
    one, x = encoder(name, *shape), images(*shape)
    exact = one(x)
    one.precision = Precision("bfloat16")
    rough = one(x)
    assert rough.dtype == torch.float32
    assert 0 < (rough - exact).norm() / exact.norm() < 0.02
    rough.square().mean().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in one.parameters())


def test_every_pixel_value_is_exact_in_bfloat16() -> None:
    values = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(values.to(torch.bfloat16).to(torch.uint8), values)


def test_rows_are_taken_in_their_layout() -> None:
    x, index = images(3, 5, 6, steps=4, envs=7), torch.tensor([6, 0, 0, 3])
    stored = x.movedim(2, -1).contiguous().movedim(-1, 2)
    for column in (x, stored, x[:, :, 0, 0, 0], x[:, :, 0]):
        assert torch.equal(take(column, index), column[:, index])
    assert take(stored, index).movedim(2, -1).is_contiguous()
    assert take(x, index).is_contiguous()
