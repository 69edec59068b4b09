"""SAC and DQN in the shape of CleanRL's single files: modules, torch.optim, a loop over parameters for the targets."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch
from off_policy_task import Clock, OffPolicyTask
from torch import Tensor, nn, optim
from torch.distributions import Normal
from torch.nn.functional import mse_loss


class Replay:
    """Five arrays and a cursor."""

    def __init__(self, size: int, obs: tuple[int, ...], action: tuple[int, ...], kind: type) -> None:
        self.obs, self.next_obs = np.zeros((2, size, *obs), np.float32)
        self.action, self.reward, self.done = np.zeros((size, *action), kind), *np.zeros((2, size), np.float32)
        self.size, self.count = size, 0

    def add(self, obs: np.ndarray, next_obs: np.ndarray, action: np.ndarray, reward: float, done: bool) -> None:
        i = self.count % self.size
        self.obs[i], self.next_obs[i], self.action[i], self.reward[i], self.done[i] = (
            obs,
            next_obs,
            action,
            reward,
            done,
        )
        self.count += 1

    def sample(self, batch: int) -> list[Tensor]:
        i = np.random.randint(0, min(self.count, self.size), batch)
        columns = (self.obs, self.next_obs, self.action, self.reward, self.done)
        return [torch.as_tensor(column[i]) for column in columns]


def network(inputs: int, width: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


class SAC:
    """sac_continuous_action.py: two critics, two targets, learned temperature."""

    def __init__(self, task: OffPolicyTask, env: gym.Env) -> None:
        self.task = task
        obs, self.size = env.observation_space.shape[0], env.action_space.shape[0]
        self.actor = network(obs, task.width, 2 * self.size)
        self.q1, self.q2, self.t1, self.t2 = (network(obs + self.size, task.width, 1) for _ in range(4))
        self.t1.load_state_dict(self.q1.state_dict())
        self.t2.load_state_dict(self.q2.state_dict())
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.q_optimizer = optim.Adam([*self.q1.parameters(), *self.q2.parameters()], lr=task.lr)
        self.actor_optimizer = optim.Adam(self.actor.parameters(), lr=task.lr)
        self.alpha_optimizer = optim.Adam([self.log_alpha], lr=task.lr)

    def draw(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = self.actor(obs).chunk(2, -1)
        normal = Normal(mean, (-5 + 3.5 * (torch.tanh(log_std) + 1)).exp())
        u = normal.rsample()
        action = torch.tanh(u)
        return action, (normal.log_prob(u) - torch.log(1 - action.pow(2) + 1e-6)).sum(1, keepdim=True)

    def act(self, obs: np.ndarray) -> np.ndarray:
        return self.draw(torch.as_tensor(obs, dtype=torch.float32)[None])[0].detach().numpy()[0]

    def update(self, obs: Tensor, next_obs: Tensor, action: Tensor, reward: Tensor, done: Tensor) -> None:
        alpha = self.log_alpha.exp().item()
        with torch.no_grad():
            next_action, next_log_pi = self.draw(next_obs)
            x = torch.cat([next_obs, next_action], 1)
            value = torch.min(self.t1(x), self.t2(x)) - alpha * next_log_pi
            target = reward + (1 - done) * self.task.gamma * value.view(-1)
        x = torch.cat([obs, action], 1)
        q_loss = mse_loss(self.q1(x).view(-1), target) + mse_loss(self.q2(x).view(-1), target)
        self.q_optimizer.zero_grad()
        q_loss.backward()
        self.q_optimizer.step()

        drawn, log_pi = self.draw(obs)
        x = torch.cat([obs, drawn], 1)
        actor_loss = (alpha * log_pi - torch.min(self.q1(x), self.q2(x))).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()

        alpha_loss = (-self.log_alpha.exp() * (log_pi.detach() - self.size)).mean()
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()
        for online, slow in ((self.q1, self.t1), (self.q2, self.t2)):
            for parameter, target_parameter in zip(online.parameters(), slow.parameters(), strict=True):
                target_parameter.data.copy_(0.005 * parameter.data + 0.995 * target_parameter.data)


class DQN:
    """dqn.py: one network, one target, epsilon-greedy."""

    def __init__(self, task: OffPolicyTask, env: gym.Env) -> None:
        self.task, self.env, self.updates = task, env, 0
        self.q, self.target = (
            network(env.observation_space.shape[0], task.width, env.action_space.n) for _ in range(2)
        )
        self.target.load_state_dict(self.q.state_dict())
        self.optimizer = optim.Adam(self.q.parameters(), lr=task.lr)

    def act(self, obs: np.ndarray) -> np.ndarray:
        if np.random.random() < 0.05:
            return np.asarray(self.env.action_space.sample())
        return self.q(torch.as_tensor(obs)).argmax().numpy()

    def update(self, obs: Tensor, next_obs: Tensor, action: Tensor, reward: Tensor, done: Tensor) -> None:
        with torch.no_grad():
            target = reward + self.task.gamma * self.target(next_obs).max(dim=1).values * (1 - done)
        loss = mse_loss(target, self.q(obs).gather(1, action[:, None]).squeeze())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.updates += 1
        if self.updates % 500 == 0:
            self.target.load_state_dict(self.q.state_dict())


def main() -> None:
    """Run the task and answer."""
    task = OffPolicyTask.from_argv()
    torch.set_num_threads(task.threads)
    torch.manual_seed(task.seed)
    np.random.seed(task.seed)
    env = gym.make(task.env)
    agent = SAC(task, env) if task.algorithm == "sac" else DQN(task, env)
    kind = np.float32 if task.algorithm == "sac" else np.int64
    replay, clock = Replay(task.buffer, env.observation_space.shape, env.action_space.shape, kind), Clock(task)
    obs, _ = env.reset(seed=task.seed)
    env.action_space.seed(task.seed)
    for step in range(task.total):
        action = env.action_space.sample() if step < task.learning_starts else agent.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        replay.add(obs, next_obs, action, reward, terminated)
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step >= task.learning_starts:
            agent.update(*replay.sample(task.batch))
        clock.mark(step + 1)
    clock.answer()


main()
