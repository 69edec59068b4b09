"""The same command gives the same weights, whatever lies in the cache of compiled updates."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ludus.learning import package

needs_compiler = pytest.mark.skipif(not package.has_compiler(), reason="no C++ compiler on this machine")
PAYS = [
    "train",
    "CartPole-v1:ppo",
    "algorithm.epochs=4000",  # 32,000 updates are planned: `auto` compiles
    "training.total_timesteps=2100",  # and the last rollout is a shorter one
    "training.evaluation.every_steps=null",
    "training.stop.eval_reward=null",
    "-q",
]
SHORT = ["train", "CartPole-v1:ppo", "training.total_timesteps=600", "training.evaluation.every_steps=null", "-q"]


def ludus(words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "ludus", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def weights(folder: Path) -> str:
    """Hash of the last checkpoint's tensors."""
    file = folder / "runs" / "@last" / "checkpoints" / "last" / "tensors.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()


def updates_run(folder: Path) -> str:
    return json.loads((folder / "runs" / "@last" / "metrics.json").read_text())["updates_run"]


@pytest.mark.slow
@needs_compiler
def test_auto_computes_the_same_whatever_lies_in_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    found = {}
    for name in ("empty", "filled", "damaged", "unwritable"):
        if name == "damaged":
            for path in cache.rglob("*.so"):
                path.write_bytes(path.read_bytes()[:1000])
        if name == "unwritable":
            (tmp_path / "file").write_text("")
            cache = tmp_path / "file" / "cache"
        done = ludus(PAYS, tmp_path / name, LUDUS_CACHE=str(cache))
        assert done.returncode == 0, done.stderr
        assert updates_run(tmp_path / name) == "compiled"
        found[name] = weights(tmp_path / name)
    assert len(set(found.values())) == 1, found
    alone = ludus(PAYS, tmp_path / "alone", LUDUS_CACHE=str(tmp_path / "none"), PATH="/nonexistent", CXX="no-g++")
    assert alone.returncode == 0, alone.stderr
    assert updates_run(tmp_path / "alone").startswith("eager (there is no C++ compiler")
    assert "there is no C++ compiler" in alone.stdout, "the header says why"


@needs_compiler
def test_a_short_run_never_takes_a_package_that_is_there(tmp_path: Path) -> None:
    cache = {"LUDUS_CACHE": str(tmp_path / "cache")}
    assert ludus(SHORT, tmp_path / "before", **cache).returncode == 0
    assert ludus([*SHORT, "runtime.compile=always"], tmp_path / "compiled", **cache).returncode == 0
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()], (
        "a package of just this update is there"
    )
    assert ludus(SHORT, tmp_path / "after", **cache).returncode == 0
    assert weights(tmp_path / "before") == weights(tmp_path / "after")
    assert updates_run(tmp_path / "compiled") == "compiled"
    assert updates_run(tmp_path / "after").startswith("eager (")


@pytest.mark.slow
@needs_compiler
def test_code_that_takes_over_later_computes_the_same_whatever_lies_in_the_cache(tmp_path: Path) -> None:
    """Also in a run that was stopped before the update that waits for it."""
    words = [*SHORT, "runtime.compile=always", "runtime.compile_from=30"]
    cache = {"LUDUS_CACHE": str(tmp_path / "cache")}
    found = {}
    for name in ("empty", "filled"):
        assert ludus(words, tmp_path / name, **cache).returncode == 0
        found[name] = weights(tmp_path / name)
        assert updates_run(tmp_path / name) == "compiled from update 30 on"
    stopped = [word.replace("=600", "=256") for word in words]
    assert ludus(stopped, tmp_path / "resumed", LUDUS_CACHE=str(tmp_path / "other")).returncode == 0
    more = ["resume", "@last", "training.total_timesteps=600"]
    assert ludus(more, tmp_path / "resumed", LUDUS_CACHE=str(tmp_path / "other")).returncode == 0
    found["resumed"] = weights(tmp_path / "resumed")
    assert len(set(found.values())) == 1, found
    at_once = [word for word in words if "compile_from" not in word]
    assert ludus(at_once, tmp_path / "at_once", **cache).returncode == 0
    assert weights(tmp_path / "at_once") not in found.values(), "the first updates were eager"


@pytest.mark.slow
@needs_compiler
def test_ctrl_c_while_compiling_stops_cleanly_and_goes_on_exactly(tmp_path: Path) -> None:
    words = [*SHORT, "runtime.compile=always"]
    folder = tmp_path / "stopped"
    folder.mkdir()
    environment = {**os.environ, "LUDUS_CACHE": str(tmp_path / "cache")}
    process = subprocess.Popen(
        [sys.executable, "-m", "ludus", *words], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True,
        start_new_session=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    while not list((tmp_path / "cache").rglob("update.pt2")):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: every process of the foreground gets it
    while "SIGINT: stopping after this update" not in (folder / "runs" / "@last" / "run.log").read_text():
        assert process.poll() is None  # it is said while the compiler works
        time.sleep(0.05)
    _, errors = process.communicate()
    assert process.returncode == 75, errors
    assert "Traceback" not in errors
    assert ludus(["resume", "@last"], folder, LUDUS_CACHE=environment["LUDUS_CACHE"]).returncode == 0
    assert ludus(words, tmp_path / "whole", LUDUS_CACHE=environment["LUDUS_CACHE"]).returncode == 0
    assert weights(folder) == weights(tmp_path / "whole")
