"""What the tests of the documentation share: the blocks of a page, and a command line in a scratch directory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ludus import cli
from ludus.cli import job as job_module
from support import forget_plugins

ROOT = Path(__file__).parents[2]
BUDGET = "512"
_FENCE = re.compile(r'^```(\w+)(?: title="(\S+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_NO_BUDGET = ("--cfg", "--list-envs", "--help", "timesteps")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    """The file it is, if it says so."""
    text: str
    line: int

    def commands(self) -> list[str]:
        """The command lines, continued lines joined, comments dropped."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def blocks() -> Callable[[Path], list[Block]]:
    """The fenced blocks of a page."""

    def read(page: Path) -> list[Block]:
        text = page.read_text()
        return [Block(m[1], m[2], m[3], text[: m.start()].count("\n") + 2) for m in _FENCE.finditer(text)]

    return read


@pytest.fixture
def ludus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Outcome]]:
    """Runs `ludus ...` in an empty directory; training is cut short unless it is to run as written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LUDUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(job_module, "debugger_attached", lambda: False)

    def run(line: str, *, as_written: bool = False) -> Outcome:
        forget_plugins()  # every command is a process of its own
        arguments = shlex.split(line, comments=True)[1:]
        if arguments[:1] == ["train"] and not as_written:
            arguments = [_cut(word) if "dreamer" in line else word for word in arguments] + _short(line)
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main(arguments)
        captured = capsys.readouterr()
        return Outcome(int(end.value.code or 0), captured.out, captured.err)

    yield run
    forget_plugins()


def _cut(word: str) -> str:
    """The budget of a world model, whose steps are slow."""
    return re.sub(r"(training\.total_timesteps)=\d{4,}", rf"\1={BUDGET}", word)


def _short(line: str) -> list[str]:
    if "runtime.compile=always" in line or "InvertedPendulum-v5:diffusion_policy" in line:
        return ["--cfg", "job"]  # compiling, or episodes of a thousand steps, takes a minute
    if "+experiment=diffusion_policy" in line:
        return [
            "training.total_updates=4",
            "algorithm.denoiser.widths=[8, 16]",
            "training.evaluation.every_updates=null",
        ]
    return [] if any(word in line for word in _NO_BUDGET) else ["--max-timesteps", BUDGET]
