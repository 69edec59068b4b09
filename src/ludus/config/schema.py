"""The sections of an experiment: what may stand in a YAML file, validated once and frozen.

Reading order: ExperimentConfig at the end ties the sections together. An algorithm's, encoder's or memory core's own
fields live beside its class; `Registered` looks them up by name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from ludus.config.model import Choice, Model, Registered
from ludus.progress import Budget
from ludus.registry import ALGORITHMS, BUFFERS, CALLBACKS, ENCODERS, MEMORY, WRAPPERS, UnknownName

SCHEMA_VERSION: Literal[1] = 1
AUTO: Any = "auto"
NONE: Any = "none"
WINDOWS_DEVICES = {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(1, 10))}


class Experiment(Model):
    """Who this run is."""

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")
    """Name of the project the run belongs to: up to 64 letters, digits, `.`, `_` and `-`, not starting with `.` or `-`;
    the default is the stem of the environment file."""
    description: str = ""
    """One line for listings."""
    seed: int = Field(default=42, ge=0, lt=2**32)
    """The one seed every random stream is derived from."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")
    """`auto`, `cpu`, `cuda`, `cuda:N` or `mps`; asking for one that is not there is an error."""
    tags: tuple[str, ...] = ()
    """Labels to find the run by."""

    @field_validator("name")
    @classmethod
    def portable(cls, value: str | None) -> str | None:
        if value and value.split(".")[0].upper() in WINDOWS_DEVICES:
            raise ValueError(f"'{value}' is a device name on Windows")
        return value


class Wrapper(Model):
    """One environment wrapper by registered id; its other keys are the wrapper's own arguments."""

    model_config = {**Model.model_config, "extra": "allow"}
    id: str
    """Registered wrapper name."""

    @model_validator(mode="before")
    @classmethod
    def bare_id(cls, value: Any) -> Any:
        return {"id": value} if isinstance(value, str) else value

    @field_validator("id")
    @classmethod
    def known(cls, value: str) -> str:
        try:
            WRAPPERS[value]
        except UnknownName as error:
            raise PydanticCustomError("choice_unknown", "{message}", {"message": str(error)}) from None
        return value

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the wrapper."""
        return dict(self.model_extra or {})


class Environment(Model):
    """Which environments to train in, how many, and what stands between them and the policy."""

    id: str = ""
    """Gymnasium id, or one of ours (`Bandit-v0`). A run that only learns from stored steps may leave it out: it is then
    never evaluated."""
    num_envs: PositiveInt | Literal["auto"] = 8
    """Environments stepped side by side; `auto` is eight per core."""
    vectorization: Literal["auto", "sync", "async", "native", "envpool"] = "auto"
    """Backend; `auto` takes the fastest one that is semantically equal."""
    workers: PositiveInt | None = None
    """Processes of the async backend; the default is one per core."""
    kwargs: dict[str, Any] = {}
    """Arguments for the environment's constructor."""
    wrappers: tuple[Wrapper, ...] = ()
    """Applied in order, the first one innermost."""
    valid_actions: tuple[NonNegativeInt, ...] | None = None
    """Of a Discrete action space, the actions the policy may choose from; all others are never taken."""
    grayscale_obs: bool = False
    """Images as brightness, after the wrappers."""
    resize_obs: bool | PositiveInt | tuple[PositiveInt, PositiveInt] = False
    """Images of this side, or height and width; true is 84."""
    frame_stack: PositiveInt = 1
    """The last observations as one, after everything else."""
    max_episode_steps: PositiveInt | None = None
    """Time limit; the default is the environment's own."""
    normalize_obs: Literal[False, "rolling", "static"] = False
    """`rolling`: running mean and variance of training observations; `static`: the space's bounds to [-1, 1]."""
    normalize_reward: bool = False
    """Divide rewards by the running deviation of the discounted return; logged returns stay raw."""
    reward_threshold: float | None = None
    """Evaluated mean return that counts as solved; the default is the environment's own."""
    step_deadline: float = Field(default=60.0, gt=0)
    """Seconds a worker may take for one step before it counts as hung; making and resetting have 120 s at least."""
    on_worker_death: Literal["fail", "restart"] = "fail"
    """`restart` replaces a dead or hung worker and drops its broken episode."""

    @field_validator("normalize_obs", mode="before")
    @classmethod
    def true_means_rolling(cls, value: Any) -> Any:
        return "rolling" if value is True else value


class Head(Model):
    """Hidden layers between the trunk and an output."""

    type: Literal["mlp"] = "mlp"
    """Kind of layers."""
    hidden_dims: tuple[PositiveInt, ...] | None = None
    """Widths; the default is (64, 64) after a trunk without layers of its own, else none."""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "tanh"
    """Nonlinearity between the layers."""


class Network(Model):
    """encoder -> memory -> actor and critic heads."""

    encoder: Annotated[Choice, Registered(ENCODERS, default="auto", parts=True)] = Field(default=AUTO)
    """Observation encoder; `auto` is `nature`, `impala` or `small` for images, by size, and `mlp` for all else. For a
    Dict, a mapping under the name of a part is that part's encoder: `{camera: {type: nature}, state: {type: mlp}}`."""
    memory: Annotated[Choice, Registered(MEMORY, default="none")] = Field(default=NONE)
    """Memory core; `none` is feed-forward."""
    actor: Head = Head()
    """Policy head."""
    critic: Head = Head()
    """Value head."""


class Phase(Model):
    """One stage of a curriculum: a cycle of hooks repeated until a limit is reached."""

    name: str
    """Shown in the console and in every metrics row."""
    type: Literal["online", "offline", "eval_only"] = "online"
    """`offline` forbids collecting, `eval_only` also updating."""
    hooks: tuple[str | dict[str, Any], ...] = Field(min_length=1)
    """One cycle: `name`, `{name: repeats}` or `{name: {per_env_step: ratio}}`."""
    duration_steps: PositiveInt | None = None
    """The phase ends after this many environment steps."""
    duration_updates: PositiveInt | None = None
    """The phase ends after this many updates."""
    duration_cycles: PositiveInt | None = None
    """The phase ends after this many cycles."""
    set: dict[str, Any] = {}
    """Changes to the algorithm's config during the phase."""
    buffer: str | None = None
    """Buffer that is filled and sampled, by its name under `buffers`."""
    environment: dict[str, Any] | None = None
    """Changes to the environment section during the phase; the spaces must stay the same."""


class Video(Model):
    """Recordings of evaluated policies, each in an environment and with random streams of its own."""

    every_evaluations: int = Field(default=0, ge=0)
    """Record every N-th evaluation; 0 is off."""
    episodes: PositiveInt = 1
    """Episodes per recording."""
    max_steps: PositiveInt = 5_000
    """Longest recording in environment steps; an episode that is still running then is cut."""


class Evaluation(Model):
    """Episodes in separate environments with the current weights."""

    episodes: PositiveInt = 10
    """Finished episodes per evaluation."""
    every_epochs: int | None = Field(default=None, ge=0)
    """Evaluate at every N-th epoch; none or 0 is off."""
    every_steps: int | None = Field(default=None, ge=0)
    """Evaluate at the end of the epoch in which another N environment steps are complete; none or 0 is off."""
    every_updates: int | None = Field(default=None, ge=0)
    """The same, counted in updates."""
    warmup_epochs: float = Field(default=0, ge=0)
    """No evaluation up to and including this epoch; below 1 it is a fraction of the budget."""
    deterministic: bool | None = None
    """Greedy actions; the default depends on the algorithm."""
    num_envs: PositiveInt | None = None
    """Evaluation environments; the default is as many as episodes, at most 16."""
    timeout_seconds: float | None = Field(default=None, gt=0)
    """Stop an evaluation that takes longer and report the episodes finished so far."""
    video: Video = Video()
    """Recordings."""


class Stop(Model):
    """Reasons to end before the budget is used up; checked at the end of every epoch."""

    train_reward: float | Literal["threshold"] | None = None
    """Mean return of the last 100 training episodes reaches this; `threshold` is the environment's."""
    eval_reward: float | Literal["threshold"] | None = None
    """Evaluated mean return reaches this; `threshold` is the environment's."""
    minutes: float | None = Field(default=None, gt=0)
    """Wall time of training."""


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
    """How long, in which phases, when to evaluate and when to stop."""

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
    """A loss or gradient that is not finite ends the run; `skip` undoes that update, `rollback` returns to the weights
    of the newest checkpoint. Both are counted as alerts."""
    resume_path: str | None = None
    """Folder of a checkpoint (`runs/<id>/checkpoints/step=N`) whose complete state a new run begins with."""
    callbacks: tuple[Annotated[Choice, Registered(CALLBACKS)], ...] = ()
    """Further callbacks by registered name."""

    @property
    def offline(self) -> bool:
        """Whether the run takes no environment steps: its budget is counted in updates."""
        types = {phase.type for phase in self.phases or ()}
        return self.total_updates is not None or ("offline" in types and "online" not in types)

    @property
    def budget(self) -> Budget:
        """The length of the run, in the unit everything else of it is counted in."""
        if not self.offline:
            return Budget(self.total_timesteps)
        planned = sum(phase.duration_updates or 0 for phase in self.phases or ())
        return Budget(self.total_updates or planned, "updates")

    @model_validator(mode="after")
    def one_unit(self) -> Training:
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


class Wandb(Model):
    """Weights & Biases; keys come from the environment or `wandb login`, never from a config."""

    enabled: bool = False
    """Log there too; without a network the run is kept offline."""
    project: str = "ludus"
    """Project name."""
    entity: str | None = None
    """Team or user."""
    tags: tuple[str, ...] = ()
    """Labels of the run there."""

    @model_validator(mode="before")
    @classmethod
    def switch(cls, value: Any) -> Any:
        return {"enabled": value} if isinstance(value, bool) else value


class Logging(Model):
    """Where metrics go besides `metrics.jsonl`."""

    console: bool = True
    """Table, sparklines and progress bar."""
    csv: bool = True
    """metrics.csv"""
    tensorboard: bool = False
    """Event files under `tensorboard/`."""
    wandb: Wandb = Wandb()
    """Weights & Biases."""
    every_epochs: PositiveInt = 1
    """Epochs per metrics row."""
    alert_command: tuple[str, ...] = ()
    """Program and arguments run with the text of each new alert as one more argument; no shell. From a file only after
    the user has agreed to that very command."""
    stalled_seconds: float | None = Field(default=600.0, gt=0)
    """Seconds without a finished epoch that are an alert; none is off."""


class Runtime(Model):
    """How to run; of these only `overlap` changes what is learned."""

    threads: PositiveInt | Literal["auto"] = "auto"
    """Torch threads; `auto` is 1 for small networks and one per core for large ones."""
    compile: Literal["auto", "always", "never"] = "auto"
    """Ahead-of-time compiled updates; `auto` compiles them where a run plans enough updates to pay for it."""
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """In what image encoders compute; `auto` is bfloat16 on processors that multiply it, else float32."""
    overlap: bool = False
    """The first vector step of each cycle is taken while the cycle before it still learns, by the policy it learns
    with: another run than without, but just as reproducible. Off-policy algorithms only."""


class ExperimentConfig(Model):
    """Everything a run is made of."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Format of this file."""
    experiment: Experiment = Experiment()
    """Name, seed, device."""
    environment: Environment = Environment()
    """Environment."""
    algorithm: Annotated[Choice, Registered(ALGORITHMS, key="name")]
    """`name` picks the algorithm; the other keys are its own."""
    network: Network = Field(default_factory=Network)
    """Policy network."""
    buffers: dict[str, Annotated[Choice, Registered(BUFFERS, default="uniform")]] = {}
    """Buffers by name; algorithms that need one have one named `replay`."""
    training: Training = Training()
    """Budget, phases, evaluation, stops."""
    logging: Logging = Logging()
    """Sinks."""
    runtime: Runtime = Runtime()
    """Threads, compilation."""

    @model_validator(mode="after")
    def environment_named(self) -> ExperimentConfig:
        if not self.environment.id and not self.training.offline:
            loc = ("environment", "id") if "environment" in self.model_fields_set else ("environment",)
            error = InitErrorDetails(type="missing", loc=loc, input=self.environment.id)
            raise ValidationError.from_exception_data("ExperimentConfig", [error])
        return self
