"""The contract of callbacks: they watch a run and do not change what it learns."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod

from ludus.experiment import build
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
        """A method with another name or other parameters would never be called."""
        for name, method in inspect.getmembers(self.make(), inspect.ismethod):
            if name.startswith("on_"):
                inspect.signature(method).bind(*inspect.signature(getattr(Callback(), name)).parameters)

    def test_the_run_learns_the_same_and_its_state_can_be_saved(self) -> None:
        """The state after a run is plain data that another callback can load."""
        callback, other = self.make(), self.make()
        config = small_config({"algorithm": {"name": "ppo", "rollout_steps": 16, "epochs": 1}})
        watched, alone = (trained(build(config, callbacks=also)) for also in ([callback], []))
        assert learned(watched) == learned(alone) or self.changes_learning
        state = json.dumps(callback.state_dict())
        other.load_state_dict(json.loads(state))
        assert json.dumps(other.state_dict()) == state
