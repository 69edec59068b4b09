"""Config groups and defaults lists, end to end: what is shipped, and a user's own ./configs over it (E45-E48)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import ludus
from ludus.cli import main
from ludus.config.compose import find_experiments, load
from ludus.config.groups import options

CONFIGS = Path(ludus.__file__).parent / "configs"
Job = Callable[..., dict]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Job:
    """`ludus train WORDS --cfg job` in an empty folder, as data."""
    monkeypatch.chdir(tmp_path)

    def job(*words: str) -> dict:
        with pytest.raises(SystemExit) as ended:
            main(["train", *words, "--cfg", "job"])
        found = capsys.readouterr()
        assert ended.value.code == 0, found.err
        return yaml.safe_load(found.out)

    return job


def test_every_option_is_used_by_a_shipped_experiment_or_loads_by_itself(job: Job):
    for group, spec in {
        "network": "CartPole-v1:ppo",
        "algorithm": "CartPole-v1:ppo",
        "buffer": "CartPole-v1:dqn",
    }.items():
        for name in options(group, [CONFIGS]):
            job(spec, f"+{group}={name}")
    text = "".join(path.read_text() for path in (CONFIGS / "experiments").glob("*.yaml"))
    for group in ("head", "workflow"):
        for name in options(group, [CONFIGS]):
            assert f": {name}\n" in text, f"{group}/{name}"


def test_a_package_puts_one_group_in_two_places(job: Job):
    config = job("+experiment=cartpole_asymmetric")
    assert config["network"]["actor"]["hidden_dims"] == [32]
    assert config["network"]["critic"]["hidden_dims"] == [256, 256]
    assert config["algorithm"]["lr"]["start"] == 2.5e-4 and config["environment"]["num_envs"] == 4
    assert job("+experiment=pendulum_wide")["network"]["actor"]["hidden_dims"] == [256, 256]
    assert job("+experiment=cartpole_prioritized")["buffers"]["replay"]["type"] == "prioritized"
    phases = job("+experiment=cartpole_hybrid")["training"]["phases"]
    assert [phase["name"] for phase in phases] == ["warm_up", "pretrain", "online"]


def test_the_defaults_of_other_tools_are_options(job: Job):
    algorithm = job("CartPole-v1:ppo", "+algorithm=solver_ppo")["algorithm"]
    assert algorithm["optimizer"]["type"] == "adamw" and algorithm["optimizer"]["weight_decay"] == 0.01
    assert algorithm["rollout_steps"] == job("CartPole-v1:ppo")["algorithm"]["rollout_steps"]
    assert job("CartPole-v1:ppo", "+algorithm=cleanrl_ppo")["algorithm"]["optimizer"]["type"] == "adam"


def test_a_budget_is_an_option_and_labels_the_run(job: Job):
    steps = {}
    for name in options("budget", [CONFIGS]):
        config = job("CartPole-v1:ppo", f"+budget={name}")
        steps[name] = config["training"]["total_timesteps"]
        assert config["experiment"]["tags"] == [name]
        assert config["algorithm"] == job("CartPole-v1:ppo")["algorithm"]
    assert sorted(steps, key=steps.get) == ["smoke", "tiny", "chapter", "stretch"]


def test_an_option_is_replaced_on_the_command_line(job: Job):
    config = job("+experiment=pendulum_wide", "network=gru")
    assert config["network"]["memory"]["type"] == "gru" and config["network"]["actor"]["hidden_dims"] == [64]
    config = job("+experiment=cartpole_asymmetric", "head@network.critic=small", "network.actor.hidden_dims=[7]")
    assert [config["network"][head]["hidden_dims"] for head in ("actor", "critic")] == [[7], [32]]


def test_every_value_of_an_option_has_its_file_as_origin():
    origin = load("+experiment=cartpole_asymmetric").origin
    assert origin["network.critic.hidden_dims"].endswith("configs/heads/large.yaml:2")
    assert origin["algorithm.epochs"].endswith("configs/algorithms/cleanrl_ppo.yaml:4")
    assert "CartPole-v1.yaml" in origin["training.evaluation.episodes"]


def test_a_users_configs_lie_over_the_shipped_ones(job: Job, tmp_path: Path):
    files = {
        "networks/wide.yaml": "actor: {hidden_dims: [999]}\n",
        "networks/mine.yaml": "# @package network.critic\nhidden_dims: [5]\n",
        "experiments/mine.yaml": "defaults: [pendulum_wide, /network@network.critic: mine, /head@network.actor: small]",
    }
    for name, text in files.items():
        path = tmp_path / "configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert "+experiment=mine" in find_experiments() and "+experiment=pendulum_wide" in find_experiments()
    assert job("+experiment=pendulum_wide")["network"]["actor"]["hidden_dims"] == [999]
    mine = job("+experiment=mine")["network"]
    assert (mine["actor"]["hidden_dims"], mine["critic"]["hidden_dims"]) == ([32], [5])
    assert job("CartPole-v1:ppo", "+network=mine")["network"]["critic"]["hidden_dims"] == [5]
    assert job("CartPole-v1:ppo", "+network=wide")["network"]["actor"]["hidden_dims"] == [999]
    spec = f"{CONFIGS}/environments/CartPole-v1.yaml:ppo"
    assert job(spec, "+network=wide")["network"]["actor"]["hidden_dims"] == [999]
    assert job("CartPole-v1:ppo", "+network=gru")["network"]["memory"]["type"] == "gru"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("defaults: [CartPole-v1:ppo, /network: wde]\n", "no config 'network/wde'; did you mean 'wide'?"),
        ("defaults: [CartPole-v1:ppp]\n", "no config 'experiment/CartPole-v1:ppp'; did you mean 'CartPole-v1:ppo'?"),
        ("defaults: [CartPole-v1:ppo, /netwrk: wide]\n", "no config 'netwrk/wide'"),
        ("defaults: [CartPole-v1:ppo, /network@netwrok: wide]\n", "netwrok: unknown key; did you mean 'network'?"),
        ("defaults: [CartPole-v1:ppo, {/network: wide, /head: small}]\n", "Too many keys in default item"),
        ("defaults: [CartPole-v1:ppo, 3]\n", "Unsupported type in defaults"),
        ("defaults: CartPole-v1:ppo\n", "must be a list"),
    ],
)
def test_mistakes_in_a_defaults_list_are_one_line(tmp_path, monkeypatch, capsys, text: str, words: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs" / "experiments").mkdir(parents=True)
    (tmp_path / "configs" / "experiments" / "bad.yaml").write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["train", "+experiment=bad", "--cfg", "job"])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and words in error and error.count("\n") == 1, error
