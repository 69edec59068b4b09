"""A probe environment with any pair of spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from envs.probes import Probe

OBSERVATIONS: dict[str, Any] = {
    "box": lambda: spaces.Box(-1, 1, (3,), np.float32),
    "box64": lambda: spaces.Box(-1, 1, (3,), np.float64),
    "box_2d": lambda: spaces.Box(-1, 1, (2, 3), np.float32),
    "box_ints": lambda: spaces.Box(0, 9, (2,), np.int32),
    "scalar": lambda: spaces.Box(-1, 1, (), np.float32),
    "unbounded": lambda: spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "image_hwc": lambda: spaces.Box(0, 255, (12, 10, 3), np.uint8),
    "image_chw": lambda: spaces.Box(0, 255, (4, 12, 10), np.uint8),
    "image_grey": lambda: spaces.Box(0, 255, (12, 10), np.uint8),
    "discrete": lambda: spaces.Discrete(5),
    "discrete_start": lambda: spaces.Discrete(5, start=3),
    "multi_discrete": lambda: spaces.MultiDiscrete([3, 4]),
    "multi_discrete_start": lambda: spaces.MultiDiscrete([3, 4], start=[1, -2]),
    "multi_discrete_2d": lambda: spaces.MultiDiscrete([[3, 4], [5, 6]]),
    "multi_binary": lambda: spaces.MultiBinary(4),
    "multi_binary_2d": lambda: spaces.MultiBinary((2, 3)),
    "dict": lambda: spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float64), "b": spaces.Discrete(3)}),
    "dict_nested": lambda: spaces.Dict(
        {"a": spaces.Dict({"b": spaces.MultiBinary(2)}), "c": spaces.Tuple((spaces.MultiDiscrete([2, 3]),))}
    ),
    "dict_with_image": lambda: spaces.Dict({"a": spaces.Discrete(2), "image": spaces.Box(0, 255, (8, 8, 3), np.uint8)}),
    "tuple": lambda: spaces.Tuple((spaces.Discrete(32), spaces.Discrete(11), spaces.Discrete(2))),
    "tuple_uneven": lambda: spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (3,), np.float32))),
}
REFUSED_OBSERVATIONS: dict[str, Any] = {
    "text": lambda: spaces.Text(5),
    "sequence": lambda: spaces.Sequence(spaces.Discrete(3)),
    "graph": lambda: spaces.Graph(spaces.Box(0, 1, (2,)), None),
    "dict_with_text": lambda: spaces.Dict({"a": spaces.Discrete(2), "mission": spaces.Text(5)}),
    "tuple_with_sequence": lambda: spaces.Tuple((spaces.Sequence(spaces.Discrete(3)),)),
}
ACTIONS: dict[str, Any] = {
    "discrete": lambda: spaces.Discrete(4),
    "discrete_start": lambda: spaces.Discrete(4, start=-1),
    "multi_discrete": lambda: spaces.MultiDiscrete([2, 3]),
    "multi_discrete_start": lambda: spaces.MultiDiscrete([2, 3], start=[5, -1]),
    "multi_discrete_2d": lambda: spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "multi_binary": lambda: spaces.MultiBinary(3),
    "multi_binary_2d": lambda: spaces.MultiBinary((2, 2)),
    "box": lambda: spaces.Box(-2, 2, (2,), np.float32),
    "box64": lambda: spaces.Box(-2, 2, (2,), np.float64),
    "box_2d": lambda: spaces.Box(-2, 2, (2, 3), np.float32),
    "box_scalar": lambda: spaces.Box(-2, 2, (), np.float32),
    "asymmetric": lambda: spaces.Box(np.array([-1, 0], np.float32), np.array([1, 5], np.float32)),
    "half_bounded": lambda: spaces.Box(np.array([-np.inf, 0], np.float32), np.array([1, np.inf], np.float32)),
    "unbounded": lambda: spaces.Box(-np.inf, np.inf, (2,), np.float32),
}
REFUSED_ACTIONS: dict[str, Any] = {
    "dict": lambda: spaces.Dict({"a": spaces.Discrete(2)}),
    "tuple": lambda: spaces.Tuple((spaces.Discrete(2),)),
    "box_ints": lambda: spaces.Box(0, 255, (2,), np.uint8),
    "text": lambda: spaces.Text(5),
}


class Spaces(Probe):
    """Observes random samples of any space; pays 1 for an action inside its space, -1 for one outside."""

    def __init__(self, observation: str = "box", action: str = "discrete", render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.observation_space = (OBSERVATIONS | REFUSED_OBSERVATIONS)[observation]()
        self.action_space = (ACTIONS | REFUSED_ACTIONS)[action]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.observation_space.seed(seed)
        return super().reset(seed=seed)

    def observe(self) -> Any:
        return self.observation_space.sample()

    def pay(self, action: Any) -> float:
        return 1.0 if self.action_space.contains(action) else -1.0

    def ended(self) -> bool:
        return self.t == 5
