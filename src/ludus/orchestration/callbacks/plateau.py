"""Changes settings of the algorithm when a metric stops improving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from ludus.config.model import Model
from ludus.config.schedule import Schedule
from ludus.errors import ConfigError
from ludus.metrics.names import EVAL_RETURN
from ludus.orchestration.callbacks import Callback
from ludus.registry import CALLBACKS
from ludus.text import did_you_mean

if TYPE_CHECKING:
    from ludus.run import Run

WHERE = "training.callbacks (plateau)"


class Action(Model):
    """One change of one field of the algorithm: multiply, add or set, within bounds."""

    field: str
    """Field of the algorithm's config; of a schedule both ends change."""
    multiply: float | None = None
    """Multiply by this."""
    add: float | None = None
    """Add this."""
    set: float | None = None
    """Set to this."""
    min: float | None = None
    """Never below this."""
    max: float | None = None
    """Never above this."""

    @model_validator(mode="after")
    def one_of_them(self) -> Action:
        if sum(way is not None for way in (self.multiply, self.add, self.set)) != 1:
            raise ValueError("needs exactly one of multiply, add and set")
        return self

    def apply(self, value: float) -> float:
        """The changed number."""
        if self.set is not None:
            value = self.set
        value = value * (1.0 if self.multiply is None else self.multiply) + (self.add or 0.0)
        value = value if self.min is None else max(value, self.min)
        return value if self.max is None else min(value, self.max)


class PlateauConfig(Model):
    """Changes settings when a metric stops improving."""

    monitor: str = EVAL_RETURN
    """Metric to watch, as it is at the end of each epoch; epochs without it do not count."""
    better: Literal["up", "down"] = "up"
    """Direction in which the metric improves."""
    min_delta: float = Field(default=0.0, ge=0)
    """Smaller improvements do not count."""
    patience: PositiveInt = 5
    """Values without improvement before the actions are applied."""
    cooldown: NonNegativeInt = 0
    """Values after a change that do not count."""
    revert_on_worse: bool = False
    """Undo a change after which the values are worse on average, and make no further one."""
    actions: tuple[Action, ...] = Field(min_length=1)
    """Changes that are applied together."""


@dataclass
class Seen:
    """What it remembers of the values so far: part of every checkpoint."""

    interventions: int = 0
    best: float | None = None
    since: int = 0
    """Values without improvement."""
    cooldown: int = 0
    recent: list[float] = field(default_factory=list)
    level: float | None = None
    """Mean of the values before the newest change."""
    before: dict[str, Any] | None = None
    """Settings before it."""
    given_up: bool = False


@CALLBACKS.register("plateau")
class Plateau(Callback):
    """Its whole state is in the checkpoint, so that a resumed run acts at the same values."""

    Config = PlateauConfig

    def __init__(self, cfg: PlateauConfig) -> None:
        self.cfg, self.seen = cfg, Seen()

    def on_start(self, run: Run) -> None:
        """Refuse actions that can never be applied."""
        for action in self.cfg.actions:
            known = type(run.settings).model_fields
            if action.field not in known:
                raise ConfigError(
                    WHERE, f"the algorithm has no field '{action.field}'", did_you_mean(action.field, known)
                )
            if action.field in run.settings.fixed:
                raise ConfigError(WHERE, f"'{action.field}' is fixed for the whole run", "act on another field")
            changed(getattr(run.settings, action.field), action)

    def on_epoch_end(self, run: Run) -> None:
        """Look at the metric if this epoch has it."""
        value = run.recorder.epoch.get(self.cfg.monitor)
        if value is not None and not self.seen.given_up:
            self._look(run, value)

    def _look(self, run: Run, value: float) -> None:
        seen = self.seen
        seen.recent = [*seen.recent, value][-self.cfg.patience :]
        if seen.best is None or self._gain(value, seen.best) > self.cfg.min_delta:
            seen.best, seen.since = value, 0
            return
        if seen.cooldown:
            seen.cooldown -= 1
            return
        seen.since += 1
        if seen.since < self.cfg.patience:
            return
        seen.since, seen.cooldown = 0, self.cfg.cooldown
        mean = sum(seen.recent) / len(seen.recent)
        if self.cfg.revert_on_worse and seen.level is not None and self._gain(mean, seen.level) < 0:
            self._revert(run, mean)
        else:
            self._intervene(run, mean)

    def _gain(self, value: float, reference: float) -> float:
        return value - reference if self.cfg.better == "up" else reference - value

    def _intervene(self, run: Run, mean: float) -> None:
        old = {action.field: plain(getattr(run.settings, action.field)) for action in self.cfg.actions}
        new = {action.field: changed(getattr(run.settings, action.field), action) for action in self.cfg.actions}
        if new == old:  # every action is at its bound
            return
        if self._change(run, old, new, f"no progress in {self.cfg.patience} values"):
            self.seen.interventions += 1
            self.seen.before, self.seen.level = old, mean

    def _revert(self, run: Run, mean: float) -> None:
        before = self.seen.before
        assert before is not None
        now = {field: plain(getattr(run.settings, field)) for field in before}
        self._change(run, now, before, f"{mean:g} on average after the change, {self.seen.level:g} before it")
        self.seen.given_up = True

    def _change(self, run: Run, old: dict[str, Any], new: dict[str, Any], why: str) -> bool:
        what = ", ".join(f"{field} {old[field]} -> {new[field]}" for field in new)
        try:
            run.change_settings(new)
        except ConfigError as error:
            self.seen.given_up = True
            run.say(f"plateau: {what} is not possible: {error.line()}")
            return False
        run.say(f"plateau of {self.cfg.monitor}: {why}; {what}")
        return True

    def state_dict(self) -> dict[str, Any]:
        """Counters, the best value and the values before the newest change."""
        return asdict(self.seen)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there."""
        self.seen = Seen(**state)


def changed(value: Any, action: Action) -> Any:
    """A field's value after an action, as plain data; both ends of a schedule change."""
    if isinstance(value, Schedule):
        ends = {"start": action.apply(value.start), "end": action.apply(value.end)}
        return plain(value.model_copy(update=ends))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(WHERE, f"'{action.field}' is {value!r}, not a number", "act on another field")
    return round(action.apply(value)) if isinstance(value, int) else action.apply(value)


def plain(value: Any) -> Any:
    """A schedule as a config writes it."""
    return value.model_dump() if isinstance(value, Schedule) else value
