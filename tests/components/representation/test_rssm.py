"""The recurrent state-space model: its cells written out, its latents, and both sides of its divergence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import silu

from ludus.components.representation.rssm import RSSM, BlockCell, DenseCell, RSSMConfig
from ludus.errors import ConfigError
from ludus.math import latents

SMALL: dict[str, Any] = {"deter": 8, "hidden": 6, "stoch": 3, "classes": 4, "blocks": 2}
KINDS = ["categorical", "gaussian"]


def made(**settings: Any) -> RSSM:
    torch.manual_seed(0)
    return RSSM(RSSMConfig(**{**SMALL, **settings}), 5, 2)


def observed(model: RSSM, noise: torch.Tensor | None, **how: Any) -> Any:
    generator = torch.Generator().manual_seed(1)
    embed, action = torch.randn(4, 3, 5, generator=generator), torch.randn(4, 3, 2, generator=generator)
    first = torch.zeros(4, 3, dtype=torch.bool)
    first[0] = True
    return model.observe(embed, action, first, model.initial_state(3), noise, **how)


def rms(x: torch.Tensor) -> torch.Tensor:
    return silu(x / (x.square().mean(-1, keepdim=True) + 1e-4).sqrt())


def gated(h: torch.Tensor, reset: torch.Tensor, candidate: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    u = (update - 1).sigmoid()
    return u * (reset.sigmoid() * candidate).tanh() + (1 - u) * h


def test_the_block_cell_is_that_of_dreamer_3() -> None:
    """Each block reads the summary of everything and its own part of the memory; gates are split inside blocks."""
    torch.manual_seed(0)
    cell = BlockCell(RSSMConfig(**SMALL), 12, 2)
    h, z, action = torch.randn(3, 8), torch.randn(3, 12), torch.rand(3, 2)
    summary = torch.cat([rms(cell.memory.linear(h)), rms(cell.latent.linear(z)), rms(cell.action.linear(action))], -1)
    parts = []
    for g in range(2):
        own = slice(4 * g, 4 * g + 4)
        weight = torch.cat([cell.summary.weight[own].T, cell.own.weight[g]])
        parts.append(torch.cat([summary, h[:, own]], -1) @ weight + cell.own.bias[own])
    x = rms(torch.cat(parts, -1))
    after = []
    for g in range(2):
        own = slice(4 * g, 4 * g + 4)
        gates = x[:, own] @ cell.gates.weight[g] + cell.gates.bias[12 * g : 12 * g + 12]
        after.append(gated(h[:, own], *gates.split(4, -1)))
    torch.testing.assert_close(cell(h, z, cell.drive(action)), torch.cat(after, -1))


def test_the_dense_cell_is_a_gru_with_normalised_gates() -> None:
    torch.manual_seed(0)
    cell = DenseCell(RSSMConfig(**SMALL), 12, 2)
    h, z, action = torch.randn(3, 8), torch.randn(3, 12), torch.rand(3, 2)
    x = rms(cell.inputs.joined(torch.cat([z, action], -1)))
    gates = torch.nn.functional.layer_norm(cell.gates(torch.cat([x, h], -1)), [24], eps=1e-3)
    torch.testing.assert_close(cell(h, z, cell.drive(action)), gated(h, *gates.split(8, -1)))


def test_blocks_that_do_not_divide_the_memory_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"blocks.*divisor"):
        made(blocks=3)


def test_without_noise_latents_are_the_likeliest() -> None:
    seen = observed(made(), None)
    z = seen.states["stoch"].unflatten(-1, (3, 4))
    torch.testing.assert_close(z, torch.nn.functional.one_hot(z.argmax(-1), 4).float())
    model = made(latent="gaussian")
    seen = observed(model, None)
    assert torch.equal(seen.states["stoch"], observed(model, torch.zeros(4, 3, 3)).states["stoch"])
    assert not torch.equal(seen.states["stoch"], observed(model, torch.ones(4, 3, 3)).states["stoch"])


def test_a_first_row_knows_nothing_of_what_was_before() -> None:
    """Neither memory, nor latent, nor the action that is said to have led to it."""
    model = made()
    blank, loud = model.initial_state(3), {name: leaf + 2 for name, leaf in model.initial_state(3).items()}
    embed, noise = torch.randn(1, 3, 5), torch.randn(1, 3, 3)
    first = torch.tensor([[True, False, True]])
    quiet = model.observe(embed, torch.zeros(1, 3, 2), torch.ones(1, 3, dtype=torch.bool), blank, noise).states
    for name in ("deter", "stoch"):
        other = model.observe(embed, torch.ones(1, 3, 2), first, {**blank, name: loud[name]}, noise).states
        assert torch.equal(other["deter"][0, [0, 2]], quiet["deter"][0, [0, 2]])
        assert not torch.equal(other["deter"][0, 1], quiet["deter"][0, 1])


@pytest.mark.parametrize("latent", KINDS)
def test_latents_have_gradients(latent: str) -> None:
    """The posterior's layers learn from what is predicted from its samples."""
    model = made(latent=latent)
    seen = observed(model, torch.randn(4, 3, 3))
    weight = torch.randn(4, 3, model.latent_dim)
    (gradient,) = torch.autograd.grad((seen.states["stoch"] * weight).sum(), model.row.output.weight)
    assert gradient.any()


@pytest.mark.parametrize("latent", KINDS)
def test_what_is_predicted_later_teaches_the_encoder_now(latent: str) -> None:
    model, embed = made(latent=latent), torch.randn(3, 2, 5, requires_grad=True)
    first = torch.tensor([[True, True], [False, False], [False, False]])
    seen = model.observe(embed, torch.zeros(3, 2, 2), first, model.initial_state(2), torch.randn(3, 2, 3))
    (gradient,) = torch.autograd.grad(seen.states["deter"][-1].sum(), embed)
    assert gradient[:2].flatten(1).any(1).all() and not gradient[2].any()


@pytest.mark.parametrize("latent", KINDS)
def test_imagined_memory_and_latent_have_the_gradient_of_the_action(latent: str) -> None:
    model, action = made(latent=latent), torch.randn(2, 2, requires_grad=True)
    after = model.imagine(model.initial_state(2), action, torch.randn(2, 3))
    for part in after.values():
        (gradient,) = torch.autograd.grad((part * torch.randn(part.shape)).sum(), action, retain_graph=True)
        assert gradient.any(1).all()


def test_imagined_latents_come_from_the_prior() -> None:
    """Not from the posterior's weights, which no imagined step reads."""
    model = made(unimix=0.0)
    state = {name: leaf + 0.1 for name, leaf in model.initial_state(2000).items()}
    after = model.imagine(state, torch.zeros(2000, 2), torch.randn(2000, 3, generator=torch.Generator().manual_seed(0)))
    expected = model._prior(after["deter"])[0].unflatten(-1, (3, 4)).softmax(-1)
    torch.testing.assert_close(after["stoch"].mean(0).unflatten(-1, (3, 4)), expected, atol=0.05, rtol=0)


@pytest.mark.parametrize("latent", KINDS)
def test_the_divergence_has_equal_values_and_split_gradients(latent: str) -> None:
    """`dynamics` moves the prior only, `representation` the posterior only, each by its own scale."""
    model = made(latent=latent, dynamics_scale=0.8, representation_scale=0.2, free_nats=0.0)
    h = torch.randn(4, 3, 8)
    posterior = torch.randn(4, 3, 12 if latent == "categorical" else 6, requires_grad=True)
    losses, _ = model._divergence(h, posterior)
    torch.testing.assert_close(losses["dynamics"] / 0.8, losses["representation"] / 0.2)
    prior = list(model.prior_out.parameters())
    plain = model._kl(posterior, model._prior(h)).sum()
    for name, scale, reached, spared in (("dynamics", 0.8, prior, [posterior]), ("representation", 0.2, [posterior], prior)):  # fmt: skip  # noqa: E501
        total = losses[name].sum()
        assert all(g is None for g in torch.autograd.grad(total, spared, allow_unused=True, retain_graph=True))
        found, whole = (torch.autograd.grad(x, reached, retain_graph=True) for x in (total, plain))
        for ours, theirs in zip(found, whole, strict=True):
            torch.testing.assert_close(ours, scale * theirs)


@pytest.mark.parametrize("unimix", [0.0, 0.4])
def test_the_divergence_is_that_of_torch(unimix: float) -> None:
    """Of the distributions that latents are drawn from, both with their uniform share."""
    model, h, posterior = made(unimix=unimix, free_nats=0.0), torch.randn(4, 3, 8), 3 * torch.randn(4, 3, 12)
    mixed = [(1 - unimix) * x.unflatten(-1, (3, 4)).softmax(-1) + unimix / 4 for x in (posterior, model._prior(h))]
    p, q = (torch.distributions.Categorical(probs=probabilities) for probabilities in mixed)
    expected = torch.distributions.kl_divergence(p, q).sum(-1)
    losses, metrics = model._divergence(h, posterior)
    torch.testing.assert_close(losses["dynamics"], expected, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(metrics["world/divergence"], expected.mean(), atol=1e-6, rtol=1e-4)


def test_free_nats_of_steps_and_of_the_mean() -> None:
    """A step below them has the loss `free_nats` and no gradient; the mean of a batch may hide such steps."""
    model = made(latent="gaussian", free_nats=1.0)
    mean = torch.tensor([0.0, 3.0])
    kl = latents.gaussian_kl(mean.unsqueeze(-1), torch.ones(2, 1), torch.zeros(2, 1), torch.ones(2, 1))
    assert kl.tolist() == [0.0, 4.5]
    raw = torch.tensor([0.5, 4.5], requires_grad=True)
    clipped = model._free(raw)
    assert clipped.tolist() == [1.0, 4.5]
    assert torch.autograd.grad(clipped.sum(), raw)[0].tolist() == [0.0, 1.0]

    model = made(latent="gaussian", free_nats=2.0, free="mean")
    whole = model._free(raw)
    assert whole.tolist() == [2.5, 2.5]
    assert torch.autograd.grad(whole.mean(), raw)[0].tolist() == [0.5, 0.5]
    low = torch.tensor([0.5, 2.5], requires_grad=True)
    assert model._free(low).tolist() == [2.0, 2.0]
    assert torch.autograd.grad(model._free(low).sum(), low)[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("latent", KINDS)
def test_below_the_free_nats_nothing_trains(latent: str) -> None:
    model = made(latent=latent, free_nats=1e3)
    seen = observed(model, torch.zeros(4, 3, 3), learn=True)
    found = torch.autograd.grad(sum(loss.sum() for loss in seen.losses.values()), list(model.parameters()), allow_unused=True)  # fmt: skip  # noqa: E501
    assert not any(g is not None and g.any() for g in found)
    assert seen.losses["dynamics"].eq(1e3).all() and seen.metrics["world/divergence"] < 1e3


def test_balanced_divergence_golden(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: KL((1/2, 1/2) || (9/10, 1/10)) = ln(5/3); Dreamer 2 weighs the prior's side 0.8, the other 0.2."""
    model = made(stoch=1, classes=2, unimix=0.0, free_nats=0.0, dynamics_scale=0.8, representation_scale=0.2)
    monkeypatch.setattr(model, "_prior", lambda _: torch.tensor([[[0.9, 0.1]]]).log())
    losses, metrics = model._divergence(torch.zeros(1, 1, 8), torch.tensor([[[0.5, 0.5]]]).log())
    assert losses["dynamics"].item() == pytest.approx(0.4086605, abs=1e-6)
    assert losses["representation"].item() == pytest.approx(0.1021651, abs=1e-6)
    assert metrics["world/divergence"].item() == pytest.approx(0.5108256, abs=1e-6)
