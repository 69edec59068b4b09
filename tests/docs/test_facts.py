"""Tables of the pages against the code: what is in the box, wrappers, rules, exit codes."""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ludus import errors
from ludus.cli.commands import COMMANDS
from ludus.config.groups import environment_files
from ludus.envs.suites import spelled, suite_of
from ludus.orchestration.callbacks import Callback
from ludus.registry import ALGORITHMS, ENCODERS, MEMORY, WRAPPERS, Registry
from ludus.session.signals import EARLY
from ludus.watch.rules import Rule

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def line(text: str, start: str) -> str:
    return next(row for row in text.splitlines() if row.startswith(start))


@pytest.mark.parametrize(
    ("start", "registry"), [("| algorithms", ALGORITHMS), ("| memory cores", MEMORY), ("| encoders", ENCODERS)]
)
def test_the_box_holds_what_is_registered(start: str, registry: Registry[Any]) -> None:
    assert set(re.findall(r"`(\w+)`", line(page("in-the-box.md"), start))) == set(registry.names())


def test_the_box_holds_every_suite_with_a_config() -> None:
    shipped = environment_files([ROOT / "src" / "ludus" / "configs"])
    told = line(page("in-the-box.md"), "| environments").split(";")[0]
    suites = {suite_of(spelled(id)).title for id in shipped}
    assert suites > {"Atari", "MuJoCo", "classic control"}
    assert {suite for suite in suites if suite not in told} == set()


def test_the_readme_is_short_and_counts_right() -> None:
    """What a stranger reads in two minutes: a picture, at most 500 words of text, and no number that is out of date."""
    text = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    assert len(text.split()) <= 500 and "](docs/pictures/" in text
    cores = set(MEMORY.names()) - {"none"}
    suites = {suite_of(spelled(id)).title for id in environment_files([ROOT / "src" / "ludus" / "configs"])}
    told = re.search(r"(\d+) algorithms .* (\d+) memory cores and configs for (\d+) suites", text)
    assert told is not None
    assert [int(number) for number in told.groups()] == [len(ALGORITHMS.names()), len(cores), len(suites)]


def test_every_extra_is_told() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    table = page("install.md").split("| extra |")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:]))) == set(extras)


def test_every_wrapper_is_told_with_its_arguments() -> None:
    told = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", page("environments.md").split("## Wrappers")[1], re.MULTILINE))
    names = {name for name in WRAPPERS.names() if name.islower()}
    assert set(told) == names
    for name in names:
        arguments = list(inspect.signature(WRAPPERS[name]).parameters)[1:]
        words = re.findall(r"`(\w+)(?:: \w+)?`", told[name])
        assert [word for word in words if word in arguments] == arguments, name


def test_every_key_of_a_metrics_rule_is_told() -> None:
    table = page("extending/metrics.md").split("## How a metric is shown")[1]
    told = {key for row in re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)}
    assert told == set(Rule.model_fields)


def test_every_moment_of_a_callback_is_told() -> None:
    moments = {name for name in vars(Callback) if name.startswith("on_")}
    for name in ("extending/metrics.md", "coming-from.md"):
        assert moments <= set(re.findall(r"`(on_\w+)", page(name))), name


def test_every_exit_code_is_told() -> None:
    codes = {cls.exit_code for cls in vars(errors).values() if isinstance(cls, type) and hasattr(cls, "exit_code")}
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", page("configuration.md"), re.MULTILINE)}
    assert codes | {0, EARLY, 130} == told


def test_the_commands_that_take_a_plugin_are_told() -> None:
    places = {name: where.split(":") for name, (where, _) in COMMANDS.items()}
    found = {name: getattr(importlib.import_module(module), part) for name, (module, part) in places.items()}
    functions = {name: command for name, command in found.items() if inspect.isfunction(command)}
    takes = {name for name, command in functions.items() if "plugin" in inspect.signature(command).parameters}
    assert {"train", "resume", "model"} <= takes
    for name, sentence in (
        ("configuration.md", r"may be repeated\. (.*?) take it"),
        ("extending/algorithm.md", r"is an option of (.*?), not"),
    ):
        told = re.search(sentence, page(name), re.DOTALL)
        assert told is not None, name
        assert {word.removeprefix("ludus ") for word in re.findall(r"`([\w ]+)`", told[1])} == takes, name


def test_the_default_buffer_of_a_phase_is_told() -> None:
    told = line(page("extending/curriculum.md"), "| `buffer` |")
    names = {name for algorithm in ALGORITHMS.names() for name in ALGORITHMS[algorithm].buffers}
    assert names == {"replay", "demos"} and "No algorithm" not in told
    assert "default is `replay`" in told and "or `demos`" in told


def test_what_exists_is_not_said_to_be_coming() -> None:
    """Commands and memory cores that exist stand in the tables of commands, not among what is missing."""
    text = page("coming-from.md")
    missing = re.compile(r"\bcoming\b(?! from)|\bnot here\b|\bnot yet\b")
    missed = [sentence for sentence in re.split(r"\.\s|\n\n|\n\|", text) if missing.search(sentence.lower())]
    assert any("Plan2Explore" in sentence for sentence in missed)
    for word in ("resum", "evaluat", "lstm", "transformer", "mamba", "rank", "diffusion", "sweep", "modal", "agent"):
        assert not [sentence for sentence in missed if word in sentence.lower()], word
    told = text.split("## Settings")[0]
    assert "`ludus evaluate " in told and "`ludus resume @last`" in told and "`ludus inspect " in told
    cores = {name for name in MEMORY.names() if name != "none"}
    assert cores <= set(re.findall(r"(?:core=|`)(\w+)", told))


def test_the_changelog_keeps_its_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = ["Added", "Changed", "Fixed", "Removed", "Changes learning curves"]
    for release in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        found = re.findall(r"^### (.*)$", release, re.MULTILINE)
        assert found == [heading for heading in headings if heading in found], release.splitlines()[0]
