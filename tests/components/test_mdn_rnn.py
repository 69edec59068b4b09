"""M: what it remembers and forgets, its likelihood, its dreams."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

from ludus.components.mdn_rnn import MDNRNN, MemoryConfig

T, B, Z, A, H, K = 6, 3, 2, 2, 5, 4


@pytest.fixture
def rnn() -> MDNRNN:
    torch.manual_seed(0)
    return MDNRNN(MemoryConfig(units=H, mixtures=K), Z, A)


def rows(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(posteriors, actions, first)"""
    generator = torch.Generator().manual_seed(seed)
    first = torch.zeros(T, B, dtype=torch.bool)
    first[0, :2] = first[3, 1] = True
    return torch.randn(T, B, 2 * Z, generator=generator), torch.randn(T, B, A, generator=generator), first


def test_sizes_of_the_paper() -> None:
    rnn = MDNRNN(MemoryConfig(), 32, 3)
    assert rnn.mixture.out_features == 480 and rnn.core.cell.weight_ih.shape == (4 * 256, 35)
    assert (rnn.feature_dim, rnn.memory_dim, rnn.noise_dim) == (288, 256, 64)


def test_rows_one_by_one_or_at_once_or_in_learning(rnn: MDNRNN) -> None:
    embed, action, first = rows()
    noise = torch.randn(T, B, 2 * Z)
    start = rnn.initial_state(B)
    start["h"] += 0.3
    start["c"] -= 0.2
    start["z"] += 1.0
    whole = rnn.observe(embed, action, first, start, noise)
    learned = rnn.observe(embed, action, first, start, noise, learn=True)
    torch.testing.assert_close(learned.features, whole.features)
    state: Any = start
    for t in range(T):
        one = rnn.observe(embed[t : t + 1], action[t : t + 1], first[t : t + 1], state, noise[t : t + 1])
        state = {name: part[0] for name, part in one.states.items()}
        for name, part in state.items():
            torch.testing.assert_close(part, whole.states[name][t])


def test_an_episode_begins_with_an_empty_memory(rnn: MDNRNN) -> None:
    embed, action, first = rows()
    seen = rnn.observe(embed, action, first, rnn.initial_state(B), None)
    assert not seen.states["h"][3, 1].any() and not seen.states["c"][3, 1].any()
    assert seen.states["h"][3, 0].any() and seen.states["h"][4, 1].any()
    other = embed.clone()
    other[:3] += 9.0
    changed = rnn.observe(other, action, first, rnn.initial_state(B), None)
    assert torch.equal(changed.features[3:, 1], seen.features[3:, 1])
    assert not torch.equal(changed.features[3:, 0], seen.features[3:, 0])


def test_memory_knows_what_was_before_a_row_and_not_the_row(rnn: MDNRNN) -> None:
    embed, action, first = rows()
    seen = rnn.observe(embed, action, first, rnn.initial_state(B), None)
    later = embed.clone()
    later[4] += 1.0
    changed = rnn.observe(later, action, first, rnn.initial_state(B), None)
    assert torch.equal(changed.states["h"][:5], seen.states["h"][:5])
    assert not torch.equal(changed.states["h"][5], seen.states["h"][5])
    expected = rnn.core.cell(torch.cat([embed[4, :, :Z], action[5]], -1), (seen.states["h"][4], seen.states["c"][4]))
    torch.testing.assert_close(seen.states["h"][5], expected[0])


def test_the_loss_is_the_likelihood_of_the_next_latents(rnn: MDNRNN) -> None:
    embed, action, first = rows()
    noise = torch.randn(T, B, 2 * Z)
    seen = rnn.observe(embed, action, first, rnn.initial_state(B), noise, learn=True)
    mean, log_variance = embed.chunk(2, -1)
    z = mean + (log_variance / 2).exp() * noise[..., :Z]
    logits, mu, log_std = rnn.mixture(seen.states["h"]).view(T, B, Z, 3 * K).chunk(3, -1)
    expected = -MixtureSameFamily(Categorical(logits=logits), Normal(mu, log_std.exp())).log_prob(z).sum(-1)
    torch.testing.assert_close(seen.losses["memory"][~first], expected[~first])
    assert not seen.losses["memory"][first].any()  # nothing led there


def test_a_dream_goes_on_where_seeing_stopped(rnn: MDNRNN) -> None:
    embed, action, first = rows()
    seen = rnn.observe(embed, action, first, rnn.initial_state(B), None)
    state = {name: part[4] for name, part in seen.states.items()}
    dreamed = rnn.imagine(state, action[5], None)
    torch.testing.assert_close(dreamed["h"], seen.states["h"][5])
    logits, mu, _ = rnn.mixture(dreamed["h"]).view(B, Z, 3 * K).chunk(3, -1)
    torch.testing.assert_close(dreamed["z"], mu.gather(-1, logits.argmax(-1, keepdim=True)).squeeze(-1))


def test_temperature_widens_dreams(rnn: MDNRNN) -> None:
    state = {name: part.expand(4_000, -1) for name, part in rnn.initial_state(1).items()}
    action, noise = torch.zeros(4_000, A), torch.randn(4_000, 2 * Z, generator=torch.Generator().manual_seed(1))
    cold, warm = (rnn.imagine(state, action, noise, temperature)["z"].std(0) for temperature in (0.2, 1.5))
    assert (warm > 1.5 * cold).all()
