"""Faults 70 and 76: pickled environments are sealed, folders are the owner's alone, planted links lead nowhere."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faults.conftest import Ludus
from faults.payload import Payload
from faults.support import SMALL, contents, forge, only_run, refused
from ludus.archive import checkpoint

PLUGIN = Path(__file__).with_name("plugin.py")
OBJECTS = [
    *(word for word in SMALL if word != "CartPole-v1:ppo"),
    "CartPole-v1:ppo",
    "--plugin",
    str(PLUGIN),
    "environment.id=Faulty/Objects-v0",
    "training.total_timesteps=256",
]


def test_70_pickled_environments_are_sealed(ludus: Ludus, tmp_path: Path) -> None:
    """Only what this user's key has sealed is unpickled: not the enemy's bytes, not another user's run."""
    key = {"LUDUS_KEY_FILE": str(tmp_path / "state" / "key")}
    done = ludus("train", *OBJECTS, env=key)
    assert done.code == 0, done.err
    run = only_run(tmp_path)
    assert json.loads((run / "metrics.json").read_text())["resume"] == "pickle"
    assert (tmp_path / "state" / "key").stat().st_mode & 0o777 == 0o600
    secret = (tmp_path / "state" / "key").read_bytes()
    assert not [name for name, data in contents(run).items() if isinstance(data, bytes) and secret in data]
    more = ["resume", "@last", "training.total_timesteps=512", "--plugin", str(PLUGIN)]
    refused(ludus(*more, env={"LUDUS_KEY_FILE": str(tmp_path / "other")}), 3, "sealed by another user or machine")
    (tmp_path / "state" / "key").chmod(0o644)
    refused(ludus(*more, env=key), 3, "Faulty/Objects-v0", str(tmp_path / "state" / "key"), "chmod 600")
    (tmp_path / "state" / "key").chmod(0o600)
    assert ludus(*more, env=key).code == 0


def test_70_a_malicious_snapshot_does_not_match_its_seal(ludus: Ludus, tmp_path: Path) -> None:
    assert ludus("train", *OBJECTS).code == 0
    canary, run = tmp_path / "canary", only_run(tmp_path)
    poison = np.frombuffer(pickle.dumps(Payload(canary)), np.uint8).copy()

    def plant(node: Any) -> int:
        """Replace every pickle of a state; how many."""
        found = 0
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            if key == "pickle":
                node[key] = poison
                found += 1
            elif isinstance(value, dict | list):
                found += plant(value)
        return found

    for path in list(checkpoint.checkpoints(run).values()):
        state = checkpoint.load(path)
        assert plant(state["collector"]) == 4
        encoded = checkpoint.encode(state)
        forge(path, lambda files, _, encoded=encoded: files.update(encoded))  # type: ignore[misc]
    process = ludus("resume", "@last", "training.total_timesteps=512", "--plugin", str(PLUGIN))
    refused(process, 3, "does not match its seal")
    assert not canary.exists()


# ---- permissions and links -----------------------------------------------------------------------


def test_76_everything_is_for_the_owner_alone(ludus: Ludus, tmp_path: Path) -> None:
    """Even with a umask that would let everybody in."""
    words = ["training.total_timesteps=256", "training.checkpoints.every_steps=64", "logging.tensorboard=true"]
    done = ludus("train", *SMALL, *words, prelude="os.umask(0)")
    assert done.code == 0, done.err
    run = only_run(tmp_path)
    assert ludus("list", prelude="os.umask(0)").code == ludus("report", prelude="os.umask(0)").code == 0
    assert run.stat().st_mode & 0o777 == 0o700
    for path in run.rglob("*"):
        if not path.is_symlink() and "tensorboard" not in path.parts:  # others' files, inside of 0700
            expected = 0o700 if path.is_dir() else 0o600
            assert path.stat().st_mode & 0o777 == expected, path
    assert (tmp_path / "runs" / "index.sqlite").stat().st_mode & 0o077 == 0


LINKS = ["run.log", "metrics.jsonl", "metrics.csv", "metrics.json", "status.json", "config.yaml", ".lock",
         "metrics.superseded.jsonl", "report.html", "report.md", "tags.json", "../index.sqlite"]  # fmt: skip


@pytest.mark.parametrize("name", LINKS)
def test_76_planted_links_are_not_followed(ludus: Ludus, stopped: Path, tmp_path: Path, name: str) -> None:
    """A link to somebody's file in the place of each of ours: the file stays as it is."""
    victim = tmp_path / "victim"
    original = stopped / name
    victim.write_bytes(original.read_bytes() if original.exists() else b"precious")
    before = victim.read_bytes()
    original.unlink(missing_ok=True)
    original.symlink_to(victim)
    for command in (
        ["resume", "@last", "training.total_timesteps=704"],
        ["report", "@last"],
        ["tag", "@last", "x"],
        ["list"],
    ):
        process = ludus(*command)
        assert process.code in (0, 2, 3, 5) and "Traceback" not in process.err, f"{command}: {process.err[-2000:]}"
    assert victim.read_bytes() == before
