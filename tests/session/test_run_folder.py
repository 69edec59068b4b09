"""Resuming what a folder holds: older checkpoints, edited configs, lost files, other code, runs that never began."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ludus import files
from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.archive.lock import RunLock
from ludus.archive.store import RunFolder
from ludus.config.compose import config_hash, load
from ludus.errors import ConfigError
from ludus.metrics.sinks.jsonl import read_rows
from ludus.orchestration.callbacks.checkpoints import Checkpoints
from ludus.session.resume import unfinished
from session.conftest import SMALL, Ludus, only_run

TIMING = ("seconds", "train/time/", "val/time/", "train/system/")


def outcome(run: Path) -> tuple[str, list[dict[str, float | str]]]:
    """Hash of the last state and the rows without timings."""
    rows = [{k: v for k, v in row.items() if not k.startswith(TIMING)} for row in read_rows(run / "metrics.jsonl")]
    return fingerprint(checkpoint.load(checkpoint.find(run, "last"))), rows


def dangling(run: Path) -> list[str]:
    """Links that lead nowhere."""
    return [str(path.relative_to(run)) for path in run.rglob("*") if path.is_symlink() and not path.exists()]


# ---- back to an older checkpoint -----------------------------------------------------------------


@pytest.mark.parametrize("damage", ["an older one is asked for", "the newest two are damaged"])
def test_going_back_behind_the_best_checkpoint(ludus: Ludus, tmp_path: Path, damage: str) -> None:
    evaluated = ["training.evaluation.every_steps=128", "training.evaluation.episodes=1", "training.checkpoints.keep=2"]
    words = [*SMALL, *evaluated, "training.checkpoints.at_evaluation=all"]
    assert ludus("train", *words, "training.total_timesteps=512").code == 0
    run = only_run(tmp_path)
    whole = outcome(run)
    newest = list(checkpoint.checkpoints(run))[-2:]
    files.replace_link(run / "checkpoints" / "best", newest[-1])
    if damage == "an older one is asked for":
        reference, back = f"@last/step={min(steps(run))}", min(steps(run))
    else:
        reference = "@last"
        for name in newest:
            (run / "checkpoints" / name / "tensors.safetensors").write_bytes(b"")
        back = max(step for step in steps(run) if f"step={step}" not in newest)
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps({**status, "state": "running"}))
    done = ludus("resume", reference)
    assert done.code == 0, done.err
    assert f"resumed at {back} steps" in (run / "run.log").read_text()
    assert outcome(run) == whole
    assert dangling(run) == []
    assert (run / "checkpoints" / "last").resolve().name == "step=512"


def test_the_best_checkpoint_was_removed_by_hand(ludus: Ludus, trained: Path) -> None:
    state = checkpoint.load(trained / "checkpoints" / "step=448")
    result = {"returns": [9.0], "lengths": [9], "env_steps": 384, "seconds": 0.1, "deterministic": True}
    state["run"]["best"] = result
    checkpoint.save(trained, state, name="step=448")
    shutil.rmtree(trained / "checkpoints" / "step=512")
    files.replace_link(trained / "checkpoints" / "best", "step=512")
    done = ludus("resume", "@last", "training.total_timesteps=640")
    assert done.code == 0, done.err
    assert (trained / "checkpoints" / "best").resolve().name == "step=384"
    shutil.rmtree(trained / "checkpoints" / "step=384")
    done = ludus("resume", "@last", "training.total_timesteps=704")
    assert done.code == 0, done.err
    assert dangling(trained) == [] and not (trained / "best.ckpt").is_symlink()


def steps(run: Path) -> list[int]:
    return [int(name.removeprefix("step=")) for name in checkpoint.checkpoints(run)]


def test_an_older_checkpoint_of_a_finished_run_is_gone_back_to(ludus: Ludus, trained: Path) -> None:
    whole = outcome(trained)
    assert "has already finished" in ludus("resume", "@last").out
    assert ludus("resume", "@last/step=256").code == 0
    assert "resumed at 256 steps" in (trained / "run.log").read_text()
    assert outcome(trained) == whole
    assert sorted(path.name for path in (trained / "checkpoints").glob("superseded=*"))[0] == "superseded=320"


def test_killed_while_going_back_the_rows_are_those_of_the_checkpoint(
    ludus: Ludus, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the checkpoints are set aside, then the rows: never a checkpoint without the rows that lead to it."""
    whole = outcome(trained)

    def dies(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("ludus.session.resume.rewind_metrics", dies)
        assert ludus("resume", "@last/step=256").code == 130
    assert max(steps(trained)) == 256
    assert ludus("resume", "@last").code == 0
    assert outcome(trained) == whole


def test_a_run_that_began_with_another_has_no_link_to_a_best_it_has_not(ludus: Ludus, tmp_path: Path) -> None:
    evaluated = ["training.evaluation.every_steps=256", "training.evaluation.episodes=1"]
    assert ludus("train", *SMALL, *evaluated, "training.total_timesteps=256").code == 0
    first = only_run(tmp_path)
    further = ["training.evaluation.every_steps=null", "training.total_timesteps=320"]  # one save
    path = f"training.resume_path={first}/last.ckpt"
    assert ludus("train", *SMALL, *further, path).code == 0
    assert dangling((tmp_path / "runs" / "@last").resolve()) == []


# ---- config.yaml edited by hand ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [("gamma: 0.98", "gamma: 0.5", "algorithm.gamma: 0.98 -> 0.5"), ("seed: 42", "seed: 43", "experiment.seed: 42")],
)
def test_an_edited_config_is_refused_and_not_believed(
    ludus: Ludus, trained: Path, before: str, after: str, named: str
) -> None:
    config = trained / "config.yaml"
    assert before in config.read_text()
    config.write_text(config.read_text().replace(before, after))
    refused = ludus("resume", "@last", "training.total_timesteps=640")
    assert refused.code == 2 and named in refused.err and "command line" in refused.err
    assert "0.98" in ludus("list", "--columns", "id,algorithm.gamma").out
    assert "  42" in ludus("list", "--columns", "id,seed").out
    assert "was edited" in ludus("show", "@last").out
    assert ludus("verify", "@last").code == 2
    assert ludus("report", "@last").code == 0
    assert "was edited" in (trained / "report.md").read_text()
    config.write_text(config.read_text().replace(after, before))
    assert ludus("resume", "@last", "training.total_timesteps=640").code == 0
    assert "was edited" not in ludus("show", "@last").out


def test_what_may_change_may_be_edited_and_is_told(ludus: Ludus, trained: Path) -> None:
    config = trained / "config.yaml"
    config.write_text(config.read_text().replace("total_timesteps: 512", "total_timesteps: 640"))
    status = json.loads((trained / "status.json").read_text())
    (trained / "status.json").write_text(json.dumps({**status, "state": "stopped"}))
    assert ludus("resume", "@last").code == 0
    assert "training.total_timesteps: 512 -> 640" in (trained / "run.log").read_text()
    assert json.loads((trained / "meta.json").read_text())["config_hash"] == config_hash(load(str(config)).config)


def test_a_field_that_a_newer_version_has_is_no_edit(ludus: Ludus, trained: Path) -> None:
    config = trained / "config.yaml"
    config.write_text(config.read_text().replace("  overlap: false\n", ""))
    for step in (448, 512):
        state = checkpoint.load(trained / "checkpoints" / f"step={step}")
        del state["about"]["config"]["runtime"]["overlap"]
        checkpoint.save(trained, state, name=f"step={step}")
    done = ludus("resume", "@last", "training.total_timesteps=576")
    assert done.code == 0, done.err
    assert "overlap: false" in config.read_text()
    assert "was edited" not in ludus("show", "@last").out


# ---- files that are lost -------------------------------------------------------------------------

DAMAGE = {"gone": None, "empty": b"", "cut": b'{"state": "fin'}


@pytest.mark.parametrize("name", ["status.json", "meta.json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_lost_files_are_rebuilt(ludus: Ludus, trained: Path, name: str, damage: str) -> None:
    before = json.loads((trained / name).read_text())
    (trained / name).unlink()
    if DAMAGE[damage] is not None:
        (trained / name).write_bytes(DAMAGE[damage])
    assert "finished" in ludus("list").out
    done = ludus("resume", "@last")
    assert done.code == 0 and "has already finished" in done.out
    done = ludus("resume", "@last", "training.total_timesteps=640")
    assert done.code == 0, done.err
    after = json.loads((trained / name).read_text())
    if name == "meta.json":
        assert {**after, "config_hash": ""} == {**before, "config_hash": ""}
    else:
        assert (after["state"], after["env_steps"]) == ("finished", 640)


def test_without_a_checkpoint_to_ask_the_name_of_the_folder_says_when_and_what(tmp_path: Path) -> None:
    from ludus.archive import rebuild

    run = RunFolder.create(tmp_path, "cart", config_yaml="x: 1\n")
    told = run.meta()
    (run.path / "meta.json").unlink()
    found = rebuild.meta(run.path)
    assert found["name"] == "cart" and found["started"][:16] == told["started"][:16]
    (run.path / "status.json").unlink()
    assert rebuild.status(run.path)["state"] == "lost"


# ---- killed before the first checkpoint ----------------------------------------------------------


def test_a_run_killed_before_its_first_checkpoint_begins_again(
    ludus: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, "training.total_timesteps=256"]
    assert ludus("train", *words, "--runs-dir", "whole/runs").code == 0

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "on_start", dies)
        assert ludus("train", *words).code == 130
    assert checkpoint.checkpoints(only_run(tmp_path)) == {}
    done = ludus("resume", "@last")
    assert done.code == 0, done.err
    assert outcome(only_run(tmp_path)) == outcome(only_run(tmp_path / "whole"))


def test_the_first_checkpoint_is_there_before_the_first_step(
    ludus: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a run without one has done nothing that could be lost."""
    import time

    from ludus.data.collector import Collector

    seen: list[list[str]] = []
    save, collect = checkpoint.save, Collector.collect

    def slow(*args, **kwargs):
        time.sleep(0.3)
        return save(*args, **kwargs)

    def look(self, *args, **kwargs):
        seen.append(list(checkpoint.checkpoints(only_run(tmp_path))))
        return collect(self, *args, **kwargs)

    monkeypatch.setattr(checkpoint, "save", slow)
    monkeypatch.setattr(Collector, "collect", look)
    assert ludus("train", *SMALL, "training.total_timesteps=64").code == 0
    assert seen[0] == ["step=0"]


def test_a_run_whose_checkpoints_were_removed_does_not_begin_again(ludus: Ludus, trained: Path) -> None:
    shutil.rmtree(trained / "checkpoints")
    refused = ludus("resume", "@last", "training.total_timesteps=640")
    assert refused.code == 3 and f"ludus train {trained}/config.yaml" in refused.err


# ---- other code ----------------------------------------------------------------------------------


def test_other_versions_are_one_warning_and_are_written_down(ludus: Ludus, trained: Path) -> None:
    meta = json.loads((trained / "meta.json").read_text())
    meta["versions"]["torch"], meta["git"] = "0.0.1", {"commit": "0" * 40, "dirty": False}
    (trained / "meta.json").write_text(json.dumps(meta))
    done = ludus("resume", "@last", "training.total_timesteps=576", "logging.console=false")
    assert done.code == 0
    (line,) = [line for line in done.err.splitlines() if "torch 0.0.1 -> " in line]
    assert "may differ" in line
    (entry,) = json.loads((trained / "meta.json").read_text())["resumed"]
    assert entry["env_steps"] == 512 and entry["versions"]["torch"] != "0.0.1"
    done = ludus("resume", "@last", "training.total_timesteps=640", "logging.console=false")
    assert "torch 0.0.1" not in done.err  # it was told, and what counts now is the newer one


# ---- --resume auto -------------------------------------------------------------------------------


def open_run(root: Path, *, started: str) -> RunFolder:
    """A run of the small config that was killed."""
    config = load("CartPole-v1:ppo").config
    run = RunFolder.create(root, "cart", config_yaml="algorithm: {name: ppo}\n", config_hash=config_hash(config))
    meta = run.meta()
    (run.path / "meta.json").write_text(json.dumps({**meta, "started": started}))
    (run.path / "checkpoints" / "step=64").mkdir(parents=True)
    return run


def test_auto_takes_the_newest_even_if_the_clock_went_back(tmp_path: Path) -> None:
    open_run(tmp_path, started="2026-05-01T00:00:00+00:00")
    second = open_run(tmp_path, started="2023-05-01T00:00:00+00:00")
    assert unfinished(load("CartPole-v1:ppo").config, tmp_path) == second.id


def test_a_second_auto_does_not_train_from_scratch(tmp_path: Path) -> None:
    run = open_run(tmp_path, started="2026-05-01T00:00:00+00:00")
    lock = RunLock(run.path)
    lock.acquire()
    with pytest.raises(ConfigError, match="is being trained"):
        unfinished(load("CartPole-v1:ppo").config, tmp_path)
    lock.release()
    assert unfinished(load("CartPole-v1:ppo").config, tmp_path) == run.id


# ---- what a new run refuses ----------------------------------------------------------------------


@pytest.mark.parametrize("label", ["a b", "a,b", "a\nb", "\x1b[31m", "", "-x"])
def test_a_label_that_ludus_tag_refuses_is_refused_at_the_start(ludus: Ludus, tmp_path: Path, label: str) -> None:
    refused = ludus("train", *SMALL, "training.total_timesteps=64", f"--tag={label}")
    assert refused.code == 2 and "cannot be a tag" in refused.err and refused.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_no_room_for_checkpoints_leaves_no_folder(
    ludus: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100_000))
    refused = ludus("train", *SMALL, "training.total_timesteps=64")
    assert refused.code == 5 and "checkpoints need about" in refused.err
    assert not (tmp_path / "runs").exists()


def test_checkpoints_by_number_of_updates(ludus: Ludus, tmp_path: Path) -> None:
    words = [word for word in SMALL if "every_steps=64" not in word]
    plan = ["algorithm.epochs=2", "training.checkpoints.every_updates=4", "training.checkpoints.at_evaluation=never"]
    assert ludus("train", *words, *plan, "training.total_timesteps=320").code == 0
    assert steps(only_run(tmp_path)) == [0, 128, 256, 320]  # two updates a cycle of 64 steps
