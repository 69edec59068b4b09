"""A data set of episodes in Minari's format as a buffer; nothing is added to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, PositiveInt

from ludus.config.model import Model
from ludus.data.buffers.sampling import Buffer
from ludus.data.buffers.segments import SegmentFile
from ludus.data.buffers.store import BufferConfig
from ludus.data.datasets.minari import MinariData
from ludus.data.datasets.statistics import Episode, summarize
from ludus.data.normalizer import ObservationNormalizer
from ludus.data.rollout import Ends, Rollout
from ludus.errors import ConfigError, DataError
from ludus.registry import BUFFERS
from ludus.spaces import scale_from
from ludus.types import Array, Spaces, State, tree_index, tree_map


class MinariConfig(Model):
    """A data set on disk."""

    path: str = ""
    """Folder of the data set: the one with `data/metadata.json` in it."""
    episodes: PositiveInt | None = None
    """Learn from the first N episodes; none: from all of them."""
    held_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of the episodes that are kept apart to validate on; at least one, unless it is 0."""
    storage: Literal["ram", "disk"] = "ram"
    """`disk` copies the steps to files in the run's folder, one episode at a time, and maps these into memory."""


@BUFFERS.register("minari")
class MinariBuffer(Buffer):
    """Checks every episode when the run is built, copies the steps when they are first needed, and draws uniformly."""

    Config = MinariConfig  # type: ignore[assignment]
    own = False

    def __init__(self, cfg: MinariConfig, spaces: Spaces, num_envs: int, *, name: str, **details: Any) -> None:
        self.source, self.where = cfg, f"buffers.{name}.path"
        self.data = MinariData(cfg.path, self.where)
        if self.data.spaces != spaces:
            problem = f"the spaces there are {self.data.spaces.observation} and {self.data.spaces.action}, "
            problem += f"this run has {spaces.observation} and {spaces.action}"
            raise ConfigError(self.where, problem, "use a data set of an environment with the same spaces")
        self.count, normalizer = min(self.data.count, cfg.episodes or self.data.count), details.get("normalizer")
        self._apart = held_out(self.count, cfg.held_out)
        self.sha256, self.summary = self.data.sha256, summarize(spaces, self._checked(normalizer))
        super().__init__(self._room(cfg.storage, apart=False), spaces, 1, name=name, **details)
        details["rng"] = np.random.default_rng(0)  # every run validates on the same steps
        self._held_out = Buffer(self._room("ram", apart=True), spaces, 1, name=name, **details) if self._apart else None

    def _checked(self, normalizer: ObservationNormalizer | None) -> Iterator[Episode]:
        """Every episode once; a normaliser of observations learns from those to train on."""
        for i, episode in enumerate(self.data.episodes(self.count)):
            if normalizer is not None and i not in self._apart:
                normalizer.update(tree_index(episode.obs, slice(-1)))
            yield episode

    def _room(self, storage: Literal["ram", "disk"], *, apart: bool) -> BufferConfig:
        """Room for the steps and final observations of the episodes to validate on, or of the others."""
        slots = sum(length + 1 for i, length in enumerate(self.summary.lengths) if (i in self._apart) == apart)
        return BufferConfig(size=max(4, slots), storage=storage)

    @staticmethod
    def spaces_of(cfg: MinariConfig, where: str) -> Spaces:
        """The spaces of its steps; no environment is made."""
        return MinariData(cfg.path, where).spaces

    @property
    def knobs(self) -> str:
        """What makes it smaller."""
        return f"buffers.{self.name}.episodes, or set buffers.{self.name}.storage to disk"

    @property
    def origin(self) -> str:  # type: ignore[override]
        """What the data set holds, with the beginning of its checksum."""
        found, apart = self.summary, f", {len(self._apart)} of them to validate on" if self.source.held_out else ""
        about = f"{self.count:,} episodes{apart}, {found.steps:,} steps, return {np.mean(found.returns):,.1f}"
        return f"{self.source.path}: {about}, sha256 {self.sha256[:12]}"

    @property
    def storage(self) -> SegmentFile:
        """The steps, read when they are first needed."""
        if self._storage is None:
            self._fill()
        return super().storage

    def _fill(self) -> None:
        """Copy the episodes, one at a time in memory."""
        if self.extras or self._memory is not None:
            missing = self.extras[0] if self.extras else "the memory of a policy"
            problem = f"{missing} is not stored in a data set"
            raise ConfigError(self.where, problem, "use another algorithm, or network.memory=none")
        _ = super().storage  # it is there from now on
        for i, episode in enumerate(self.data.episodes(self.count)):
            steps = as_rollout(episode, scale_from(self.spaces.action) if self.scaled_actions else None)
            if i in self._apart:
                assert self._held_out is not None
                self._held_out.add(steps)
            else:
                super().add(steps)

    @property
    def held_out(self) -> Buffer | None:
        """The episodes to validate on, if there are any."""
        return self._held_out if self.storage else None  # they are read first

    def __len__(self) -> int:
        return super().__len__() if self.storage else 0

    @property
    def added(self) -> int:
        """All steps to train on."""
        return len(self)

    def add(self, rollout: Rollout, **columns: Array) -> None:
        raise ConfigError(f"buffers.{self.name}", "is a data set and takes no other steps",
                          "collect into another buffer: training.phases[].buffer")  # fmt: skip

    def save(self, tag: str, keep: tuple[str, ...]) -> State:
        """Which data set it is; the steps themselves are not saved."""
        return {"sha256": self.sha256, "rng": dict(self.rng.bit_generator.state)}

    def load(self, state: State, source: Path | None) -> None:
        if state["sha256"] != self.sha256:
            problem = f"is another data set than when this run was saved: sha256 {self.sha256[:12]}, "
            raise DataError(str(self.data.folder), f"{problem}not {state['sha256'][:12]}", "restore it")
        self.rng.bit_generator.state = state["rng"]

    def start_over(self) -> None:
        """Read the steps again."""
        super().start_over()
        if self._held_out is not None:
            self._held_out.start_over()


def held_out(count: int, share: float) -> frozenset[int]:
    """Which of `count` episodes are kept apart: drawn at random, but the same ones in every run."""
    wanted = min(max(1, round(share * count)), count - 1) if share else 0
    return frozenset(np.random.default_rng(0).permutation(count)[:wanted].tolist())


def as_rollout(episode: Episode, scale: Callable[[Array], Array] | None = None) -> Rollout:
    """An episode as one environment collects it; the next one has just begun. `scale` is applied to actions."""
    steps, obs = len(episode), tree_map(lambda leaf: leaf[:, None], episode.obs)
    action = episode.action if scale is None else scale(episode.action)
    terminated, first = np.zeros((steps, 1), bool), np.zeros((steps + 1, 1), bool)
    truncated = terminated.copy()
    terminated[-1], truncated[-1], first[[0, -1]] = episode.terminated, not episode.terminated, True
    last, reward = tree_index(obs, -1), episode.reward[:, None]
    ends = Ends(t=np.array([steps - 1]), b=np.array([0]), obs=last, raw_obs=last, state=(), bootstrap=truncated[-1])
    return Rollout(
        obs=obs,
        action=action[:, None],
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        first=first,
        state=(),
        last_state=(),
        ends=ends,
        raw_obs=obs,
        raw_reward=reward,
        start=0,
    )
