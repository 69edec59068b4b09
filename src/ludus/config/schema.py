"""The sections of a config: every field with its type, default and meaning, validated once and then frozen.

`ExperimentConfig` at the end joins the sections. The fields of an algorithm, encoder, memory core or buffer are
declared beside its class; `Registered` looks them up by name.
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
    """Name, seed, device and tags."""

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")
    """Project of the run: up to 64 letters, digits, `.`, `_` and `-`, not starting with `.` or `-`; the default is the
    name of the environment file."""
    description: str = ""
    """One line that listings show."""
    seed: int = Field(default=42, ge=0, lt=2**32)
    """Seed of the run; every random stream is derived from it."""
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$")
    """`auto`, `cpu`, `cuda`, `cuda:N` or `mps`; a missing device is an error."""
    tags: tuple[str, ...] = ()
    """Labels to find the run by."""

    @field_validator("name")
    @classmethod
    def portable(cls, value: str | None) -> str | None:
        """Refuse names that Windows cannot use for a folder."""
        if value and value.split(".")[0].upper() in WINDOWS_DEVICES:
            raise ValueError(f"'{value}' is a device name on Windows")
        return value


class Wrapper(Model):
    """An environment wrapper: its registered name, and its arguments as further keys."""

    model_config = {**Model.model_config, "extra": "allow"}
    id: str
    """Registered wrapper name."""

    @model_validator(mode="before")
    @classmethod
    def bare_id(cls, value: object) -> object:
        """Accept a name without arguments."""
        return {"id": value} if isinstance(value, str) else value

    @field_validator("id")
    @classmethod
    def known(cls, value: str) -> str:
        """Refuse a name that is not registered."""
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
    """The environments of a run: which, how many, and how observations and rewards are transformed."""

    id: str = ""
    """Id of a Gymnasium environment or of a Ludus task (`Bandit-v0`). A run that learns only from stored steps may omit
    it; it is then never evaluated."""
    num_envs: PositiveInt | Literal["auto"] = 8
    """Number of environments that are stepped together; `auto` is eight per core."""
    vectorization: Literal["auto", "sync", "async", "native", "envpool"] = "auto"
    """Backend of the vector environment; `auto` takes the fastest one with the same behaviour."""
    workers: PositiveInt | None = None
    """Number of processes of the async backend; the default is one per core."""
    kwargs: dict[str, Any] = {}
    """Arguments of the environment's constructor."""
    wrappers: tuple[Wrapper, ...] = ()
    """Wrappers in the order they are applied, the innermost first."""
    valid_actions: tuple[NonNegativeInt, ...] | None = None
    """The actions of a Discrete space that the policy may choose; the default is all of them."""
    grayscale_obs: bool = False
    """Convert images to grayscale, after the wrappers."""
    resize_obs: bool | PositiveInt | tuple[PositiveInt, PositiveInt] = False
    """Resize images to a square of this side, or to a height and a width; true is 84."""
    frame_stack: PositiveInt = 1
    """Stack this many observations, after all other transformations."""
    max_episode_steps: PositiveInt | None = None
    """Time limit of an episode; the default comes from the environment."""
    normalize_obs: Literal[False, "rolling", "static"] = False
    """`rolling` normalises by running mean and variance of training; `static` scales the space's bounds to [-1, 1]."""
    normalize_reward: bool = False
    """Divide rewards by the running standard deviation of the discounted return; logged returns are not divided."""
    reward_threshold: float | None = None
    """Mean evaluation return that counts as solved; the default comes from the environment."""
    step_deadline: float = Field(default=60.0, gt=0)
    """Seconds after which an unfinished step counts as a hung worker; making and resetting get at least 120."""
    on_worker_death: Literal["fail", "restart"] = "fail"
    """`restart` replaces a dead or hung worker and drops its unfinished episode."""

    @field_validator("normalize_obs", mode="before")
    @classmethod
    def true_means_rolling(cls, value: object) -> object:
        """Accept `true` for `rolling`."""
        return "rolling" if value is True else value


class Head(Model):
    """Hidden layers between encoder or memory and an output."""

    type: Literal["mlp"] = "mlp"
    """Kind of layers."""
    hidden_dims: tuple[PositiveInt, ...] | None = None
    """Widths of the layers; the default is (64, 64) if encoder and memory have no layers, else none."""
    activation: Literal["tanh", "relu", "elu", "gelu", "silu"] = "tanh"
    """Activation function."""


class Network(Model):
    """The policy network: encoder -> memory -> actor and critic heads."""

    encoder: Annotated[Choice, Registered(ENCODERS, default="auto", parts=True)] = Field(default=AUTO)
    """Observation encoder; `auto` is `nature`, `impala` or `small` for images, by size, and `mlp` for all else. For a
    Dict, a mapping under the name of a part is that part's encoder: `{camera: {type: nature}, state: {type: mlp}}`."""
    memory: Annotated[Choice, Registered(MEMORY, default="none")] = Field(default=NONE)
    """Memory core; `none` makes a feed-forward network."""
    actor: Head = Head()
    """Head of the policy."""
    critic: Head = Head()
    """Head of the value function."""


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


class Stop(Model):
    """Reasons to end before the budget is used up; checked at the end of every epoch."""

    train_reward: float | Literal["threshold"] | None = None
    """Stop when the mean return of the last 100 training episodes reaches this; `threshold` is the environment's."""
    eval_reward: float | Literal["threshold"] | None = None
    """Stop when the mean evaluation return reaches this; `threshold` is the environment's."""
    minutes: float | None = Field(default=None, gt=0)
    """Stop after this many minutes of training."""


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


class WandbConfig(Model):
    """Weights & Biases; keys come from the environment or `wandb login`, never from a config."""

    enabled: bool = False
    """Whether to log to W&B; without a network the run is stored offline."""
    project: str = "ludus"
    """Project name."""
    entity: str | None = None
    """Team or user."""
    tags: tuple[str, ...] = ()
    """Tags of the run on W&B."""

    @model_validator(mode="before")
    @classmethod
    def switch(cls, value: object) -> object:
        """Accept `true` and `false`."""
        return {"enabled": value} if isinstance(value, bool) else value


class Logging(Model):
    """Where metrics are written, besides `metrics.jsonl`."""

    console: bool = True
    """Show a table, sparklines and a progress bar."""
    csv: bool = True
    """Write `metrics.csv`."""
    tensorboard: bool = False
    """Write TensorBoard event files under `tensorboard/`."""
    wandb: WandbConfig = WandbConfig()
    """Weights & Biases."""
    every_epochs: PositiveInt = 1
    """Write a row of metrics at every N-th epoch."""
    alert_command: tuple[str, ...] = ()
    """Program and arguments to run on each new alert, with the alert's text as the last argument and without a shell. A
    command from a file runs only after the user has agreed to it."""
    stalled_seconds: float | None = Field(default=600.0, gt=0)
    """Alert when no epoch has finished for this many seconds; none is off."""


class Runtime(Model):
    """How the run is computed; only `overlap` changes what is learned."""

    threads: PositiveInt | Literal["auto"] = "auto"
    """Number of torch threads; `auto` is 1 for small networks and one per core for large ones."""
    compile: Literal["auto", "always", "never"] = "auto"
    """Whether updates are compiled ahead of time; `auto` compiles if the run plans enough updates to pay for it."""
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Number format of image encoders; `auto` is bfloat16 on processors that support it, else float32."""
    overlap: bool = False
    """Take the first vector step of each cycle while the previous cycle is still learning, with the policy from before
    those updates. Results differ from those without it, but are as reproducible. Off-policy algorithms only."""


class ExperimentConfig(Model):
    """A complete config."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of the file format."""
    experiment: Experiment = Experiment()
    """Name, seed, device and tags."""
    environment: Environment = Environment()
    """Environments."""
    algorithm: Annotated[Choice, Registered(ALGORITHMS, key="name")]
    """`name` chooses the algorithm; the other keys are its settings."""
    network: Network = Field(default_factory=Network)
    """Policy network."""
    buffers: dict[str, Annotated[Choice, Registered(BUFFERS, default="uniform")]] = {}
    """Buffers by name; algorithms that need one use `replay` by default."""
    training: Training = Training()
    """Budget, phases, evaluation, stops."""
    logging: Logging = Logging()
    """Where metrics are written."""
    runtime: Runtime = Runtime()
    """Threads, compilation, precision."""

    @model_validator(mode="after")
    def environment_named(self) -> ExperimentConfig:
        """Require an environment unless the run learns only from stored steps."""
        if not self.environment.id and not self.training.offline:
            loc = ("environment", "id") if "environment" in self.model_fields_set else ("environment",)
            error = InitErrorDetails(type="missing", loc=loc, input=self.environment.id)
            raise ValidationError.from_exception_data("ExperimentConfig", [error])
        return self
