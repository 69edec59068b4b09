"""Deep Q-networks (Mnih et al. 2015) up to Rainbow (Hessel et al. 2018, arXiv:1710.02298), with any encoder and memory.

Double Q-learning, dueling heads, n-step returns, noisy layers and categorical values are switches; prioritized replay
is `buffers.replay.type: prioritized`. With a memory core whole sequences are replayed (DRQN, Hausknecht & Stone 2015;
stored state and burn-in as in R2D2, Kapturowski et al. 2019).

Reading order: DQNConfig -> collect -> update_controller -> update -> losses -> predictions.
"""

from __future__ import annotations

import gymnasium as gym
import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn.functional import huber_loss

from ludus.acting.behaviour import Behaviour
from ludus.acting.exploration import EpsilonGreedy, Level
from ludus.acting.numpy_actor import make_actor
from ludus.algorithms import Algorithm, Context, PhaseContext
from ludus.algorithms._replay import ReplayAlgorithm, ReplayBuffers, ReplayConfig
from ludus.config.schedule import PositiveSchedule, Schedule, UnitSchedule, constant
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Group, Learner, Metrics, Networks, Outputs, Scalars
from ludus.learning.optimizer import OptimizerConfig
from ludus.math.values import at_rows, chosen, project, q_target
from ludus.networks.q_values import QValues
from ludus.registry import ALGORITHMS
from ludus.types import Report, Stateful, tree_index


class DQNConfig(ReplayConfig):
    """Deep Q-learning."""

    fixed = ReplayConfig.fixed | {"dueling", "noisy", "atoms", "v_min", "v_max", "stored_state"}
    search = {**ReplayConfig.search, "target_every": "100,250,500,1000", "update_ratio": "0.125,0.25,0.5"}

    lr: PositiveSchedule = constant(1e-3)
    """Learning rate."""
    batch_size: PositiveInt = 64
    """Transitions per update; with a memory core, sequences."""
    epsilon: UnitSchedule = Schedule.model_validate({"start": 1.0, "end": 0.05, "to": 0.2})
    """Probability of a random action; 0 suits noisy layers, which explore by themselves."""
    target_every: PositiveInt = 500
    """Updates between changes of the target network."""
    tau: float = Field(default=1.0, gt=0, le=1)
    """How far the target network then moves towards the online network; 1 copies it."""
    double: bool = True
    """The online network chooses the next action, the target network values it."""
    dueling: bool = False
    """Separate streams for the state's value and the actions' advantages."""
    noisy: bool = False
    """Learned noise on the head's weights."""
    atoms: PositiveInt = 1
    """More than one: a categorical distribution of returns between `v_min` and `v_max` (C51)."""
    v_min: float = 0.0
    """Smallest return that the atoms can express."""
    v_max: float = 200.0
    """Largest return that the atoms can express."""
    burn_in: int = Field(default=0, ge=0)
    """Steps before them that only bring the memory up to date."""
    stored_state: bool = True
    """Begin sequences with the memory they were collected with; otherwise with an empty one."""
    max_grad_norm: float | None = Field(default=10.0, gt=0)
    """Largest gradient norm: longer gradients are scaled down to it; none: gradients are not clipped."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer."""

    def check(self, num_envs: int) -> None:
        """Atoms need a range."""
        super().check(num_envs)
        if self.atoms > 1 and self.v_min >= self.v_max:
            raise ConfigError("algorithm.v_min", "must be below v_max", "choose the range of possible returns")


@ALGORITHMS.register("dqn")
class DQN(ReplayAlgorithm):
    """Learns action values from replayed steps and acts greedily, but for some random actions."""

    Config = DQNConfig
    data_parallel = True
    buffers = {"replay": {"type": "uniform", "size": 100_000}}
    networks = Algorithm.networks - {"actor"}

    def __init__(self, cfg: DQNConfig, context: Context) -> None:
        space = context.spaces.action
        if not isinstance(space, gym.spaces.Discrete) or space.start != 0:
            raise ConfigError("algorithm.name", f"dqn needs actions 0..n, not {space}", "use sac or ppo")
        self.collector, self.default_cycle, self.epoch_steps = context.collector, cfg.cycle, cfg.epoch_steps
        self.net = QValues(
            context.network, context.spaces, context.precision, dueling=cfg.dueling, atoms=cfg.atoms, noisy=cfg.noisy
        ).to(context.device)
        self.atoms = torch.linspace(cfg.v_min, cfg.v_max, cfg.atoms, device=context.device)
        self.learner = Learner(
            {"q": self.net},
            {"q": Group(("q",), cfg.optimizer, cfg.max_grad_norm, parts=self.net.parts)},
            targets=["q"],
            generator=context.rng,
            compiler=None if self.net.recurrent or cfg.noisy else context.compiler,
        )
        self.epsilon = Level(context.begun(cfg.epsilon))
        self.behaviour = Behaviour(
            make_actor(self.net.trunk, {"q": self.net.head}, live=True),
            EpsilonGreedy(self.net.head, self.atoms, self.epsilon),
            rng=context.rng,
            evaluation_rng=context.evaluation_rng,
        )
        self.replay = ReplayBuffers(context, self.net.trunk, self.learner, self.behaviour, stored=cfg.stored_state)

    def state(self) -> dict[str, Stateful]:
        """Weights, slow copy and moments; how much is explored now."""
        return {"learner": self.learner, "epsilon": self.epsilon}

    def metrics(self) -> dict[str, float]:
        return {**self.statistics(), **self.learner.metrics(), "policy/epsilon": self.epsilon.value}

    def collect(self, now: PhaseContext) -> Report:
        """Some steps of every environment, into the buffer."""
        self.epsilon.value = now.at(now.cfg.epsilon)
        return self.replay.collect(self.rollout, now)

    def update_controller(self, now: PhaseContext) -> Report:
        """One update from replayed steps; the target network follows every now and then."""
        cfg, scalars, atoms = now.cfg, {"lr": now.at(now.cfg.lr)}, {"atoms": self.atoms}
        done = self.replay.learn(self.update, now, scalars, atoms, double=cfg.double)
        if done.updates and self.learner.updates % cfg.target_every == 0:
            self.learner.polyak("q", cfg.tau)
        return done

    def update(
        self, nets: Networks, batch: Batch, c: Scalars, *, double: bool, burn_in: int
    ) -> tuple[Metrics, Outputs]:
        """One optimizer step; the errors of the steps become their priorities."""
        losses, error, value = self.losses(nets.q, nets.target_q, batch, double=double, burn_in=burn_in)
        loss = (losses * batch["weight"]).mean()
        nets.step("q", loss, c["lr"])
        metrics = {"loss/q": loss, "q/mean": value.mean(), "q/error": error.mean(), "loss/total": loss}
        return metrics, {"error": error * (batch["weight"] > 0)}

    def losses(
        self, net: QValues, target_net: QValues, batch: Batch, *, double: bool, burn_in: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Error of Q(s, a) against r + discount * Q_target(s', argmax_a Q(s', a)): (loss, its size, Q) of each step."""
        out, following, selector = self.predictions(net, target_net, batch, burn_in, double=double)
        reward, discount = batch["reward"], batch["discount"]
        if net.head.atoms == 1:
            value = chosen(out, batch["action"])
            target = q_target(reward, discount, following, selector)
            return huber_loss(value, target, reduction="none"), (value.detach() - target).abs(), value
        atoms = batch["atoms"]
        best = expected(following if selector is None else selector, atoms).argmax(-1)
        support = reward.unsqueeze(-1) + discount.unsqueeze(-1) * atoms
        target = project(support, chosen(following, best).softmax(-1), atoms)
        logits = chosen(out, batch["action"])
        losses = -(target * logits.log_softmax(-1)).sum(-1)
        return losses, losses.detach(), expected(logits, atoms)

    def predictions(
        self, net: QValues, target_net: QValues, batch: Batch, burn_in: int, *, double: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """(Q of each step, the target network's Q of the step after it, the Q that choose there; None: the target's).

        Every pass of a network with noisy layers has noise of its own.
        """
        obs, first = batch["obs"], batch["first"]
        if not net.recurrent:
            ahead = (batch["next_obs"], (), torch.zeros_like(first))
            with torch.no_grad():
                target_net.head.new_noise()
                following = target_net(*ahead)[0]
                if double:
                    net.head.new_noise()
                selector = net(*ahead)[0] if double else None
            net.head.new_noise()
            return net(obs, (), first)[0], following, selector
        state = target_state = batch["state"]
        for one in (net, target_net):
            one.head.new_noise()
        if burn_in:
            seen = tree_index(obs, slice(burn_in))
            with torch.no_grad():
                state = net(seen, state, first[:burn_in])[1]
                target_state = target_net(seen, target_state, first[:burn_in])[1]
        obs, first = tree_index((obs, first), slice(burn_in, None))
        out = net(obs, state, first)[0]
        with torch.no_grad():
            following = at_rows(target_net(obs, target_state, first)[0], batch["row"])
        return out[:-1], following, at_rows(out.detach(), batch["row"]) if double else None


def expected(logits: Tensor, atoms: Tensor) -> Tensor:
    """Mean of a categorical distribution over the atoms."""
    return (logits.softmax(-1) * atoms).sum(-1)
