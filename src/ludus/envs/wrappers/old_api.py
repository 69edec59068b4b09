"""The adaptor for Gym before 0.26, asked for by name."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

from ludus.registry import WRAPPERS


@WRAPPERS.register("old_api")
@WRAPPERS.register("StepAPICompatibility")
class OldApi(gym.Wrapper):
    """For environments whose `reset` returns an observation alone and whose `step` returns four values.

    Needed only where that does not show: a class whose `reset` takes no seed is found out by itself. The adaptor goes
    under everything else, whatever its place in the list.
    """

    adapts = True

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
