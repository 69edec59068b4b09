"""Plugins are part of a run: recorded with it, and found again by every command, as long as they are what they were."""

from __future__ import annotations

import hashlib
import importlib
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gymnasium as gym
import pytest

import ludus as interface
from ludus.archive.run_plugins import allow, load_for
from ludus.archive.store import RunFolder
from ludus.errors import ConfigError
from ludus.plugins import Plugin, load_plugins, read_plugin
from session.conftest import SMALL, Ludus, only_run
from support import CORNER, forget_plugins

BRIEF = """
import gymnasium as gym
from ludus.registry import WRAPPERS

@WRAPPERS.register("brief")
class Brief(gym.Wrapper):
    def reset(self, **arguments):
        self.t = 0
        return self.env.reset(**arguments)

    def step(self, action):
        self.t += 1
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated or self.t >= {steps}, info
"""
WORDS = [*SMALL, "training.total_timesteps=128", "environment.wrappers=[brief]"]


@pytest.fixture(autouse=True)
def clean() -> None:
    forget_plugins()


@pytest.fixture
def trained(ludus: Ludus, tmp_path: Path) -> Path:
    """The folder of a run with a plugin beside it whose episodes have 2 steps."""
    (tmp_path / "mine.py").write_text(BRIEF.format(steps=2))
    done = ludus("train", *WORDS, "--plugin", "mine.py")
    assert done.code == 0, done.err
    forget_plugins()
    return only_run(tmp_path)


def steps(ludus: Ludus, *words: str) -> float:
    """How many steps an episode has, as an evaluation meets it."""
    forget_plugins()
    done = ludus("evaluate", "@last", "-n", "2", "--json", *words)
    assert done.code == 0, done.err
    return json.loads(done.out)["length_mean"]


def test_the_run_folder_tells_path_sum_and_content(trained: Path, tmp_path: Path) -> None:
    (told,) = json.loads((trained / "meta.json").read_text())["plugins"]
    content = (tmp_path / "mine.py").read_bytes()
    assert told["path"] == str(tmp_path / "mine.py") and told["sha256"] == hashlib.sha256(content).hexdigest()
    assert (trained / told["copy"]).read_bytes() == content and told["copy"] == "plugins/mine.py"


def test_every_command_finds_it_again(ludus: Ludus, trained: Path) -> None:
    config = f"runs/{trained.name}/config.yaml"
    for words in (
        ("evaluate", "@last", "-n", "1"),
        ("play", "@last", "--episodes", "1", "--render", "none"),
        ("verify", "@last"),
        ("report", "@last"),
        ("export", "@last", "--format", "torchscript"),
        ("show", "@last", "--config"),
        ("model", config),
        ("config", "show", config),
        ("config", "validate", config),
        ("train", config, "-q", "training.total_timesteps=64"),
        ("resume", trained.name, "training.total_timesteps=256"),
        ("resume", trained.name, "--mode", "warm_start"),
    ):
        forget_plugins()
        done = ludus(*words)
        assert done.code == 0 and "without its plugins" not in done.err, (words, done.err)
    assert "resumed" not in json.loads((trained / "meta.json").read_text())


@pytest.mark.parametrize("runs_dir", ["runs", "my runs"])
def test_the_next_commands_work(ludus: Ludus, tmp_path: Path, runs_dir: str) -> None:
    (tmp_path / "mine.py").write_text(BRIEF.format(steps=2))
    told = ludus("train", *WORDS, "--plugin", "mine.py", "--runs-dir", runs_dir).out
    lines = [line.partition("ludus ")[2].partition("   ")[0] for line in told.splitlines() if "ludus play" in line]
    assert len(lines) == 2 and not any("--plugin" in line for line in lines)
    for line in lines:
        forget_plugins()
        words = [word for word in shlex.split(line) if word not in ("--video", "auto")]
        done = ludus(*words, "--episodes", "1", "--render", "none")
        assert done.code == 0, (line, done.err)


def test_without_a_place_to_remember_it_the_next_commands_name_it(
    ludus: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(BRIEF.format(steps=2))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    told = ludus("train", *WORDS, "--plugin", "mine.py")
    assert told.code == 0 and "other commands will have to be given --plugin mine.py" in told.out
    assert "--episodes" not in told.out and "ludus play @last --plugin mine.py" in told.out


def test_a_changed_file_is_refused_with_what_to_type(ludus: Ludus, trained: Path, tmp_path: Path) -> None:
    assert steps(ludus) == 2
    (tmp_path / "mine.py").write_text(BRIEF.format(steps=3))
    forget_plugins()
    for command in ("evaluate", "play", "verify", "resume"):
        done = ludus(command, "@last")
        assert done.code == 2 and done.err.count("\n") == 1, done.err
        assert "mine.py, which has changed since; add --plugin mine.py as it is now, or --plugin runs/" in done.err
    assert steps(ludus, "--plugin", "mine.py") == 3
    assert steps(ludus, "--plugin", str(trained / "plugins" / "mine.py")) == 2


def test_a_file_that_is_gone_leaves_its_copy(ludus: Ludus, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").rename(tmp_path / "yours.py")
    done = ludus("evaluate", "@last")
    assert done.code == 2 and "mine.py, which is gone; add --plugin FILE where it is now, or --plugin" in done.err
    copy = done.err.partition(" or --plugin ")[2].partition(",")[0]
    assert steps(ludus, "--plugin", copy) == 2
    assert steps(ludus, "--plugin", "yours.py") == 2
    (trained / "plugins" / "mine.py").write_text("")
    assert "the copy" not in ludus("evaluate", "@last").err


def test_a_report_is_written_without_the_plugin(ludus: Ludus, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").unlink()
    done = ludus("report", "@last")
    assert done.code == 0 and "done without its plugins: " in done.err


@pytest.mark.parametrize(("answer", "runs"), [("y", True), ("", False), ("no", False)])
def test_at_a_terminal_a_changed_file_asks_once(
    ludus: Ludus, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, runs: bool
) -> None:
    (tmp_path / "mine.py").write_text(BRIEF.format(steps=3))
    asked: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr("ludus.archive.run_plugins.can_answer", lambda: True)
        patch.setattr("builtins.input", lambda question: asked.append(question) or answer)
        done = ludus("evaluate", "@last", "-n", "1")
    sum_of_it = hashlib.sha256((tmp_path / "mine.py").read_bytes()).hexdigest()
    assert f"mine.py, which has changed since: sha256 {sum_of_it}" in done.out and len(asked) == 1
    assert (done.code == 0) is runs
    if runs:
        assert steps(ludus) == 3  # remembered
        assert "has changed since" in ludus("evaluate", "@last", "-n", "1").err
    (tmp_path / "mine.py").write_text(BRIEF.format(steps=4))
    forget_plugins()
    assert ludus("evaluate", "@last").code == 2  # for that very content only


def test_a_resume_with_other_code_says_so_and_is_another_run_in_comparisons(
    ludus: Ludus, trained: Path, tmp_path: Path
) -> None:
    before = interface.load_run("@last").record.plugins
    (tmp_path / "mine.py").write_text(BRIEF.format(steps=3))
    done = ludus("resume", "@last", "training.total_timesteps=256", "--plugin", "mine.py")
    assert done.code == 0 and f"resumed with other code: plugins {before} -> mine.py" in done.out + done.err
    after = interface.load_run("@last").record.plugins
    assert after.startswith(f"{before}, mine.py ") and after in ludus("show", "@last").out
    told = json.loads((trained / "meta.json").read_text())
    assert told["plugins"][0]["copy"] == "plugins/mine.py"
    assert told["resumed"][0]["plugins"][0]["copy"] == "plugins/mine_2.py"
    assert steps(ludus) == 3  # what it was resumed with is what it is now


def test_what_is_typed_replaces_what_was_recorded(ludus: Ludus, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text(BRIEF.format(steps=5))
    assert steps(ludus, "--plugin", "other.py") == 5
    assert steps(ludus) == 2


def test_several_plugins_are_all_named_in_the_refusal(ludus: Ludus, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BRIEF.format(steps=2))
    (tmp_path / "two.py").write_text("x = 1\n")
    assert ludus("train", *WORDS, "--plugin", "two.py", "--plugin", "mine.py").code == 0
    (tmp_path / "mine.py").unlink()
    forget_plugins()
    assert "; and --plugin two.py (in Python" in ludus("evaluate", "@last").err


def test_the_python_interface_finds_it_again(trained: Path, tmp_path: Path) -> None:
    run = interface.load_run("@last")
    assert run.config.environment.wrappers[0].id == "brief"
    forget_plugins()
    assert interface.load_run("@last").evaluate(1).length_mean == 2
    forget_plugins()
    assert interface.load_policy("@last").deterministic is not None
    forget_plugins()
    interface.load_run("@last").resume({"training.total_timesteps": 192}, quiet=True)
    (tmp_path / "mine.py").write_text(BRIEF.format(steps=3))
    forget_plugins()
    with pytest.raises(ConfigError, match=r"has changed since.*in Python: plugins="):
        interface.load_policy("@last")
    assert interface.load_run("@last", plugins=["mine.py"]).evaluate(1).length_mean == 3
    forget_plugins()
    assert interface.load_policy("@last", plugins=[tmp_path / "mine.py"]).deterministic is not None


def test_python_trains_with_plugins(ludus: Ludus, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BRIEF.format(steps=2))
    words = [word for word in WORDS[1:] if "=" in word]
    interface.train("CartPole-v1:ppo", words, plugins=["mine.py"], quiet=True)
    assert steps(ludus) == 2


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """The next command is a process of its own, which has not imported the module `corners`."""
    path = list(sys.path)

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "corners"]:
            del sys.modules[name]
        for id in [id for id in gym.registry if id.startswith("corners")]:
            del gym.registry[id]
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "path", list(path))

    forget()
    yield forget
    forget()


def train_in_corners(ludus: Ludus, spec: str) -> None:
    words = [word for word in SMALL[1:] if "stop" not in word]
    done = ludus("train", f"{spec}:ppo", *words, "training.total_timesteps=128")
    assert done.code == 0, done.err


def test_a_module_is_found_again_where_it_is_the_same(
    ludus: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget: Callable[[], None]
) -> None:
    (tmp_path / "corners.py").write_text(CORNER)
    train_in_corners(ludus, "corners:Corner")
    (told,) = json.loads((only_run(tmp_path) / "meta.json").read_text())["plugins"]
    assert told == {"module": "corners:Corner", "sha256": read_plugin("corners:Corner").sha256} and told["sha256"]
    forget()
    assert ludus("evaluate", "@last", "-n", "1").code == 0
    forget()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "corners.py").write_text(CORNER)
    monkeypatch.chdir(elsewhere)
    refused = ludus("evaluate", "@last", "-n", "1", "--runs-dir", str(tmp_path / "runs"))
    assert refused.code == 2 and "add --import corners:Corner if you trust it" in refused.err


@pytest.mark.parametrize(("spec", "place"), [("corners:Corner", "corners.py"), ("corners.a:Corner", "corners/b.py")])
def test_a_module_that_has_changed_is_not_imported_again(
    ludus: Ludus, tmp_path: Path, forget: Callable[[], None], spec: str, place: str
) -> None:
    """Also where the change is in another file of its package."""
    canary, file = tmp_path / "canary", tmp_path / place
    if "." in spec:
        (tmp_path / "corners").mkdir()
        (tmp_path / "corners" / "a.py").write_text(f"import corners.b\n{CORNER}")
    file.write_text(CORNER)
    train_in_corners(ludus, spec)
    forget()
    assert ludus("evaluate", "@last", "-n", "1").code == 0
    forget()
    file.write_text(f"import pathlib; pathlib.Path({str(canary)!r}).touch()\n{CORNER}")
    refused = ludus("evaluate", "@last", "-n", "1")
    assert refused.code == 2 and f"{spec}, which has changed since; add --import {spec} as it is now" in refused.err
    assert not canary.exists()
    assert ludus("evaluate", "@last", "-n", "1", "--import", spec).code == 0 and canary.exists()


def test_an_installed_module_brings_nothing_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that is not installed, such as pandas, would otherwise be imported from there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "colorsys.py").write_text("raise RuntimeError")
    (plugin,) = load_plugins(["colorsys"])
    assert str(tmp_path) not in sys.path and plugin.sha256 == "" and str(tmp_path) not in plugin.origin


def test_a_file_is_run_once_per_process_and_content(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(f"with open({str(tmp_path / 'count')!r}, 'a') as file: file.write('1')")
    for _ in range(2):
        load_plugins([mine])
    assert (tmp_path / "count").read_text() == "1"
    mine.write_text(mine.read_text().replace("'1'", "'2'"))
    load_plugins([mine])
    assert (tmp_path / "count").read_text() == "12"


def test_what_was_shown_is_what_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes between the look at it and its run is run as it was looked at."""
    mine, run = tmp_path / "mine.py", RunFolder(tmp_path / "run")
    mine.write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'good')!r}).touch()")
    (plugin,) = load_plugins([mine])
    run.path.mkdir()
    told = {"plugins": [{"path": str(mine), "sha256": plugin.sha256, "copy": ""}]}
    (run.path / "meta.json").write_text(json.dumps(told))
    allow(run.path, plugin)
    (tmp_path / "good").unlink()
    forget_plugins()
    real = Plugin.run

    def late(plugin: Plugin) -> None:
        mine.write_text(mine.read_text().replace("good", "bad"))
        real(plugin)

    monkeypatch.setattr(Plugin, "run", late)
    load_for(run)
    assert (tmp_path / "good").exists() and not (tmp_path / "bad").exists()
