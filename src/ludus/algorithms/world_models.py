"""World Models (Ha & Schmidhuber 2018, arXiv:1803.10122): see with V, remember with M, act with a tiny C.

V, a variational autoencoder, learns from random steps; M, an MDN-RNN, from what V saw of them; C, a linear map, by
CMA-ES, in the environment or in the dreams of M. Each has hooks of its own, and phases say when they run.
Reading order: WorldModelsConfig -> collect -> update_vision -> encode -> update_memory -> update_controller -> dream.

Shapes: T rows, B sequences or environments, N images, Z latent numbers, A action, F features, K candidates, R rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor

from ludus.acting.behaviour import Behaviour
from ludus.acting.exploration import Level, UniformActions, check_bounded, is_box, unit_space
from ludus.algorithms import Algorithm, AlgorithmConfig, Context, Hook, PhaseContext
from ludus.components.controller import Controller, Pilot, RandomWalk, Steer
from ludus.components.conv_vae import sample
from ludus.components.encoded import Encoded, row_bytes
from ludus.components.evolution import Evolution, bytes_of_generation
from ludus.components.tryouts import Tryouts
from ludus.components.vision_memory import VisionMemory, VisionMemoryConfig
from ludus.config.model import Model
from ludus.config.schedule import PositiveSchedule, UnitSchedule, constant
from ludus.data.buffers.batches import check_length
from ludus.data.buffers.rows import all_rows
from ludus.data.buffers.sampling import Buffer, tensors
from ludus.errors import ConfigError, ResourceError
from ludus.learning.learner import Batch, Group, Learner, Metrics, Networks, Scalars
from ludus.learning.optimizer import OptimizerConfig
from ludus.registry import ALGORITHMS
from ludus.types import Array, Report, Stateful
from ludus.watch import ram

STANDARD_SEQUENCES = 128
"""Sequences that features are standardised by."""
IMAGES_AT_ONCE = 1_024
"""Images that are encoded together."""


class ControllerConfig(Model):
    """C, and how it is evolved."""

    train_in: Literal["environment", "dream"] = "environment"
    """Where candidates are tried out."""
    hidden: int = Field(default=0, ge=0)
    """Units of a hidden layer; 0: a linear map."""
    population: int = Field(default=64, ge=4)
    """Candidates of a generation."""
    rollouts: PositiveInt = 16
    """Episodes of each candidate; their mean return is its score. All candidates get the same starts."""
    sigma: float = Field(default=0.1, gt=0, le=1e6)
    """First step size of CMA-ES."""
    standardize: bool = False
    """Whether features are standardised by what V and M made of the stored steps; the paper takes them as they are."""
    dream_steps: PositiveInt = 1_000
    """Steps of a dream."""
    temperature: float = Field(default=1.0, gt=0, le=1e6)
    """Uncertainty of dreams; above 1 a controller can exploit the mistakes of M less."""


class WorldModelsConfig(VisionMemoryConfig, AlgorithmConfig):
    """Vision, memory and an evolved controller."""

    fixed = frozenset({*VisionMemoryConfig.model_fields}) | {
        "controller", "optimizer", "max_grad_norm", "random_step", "epoch_steps",
    }  # fmt: skip
    search = {
        "vision_lr": "loguniform(3e-5,1e-3)",
        "memory_lr": "loguniform(3e-4,3e-3)",
        "sequence_length": "32,64,128",
        "exploration": "0.0,0.1,0.3",
    }

    controller: ControllerConfig = ControllerConfig()
    """C, the controller."""
    rollout_steps: PositiveInt = 16
    """Steps of every environment in a call of `collect`, or of `update_controller` in the environment."""
    random_step: PositiveFloat | None = None
    """Deviation by which random continuous actions change from step to step; none: they are uniform."""
    exploration: UnitSchedule = constant(0.1)
    """While collecting with a controller: noise on continuous actions, probability of a random discrete one."""
    vision_batch: PositiveInt = 100
    """Images per update of V."""
    vision_lr: PositiveSchedule = constant(1e-4)
    """Learning rate of V."""
    memory_batch: PositiveInt = 100
    """Sequences per update of M."""
    sequence_length: int = Field(default=64, ge=2)
    """Rows of a sequence."""
    memory_lr: PositiveSchedule = constant(1e-3)
    """Learning rate of M."""
    optimizer: OptimizerConfig = OptimizerConfig(eps=1e-8)
    """Optimizer of V and of M."""
    max_grad_norm: float | None = Field(default=None, gt=0)
    """Largest gradient norm of V and of M; none: no clipping."""
    epoch_steps: PositiveInt = 1_000
    """Environment steps per epoch: metrics, evaluation and checkpoints come at its end."""

    def steps_per_batch(self, rollout_size: int) -> int:
        return max(self.vision_batch, self.memory_batch * self.sequence_length)

    @property
    def longest_rollout(self) -> int:
        return 0


def check_room(weights: int, candidates: int) -> None:
    """Refuse what CMA-ES could not hold: otherwise the run would end where C begins, after V and M have learned."""
    needed, free = bytes_of_generation(weights, candidates), ram.available()
    if needed > free:
        problem = f"a generation of {candidates:,} controllers with {weights:,} weights needs about "
        problem += f"{needed / 2**30:,.1f} GB, {free / 2**30:,.1f} GB are free"
        knobs = "algorithm.controller.hidden, algorithm.controller.population or algorithm.memory.units"
        raise ResourceError("memory", problem, f"lower {knobs}")


@ALGORITHMS.register("world_models")
class WorldModels(Algorithm):
    """V, M and C."""

    Config = WorldModelsConfig
    buffers = {"replay": {"type": "uniform", "size": "auto"}}
    networks = frozenset()
    scales = ("controller",)
    world: VisionMemory
    default_cycle = ("collect", "update_vision", "encode", "update_memory", "update_controller")

    def __init__(self, cfg: WorldModelsConfig, context: Context) -> None:
        space = context.spaces.action
        check_bounded("world_models", space, discrete=True)
        if cfg.random_step is not None and not is_box(space):
            raise ConfigError("algorithm.random_step", f"actions are {space}, not numbers", "remove it")
        self.cfg, self.collector, self.epoch_steps = cfg, context.collector, cfg.epoch_steps
        self.device, self.rng, self.replay = context.device, context.rng, context.buffers
        self.world = world = VisionMemory(cfg, context.spaces).to(self.device)
        self.learner = Learner(
            {"vision": world.vision, "memory": world.memory},
            {name: Group((name,), cfg.optimizer, cfg.max_grad_norm) for name in ("vision", "memory")},
            generator=context.rng,
        )
        c, features = cfg.controller, world.representation.feature_dim
        self.controller, self.encoded = Controller(features, space, c.hidden), Encoded()
        check_room(self.controller.weights, c.population)
        seed = int(torch.randint(2**31, ()).item())  # the stream of first weights: all of them follow the run's seed
        self.evolution = Evolution(self.controller.weights, sigma=c.sigma, population=c.population, seed=seed)
        self.tryouts = Tryouts(c.population, c.rollouts, context.num_envs)
        self.explores = Level(cfg.exploration.start)
        rng, evaluation_rng = context.rng, context.evaluation_rng
        walk = cfg.random_step
        blind = UniformActions(unit_space(space)) if walk is None else RandomWalk(space, walk)
        steer = Steer(space, self.explores)
        acts, tries = (Pilot(world, self.controller, weights) for weights in (self.deployed, self.tried))
        self.behaviour = Behaviour(acts, steer, blind=blind, rng=rng, evaluation_rng=evaluation_rng)
        self.trial = Behaviour(tries, Steer(space, Level(0.0)), rng=rng, evaluation_rng=evaluation_rng)
        for buffer in self.replay.values():
            buffer.scaled_actions = True

    def hooks(self) -> dict[str, Hook]:
        """In the order of the paper."""
        return {
            "collect": self.collect,
            "update_vision": self.update_vision,
            "encode": self.encode,
            "update_memory": self.update_memory,
            "update_controller": self.update_controller,
        }

    def state(self) -> dict[str, Stateful]:
        """Weights and moments of V and M, what V saw, and where the evolution of C is."""
        return {
            "learner": self.learner,
            "encoded": self.encoded,
            "controller": self.controller,
            "evolution": self.evolution,
            "tryouts": self.tryouts,
            "explores": self.explores,
        }

    def take_over(self, state: Mapping[str, Any]) -> list[str]:
        """C goes on from where the other run had evolved it to."""
        missing = super().take_over(state)
        if "controller" not in missing and not self.evolution.begin_with(state.get("evolution", {})):
            missing.append("evolution")
        return missing

    def stored_bytes(self) -> int:
        """What V saw of every stored row."""
        return sum(buffer.size for buffer in self.replay.values()) * row_bytes(self.world.vision.latent)

    def check(self, cfg: WorldModelsConfig, buffer: str | None) -> None:
        check_length(self._buffer(buffer), cfg.sequence_length, 1, "algorithm.sequence_length")

    def metrics(self) -> dict[str, float]:
        return {**self.statistics(), **self.learner.metrics()}

    def _buffer(self, name: str | None) -> Buffer:
        return self.replay[name or "replay"]

    def deployed(self) -> Tensor:
        """[1, P]: the middle of the evolution is what acts."""
        return self._weights(self.evolution.mean[None])

    def tried(self) -> Tensor:
        """[B, P]: the candidate of each environment."""
        return self._weights(self.evolution.ask()[self.tryouts.candidates])

    def _weights(self, weights: Array) -> Tensor:
        return torch.as_tensor(weights, dtype=torch.float32, device=self.device)

    # ---- V ---------------------------------------------------------------------------------------

    def collect(self, now: PhaseContext) -> Report:
        """Steps into the buffer: random ones, or those of the controller once there is one."""
        self.behaviour.uniform = self.evolution.generation == 0
        self.explores.value = now.at(now.cfg.exploration)
        steps = self.rollout(now, now.cfg.rollout_steps)
        self._buffer(now.buffer).add(steps)
        return Report(env_steps=steps.env_steps)

    def update_vision(self, now: PhaseContext) -> Report:
        """One step of V on images of the buffer."""
        cfg, buffer = now.cfg, self._buffer(now.buffer)
        if not buffer.added:
            return Report()
        drawn, half = tensors(buffer.sample(cfg.vision_batch), self.device), cfg.vision_batch // 2
        image = torch.cat([drawn["obs"][0, :half], drawn["next_obs"][0, half:]])  # last observations are only `next`
        self.learner.update(self.learn_to_see, {"image": image}, {"lr": now.at(cfg.vision_lr)})
        return Report(updates=1)

    def learn_to_see(self, nets: Networks, batch: Batch, c: Scalars) -> Metrics:
        """V towards images: squared error and divergence."""
        error, divergence = nets.vision.losses(batch["image"], nets.noise((len(batch["image"]), nets.vision.latent)))
        loss = (error + divergence).mean()
        nets.step("vision", loss, c["lr"])
        return {
            "loss/vision": loss.detach(),
            "loss/image": error.detach().mean(),
            "loss/divergence": divergence.detach().mean(),
        }

    # ---- M ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def encode(self, now: PhaseContext) -> Report:
        """What V sees in every stored image, if V or the buffer changed since the last time."""
        buffer, length = self._buffer(now.buffer), now.cfg.sequence_length
        stamp = [self.learner.groups["vision"].optimizer.count, int(buffer.added), length]
        if stamp == self.encoded.stamp or not buffer.can_sample_sequences(1, length - 1):
            return Report()
        found = []
        for rows in all_rows(buffer, max(1, IMAGES_AT_ONCE // length), length):
            image = torch.as_tensor(rows.pop("obs"), device=self.device)
            rows["posterior"] = self.world.vision.encode(image).cpu().numpy()
            found.append({name: np.array(column) for name, column in rows.items()})
        self.encoded.keep(found, stamp)
        return Report()

    def update_memory(self, now: PhaseContext) -> Report:
        """One step of M on sequences of what V saw."""
        if not self.encoded.stamp:
            return Report()
        batch = tensors(self.encoded.draw(now.cfg.memory_batch, self.rng), self.device)
        self.learner.update(self.learn_to_remember, batch, {"lr": now.at(now.cfg.memory_lr)})
        return Report(updates=1)

    def learn_to_remember(self, nets: Networks, batch: Batch, c: Scalars) -> Metrics:
        """M towards the next latent numbers, drawn anew from V's posterior every time, rewards and ends."""
        noise = nets.noise((*batch["first"].shape, nets.memory.rnn.noise_dim))
        loss, metrics = nets.memory.losses(batch, self.world.act_vector(batch["action"]), noise)
        nets.step("memory", loss, c["lr"])
        return metrics

    # ---- C ---------------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """A generation in dreams, or some steps of one in the environment."""
        self._standardize()
        if self.cfg.controller.train_in == "environment":
            return self._try_out(now)
        if not self.encoded.stamp:
            return Report()
        return self._judge(self.dream(self.evolution.ask()), 0)

    @torch.no_grad()
    def _standardize(self) -> None:
        """Standardise the controller's features, if M changed since the last time and no generation is under way."""
        stamp = [*self.encoded.stamp, self.learner.groups["memory"].optimizer.count]
        wanted = self.cfg.controller.standardize and bool(self.encoded.stamp)
        if not wanted or stamp == self.controller.stamp or self.evolution.candidates is not None:
            return
        rows = tensors(self.encoded.draw(STANDARD_SEQUENCES, self.rng), self.device)
        rnn, action = self.world.representation, self.world.act_vector(rows["action"])
        start = rnn.initial_state(STANDARD_SEQUENCES)
        seen = rnn.observe(rows["posterior"], action, rows["first"], start, None, learn=True)
        self.controller.standardize(seen.features.flatten(0, 1), stamp)

    def _try_out(self, now: PhaseContext) -> Report:
        collector, steps = self.collector, now.cfg.rollout_steps
        assert collector is not None
        steps = min(steps, now.remaining_steps // collector.num_envs)
        if not steps:
            return Report()
        if self.tryouts.seeds is None:
            self.tryouts.begin(self.rng.integers(2**31, size=self.cfg.controller.rollouts))
        self.tryouts.prepare(collector)
        rollout = collector.collect(self.trial, steps)
        score_K = self.tryouts.add(rollout)
        return Report(env_steps=rollout.env_steps) if score_K is None else self._judge(score_K, rollout.env_steps)

    def _judge(self, score_K: Array, env_steps: int) -> Report:
        """The evolution moves towards the best candidates: that is one update."""
        self.evolution.tell(score_K)
        scores = {"mean": score_K.mean(), "best": score_K.max(), "worst": score_K.min()}
        metrics = {f"evolution/score/{name}": float(score) for name, score in scores.items()}
        return Report(env_steps, 1, {**metrics, "evolution/sigma": self.evolution.sigma})

    @torch.no_grad()
    def dream(self, candidates_KP: Array) -> Array:
        """Mean return [K] of candidates in dreams, all of them one batch.

        Dream r begins with the same image for every candidate, and its noise is the same: what differs is what they do.
        A reward counts as much as it is likely to be reached.
        """
        cfg, world, weights = self.cfg.controller, self.world, self._weights(candidates_KP)
        shape, latent = (len(weights), cfg.rollouts), world.vision.latent
        posterior_R = torch.as_tensor(self.encoded.starts(cfg.rollouts, self.rng), device=self.device)
        z_R = sample(posterior_R, self._noise(cfg.rollouts, latent))
        state = world.representation.initial_state(shape[0] * shape[1])
        state["z"] = z_R.expand(*shape, latent).flatten(0, 1)
        total, alive = torch.zeros(shape, device=self.device), torch.ones(shape, device=self.device)
        for _ in range(cfg.dream_steps):
            outputs = self.controller(weights, world.features(state).unflatten(0, shape))
            noise = self._noise(cfg.rollouts, 2 * latent).expand(*shape, 2 * latent)
            action = self.controller.act_vector(outputs)
            state = world.imagine(state, action.flatten(0, 1), noise.flatten(0, 1), cfg.temperature)
            features = world.features(state).unflatten(0, shape)
            total = total + alive * world.rewards(features)
            alive = alive * world.goes_on(features)
        return total.mean(1).cpu().numpy().astype(np.float64)

    def _noise(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.rng.standard_normal(shape, np.float32)).to(self.device)
