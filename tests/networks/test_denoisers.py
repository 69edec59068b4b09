"""Every denoiser: what it knows can be computed apart, samples do not mix, and sequences of any batch are alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from ludus.errors import ConfigError
from ludus.networks.denoisers import Denoiser, Sizes
from ludus.registry import DENOISERS

SIZES = Sizes(action=3, length=8, observation=4, observations=2)
SMALL: dict[str, dict[str, Any]] = {
    "unet": {"widths": (8, 16, 24), "groups": 4},
    "transformer": {"width": 16, "layers": 2, "heads": 2},
}


def make(name: str, sizes: Sizes = SIZES, **settings: Any) -> Denoiser:
    torch.manual_seed(0)
    kind = DENOISERS[name]
    return kind(kind.Config(**{**SMALL[name], **settings}), sizes)


def inputs(batch: int, sizes: Sizes = SIZES) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(batch, sizes.length, sizes.action, generator=rng)
    return x, torch.arange(batch), torch.randn(batch, sizes.observations, sizes.observation, generator=rng)


def noise_of(net: Denoiser, x: torch.Tensor, time: torch.Tensor, obs: torch.Tensor) -> torch.Tensor:
    return net(x, net.time(time), net.seen(obs))


def test_every_denoiser_is_here() -> None:
    assert set(SMALL) == set(DENOISERS.names())


@pytest.mark.parametrize("name", SMALL)
def test_samples_do_not_mix_and_one_time_may_be_for_all(name: str) -> None:
    net, (x, time, obs) = make(name), inputs(6)
    with torch.no_grad():
        together = noise_of(net, x, time, obs)
        alone = torch.cat([noise_of(net, *(part[i : i + 1] for part in (x, time, obs))) for i in range(6)])
        one = net(x, net.time(time[3:4]), net.seen(obs))
    assert together.shape == x.shape
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(one[3], together[3], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_time_observations_and_actions_all_matter(name: str) -> None:
    net, (x, time, obs) = make(name), inputs(2)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    with torch.no_grad():
        base = noise_of(net, x, time, obs)
        for changed in ((x + 1, time, obs), (x, time + 40, obs), (x, time, obs + 1)):
            assert (noise_of(net, *changed) - base).abs().amax() > 1e-3


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("batch", [1, 5])
def test_few_samples_get_the_same_noise(name: str, batch: int) -> None:
    """A U-Net in numpy; it keeps the weights of when it was made."""
    net, (x, time, obs) = make(name), inputs(batch)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    few = net.for_few()
    with torch.no_grad():
        expected = noise_of(net, x, time, obs)
        found = few(x.transpose(0, 1).contiguous().transpose(0, 1), net.time(time), net.seen(obs))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
        known, after = (net.time(time), net.seen(obs)), few(x, net.time(time), net.seen(obs))
        torch.testing.assert_close(after, expected, atol=1e-4, rtol=1e-3)
        if name == "unet":
            net.get_parameter("out.bias").add_(1.0)
            torch.testing.assert_close(few(x, *known), expected, atol=1e-4, rtol=1e-3)
            torch.testing.assert_close(net.for_few()(x, *known), expected + 1, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(("widths", "millions"), [((32, 64, 128), 1.2), ((64, 128, 256), 4.2), ((128, 256, 512), 16.6)])
def test_a_unet_has_the_published_number_of_parameters(widths: tuple[int, ...], millions: float) -> None:
    """Of two actions and two observations of 20 numbers; the largest one has 65.8 million."""
    net = make("unet", Sizes(2, 16, 20, 2), widths=widths, groups=8)
    assert sum(parameter.numel() for parameter in net.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)


def test_the_transformer_is_causal() -> None:
    """An action depends on earlier ones and on observations up to it, on no later ones."""
    net, (x, time, obs) = make("transformer"), inputs(1)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x, obs = x.requires_grad_(), obs.requires_grad_()
    out = noise_of(net, x, time, obs)
    for t in range(SIZES.length):
        to_x, to_obs = torch.autograd.grad(out[0, t].sum(), (x, obs), retain_graph=True)
        reached = [bool((row != 0).any()) for row in to_x[0]]
        assert reached == [s <= t for s in range(SIZES.length)]
        assert [bool((row != 0).any()) for row in to_obs[0]] == [o <= t for o in range(SIZES.observations)]


def test_lengths_that_cannot_be_halved_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"6 actions cannot be halved 2 times.*use a multiple of 4"):
        make("unet", SIZES._replace(length=6))


@pytest.mark.parametrize(
    ("name", "settings", "problem"),
    [
        ("unet", {"widths": (12, 16)}, "groups 8 does not divide"),
        ("unet", {"kernel": 4}, "kernel has to be odd"),
        ("unet", {"widths": ()}, "at least 1 item"),
        ("transformer", {"width": 30}, "multiple of heads"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(name: str, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        DENOISERS[name].Config(**settings)
