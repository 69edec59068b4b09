"""Layers of TD-MPC: an ensemble is its members, dropout is what it says, first weights are those of the papers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch.nn.functional import elu, layer_norm, linear, mish

from ludus.components.normed_mlp import EnsembleMLP, Kind, NormedLinear, NormedMLP

NORMED: list[Kind] = ["mish", "mish"]
PLAIN: list[Kind] = ["normed_tanh", "elu"]


def shaken(module: torch.nn.Module) -> torch.nn.Module:
    """Other weights everywhere, gains and shifts included."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module


def member(ensemble: EnsembleMLP, m: int, hidden: Sequence[Kind]) -> NormedMLP:
    """A network of its own with the weights of one member."""
    inputs, outputs = ensemble.layers[0].weight.shape[1], ensemble.layers[-1].weight.shape[2]
    alone = NormedMLP(inputs, ensemble.units, hidden, outputs, "linear")
    with torch.no_grad():
        for own, theirs in zip(alone.layers, ensemble.layers, strict=True):
            own.weight.copy_(theirs.weight[m].T)
            for name in ("bias", "gain", "shift"):
                if hasattr(own, name):
                    getattr(own, name).copy_(getattr(theirs, name)[m, 0])
    return alone


@pytest.mark.parametrize("hidden", [NORMED, PLAIN])
def test_an_ensemble_equals_single_networks(hidden: list[Kind]) -> None:
    """Outputs and gradients; asked for some members, it gives theirs."""
    ensemble, x = shaken(EnsembleMLP(4, 5, 16, hidden, 3)), torch.randn(2, 7, 5)
    assert isinstance(ensemble, EnsembleMLP)
    out = ensemble(x)
    assert out.shape == (4, 2, 7, 3)
    out.square().sum().backward()
    for m in range(4):
        alone = member(ensemble, m, hidden)
        own = alone(x)
        torch.testing.assert_close(own, out[m], atol=1e-5, rtol=1e-4)
        own.square().sum().backward()
        for ours, theirs in zip(alone.layers, ensemble.layers, strict=True):
            torch.testing.assert_close(ours.weight.grad, theirs.weight.grad[m].T, atol=1e-3, rtol=1e-3)
    pick = torch.tensor([3, 1])
    torch.testing.assert_close(ensemble(x, pick), out[pick])


def test_a_layer_is_linear_norm_activation() -> None:
    x = torch.randn(6, 5)
    for kind, expected in {
        "mish": lambda y, g, s: mish(layer_norm(y, (8,), g, s)),
        "normed_tanh": lambda y, g, s: layer_norm(y, (8,), g, s).tanh(),
        "simplex": lambda y, g, s: layer_norm(y, (8,), g, s).view(6, 4, 2).softmax(-2).view(6, 8),
        "elu": lambda y, *_: elu(y),
        "linear": lambda y, *_: y,
    }.items():
        layer = NormedLinear(5, 8, kind, group=4)  # type: ignore[arg-type]
        torch.nn.init.normal_(layer.weight)
        shaken(layer)
        y = linear(x, layer.weight, layer.bias)
        gain, shift = (getattr(layer, name, None) for name in ("gain", "shift"))
        torch.testing.assert_close(layer(x), expected(y, gain, shift))


def test_dropout_drops_its_share_and_units_independently() -> None:
    """Every member, row and unit by itself: no two of them are dropped together more often than by chance."""
    ensemble, rate, rows = EnsembleMLP(3, 4, 40, NORMED, 1), 0.2, 50
    generator = torch.Generator().manual_seed(0)
    many = torch.stack(
        [ensemble.dropout(torch.randn(3, rows + 40, generator=generator), rate, rows) for _ in range(400)]
    )
    assert set(many.unique().tolist()) == {0.0, 1.25}
    gone = (many == 0).float()
    assert gone.mean().item() == pytest.approx(rate, abs=0.003)
    assert (gone.mean(0) - rate).abs().max() < 0.11
    for other in (gone.roll(1, 1), gone.roll(1, 2), gone.roll(1, 3)):
        assert (gone * other).mean().item() == pytest.approx(rate**2, abs=0.004)


def test_what_is_dropped_is_left_out_of_the_first_layer() -> None:
    ensemble, x = shaken(EnsembleMLP(2, 4, 8, PLAIN, 1)), torch.randn(5, 4)
    keep = torch.ones(2, 5, 8)
    torch.testing.assert_close(ensemble(x, dropped=keep), ensemble(x))
    keep[:, :, 0] = 0.0
    with_hole = ensemble(x, dropped=keep)
    with torch.no_grad():
        ensemble.layers[0].weight[:, :, 0] = 0.0
        ensemble.layers[0].bias[:, :, 0] = 0.0
    torch.testing.assert_close(with_hole, ensemble(x))


def test_first_weights() -> None:
    """Small and normal, or orthogonal; ensembles and rewards begin at zero, and members differ."""
    torch.manual_seed(0)
    normed, plain = NormedMLP(64, 128, NORMED, 32, "linear"), NormedMLP(64, 64, ["elu", "elu"], 64, "linear")
    assert normed.layers[1].weight.std().item() == pytest.approx(0.02, abs=2e-3)
    for layer in plain.layers:
        torch.testing.assert_close(layer.weight @ layer.weight.T, torch.eye(64), atol=1e-4, rtol=0)
    ensemble = EnsembleMLP(2, 6, 8, NORMED, 3)
    assert (
        not ensemble(torch.randn(4, 6)).any()
        and not NormedMLP(3, 4, NORMED, 2, "linear", zero=True)(torch.randn(5, 3)).any()
    )
    assert not torch.equal(*ensemble.layers[0].weight)
