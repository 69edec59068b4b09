"""docs/coming-from.md: every command on the right parses, every setting, metric and path there exists."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ludus.config.aliases import ALIASES
from ludus.config.compose import load, parse
from ludus.config.validate import field_at

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coming-from.md"


def rows(section: str) -> list[list[str]]:
    """The cells of all tables of a section, without heads."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    tables = re.findall(r"^\|.*\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for table in tables for line in table.splitlines()]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


COMMANDS = sorted({span for row in rows("Commands") for span in code(row[-1]) if span.startswith("ludus ")})


@pytest.fixture
def prepared(ludus: Callable[..., Any], blocks: Any, tmp_path: Path) -> Callable[..., Any]:
    """The command line beside the files of the page."""
    for block in blocks(PAGE):
        if block.title:
            (tmp_path / block.title).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.title).write_text(block.text)
    return ludus


def test_every_new_command_parses(prepared: Callable[..., Any]) -> None:
    assert len(COMMANDS) > 20
    for command in COMMANDS:
        if command.startswith(("ludus play", "ludus evaluate", "ludus resume")):
            line = f"{command} --help"
        elif command.startswith("ludus train") and not re.search("--list-envs|--cfg|--resume", command):
            line = f"{command} --cfg job"
        else:
            line = command
        outcome = prepared(line)
        assert outcome.code == 0, f"{command}\n{outcome.err}"
        assert outcome.out, command


def test_flags_of_the_single_file_scripts_do_what_they_say(prepared: Callable[..., Any]) -> None:
    """One row read back: the numbers of the left column stand in the resolved config."""
    (command,) = [command for command in COMMANDS if "--num-steps 128" in command]
    config = parse(yaml.safe_load(prepared(f"{command} --cfg job").out), "printed")
    assert (config.environment.num_envs, config.algorithm.config.rollout_steps) == (8, 128)
    assert config.algorithm.config.steps_per_batch(8 * 128) == 256


def test_every_setting_exists_and_is_what_its_other_names_mean() -> None:
    examples = [
        load(f"CartPole-v1:{name}").data for name in ("ppo", "reinforce", "ppo_trxl_masked", "ppo_mamba_masked")
    ]
    chosen = {"algorithm.name", "network.encoder.type", "network.memory.type"}
    told = [row for row in rows("Settings") if re.fullmatch(r"(`[a-z_.]+`(, )?)+", row[0])]
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
    told = [span for span in spans if re.match(r"(algorithm|training)\.[\w.]+: ", span)]
    assert len(told) > 6
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
    without_environment = {"train/time/updates_per_second"}
    assert {name for name in names if name not in columns} == without_environment


def test_every_new_path_exists() -> None:
    paths = [span for row in rows("Layout") for span in code(row[-1]) if span.startswith("src/")]
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []
