"""Diffusion policy (Chi et al. 2023, arXiv:2303.04137): sequences of actions are sampled as images are, noise first.

Reading order: DiffusionPolicyConfig -> update_controller -> draw -> update -> loss -> Sampler.

A network learns which noise was added to the actions that followed some observations. Acting begins with noise alone
and takes out, step by step, what the network finds; of the sequence that is left some actions are executed. The first
action of a sequence belongs to the oldest observation. Averaged (EMA) weights act.

Shapes: B batch, O observations, D size of an observation, T actions of a sequence, A size of an action.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import gymnasium as gym
import numpy as np
import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from ludus.acting.behaviour import Behaviour
from ludus.algorithms import AlgorithmConfig, Context, PhaseContext
from ludus.algorithms._offline import OfflineAlgorithm
from ludus.components.chunk_player import ChunkPlayer, FromQueue
from ludus.components.unit_range import UnitRange
from ludus.config.model import Choice, Registered
from ludus.config.optimizer import OptimizerConfig, WithOptimizer
from ludus.config.schedule import PositiveSchedule, Schedule
from ludus.data.buffers.all_steps import all_steps
from ludus.data.buffers.sampling import Buffer, Sample, tensors
from ludus.data.buffers.windows import sample_windows
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Group, Learner, Metrics, Networks, Scalars
from ludus.math.diffusion import ddim_step, ddpm_step, descent, noised, squared_cosine
from ludus.networks.denoisers import Denoiser, Sizes
from ludus.networks.encoders import is_image
from ludus.networks.encoders.mlp import as_vector, vector_dim
from ludus.registry import ALGORITHMS, DENOISERS
from ludus.types import Report, Stateful, space_tree, tree_leaves

DENOISER = Registered(DENOISERS, default="unet")
FEW = 32
"""Environments up to which the calls of a network cost more than its arithmetic."""
VALIDATED = 256
"""Windows that a validation loss is taken over."""


class DiffusionPolicyConfig(WithOptimizer, AlgorithmConfig):
    """Diffusion over sequences of actions."""

    fixed = frozenset(
        {"denoiser", "observation_horizon", "prediction_horizon", "action_horizon", "diffusion_steps", "sampler"}
        | {"sampling_steps", "optimizer", "max_grad_norm"}
    )
    search = {"lr": "loguniform(3e-5,1e-3)", "batch_size": "64,128,256"}

    denoiser: Annotated[Choice, DENOISER] = DENOISER.parse({})
    """The network that finds the noise: `unet` or `transformer`, with its sizes."""
    observation_horizon: PositiveInt = 2
    """Newest observations that a sequence of actions depends on."""
    prediction_horizon: PositiveInt = 16
    """Actions in a sequence; the first one belongs to the oldest observation."""
    action_horizon: PositiveInt = 8
    """Actions of a sequence that are executed, from that of the newest observation on."""
    diffusion_steps: PositiveInt = 100
    """Times of the schedule by which noise is added."""
    sampler: Literal["ddim", "ddpm"] = "ddim"
    """How noise is taken out: `ddim` in a few steps without new noise, `ddpm` with new noise at every step."""
    sampling_steps: PositiveInt | None = None
    """Steps of taking noise out; none: 10 with `ddim`, all `diffusion_steps` with `ddpm`."""
    lr: PositiveSchedule = Schedule(start=1e-4, end=0.0, schedule="cosine", warmup=500)
    """Learning rate."""
    batch_size: PositiveInt = 256
    """Sequences per update."""
    ema_power: float = Field(default=0.75, gt=0, le=1)
    """After k updates the averaged weights move (1 + k)^-power of the way to the new ones."""
    ema_max: float = Field(default=0.9999, ge=0, lt=1)
    """Largest share of the averaged weights that stays."""
    max_grad_norm: float | None = Field(default=None, gt=0)
    """Largest gradient norm: longer gradients are scaled down to it; none: no clipping."""
    optimizer: OptimizerConfig = OptimizerConfig(type="adamw", eps=1e-8, betas=(0.95, 0.999), weight_decay=1e-6)
    """Optimizer."""

    @model_validator(mode="after")
    def horizons_fit(self) -> Self:
        """Refuse to execute actions that are not predicted, and to sample at times that do not exist."""
        known = self.prediction_horizon - self.observation_horizon + 1
        if self.action_horizon > known:
            problem = f"action_horizon {self.action_horizon} is too long: of {self.prediction_horizon} actions"
            raise ValueError(f"{problem} {max(known, 0)} follow the newest of {self.observation_horizon} observations")
        if self.samplings > self.diffusion_steps:
            raise ValueError(f"sampling_steps {self.samplings} are more than diffusion_steps {self.diffusion_steps}")
        return self

    @property
    def samplings(self) -> int:
        """Steps of taking noise out."""
        return self.sampling_steps or (
            min(10, self.diffusion_steps) if self.sampler == "ddim" else self.diffusion_steps
        )

    @property
    def executed(self) -> slice:
        """Which actions of a sequence are executed."""
        begin = self.observation_horizon - 1
        return slice(begin, begin + self.action_horizon)

    def full_batch(self, num_envs: int) -> int:
        return self.batch_size

    def steps_per_batch(self, rollout_size: int) -> int:
        return self.batch_size * self.prediction_horizon


@ALGORITHMS.register("diffusion_policy")
class DiffusionPolicy(OfflineAlgorithm):
    """Clones demonstrations that may do several things in one situation; needs no environment and no rewards."""

    Config = DiffusionPolicyConfig
    buffers = {"demos": {"type": "minari", "held_out": 0.02}}
    networks = frozenset()
    deterministic_evaluation = False
    scales = ("seen", "acted")

    def __init__(self, cfg: DiffusionPolicyConfig, context: Context) -> None:
        super().__init__("diffusion_policy", context)
        space, self.space = context.spaces.action, context.spaces.observation
        check_spaces(self.space, space)
        assert isinstance(space, gym.spaces.Box)
        self.cfg, self.replay, self.rng = cfg, context.buffers, context.rng
        sizes = Sizes(vector_dim(space), cfg.prediction_horizon, vector_dim(self.space), cfg.observation_horizon)
        denoiser: Denoiser = DENOISERS[cfg.denoiser.name](cfg.denoiser.config, sizes)
        self.learner = Learner(
            {"denoiser": denoiser.to(self.device)},
            {"denoiser": Group(("denoiser",), cfg.optimizer, cfg.max_grad_norm)},
            targets=["denoiser"],
            generator=context.rng,
            compiler=context.compiler,
        )
        self.averaged: Denoiser = self.learner.networks["target_denoiser"]  # type: ignore[assignment]
        self.signal = squared_cosine(cfg.diffusion_steps).to(self.device)
        self.seen, self.acted = UnitRange(sizes.observation, self.device), UnitRange(sizes.action, self.device)
        self.behaviour = Behaviour(
            ChunkPlayer(
                Sampler(cfg, sizes, self.averaged, self.seen, self.acted),
                self.space,
                observations=sizes.observations,
                queue=cfg.action_horizon,
                action=sizes.action,
                device=self.device,
            ),
            FromQueue(space),
            rng=context.rng,
            evaluation_rng=context.evaluation_rng,
            learner=self.learner,
        )
        self.validation: Batch | None = None
        self.validations: dict[str, Batch] = {}

    def state(self) -> dict[str, Stateful]:
        """Weights, averaged weights and moments; the ranges of observations and actions."""
        return {"learner": self.learner, "seen": self.seen, "acted": self.acted}

    def metrics(self) -> dict[str, float]:
        """Means of the updates, and the averaged network's loss on episodes that are never learned from."""
        found = self.learner.metrics()
        if self.validation is not None:
            with torch.no_grad():
                found["loss/validation"] = float(self.loss(self.averaged, self.validation, self.validation["noise"]))
        return found

    # ---- learning --------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """One update from windows of the demonstrations."""
        cfg, buffer, k = now.cfg, self.replay[now.buffer or "demos"], self.learner.updates
        if not self.seen.known:
            self.learn_ranges(buffer)
        if buffer.name not in self.validations and buffer.held_out is not None:
            rng = np.random.default_rng(0)  # every run validates with the same noise
            batch = self.draw(buffer.held_out, min(VALIDATED, len(buffer.held_out)), rng)
            noise = rng.standard_normal(batch["action"].shape, np.float32)
            self.validations[buffer.name] = {**batch, "noise": torch.from_numpy(noise).to(self.device)}
        self.validation = self.validations.get(buffer.name)
        scalars = {"lr": now.at(cfg.lr), "tau": max((1 + k) ** -cfg.ema_power, 1 - cfg.ema_max)}
        self.learner.update(self.update, self.draw(buffer, cfg.batch_size, self.rng), scalars)
        return Report(updates=1)

    def learn_ranges(self, buffer: Buffer) -> None:
        """What of observations and actions will be scaled to [-1, 1]: the range of all that are learned from."""
        ends = [
            [torch.stack([x.amin((0, 1)), x.amax((0, 1))]) for x in self.vectors(piece)] for piece in all_steps(buffer)
        ]
        for scale, found in zip((self.seen, self.acted), zip(*ends, strict=True), strict=True):
            low, high = torch.stack(found, 1)
            scale.fit(low.amin(0), high.amax(0))

    def vectors(self, sample: Sample) -> tuple[Tensor, Tensor]:
        """Observations and actions as vectors, [T, B, D] and [T, B, A]."""
        found = tensors({name: sample[name] for name in ("obs", "action")}, self.device)
        return as_vector(found["obs"], self.space), found["action"].flatten(2).float()

    def draw(self, buffer: Buffer, count: int, rng: np.random.Generator) -> Batch:
        """Windows [T, B] around drawn steps, and a diffusion time for each; rows beyond an episode weigh nothing."""
        cfg = self.cfg
        sample = sample_windows(buffer, count, cfg.prediction_horizon, before=cfg.observation_horizon - 1)
        obs, action = self.vectors(sample)
        time = torch.from_numpy(rng.integers(cfg.diffusion_steps, size=(1, count))).to(self.device)
        mask = torch.from_numpy(sample["mask"]).to(self.device, torch.float32)
        return {
            "obs": self.seen.scaled(obs[: cfg.observation_horizon]),
            "action": self.acted.scaled(action),
            "time": time,
            "signal": self.signal[time].unsqueeze(-1),
            "weight": mask / mask.mean(),
            "first": torch.from_numpy(sample["first"][:1].copy()).to(self.device),
        }

    def update(self, nets: Networks, batch: Batch, c: Scalars) -> Metrics:
        """One optimizer step; the averaged weights follow."""
        loss = self.loss(nets.denoiser, batch, nets.noise(batch["action"].shape))
        nets.step("denoiser", loss, c["lr"])
        nets.polyak("denoiser", c["tau"])
        return {"loss/noise": loss, "loss/total": loss}

    def loss(self, denoiser: Denoiser, batch: Batch, noise_TBA: Tensor) -> Tensor:
        """|noise - found noise|^2 in actions with noise."""
        x_TBA = noised(batch["action"], noise_TBA, batch["signal"])
        time, seen = denoiser.time(batch["time"][0]), denoiser.seen(batch["obs"].transpose(0, 1))
        found_TBA = denoiser(x_TBA.transpose(0, 1), time, seen).transpose(0, 1)
        return (batch["weight"] * (found_TBA - noise_TBA).square().mean(-1)).mean()


class Sampler:
    """Actions out of noise."""

    def __init__(
        self, cfg: DiffusionPolicyConfig, sizes: Sizes, denoiser: Denoiser, seen: UnitRange, acted: UnitRange
    ) -> None:
        self.cfg, self.sizes, self.denoiser, self.ranges = cfg, sizes, denoiser, (seen, acted)
        self.descent = descent(squared_cosine(cfg.diffusion_steps), cfg.samplings)
        self.device = next(denoiser.parameters()).device
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """What the network knows about the times does not depend on observations."""
        self.times = self.denoiser.time(self.descent.time.to(self.device)).unsqueeze(1)
        self.few = self.denoiser.for_few()

    @torch.no_grad()
    def __call__(self, seen_BOD: Tensor, rng: np.random.Generator | None) -> Tensor:
        """The actions to execute, [B, Q, A]; without a random stream from the same noise for everybody."""
        seen_range, acted_range = self.ranges
        shape, fresh = (self.sizes.length, self.sizes.action), self.cfg.sampler == "ddpm"
        batch, stream = (1, np.random.default_rng(0)) if rng is None else (len(seen_BOD), rng)
        drawn = stream.standard_normal((1 + self.cfg.samplings * fresh, batch, *shape), np.float32)
        noise = torch.from_numpy(drawn).to(self.device)
        known = self.denoiser.seen(seen_range.scaled(seen_BOD))
        denoiser = self.few if len(seen_BOD) <= FEW else self.denoiser
        x = noise[0].expand(len(seen_BOD), *shape)
        for i, (signal, after) in enumerate(zip(self.descent.signal, self.descent.after, strict=True)):
            found = denoiser(x, self.times[i], known)
            x = ddpm_step(x, found, signal, after, noise[1 + i]) if fresh else ddim_step(x, found, signal, after)
        return acted_range.restored(x[:, self.cfg.executed])


def check_spaces(observation: gym.Space, action: gym.Space) -> None:
    """Refuse what cannot be scaled to [-1, 1] and mixed with noise."""
    if not (isinstance(action, gym.spaces.Box) and np.issubdtype(action.dtype, np.floating)):
        remedy = "use behaviour_cloning"
        raise ConfigError("algorithm.name", f"diffusion_policy needs continuous actions, not {action}", remedy)
    if any(is_image(leaf) for leaf in tree_leaves(space_tree(observation))):
        remedy = "use vectors, or behaviour_cloning"
        raise ConfigError("algorithm.name", f"diffusion_policy reads no images: {observation}", remedy)
