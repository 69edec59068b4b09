"""Environment files: shared fields, variants, inheritance (requirements E02-E06)."""

from __future__ import annotations

import pytest

from ludus.config.compose import config_hash, find_targets, load_config
from ludus.errors import ConfigError


def test_base_fields_at_the_top_or_under_base(write, get):
    write("environments/A-v0.yaml", "env_id: CartPole-v1\nn_envs: 4\nseed: 1\nppo: {algo_id: ppo, seed: 2}\n")
    write("environments/B-v0.yaml", "_base: {env_id: CartPole-v1, n_envs: 4, seed: 1}\nppo: {algo_id: ppo, seed: 2}\n")
    a, b = get("A-v0:ppo", "experiment.name=x").config, get("B-v0:ppo", "experiment.name=x").config
    assert a == b and a.environment.num_envs == 4 and a.experiment.seed == 2


def test_nested_and_flat_variants_are_equal(write, get):
    write(
        "environments/A-v0.yaml",
        """\
        flat: {env_id: CartPole-v1, algo_id: ppo, policy_lr: 1e-3, hidden_dims: [8]}
        nested:
          environment: {id: CartPole-v1}
          algorithm: {name: ppo, lr: 1e-3}
          network: {encoder: {hidden_dims: [8]}}
        """,
    )
    assert get("A-v0:flat").config == get("A-v0:nested").config


def test_the_file_name_is_the_default_id_and_project(write, get):
    write("environments/CartPole-v1.yaml", "ppo: {algo_id: ppo}\nmine: {algo_id: ppo, project_id: other}\n")
    config = get("CartPole-v1:ppo").config
    assert (config.environment.id, config.experiment.name) == ("CartPole-v1", "CartPole-v1")
    assert get("CartPole-v1:mine").config.experiment.name == "other"


def test_ids_with_a_slash(write, get):
    write("environments/ALE-Pong-v5.yaml", "ppo: {env_id: ALE/Pong-v5, algo_id: ppo}\n")
    one, other = get("ALE/Pong-v5:ppo"), get("ALE-Pong-v5:ppo")
    assert config_hash(one.config) == config_hash(other.config) and one.config.environment.id == "ALE/Pong-v5"


def test_anchors_keep_yaml_rules_and_the_own_keys_win(cartpole, get):
    config = get("CartPole-v1:ppo").config
    assert config.training.total_timesteps == 100_000 and config.environment.num_envs == 8
    assert config.algorithm.config.lr.end == 0.0 and config.experiment.description == "the usual"


def test_an_anchor_in_flat_names_under_a_variant_in_sections(write, get):
    write(
        "environments/A-v0.yaml",
        "_flat: &flat {env_id: CartPole-v1, algo_id: ppo, policy_lr: 1e-3}\nppo: {<<: *flat, algorithm: {lr: 2e-3}}\n",
    )
    assert get("A-v0:ppo").config.algorithm.config.lr.start == 2e-3


def test_extends_merges_deeply_and_drops_the_keys_of_another_choice(cartpole, write, get):
    write(
        "environments/CartPole-v1.yaml",
        cartpole.read_text()
        + """
no_memory: {extends: gru, network: {memory: none}}
wider: {extends: gru, network: {memory: {hidden_dim: 32}}}
reinforce: {extends: ppo, algo_id: reinforce}
both: {extends: [wider, reinforce]}
""",
    )
    assert get("CartPole-v1:gru").config.algorithm.config.epochs == 20
    assert get("CartPole-v1:no_memory").config.network.memory.name == "none"
    assert get("CartPole-v1:wider").config.network.memory.config.hidden_dim == 32
    reinforce = get("CartPole-v1:reinforce").config.algorithm
    assert reinforce.name == "reinforce" and reinforce.config.rollout_steps == 512, "a key of ppo came along"
    both = get("CartPole-v1:both").config
    assert both.algorithm.name == "reinforce" and both.network.memory.config.hidden_dim == 32


def test_extends_another_file_keeps_the_own_id(cartpole, write, get):
    write("environments/Acrobot-v1.yaml", "ppo: {extends: 'CartPole-v1:ppo', env_id: Acrobot-v1}\n")
    config = get("Acrobot-v1:ppo").config
    assert config.experiment.name == "Acrobot-v1" and config.algorithm.config.epochs == 20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: {extends: b}\nb: {extends: a}\n", "a -> A-v0:b -> A-v0:a"),
        ("a: {extends: a}\n", "each other"),
        ("a: {extends: 'A-v0:a'}\n", "each other"),
        ("a: {extends: bb}\nb: {algo_id: ppo}\n", "extends 'bb'"),
        ("a: {extends: 3}\n", "must be a name"),
        ("a: {extends: 'B-v0:x'}\n", "no config for environment"),
        ("algoritm: {name: ppo}\na: {}\n", "did you mean 'algorithm'"),
        ("n_env: 3\na: {}\n", "did you mean 'n_envs'"),
        ("a: {algo_id: ppo, algorithm: {nmae: ppo}}\n", "algorithm.nmae"),
    ],
)
def test_bad_environment_files(write, refused, text, words):
    write("environments/A-v0.yaml", text)
    assert words in refused("A-v0:a")


def test_facts_about_the_environment_are_no_variant(write, tmp_path):
    write("environments/A-v0.yaml", "spec: {action_space: {labels: {0: left}}}\n_x: {seed: 1}\nppo: {algo_id: ppo}\n")
    assert [target.spec for target in find_targets(config_dirs=[tmp_path])] == ["A-v0:ppo"]


def test_missing_environment_and_variant(cartpole, refused):
    assert "did you mean 'CartPole-v1'" in refused("Cartpole-v1:ppo")
    assert "did you mean 'ppo'" in refused("CartPole-v1:pp")
    assert "CartPole-v1:ppo" in refused("CartPole"), "a name without a variant lists what there is"
    assert "not an environment id" in refused("../../etc/passwd:ppo")


def test_listing_finds_by_name_description_and_nearness(cartpole, tmp_path):
    def specs(search):
        return [target.spec for target in find_targets(search, config_dirs=[tmp_path])]

    assert specs(None) == ["CartPole-v1:ppo", "CartPole-v1:gru"] == specs("cartpole") == specs("CratPole-v1")
    assert specs("usual") == ["CartPole-v1:ppo", "CartPole-v1:gru"] and specs("gru") == ["CartPole-v1:gru"]
    assert specs("Humanoid") == []


def test_a_nearer_directory_hides_a_later_one(cartpole, write, tmp_path):
    near = write("near/environments/CartPole-v1.yaml", "mine: {algo_id: random}\n").parent.parent
    assert [target.spec for target in find_targets(config_dirs=[near, tmp_path])] == ["CartPole-v1:mine"]


def test_the_working_directory_overlays_the_package(write, tmp_path, monkeypatch):
    write("configs/environments/CartPole-v1.yaml", "mine: {algo_id: random, env_id: CartPole-v1}\n")
    monkeypatch.chdir(tmp_path)
    names = [target.spec for target in find_targets()]
    assert "CartPole-v1:mine" in names and "CartPole-v1:ppo" not in names and "Bandit-v0:ppo" in names


def test_both_names_are_needed():
    with pytest.raises(TypeError):
        load_config("CartPole-v1")  # type: ignore[call-arg]
    assert load_config("CartPole-v1", "ppo", "seed=3").experiment.seed == 3


def test_versions_may_be_left_out_and_dashes_be_underscores(write, get):
    write("environments/Grid-Empty-8x8-v0.yaml", "ppo: {algo_id: ppo}\n")
    write("environments/dmc-cart_swingup.yaml", "ppo: {env_id: dmc/cart_swingup, algo_id: ppo}\n")
    assert get("Grid-Empty-8x8:ppo").config == get("Grid-Empty-8x8-v0:ppo").config
    for spec in ("dmc/cart-swingup:ppo", "dmc/cart_swingup:ppo", "dmc-cart_swingup:ppo"):
        assert get(spec).config.environment.id == "dmc/cart_swingup"
    write("environments/Grid-Empty-8x8-v1.yaml", "ppo: {algo_id: ppo}\n")
    with pytest.raises(ConfigError, match="did you mean"):
        get("Grid-Empty-8x8:ppo")


def test_valid_actions_are_a_fact_of_the_environment(write, get):
    facts = "spec: {action: {labels: [a, b, c, d], valid: [0, 2]}}\n"
    text = facts + "ppo: {algo_id: ppo}\nall: {algo_id: ppo, valid_actions: null}\n"
    write("environments/FrozenLake-v1.yaml", text)
    assert get("FrozenLake-v1:ppo").config.environment.valid_actions == (0, 2)
    assert get("FrozenLake-v1:all").config.environment.valid_actions is None
    assert get("FrozenLake-v1:ppo", "spec.action_space.valid=[1]").config.environment.valid_actions == (1,)
