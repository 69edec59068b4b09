"""TD-MPC2 as a plain loop over its published equations: a network for each critic, a call for each step of the horizon.

Written for comparison only: it learns from given batches and plans for one environment.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Widths:
    """Sizes of networks and plans."""

    observation: int
    action: int
    latent: int
    units: int
    encoder: int
    critics: int
    candidates: int
    policy: int
    rounds: int
    elites: int
    horizon: int = 3
    bins: int = 101


class NormedLinear(nn.Module):
    """Linear, dropout, layer normalisation, activation."""

    def __init__(self, inputs: int, outputs: int, *, dropout: float = 0.0, simplex: bool = False) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(inputs, outputs), nn.LayerNorm(outputs)
        self.dropout, self.simplex = nn.Dropout(dropout) if dropout else None, simplex

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        if self.dropout is not None:
            x = self.dropout(x)
        x = self.norm(x)
        if not self.simplex:
            return functional.mish(x)
        shape = x.shape
        return x.view(*shape[:-1], -1, 8).softmax(-1).view(*shape)


def network(
    inputs: int, units: int, outputs: int, layers: int = 2, *, simplex: bool = False, drop: float = 0.0
) -> nn.Module:
    """Normed layers, then a linear one or a latent state."""
    parts: list[nn.Module] = [NormedLinear(inputs, units, dropout=drop)]
    parts += [NormedLinear(units, units) for _ in range(layers - 1)]
    return nn.Sequential(*parts, NormedLinear(units, outputs, simplex=True) if simplex else nn.Linear(units, outputs))


class PlainTDMPC2:
    """Model, critics, policy, their optimizers, and the planner."""

    def __init__(self, w: Widths, gamma: float) -> None:
        self.w, self.gamma = w, gamma
        self.encoder = network(w.observation, w.encoder, w.latent, 1, simplex=True)
        self.dynamics = network(w.latent + w.action, w.units, w.latent, simplex=True)
        self.reward = network(w.latent + w.action, w.units, w.bins)
        self.policy = network(w.latent, w.units, 2 * w.action)
        self.critics = nn.ModuleList(network(w.latent + w.action, w.units, w.bins, drop=0.01) for _ in range(w.critics))
        self.slow = copy.deepcopy(self.critics).requires_grad_(False).eval()
        self.bins = torch.linspace(-10, 10, w.bins)
        self.model = nn.ModuleList([self.encoder, self.dynamics, self.reward, self.critics])
        rest = [*self.dynamics.parameters(), *self.reward.parameters(), *self.critics.parameters()]
        groups = [{"params": self.encoder.parameters(), "lr": 9e-5}, {"params": rest}]
        self.optimizer = torch.optim.Adam(groups, lr=3e-4)
        self.policy_optimizer = torch.optim.Adam(self.policy.parameters(), lr=3e-4, eps=1e-5)
        self.scale, self.mean = torch.ones(()), torch.zeros(w.horizon, w.action)

    # ---- numbers ---------------------------------------------------------------------------------

    def number(self, logits: Tensor) -> Tensor:
        """symexp of the expected bin."""
        x = (logits.softmax(-1) * self.bins).sum(-1, keepdim=True)
        return x.sign() * (x.abs().exp() - 1)

    def cross_entropy(self, logits: Tensor, y: Tensor) -> Tensor:
        """With the two-hot vector of symlog(y)."""
        x = (y.sign() * (1 + y.abs()).log()).clamp(-10, 10).squeeze(-1)
        at = (x + 10) / 0.2
        below = at.floor().long()
        share = (at - below).unsqueeze(-1)
        target = torch.zeros(*x.shape, self.w.bins)
        target.scatter_(-1, below.unsqueeze(-1), 1 - share)
        target = target.scatter(-1, ((below + 1) % self.w.bins).unsqueeze(-1), share)
        return -(target * logits.log_softmax(-1)).sum(-1, keepdim=True)

    def act(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(action, scaled entropy)"""
        mean, raw = self.policy(z).chunk(2, -1)
        log_std = -10 + 6 * (raw.tanh() + 1)
        noise = torch.randn_like(mean)
        density = (-0.5 * noise.square() - log_std - 0.9189385).sum(-1, keepdim=True)
        action = (mean + noise * log_std.exp()).tanh()
        squashed = density - ((1 - action.square()).relu() + 1e-6).log().sum(-1, keepdim=True)
        return action, -squashed * (density * self.w.action / (squashed + 1e-8))

    def value(self, critics: nn.ModuleList, z: Tensor, action: Tensor, *, least: bool) -> Tensor:
        """By two of the critics; all are computed."""
        logits = torch.stack([critic(torch.cat([z, action], -1)) for critic in critics])
        found = self.number(logits[torch.randperm(len(critics))[:2]])
        return found.amin(0) if least else found.mean(0)

    # ---- one update ------------------------------------------------------------------------------

    def update(self, obs: Tensor, action: Tensor, reward: Tensor, terminated: Tensor) -> Tensor:
        """Observations [H + 1, B, D], actions [H, B, A], rewards and ends [H, B, 1]."""
        horizon = self.w.horizon
        with torch.no_grad():
            later = self.encoder(obs[1:])
            target = reward + self.gamma * (1 - terminated) * self.value(
                self.slow, later, self.act(later)[0], least=True
            )
        self.optimizer.zero_grad(set_to_none=True)
        z = self.encoder(obs[0])
        states, consistency = [z], 0.0
        for t in range(horizon):
            z = self.dynamics(torch.cat([z, action[t]], -1))
            consistency = consistency + functional.mse_loss(z, later[t]) * 0.5**t
            states.append(z)
        zs = torch.stack(states)
        seen = torch.cat([zs[:-1], action], -1)
        logits, rewards = [critic(seen) for critic in self.critics], self.reward(seen)
        reward_loss, value_loss = 0.0, 0.0
        for t in range(horizon):
            reward_loss = reward_loss + self.cross_entropy(rewards[t], reward[t]).mean() * 0.5**t
            for one in logits:
                value_loss = value_loss + self.cross_entropy(one[t], target[t]).mean() * 0.5**t
        total = (20 * consistency + 0.1 * reward_loss + 0.1 * value_loss / len(logits)) / horizon
        total.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 20)
        self.optimizer.step()
        self.update_policy(zs.detach())
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.critics.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
        return total.detach()

    def update_policy(self, zs: Tensor) -> None:
        """Up the critics, which do not learn from it."""
        self.critics.requires_grad_(False)
        action, entropy = self.act(zs)
        q = self.value(self.critics, zs, action, least=False)
        spread = torch.quantile(q[0].detach(), 0.95) - torch.quantile(q[0].detach(), 0.05)
        self.scale.lerp_(spread.clamp(min=1.0), 0.01)
        rho = 0.5 ** torch.arange(len(q))
        loss = (-(1e-4 * entropy + q / self.scale).mean((1, 2)) * rho).mean()
        self.policy_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 20)
        self.policy_optimizer.step()
        self.critics.requires_grad_(True)

    # ---- one plan --------------------------------------------------------------------------------

    @torch.no_grad()
    def returns(self, z: Tensor, actions: Tensor) -> Tensor:
        """Rewards along actions [H, K, A] and the value after them."""
        total, discount = torch.zeros(len(z), 1), 1.0
        for t in range(self.w.horizon):
            seen = torch.cat([z, actions[t]], -1)
            total = total + discount * self.number(self.reward(seen))
            z = self.dynamics(seen)
            discount *= self.gamma
        return total + discount * self.value(self.slow, z, self.act(z)[0], least=False)

    @torch.no_grad()
    def plan(self, obs: Tensor) -> Tensor:
        """An action for observation [1, D]; the search goes on from the last one."""
        w, start = self.w, self.encoder(obs)
        proposed = torch.empty(w.horizon, w.policy, w.action)
        z = start.repeat(w.policy, 1)
        for t in range(w.horizon):
            proposed[t] = self.act(z)[0]
            z = self.dynamics(torch.cat([z, proposed[t]], -1))
        mean, std = torch.zeros(w.horizon, w.action), torch.full((w.horizon, w.action), 2.0)
        mean[:-1] = self.mean[1:]
        actions = torch.empty(w.horizon, w.candidates, w.action)
        actions[:, : w.policy] = proposed
        z = start.repeat(w.candidates, 1)
        for _ in range(w.rounds):
            noise = torch.randn(w.horizon, w.candidates - w.policy, w.action)
            actions[:, w.policy :] = (mean.unsqueeze(1) + std.unsqueeze(1) * noise).clamp(-1, 1)
            value = self.returns(z, actions).nan_to_num(0)
            best = value.squeeze(1).topk(w.elites).indices
            chosen, score = actions[:, best], (0.5 * (value[best] - value.max())).exp()
            score = score / score.sum()
            mean = (score.unsqueeze(0) * chosen).sum(1) / (score.sum() + 1e-9)
            spread = (score.unsqueeze(0) * (chosen - mean.unsqueeze(1)).square()).sum(1)
            std = (spread / (score.sum() + 1e-9)).sqrt().clamp(0.05, 2)
        self.mean = mean
        pick = torch.multinomial(score.squeeze(1), 1)
        return (chosen[0, pick] + std[0] * torch.randn(w.action)).clamp(-1, 1)
