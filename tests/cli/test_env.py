"""`ludus env`: facts about environments, from the file and from the environment itself."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ludus.cli.env import check, info, list_environments
from ludus.envs import suites
from ludus.envs.facts import ConfiguredEnvironment, EnvironmentFacts, collect, environment_of, facts_of, shipped
from ludus.envs.make import describe
from ludus.errors import ConfigError

BACKENDS = ", ".join(["sync", "async", "native", *(["envpool"] if find_spec("envpool") else [])])
_SPEC = """
spec:
  description: Balance a pole.
  action: {labels: [push left, push right]}
  observation: {labels: [cart position, cart velocity, pole angle, pole velocity]}
  reward: 1 for every step
  source: https://gymnasium.farama.org
mine: {algorithm: random, environment: {wrappers: [time_aware]}}
"""


@pytest.fixture
def overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "configs" / "environments"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    (folder / "CartPole-v1.yaml").write_text(_SPEC)
    return folder / "CartPole-v1.yaml"


def _json(capsys: pytest.CaptureFixture[str], id: str) -> dict[str, Any]:
    info(id, as_json=True)
    return json.loads(capsys.readouterr().out)


def test_labels_ranges_threshold_and_limit(overlay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info("CartPole-v1")
    assert capsys.readouterr().out.splitlines() == [
        "CartPole-v1",
        "  Balance a pole.",
        "action       Discrete of 2",
        "    0  push left",
        "    1  push right",
        "observation  Box of 4 float32",
        "    0  cart position  -4.8 .. 4.8",
        "    1  cart velocity  -inf .. inf",
        "    2  pole angle     -0.418879 .. 0.418879",
        "    3  pole velocity  -inf .. inf",
        "reward       1 for every step",
        "episode      at most 500 steps",
        "solved at    475",
        "rendering    human, rgb_array at 50 frames per second",
        "suite        classic control",
        f"backend      native; it can run on {BACKENDS}",
        "resume       exact: its state is read and written by an adapter",
        "configs      mine",
        "more         https://gymnasium.farama.org",
    ]


def test_json_says_the_same(overlay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, "CartPole-v1")
    labels = ["push left", "push right"]
    assert found["action"] == {"space": "Discrete", "shape": [], "dtype": "int64", "n": 2, "labels": labels}
    assert found["observation"]["low"] == [-4.8, None, -0.418879, None]
    assert (found["max_episode_steps"], found["reward_threshold"], found["configs"]) == (500, 475.0, ["mine"])
    assert (found["suite"], found["backend"], found["resume"]) == ("classic control", "native", "adapter")
    assert ", ".join(found["backends"]) == BACKENDS


def test_an_environment_without_a_file_and_a_variant_with_wrappers(
    overlay: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _json(capsys, "CliffWalking-v1")
    assert (found["action"]["n"], found["observation"]["n"], found["configs"]) == (4, 48, [])
    overlay.write_text(_SPEC.replace("  observation", "  # observation"))
    assert _json(capsys, "CartPole-v1:mine")["observation"]["shape"] == [5]
    assert _json(capsys, "Pendulum-v1")["reward_threshold"] == -200  # the file's: the environment has none


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[push left, push right]", "[push]", r"spec\.action\.labels: 1 labels for 2 numbers"),
        ("reward: 1 for", "rewards: 1 for", r"spec\.rewards: Extra inputs"),
        ("{labels: [push left, push right]}", "3", r"spec\.action"),
    ],
)
def test_a_wrong_block_is_one_line(overlay: Path, old: str, new: str, words: str) -> None:
    overlay.write_text(_SPEC.replace(old, new))
    with pytest.raises(ConfigError, match=words):
        info("CartPole-v1")


def test_an_unknown_environment() -> None:
    with pytest.raises(ConfigError, match=r"environment\.id"):
        info("CartPoole-v1")


@pytest.mark.parametrize("entry", shipped(), ids=lambda entry: entry.name)
def test_the_block_of_a_shipped_file_fits_its_environment(entry: ConfiguredEnvironment) -> None:
    if not entry.suite.installed:
        pytest.skip(f"{entry.suite.title} is not installed")
    environment, file = environment_of(entry.name)
    facts, source = facts_of(file)
    try:
        described = describe(environment)
    except ConfigError as error:
        if "ROM" not in error.line():
            raise
        pytest.skip(error.line())
    found = collect(described, facts, source)
    assert found["description"] and found["id"] == entry.id


def test_images_are_not_listed_pixel_by_pixel() -> None:
    import gymnasium as gym
    import numpy as np

    from ludus.envs.spaces import EnvInfo

    env = EnvInfo("Pixels-v0", gym.spaces.Box(0, 255, (3, 84, 84), np.uint8), gym.spaces.MultiDiscrete([3, 2]))
    found = collect(env, EnvironmentFacts())
    assert (found["observation"]["low"], found["observation"]["high"]) == (0.0, 255.0)
    assert found["action"]["n"] == [3, 2]


def test_list_by_suite(capsys: pytest.CaptureFixture[str]) -> None:
    list_environments()
    lines = capsys.readouterr().out.splitlines()
    heads = [line.partition(":")[0] for line in lines if not line.startswith(" ")]
    assert heads[:3] == ["classic control", "toy text", "Box2D"] and "Ludus" in heads
    at = next(i for i, line in enumerate(lines) if line.strip().startswith("CartPole-v1"))
    assert "ppo" in lines[at] and heads.index("classic control") < at < lines.index("toy text")
    list_environments("cliff")
    assert capsys.readouterr().out == ""
    list_environments("box2d")
    assert "LunarLander-v3" in capsys.readouterr().out


def test_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    list_environments("cliff", everything=True, as_json=True)
    found = json.loads(capsys.readouterr().out)["CliffWalking-v1"]
    told = {"suite": "toy text", "installed": True, "extra": None}
    assert found == {"id": "CliffWalking-v1", "variants": [], **told}


def test_a_suite_that_is_not_there_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suites, "_importable", lambda module: module != "Box2D")
    list_environments("LunarLander")
    assert capsys.readouterr().out.splitlines()[0] == "Box2D: not installed, pip install 'ludus[box2d]'"
    list_environments("LunarLander", as_json=True)
    found = json.loads(capsys.readouterr().out)["LunarLander-v3"]
    assert (found["installed"], found["extra"]) == (False, "box2d")


def test_every_gymnasium_environment_has_a_suite() -> None:
    import gymnasium

    for spec in gymnasium.registry.values():
        module = str(spec.entry_point).partition(":")[0]
        by_module = [suite for suite in suites.SUITES if suite.builtin and module.startswith(suite.module)]
        if by_module and "mujoco_py" not in module:
            assert suites.suite_of(spec.id) == by_module[0], spec.id


@pytest.mark.parametrize(
    ("written", "meant"), [("ALE-Pong-v5", "ALE/Pong-v5"), ("Bandit-v0", "Bandit-v0"), ("CartPole-v1",) * 2]
)
def test_both_spellings_of_an_id(written: str, meant: str) -> None:
    assert environment_of(written)[0].id == environment_of(meant)[0].id == suites.spelled(written) == meant


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("CartPole-v1", backend=["native"], as_json=True) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["status"] for row in rows} <= {"PASS", "NOTE"} and rows[-1]["check"] == "closes"
    assert check("CartPole-v1:ppo_masked", backend=["sync"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["sync", "closes", "PASS"]


def test_check_fails_with_the_code_of_environments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ludus.checks import contract

    def broken(_: Any) -> None:
        raise contract.Broken("it is wrong")

    monkeypatch.setitem(contract.CHECKS, "seeds", broken)
    assert check("CartPole-v1", backend=["native"]) == 4
    assert any(
        line.split() == ["native", "seeds", "FAIL", "it", "is", "wrong"]
        for line in capsys.readouterr().out.splitlines()
    )


def test_listing_is_light() -> None:
    code = (
        "import sys; from ludus.cli import run\n"
        "for words in (['env', '--help'], ['env', 'list'], ['migrate', '--help']):\n"
        "    assert run(words) == 0\n"
        "assert not {'torch', 'gymnasium'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
