"""The training section: budget, phases, evaluation, early stops, checkpoints."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from ludus.config.model import Choice, Model, Registered
from ludus.progress import Budget
from ludus.registry import CALLBACKS


class Phase(Model):
    """One stage of a curriculum: a cycle of hooks that repeats until a limit is reached."""

    name: str
    """Name of the phase in the console and in every row of metrics."""
    type: Literal["online", "offline", "eval_only"] = "online"
    """`offline` phases do not collect, `eval_only` phases neither collect nor update."""
    hooks: tuple[str | dict[str, Any], ...] = Field(min_length=1)
    """The hooks of one cycle: `name`, `{name: repeats}` or `{name: {per_env_step: ratio}}`."""
    duration_steps: PositiveInt | None = None
    """The phase ends after this many environment steps."""
    duration_updates: PositiveInt | None = None
    """The phase ends after this many updates."""
    duration_cycles: PositiveInt | None = None
    """The phase ends after this many cycles."""
    set: dict[str, Any] = {}
    """Algorithm settings that the phase changes."""
    buffer: str | None = None
    """Name (under `buffers`) of the buffer that the phase fills and samples."""
    environment: dict[str, Any] | None = None
    """Environment settings that the phase changes; the spaces must stay the same."""

    @model_validator(mode="before")
    @classmethod
    def other_name(cls, value: object) -> object:
        """Accept `workflow_hooks` for `hooks`."""
        if isinstance(value, dict) and "workflow_hooks" in value and "hooks" not in value:
            return {"hooks" if key == "workflow_hooks" else key: item for key, item in value.items()}
        return value

    @property
    def hook_names(self) -> list[str]:
        """The hooks of one cycle without their counts."""
        return [name for entry in self.hooks for name in ([entry] if isinstance(entry, str) else entry)]


class Video(Model):
    """Videos of evaluated policies; each uses a separate environment and separate random streams."""

    every_evaluations: int = Field(default=0, ge=0)
    """Record every N-th evaluation; 0 is off."""
    episodes: PositiveInt = 1
    """Episodes per video."""
    max_steps: PositiveInt = 5_000
    """Maximum length of a video in environment steps; a longer episode is cut."""


class Evaluation(Model):
    """Episodes in separate environments with the current weights."""

    episodes: PositiveInt = 10
    """Number of finished episodes per evaluation."""
    every_epochs: int | None = Field(default=None, ge=0)
    """Evaluate at every N-th epoch; none or 0 is off."""
    every_steps: int | None = Field(default=None, ge=0)
    """Evaluate at the end of the epoch in which another N environment steps are complete; none or 0 is off."""
    every_updates: int | None = Field(default=None, ge=0)
    """The same, counted in updates."""
    warmup_epochs: float = Field(default=0, ge=0)
    """No evaluation up to and including this epoch; below 1 it is a fraction of the budget."""
    deterministic: bool | None = None
    """Whether actions are greedy; the default depends on the algorithm."""
    num_envs: PositiveInt | None = None
    """Number of evaluation environments; the default is the number of episodes, at most 16."""
    timeout_seconds: float | None = Field(default=None, gt=0)
    """Stop an evaluation that takes longer and report the episodes finished so far."""
    video: Video = Video()
    """Videos."""
    background: bool = False
    """Play evaluations in a process of their own while training goes on. The result of each arrives, with its own step,
    when the next one is due or the run ends, so that goals are seen one evaluation later; every evaluated state is
    saved. Evaluations that a phase names as a hook stay in the foreground."""

    @model_validator(mode="after")
    def seen_at_once(self) -> Evaluation:
        """Refuse videos of weights that are gone when their result arrives."""
        if self.background and self.video.every_evaluations:
            raise ValueError("background: videos are recorded with the evaluation; set video.every_evaluations to 0")
        return self

    @property
    def wanted(self) -> bool:
        """Whether any grid asks for evaluations."""
        return any((self.every_epochs, self.every_steps, self.every_updates))


class Stop(Model):
    """Reasons to end before the budget is used up; checked at the end of every epoch."""

    train_reward: float | Literal["threshold"] | None = None
    """Stop when the mean return of the last 100 training episodes reaches this; `threshold` is the environment's."""
    eval_reward: float | Literal["threshold"] | None = None
    """Stop when the mean evaluation return reaches this, here and in the confirmation; `threshold` is the
    environment's."""
    confirm_episodes: int | None = Field(default=None, ge=0)
    """Fresh episodes that have to reach `eval_reward` too; the default is `evaluation.episodes`, but at least 100. With
    0 the run stops without them."""
    minutes: float | None = Field(default=None, gt=0)
    """Stop after this many minutes of training."""


CONFIRMED = 100
"""Least number of fresh episodes of a confirmation whose config does not say how many."""


class CheckpointPlan(Model):
    """When the state of a run is saved, besides the end of the run and a signal that stops it."""

    every_steps: int | None = Field(default=None, ge=0)
    """Save at the end of the epoch in which another N environment steps are complete; none or 0 is off."""
    every_updates: int | None = Field(default=None, ge=0)
    """The same, counted in updates."""
    every_minutes: float | None = Field(default=10.0, gt=0)
    """Save when the newest checkpoint is this old; not for environments that are reset at every checkpoint."""
    at_evaluation: Literal["best", "all", "never"] = "best"
    """Save after evaluations that are the best so far, after all of them, or after none."""
    keep: PositiveInt = 2
    """How many of the newest checkpoints stay, besides the best one."""


class Training(Model):
    """Length of the run, phases, evaluation, checkpoints and early stops."""

    total_timesteps: PositiveInt = Field(default=100_000, le=10**15)
    """Budget in environment steps (not vector steps); the last rollout is cut short so that it is never exceeded
    by more than the steps of one vector step."""
    total_updates: PositiveInt | None = Field(default=None, le=10**15)
    """Budget in updates, for a run that only learns from stored steps; `total_timesteps` then has no effect. Where all
    phases are offline the default is the sum of their `duration_updates`."""
    epoch_updates: PositiveInt = 1_000
    """Updates of an epoch in phases that do not collect."""
    phases: tuple[Phase, ...] | None = None
    """Curriculum; without it the algorithm's default cycle runs (without collecting if `total_updates` is set)."""
    evaluation: Evaluation = Evaluation()
    """Evaluation."""
    stop: Stop = Stop()
    """Early stops."""
    checkpoints: CheckpointPlan = CheckpointPlan()
    """When to save."""
    on_nan: Literal["raise", "skip", "rollback"] = "raise"
    """What happens when a loss or gradient is not finite: `raise` ends the run, `skip` undoes that update, `rollback`
    returns to the weights of the newest checkpoint. The last two count as alerts."""
    resume_path: str | None = None
    """Checkpoint folder (`runs/<id>/checkpoints/step=N`) from whose complete state a new run starts."""
    callbacks: tuple[Annotated[Choice, Registered(CALLBACKS)], ...] = ()
    """Additional callbacks by registered name."""

    @property
    def offline(self) -> bool:
        """Whether the run takes no environment steps: its budget is counted in updates."""
        types = {phase.type for phase in self.phases or ()}
        return self.total_updates is not None or ("offline" in types and "online" not in types)

    @property
    def confirm_episodes(self) -> int:
        """Fresh episodes that confirm a goal before the run stops; 0 for none."""
        own = self.stop.confirm_episodes
        return max(self.evaluation.episodes, CONFIRMED) if own is None else own

    @property
    def budget(self) -> Budget:
        """The length of the run, in the unit everything else of it is counted in."""
        if not self.offline:
            return Budget(self.total_timesteps)
        planned = sum(phase.duration_updates or 0 for phase in self.phases or ())
        return Budget(self.total_updates or planned, "updates")

    @model_validator(mode="after")
    def one_unit(self) -> Training:
        """Refuse settings in environment steps for a run that is counted in updates."""
        if not self.offline:
            return self
        for phase in self.phases or ():
            if phase.type == "online":
                raise ValueError(f"total_updates is for runs without online phases; phase '{phase.name}' is online")
            if phase.type == "offline" and not (phase.duration_updates or self.total_updates):
                raise ValueError(f"phase '{phase.name}' needs duration_updates, or the run total_updates")
        for section in ("evaluation", "checkpoints"):
            if getattr(self, section).every_steps:
                raise ValueError(f"{section}.every_steps: this run takes no environment steps; use every_updates")
        return self
