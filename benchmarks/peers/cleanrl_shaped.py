"""PPO in the shape of CleanRL's single files: Categorical, torch loops, foreach Adam, all eager.

CartPole runs in SyncVectorEnv (its ppo.py), Atari games in EnvPool with float storage (its ppo_atari_envpool.py).
"""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from task import Clock, Task, answer
from torch import Tensor, nn
from torch.distributions import Categorical


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    """Separate networks for policy and value."""

    shape: tuple[int, ...] = (4,)

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 2, 0.01))
        self.critic = nn.Sequential(layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))

    def act(self, obs: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        dist = Categorical(logits=self.actor(obs))
        action = dist.sample() if action is None else action
        return action, dist.log_prob(action), dist.entropy(), self.value(obs)

    def value(self, obs: Tensor) -> Tensor:
        return self.critic(obs).squeeze(-1)


def convolution(*sizes: int) -> nn.Conv2d:
    conv = nn.Conv2d(*sizes)
    nn.init.orthogonal_(conv.weight, 2**0.5)
    nn.init.zeros_(conv.bias)
    return conv


class AtariAgent(Agent):
    """The Nature network under both heads."""

    shape = (4, 84, 84)

    def __init__(self, actions: int) -> None:
        nn.Module.__init__(self)
        self.network = nn.Sequential(
            convolution(4, 32, 8, 4), nn.ReLU(), convolution(32, 64, 4, 2), nn.ReLU(),
            convolution(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), layer(64 * 7 * 7, 512), nn.ReLU(),
        )  # fmt: skip
        self.actor, self.critic = layer(512, actions, 0.01), layer(512, 1, 1.0)

    def act(self, obs: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return super().act(self.network(obs / 255.0), action)

    def value(self, hidden: Tensor) -> Tensor:
        return self.critic(hidden if hidden.ndim == 2 else self.network(hidden / 255.0)).squeeze(-1)


def make_envs(count: int) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: gym.make("CartPole-v1")] * count, autoreset_mode=AutoresetMode.SAME_STEP)


def make_games(task: Task) -> Any:
    import envpool

    game = task.env.removeprefix("ALE/")
    options = {"episodic_life": True, "reward_clip": True, "seed": task.seed, "num_threads": task.threads}
    return envpool.make(game, env_type="gymnasium", num_envs=task.envs, **options)


class Returns:
    """Of the newest 100 episodes, in raw rewards, which EnvPool gives beside the clipped ones."""

    def __init__(self, envs: int) -> None:
        self.running, self.done = np.zeros(envs), deque[float](maxlen=100)

    def add(self, info: dict[str, Any], over: np.ndarray) -> None:
        self.running += info["reward"]
        for i in np.flatnonzero(over & (info["terminated"] | (info["lives"] == 0)).astype(bool)):
            self.done.append(float(self.running[i]))
            self.running[i] = 0.0


class Loop:
    """Storage, rollout, advantages and epochs of one training."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.envs = make_games(task) if task.atari else make_envs(task.envs)
        self.agent = AtariAgent(int(self.envs.action_space.n)) if task.atari else Agent()
        self.returns = Returns(task.envs)
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=task.lr, eps=1e-5, foreach=True)
        shape = (task.rollout_steps, task.envs)
        self.obs = torch.zeros(*shape, *self.agent.shape)
        self.actions = torch.zeros(shape, dtype=torch.int64)
        self.logprobs, self.rewards, self.dones, self.values = torch.zeros(4, *shape).unbind()
        self.next_obs = torch.Tensor(self.envs.reset()[0] if task.atari else self.envs.reset(seed=task.seed)[0])
        self.next_done = torch.zeros(task.envs)

    @torch.no_grad()
    def rollout(self) -> None:
        for t in range(self.task.rollout_steps):
            self.obs[t], self.dones[t] = self.next_obs, self.next_done
            action, self.logprobs[t], _, self.values[t] = self.agent.act(self.next_obs)
            self.actions[t] = action
            obs, reward, terminated, truncated, info = self.envs.step(action.numpy())
            self.rewards[t] = torch.tensor(reward)
            self.next_obs, self.next_done = torch.Tensor(obs), torch.tensor(terminated | truncated, dtype=torch.float32)
            if self.task.atari:
                self.returns.add(info, terminated | truncated)

    @torch.no_grad()
    def advantages(self) -> Tensor:
        advantages, carry = torch.zeros_like(self.rewards), torch.zeros(self.task.envs)
        next_value, alive = self.agent.value(self.next_obs), 1.0 - self.next_done
        for t in reversed(range(self.task.rollout_steps)):
            delta = self.rewards[t] + self.task.gamma * next_value * alive - self.values[t]
            advantages[t] = carry = delta + self.task.gamma * self.task.gae_lambda * alive * carry
            next_value, alive = self.values[t], 1.0 - self.dones[t]
        return advantages

    def update(self, left: float) -> None:
        if self.task.anneal:
            self.optimizer.param_groups[0]["lr"] = left * self.task.lr
        clip = left * self.task.clip if self.task.anneal else self.task.clip
        advantages = self.advantages()
        flat = (self.obs.flatten(0, 1), self.actions.reshape(-1), self.logprobs.reshape(-1), advantages.reshape(-1))
        returns = (advantages + self.values).reshape(-1)
        index = np.arange(len(returns))
        for _ in range(self.task.epochs):
            np.random.shuffle(index)
            for start in range(0, len(index), self.task.batch):
                batch = index[start : start + self.task.batch]
                self.step(*(column[batch] for column in flat), returns[batch], clip)

    def step(
        self, obs: Tensor, action: Tensor, logprob: Tensor, advantage: Tensor, target: Tensor, clip: float
    ) -> None:
        _, new_logprob, entropy, value = self.agent.act(obs, action)
        ratio = (new_logprob - logprob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        policy = torch.max(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip)).mean()
        loss = policy + 0.5 * (value - target).square().mean()
        if self.task.entropy:
            loss = loss - self.task.entropy * entropy.mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.agent.parameters(), 0.5)
        self.optimizer.step()

    @torch.no_grad()
    def evaluate(self) -> float:
        envs, count = make_envs(self.task.eval_episodes), self.task.eval_episodes
        obs, _ = envs.reset(seed=self.task.seed + 10_000)
        returns, running = np.zeros(count), np.ones(count, bool)
        while running.any():
            action = self.agent.actor(torch.tensor(obs)).argmax(-1).numpy()
            obs, reward, terminated, truncated, _ = envs.step(action)
            returns += reward * running
            running &= ~(terminated | truncated)
        return float(returns.mean())


def main() -> None:
    """Run the task and answer."""
    task = Task.from_argv()
    torch.set_num_threads(task.threads)
    torch.manual_seed(task.seed)
    np.random.seed(task.seed)
    loop, clock = Loop(task), Clock()
    size, due, mean = task.envs * task.rollout_steps, task.eval_every, float("-inf")
    rollouts = -(-task.total // size)
    done = 0
    for i in range(rollouts):
        clock.mark(done, loop.returns.done)
        loop.rollout()
        loop.update(1.0 - i / rollouts)
        done += size
        if task.eval_every and (done >= due or i == rollouts - 1):
            due, mean = due + task.eval_every, loop.evaluate()
            if mean >= task.threshold:
                break
    clock.mark(done, loop.returns.done)
    if task.eval_every:
        answer(solved=mean >= task.threshold, eval_mean=mean, env_steps=done)
    else:
        clock.report(task)


if __name__ == "__main__":
    main()
