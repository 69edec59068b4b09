"""`ludus env`: facts about environments, from the file and from the environment itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ludus.cli.env import EnvironmentFacts, _config, _facts, collect, info, list_environments
from ludus.config.compose import search_path
from ludus.config.variants import FACTS, EnvironmentFile, environment_files
from ludus.envs.make import describe
from ludus.errors import ConfigError

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
        "configs      mine",
        "more         https://gymnasium.farama.org",
    ]


def test_json_says_the_same(overlay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, "CartPole-v1")
    labels = ["push left", "push right"]
    assert found["action"] == {"space": "Discrete", "shape": [], "dtype": "int64", "n": 2, "labels": labels}
    assert found["observation"]["low"] == [-4.8, None, -0.418879, None]
    assert (found["max_episode_steps"], found["reward_threshold"], found["configs"]) == (500, 475.0, ["mine"])


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


def test_the_blocks_of_all_shipped_files_fit_their_environments() -> None:
    dirs = search_path()
    for stem, path in environment_files(dirs).items():
        file = EnvironmentFile(path, dirs)
        if FACTS in file.block:
            facts, source = _facts(file)
            assert collect(describe(_config(stem)[0]), facts, source)["description"], stem


def test_images_are_not_listed_pixel_by_pixel() -> None:
    import gymnasium as gym
    import numpy as np

    from ludus.envs.info import EnvInfo

    env = EnvInfo("Pixels-v0", gym.spaces.Box(0, 255, (3, 84, 84), np.uint8), gym.spaces.MultiDiscrete([3, 2]))
    found = collect(env, EnvironmentFacts())
    assert (found["observation"]["low"], found["observation"]["high"]) == (0.0, 255.0)
    assert found["action"]["n"] == [3, 2]


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    list_environments()
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("CartPole-v1") and "ppo" in line for line in lines)
    list_environments("cliff")
    assert capsys.readouterr().out == ""
    list_environments("cliff", everything=True, as_json=True)
    assert "CliffWalking-v1" in json.loads(capsys.readouterr().out)


def test_listing_is_light() -> None:
    code = (
        "import sys; from ludus.cli import run\n"
        "for words in (['env', '--help'], ['env', 'list'], ['migrate', '--help']):\n"
        "    assert run(words) == 0\n"
        "assert not {'torch', 'gymnasium'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
