"""PPO with an LSTM in the shape of PufferLib 3: torch's cell while acting, its fused LSTM over whole segments to learn.

Written by us, not PufferLib's code: its source package needs the network to build. Like PufferLib's, the update starts
every segment from a zero state and never resets inside it, so it does less than the others; environments are
Gymnasium's vectorised CartPole, the fastest there is, and storage is preallocated.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch
from task import Clock, Task
from torch import Tensor, nn

SEEN = [0, 2]


class Agent(nn.Module):
    """LSTM 128 on positions, a head of 64 each for policy and value."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.cell = nn.LSTM(2, 128), nn.LSTMCell(2, 128)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):  # one set of weights, as there
            setattr(self.cell, name, getattr(self.lstm, f"{name}_l0"))
        self.actor = nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 2))
        self.critic = nn.Sequential(nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 1))

    def heads(self, h: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(h).log_softmax(-1), self.critic(h).squeeze(-1)


class Loop:
    """Rollouts and updates of one training."""

    def __init__(self, task: Task) -> None:
        self.task, self.agent = task, Agent()
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=task.lr, eps=1e-5)
        self.envs = gym.make_vec("CartPole-v1", task.envs, vectorization_mode="vector_entry_point")
        obs, _ = self.envs.reset(seed=task.seed)
        self.next_obs = torch.as_tensor(obs[:, SEEN])
        shape = (task.rollout_steps, task.envs)
        self.obs, self.action = torch.zeros(*shape, 2), torch.zeros(shape, dtype=torch.int64)
        self.log_prob, self.value, self.reward, self.done = torch.zeros(4, *shape).unbind()
        self.state = (torch.zeros(task.envs, 128), torch.zeros(task.envs, 128))

    @torch.no_grad()
    def rollout(self) -> None:
        for t in range(self.task.rollout_steps):
            self.obs[t] = self.next_obs
            self.state = self.agent.cell(self.next_obs, self.state)
            log_probs, self.value[t] = self.agent.heads(self.state[0])
            action = torch.multinomial(log_probs.exp(), 1)
            self.action[t] = action[:, 0]
            self.log_prob[t] = log_probs.gather(1, action)[:, 0]
            obs, reward, terminated, truncated, _ = self.envs.step(action[:, 0].numpy())
            self.reward[t] = torch.as_tensor(reward)
            done = torch.as_tensor(terminated | truncated, dtype=torch.float32)
            self.done[t] = done
            self.state = tuple(leaf * (1.0 - done).unsqueeze(1) for leaf in self.state)
            self.next_obs = torch.as_tensor(obs[:, SEEN])

    def advantages(self) -> Tensor:
        """In numpy, for their compiled kernel."""
        value, reward, alive = self.value.numpy(), self.reward.numpy(), 1.0 - self.done.numpy()
        advantage, carry = np.zeros_like(value), np.zeros(self.task.envs, np.float32)
        for t in range(len(value) - 2, -1, -1):
            delta = reward[t] + self.task.gamma * value[t + 1] * alive[t] - value[t]
            advantage[t] = carry = delta + self.task.gamma * self.task.gae_lambda * alive[t] * carry
        return torch.from_numpy(advantage)

    def update(self) -> None:
        advantage = self.advantages()
        target = advantage + self.value
        rows = self.task.batch // self.task.rollout_steps
        for _ in range(self.task.epochs):
            for index in torch.randperm(self.task.envs).split(rows):
                self.step(index, advantage[:, index], target[:, index])

    def step(self, index: Tensor, advantage: Tensor, target: Tensor) -> None:
        h, _ = self.agent.lstm(self.obs[:, index])
        log_probs, value = self.agent.heads(h)
        log_prob = log_probs.gather(-1, self.action[:, index].unsqueeze(-1)).squeeze(-1)
        ratio = (log_prob - self.log_prob[:, index]).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clip = self.task.clip
        policy = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip)).mean()
        loss = policy + 0.5 * (value - target).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), 0.5)
        self.optimizer.step()


def main() -> None:
    """Run the task and answer."""
    task = Task.from_argv()
    torch.set_num_threads(1)
    torch.manual_seed(task.seed)
    loop, clock, size = Loop(task), Clock(), task.envs * task.rollout_steps
    for done in range(0, task.total, size):
        clock.mark(done)
        loop.rollout()
        loop.update()
    clock.mark(task.total)
    clock.report(task)


if __name__ == "__main__":
    main()
