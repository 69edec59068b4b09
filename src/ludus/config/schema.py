"""The sections of a config: every field with its type, default and meaning, validated once and then frozen.

`ExperimentConfig` at the end joins the sections. The fields of an algorithm, encoder, memory core or buffer are
declared beside its class; `Registered` looks them up by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, field_validator, model_validator
from pydantic_core import InitErrorDetails, ValidationError

from ludus.config.model import Choice, Model, Registered, known
from ludus.config.training import Training
from ludus.registry import ALGORITHMS, BUFFERS, ENCODERS, MEMORY, WRAPPERS

SCHEMA_VERSION: Literal[1] = 1
AUTO: Any = "auto"
NONE: Any = "none"
WINDOWS_DEVICES = {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(1, 10))}


def _meaning(switch: dict[bool, object]) -> BeforeValidator:
    """What `true` or `false` stands for."""
    return BeforeValidator(lambda value: switch.get(value, value) if isinstance(value, bool) else value)


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
    def registered(cls, value: str) -> str:
        """Refuse a name that is not registered."""
        known(WRAPPERS, value)
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
    frame_skip: PositiveInt | tuple[PositiveInt, PositiveInt] = 1
    """Repeat every action this many times, or a random number of times between two numbers, after the wrappers."""
    grayscale_obs: bool = False
    """Convert images to grayscale, after the wrappers."""
    resize_obs: bool | PositiveInt | tuple[PositiveInt, PositiveInt] = False
    """Resize images to a square of this side, or to a height and a width; true is 84."""
    frame_stack: PositiveInt = 1
    """Stack this many observations, after all other transformations."""
    max_episode_steps: PositiveInt | None = None
    """Time limit of an episode; the default comes from the environment."""
    normalize_obs: Annotated[Literal[False, "rolling", "static"], _meaning({True: "rolling"})] = False
    """`rolling` normalises by running mean and variance of training; `static` scales the space's bounds to [-1, 1]."""
    normalize_reward: bool = False
    """Divide rewards by the running standard deviation of the discounted return; logged returns are not divided."""
    reward_threshold: float | None = None
    """Mean evaluation return that counts as solved; the default comes from the environment."""
    step_deadline: float = Field(default=60.0, gt=0)
    """Seconds after which an unfinished step counts as a hung worker; making and resetting get at least 120."""
    on_worker_death: Literal["fail", "restart"] = "fail"
    """`restart` replaces a dead or hung worker and drops its unfinished episode."""


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
    archive: bool = False
    """Store every checkpoint there, too, as a version of an artifact that `ludus pull wandb:ENTITY/PROJECT/RUN` brings
    back; what has not changed is not sent again."""

    @model_validator(mode="after")
    def on_to_archive(self) -> WandbConfig:
        """Refuse an archive that nothing would be written to."""
        if self.archive and not self.enabled:
            raise ValueError("archive needs enabled: true")
        return self


class Logging(Model):
    """Where metrics are written, besides `metrics.jsonl`."""

    console: bool = True
    """Show a table, sparklines and a progress bar."""
    csv: bool = True
    """Write `metrics.csv`."""
    tensorboard: bool = False
    """Write TensorBoard event files under `tensorboard/`."""
    wandb: Annotated[WandbConfig, _meaning({on: {"enabled": on} for on in (True, False)})] = WandbConfig()
    """Weights & Biases."""
    every_epochs: PositiveInt = 1
    """Write a row of metrics at every N-th epoch."""
    alert_command: tuple[str, ...] = ()
    """Program and arguments to run on each new alert, with the alert's text as the last argument and without a shell. A
    command from a file runs only after the user has agreed to it."""
    stalled_seconds: float | None = Field(default=600.0, gt=0)
    """Alert when no epoch, step of a rollout or evaluated episode has ended for this many seconds; none is off."""


class Runtime(Model):
    """How the run is computed; only `overlap` and `ranks` change what is learned."""

    threads: PositiveInt | Literal["auto"] = "auto"
    """Number of torch threads; `auto` is 1 for small networks and one per core for large ones."""
    compile: Literal["auto", "always", "never"] = "auto"
    """Whether updates are compiled ahead of time; `auto` compiles if the run plans enough updates to pay for it."""
    compile_from: NonNegativeInt = 0
    """Updates before this one are eager; the code is built meanwhile, and this update waits for it."""
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Number format of convolutions over images; `auto` is bfloat16 on processors that support it, else float32."""
    overlap: bool = False
    """Take the first vector step of each cycle while the previous cycle is still learning, with the policy from before
    those updates. Results differ from those without it, but are as reproducible. Off-policy algorithms only."""
    ranks: PositiveInt = 1
    """Processes that train together, each with an equal share of the environments, of the buffers and of every batch;
    their gradients are averaged. All other settings are those of the whole run. A resumed run keeps the number."""
    rank_timeout: float = Field(default=600.0, gt=0)
    """Seconds after which a rank that does not answer ends the run; longer than the longest evaluation, for which the
    others wait."""


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

    @model_validator(mode="before")
    @classmethod
    def keep_own_buffers(cls, given: Any) -> Any:
        """What is not said of a buffer that the algorithm has is as the algorithm has it."""
        if not isinstance(given, dict) or not isinstance(wanted := given.get("buffers"), dict):
            return given
        algorithm = given.get("algorithm")
        name = algorithm.get("name") if isinstance(algorithm, dict) else getattr(algorithm, "name", algorithm)
        own = ALGORITHMS[name].buffers if isinstance(name, str) and name in ALGORITHMS else {}
        return {**given, "buffers": {key: over(own.get(key), value) for key, value in wanted.items()}}

    @model_validator(mode="after")
    def environment_named(self) -> ExperimentConfig:
        """Require an environment unless the run learns only from stored steps."""
        if not self.environment.id and not self.training.offline:
            loc = ("environment", "id") if "environment" in self.model_fields_set else ("environment",)
            error = InitErrorDetails(type="missing", loc=loc, input=self.environment.id)
            raise ValidationError.from_exception_data("ExperimentConfig", [error])
        return self


def over(own: Mapping[str, Any] | None, value: object) -> object:
    """A buffer as the config changes the algorithm's own one; another `type` keeps what it has too, such as `size`."""
    value = {"type": value} if isinstance(value, str) else value
    if own is None or not isinstance(value, dict):
        return value
    kind = value.get("type", own["type"])
    if not isinstance(kind, str) or kind not in BUFFERS:
        return value
    return {**{key: own[key] for key in own if key in BUFFERS[kind].Config.model_fields}, **value, "type": kind}
