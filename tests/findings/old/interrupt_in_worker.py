"""F26: an environment that raises KeyboardInterrupt in a worker is one line without tracebacks."""

import tempfile
from pathlib import Path

from commands import ludus

PLUGIN = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Leaves(CartPoleEnv):
    def step(self, action):
        self.age = getattr(self, "age", 0) + 1
        if self.age > 300:
            raise KeyboardInterrupt
        return super().step(action)

gym.register("Leaves-v0", Leaves, max_episode_steps=100)
"""
ASYNC = ["environment.vectorization=async", "training.total_timesteps=20000", "runtime.compile=never"]
folder = Path(tempfile.mkdtemp())
(folder / "leaves.py").write_text(PLUGIN)
words = ["CartPole-v1:ppo", "-q", "--plugin", "leaves.py", "environment.id=Leaves-v0", "training.stop.eval_reward=null"]
done = ludus("train", *words, *ASYNC, folder=folder)
assert done.returncode == 4, f"the environment failed, exit code {done.returncode}: {done.stderr[-1500:]}"
assert "Traceback" not in done.stderr, done.stderr[-1500:]
