"""What the fault tests share: a run of a fraction of a second, snapshots of folders, and the contract of an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults.processes import Process
from ludus.archive import checkpoint
from ludus.archive.fingerprint import fingerprint
from ludus.metrics.sinks.jsonl import read_rows

STEPS = 64
"""Environment steps of one cycle of the small run."""
SMALL = [
    "CartPole-v1:ppo",
    "environment.num_envs=4",
    "algorithm.rollout_steps=16",
    "algorithm.batch_size=1.0",
    "algorithm.epochs=1",
    "training.evaluation.every_steps=null",
    "training.stop.eval_reward=null",
    "runtime.compile=never",
    "-q",
]
TIMING = ("seconds", "train/time/", "val/time/", "train/system/")


def only_run(folder: Path) -> Path:
    """The one run below `folder`/runs."""
    (run,) = [path for path in (folder / "runs").iterdir() if path.is_dir() and not path.is_symlink()]
    return run


def contents(folder: Path, *, without: tuple[str, ...] = ()) -> dict[str, bytes | str]:
    """Every file with its bytes and every link with its target."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file() and path.name not in without:
            found[name] = path.read_bytes()
    return found


def names(folder: Path) -> list[str]:
    """What stands in a folder."""
    return sorted(path.name for path in folder.iterdir())


def steps(run: Path) -> list[int]:
    """The steps of a run's checkpoints, oldest first."""
    return [int(name.removeprefix("step=")) for name in checkpoint.checkpoints(run)]


def whole(run: Path) -> list[int]:
    """The steps of those checkpoints that can be loaded."""
    good = []
    for name, path in checkpoint.checkpoints(run).items():
        checkpoint.load(path)
        good.append(int(name.removeprefix("step=")))
    return good


def litter(run: Path) -> list[str]:
    """What a killed writer left among the checkpoints."""
    return [name for name in names(run / "checkpoints") if name.startswith(".")]


def outcome(run: Path) -> tuple[str, list[dict[str, Any]]]:
    """Hash of the last state and the rows without timings."""
    rows = [{k: v for k, v in row.items() if not k.startswith(TIMING)} for row in read_rows(run / "metrics.jsonl")]
    return fingerprint(checkpoint.load(checkpoint.find(run, "last"))), rows


def status(run: Path) -> dict[str, Any]:
    """status.json"""
    return json.loads((run / "status.json").read_text())


def refused(process: Process, code: int, *parts: str) -> str:
    """C1: one line on stderr that names what is wrong, and nothing else; returns it."""
    errors = process.err
    assert process.code == code, f"exit {process.code}, not {code}: {errors[-3000:]}"
    assert "Traceback" not in errors, errors[-3000:]
    lines = errors.splitlines()
    assert lines and lines[-1].startswith("error: "), errors[-3000:]
    assert all(line.startswith(("ludus: ", "metrics: ")) for line in lines[:-1]), errors[-3000:]
    line = lines[-1]
    assert line.isprintable() and len(line) <= 2_010, line
    for part in parts:
        assert part in line, f"{part!r} is not in {line}"
    return line


def forge(path: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None]) -> None:
    """A checkpoint of an enemy: files and manifest as he likes, all sums right."""
    data = {name: (path / name).read_bytes() for name in (checkpoint.TENSORS, checkpoint.STATE)}
    manifest = json.loads((path / checkpoint.MANIFEST).read_bytes())
    manifest.pop("sha256")
    change(data, manifest)
    for name, content in data.items():
        (path / name).write_bytes(content)
        manifest["files"][name] = {"size": len(content), "sha256": checkpoint._digest(content)}
    manifest["sha256"] = checkpoint._digest(checkpoint._dump(manifest))
    (path / checkpoint.MANIFEST).write_bytes(checkpoint._dump(manifest))
