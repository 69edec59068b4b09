"""What no config may hold."""

from __future__ import annotations


def test_the_value_of_a_secret_variable_is_refused_wherever_it_is_pasted(cartpole, refused, get, monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", "correct-horse")
    message = refused("CartPole-v1:ppo", "experiment.description=before-correct-horse-after")
    assert "looks like a secret" in message and "correct-horse" not in message
    monkeypatch.delenv("MY_PASSWORD")
    get("CartPole-v1:ppo", "experiment.description=before-correct-horse-after")
