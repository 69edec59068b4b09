"""A run folder from elsewhere runs no code, whatever it contains and whatever it says about itself."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import ludus as interface
from ludus.errors import ConfigError
from session.conftest import SMALL, Ludus, only_run
from support import forget_plugins

PLUGIN = """
from pathlib import Path

import gymnasium as gym
from ludus.registry import WRAPPERS

Path({canary!r}).touch()

@WRAPPERS.register("scale")
class Scale(gym.RewardWrapper):
    def reward(self, reward):
        return reward
"""
COMMANDS = [
    ("evaluate", "{run}", "-n", "1"),
    ("play", "{run}", "--episodes", "1", "--render", "none"),
    ("play", "{run}", "--random", "--episodes", "1", "--render", "none"),
    ("verify", "{run}"),
    ("resume", "{run}", "training.total_timesteps=256"),
    ("resume", "{run}", "--mode", "warm_start"),
    ("export", "{run}", "--format", "torchscript"),
    ("train", "runs/{run}/config.yaml", "-q"),
    ("train", "--resume", "{run}", "-q"),
    ("model", "runs/{run}/config.yaml"),
    ("config", "show", "runs/{run}/config.yaml"),
    ("config", "validate", "runs/{run}/config.yaml"),
    ("report", "{run}"),
    ("show", "{run}", "--config"),
    ("list",),
    ("compare",),
    ("export",),
]
HARMLESS = ("report", "show", "list", "compare")


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    forget_plugins()
    return tmp_path / "canary"


@pytest.fixture
def foreign(ludus: Ludus, tmp_path: Path, canary: Path) -> Path:
    """A run with a plugin that somebody else has made; the file it names is there, and so is its copy."""
    (tmp_path / "mine.py").write_text(PLUGIN.format(canary=str(canary)))
    words = [*SMALL, "training.total_timesteps=128", "environment.wrappers=[scale]", "--plugin", "mine.py"]
    assert ludus("train", *words).code == 0
    made = only_run(tmp_path)
    came = made.with_name("theirs_20260101-000000_abcd")
    shutil.copytree(made, came, symlinks=True)
    (came / ".lock").unlink(missing_ok=True)
    shutil.rmtree(made)
    canary.unlink()
    forget_plugins()
    return came


def plugins(folder: Path, *entries: dict[str, Any]) -> None:
    """Let meta.json, and the copies of it in checkpoints, name other plugins."""
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "plugins": list(entries)}))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_command_runs_the_plugin_of_a_copied_folder(
    ludus: Ludus, foreign: Path, canary: Path, words: tuple[str, ...]
) -> None:
    done = ludus(*(word.format(run=foreign.name) for word in words))
    assert not canary.exists()
    if words[0] in HARMLESS or words == ("export",):
        assert done.code == 0, done.err
    else:
        assert done.code == 2 and "mine.py, which you have not allowed for this run folder" in done.err
        assert done.err.count("\n") == 1
        assert "add --plugin mine.py if you trust it" in done.err


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] in ("evaluate", "report", "show")])
def test_a_plugin_inside_the_folder_is_not_run(
    ludus: Ludus, foreign: Path, canary: Path, words: tuple[str, ...]
) -> None:
    """Named by any kind of path, as a file or as a module beside the user, with the right sums."""
    evil = f"import pathlib; pathlib.Path({str(canary)!r}).touch()\n"
    content = hashlib.sha256(evil.encode()).hexdigest()
    for place in (foreign / "plugins" / "evil.py", Path("evil.py")):
        place.write_text(evil)
    inside, link = foreign / "plugins" / "evil.py", foreign / "plugins" / "link.py"
    link.symlink_to("evil.py")
    for entry in (
        {"path": str(link.absolute()), "sha256": content, "copy": "plugins/link.py"},
        {"path": "plugins/evil.py", "sha256": content, "copy": "plugins/evil.py"},
        {"path": "./evil.py", "sha256": content, "copy": "plugins/evil.py"},
        {"path": str(inside.absolute()), "sha256": content, "copy": "plugins/evil.py"},
        {"path": f"runs/{foreign.name}/plugins/evil.py", "sha256": content, "copy": "plugins/evil.py"},
        {"path": "/nowhere/evil.py", "sha256": content, "copy": "plugins/evil.py"},
        {"path": "/nowhere/evil.py", "sha256": content, "copy": "../../evil.py"},
        {"module": "evil"},
        {"module": "evil:Evil"},
        {"module": "evil.py"},
        {"module": "evil.deep.er:Evil"},
    ):
        plugins(foreign, entry)
        before = list(sys.path)
        ludus(*(word.format(run=foreign.name) for word in words))
        assert not canary.exists(), entry
        assert sys.path == before, entry


@pytest.mark.parametrize(
    "use",
    [
        lambda run: interface.load_policy(run),
        lambda run: interface.make_env(run),
        lambda run: interface.load_run(run).config,
        lambda run: interface.load_run(run).policy(),
        lambda run: interface.load_run(run).evaluate(1),
        lambda run: interface.load_run(run).trajectory(),
        lambda run: interface.load_run(run).resume({"training.total_timesteps": 256}, quiet=True),
        lambda run: interface.train(run / "config.yaml", quiet=True),
        lambda run: interface.load_run(run).report(),
        lambda run: repr(interface.load_run(run)) + interface.load_run(run)._repr_html_(),
        lambda run: interface.compare(runs_dir=run.parent),
    ],
    ids=[
        "load_policy",
        "make_env",
        "config",
        "policy",
        "evaluate",
        "trajectory",
        "resume",
        "train",
        "report",
        "repr",
        "compare",
    ],
)
def test_python_runs_no_plugin_of_a_copied_folder(
    foreign: Path, canary: Path, use: Callable[[Path], object], request: pytest.FixtureRequest
) -> None:
    harmless = request.node.callspec.id in ("report", "repr", "compare")
    with nullcontext() if harmless else pytest.raises(ConfigError, match="which you have not allowed"):
        use(foreign)
    assert not canary.exists()


def test_nonsense_in_meta_json_is_no_plugin(ludus: Ludus, foreign: Path, canary: Path) -> None:
    for entry in (
        {"path": 3},
        {"path": ""},
        {"module": None},
        "evil",
        None,
        {"path": "/dev/zero", "sha256": []},
        {"path": "/a\0.py"},
        {"module": "a\0"},
    ):
        plugins(foreign, entry)  # type: ignore[arg-type]
        done = ludus("evaluate", foreign.name, "-n", "1")
        assert done.code == 2 and done.err.startswith("error: ") and not canary.exists()


def test_another_user_has_agreed_to_nothing(
    ludus: Ludus, tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN.format(canary=str(canary)))
    words = [*SMALL, "training.total_timesteps=128", "environment.wrappers=[scale]", "--plugin", "mine.py"]
    assert ludus("train", *words).code == 0
    canary.unlink()
    forget_plugins()
    (agreed,) = (tmp_path / "config" / "ludus" / "allowed_plugins").iterdir()
    assert agreed.stat().st_mode & 0o077 == 0
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody else"))
        assert ludus("evaluate", "@last", "-n", "1").code == 2
    agreed.chmod(0o666)
    refused = ludus("evaluate", "@last", "-n", "1")
    assert refused.code == 2 and "may be written by others" in refused.err and not canary.exists()
    agreed.chmod(0o600)
    assert ludus("evaluate", "@last", "-n", "1").code == 0 and canary.exists()


def test_who_changes_the_file_and_what_the_folder_says_about_it_is_found_out(
    ludus: Ludus, tmp_path: Path, canary: Path
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(PLUGIN.format(canary=str(tmp_path / "good")))
    words = [*SMALL, "training.total_timesteps=128", "environment.wrappers=[scale]", "--plugin", "mine.py"]
    assert ludus("train", *words).code == 0
    mine.write_text(PLUGIN.format(canary=str(canary)))
    run = only_run(tmp_path)
    content = hashlib.sha256(mine.read_bytes()).hexdigest()
    plugins(run, {"path": str(mine), "sha256": content, "copy": "plugins/mine.py"})
    forget_plugins()
    assert ludus("evaluate", "@last", "-n", "1").code == 2 and not canary.exists()


def test_a_resume_writes_no_copy_through_a_link(ludus: Ludus, foreign: Path, tmp_path: Path) -> None:
    shutil.rmtree(foreign / "plugins")
    (tmp_path / "target").mkdir()
    (foreign / "plugins").symlink_to(tmp_path / "target")
    done = ludus("resume", foreign.name, "training.total_timesteps=256", "--plugin", "mine.py")
    assert done.code == 2 and "is a link" in done.err and not list((tmp_path / "target").iterdir())
