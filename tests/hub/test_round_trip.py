"""Publish a run, pull it into an empty folder, and go on with it there."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from fake_hub import Blob, FakeHub, Fault
from ludus import load_run
from ludus import pull as pull_run
from ludus.archive import package


def publish(ludus: Any, runs: Path, *more: object) -> dict[str, Any]:
    code, out, err = ludus("publish", "@last", "-n", 3, "--json", "--runs-dir", runs, *more)
    assert code == 0, err
    return json.loads(out)


def test_pulled_runs_play_as_the_published_ones(ludus: Any, runs: Path, hub: FakeHub, tmp_path: Path) -> None:
    """The same returns to the bit, weights and curve included; the commit is the one that was made."""
    told = publish(ludus, runs)
    assert told["repo"] == "alice/cart" and told["commit"] == hub.repos["alice/cart"].branches["main"]
    code, out, err = ludus("pull", f"alice/cart@{told['commit'][:12]}", "--evaluate", "--runs-dir", tmp_path / "new")
    assert code == 0 and "here the same to the bit" in out, err
    ours, theirs = load_run(runs_dir=runs), load_run(runs_dir=tmp_path / "new")
    assert theirs.evaluate(5, seed=7).returns == ours.evaluate(5, seed=7).returns
    assert list(theirs.evaluate(3).returns) == told["evaluation"]["returns"]
    assert theirs.curve() == ours.curve()
    assert theirs.config == ours.config.model_copy(update={"logging": theirs.config.logging})
    assert theirs.record.state == "finished" and theirs.record.reward == ours.record.reward
    assert json.loads((theirs.folder / "meta.json").read_text())["pulled"]["commit"] == told["commit"]
    assert not list((tmp_path / "new").glob(".pull-*"))


def test_pulled_runs_train_on_and_lend_their_weights(ludus: Any, runs: Path, hub: FakeHub, tmp_path: Path) -> None:
    publish(ludus, runs)
    run = pull_run("alice/cart", runs_dir=tmp_path / "new")
    assert run.policy()(run.policy().observation_space.sample()) in (0, 1)
    resumed = run.resume({"training.total_timesteps": 1024}, quiet=True)
    assert resumed.record.env_steps == 1024 and resumed.record.state == "finished"
    more = ["--init-from", run.id, "--max-timesteps", "256", "-q", "--runs-dir", str(tmp_path / "new")]
    code, out, err = ludus("train", "CartPole-v1:ppo", "logging.console=false", *more)
    assert code == 0, err
    assert load_run(runs_dir=tmp_path / "new").record.init_from.startswith(run.id)


def test_half_a_checkpoint_is_not_published(ludus: Any, runs: Path, hub: FakeHub, tmp_path: Path) -> None:
    """As a run has it that an older `ludus pull` took from a stranger."""
    from ludus.archive import checkpoint

    (folder,) = [path for path in runs.iterdir() if path.is_dir() and not path.is_symlink()]
    for name in checkpoint.checkpoints(folder):
        state = checkpoint.load(checkpoint.find(folder, name))
        shutil.rmtree(folder / "checkpoints" / name)
        checkpoint.save(folder, {**state, "collector": {}}, name=name)
    code, _, err = ludus("publish", "@last", "-n", 1, "--runs-dir", runs, "--dry-run", tmp_path / "dry")
    assert code == 3 and "the state of its collector has no 'returns'; publish a checkpoint" in err, err
    assert err.count("\n") == 1 and not (tmp_path / "dry").exists()


def test_off_policy_runs_begin_with_empty_buffers(ludus: Any, hub: FakeHub, tmp_path: Path) -> None:
    from ludus import train

    small = {"algorithm.learning_starts": 64, "algorithm.batch_size": 16, "training.total_timesteps": 256}
    train("CartPole-v1:dqn", small, quiet=True, runs_dir=tmp_path / "runs")
    told = publish(ludus, tmp_path / "runs", "--repo", "dqn")
    files = hub.repos["alice/dqn"].at("main")[1]  # type: ignore[index]
    assert json.loads(files[package.STATE].data)["buffers"] == {}
    run = pull_run(f"{told['repo']}@main", runs_dir=tmp_path / "new")
    assert run.resume({"training.total_timesteps": 400}, quiet=True).record.env_steps >= 400


def test_a_dry_run_writes_what_would_be_sent(ludus: Any, runs: Path, hub: FakeHub, tmp_path: Path) -> None:
    publish(ludus, runs)
    sent = {name: blob.data for name, blob in hub.repos["alice/cart"].commits[-1][1].items()}
    asked = len(hub.asked)
    publish(ludus, runs, "--dry-run", tmp_path / "dry", "--repo", "alice/cart")
    assert len(hub.asked) == asked
    written = {path.name: path.read_bytes() for path in (tmp_path / "dry").iterdir()}
    assert sent.keys() - written.keys() == {".gitattributes"}
    assert all(written[name] == sent[name] for name in written if name != "replay.mp4")
    code, _, err = ludus("publish", "@last", "--dry-run", tmp_path / "dry", "--runs-dir", runs)
    assert code == 2 and "is not an empty folder" in err


def test_the_card_has_what_leaderboards_read(ludus: Any, runs: Path, hub: FakeHub) -> None:
    told = publish(ludus, runs, "--license", "apache-2.0")
    card = hub.repos["alice/cart"].commits[-1][1]["README.md"].data.decode()
    front = yaml.safe_load(card.split("---")[1])
    assert front["tags"][:3] == ["CartPole-v1", "ppo", "deep-reinforcement-learning"]
    assert (front["library_name"], front["license"]) == ("ludus", "apache-2.0")
    (result,) = front["model-index"][0]["results"]
    mean = told["evaluation"]["mean"]
    assert result["metrics"][0]["value"].startswith(f"{mean:.2f} +/- ") and result["dataset"]["type"] == "CartPole-v1"
    assert 'ludus.pull("alice/cart").policy()' in card and "95 % bootstrap interval" in card and "replay.mp4" in card


def test_nothing_private_is_sent(
    ludus: Any, runs: Path, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the token nor a path, host or command line in any file; the token goes to the Hub's own calls alone."""
    import platform

    publish(ludus, runs)
    content = hub.repos["alice/cart"].commits[-1][1]
    everything = b"\n".join(blob.data for blob in content.values())
    for secret in ("hf_canary", str(tmp_path), str(Path.home()), str(Path.cwd()), "argv", "runs-dir"):
        assert secret.encode() not in everything, secret
    assert f'"{platform.node()}"'.encode() not in everything
    assert not [path for _, path, headers in hub.asked if "/lfs/" in path and "Authorization" in headers]
    (folder,) = [path for path in runs.iterdir() if path.is_dir() and not path.is_symlink()]
    config = folder / "config.yaml"
    given = {"/data/mine": "is a local path", f"of {tmp_path / 'runs'}": "names the local folder"}
    for value, problem in {**given, "hf_" + "a" * 30: "secret"}.items():
        config.write_text(re.sub("description: .*", f"description: '{value}'", config.read_text()))
        code, _, err = ludus("publish", "@last", "-n", 1, "--runs-dir", runs, "--dry-run", tmp_path / "no")
        assert code == 2 and problem in err and not (tmp_path / "no").exists(), err


def test_private_stays_private(ludus: Any, runs: Path, hub: FakeHub, tmp_path: Path, monkeypatch: Any) -> None:
    publish(ludus, runs, "--private")
    assert hub.repos["alice/cart"].private
    monkeypatch.delenv("HF_TOKEN")
    code, _, err = ludus("pull", "alice/cart", "--runs-dir", tmp_path / "new")
    assert code == 2 and "there is no such repository" in err and "HF_TOKEN" in err
    monkeypatch.setenv("HF_TOKEN", "hf_canarycanarycanarycanary12")
    hub.publish("alice/open", {"README.md": b"x"})
    code, _, err = ludus("publish", "@last", "--private", "--repo", "open", "--runs-dir", runs)
    assert code == 2 and "exists and is public" in err


def test_a_repository_with_other_files_is_left_alone(ludus: Any, runs: Path, hub: FakeHub) -> None:
    hub.publish("alice/cart", {"train.py": b"x", "README.md": b"mine"})
    code, _, err = ludus("publish", "@last", "--runs-dir", runs)
    assert code == 2 and "holds other files, such as train.py" in err
    assert len(hub.repos["alice/cart"].commits) == 1


def test_publishing_again_replaces_what_is_gone(ludus: Any, runs: Path, hub: FakeHub) -> None:
    first = publish(ludus, runs)
    sent = len(hub.put)
    hub.repos["alice/cart"].commits[-1][1]["spaces.json"] = Blob(b"{}")
    (folder,) = [path for path in runs.iterdir() if path.is_dir() and not path.is_symlink()]
    (folder / "spaces.json").unlink()
    second = publish(ludus, runs)
    assert second["commit"] != first["commit"]
    assert "spaces.json" not in hub.repos["alice/cart"].commits[-1][1]
    assert len(hub.put) - sent <= 1  # the weights are there already; a video may differ


def test_plugins_are_named_and_not_sent(ludus: Any, hub: FakeHub, tmp_path: Path) -> None:
    from support import CORNER, forget_plugins

    plugin = tmp_path / "corner.py"
    plugin.write_text(CORNER + "\ngym.register('Corner-v0', Corner)\n")
    more = ["--plugin", plugin, "--max-timesteps", 256, "-q", "--runs-dir", tmp_path / "runs", "logging.console=false"]
    code, _, err = ludus("train", "Corner-v0:ppo", *more)
    assert code == 0, err
    told = publish(ludus, tmp_path / "runs", "--plugin", plugin)
    files = hub.repos[told["repo"]].commits[-1][1]
    assert not any(b"class Corner" in blob.data for blob in files.values())
    assert json.loads(files["ludus.json"].data)["plugins"][0]["name"] == "corner.py"
    forget_plugins()
    run = pull_run(told["repo"], runs_dir=tmp_path / "new")
    code, _, err = ludus("evaluate", run.id, "-n", 1, "--runs-dir", tmp_path / "new")
    assert code == 2 and "was trained with corner.py" in err
    code, _, err = ludus("evaluate", run.id, "-n", 1, "--runs-dir", tmp_path / "new", "--plugin", plugin)
    assert code == 0, err
    forget_plugins()


def test_xet_storage(runs: Path, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ludus: Any) -> None:
    """The same round trip where the Hub keeps large files in Xet storage."""
    hf_xet = pytest.importorskip("hf_xet")
    from huggingface_hub import constants

    from ludus.hub.client import Hub

    publish(ludus, runs, "--dry-run", tmp_path / "dry")
    hub.folder.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    monkeypatch.setattr(constants, "HF_XET_CACHE", str(tmp_path / "xet"))
    large = [path for path in (tmp_path / "dry").iterdir() if path.suffix in (".safetensors", ".mp4", ".png")]
    hashes = hf_xet.hash_files([str(path) for path in large])
    hub.xet_blobs = {  # type: ignore[attr-defined]
        Blob(path.read_bytes(), large=True).oid: Blob(path.read_bytes(), large=True, xet=_text(one))
        for path, one in zip(large, hashes, strict=True)
    }
    Hub().upload("alice/cart", tmp_path / "dry", "a message", private=False)
    assert not hub.put and any("xet-write-token" in path for _, path, _ in hub.asked)
    run = pull_run("alice/cart", runs_dir=tmp_path / "new")
    assert any("xet-read-token" in path for _, path, _ in hub.asked)
    assert not any(method == "GET" and path.endswith(package.WEIGHTS) for method, path, _ in hub.asked)
    assert run.evaluate(2).returns == load_run(runs_dir=runs).evaluate(2).returns


def _text(found: object) -> str:
    return found if isinstance(found, str) else str(getattr(found, "hash", found))


def test_a_fault_of_the_past_does_not_matter(ludus: Any, runs: Path, hub: FakeHub) -> None:
    """The commit is tried again, and what was sent before is not sent twice."""
    hub.faults += [Fault("POST", "/commit/", status=503, times=2)]
    publish(ludus, runs)
    assert len(hub.put) == len(set(hub.put))


def test_a_config_loses_what_only_this_machine_has() -> None:
    """Folders of stored steps, device, logs and programs; what is learned from it is the same."""
    from ludus.archive.portable import portable_config
    from support import config

    given = config(
        "dqn",
        buffers={"replay": {"type": "stored", "path": "runs/mine"}},
        training={"total_updates": 10, "resume_path": "runs/mine/checkpoints/step=1"},
        logging={"alert_command": ["mail", "me"], "wandb": {"enabled": True, "entity": "me"}},
        experiment={"device": "cpu"},
    )
    found = portable_config(given)
    assert found.buffers["replay"].config.path == package.NOT_PUBLISHED and found.training.resume_path is None
    assert "me" not in str(found.logging) and found.experiment.device == "auto"
    assert found.algorithm == given.algorithm and found.network == given.network


@pytest.mark.parametrize("secret", ["hf_" + "a" * 30, "a-long-passphrase"])
def test_the_last_look_finds_what_slipped_through(
    secret: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token by its form, or the value of a variable that holds a secret, in any text of the package."""
    from ludus.archive.portable import refuse_private
    from ludus.archive.store import RunFolder
    from ludus.errors import ConfigError

    monkeypatch.setenv("MY_PASSWORD", "a-long-passphrase")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "README.md").write_text("harmless")
    refuse_private(tmp_path / "package", RunFolder.load(runs, "@last"))
    (tmp_path / "package" / "README.md").write_text(f"see {secret}.")
    with pytest.raises(ConfigError, match=r"README\.md: contains what looks like a secret"):
        refuse_private(tmp_path / "package", RunFolder.load(runs, "@last"))
