"""Every registered part passes the suite that plugin authors are given (`ludus.testing`)."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from demonstrations import CART, PENDULUM, demonstrations
from ludus.config.schema import Network
from ludus.experiment import build
from ludus.metrics.sinks import Sink
from ludus.metrics.sinks.csv import Csv
from ludus.metrics.sinks.jsonl import Jsonl, read_rows
from ludus.metrics.sinks.tensorboard import TensorBoard
from ludus.metrics.sinks.wandb import WandbSink
from ludus.networks.encoders import build_encoder
from ludus.registry import ALGORITHMS, BUFFERS, CALLBACKS, DYNAMICS, ENCODERS, REPRESENTATIONS, WRAPPERS
from ludus.testing import (
    AlgorithmContract,
    BufferContract,
    CallbackContract,
    EncoderContract,
    RepresentationContract,
    SinkContract,
    WrapperContract,
)
from ludus.testing.runs import small_config

# ---- algorithms ----------------------------------------------------------------------------------------------------

REPLAY = {"learning_starts": 32, "batch_size": 8, "update_ratio": 0.2, "epoch_steps": 64}
SEQUENCES = {**REPLAY, "sequence_length": 6, "burn_in": 2}
RAINBOW = {**SEQUENCES, "dueling": True, "noisy": True, "atoms": 5, "n_step": 3}
SMALL = {"actor": {"hidden_dims": [8]}, "critic": {"hidden_dims": [8]}}
WORLD = {"size": "tiny", "learning_starts": 64, "batch_size": 4, "sequence_length": 6, "train_ratio": 0.5, "horizon": 2}
WORLD |= {
    "epoch_steps": 64,
    "critic": {"layers": 1},
    "actor": {"layers": 1},
    "representation": {"deter": 16, "hidden": 8, "stoch": 2, "classes": 4},
}
PLANET = {**{k: v for k, v in WORLD.items() if k not in ("critic", "actor")}, "candidates": 8, "rounds": 1, "elites": 3}
TDMPC = REPLAY | {"size": "tiny", "latent": 16, "units": 16, "encoder_units": 16}
TDMPC |= {"candidates": 8, "policy_candidates": 2, "rounds": 2, "elites": 3}
TINY = {"population": 4, "rollouts": 2, "dream_steps": 3}
PICTURES = {"vision": {"latent": 3, "depth": 2}, "memory": {"units": 4}, "controller": TINY, "rollout_steps": 8}
PICTURES |= {"vision_batch": 4, "memory_batch": 3, "sequence_length": 4, "epoch_steps": 64}
DRAWN = {"world_models": [{"id": "draw_cart_pole", "size": 12}]}
IQL = {**SEQUENCES, "expectile": 0.8}
DIFFUSION = {"batch_size": 4, "prediction_horizon": 4, "action_horizon": 2, "diffusion_steps": 5}
DIFFUSION |= {"denoiser": {"widths": [8], "groups": 4, "time_dim": 8}}
TRANSFORMER = {"type": "transformer", "width": 8, "layers": 1, "heads": 2}
ALGORITHM: dict[str, tuple[str, Mapping[str, Any]]] = {
    "a2c": ("CartPole-v1", {"rollout_steps": 16, "epoch_steps": 64}),
    "behaviour_cloning": ("CartPole-v1", {"batch_size": 8, "sequence_length": 6, "burn_in": 2}),
    "behaviour_cloning box": ("Pendulum-v1", {"batch_size": 8, "sequence_length": 6, "burn_in": 2}),
    "diffusion_policy": ("Pendulum-v1", DIFFUSION),
    "diffusion_policy transformer": ("Pendulum-v1", {**DIFFUSION, "denoiser": TRANSFORMER, "sampler": "ddpm"}),
    "dqn": ("CartPole-v1", {**SEQUENCES, "epsilon": 0.5}),
    "dqn dict": ("LookAndFeel-v0", {**SEQUENCES, "epsilon": 0.5}),
    "dqn rainbow": ("CartPole-v1", RAINBOW),
    "dreamer": ("CartPole-v1", WORLD),
    "dreamer v1": ("Pendulum-v1", {**WORLD, "variant": "v1"}),
    "dreamer dict": ("LookAndFeel-v0", WORLD),
    "iql": ("Pendulum-v1", IQL),
    "iql discrete": ("CartPole-v1", IQL),
    "planet": ("Pendulum-v1", PLANET),
    "ppo": ("CartPole-v1", {"rollout_steps": 16, "epochs": 1}),
    "ppo box": ("Pendulum-v1", {"rollout_steps": 16, "epochs": 1}),
    "ppo dict": ("LookAndFeel-v0", {"rollout_steps": 16, "epochs": 1}),
    "ppo_replay": ("CartPole-v1", {"rollout_steps": 16, "epochs": 1}),
    "q_learning": ("CliffWalking-v1", {"rollout_steps": 8, "epsilon": 0.5}),
    "random": ("CartPole-v1", {"rollout_steps": 16}),
    "reinforce": ("CartPole-v1", {"rollout_steps": 32}),
    "sac": ("Pendulum-v1", SEQUENCES),
    "sac discrete": ("CartPole-v1", SEQUENCES),
    "td3": ("Pendulum-v1", SEQUENCES),
    "tdmpc": ("Pendulum-v1", {**TDMPC, "critics": 4}),
    "tdmpc v1": ("Pendulum-v1", {**TDMPC, "variant": "v1"}),
    "world_models": ("CartPole-v1", PICTURES),
    "world_models dream": ("CartPole-v1", {**PICTURES, "controller": {**TINY, "train_in": "dream"}}),
}
"""Settings of each algorithm and an environment for it."""
KIND = {"dreamer": "online", "planet": "online"}
WITHOUT_MEMORY = {"random", "q_learning", "dreamer", "planet", "tdmpc", "diffusion_policy", "world_models"}
MEMORIES = [
    (case, core)
    for case in ALGORITHM
    for core in ("none", "gru")
    if core == "none" or case.split()[0] not in WITHOUT_MEMORY
]


class TestAlgorithms(AlgorithmContract):
    @pytest.fixture(autouse=True, params=MEMORIES, ids=" ".join)
    def case(self, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
        case, core = request.param
        env, settings = ALGORITHM[case]
        name = case.split()[0]
        kinds = ALGORITHMS[name].buffers
        self.sections = {
            "algorithm": {"name": name, **settings},
            "environment": {"id": env, "num_envs": 2, "max_episode_steps": 25, "wrappers": DRAWN.get(name, [])},
            "network": {**SMALL, "memory": core},
            **({"buffers": {"replay": {"type": KIND.get(name, "uniform"), "size": 300}}} if "replay" in kinds else {}),
        }
        if "demos" in kinds:
            spaces = PENDULUM if env == "Pendulum-v1" else CART
            folder, _ = demonstrations(tmp_path_factory.mktemp("data") / "demos-v0", spaces)
            self.sections["buffers"] = {"demos": {"path": str(folder)}}
            self.sections["training"] = {"total_updates": 128, "epoch_updates": 32}

    def test_it_reads_the_parts_of_the_network_that_it_names(self) -> None:
        """`networks`: a part that it does not name is refused in a config."""
        config = small_config(self.sections)
        seen: set[str] = set()

        class Watched(Network):
            def __getattribute__(self, name: str) -> Any:
                seen.update({name} & {"encoder", "memory", "actor", "critic"})
                return super().__getattribute__(name)

        watched = Watched.model_validate(config.network.model_dump())
        seen.clear()
        run = build(config.model_copy(update={"network": watched}))
        run.close()
        assert seen == run.algorithm.networks


def test_every_algorithm_is_here() -> None:
    assert {case.split()[0] for case in ALGORITHM} == set(ALGORITHMS.names())


# ---- buffers -------------------------------------------------------------------------------------------------------


class TestBuffers(BufferContract):
    @pytest.fixture(autouse=True, params=sorted(set(BUFFERS.names()) - {"append", "stored", "minari"}))
    def case(self, request: pytest.FixtureRequest) -> None:
        self.kind = BUFFERS[request.param]

    def make(self, spaces: Any, num_envs: int) -> Any:
        rng = np.random.default_rng(0)
        return self.kind(self.kind.Config(size=120), spaces, num_envs, name="replay", rng=rng)


# ---- encoders ------------------------------------------------------------------------------------------------------

SIDES = {"nature": 36, "cnn": 40, "impala": 9, "small": 7, "minatar": 10, "mlp": 0, "auto": 5}
VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)


class TestEncoders(EncoderContract):
    @pytest.fixture(autouse=True, params=[*ENCODERS.names(), "auto dict"])
    def case(self, request: pytest.FixtureRequest) -> None:
        self.name, _, kind = request.param.partition(" ")
        side = SIDES[self.name]
        picture = gym.spaces.Box(0, 255, (3, side, side), np.uint8) if side else VECTOR
        self.space = gym.spaces.Dict({"look": picture, "feel": VECTOR}) if kind else picture

    def make(self) -> Any:
        widths = {"hidden_dims": [8]} if self.name == "mlp" else {}
        return build_encoder(Network(encoder={"type": self.name, **widths}).encoder, self.space)


# ---- representations of world models -------------------------------------------------------------------------------

RSSM = {"deter": 16, "hidden": 8, "stoch": 3, "classes": 4, "blocks": 4, "free_nats": 0.0}
REPRESENTATION: dict[str, dict[str, Any]] = {
    **{
        f"rssm {latent} {cell}": {**RSSM, "latent": latent, "cell": cell}
        for latent in ("categorical", "gaussian")
        for cell in ("block_gru", "gru")
    },
    "rssm plain": {**RSSM, "norm": False, "activation": "elu"},
    **{f"identity {kind}": {"dynamics": {"type": kind, "units": 8, "layers": 1}} for kind in DYNAMICS.names()},
}


class TestRepresentations(RepresentationContract):
    @pytest.fixture(autouse=True, params=REPRESENTATION)
    def case(self, request: pytest.FixtureRequest) -> None:
        self.kind, self.settings = REPRESENTATIONS[request.param.split()[0]], REPRESENTATION[request.param]

    def make(self) -> Any:
        return self.kind(self.kind.Config.model_validate(self.settings), self.embedding, self.actions)


def test_every_representation_is_here() -> None:
    assert {case.split()[0] for case in REPRESENTATION} == set(REPRESENTATIONS.names())


# ---- wrappers ------------------------------------------------------------------------------------------------------

PONG = {"id": "ALE/Pong-v5", "kwargs": {"frameskip": 1}}
GRID = {"id": "MiniGrid-Empty-5x5-v0"}
LAKE, CAR = {"id": "FrozenLake-v1"}, {"id": "MountainCar-v0"}
PIXELS = {"id": "ContractPicture-v0"}
WRAPPED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "action_reward": ({"id": "CartPole-v1"}, {"rewards": {0: 0.5}}),
    "ale_action_masking": (PONG, {"actions": ["NOOP", "RIGHT", "LEFT"]}),
    "breakout_features": ({**PONG, "id": "ALE/Breakout-v5"}, {}),
    "cart_pole_shaping": ({"id": "CartPole-v1"}, {}),
    "cast_observation": (PIXELS, {}),
    "channels_first": (PIXELS, {}),
    "clip_action": ({"id": "Pendulum-v1"}, {}),
    "clip_observation": (CAR, {"low": -0.5, "high": 0.5}),
    "clip_reward": ({"id": "Pendulum-v1"}, {}),
    "crop": (PIXELS, {"top": 1, "bottom": 2}),
    "discrete_encoder": (LAKE, {"encoding": "onehot"}),
    "draw_cart_pole": ({"id": "CartPole-v1"}, {"size": 12}),
    "episodic_life": ({**PONG, "id": "ALE/Breakout-v5"}, {}),
    "fire_reset": ({**PONG, "id": "ALE/Breakout-v5"}, {}),
    "flatten": (PIXELS, {}),
    "frame_skip": (CAR, {"skip": 3}),
    "frame_stack": (CAR, {"frames": 3}),
    "grayscale": (PIXELS, {}),
    "mask_observation": ({"id": "CartPole-v1"}, {"indices": [1, 3]}),
    "max_and_skip": (PONG, {"skip": 4}),
    "minigrid_image": (GRID, {}),
    "minigrid_rgb": (GRID, {}),
    "minigrid_symbols": (GRID, {}),
    "mountain_car_shaping": (CAR, {}),
    "noop_reset": (PONG, {"noop_max": 5}),
    "normalize_observation": (CAR, {"mean": [0.0, 0.0], "std": [1.0, 0.1]}),
    "one_hot": (LAKE, {}),
    "pixels_only": ({"id": "CartPole-v1"}, {}),
    "pong_features": (PONG, {}),
    "pong_shaping": (PONG, {}),
    "remap_actions": (CAR, {"mapping": [0, 2]}),
    "rescale_action": ({"id": "Pendulum-v1"}, {"low": -1.0, "high": 1.0}),
    "resize": (PIXELS, {"size": 6}),
    "scale_observation": ({"id": "Pendulum-v1"}, {"low": 0.0, "high": 1.0}),
    "scale_reward": (CAR, {"scale": 0.1}),
    "state_count_bonus": (CAR, {}),
    "sticky_actions": (CAR, {"probability": 0.3}),
    "stop_without_reward": (CAR, {"steps": 7}),
    "time_aware": (CAR, {}),
    "unflatten": ({"id": "CartPole-v1"}, {"shape": [2, 2]}),
}
EXTRAS = {"ALE": "ale_py", "MiniGrid": "minigrid"}
ELSEWHERE = {"car_controls", "car_skip", "old_api", "retro_mario_shaping", "vizdoom_shaping"}
"""They need Box2D, a ROM, a screen or an environment of the old interface; tests/envs tries them with such."""


class Picture(gym.Env):
    """Random colours; episodes end at random."""

    metadata = {"render_modes": []}
    observation_space = gym.spaces.Box(0, 255, (12, 10, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action: Any) -> Any:
        return self._show(), 1.0, bool(self.np_random.random() < 0.1), False, {}

    def _show(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (12, 10, 3), np.uint8)


class TestWrappers(WrapperContract):
    @pytest.fixture(autouse=True, params=WRAPPED)
    def case(self, request: pytest.FixtureRequest) -> None:
        if "ContractPicture-v0" not in gym.registry:
            gym.register("ContractPicture-v0", Picture)
        self.environment, settings = WRAPPED[request.param]
        for start, module in EXTRAS.items():
            if str(self.environment["id"]).startswith(start):
                pytest.importorskip(module)
        self.wrapper = {"id": request.param, **settings}


def test_every_wrapper_is_here() -> None:
    """Each class by one of its names."""
    assert {WRAPPERS[name] for name in {*WRAPPED, *ELSEWHERE}} == {WRAPPERS[name] for name in WRAPPERS.names()}


# ---- callbacks -----------------------------------------------------------------------------------------------------

CALLBACK: dict[str, dict[str, Any]] = {
    "plateau": {"patience": 1, "monitor": "train/loss/policy", "actions": [{"field": "lr", "multiply": 0.5}]},
}


class TestCallbacks(CallbackContract):
    @pytest.fixture(autouse=True, params=CALLBACKS.names())
    def case(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param
        self.changes_learning = self.name == "plateau"

    def make(self) -> Any:
        return CALLBACKS[self.name](CALLBACKS[self.name].Config(**CALLBACK[self.name]))


# ---- sinks ---------------------------------------------------------------------------------------------------------


class TestJsonl(SinkContract):
    def make(self, folder: Path) -> Sink:
        return Jsonl(folder / "metrics.jsonl")

    def read(self, folder: Path) -> list[dict[str, float | str]]:
        return list(read_rows(folder / "metrics.jsonl"))


class TestCsv(SinkContract):
    def make(self, folder: Path) -> Sink:
        return Csv(folder / "metrics.csv")

    def read(self, folder: Path) -> list[dict[str, Any]]:
        with (folder / "metrics.csv").open(newline="") as file:
            return list(csv.DictReader(file))


class TestTensorBoard(SinkContract):
    def make(self, folder: Path) -> Sink:
        pytest.importorskip("tensorboard")
        return TensorBoard(folder)


@pytest.mark.slow
class TestWandb(SinkContract):
    def make(self, folder: Path) -> Sink:
        pytest.importorskip("wandb")
        return WandbSink(folder, name="x", project="p")


def test_every_sink_is_here() -> None:
    folder = Path(importlib.import_module("ludus.metrics.sinks").__file__ or "").parent
    assert {path.stem for path in folder.glob("*.py")} == {"__init__", "jsonl", "csv", "tensorboard", "wandb"}
