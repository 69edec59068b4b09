"""Settings as options, by one rule over the alias table; user code that only the command line can name."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import yaml

from ludus import cli
from ludus.cli import job as job_module
from ludus.config.aliases import ALIASES, SWITCHES
from ludus.envs import check

OWN = '''\
import gymnasium as gym
import numpy as np


class Reach(gym.Env):
    """A Dict observation of float64 that leaves its bounds by a rounding error."""

    def __init__(self, size=1.0, render_mode=None):
        box = gym.spaces.Box(-1.0, 1.0, (2,), np.float64)
        self.observation_space = gym.spaces.Dict({"position": box, "goal": box})
        self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        return self.seen(), -1.0, self.steps > 5, False, {}

    def seen(self):
        return {"position": np.full(2, 1.0000000000000002), "goal": np.zeros(2)}


gym.register("Registered-v0", Reach)
'''


@pytest.fixture
def ludus(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the command beside a module of the user's; what it registers is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job_module, "debugger_attached", lambda: False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_tasks.py").write_text(OWN)
    before = set(gym.registry)

    def run(line: str) -> types.SimpleNamespace:
        with pytest.raises(SystemExit) as stop:
            cli.main(line.split())
        captured = capsys.readouterr()
        return types.SimpleNamespace(code=stop.value.code, out=captured.out, err=captured.err)

    monkeypatch.setattr(check, "_announced", set())
    yield run
    sys.modules.pop("own_tasks", None)
    for id in set(gym.registry) - before:
        del gym.registry[id]


@pytest.fixture
def job(ludus: Any) -> Any:
    """The resolved config of a command."""

    def job(line: str) -> Any:
        result = ludus(f"train {line} --cfg job")
        assert result.code == 0, result.err
        return yaml.safe_load(result.out)

    return job


@pytest.mark.parametrize(
    ("options", "overrides"),
    [
        ("--num-envs 4 --batch-size 0.5", "num_envs=4 batch_size=0.5"),
        ("--num_envs=4 --learning-rate=1e-3", "num_envs=4 lr=1e-3"),
        ("--track --norm-adv --update-epochs 3", "logging.wandb.enabled=true algorithm.epochs=3"),
        ("--no-norm-adv --no-track", "algorithm.normalize_advantage=false"),
        ("--norm-adv False --track True", "algorithm.normalize_advantage=false track=true"),
        ("--core trxl --trxl-dim 512", "network.memory={type: trxl, hidden_dim: 512}"),
        ("--mamba-version v2 --hidden-dim 32", "network.memory={type: mamba2, hidden_dim: 32}"),
        ("--save-interval 100", "training.checkpoints.every_updates=100"),
        ("--algorithm.lr 1e-3 --network.memory.type gru", "lr=1e-3 core=gru"),
        ("--masked-indices 1,3", "environment.wrappers=[{id: mask_observation, indices: [1, 3]}]"),
        ("--policy-lr-schedule linear --anneal-lr", "algorithm.lr={start: 0.001, end: 0.0}"),
        ("--exp-name mine --wandb-project-name ppo-mamba", "experiment.name=mine logging.wandb.project=ppo-mamba"),
        ("--subproc --capture-video", "vectorization=async training.evaluation.video.every_evaluations=1"),
    ],
)
def test_an_option_is_an_override(job, capsys, tmp_path, options, overrides):
    with pytest.raises(SystemExit):
        words = overrides.replace(": ", ":").replace(", ", ",").split()
        cli.main(["train", "CartPole-v1:ppo", *words, "--cfg", "job"])
    meant = yaml.safe_load(capsys.readouterr().out)
    assert job(f"CartPole-v1:ppo {options}") == job(f"{options} CartPole-v1:ppo") == meant


def test_every_alias_is_an_option(ludus):
    examples = {"optimizer": "adam", "phases": "[]", "tags": "[a]"}
    for alias, path in ALIASES.items():
        if "." in alias:
            continue
        value = "" if alias in SWITCHES else examples.get(alias, "1")
        result = ludus(f"train CartPole-v1:ppo --{alias.replace('_', '-')} {value} --cfg job")
        refused = "No such option" in result.err or "unknown key" in result.err.partition("; ")[0]
        elsewhere = path.startswith(("algorithm.", "network.memory.")) and "unknown key" in result.err
        assert elsewhere or not refused, f"--{alias}: {result.err}"


def test_options_of_the_zoo_and_of_cleanrl_name_what_to_train(job):
    assert job("--algo dqn --env CartPole-v1 -q")["algorithm"]["name"] == "dqn"
    config = job("--gym-id Acrobot-v1 --total-timesteps 500 --seed 3")
    assert (config["environment"]["id"], config["algorithm"]["name"]) == ("Acrobot-v1", "ppo")
    assert (config["training"]["total_timesteps"], config["experiment"]["seed"]) == (500, 3)
    other = job("CartPole-v1:ppo --gym-id Acrobot-v1")
    assert other["environment"]["id"] == "Acrobot-v1" and other["experiment"]["name"] == "Acrobot-v1-ppo"


def test_other_commands_take_them_too(ludus):
    shown = ludus("config show CartPole-v1:ppo --num-envs 4")
    assert yaml.safe_load(shown.out)["environment"]["num_envs"] == 4
    assert "64" in ludus("model CartPole-v1:ppo --core gru --rnn-hidden-dim 64").out
    assert "No such option" in ludus("list --num-envs 4").err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train CartPole-v1:ppo --lerning-rate 1", "did you mean '--learning-rate'?"),
        ("train CartPole-v1:ppo --num-envs", "--num-envs: needs a value"),
        ("train CartPole-v1:ppo --multirun", "one command trains one config; write --seed 1,2,3"),
        ("train CartPole-v1:ppo --torch-deterministic", "every run is deterministic"),
        ("train --algo ppo", "an algorithm without an environment; write CartPole-v1:ppo"),
        ("train ppo CartPole-v1", "write CartPole-v1:ppo"),
        ("train CartPole-v1:ppo algorithm.lr 1e-3", "write algorithm.lr=1e-3"),
        ("train CartPole-v1:ppo algorithm.lr=1e-3,1e-4", "several values for one run; write ludus sweep"),
        ("train CartPole-v1", "names no variant; write Env:variant, such as CartPole-v1:ppo"),
        ("train Own-v0:ppo --import no_such_module", "there is no module 'no_such_module'; pip install no-such-module"),
        ("train Own-v0:ppo --import own_tasks:Nothing", "own_tasks has no class 'Nothing'"),
    ],
)
def test_mistakes_say_what_to_type(ludus, line, words):
    result = ludus(line)
    assert result.code == 2 and words in result.err and result.err.count("\n") == 1, result.err


@pytest.mark.parametrize(
    "line",
    [
        "own_tasks:Reach:ppo",
        "Registered-v0:ppo --import own_tasks",
        "Registered-v0:ppo --plugin own_tasks.py",
        "--env own_tasks:Reach",
        "CartPole-v1:ppo environment.id=own_tasks:Reach",
    ],
)
def test_an_own_environment_in_a_file_is_one_command(ludus, tmp_path, line):
    result = ludus(f"train {line} -q --total-timesteps 256 --num-envs 2 --num-steps 16 --batch-size 0.5")
    assert result.code == 0, result.err
    assert result.err.count("leave their bounds by a rounding error") == 1
    (folder,) = [path for path in (tmp_path / "runs").iterdir() if path.is_dir() and not path.is_symlink()]
    name = "Registered-v0-ppo" if "Registered" in line else "own_tasks-Reach-ppo"
    assert folder.name.startswith(name)
    assert json.loads((folder / "status.json").read_text())["state"] == "finished"
    if "CartPole" not in line:
        assert "(preset continuous + ppo + ppo-continuous)" in result.out


def test_a_config_cannot_import_code(ludus, tmp_path):
    (tmp_path / "foreign.yaml").write_text("environment: {id: 'own_tasks:Reach'}\nalgorithm: ppo\n")
    result = ludus("train foreign.yaml -q")
    assert result.code == 2 and "add --import own_tasks:Reach" in result.err and "own_tasks" not in sys.modules


def test_the_preset_is_named(ludus):
    assert ludus("train MountainCarContinuous-v0:sac --cfg job").out.startswith(
        "# MountainCarContinuous-v0 has no config file for this: preset continuous + sac (configs/presets)\n"
    )
    origins = ludus("config show MountainCarContinuous-v0:sac --origin").out
    assert "presets/sac.yaml:" in origins and origins.startswith("# ")
