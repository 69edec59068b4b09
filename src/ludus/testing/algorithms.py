"""The contract of algorithms: a seed decides everything, acting disturbs nothing, a checkpoint goes on exactly."""

from __future__ import annotations

import random
from abc import ABC
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ludus.config.schema import ExperimentConfig
from ludus.experiment import build, build_player
from ludus.orchestration.callbacks import Callback
from ludus.run import Run
from ludus.runs import checkpoint
from ludus.runs.fingerprint import fingerprint
from ludus.types import Spaces

Sections = Mapping[str, Mapping[str, object]]
SMALL: Sections = {
    "environment": {"id": "CartPole-v1", "num_envs": 2},
    "training": {"total_timesteps": 256},
    "runtime": {"compile": "never"},
}


class AlgorithmContract(ABC):
    """Inherit and set `sections` of a config: at least `algorithm`, so that it learns something in 256 steps."""

    sections: Sections

    def _config(self, seed: int = 1, **training: object) -> ExperimentConfig:
        return small_config({**self.sections, "experiment": {"seed": seed}, "training": training})

    def test_the_seed_decides_everything(self) -> None:
        """The same seed learns the same, evaluated or not; another one learns something else."""
        one, other = (trained(self._config(seed)) for seed in (1, 2))
        watched = trained(self._config(evaluation={"every_epochs": 1, "episodes": 2, "deterministic": False}))
        assert watched.last is not None and learned(one) == learned(watched)
        assert learned(one) != learned(other)

    def test_a_checkpoint_goes_on_exactly(self, tmp_path: Path) -> None:
        """A run that is loaded in the middle ends like the one that was saved there."""
        whole, rest = trained(self._config(), [_Save(tmp_path)]), build(self._config(), will_checkpoint=True)
        rest.load_state_dict(checkpoint.load(checkpoint.find(tmp_path)))
        assert 0 < rest.progress.env_steps < 256
        assert learned(trained(rest)) == learned(whole)

    def test_acting_leaves_training_alone_and_a_player_acts_alike(self) -> None:
        """Actions fit the space and, if deterministic, are those of a player; no random stream of training moves."""
        run = trained(self._config())
        algorithm, collector = run.algorithm, run.algorithm.collector
        assert collector is not None
        spaces = Spaces(collector.env.observation_space, collector.env.action_space)
        player, before = build_player(run.config, spaces, run.state_dict()).algorithm, learned(run)
        for deterministic in (False, algorithm.deterministic_evaluation):
            mine, yours = (one.initial_state(collector.num_envs) for one in (algorithm, player))
            for first in np.eye(3, collector.num_envs, dtype=bool):
                action, mine, info = algorithm.act(collector.newest_obs, mine, first, deterministic=deterministic)
                same, yours, told = player.act(collector.newest_obs, yours, first, deterministic=deterministic)
                assert all(spaces.action.contains(one) for one in action)
                alike = [np.array_equal(action, same), *(np.array_equal(info[name], told[name]) for name in info)]
                assert all(alike) or not deterministic
        assert learned(run) == before


def small_config(sections: Sections) -> ExperimentConfig:
    """A validated experiment of 256 steps in two environments; sections are merged one level deep."""
    return ExperimentConfig.model_validate(
        {k: {**SMALL.get(k, {}), **sections.get(k, {})} for k in {**SMALL, **sections}}
    )


def trained(run: ExperimentConfig | Run, callbacks: Sequence[Callback] = ()) -> Run:
    """A run that has come to its end, with its environments shut down."""
    run = build(run, callbacks=callbacks, will_checkpoint=True) if isinstance(run, ExperimentConfig) else run
    run.run()
    run.close()
    return run


def learned(run: Run) -> str:
    """All that training has changed and all that it will draw from, in one line."""
    kept = {
        name: part
        for name, part in run.state_dict().items()
        if name in ("algorithm", "exploration", "torch", "buffers")
    }
    return f"{fingerprint(kept)} {np.random.get_state()} {random.getstate()}"


class _Save(Callback):
    """Saves the run once, in the middle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_epoch_end(self, run: Run) -> None:
        if run.progress.env_steps >= 96 and not checkpoint.checkpoints(self.folder):
            checkpoint.save(self.folder, run.state_dict(), name="step=96")
