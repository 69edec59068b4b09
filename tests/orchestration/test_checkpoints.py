"""What the saving callback links, keeps and refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus import files
from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.config.training import CheckpointPlan
from ludus.errors import ConfigError, DataError
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.orchestration.evaluator import EvalResult
from ludus.run import Run
from support import build, close
from support import config as small_config


def saver(folder: Path, **plan: Any) -> Checkpoints:
    return Checkpoints(folder, CheckpointPlan(**plan), warn=lambda _: None)


def evaluated(folder: Path, means: list[float], **plan: Any) -> Run:
    """A run whose evaluations, one a cycle of 64 steps, find these means."""
    cfg = small_config(
        {"name": "ppo", "rollout_steps": 16},
        training={"total_timesteps": 64 * len(means), "evaluation": {"every_epochs": 1}},
    )
    run = build(cfg, will_checkpoint=True)
    left = iter(means)

    def evaluate(env_steps: int) -> EvalResult:
        return EvalResult(returns=(next(left),), lengths=(1,), env_steps=env_steps, seconds=0.1, deterministic=True)

    run.evaluator.evaluate = evaluate  # type: ignore[method-assign]
    folder.mkdir(exist_ok=True)
    callback = Checkpoints(folder, CheckpointPlan(**plan), warn=lambda _: None)
    run.callbacks.append(callback)
    run.run()
    close(run)
    return run


def test_best_is_the_checkpoint_of_the_best_evaluation(tmp_path: Path) -> None:
    evaluated(tmp_path, [10.0, 5.0, 7.0], at_evaluation="all", keep=9)
    assert str((tmp_path / "checkpoints" / "best").readlink()) == "step=64"
    assert str((tmp_path / "checkpoints" / "last").readlink()) == "step=192"


def test_only_the_best_evaluations_are_saved(tmp_path: Path) -> None:
    evaluated(tmp_path, [10.0, 5.0, 12.0, 3.0, 2.0], at_evaluation="best", keep=9)
    assert list(checkpoint.checkpoints(tmp_path)) == ["step=0", "step=64", "step=192", "step=320"]
    assert str((tmp_path / "checkpoints" / "best").readlink()) == "step=192"


def test_the_best_one_stays_beside_the_newest(tmp_path: Path) -> None:
    evaluated(tmp_path, [10.0, 5.0, 4.0, 3.0, 2.0], at_evaluation="all", keep=2)
    assert list(checkpoint.checkpoints(tmp_path)) == ["step=64", "step=256", "step=320"]


def test_nothing_older_goes_before_the_newest_was_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest is damaged between its writing and the pruning."""
    callback = saver(tmp_path, keep=1)
    callback._write({"value": 1}, "step=1", False)
    save = checkpoint.save

    def damaged(folder: Path, state: dict[str, Any], *, name: str, best: bool = False) -> Path:
        path = save(folder, state, name=name, best=best)
        (path / checkpoint.STATE).write_bytes(b"{}")
        return path

    monkeypatch.setattr(checkpoint, "save", damaged)
    with pytest.raises(DataError):
        callback._write({"value": 2}, "step=2", False)
    assert list(checkpoint.checkpoints(tmp_path)) == ["step=1", "step=2"]
    assert checkpoint.load_newest_good(tmp_path).state == {"value": 1}
    callback.finish()


def test_a_best_that_is_gone_is_no_reason_to_fail(tmp_path: Path) -> None:
    callback = saver(tmp_path, keep=1)
    callback._write({"value": 1}, "step=1", True)
    files.replace_link(tmp_path / "checkpoints" / "best", "step=99")
    callback._write({"value": 2}, "step=2", False)
    assert list(checkpoint.checkpoints(tmp_path)) == ["step=2"]
    callback.finish()


def test_every_checkpoint_says_what_it_is_of(tmp_path: Path) -> None:
    run = evaluated(tmp_path / "a", [1.0])
    callback = Checkpoints(
        tmp_path / "a",
        CheckpointPlan(),
        warn=lambda _: None,
        about={"config": {"lr": 0.1}, "meta": {"name": "x"}},
    )
    callback._hand_over(run)
    callback.finish()
    assert checkpoint.about(tmp_path / "a") == {"config": {"lr": 0.1}, "meta": {"name": "x"}}
    assert checkpoint.trained(checkpoint.about(tmp_path / "a")) == {"lr": 0.1}
    newest = checkpoint.find(tmp_path / "a", "last")
    (newest / checkpoint.STATE).write_bytes(b"")
    assert checkpoint.about(tmp_path / "a") == {}  # the one before says nothing, this one cannot be believed


def test_no_save_into_a_folder_that_is_no_longer_ours(tmp_path: Path) -> None:
    def refuse() -> None:
        raise ConfigError("run", "is in use by another process")

    run = evaluated(tmp_path / "a", [1.0])
    callback = Checkpoints(
        tmp_path / "b",
        CheckpointPlan(),
        warn=lambda _: None,
        confirm=refuse,
    )
    with pytest.raises(ConfigError, match="is in use"):
        callback.save(run)
    callback.finish()
    assert not (tmp_path / "b").exists()


def test_the_updates_of_a_last_offline_phase_are_saved_beside_the_best_evaluation(tmp_path: Path) -> None:
    """No environment step comes after that evaluation: the last weights have a name of their own."""
    phases = [
        {"name": "collect", "duration_steps": 64, "hooks": ["collect", "evaluate"]},
        {"name": "learn", "type": "offline", "duration_updates": 5, "hooks": ["update_controller"]},
    ]
    algorithm = {"name": "dqn", "batch_size": 8, "learning_starts": 8, "train_freq": 16, "target_every": 2}
    run = build(small_config(algorithm, training={"phases": phases, "evaluation": {"episodes": 1}}))
    callback = Checkpoints(tmp_path, CheckpointPlan(), warn=lambda _: None)
    run.callbacks.append(callback)
    run.run()
    close(run)
    assert list(checkpoint.checkpoints(tmp_path)) == ["step=0", "step=64", "step=64+5"]
    links = {name: str((tmp_path / "checkpoints" / name).readlink()) for name in ("best", "last")}
    assert links == {"best": "step=64", "last": "step=64+5"}
    last = checkpoint.load(checkpoint.find(tmp_path, "last"))
    assert last["scheduler"]["progress"]["updates"] == 5
    assert fingerprint(last["algorithm"]) == fingerprint({n: p.state_dict() for n, p in run.algorithm.state().items()})
    assert fingerprint(last["algorithm"]) != fingerprint(
        checkpoint.load(checkpoint.find(tmp_path, "best"))["algorithm"]
    )
