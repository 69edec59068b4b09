"""Names and classes: a plugin adds names, and takes none that is there already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ludus import cli
from ludus.registry import MEMORY, WRAPPERS, Registry, UnknownName

CORE = """
from ludus.networks.memory.none import NoMemory
from ludus.registry import MEMORY

@MEMORY.register("{name}")
class {cls}(NoMemory):
    pass
"""


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Run a command with a plugin, and forget what it registered."""
    monkeypatch.chdir(tmp_path)
    MEMORY.names()  # what is shipped stays
    monkeypatch.setattr(MEMORY, "_classes", dict(MEMORY._classes))

    def run(*classes: tuple[str, str], words: tuple[str, ...] = ("model", "CartPole-v1:ppo")) -> object:
        Path("mine.py").write_text("".join(CORE.format(name=name, cls=cls) for name, cls in classes))
        with pytest.raises(SystemExit) as stop:
            cli.main([*words, "--plugin", "mine.py"])
        return stop.value.code

    return run


TAKEN = [[("gru", "Mine")], [("twice", "One"), ("twice", "Two")], [("same", "Same"), ("same", "Same")]]


@pytest.mark.parametrize("classes", TAKEN)
def test_a_name_that_is_taken_is_refused_in_one_line_that_names_both(
    classes: list[tuple[str, str]], fresh, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fresh(*classes) == 2
    (line,) = capsys.readouterr().err.splitlines()
    name, cls = classes[-1]
    known = "ludus.networks.memory.gru.GRU" if name == "gru" else f"mine.{classes[0][1]}"
    assert line.startswith("error: ") and line.endswith("; choose another name")
    assert f"mine.py: memory '{name}' is registered twice: " in line
    assert known in line and f"mine.{cls};" in line


def test_a_shipped_name_is_taken_before_it_was_used() -> None:
    """In a process that has imported nothing: the plugin comes first."""
    code = """
import sys
from ludus.errors import ConfigError
from ludus.registry import MEMORY
assert "ludus.networks.memory.gru" not in sys.modules
try:
    MEMORY.register("gru")(type("Mine", (), {}))
except ConfigError as error:
    print(error.line())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "memory 'gru' is registered twice" in done.stdout, done.stdout + done.stderr


def test_one_file_may_be_loaded_twice(fresh) -> None:
    assert fresh(("mine", "Mine")) == 0
    assert fresh(("mine", "Mine"), words=("model", "CartPole-v1:ppo", "network.memory=mine")) == 0


def test_a_plugin_that_python_has_imported_itself_may_be_loaded_too(
    fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fresh(("mine", "Mine")) == 0
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    import mine  # type: ignore[import-not-found]

    assert MEMORY["mine"] is mine.Mine
    monkeypatch.delitem(sys.modules, "ludus_plugin_mine")
    assert fresh(("mine", "Mine")) == 0
    assert MEMORY["mine"] is not mine.Mine


@pytest.mark.parametrize("registry", [MEMORY, WRAPPERS])
def test_an_unknown_name_says_what_there_is(registry: Registry) -> None:
    name = registry.names()[0]
    assert registry[name] is registry[name] and name in registry
    with pytest.raises(UnknownName, match=f"unknown {registry.kind} '{name}x'; did you mean '{name}'"):
        registry[f"{name}x"]
    assert f"{name}x" not in registry
