"""Another environment or algorithm than the variant's: goals go, the name follows, lost values are told."""

from __future__ import annotations

from ludus.config.compose import load


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
