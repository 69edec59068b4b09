"""Action distributions against torch.distributions, golden vectors and their own samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as reference

from ludus.errors import ConfigError
from ludus.math import distributions as d

GAUSS = reference.Independent


def gaussian(params):
    mean, log_std = params.chunk(2, -1)
    return GAUSS(reference.Normal(mean, log_std.exp()), 1)


def tanh(params):
    return reference.TransformedDistribution(gaussian(params), reference.transforms.TanhTransform(cache_size=1))


CASES = {
    "discrete": (spaces.Discrete(4), lambda p: reference.Categorical(logits=p)),
    "multi_discrete": (spaces.MultiDiscrete([2, 3, 4]), None),
    "multi_discrete_grid": (spaces.MultiDiscrete([[2, 3], [3, 2]]), None),
    "multi_binary": (spaces.MultiBinary(3), lambda p: GAUSS(reference.Bernoulli(logits=p), 1)),
    "multi_binary_grid": (spaces.MultiBinary([2, 2]), lambda p: GAUSS(reference.Bernoulli(logits=p), 1)),
    "box": (spaces.Box(-1, 1, (3,)), gaussian),
    "box_grid": (spaces.Box(-1, 1, (2, 2)), gaussian),
}


def parts(space, params):
    """torch's categoricals, one for each component of a MultiDiscrete."""
    return [reference.Categorical(logits=p) for p in params.split(np.ravel(space.nvec).tolist(), -1)]


def params_for(dist, *leading, seed=0, scale=1.0):
    return scale * torch.randn(*leading, dist.param_dim, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=CASES)
def case(request):
    space, oracle = CASES[request.param]
    return space, oracle, d.distribution_for(space)


@pytest.mark.parametrize("leading", [(5,), (2, 3)])
def test_log_prob_and_entropy_equal_torch(case, leading):
    space, oracle, dist = case
    params = params_for(dist, *leading)
    action = torch.as_tensor(dist.sample_numpy(params.numpy(), np.random.default_rng(0)))
    assert action.shape == (*leading, *space.shape)
    if oracle is None:
        columns = action.reshape(*leading, -1).unbind(-1)
        log_prob = sum(p.log_prob(a) for p, a in zip(parts(space, params), columns, strict=True))
        entropy = sum(p.entropy() for p in parts(space, params))
    else:
        flat = action.reshape(*leading, -1).float() if space.shape else action
        log_prob, entropy = oracle(params).log_prob(flat), oracle(params).entropy()
    torch.testing.assert_close(dist.log_prob(params, action), log_prob)
    torch.testing.assert_close(dist.entropy(params), entropy)


def test_kl_equals_torch_and_is_zero_with_itself(case):
    space, oracle, dist = case
    p, q = params_for(dist, 5), params_for(dist, 5, seed=1)
    if oracle is None:
        expected = sum(reference.kl_divergence(*pair) for pair in zip(parts(space, p), parts(space, q), strict=True))
    else:
        expected = reference.kl_divergence(oracle(p), oracle(q))
    torch.testing.assert_close(dist.kl(p, q), expected)
    torch.testing.assert_close(dist.kl(p, p), torch.zeros(5))


def test_the_mode_is_the_likeliest_action(case):
    _, _, dist = case
    params = params_for(dist, 6)
    mode = torch.as_tensor(dist.mode_numpy(params.numpy()))
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = torch.as_tensor(dist.sample_numpy(params.numpy(), rng))
        assert (dist.log_prob(params, other) <= dist.log_prob(params, mode) + 1e-6).all()


def test_samples_belong_to_the_space_and_repeat_with_the_seed(case):
    space, _, dist = case
    params = params_for(dist, 8).numpy()
    a, b, c = (dist.sample_numpy(params, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert (a == b).all() and (a != c).any()
    assert a.dtype == dist.action_dtype == space.dtype and dist.action_shape == space.shape
    if not isinstance(space, spaces.Box):
        assert all(space.contains(row) for row in a)


def test_samples_follow_the_log_prob(case):
    """E[-log p(a)] over samples is the entropy, for every kind; that pins frequencies, means and deviations."""
    _, _, dist = case
    params = params_for(dist, 1).expand(40_000, -1).contiguous()
    action = torch.as_tensor(dist.sample_numpy(params.numpy(), np.random.default_rng(0)))
    surprise = -dist.log_prob(params, action)
    error = 5 * surprise.std().item() / 200
    assert surprise.mean().item() == pytest.approx(dist.entropy(params[0]).item(), abs=error)


def test_categorical_frequencies():
    logits = np.log(np.float32([0.1, 0.2, 0.7]))
    drawn = d.Categorical(3).sample_numpy(np.tile(logits, (50_000, 1)), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(drawn) / 50_000, [0.1, 0.2, 0.7], atol=0.01)


def test_extreme_parameters_stay_finite(case):
    _, _, dist = case
    params = (
        params_for(dist, 4, scale=1e4) if not isinstance(dist, d.DiagonalGaussian) else params_for(dist, 4, scale=20)
    )
    with np.errstate(all="raise"):
        action = torch.as_tensor(dist.sample_numpy(params.numpy(), np.random.default_rng(0)))
    assert torch.isfinite(dist.log_prob(params, action)).all()
    assert torch.isfinite(dist.entropy(params)).all()


def test_squashed_gaussian_golden(golden):
    g = golden["squashed_gaussian_logp"]
    params = torch.cat([torch.tensor(g["mean"]), torch.tensor(g["log_std"])], -1)
    dist = d.distribution_for(spaces.Box(-1, 1, (3,)), squash=True)
    # the oracle adds 1e-6 inside its logarithm, which shows where tanh is near 1
    torch.testing.assert_close(
        dist.log_prob(params, torch.tensor(g["pre_tanh"])), torch.tensor(g["logp"]), rtol=0, atol=1e-3
    )


def test_squashed_gaussian_equals_torch():
    dist = d.SquashedGaussian((2,))
    params = 0.5 * params_for(dist, 200_000)[:1].expand(200_000, -1).contiguous()
    u = torch.as_tensor(dist.sample_numpy(params.numpy(), np.random.default_rng(0)))
    expected = tanh(params.double()).log_prob(u.double().tanh())
    torch.testing.assert_close(dist.log_prob(params, u).double(), expected, rtol=1e-4, atol=1e-4)
    surprise = -dist.log_prob(params, u)
    assert dist.entropy(params[0]).item() == pytest.approx(surprise.mean().item(), abs=0.01)


def test_squashed_gaussian_is_finite_where_tanh_is_one():
    dist = d.SquashedGaussian((1,))
    logp = dist.log_prob(torch.tensor([[40.0, 0.0], [-40.0, 0.0]]), torch.tensor([[40.0], [-40.0]]))
    assert torch.isfinite(logp).all() and logp[0] == logp[1]


def test_deviations_of_a_squashed_gaussian_are_bounded():
    """Nothing else holds what a network puts out: log deviations stay within [-20, 2] in torch and in numpy."""
    dist, action = d.SquashedGaussian((1,)), torch.tensor([[0.3]])
    for far, bound in ((9.0, 2.0), (-90.0, -20.0)):
        params, bounded = torch.tensor([[0.3, far]]), torch.tensor([[0.3, bound]])
        assert dist.log_prob(params, action) == dist.log_prob(bounded, action)
        assert dist.entropy(params) == dist.entropy(bounded)
        drawn = [dist.sample_numpy(p.numpy(), np.random.default_rng(0)) for p in (params, bounded)]
        np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("name", CASES)
def test_gradients_flow_and_match_differences(name):
    dist = d.distribution_for(CASES[name][0])
    params = params_for(dist, 3).double().requires_grad_()
    action = torch.as_tensor(dist.sample_numpy(params.detach().numpy(), np.random.default_rng(0)))
    assert torch.autograd.gradcheck(lambda p: dist.log_prob(p, action), [params])
    assert torch.autograd.gradcheck(dist.entropy, [params])


@pytest.mark.parametrize(
    "space", [spaces.Text(3), spaces.Tuple([spaces.Discrete(2)]), spaces.Box(0, 255, (2,), np.uint8)]
)
def test_other_spaces_are_refused_by_name(space):
    with pytest.raises(ConfigError, match=type(space).__name__):
        d.distribution_for(space)


@pytest.mark.parametrize("mean", [-3.0, 0.0, 1.5])
@pytest.mark.parametrize("log_std", [-5.0, -1.0, 0.0, 1.0, 2.0])
def test_the_entropy_of_a_squashed_gaussian_is_right_up_to_the_widest(mean: float, log_std: float) -> None:
    """Against a fine Riemann sum in float64; 2 is the largest log deviation there is."""
    dist = d.SquashedGaussian((1,))
    params = torch.tensor([mean, log_std], dtype=torch.float64)
    u = mean + math.exp(log_std) * torch.linspace(-9, 9, 200_001, dtype=torch.float64)
    log_p = dist.log_prob(params.expand(len(u), 2), u.unsqueeze(1))
    log_n = reference.Normal(mean, math.exp(log_std)).log_prob(u)
    expected = -(log_n.exp() * log_p).sum() * (u[1] - u[0])
    assert dist.entropy(params.float()).item() == pytest.approx(expected.item(), abs=2e-4)


# ---- a Gaussian cut off at the bounds --------------------------------------------------------------


CUT = [(-2.0, -1.0), (0.0, -2.0), (0.3, 0.0), (0.9, -1.5), (0.0, 1.5)]


def on_a_grid(mean: float, log_std: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Points between the bounds and the log-density there, from torch's Gaussian."""
    x = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    normal = reference.Normal(torch.tensor(mean, dtype=torch.float64), math.exp(log_std))
    inside = normal.cdf(torch.tensor(1.0)) - normal.cdf(torch.tensor(-1.0))
    return x, normal.log_prob(x) - inside.log()


@pytest.mark.parametrize(("mean", "log_std"), CUT)
def test_a_truncated_gaussian_is_a_gaussian_between_the_bounds(mean: float, log_std: float) -> None:
    dist, params = d.TruncatedGaussian((1,)), torch.tensor([mean, log_std], dtype=torch.float64)
    x, log_p = on_a_grid(mean, log_std)
    assert torch.trapezoid(log_p.exp(), x).item() == pytest.approx(1.0, abs=1e-6)
    torch.testing.assert_close(dist.log_prob(params.expand(len(x), 2), x.unsqueeze(1)), log_p, atol=1e-6, rtol=1e-6)
    entropy = -torch.trapezoid(log_p.exp() * log_p, x).item()
    assert dist.entropy(params).item() == pytest.approx(entropy, abs=1e-5)
    for other in CUT:
        kl = torch.trapezoid(log_p.exp() * (log_p - on_a_grid(*other)[1]), x).item()
        found = dist.kl(params, torch.tensor(other, dtype=torch.float64)).item()
        assert found == pytest.approx(kl, abs=1e-4, rel=1e-4)


@pytest.mark.parametrize(("mean", "log_std"), CUT)
def test_samples_of_a_truncated_gaussian_follow_its_density(mean: float, log_std: float) -> None:
    dist, (x, log_p) = d.TruncatedGaussian((1,)), on_a_grid(mean, log_std)
    params = torch.tensor([mean, log_std]).expand(40_000, 2)
    drawn = dist.sample_numpy(params.numpy(), np.random.default_rng(0))
    assert drawn.shape == (40_000, 1) and drawn.dtype == np.float32 and np.abs(drawn).max() <= 1
    for power in (1, 2):
        expected = torch.trapezoid(log_p.exp() * x**power, x).item()
        error = float(5 * (drawn**power).std() / 200) + 1e-4
        assert (drawn**power).mean() == pytest.approx(expected, abs=error)
    assert dist.mode_numpy(params.numpy())[0, 0] == np.float32(np.clip(mean, -1, 1))


def test_truncated_samples_are_differentiable() -> None:
    dist = d.TruncatedGaussian((2,))
    params = torch.tensor([[0.2, -0.4, -0.5, 0.3]], dtype=torch.float64, requires_grad=True)
    noise, other = torch.tensor([[0.7, -1.2]], dtype=torch.float64), 0.5 * params.detach()
    assert torch.autograd.gradcheck(lambda p: dist.reparametrized(p, noise), [params])
    assert torch.autograd.gradcheck(dist.entropy, [params])
    assert torch.autograd.gradcheck(lambda p: dist.kl(p, other), [params])
