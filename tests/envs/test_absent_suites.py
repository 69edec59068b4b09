"""A suite that is not installed: one line that says how to get it. Absence is an import that is blocked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from ludus.envs.facts import shipped
from ludus.envs.suites import Suite

BLOCK = "import sys; sys.modules.update(dict.fromkeys({modules!r})); from ludus.cli import main; main({words!r})"
ABSENT: dict[str, tuple[str, Suite]] = {}
for _entry in shipped():
    if _entry.suite.needs:
        ABSENT.setdefault(_entry.suite.title, (_entry.name, _entry.suite))


def _without(modules: Sequence[str], *words: str) -> subprocess.CompletedProcess[str]:
    code = BLOCK.format(modules=[*modules], words=[*words])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_its_environments_say_what_to_install(name: str) -> None:
    env, suite = ABSENT[name]
    done = _without(suite.needs, "env", "info", env)
    assert done.returncode == 2 and done.stdout == "", done
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: environment.id: ") and line.endswith(f"; {suite.remedy}")


def test_training_says_it_too() -> None:
    done = _without(["ale_py"], "train", "ALE-Pong-v5:ppo", "-q")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: environment.id: ALE/Pong-v5: an optional dependency is missing; pip install 'ludus-rl[atari]'"
    ]


def test_a_backend_that_is_not_installed() -> None:
    done = _without(["envpool"], "train", "CartPole-v1:ppo", "-q", "environment.vectorization=envpool")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("; pip install 'ludus-rl[envpool]'")


def test_the_smoke_table_says_missing_and_goes_on() -> None:
    code = BLOCK.format(
        modules=["ale_py"], words=["smoke", "env", "ALE-Pong-v5", "CartPole-v1", "--jobs", "1"]
    ).replace("main([", "import ludus.checks.smoke as s, json; s._finish = fake; main([")
    fake = (
        "def fake(command, folder, timeout):\n"
        "    import json\n"
        "    from ludus.checks import trial\n"
        "    told = []\n"
        "    trial._tell = lambda status, detail='': told.append(dict(status=status, detail=detail)) or 0\n"
        "    return trial.main(*command[3:]), json.dumps(told[-1]), ''\n"
    )
    done = subprocess.run([sys.executable, "-c", fake + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[1]: line for line in done.stdout.splitlines()[:-1]}
    assert rows["ALE-Pong-v5"].startswith("MISSING") and rows["ALE-Pong-v5"].endswith("pip install 'ludus-rl[atari]'")
    assert rows["CartPole-v1"].startswith("PASS")
