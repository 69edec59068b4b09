"""Small learners and what they learn: shared by the tests of eager and of compiled updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from ludus.learning.learner import Group, Learner, Networks
from ludus.learning.optimizer import OptimizerConfig

LR = {"lr": 0.01}
PARTS = {"in": ("0",), "out": ("2",)}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))


def squared_error(model, batch):
    return (model(batch["x"]) - batch["y"]).square().mean()


def fit(nets, batch, c):
    loss = squared_error(nets.net, batch)
    nets.step("net", loss, c["lr"], slow=c.get("slow_lr"))
    return {"loss/error": loss}


def batches(count: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        {
            "x": torch.randn(8, 4, generator=generator),
            "y": torch.randn(8, 2, generator=generator),
            "first": torch.zeros(8, dtype=torch.bool),
        }
        for _ in range(count)
    ]


def learner(cfg: OptimizerConfig | None = None, *, slow=("0",), parts=PARTS, max_grad_norm=0.1, **kwargs) -> Learner:
    group = Group(("net",), cfg or OptimizerConfig(), max_grad_norm, parts=parts, rates={"slow": slow})
    return Learner({"net": network()}, {"net": group}, generator=np.random.default_rng(0), **kwargs)


NUMBERS = {"lr": 0.01, "actor_lr": 0.02, "tau": 0.1}
CFG = OptimizerConfig(eps=1e-8)
FAST = OptimizerConfig(type="sgd", betas=(0.5, 0.999))
TRAINED = {"actor": ("actor",), "critic": ("trunk", "critic")}


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "trunk": nn.Linear(4, 6),
        "critic": nn.Sequential(nn.Linear(6 + 2, 8), nn.Tanh(), nn.Linear(8, 1)),
        "actor": nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)),
    }


def actor_critic(nets, batch, c, *, policy=True):
    """The shape of every off-policy actor-critic: the actor climbs the critic that was just changed."""
    features = nets.trunk(batch["x"])
    noise = 0.1 * nets.noise(batch["a"].shape)
    with torch.no_grad():
        following = nets.target_trunk(batch["y"])
        target = batch["r"] + 0.9 * nets.target_critic(torch.cat([following, nets.actor(following) + noise], -1))
    error = nets.critic(torch.cat([features, batch["a"]], -1)) - target
    critic = error.square().mean()
    nets.step("critic", critic, c["lr"])
    yield
    outputs = {"error": error.detach().squeeze(-1)}
    if not policy:
        return {"loss/critic": critic}, outputs
    features = features.detach()
    actor = -nets.critic(torch.cat([features, nets.actor(features)], -1)).mean()
    nets.step("actor", actor, c["actor_lr"])
    yield
    for name in ("trunk", "critic"):
        nets.polyak(name, c["tau"])
    return {"loss/critic": critic, "loss/actor": actor}, outputs


def transitions(count: int, size: int = 16) -> list[dict[str, torch.Tensor]]:
    g = torch.Generator().manual_seed(1)
    shapes = {"x": 4, "y": 4, "a": 2, "r": 1}
    first = {"first": torch.zeros(1, size, dtype=torch.bool)}
    return [{n: torch.randn(1, size, width, generator=g) for n, width in shapes.items()} | first for _ in range(count)]


def joint(*, max_grad_norm: dict[str, float] | None = None, seed: int = 0, **kwargs) -> Learner:
    configs = {"actor": FAST, "critic": CFG}
    groups = {label: Group(names, configs[label], (max_grad_norm or {}).get(label)) for label, names in TRAINED.items()}
    targets = ("critic", "trunk")
    return Learner(networks(), groups, targets=targets, generator=np.random.default_rng(seed), **kwargs)


# ---- an algorithm's update, looked at ------------------------------------------------------------------


def captured(algorithm: Any, now: Any) -> tuple[dict, dict, dict]:
    """Batch, scalars and static arguments of one update that is not carried out."""
    seen: dict[str, Any] = {}

    def update(function: Any, batch: Any, scalars: Any, *, accumulate: int, **static: Any) -> dict[str, torch.Tensor]:
        seen.update(batch=batch, scalars=scalars, static=static)
        return {"error": torch.zeros_like(batch["reward"])}

    algorithm.learner.update = update
    algorithm.update_controller(now)
    del algorithm.learner.update
    return seen["batch"], seen["scalars"], seen["static"]


class Recorded(Networks):
    """Networks of a learner that are only looked at: losses and noise are kept, no weight changes."""

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner)
        self.losses: dict[str, float] = {}
        self.drawn: list[torch.Tensor] = []

    def noise(self, shape: Any) -> torch.Tensor:
        self.drawn.append(torch.randn(tuple(shape), generator=torch.Generator().manual_seed(len(self.drawn))))
        return self.drawn[-1]

    def step(self, group: str, loss: torch.Tensor, lr: Any, **_: Any) -> None:
        self.losses[group] = float(loss.detach())

    def polyak(self, name: str, tau: Any) -> None:
        pass
