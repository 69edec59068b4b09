"""What algorithms share that learn from the newest rollout of their own policy."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ludus.acting.behaviour import Behaviour, SampleClipped
from ludus.acting.numpy_actor import make_actor
from ludus.algorithms import Context, PhaseContext
from ludus.data.broken_rows import credited, weight_of
from ludus.data.rollout import Ends, Rollout
from ludus.learning.learner import Group, Learner
from ludus.learning.optimizer import OptimizerConfig
from ludus.math.policy_gradient import gae
from ludus.networks.policy import PolicyNetwork
from ludus.types import Array, Tree, to_device, tree_index


class Optimized(Protocol):
    """A config that says how a policy is optimised."""

    @property
    def optimizer(self) -> OptimizerConfig: ...
    @property
    def max_grad_norm(self) -> float | None: ...


def build_policy(
    cfg: Optimized, context: Context, *, value: bool = True, compiled: bool = False
) -> tuple[PolicyNetwork, Learner, Behaviour]:
    """A policy, its learner with the one group `policy`, and the behaviour that draws actions from it.

    The rate `memory` of a step is that of the memory core. Where a forward pass is expensive, rollouts keep what acting
    computed, and compiling would gain nothing.
    """
    policy = PolicyNetwork(context.network, context.spaces, value=value, precision=context.precision).to(context.device)
    heavy, rates = policy.trunk.heavy, {"memory": policy.memory_names}
    group = Group(("policy",), cfg.optimizer, cfg.max_grad_norm, parts=policy.parts, rates=rates)
    compiler = context.compiler if compiled and not (policy.recurrent or heavy) else None
    learner = Learner({"policy": policy}, {"policy": group}, generator=context.rng, compiler=compiler)
    strategy = SampleClipped(policy.distribution, context.spaces.action, keep=heavy and value)
    actor, streams = make_actor(policy.trunk, policy.heads), (context.rng, context.evaluation_rng)
    return policy, learner, Behaviour(actor, strategy, learner=learner, rng=streams[0], evaluation_rng=streams[1])


def scalars_of(now: PhaseContext, *names: str) -> dict[str, float]:
    """The values now of `lr`, of these settings, and of `memory_lr` if there is one."""
    given = ("lr", *names, *(["memory_lr"] if now.cfg.memory_lr else []))
    return {name: now.at(getattr(now.cfg, name)) for name in given}


class Experience(NamedTuple):
    """What collecting hands to updating."""

    columns: dict[str, Tree]
    """[T, B, ...]"""
    state: Tree
    """Memory before the first step, [B, ...]."""


@torch.no_grad()
def advantages(policy: PolicyNetwork, rollout: Rollout, gamma: float, lam: float) -> Experience:
    """Columns obs, action, first, log_prob, value, advantage, target (and weight, if steps are broken) of a rollout.

    One forward pass over all T + 1 rows gives what one pass per step would: the contract of memory cores. Where a pass
    is expensive the rollout carries the outputs of acting, and only the last row is computed.
    """
    device, steps = next(policy.actor.parameters()).device, len(rollout.reward)
    obs, first, action = to_device((rollout.obs, rollout.first, rollout.action), device)
    obs = policy.trunk.encoder.arrange(obs)
    params_TBP, value_TB = _outputs(policy, rollout, obs, first)
    values = value_TB.cpu().numpy()
    next_value = values[1:].copy()
    if rollout.finals is not None:  # a truncated episode goes on in its true final observation, not in the next one
        next_value[rollout.finals.t, rollout.finals.b] = _final_values(policy, rollout.finals, device)
    reward, terminated = credited(rollout, values[:steps])
    advantage, target = gae(reward, values[:steps], next_value, terminated, rollout.done, gamma, lam)
    found = {
        "obs": tree_index(obs, slice(steps)),
        "action": action,
        "first": first[:steps],
        "log_prob": policy.distribution.log_prob(params_TBP[:steps], action),
        "value": value_TB[:steps],
        "advantage": torch.as_tensor(advantage, device=device),
        "target": torch.as_tensor(target, device=device),
    }
    if (weight := weight_of(rollout)) is not None:
        found["weight"] = torch.as_tensor(weight, device=device)
    return Experience(found, to_device(rollout.state, device))


def _outputs(policy: PolicyNetwork, rollout: Rollout, obs: Tree, first: Tensor) -> tuple[Tensor, Tensor]:
    """Distribution parameters of at least T rows, values of T + 1."""
    if not rollout.extras:
        return policy(obs, to_device(rollout.state, first.device), first)[:2]
    last = policy(tree_index(obs, slice(-1, None)), to_device(rollout.last_state, first.device), first[-1:])[1]
    params_TBP, value_TB = to_device((rollout.extras["params"], rollout.extras["value"]), first.device)
    return params_TBP, torch.cat([value_TB, last])


def _final_values(policy: PolicyNetwork, finals: Ends, device: torch.device) -> Array:
    first = torch.zeros(1, len(finals.t), dtype=torch.bool, device=device)
    obs, state = tree_index(to_device(finals.obs, device), None), to_device(finals.state, device)
    return policy(obs, state, first)[1][0].cpu().numpy()
