"""No secret survives in a recorded command line."""

from __future__ import annotations

import pytest

from ludus.config.compose import load
from ludus.errors import ConfigError
from ludus.secrets import hide, scrub


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key", "canary"],
        ["--wandb-token=canary"],
        ["logging.wandb.api_key=canary"],
        ["HF_TOKEN=canary"],
        ["--password", "canary", "x"],
        ["algorithm.lr=1", "note=canary12345suffix"],
        ["hf_canary12345canary12345"],
        ["a=0123456789abcdef0123456789abcdef01234567"],
    ],
)
def test_hidden(argv: list[str]) -> None:
    text = " ".join(scrub(["ludus", *argv], {"MY_SECRET": "canary12345"}))
    assert "canary" not in text
    assert "0123456789abcdef" not in text
    assert "***" in text


def test_the_rest_is_kept() -> None:
    argv = [
        "ludus",
        "train",
        "CartPole-v1:ppo",
        "algorithm.lr=1e-3",
        "--seed",
        "1,2",
        "environment.id=MonkeyKeyDoor-v0",
    ]
    assert scrub(argv, {"PATH": "/usr/bin", "TOKEN": "short"}) == argv


def test_a_place_of_a_secret_is_no_secret() -> None:
    """A message about the key file has to name it."""
    assert hide("/home/me/key: is not readable", {"LUDUS_KEY_FILE": "/home/me/key"}) == "/home/me/key: is not readable"
    assert hide("it is /home/me/key", {"LUDUS_KEY": "/home/me/key"}) == "it is ***"


def test_the_value_of_a_secret_variable_is_refused_wherever_it_is_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    override = "experiment.description=before-correct-horse-after"
    monkeypatch.setenv("MY_PASSWORD", "correct-horse")
    with pytest.raises(ConfigError, match="looks like a secret") as caught:
        load("CartPole-v1:ppo", [override])
    assert "correct-horse" not in caught.value.line()
    monkeypatch.delenv("MY_PASSWORD")
    load("CartPole-v1:ppo", [override])
