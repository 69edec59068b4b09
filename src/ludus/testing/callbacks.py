"""The contract of callbacks: they watch a run, which learns the same as without them."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod

from ludus.orchestration.callbacks import Callback
from ludus.testing.algorithms import learned, small_config, trained


class CallbackContract(ABC):
    """Inherit and override `make`."""

    changes_learning = False
    """Whether it stops the run or changes the algorithm's settings."""

    @abstractmethod
    def make(self) -> Callback:
        """A new callback."""

    def test_it_overrides_moments_that_exist(self) -> None:
        """A method of another name, or with other parameters, would never be called."""
        for name, method in inspect.getmembers(self.make(), inspect.ismethod):
            if name.startswith("on_"):
                given = inspect.signature(getattr(Callback(), name)).parameters
                inspect.signature(method).bind(*given)

    def test_a_run_learns_the_same_and_a_checkpoint_holds_what_it_knows(self) -> None:
        """Its state after a run is plain data that another one can go on from."""
        callback, other = self.make(), self.make()
        config = small_config({"algorithm": {"name": "ppo", "rollout_steps": 16, "epochs": 1}})
        watched, alone = trained(config, [callback]), trained(config)
        assert learned(watched) == learned(alone) or self.changes_learning
        state = json.dumps(callback.state_dict())
        other.load_state_dict(json.loads(state))
        assert json.dumps(other.state_dict()) == state
