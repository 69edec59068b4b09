"""Layers of world models against dense ones."""

from __future__ import annotations

import math

import pytest
import torch

from ludus.components.layers import BlockLinear, DenseLayer, DenseStack, Normed, SplitLinear, dense


def test_a_block_layer_equals_a_dense_one_with_a_block_diagonal_matrix() -> None:
    torch.manual_seed(0)
    layer = BlockLinear(12, 20, 4, fan_in=12)
    torch.nn.init.normal_(layer.bias)
    matrix = torch.block_diag(*layer.weight.unbind())  # [12, 20]
    x = torch.randn(5, 12)
    torch.testing.assert_close(layer(x), x @ matrix + layer.bias)
    assert sum(p.numel() for p in layer.parameters()) == 12 * 20 // 4 + 20


def test_weights_begin_with_the_variance_of_the_full_width() -> None:
    """Also those of blocks (pytorch/rl#4128); none lies beyond two deviations of what was cut."""
    torch.manual_seed(0)
    for weight, fan_in in ((dense(256, 256).weight, 256), (BlockLinear(256, 2048, 8, fan_in=256).weight, 256)):
        assert weight.std().item() == pytest.approx(1 / math.sqrt(fan_in), rel=0.02)
        assert weight.abs().max().item() <= 2 / 0.8796 / math.sqrt(fan_in) + 1e-6
    assert not dense(8, 8, scale=0.0).weight.any() and not dense(8, 8).bias.any()


def test_halves_that_are_computed_apart_equal_one_layer() -> None:
    torch.manual_seed(0)
    layer, x, y = SplitLinear(3, 4, 5), torch.randn(6, 3), torch.randn(6, 4)
    torch.testing.assert_close(layer(x, layer.early(y)), layer.joined(torch.cat([x, y], -1)))


def test_normalisation_divides_by_the_root_mean_square() -> None:
    torch.manual_seed(0)
    normed, x = Normed(6, "relu"), 5 * torch.randn(4, 6) + 2
    with torch.no_grad():
        normed.scale.copy_(torch.arange(6.0))
    expected = (x / (x.square().mean(-1, keepdim=True) + 1e-4).sqrt() * torch.arange(6.0)).relu()
    torch.testing.assert_close(normed(x), expected)
    assert torch.equal(Normed(6, "relu", norm=False)(x), x.relu())


def test_layers_are_as_many_and_as_wide_as_asked() -> None:
    made = DenseStack(3, 2, 7, "silu")
    assert [type(layer) for layer in made] == [DenseLayer, DenseLayer] and made.out_dim == 7
    assert made(torch.randn(2, 5, 3)).shape == (2, 5, 7)
    assert DenseStack(3, 0, 7, "silu").out_dim == 3
