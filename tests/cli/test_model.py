"""`ludus model`: what every algorithm learns."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus import cli
from ludus.registry import ALGORITHMS

SPECS = {"sac": "Pendulum-v1:sac", "td3": "Pendulum-v1:td3", "q_learning": "FrozenLake-v1:q_learning"}
SPECS["planet"], SPECS["tdmpc"] = "Pendulum-v1:planet", "Pendulum-v1:tdmpc2"
SPECS["diffusion_policy"] = "Pendulum-v1:diffusion_policy"
NAMES = [name for name in ALGORITHMS.names() if ALGORITHMS[name].__module__.startswith("ludus.")]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def model(*words: str) -> str:
        with pytest.raises(SystemExit) as stop:
            cli.main(["model", *words])
        assert stop.value.code == 0
        return capsys.readouterr().out

    return model


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_shows_what_it_learns(name: str, shown) -> None:
    text = shown(SPECS.get(name, f"CartPole-v1:{name}"))
    without = {
        "q_learning": "has no network, but a table of 16 x 4 numbers",
        "random": "has no network and learns nothing",
    }
    if name in without:
        assert f"{name} {without[name]}" in text
    else:
        assert "has no network" not in text and "Linear(" in text and "\ntotal  " in text


def test_critics_and_targets_of_sac(shown) -> None:
    text = shown("Pendulum-v1:sac", "network.critic.hidden_dims=[8]", "network.actor.hidden_dims=[8]")
    assert "critic  98 parameters" in text  # two of (3 + 1) x 8 + 8 + 8 + 1
    assert "actor  50 parameters" in text  # 3 x 8 + 8 + 8 x 2 + 2
    assert "target_critic  a slow copy of critic" in text
    assert "total  149 parameters that learn" in text  # and the temperature


def test_both_streams_of_a_dueling_dqn(shown) -> None:
    text = shown("CartPole-v1:dqn", "network.critic.hidden_dims=[8]", "algorithm.dueling=true")
    assert "head  107 parameters" in text and "(advantage)" in text and "(value)" in text
    assert "total  107 parameters that learn" in text


def test_a_deviation_of_its_own_is_shown(shown) -> None:
    assert "log_std  1 parameters" in shown("Pendulum-v1:ppo")
