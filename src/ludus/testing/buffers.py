"""The contract of replay buffers: samples equal what happened, by the record of a second, identical environment."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from ludus.config.schema import Environment
from ludus.data.buffers.sampling import Buffer
from ludus.data.collector import Collector
from ludus.envs.make import make_vector
from ludus.types import Acted, Array, Spaces

Steps = dict[bytes, tuple[int, float, bool, Array]]
"""Observation -> (action, reward, whether it terminated, true next observation), in order."""


class BufferContract(ABC):
    """Inherit and override `make`."""

    @abstractmethod
    def make(self, spaces: Spaces, num_envs: int) -> Buffer:
        """A new buffer that holds between 80 and 200 steps, with a generator of a fixed seed."""

    def _filled(self, folder: Path, steps: int) -> tuple[Buffer, Steps]:
        """A buffer that holds the newest of `steps` steps of two environments, and the record of all of them."""
        config = Environment(id="CartPole-v1", num_envs=2, max_episode_steps=15)
        env, twin = make_vector(config), make_vector(config)
        collector, buffer = Collector(env, [1, 2]), self.make(Spaces(env.observation_space, env.action_space), 2)
        buffer.attach(folder)
        actions = np.random.default_rng(0).integers(2, size=(steps, 2))
        pairs, record = zip(actions, actions, strict=True), Steps()
        behaviour = SimpleNamespace(initial_state=lambda _: (), act=lambda *_: Acted(*next(pairs), (), {}))
        obs = twin.reset([1, 2]).copy()
        for t, action in enumerate(actions):
            if t % 10 == 0:
                buffer.add(collector.collect(behaviour, 10))
            result = copy.deepcopy(twin.step(action))
            for b in range(2):
                shown = result.obs if result.final_obs is None or not result.done[b] else result.final_obs
                record[obs[b].tobytes()] = action[b], result.reward[b], result.terminated[b], shown[b]
            obs = result.obs
        return buffer, record

    def test_samples_equal_what_happened(self, tmp_path: Path) -> None:
        """Transitions with n-step returns, and sequences; the next observation of a last step is the true final one."""
        buffer, record = self._filled(tmp_path, 80)
        for n_step in (1, 3):
            drawn = buffer.sample(64, n_step=n_step, gamma=0.9)
            for i, after in enumerate(drawn["obs"][0]):
                assert drawn["action"][0, i] == record[after.tobytes()][0]
                total, discount = 0.0, 1.0
                for _ in range(n_step):
                    if after.tobytes() in record:
                        _, reward, terminated, after = record[after.tobytes()]
                        total, discount = total + discount * reward, 0.0 if terminated else 0.9 * discount
                assert np.array_equal(drawn["next_obs"][0, i], after)
                assert np.allclose([drawn["reward"][0, i], drawn["discount"][0, i]], [total, discount])
        drawn = buffer.sample_sequences(32, 5)
        for t, i in np.argwhere(drawn["mask"]):
            *step, after = record[drawn["obs"][t, i].tobytes()]
            assert [drawn[name][t, i] for name in ("action", "reward", "terminated")] == step
            assert np.array_equal(drawn["obs"][t + 1, i], after)

    def test_old_steps_make_room(self, tmp_path: Path) -> None:
        """All stored steps can be sampled: the newest are among them, the oldest are not."""
        buffer, record = self._filled(tmp_path, 300)
        drawn = {obs.tobytes() for _ in range(40) for obs in buffer.sample(64)["obs"][0]}
        assert len(drawn) == len(buffer) <= 200 < buffer.added == 600
        assert drawn.issuperset(list(record)[-20:]) and drawn.isdisjoint(list(record)[:300])

    def test_a_loaded_buffer_continues_exactly(self, tmp_path: Path) -> None:
        """It gives the samples that the saved one gives, also after new priorities."""
        buffer, _ = self._filled(tmp_path, 80)
        other = self.make(buffer.spaces, 2)
        other.load(buffer.save("step=1", ()), tmp_path)
        for _ in range(3):
            ours, theirs = buffer.sample(16), other.sample(16)
            assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
            for one in (buffer, other):
                one.update_priorities(ours["index"], np.arange(16))
