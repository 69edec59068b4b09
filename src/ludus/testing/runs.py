"""The contracts of algorithms and callbacks: the seed decides everything, watching and acting disturb nothing."""

from __future__ import annotations

import inspect
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.config.schema import ExperimentConfig
from ludus.experiment import build
from ludus.orchestration.callbacks import Callback
from ludus.run import Run
from ludus.session.player import build_player
from ludus.types import zeros

Sections = Mapping[str, Mapping[str, object]]
SMALL: Sections = {"environment": {"id": "CartPole-v1", "num_envs": 2}, "training": {"total_timesteps": 256}}


class AlgorithmContract:
    """Inherit and set `sections` of a config: at least `algorithm`, with settings that learn within 256 steps.

    An algorithm that learns from a data set has `training: {total_updates: 128, epoch_updates: 32}`.
    """

    sections: Sections

    def _config(self, seed: int = 1, **training: object) -> ExperimentConfig:
        training = {**self.sections.get("training", {}), **training}
        return small_config({**self.sections, "experiment": {"seed": seed}, "training": training})

    def test_the_seed_decides_everything(self) -> None:
        """The same seed learns the same, with or without evaluation; another seed learns something else."""
        one, other = (trained(build(self._config(seed))) for seed in (1, 2))
        evaluated = trained(build(self._config(evaluation={"every_epochs": 1, "episodes": 2, "deterministic": False})))
        assert evaluated.last is not None and learned(one) == learned(evaluated)
        assert learned(one) != learned(other)

    def test_a_checkpoint_continues_exactly(self, tmp_path: Path) -> None:
        """A run that loads a checkpoint of the middle ends like the run that saved it."""
        saved, loaded = (
            build(self._config(), callbacks=also, will_checkpoint=True) for also in ([_Save(tmp_path)], [])
        )
        trained(saved)
        loaded.load_state_dict(checkpoint.load(checkpoint.find(tmp_path)))
        assert 0 < loaded.position < 256
        assert learned(trained(loaded)) == learned(saved)

    def test_acting_changes_no_training_and_a_player_acts_alike(self) -> None:
        """Actions fit the space and, if deterministic, equal those of a player; no random stream of training moves."""
        run = trained(build(self._config(), will_checkpoint=True))
        algorithm, player = run.algorithm, build_player(run.config, run.spaces, run.state_dict()).algorithm
        envs, before = 2, learned(run)
        obs = zeros(run.spaces.observation, envs) if run.collector is None else run.collector.newest_obs
        for deterministic in (False, algorithm.deterministic_evaluation):
            state, other = algorithm.initial_state(envs), player.initial_state(envs)
            for first in np.eye(3, envs, dtype=bool):
                action, state, info = algorithm.act(obs, state, first, deterministic=deterministic)
                expected, other, facts = player.act(obs, other, first, deterministic=deterministic)
                assert all(run.spaces.action.contains(one) for one in action)
                equal = [np.array_equal(action, expected), *(np.array_equal(info[name], facts[name]) for name in info)]
                assert all(equal) or not deterministic
        assert learned(run) == before


class CallbackContract(ABC):
    """Inherit and override `make`."""

    changes_learning = False
    """Whether it stops the run or changes the algorithm's settings."""

    @abstractmethod
    def make(self) -> Callback:
        """A new callback."""

    def test_it_overrides_moments_that_exist(self) -> None:
        """A method with another name or other parameters would never be called."""
        for name, method in inspect.getmembers(self.make(), inspect.ismethod):
            if name.startswith("on_"):
                inspect.signature(method).bind(*inspect.signature(getattr(Callback(), name)).parameters)

    def test_the_run_learns_the_same_and_its_state_can_be_saved(self) -> None:
        """The state after a run is plain data that another callback can load."""
        callback, other = self.make(), self.make()
        config = small_config({"algorithm": {"name": "ppo", "rollout_steps": 16, "epochs": 1}})
        watched, alone = (trained(build(config, callbacks=also)) for also in ([callback], []))
        assert learned(watched) == learned(alone) or self.changes_learning
        state = json.dumps(callback.state_dict())
        other.load_state_dict(json.loads(state))
        assert json.dumps(other.state_dict()) == state


def small_config(sections: Sections) -> ExperimentConfig:
    """A validated experiment of 256 steps in two environments; sections are merged one level deep."""
    merged = {name: {**SMALL.get(name, {}), **sections.get(name, {})} for name in {**SMALL, **sections}}
    return ExperimentConfig.model_validate(merged)


def trained(run: Run) -> Run:
    """The same run, trained to its end and closed."""
    run.run()
    run.close()
    return run


def learned(run: Run) -> str:
    """A text that changes with everything that the algorithm learned and with every random stream of training."""
    state = run.state_dict()
    kept = {name: state[name] for name in ("algorithm", "exploration", "torch", "buffers")}
    return f"{fingerprint(kept)} {np.random.get_state()} {random.getstate()}"


class _Save(Callback):
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_epoch_end(self, run: Run) -> None:
        if run.position >= 96 and not checkpoint.checkpoints(self.folder):
            checkpoint.save(self.folder, run.state_dict(), name="step=96")
