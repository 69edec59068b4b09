"""The sections of an experiment: what may stand in a YAML file, validated once and frozen.

Reading order: ExperimentConfig at the end ties the sections together. An algorithm's, encoder's or memory core's own
fields live beside its class; `Registered` looks them up by name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from ludus.config.model import Choice, Model, Registered
from ludus.config.training import Training
from ludus.registry import ALGORITHMS, BUFFERS, ENCODERS, MEMORY, WRAPPERS, UnknownName

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
