"""Specs, experiments, overrides, references: many ways in, one config out (A17-A21, E46-E57, faults 34-39)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.config.compose import Resolved, config_hash, dump, load, parse, to_yaml
from ludus.config.read import read_file


@pytest.fixture
def tree(cartpole, write):
    write("experiments/listed.yaml", "# @package _global_\ndefaults: [CartPole-v1:ppo, _self_]\n")
    write("experiments/bare.yaml", "extends: CartPole-v1:ppo\n")
    write("experiments/deep.yaml", "defaults: [listed, /algorithm: fast, _self_]\nseed: 5\nnetwork: {memory: gru}\n")
    write("algorithms/fast.yaml", "learning_rate: 5e-3\n")
    write("budget/small.yaml", "# @package training\ntotal_timesteps: 77\n")


def test_one_experiment_by_every_way_has_one_hash(tree, write, get, tmp_path):
    whole = get("CartPole-v1:ppo")
    write("saved.yaml", to_yaml(whole.config))
    write("saved.json", json.dumps(dump(whole.config)))
    specs = [
        "+experiment=CartPole-v1:ppo",
        "+experiment=listed",
        "+experiment=bare",
        f"{tmp_path}/environments/CartPole-v1.yaml:ppo",
        f"{tmp_path}/experiments/listed.yaml",
        f"{tmp_path}/experiments/bare.yaml",
        f"{tmp_path}/saved.yaml",
        f"{tmp_path}/saved.json",
    ]
    assert {config_hash(get(spec).config) for spec in specs} == {config_hash(whole.config)}
    assert parse(dump(whole.config), "saved") == whole.config


def test_groups_defaults_and_packages(tree, get, refused):
    config = get("+experiment=deep").config
    assert config.algorithm.config.lr.start == 5e-3 and config.algorithm.config.epochs == 20
    assert config.experiment.seed == 5 and config.network.memory.name == "gru"
    assert get("CartPole-v1:ppo", "+budget=small").config.training.total_timesteps == 77
    assert get("+experiment=deep", "+budget=small", "seed=9").config.experiment.seed == 9
    assert "did you mean 'small'" in refused("CartPole-v1:ppo", "+budget=smal")
    assert "+budget=small" in refused("CartPole-v1:ppo", "budget=small")
    assert "did you mean 'listed'" in refused("+experiment=lsted")
    refused("+experiment=../budget/small")


def test_a_root_config_comes_first(tree, write, get):
    write("config.yaml", "defaults: [_self_]\nseed: 11\nmax_grad_norm: 9\n")
    config = get("+experiment=deep").config
    assert config.experiment.seed == 5 and config.algorithm.config.max_grad_norm == 9


def test_hydra_leaves_nothing_behind(tree, get):
    from hydra.core.global_hydra import GlobalHydra

    before = Path.cwd()
    get("+experiment=deep")
    assert not GlobalHydra.instance().is_initialized() and Path.cwd() == before


def test_strict_reading_holds_for_every_file_of_an_experiment(tree, write, refused):
    write("algorithms/fast.yaml", "lr: 1\ngamma: 0.9\nlr: 2\n")
    assert "lines 1 and 3" in refused("+experiment=deep")
    write("algorithms/fast.yaml", "lrr: 1\n")
    line = refused("+experiment=deep")
    assert "fast.yaml:1: algorithm.lrr: unknown key; did you mean 'lr'" in line
    write("experiments/env.yaml", "defaults: ['${oc.env:HOME}']\n")
    assert "resolvers" in refused("+experiment=env")


@pytest.mark.parametrize(
    ("overrides", "check"),
    [
        (["policy_lr=1e-4"], lambda c: c.algorithm.config.lr.start == c.algorithm.config.lr.end == 1e-4),
        (["algorithm.lr={start: 1e-3, end: 1e-4}"], lambda c: c.algorithm.config.lr.end == 1e-4),
        (["algorithm.lr.end=1e-4"], lambda c: (c.algorithm.config.lr.start, c.algorithm.config.lr.end) == (1e-3, 1e-4)),
        (["~algorithm.lr"], lambda c: c.algorithm.config.lr.start == 3e-4),
        (["~policy_lr"], lambda c: c.algorithm.config.lr.start == 3e-4),
        (["++algorithm.gamma=0.5"], lambda c: c.algorithm.config.gamma.start == 0.5),
        (["+algorithm.gamma=0.5"], lambda c: c.algorithm.config.gamma.start == 0.5),
        (["training.total_timesteps=5e3"], lambda c: c.training.total_timesteps == 5_000),
        (
            ["environment.kwargs.x=[1, 'a b', {c: null}]"],
            lambda c: c.environment.kwargs == {"x": [1, "a b", {"c": None}]},
        ),
        (["algorithm.max_grad_norm=null"], lambda c: c.algorithm.config.max_grad_norm is None),
        (["network.memory.type=gru"], lambda c: c.network.memory.name == "gru"),
        (["algorithm.name=reinforce"], lambda c: c.algorithm.config.rollout_steps == 512),
        (["network.memory.hidden_dim=8", "network.memory.type=gru"], lambda c: c.network.memory.config.hidden_dim == 8),
        (["seed=1", "seed=2"], lambda c: c.experiment.seed == 2),
        (["clip_range_schedule_end_value=0.1"], lambda c: c.algorithm.config.clip.end == 0.1),
        (["training.stop.minutes=${experiment.seed}"], lambda c: c.training.stop.minutes == 42),
        (["description='${env_id} by ${algorithm.name}'"], lambda c: c.experiment.description == "CartPole-v1 by ppo"),
        (["environment.kwargs={a: '${environment.num_envs}'}"], lambda c: c.environment.kwargs == {"a": 8}),
    ],
)
def test_overrides(cartpole, get, overrides, check):
    assert check(get("CartPole-v1:ppo", *overrides).config)


def test_part_of_a_phase_can_be_overridden(cartpole, write, get):
    write(
        "environments/B-v0.yaml",
        "x: {extends: 'CartPole-v1:ppo', phases: [{name: a, hooks: [collect]}, {name: b, hooks: [c]}]}",
    )
    phases = get("B-v0:x", "training.phases.1.duration_steps=7").config.training.phases
    assert [(p.name, p.duration_steps) for p in phases] == [("a", None), ("b", 7)]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("algoritm.lr=1", "algoritm: unknown key; did you mean 'algorithm'?"),
        ("algorithm.gama=1", "algorithm.gama: unknown key; did you mean 'gamma'?"),
        ("algorithm.learing_rate=1", "did you mean 'learning_rate'?"),
        ("learing_rate=1", "did you mean 'learning_rate'?"),
        (
            "network.memory={type: gru, hiden_dim: 1}",
            "network.memory.hiden_dim: unknown key; did you mean 'hidden_dim'?",
        ),
        ("network.memory.type=gur", "network.memory: unknown memory 'gur'; did you mean 'gru'?"),
        ("algorithm.name=os.system", "unknown algorithm 'os.system'"),
        ("algorithm.optimizer.wieght_decay=1", "did you mean 'weight_decay'?"),
        ("training.evaluation.episode=1", "did you mean 'episodes'?"),
        ("algorithm.lr=-1", "algorithm.lr: must start above 0"),
        ("algorithm.lr=nan", "algorithm.lr: must be finite"),
        ("algorithm.lr=inf", "algorithm.lr: must be finite"),
        ("algorithm.gamma=1.5", "algorithm.gamma: must lie between 0 and 1, got 1.5"),
        ("algorithm.clip=0", "algorithm.clip: must start above 0"),
        ("algorithm.batch_size=0", "algorithm.batch_size: must be above 0, not 0"),
        ("environment.num_envs=0", "environment.num_envs: must be above 0 or 'auto', not 0"),
        ("environment.num_envs=2.5", "must be an integer or 'auto', not 2.5"),
        ("training.total_timesteps=1e18", "must be at most 1e+15"),
        ("experiment.seed=-1", "must be at least 0"),
        ("experiment.device=tpu", "'tpu' is not allowed"),
        ("environment.wrappers=[nope]", "environment.wrappers.0: unknown wrapper 'nope'"),
        ("environment.normalize_obs=no", "must be false, 'rolling' or 'static', not 'no'"),
        ("training.phases=[{name: a}]", "training.phases.0.hooks: is missing"),
        ("training.evaluation=null", "training.evaluation: must be a mapping, not null"),
        ("schema_version=2", "ludus migrate"),
        ("algorithm.lr=1,2", "several values"),
        ("algorithm.lr=choice(1,2)", "several values"),
        ("~algorithm.nothing", "no such value to take away"),
        ("~algorithm.epochs=3", "no such value to take away"),
        ("+algorithm.epochs=3", "is set already"),
        ("hydra.run.dir=/tmp/x", "not used"),
        ("algorithm.lr", "not an override"),
        ("algorithm.lr=$(id)", "not an override"),
        ("x@y=1", "no config group"),
        ("environment.kwargs._target_=os.system", "import paths are off"),
        ("environment.kwargs={a: [{_target_: os.system}]}", "import paths are off"),
        ("description=${oc.env:HOME}", "resolvers are off"),
        ("description='${oc.decode:${seed}}'", "not a plain reference"),
        ("description=${no.such}", "refers to nothing"),
        ("experiment.seed=${seed}", "circle: experiment.seed -> experiment.seed"),
    ],
)
def test_bad_overrides_are_one_line_that_starts_with_the_override(cartpole, refused, override, words):
    line = refused("CartPole-v1:ppo", override)
    assert line.startswith(override) and words in line


def test_a_circle_of_references_is_named(cartpole, refused):
    line = refused(
        "CartPole-v1:ppo", "training.stop.minutes=${algorithm.gamma}", "algorithm.gamma=${training.stop.minutes}"
    )
    assert "algorithm.gamma -> training.stop.minutes -> algorithm.gamma" in line


def test_references_cannot_explode(cartpole, write, refused):
    def nine(name):
        return ["${environment.kwargs." + name + "}"] * 9

    rows = ["a0: xxxxxxxxxx"] + [f"a{i + 1}: '{''.join(nine(f'a{i}'))}'" for i in range(9)]
    lists = ["b0: [1]"] + [f"b{i + 1}: {json.dumps(nine(f'b{i}'))}" for i in range(9)]
    for kwargs in (rows, lists):
        body = "\n      ".join(kwargs)
        write("bomb.yaml", f"extends: CartPole-v1:ppo\nenvironment:\n  kwargs:\n      {body}\n")
        started = time.process_time()
        refused(str(cartpole.parent.parent / "bomb.yaml"))
        assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "name",
    ["../../etc/x", "/abs", "~", "a/b", ".", "..", "CON", "lpt1.txt", "-rf", "x" * 300, "$(id)", "a\nb", "a\x07", ""],
)
def test_experiment_names_that_are_no_names(cartpole, get, name):
    from ludus.errors import ConfigError

    data = dump(get("CartPole-v1:ppo").config)
    with pytest.raises(ConfigError, match=r"experiment\.name"):
        parse({**data, "experiment": {"name": name}}, "x.yaml")


@pytest.mark.parametrize(
    "key", ["wandb_api_key", "WANDB_API_KEY", "hfToken", "aws_secret", "password", "token", "private_key"]
)
def test_secrets_are_refused_and_never_shown(cartpole, write, refused, key):
    for line in (
        refused("CartPole-v1:ppo", f"environment.kwargs.{key}=canary123"),
        refused("CartPole-v1:ppo", f"logging.wandb.{key}=canary123"),
        refused("CartPole-v1:ppo", f"{key}=canary123"),
    ):
        assert "secret" in line and "canary" not in line
    path = write("x.yaml", f"extends: CartPole-v1:ppo\nenvironment:\n  kwargs: {{deep: [{{{key}: canary123}}]}}\n")
    assert "canary" not in refused(str(path)) and "secret" in refused(str(path))


def test_harmless_keys_are_no_secrets(cartpole, get):
    kwargs = {
        "key": "image",
        "obs_key": "rgb",
        "token_dim": 8,
        "num_tokens": 3,
        "monkey": "x",
        "keyboard": "y",
        "token": "",
    }
    overrides = [f"environment.kwargs.{key}={value!r}" for key, value in kwargs.items()]
    assert get("CartPole-v1:ppo", *overrides).config.environment.kwargs == kwargs


@pytest.mark.parametrize("value", ["hf_" + "a" * 30, "sk-" + "b" * 40, "ghp_" + "c" * 36])
def test_tokens_are_known_by_their_shape(cartpole, refused, value):
    line = refused("CartPole-v1:ppo", f"environment.kwargs.model={value}")
    assert "secret" in line and value not in line
    assert "secret" in refused("CartPole-v1:ppo", f"environment.kwargs.key={'0a' * 20}")


def test_an_unknown_key_hides_a_value_that_might_be_secret(cartpole, refused):
    assert "canary" not in refused("CartPole-v1:ppo", "logging.wandb.key=canary")


def test_file_errors_name_file_line_and_field(write, refused):
    path = write("environments/A-v0.yaml", "ppo:\n  algo_id: ppo\n  algorithm:\n    lr: 1\n    gama: 2\n")
    assert refused("A-v0:ppo").startswith(f"{path}:5: algorithm.gama: unknown key; did you mean 'gamma'?")
    write("environments/A-v0.yaml", "ppo:\n  algo_id: ppo\n  policy_lr: -1\n")
    assert refused("A-v0:ppo").startswith(f"{path}:3: algorithm.lr: must start above 0")


def test_origins_and_their_order(cartpole, get):
    resolved = get("CartPole-v1:gru", "policy_lr=1e-4", "seed=3")
    assert resolved.origin["algorithm.lr"] == "policy_lr=1e-4" and resolved.origin["experiment.seed"] == "seed=3"
    assert resolved.origin["algorithm.epochs"] == f"{cartpole}:10"
    assert resolved.origin["network.memory.type"] == f"{cartpole}:16"
    assert resolved.config.algorithm.config.lr.start == 1e-4
    assert isinstance(resolved, Resolved) and resolved.data == dump(resolved.config)


def test_a_file_of_variants_asks_for_one(cartpole, refused):
    assert f"name one: {cartpole}:ppo" in refused(str(cartpole))
    assert "no such file" in refused("nowhere.yaml")


def test_the_hash_knows_values_not_their_order(cartpole, get, tmp_path):
    data = dump(get("CartPole-v1:ppo", "environment.kwargs={b: 1, a: {d: 2, c: 3}}").config)

    def reversed_(value):
        return {k: reversed_(v) for k, v in reversed(value.items())} if isinstance(value, dict) else value

    assert config_hash(parse(reversed_(data), "x")) == config_hash(parse(data, "x"))
    assert config_hash(parse({**data, "experiment": {"seed": 43}}, "x")) != config_hash(parse(data, "x"))
    for name, text in (("a.yaml", to_yaml(parse(data, "x"))), ("a.json", json.dumps(data))):
        (tmp_path / name).write_text(text)
        assert config_hash(parse(read_file(tmp_path / name), name)) == config_hash(parse(data, "x"))


VALUES = [
    "seed=3",
    "policy_lr=1e-4",
    "network.memory.type=gru",
    "network.memory.hidden_dim=8",
    "algorithm.clip={start: 0.3, end: 0.1}",
    "algorithm.gae_lambda=0.5",
    "environment.kwargs.a=1",
]


@given(st.permutations(VALUES))
def test_the_order_of_overrides_does_not_matter(values):
    found, expected = (load("CartPole-v1:ppo_gtrxl_masked", written).config for written in (values, VALUES))
    assert config_hash(found) == config_hash(expected)
    assert (found.network.memory.name, found.network.memory.config.hidden_dim) == ("gru", 8)


def test_the_shipped_configs_are_valid():
    from ludus.config.compose import find_experiments, find_targets

    for spec in [*(target.spec for target in find_targets()), *find_experiments()]:
        config = load(spec).config
        assert parse(dump(config), spec) == config
