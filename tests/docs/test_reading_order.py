"""The walk through PPO in docs/extending/algorithm.md stays short, and every step of it calls the next."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from ludus.algorithms.ppo import PPO
from ludus.cli import train as command
from ludus.learning.learner import Learner, Networks
from ludus.learning.optimizer import TrainedGroup
from ludus.orchestration.orchestrator import Orchestrator
from ludus.session import train as session

ROOT = Path(__file__).parents[2]
MOST_FILES, MOST_LINES, LONGEST = 16, 2400, 300
PAGE = (ROOT / "docs/extending/algorithm.md").read_text()


def walk() -> list[Path]:
    """The files of the table, in its order."""
    section = PAGE.split("## Read PPO")[1].split("\n## ")[0]
    return [ROOT / "src/ludus" / name for name in re.findall(r"^\| `([^`]+\.py)` \|", section, re.M)]


def test_the_files_exist_and_are_few_and_short() -> None:
    files = walk()
    assert len(files) == len(set(files)) > 10
    lines = {file.name: len(file.read_text().splitlines()) for file in files}
    assert len(files) <= MOST_FILES, "a reader of PPO has to open more files than before"
    assert sum(lines.values()) <= MOST_LINES, f"a reader of PPO has to read more than before: {lines}"
    assert max(lines.values()) <= LONGEST, lines


def test_each_step_of_the_walk_calls_the_next() -> None:
    assert "_train(" in inspect.getsource(command.train) and "train.train(" in inspect.getsource(command._train)
    assert "Orchestrator(run).run()" in inspect.getsource(session.train)
    assert "hooks[name](" in inspect.getsource(Orchestrator.run)
    assert "self.learner.update(self.update," in inspect.getsource(PPO.update_controller)
    assert "function(nets, " in inspect.getsource(Learner._run)
    assert "nets.step(" in inspect.getsource(PPO.update)
    assert "trained.step(" in inspect.getsource(Networks._follow)
    assert "self.optimizer.step(" in inspect.getsource(TrainedGroup.step)


def test_build_is_one_page() -> None:
    from ludus.experiment import build

    assert len(inspect.getsource(build).splitlines()) <= 50


def test_the_files_of_policy_gradients_are_short() -> None:
    most = {"ppo": 200, "reinforce": 110, "a2c": 90}
    found = {name: len((ROOT / f"src/ludus/algorithms/{name}.py").read_text().splitlines()) for name in most}
    assert all(found[name] <= most[name] for name in most), found
