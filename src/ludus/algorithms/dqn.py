"""Deep Q-networks (Mnih et al. 2015) up to Rainbow (Hessel et al. 2018, arXiv:1710.02298), with any encoder and memory.

Double Q-learning, dueling heads, n-step returns, noisy layers and categorical values are switches; prioritized replay
is `buffers.replay.type: prioritized`. With a memory core whole sequences are replayed (DRQN, Hausknecht & Stone 2015;
stored state and burn-in as in R2D2, Kapturowski et al. 2019).

Reading order: DQNConfig -> collect -> update_controller -> loss -> predictions.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import huber_loss

from ludus.acting.actors import make_actor
from ludus.acting.behaviour import Behaviour
from ludus.acting.strategies import EpsilonGreedy, Level
from ludus.algorithms import Algorithm, AlgorithmConfig, Context, Hook, PhaseContext
from ludus.config.schedule import PositiveSchedule, Schedule, UnitSchedule, constant
from ludus.data.buffers.batches import check_size, draw, priorities
from ludus.errors import ConfigError
from ludus.learning.learner import Batch, Learner
from ludus.learning.optimizer import OptimizerConfig
from ludus.math.values import at_rows, chosen, project, q_target
from ludus.networks.q_values import QValues
from ludus.registry import ALGORITHMS
from ludus.types import ActResult, Array, Report, Stateful, Tree


class DQNConfig(AlgorithmConfig):
    """Deep Q-learning."""

    fixed = frozenset(
        {
            "optimizer",
            "max_grad_norm",
            "dueling",
            "noisy",
            "atoms",
            "v_min",
            "v_max",
            "update_ratio",
            "stored_state",
            "epoch_steps",
        }
    )

    lr: PositiveSchedule = constant(1e-3)
    """Learning rate."""
    gamma: UnitSchedule = constant(0.99)
    """Discount."""
    batch_size: PositiveInt = 64
    """Steps per update; with a memory core, sequences."""
    accumulate: PositiveInt = 1
    """Parts that a batch is cut into; their gradients are added up, so that fewer steps are in memory."""
    train_freq: PositiveInt = 1
    """Steps of every environment between updates."""
    update_ratio: PositiveFloat = 1.0
    """Updates per environment step."""
    learning_starts: PositiveInt = 1_000
    """Steps that go into the buffer before the first update."""
    epsilon: UnitSchedule = Schedule.model_validate({"start": 1.0, "end": 0.05, "to": 0.2})
    """Probability of a random action; noisy layers explore by themselves, with 0."""
    target_every: PositiveInt = 500
    """Updates between changes of the target network."""
    tau: float = Field(default=1.0, gt=0, le=1)
    """How far the target then goes towards the online network; 1 copies it."""
    double: bool = True
    """The online network chooses the next action, the target network values it."""
    dueling: bool = False
    """Separate streams for the state's value and the actions' advantages."""
    n_step: PositiveInt = 1
    """Rewards summed before bootstrapping."""
    noisy: bool = False
    """Learned noise on the head's weights."""
    atoms: PositiveInt = 1
    """More than one: a categorical distribution of returns between `v_min` and `v_max` (C51)."""
    v_min: float = 0.0
    """Smallest return that the atoms can express."""
    v_max: float = 200.0
    """Largest return that the atoms can express."""
    sequence_length: PositiveInt = 32
    """Steps per sequence that are learned from, with a memory core."""
    burn_in: int = Field(default=0, ge=0)
    """Steps before them that only bring the memory up to date."""
    stored_state: bool = True
    """Begin sequences with the memory they were collected with; otherwise with none."""
    max_grad_norm: float | None = Field(default=10.0, gt=0)
    """Longest gradient; none does not clip."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Optimizer."""
    epoch_steps: PositiveInt = 1_000
    """Environment steps per row of metrics; evaluation and checkpoints come between them."""

    def planned_updates(self, env_steps: int, num_envs: int) -> int:
        return int(max(0, env_steps - self.learning_starts) * self.update_ratio)

    def full_batch(self, num_envs: int) -> int:
        return self.batch_size if self.accumulate == 1 else 0

    def steps_per_batch(self, rollout_size: int) -> int:
        """Steps that go through the network at once."""
        return -(-self.batch_size // self.accumulate) * (self.burn_in + self.sequence_length)

    def check(self, num_envs: int) -> None:
        if self.atoms > 1 and self.v_min >= self.v_max:
            raise ConfigError("algorithm.v_min", "must be below v_max", "choose the range of possible returns")
        if self.accumulate > self.batch_size:
            problem = f"a batch of {self.batch_size} cannot be cut into {self.accumulate} parts"
            raise ConfigError("algorithm.accumulate", problem, "use at most algorithm.batch_size")


@ALGORITHMS.register("dqn")
class DQN(Algorithm):
    """Learns action values from replayed steps and acts greedily, but for some random actions."""

    Config = DQNConfig
    off_policy = True
    buffers = {"replay": {"type": "uniform", "size": 100_000}}

    def __init__(self, cfg: DQNConfig, context: Context) -> None:
        cfg.check(context.num_envs)
        if not isinstance(context.spaces.action, gym.spaces.Discrete) or context.spaces.action.start != 0:
            raise ConfigError(
                "algorithm.name", f"dqn needs actions 0..n, not {context.spaces.action}", "use sac or ppo"
            )
        self.collector, self.device, self.replay = context.collector, context.device, context.buffers
        self.default_cycle = ("collect", {"update_controller": {"per_env_step": cfg.update_ratio}})
        self.epoch_steps = cfg.epoch_steps
        self.net = QValues(
            context.network, context.spaces, context.precision, dueling=cfg.dueling, atoms=cfg.atoms, noisy=cfg.noisy
        ).to(context.device)
        self.atoms = torch.linspace(cfg.v_min, cfg.v_max, cfg.atoms, device=context.device)
        self.learner = Learner(
            self.net,
            self.loss,
            cfg.optimizer,
            max_grad_norm=cfg.max_grad_norm,
            parts=self.net.parts,
            compiler=None if self.net.recurrent or cfg.noisy else context.compiler,
        )
        self.target = Target(self.learner)
        self.epsilon = Level(cfg.epsilon.start)
        self.behaviour = Behaviour(
            make_actor(self.net.trunk, {"q": self.net.head}, live=True),
            EpsilonGreedy(self.net.head, self.atoms, self.epsilon),
            rng=context.rng,
            evaluation_rng=context.evaluation_rng,
        )
        for buffer in context.buffers.values():
            if self.net.recurrent and cfg.stored_state:
                buffer.keep_state(self.initial_state(1))

    def hooks(self) -> dict[str, Hook]:
        return {"collect": self.collect, "update_controller": self.update_controller}

    def state(self) -> dict[str, Stateful]:
        return {"learner": self.learner, "target": self.target, "epsilon": self.epsilon}

    def check(self, cfg: DQNConfig, buffer: str | None) -> None:
        check_size(self.replay[buffer or "replay"], cfg, recurrent=self.net.recurrent, stored=cfg.stored_state)

    def weights_replaced(self) -> None:
        self.target.theta.copy_(self.learner.theta)

    def initial_state(self, batch: int) -> Tree:
        return self.behaviour.initial_state(batch)

    def act(self, obs: Array, state: Tree, first: Array, *, deterministic: bool) -> ActResult:
        return self.behaviour.evaluate(obs, state, first, deterministic=deterministic)

    def metrics(self) -> dict[str, float]:
        assert self.collector is not None
        return {**self.collector.statistics(), **self.learner.metrics(), "policy/epsilon": self.epsilon.value}

    # ---- collect -------------------------------------------------------------------------------

    def collect(self, now: PhaseContext) -> Report:
        """Some steps of every environment, into the buffer."""
        assert self.collector is not None
        self.epsilon.value = now.at(now.cfg.epsilon)
        steps = min(now.cfg.train_freq, now.remaining_steps // self.collector.num_envs)
        rollout = self.collector.collect(self.behaviour, steps)
        self.replay[now.buffer or "replay"].add(rollout)
        return Report(env_steps=rollout.env_steps)

    # ---- update --------------------------------------------------------------------------------

    def update_controller(self, now: PhaseContext) -> Report:
        """One update from replayed steps; nothing while there are too few of them."""
        cfg, buffer = now.cfg, self.replay[now.buffer or "replay"]
        blank = None if cfg.stored_state else self.net.initial_state(cfg.batch_size)
        drawn = draw(buffer, now, recurrent=self.net.recurrent, device=self.device, blank=blank)
        if drawn is None:
            return Report()
        batch, index = drawn
        batch["target"], batch["atoms"] = self.target.theta, self.atoms
        flags = {"double": cfg.double, "burn_in": cfg.burn_in}
        self.learner.step(batch, {"lr": now.at(cfg.lr)}, accumulate=cfg.accumulate, **flags)
        buffer.update_priorities(index, priorities(batch))
        self.target.follow(cfg.target_every, cfg.tau)
        return Report(updates=1)

    def loss(self, net: Any, batch: Batch, c: Any, *, double: bool, burn_in: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Error of Q(s, a) against r + discount * Q_target(s', argmax_a Q(s', a))."""
        out, following, selector = self.predictions(net, batch, burn_in, double=double)
        reward, discount = batch["reward"], batch["discount"]
        if self.net.head.atoms == 1:
            value = chosen(out, batch["action"])
            target = q_target(reward, discount, following, selector)
            losses, size = huber_loss(value, target, reduction="none"), (value.detach() - target).abs()
        else:
            atoms = batch["atoms"]
            best = expected(following if selector is None else selector, atoms).argmax(-1)
            support = reward.unsqueeze(-1) + discount.unsqueeze(-1) * atoms
            target = project(support, chosen(following, best).softmax(-1), atoms)
            log_p = chosen(out, batch["action"]).log_softmax(-1)
            losses = -(target * log_p).sum(-1)
            value, size = expected(chosen(out, batch["action"]), atoms), losses.detach()
        batch["error"].copy_(size * (batch["weight"] > 0))
        loss = (losses * batch["weight"]).mean()
        return loss, {"loss/q": loss, "q/mean": value.mean(), "q/error": size.mean()}

    def predictions(
        self, net: Any, batch: Batch, burn_in: int, *, double: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values here, the target network's values next, and those that choose next (None: the target's own)."""
        target = self._target_network(batch["target"])
        obs, first = batch["obs"], batch["first"]
        if not self.net.recurrent:
            ahead = (batch["next_obs"], (), torch.zeros_like(first))
            with torch.no_grad():
                following = self._fresh(target)(*ahead)[0]
                selector = self._fresh(net)(*ahead)[0] if double else None
            return self._fresh(net)(obs, (), first)[0], following, selector
        state = state_target = batch["state"]
        if burn_in:
            with torch.no_grad():
                state = net(obs[:burn_in], state, first[:burn_in])[1]
                state_target = target(obs[:burn_in], state_target, first[:burn_in])[1]
        out = net(obs[burn_in:], state, first[burn_in:])[0]
        with torch.no_grad():
            following = at_rows(self._fresh(target)(obs[burn_in:], state_target, first[burn_in:])[0], batch["row"])
        return out[:-1], following, at_rows(out.detach(), batch["row"]) if double else None

    def _target_network(self, theta: Tensor) -> Any:
        """The slow copy; when the update is traced, or noise is drawn, the network itself with the copy's weights."""
        if theta is self.target.theta and not self.net.head.noisy:
            return self.target.net
        parameters = self.learner.layout.unflatten(theta)
        return lambda *inputs: torch.func.functional_call(self.net, parameters, inputs)

    def _fresh(self, net: Any) -> Any:
        """Every pass of a noisy network has noise of its own."""
        if self.net.head.noisy:
            self.net.head.new_noise()
        return net


def expected(logits: Tensor, atoms: Tensor) -> Tensor:
    """Mean of a categorical distribution over the atoms."""
    return (logits.softmax(-1) * atoms).sum(-1)


class Target:
    """Weights that follow the learner's, seldom or slowly."""

    def __init__(self, learner: Learner) -> None:
        self.learner, self.theta, self.count = learner, learner.theta.clone(), 0
        self.net = copy.deepcopy(learner.model).requires_grad_(False)
        views = learner.layout.unflatten(self.theta)
        for name, parameter in self.net.named_parameters():
            parameter.data = views[name]

    def follow(self, every: int, tau: float) -> None:
        """Called after each update."""
        self.count += 1
        if self.count % every == 0:
            self.theta.lerp_(self.learner.theta, tau) if tau < 1 else self.theta.copy_(self.learner.theta)

    def state_dict(self) -> dict[str, Any]:
        """Weights and the number of updates."""
        return {"theta": self.theta, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Copies in place: batches refer to this very tensor."""
        self.theta.copy_(torch.as_tensor(state["theta"]))
        self.count = int(state["count"])
