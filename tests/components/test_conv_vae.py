"""V: the layers of the paper, its loss in plain numpy, images of every size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ludus.components.conv_vae import ConvVAE, VisionConfig, decoder_kernels, divergence, encoder_sides, sample

SMALL = VisionConfig(latent=3, depth=2)


def images(n: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(256, size=(n, *shape), dtype=np.uint8))


def test_it_has_the_layers_of_the_paper() -> None:
    vae = ConvVAE(VisionConfig(), (3, 64, 64), 255.0)
    assert encoder_sides(64) == [64, 31, 14, 6, 2] and decoder_kernels(64) == [5, 5, 6, 6]
    assert sum(part.numel() for part in vae.parameters()) == 4_348_547


@pytest.mark.parametrize("sides", [(7, 7), (10, 10), (16, 16), (32, 32), (64, 64), (84, 96), (5, 40)])
def test_images_of_every_size_come_back_in_their_shape(sides: tuple[int, int]) -> None:
    vae = ConvVAE(SMALL, (2, *sides), 255.0)
    posterior = vae.encode(images(6, 2, *sides).unflatten(0, (3, 2)))
    assert posterior.shape == (3, 2, 6)
    picture = vae.decode(sample(posterior, None))
    assert picture.shape == (3, 2, 2, *sides)
    assert picture.min() >= 0 and picture.max() <= 1


def test_its_loss_is_that_of_plain_numpy() -> None:
    torch.manual_seed(0)
    vae, x = ConvVAE(SMALL, (1, 12, 12), 255.0), images(5, 1, 12, 12)
    noise = torch.from_numpy(np.random.default_rng(1).standard_normal((5, 3), np.float32))
    mean, log_variance = (part.detach().numpy() for part in vae.encode(x).chunk(2, -1))
    decoded = vae.decode(torch.from_numpy(mean + np.exp(log_variance / 2) * noise.numpy())).detach().numpy()
    error = ((decoded - x.numpy() / 255.0) ** 2).sum((1, 2, 3))
    kl = -0.5 * (1 + log_variance - mean**2 - np.exp(log_variance)).sum(1)
    found = [part.detach().numpy() for part in vae.losses(x, noise)]
    np.testing.assert_allclose(found[0], error, rtol=1e-4)
    np.testing.assert_allclose(found[1], np.maximum(kl, 0.5 * 3), rtol=1e-5)
    assert (found[1] >= 1.5).all() and divergence(torch.tensor([1.0, 0.0])).item() == 0.5  # KL(N(1,1)|N(0,1))
    assert divergence(torch.zeros(6)).item() == 0.0


def test_free_divergence_has_no_gradient() -> None:
    free = ConvVAE(VisionConfig(latent=3, depth=2, free_nats=1e3), (1, 12, 12), 255.0)
    error, kl = free.losses(images(4, 1, 12, 12), torch.zeros(4, 3))
    assert kl.tolist() == [3e3] * 4
    grads = torch.autograd.grad(kl.sum(), list(free.posterior.parameters()), allow_unused=True)
    assert all(grad is None or not grad.any() for grad in grads)


def test_pictures_differ_from_the_start() -> None:
    """Weights that shrink every layer would make all images alike, and V would learn nothing for a long time."""
    torch.manual_seed(0)
    vae = ConvVAE(VisionConfig(latent=16, depth=8), (1, 32, 32), 255.0)
    assert vae.encode(images(32, 1, 32, 32))[:, :16].std(0).mean() > 0.05
