"""Another environment or algorithm than the variant's: goals go, the name follows, lost values are told."""

from __future__ import annotations

import pytest

from ludus.config.compose import load
from ludus.config.schema import Network
from ludus.errors import ConfigError


def test_another_environment_has_no_goal_of_the_old_one(cartpole, write, get):
    write("environments/Pendulum-v1.yaml", "ppo: {algo_id: ppo, reward_threshold: -200, "
          "training: {stop: {eval_reward: threshold, train_reward: -150}}}\n")  # fmt: skip
    resolved = get("Pendulum-v1:ppo", "environment.id=MountainCar-v0")
    config = resolved.config
    assert config.environment.reward_threshold is None
    assert config.training.stop.eval_reward is config.training.stop.train_reward is None
    assert resolved.run_name == "MountainCar-v0-ppo"
    (note,) = resolved.notes
    assert "environment.reward_threshold" in note and "Pendulum-v1:ppo" in note
    kept = get("Pendulum-v1:ppo", "environment.id=MountainCar-v0", "environment.reward_threshold=-110")
    assert kept.config.environment.reward_threshold == -110, "a goal of the user's own stays"


def test_another_algorithm_says_what_it_loses():
    resolved = load("CartPole-v1:ppo", ["algorithm.name=a2c", "algorithm.gamma=0.9"])
    (note,) = resolved.notes
    assert note.startswith("algorithm.name=a2c: rollout_steps, epochs,") and "gamma" not in note.partition(" of ")[0]
    assert resolved.run_name == "CartPole-v1-a2c" and resolved.config.environment.id == "CartPole-v1"


@pytest.mark.parametrize(
    ("spec", "override", "answer"),
    [
        ("CartPole-v1:dreamer", "network.memory.type=gru", "dreamer does not use network.memory; leave it out"),
        ("CartPole-v1:dreamer", "core=gru", "dreamer does not use network.memory; leave it out"),
        ("CartPole-v1:dreamer", "hidden_dims=[64]", "dreamer does not use network.encoder; set algorithm.encoder"),
        ("CartPole-v1:dreamer", "network={actor: {hidden_dims: [8]}}", "network.actor; set algorithm.actor"),
        ("Pendulum-v1:planet", "network.memory=lstm", "planet does not use network.memory; leave it out"),
        ("Taxi-v4:q_learning", "network.encoder.type=mlp", "q_learning does not use network.encoder; leave it out"),
        ("CartPole-v1:dqn", "network.actor.hidden_dims=[8]", "dqn does not use network.actor; leave it out"),
        ("CartPole-v1:reinforce", "network.critic.hidden_dims=[8]", "reinforce does not use network.critic; leave it"),
    ],
)
def test_a_network_that_nobody_uses_is_refused(spec, override, answer):
    with pytest.raises(ConfigError) as caught:
        load(spec, [override])
    line = caught.value.line()
    assert line.startswith(f"{override}: ") and answer in line and "\n" not in line


def test_a_network_of_a_file_that_nobody_uses_is_left_out_and_told(cartpole, write, get):
    changed = load("CartPole-v1:ppo_gru_masked", ["algorithm.name=dreamer"])
    assert changed.notes[-1] == "network.memory, network.actor, network.critic: left out, dreamer does not use them"
    assert changed.config.network == Network()
    write(
        "environments/Mine-v0.yaml",
        """\
        _base: {env_id: CartPole-v1, network: {memory: gru, actor: {hidden_dims: [8]}}}
        dreamer: {extends: _base, algorithm: dreamer}
        ppo: {extends: _base, algorithm: ppo}
        """,
    )
    mine = get("Mine-v0:dreamer")
    assert mine.notes == ("network.memory, network.actor: left out, dreamer does not use them",)
    assert mine.config.network == Network()
    assert get("Mine-v0:ppo").notes == () and get("Mine-v0:ppo").config.network.memory.name == "gru"
    wide = load("CartPole-v1:dreamer", ["+network=wide"])
    assert wide.notes == ("network.actor, network.critic: left out, dreamer does not use them",)


@pytest.mark.parametrize("spec", ["MinAtar/Breakout-v1:dreamer", "FrozenLake-v1:q_learning", "CartPole-v1:random"])
def test_a_shipped_variant_knows_what_it_does_not_use(spec):
    resolved = load(spec)
    assert resolved.notes == () and resolved.config.network == Network()


def test_names_say_what_is_trained():
    names = {
        "CartPole-v1:ppo_gru_masked": "CartPole-v1-ppo_gru_masked",
        "CartPole:ppo": "CartPole-v1-ppo",
        "ALE/Pong-v5:ppo": "ALE-Pong-v5-ppo",
        "+experiment=cartpole_curriculum": "cartpole_curriculum",
    }
    for spec, name in names.items():
        assert load(spec).run_name == name
    assert load("CartPole-v1:ppo", ["experiment.name=mine", "environment.id=Acrobot-v1"]).run_name == "mine"
    assert load("CartPole-v1:ppo", ["environment.id=CartPole-v1"]).notes == ()
