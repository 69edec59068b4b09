"""docs/coming-from.md: every command on the right runs, every setting, metric and path there exists."""

from __future__ import annotations

import csv
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from ludus.config.aliases import ALIASES
from ludus.config.compose import load
from ludus.config.validate import field_at

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coming-from.md"
SECTIONS = dict(part.split("\n", 1) for part in PAGE.read_text().split("\n## ")[1:])
TOOLS = [title for title in SECTIONS if title not in ("Settings", "Metrics", "Words")]
STEPS = "256"
EXTRAS = {"brax/": "brax"}
"""Part of a command -> the package that it needs; without it the command says how to install it."""


def rows(section: str, head: str = ".*") -> list[list[str]]:
    """The cells of the tables of a section with this head."""
    tables = re.findall(rf"^\| {head} \|\n\|[-|]+\|\n((?:\|.*\|\n)+)", SECTIONS[section], re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for table in tables for line in table.splitlines()]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def commands(section: str) -> list[str]:
    """The `ludus ...` lines of the tables of commands, as they are written."""
    return [span for _, now in rows(section, r"before \| now") for span in code(now) if span.startswith("ludus ")]


@pytest.fixture
def prepared(
    ludus: Callable[..., Any], blocks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """The command line beside the files of the page."""
    for block in blocks(PAGE):
        if block.title:
            (tmp_path / block.title).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.title).write_text(block.text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield ludus
    sys.modules.pop("my_envs", None)


def small(command: str) -> str:
    """The same command with a budget for a moment: larger numbers of steps become `STEPS`, or it is added."""
    if not command.startswith("ludus train") or re.search("--list-envs|--cfg", command):
        return re.sub(r"(training\.total_timesteps)=\d+", r"\1=512", command)
    short = re.sub(r"(timesteps[ =])[\de]+", rf"\g<1>{STEPS}", command)
    return short if short != command or f"timesteps {STEPS}" in short else f"{command} --max-timesteps {STEPS}"


@pytest.mark.parametrize("tool", TOOLS)
def test_every_command_runs(tool: str, prepared: Callable[..., Any]) -> None:
    """In the order of the section and in one folder, so that @last is the run before."""
    lines = commands(tool)
    assert len(lines) > 4
    prepared(
        small("ludus train CartPole-v1:ppo training.checkpoints.every_steps=128")
    )  # for those that begin with @last
    failed = {}
    for line in lines:
        outcome = prepared(small(line), as_written=True)
        absent = any(part in line and find_spec(package) is None for part, package in EXTRAS.items())
        if outcome.code and not (absent and "pip install 'ludus-rl[" in outcome.err):
            failed[line] = outcome.err
    assert not failed


def test_flags_do_what_they_say(prepared: Callable[..., Any]) -> None:
    """One row read back: the numbers of the left column stand in the resolved config."""
    (command,) = [line for line in commands("BenchNetRL") if "--num-steps 128" in line]
    printed = yaml.safe_load(prepared(f"{command} --cfg job").out)
    assert (printed["environment"]["num_envs"], printed["algorithm"]["rollout_steps"]) == (8, 128)
    assert printed["algorithm"]["batch_size"] in (0.25, 256)


def test_every_setting_exists_and_is_what_its_other_names_mean() -> None:
    examples = [
        load(f"CartPole-v1:{name}").data for name in ("ppo", "reinforce", "ppo_trxl_masked", "ppo_mamba_masked")
    ]
    chosen = {"algorithm.name", "network.encoder.type", "network.memory.type"}
    told = [row for row in rows("Settings") if re.fullmatch(r"(`[a-z]+\.[a-z_.]+`(, )?)+", row[0])]
    assert len(told) > 25
    for here, others in told:
        paths = code(here)
        for path in paths:
            assert path in chosen or any(field_at(tuple(path.split(".")), data) for data in examples), path
        for name in code(others):
            assert ALIASES[name] in paths, f"{name} means {ALIASES[name]}"


def test_what_is_said_differently_loads() -> None:
    """The right column of the second table, as overrides."""
    spans = [span for row in rows("Settings") for span in code(row[-1])]
    told = [span for span in spans if re.match(r"(algorithm|training|environment|network)\.[\w.]+: ", span)]
    assert len(told) > 10
    for setting in told:
        assert load("CartPole-v1:ppo", [setting.replace(": ", "=", 1)]).config.algorithm.name == "ppo"
    config = load("CartPole-v1:ppo", ["algorithm.lr=lin_2.5e-4", "environment={normalize_obs: true}"]).config
    assert (config.algorithm.config.lr.start, config.algorithm.config.lr.end) == (2.5e-4, 0)
    assert config.environment.normalize_obs == "rolling"


def test_every_metric_is_logged(prepared: Callable[..., Any], tmp_path: Path) -> None:
    evaluation = "'training.evaluation={every_steps: 256, episodes: 2}'"
    assert prepared(f"ludus train CartPole-v1:ppo -q {evaluation}").code == 0
    with (tmp_path / "runs" / "@last" / "metrics.csv").open() as file:
        columns = next(csv.reader(file))
    names = [row[0].strip("`") for row in rows("Metrics")]
    names += re.findall(r"`((?:train|val)/[\w/]+)`", (ROOT / "docs" / "runs.md").read_text())
    assert len(names) > 20
    elsewhere = {"train/time/updates_per_second", "train/system/gpu_mb"}  # without an environment; with an accelerator
    assert {name for name in names if name not in columns} == elsewhere


def test_every_new_path_exists() -> None:
    paths = [span for tool in TOOLS for row in rows(tool) for span in code(row[-1]) if span.startswith("src/")]
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_packages_are_where_the_page_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = {name: " ".join(packages) for name, packages in project["optional-dependencies"].items()}
    core, extras, develop, *others = rows("The modular RL mono-repo", r"package \| here")
    assert all(f"{name}>=" in " ".join(project["dependencies"]) for name in core[0].split(", "))
    for name, extra in zip(extras[0].split(", "), code(extras[1]), strict=True):
        assert f"{name}>=" in needs[extra], name
    assert "pytest>=" in needs["dev"] and "ruff>=" in needs["dev"] and "pytest" in develop[0]
    everything = " ".join([*project["dependencies"], *needs.values()])
    assert not [name for row in others for name in row[0].split(", ") if f"{name}>=" in everything]
