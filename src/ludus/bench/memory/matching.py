"""Finds the width at which a core's policy has as many parameters as the reference."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable

from ludus.bench.memory.tasks import REFERENCE, BenchTask, Core, TaskSize
from ludus.config.compose import dump, load
from ludus.config.schema import ExperimentConfig
from ludus.envs.make import make_vector
from ludus.errors import ConfigError
from ludus.networks.policy import PolicyNetwork
from ludus.types import Spaces

TOLERANCE = 0.02
WIDEST = 1 << 13


def reference_size(task: BenchTask, share: float) -> int:
    """Parameters of the reference policy as configured, times `share`."""
    return round(share * count(configured(task, REFERENCE, None)))


def matched(task: BenchTask, core: Core, target: int | None) -> tuple[TaskSize | None, int]:
    """Size and parameter count nearest to the target, within the tolerance; without a target as configured."""
    config = configured(task, core, None)
    spaces = spaces_of(config)
    if target is None:
        return None, count(config, spaces)

    def search(make: Callable[[int], TaskSize]) -> tuple[int, int]:
        return nearest_width(lambda n: count(configured(task, core, make(n)), spaces), target)

    grains, found = search(TaskSize)
    size = TaskSize(grains)
    if core.trim is not None and abs(found - target) > TOLERANCE / 2 * target:
        trim, found = search(lambda n: TaskSize(grains, n))
        size = TaskSize(grains, trim)
    if abs(found - target) > TOLERANCE * target:
        problem = f"{core.name} on {task.name} has {found:,} parameters at best, {target:,} are wanted"
        raise ConfigError("--match-params", problem, "choose a larger share")
    return size, found


def nearest_width(size: Callable[[int], int], target: int) -> tuple[int, int]:
    """The width whose size is nearest to the target, by bisection; `size` must grow with the width."""
    high = 2
    while size(high) < target and high < WIDEST:
        high *= 2
    high = max(high // 2 + bisect_left(range(high // 2, high), target, key=size), 2)
    sizes = {width: size(width) for width in (high - 1, high)}
    best = min(sizes, key=lambda width: abs(sizes[width] - target))
    return best, sizes[best]


def overrides(task: BenchTask, core: Core, size: TaskSize | None) -> tuple[str, ...]:
    """Overrides that put the core into the task's config: memory, size and stacked observations, nothing else."""
    chosen = (*task.overrides, f"network.memory={core.memory}")
    if size is not None:
        chosen += core.sized(size)
    if core.stack > 1:
        wrappers = dump(load(task.spec, list(chosen)).config)["environment"]["wrappers"]
        chosen += (f"environment.wrappers={written([*wrappers, {'id': 'frame_stack', 'frames': core.stack}])}",)
    return chosen


def written(value: object) -> str:
    """Plain data in Hydra's override grammar."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value)


def configured(task: BenchTask, core: Core, size: TaskSize | None) -> ExperimentConfig:
    """The resolved config."""
    return load(task.spec, list(overrides(task, core, size))).config


def spaces_of(config: ExperimentConfig) -> Spaces:
    """Observation and action space."""
    with make_vector(config.environment, num_envs=1, vectorization="sync") as env:
        return Spaces(env.observation_space, env.action_space)


def count(config: ExperimentConfig, spaces: Spaces | None = None) -> int:
    """Number of parameters of the policy."""
    policy = PolicyNetwork(config.network, spaces or spaces_of(config))
    return sum(parameter.numel() for parameter in policy.parameters())
