"""Faults 28-35: every way a config file or an override can be bad is one line, and nothing runs."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from faults.conftest import Ludus
from faults.processes import Process
from faults.support import SMALL, contents, refused
from ludus.config.read import read_file
from ludus.errors import ConfigError

MEGABYTES = 2**20
HEAD = "environment: {id: CartPole-v1}\n"


Show = Callable[..., Process]


@pytest.fixture
def show(ludus: Ludus, tmp_path: Path) -> Show:
    """`ludus config show` of a file with this content; it must neither hang nor eat memory nor leave anything."""

    def command(content: str | bytes, *overrides: str, name: str = "x.yaml", prelude: str = "") -> Process:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        before = contents(tmp_path)
        process = ludus("config", "show", str(path), *overrides, prelude=prelude)
        assert process.cpu < 5 and contents(tmp_path) == before
        return process

    return command


def resolved(process: Process) -> dict[str, Any]:
    assert process.code == 0, process.err
    return yaml.safe_load(process.out)


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("algorithm.learing_rate=0.1", "learning_rate"),
        ("algorithm.gama=0.1", "gamma"),
        ("trainning.total_timesteps=5", "training"),
        ("environment.num_env=5", "num_envs"),
        ("experiment.sed=5", "seed"),
    ],
)
def test_28_typo(ludus: Ludus, override: str, nearest: str) -> None:
    refused(ludus("train", *SMALL, override), 2, override, "unknown key", f"did you mean '{nearest}'")


def test_28_typo_in_a_file(show: Show, tmp_path: Path) -> None:
    process = show(HEAD + "algorithm:\n  name: ppo\n  learing_rate: 0.1\n")
    refused(process, 2, "x.yaml:4: algorithm.learing_rate: unknown key", "did you mean 'learning_rate'")


def test_29_scalars_mean_what_they_look_like(show: Show) -> None:
    text = HEAD + "algorithm: {name: ppo, lr: 1e-3}\nexperiment: {seed: 010, description: no, tags: [1:30, on]}\n"
    config = resolved(show(text))
    assert config["algorithm"]["lr"] == 0.001
    assert config["experiment"] | {"seed": 10, "description": "no", "tags": ["1:30", "on"]} == config["experiment"]
    assert (
        resolved(show(HEAD + "algorithm: {name: ppo, clip_value: ~, normalize_advantage: no}\n"))["algorithm"][
            "normalize_advantage"
        ]
        is False
    )
    refused(show(HEAD + "algorithm: {name: ppo, lr: 1:30}\n"), 2, "algorithm.lr", "1:30")


def test_30_duplicate_key(show: Show) -> None:
    process = show(HEAD + "algorithm:\n  name: ppo\n  gamma: 0.5\n  lr: 0.1\n  gamma: 0.9\n")
    refused(process, 2, "duplicate key 'gamma', on lines 4 and 6")
    refused(show('{"algorithm": {"name": "ppo", "name": "reinforce"}}', name="x.json"), 2, "duplicate key 'name'")


# ---- size and shape ------------------------------------------------------------------------------


def bomb(levels: int = 9, width: int = 9, merge: bool = False) -> str:
    """Lists (or merged mappings) of aliases of lists of aliases."""
    lines = ["a0: &a0 {k: lol}" if merge else f"a0: &a0 [{', '.join(['lol'] * width)}]"]
    for level in range(1, levels):
        inner = [f"*a{level - 1}"] * width
        pairs = ", ".join(f"k{index}: {alias}" for index, alias in enumerate(inner))
        lines.append(f"a{level}: &a{level} {{{pairs}}}" if merge else f"a{level}: &a{level} [{', '.join(inner)}]")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("merge", [False, True], ids=["lists", "mappings"])
def test_31_alias_bomb(tmp_path: Path, show: Show, merge: bool) -> None:
    """Refused by a budget before it is expanded: under 100 ms and 50 MB."""
    path = tmp_path / "bomb.yaml"
    path.write_text(bomb(merge=merge))
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(ConfigError, match="values once aliases are expanded"):
        read_file(path)
    taken, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 0.1 and peak < 50 * MEGABYTES
    refused(show(bomb(merge=merge)), 2, "more than 100000 values once aliases are expanded; use fewer aliases")


def test_31_bombs_of_references_and_overrides(show: Show, ludus: Ludus) -> None:
    lines = ["l0: [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    for n in range(1, 9):
        inner = ", ".join([f"'${{environment.kwargs.l{n - 1}}}'"] * 9)
        lines.append(f"l{n}: [{inner}]")
    text = "algorithm: ppo\nenvironment:\n  id: CartPole-v1\n  kwargs:\n    " + "\n    ".join(lines) + "\n"
    refused(show(text), 2, "references expand to more than")
    for depth in (40, 80, 150, 2_000):
        process = ludus("config", "show", "CartPole-v1:ppo", "environment.kwargs.x=" + "[" * depth + "]" * depth)
        assert process.code in (0, 2) and "Traceback" not in process.err and process.cpu < 10, process.err[-2000:]


def test_31_a_bomb_in_a_run_folder(ludus: Ludus, stopped: Path) -> None:
    (stopped / "config.yaml").write_text(bomb())
    for command in ("resume", "play", "verify"):
        refused(ludus(command, "@last"), 2, "config.yaml", "use fewer aliases")
    listed = ludus("list")
    assert listed.code == 0 and listed.cpu < 5 and "Traceback" not in listed.err


DEEP = 3_000
BAD = {
    "deep flow": ("[" * DEEP + "]" * DEEP, "nested deeper than 64 levels"),
    "deep block": ("".join(f"{' ' * n}a:\n" for n in range(1_000)), "nested deeper than 64 levels"),
    "deep json": ('{"a":' * DEEP + "1" + "}" * DEEP, "nested deeper than 64 levels"),
    "one line of 50 MB": (b"a: " + b"x" * 50 * MEGABYTES, "is larger than 2 MB"),
    "NUL": (b"a: b\0c\n", "NUL"),
    "UTF-16": ("environment: {id: CartPole-v1}\n".encode("utf-16"), "UTF-16"),
    "UTF-16 without a mark": ("a: b\n".encode("utf-16-le"), "NUL"),
    "UTF-32": ("a: b\n".encode("utf-32"), "UTF-16"),
    "not UTF-8": (b"a: \xff\xfe\xfa\n", "byte 3 is not UTF-8"),
    "empty": (b"", "the file is empty"),
    "comments": (b"# nothing\n\n", "the file is empty"),
    "a list": ("- a\n- b\n", "holds a list, not a mapping"),
    "a number": ("42\n", "holds a int, not a mapping"),
    "two documents": ("a: 1\n---\nb: 2\n", "a second document starts here"),
    "tab": ("a:\n\tb: 1\n", "not YAML"),
    "unclosed": ("a: [1, 2\nb: {", "not YAML"),
    "escape": ("a: \x1b[31m\n", "not YAML"),
    "unknown alias": ("a: *nowhere\n", "*nowhere has no anchor"),
    "own alias": ("a: &a [*a]\n", "*a has no anchor"),
    "key of a list": ("? [1, 2]\n: 3\n", "a key must be a plain name"),
    "huge number": ("a: " + "9" * 5_000 + "\n", "unknown key"),
    "json NaN": ('{"a": NaN}', "NaN is not JSON"),
    "json number": ('{"a": ' + "9" * 5_000 + "}", "not JSON"),
    "json cut": ('{"a": {"b"', "not JSON"),
}


@pytest.mark.parametrize("case", BAD)
def test_32_bad_files(show: Show, case: str) -> None:
    content, problem = BAD[case]
    process = show(content, name="x.json" if "json" in case else "x.yaml")
    refused(process, 2, "x.json" if "json" in case else "x.yaml", problem)


def test_32_a_file_of_200_mb(show: Show, ludus: Ludus, tmp_path: Path) -> None:
    """Neither read nor copied: no more memory than for a small one."""
    small = show("a: 1\n")
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(200 * MEGABYTES)
        file.write(b"a: 1\n")
    large = ludus("config", "show", str(path))
    refused(large, 2, "large.yaml", "is larger than 2 MB")
    assert large.peak - small.peak < 50_000 and large.cpu < 2


def test_32_things_that_are_no_files(ludus: Ludus, tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "device.yaml").symlink_to("/dev/zero")
    problems = ("not a regular file", "not a regular file", "symbolic links", "not a regular file", "no such file")
    for name, problem in zip(("folder", "fifo", "loop", "device", "missing"), problems, strict=True):
        refused(ludus("config", "show", str(tmp_path / f"{name}.yaml")), 2, f"{name}.yaml", problem)


# ---- nothing runs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tag",
    [
        "!!python/object/apply:os.system ['touch canary']",
        "!!python/object/new:os.system ['touch canary']",
        "!!python/name:os.system",
        "!!python/module:os",
        "!!python/object:os.system {}",
        "!!python/tuple [1]",
        "!mine 5",
        "!!binary aGFsbG8=",
        "!!timestamp 2020-01-01",
        "!<tag:yaml.org,2002:python/object/apply:os.system> ['touch canary']",
    ],
)
def test_33_tags(show: Show, tmp_path: Path, tag: str) -> None:
    refused(show(f"{HEAD}algorithm: ppo\nexperiment:\n  description: {tag}\n"), 2, "x.yaml:4", "is not allowed")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    "text",
    [
        "algorithm: {_target_: os.system, _args_: ['touch canary']}",
        "algorithm: {name: os.system}",
        "algorithm: {name: ludus.algorithms.ppo.PPO}",
        "algorithm: ppo\nnetwork: {encoder: {type: torch.nn.Linear}}",
        "algorithm: ppo\nnetwork: {memory: {type: 'os:system'}}",
        "algorithm: ppo\ntraining: {callbacks: [{type: os.system}]}",
        "algorithm: ppo\nwrappers: [{id: 'os:system'}]",
        "algorithm: ppo\nenv_kwargs: {x: {_target_: os.system}}",
        "algorithm: ppo\nbuffers: {main: {type: subprocess.run}}",
    ],
)
def test_34_import_paths(show: Show, tmp_path: Path, text: str) -> None:
    process = show((HEAD if "wrappers" not in text else "env_id: CartPole-v1\n") + text + "\n")
    assert process.code == 2 and process.err.count("\n") == 1, process.err
    assert "Traceback" not in process.err and not (tmp_path / "canary").exists()


def test_34_environment_ids_are_no_modules(ludus: Ludus, tmp_path: Path) -> None:
    """Gymnasium would import what stands before the colon."""
    (tmp_path / "canary_module.py").write_text("open('canary', 'w')")
    process = ludus("train", *SMALL, "environment.id=canary_module:X-v0", env={"PYTHONPATH": str(tmp_path)})
    assert process.code == 2 and "Traceback" not in process.err, process.err
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("${experiment.description}", "circle: experiment.description -> experiment.description"),
        ("${oc.env:AWS_SECRET_ACCESS_KEY}", "resolvers are off"),
        ("${oc.env:AWS_SECRET_ACCESS_KEY,default}", "resolvers are off"),
        ("${env:AWS_SECRET_ACCESS_KEY}", "resolvers are off"),
        ("${file:/etc/passwd}", "resolvers are off"),
        ("${oc.decode:${oc.env:AWS_SECRET_ACCESS_KEY}}", "resolvers are off"),
        ("${hydra:runtime.cwd}", "resolvers are off"),
        ("${nothing.there}", "refers to nothing"),
        ("${${experiment.seed}}", "is not a"),
    ],
)
def test_35_interpolation(ludus: Ludus, tmp_path: Path, value: str, problem: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(f"{HEAD}algorithm: ppo\nexperiment:\n  description: '{value}'\n")
    process = ludus("train", str(path), "-q", env={"AWS_SECRET_ACCESS_KEY": "canary-value-1234"})
    refused(process, 2, "experiment.description", problem)
    assert "canary-value" not in process.err and not (tmp_path / "runs").exists()
