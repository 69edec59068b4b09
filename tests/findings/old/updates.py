"""What the scripts of compiled updates share: the first update of a config, before it is compiled."""

from typing import Any

import gymnasium as gym
import numpy as np
from ludus.networks.compiled import Compiler, source_hash

from ludus.config.schema import ExperimentConfig
from ludus.experiment import build

BASE = {
    "ppo": {"rollout_steps": 8, "epochs": 1},
    "dqn": {"learning_starts": 16, "batch_size": 8},
    "sac": {"learning_starts": 16, "batch_size": 8},
}


class Spaced(gym.Env):
    """Any spaces, random observations, ten steps."""

    def __init__(self, observation: gym.Space, action: gym.Space) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin."""
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.age = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        """Ten steps to an end."""
        self.age += 1
        return self.observation_space.sample(), 1.0, self.age >= 10, False, {}


BOX, TWO = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)
SPACES = {
    "Acts23": (BOX, gym.spaces.MultiDiscrete([2, 3])),
    "Acts32": (BOX, gym.spaces.MultiDiscrete([3, 2])),
    "Sees23": (gym.spaces.MultiDiscrete([2, 3]), TWO),
    "Sees32": (gym.spaces.MultiDiscrete([3, 2]), TWO),
    "Pixels": (gym.spaces.Box(0, 255, (1, 20, 20), np.uint8), TWO),
}
for name, (seen, acted) in SPACES.items():
    gym.register(f"{name}-v0", entry_point=Spaced, kwargs={"observation": seen, "action": acted})


class Taken(Exception):
    """The first update was seen."""


def first_update(
    env: str, algorithm: str, encoder: dict[str, Any] | None = None, **fields: Any
) -> tuple[str, Any, Any]:
    """Key of the package, function and example tensors of the first update of a run."""
    found = []

    def get(self: Compiler, function: Any, example: Any, identity: str, owners: Any, *, may_build: bool) -> None:
        found.append((self._key(example, f"{identity} {source_hash(owners)}"), function, list(example)))
        raise Taken

    whole, Compiler.get = Compiler.get, get
    small = {"hidden_dims": [8]}
    network = {"actor": small, "critic": small, **({"encoder": encoder} if encoder else {})}
    run = build(
        ExperimentConfig.model_validate(
            {
                "environment": {"id": env, "num_envs": 4},
                "algorithm": {"name": algorithm, **BASE[algorithm], **fields},
                "network": network,
                "training": {"total_timesteps": 512},
                "runtime": {"compile": "always"},
            }
        )
    )
    try:
        run.run()
    except Taken:
        return found[0]
    finally:
        Compiler.get = whole
    raise LookupError("the run made no update")
