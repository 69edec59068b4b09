"""What newcomers type: every answer tells what to type next, or does what was meant (the list of first-day.md)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ludus import cli
from ludus.cli import job
from ludus.text import did_you_mean
from synthetic import make_run

CART = "CartPole-v1:ppo"

ANSWERED = [
    ("train CartPol-v1:ppo", "did you mean 'CartPole-v1'?"),
    ("train CartPole-v1:pppo", "has no variant 'pppo'; did you mean 'ppo'?"),
    ("train CartPole-v1:trpo", "has no variant 'trpo'; known: ppo, a2c, "),
    ("train MyEnv-v0:ppo", "add --import PACKAGE for the package that registers it, or write module:Class"),
    ("train highway-v0:ppo", "--import highway_env"),
    ("train CartPole-v1", "write Env:variant, such as CartPole-v1:ppo"),
    ("train cartpole", "write Env:variant, such as CartPole-v1:ppo"),
    ("train ppo CartPole-v1", "write CartPole-v1:ppo"),
    (f"train {CART} --seed abc", "write --seed 1,2,3"),
    (f"train {CART} algorithm.learningrate=1e-3", "did you mean 'learning_rate'?"),
    (f"train {CART} environment.lr=1e-3", "did you mean 'algorithm.lr'?"),
    (f"train {CART} training.gamma=0.9", "did you mean 'algorithm.gamma'?"),
    (f"train {CART} algorithm.lr=fast", "for example algorithm.lr=0.0003"),
    (f"train {CART} training.total_timesteps=many", "for example training.total_timesteps=100000"),
    (f"train {CART} -q environment.num_envs=3 algorithm.batch_size=256", "use a divisor, or a fraction such as 0.25"),
    (f"train {CART} network.memory.type=lsmt", "did you mean 'lstm'?"),
    (f"train {CART} algorithm.name=ppo2", "did you mean 'ppo'?"),
    ("train Pendulum-v1:sac -q algorithm.name=dqn", "use sac or ppo"),
    (f"train {CART} algorithm.lr 1e-3", "write algorithm.lr=1e-3"),
    (f"train {CART} algorithm.lr=1e-3,1e-4", "write ludus sweep, or [a,b] for a list"),
    (f"train {CART} lr=1e-3,1e-4 --multirun", "write --seed 1,2,3 for seeds, or ludus sweep"),
    (f"train {CART} lr=1e-3,1e-4 -m", "write --seed 1,2,3 for seeds, or ludus sweep"),
    (f"train {CART} -q device=cuda", "use auto or cpu"),
    (f"train {CART} -q logging.wandb=true", "pip install 'ludus-rl[wandb]'"),
    (f"train {CART} -q --track", "pip install 'ludus-rl[wandb]'"),
    ("train LunarLander-v3:ppo -q training.total_timesteps=8", "pip install 'ludus-rl[box2d]'"),
    ("play", "there is no last run in runs/; train one: ludus train CartPole-v1:ppo"),
    ("play @last", "there is no last run in runs/; train one: ludus train CartPole-v1:ppo"),
    ("resume nope", "train one: ludus train CartPole-v1:ppo"),
    ("resume", "Missing argument 'run'; write ludus resume @last"),
    ("trian", "No such command 'trian'; did you mean 'train'?"),
    ("enjoy", "No such command 'enjoy'; write ludus play @last"),
    ("run", "No such command 'run'; write ludus train CartPole-v1:ppo"),
    ("sweep", "says not what to train; write CartPole-v1:ppo algorithm.lr=1e-3,3e-4"),
    ("env lsit", "Did you mean 'list'?"),
    ("frobnicate", "known: train, sweep, tune, resume, "),
    ("train nofile.yaml", "no such file or directory; name a .yaml or .json file"),
    (f"train {CART} --lerning-rate 1", "did you mean '--learning-rate'?"),
]
MEANT = [
    ("train CartPole-v1:a2c", "name: a2c"),
    ("train --algo ppo --env CartPole-v1", "id: CartPole-v1"),
    (f"train {CART} --timesteps 5000", "total_timesteps: 5000"),
    (f"train {CART} lr=1e-3", "lr: 0.001"),
    (f"train {CART} --algorithm.lr 1e-3", "lr: 0.001"),
    (f"train {CART} algorithm.name=sac", "# algorithm.name=sac: "),
    (f"train {CART} environment.num_envs=3", "num_envs: 3"),
]


@pytest.fixture
def ludus(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command line in an empty directory, on a machine with the core packages only."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job, "debugger_attached", lambda: False)
    for module in ("wandb", "gymnasium.envs.box2d", "gymnasium.envs.box2d.lunar_lander"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    def run(line: str) -> SimpleNamespace:
        with pytest.raises(SystemExit) as stop:
            cli.main(line.split())
        captured = capsys.readouterr()
        return SimpleNamespace(code=stop.value.code, out=captured.out, err=captured.err)

    return run


@pytest.mark.parametrize(("line", "answer"), ANSWERED)
def test_the_answer_tells_what_to_type(ludus: Any, tmp_path: Path, line: str, answer: str) -> None:
    result = ludus(line)
    assert result.code == 2
    assert result.err.startswith("error: ") and result.err.count("\n") == 1
    assert answer in result.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("line", "shown"), MEANT)
def test_what_was_meant_is_done(ludus: Any, line: str, shown: str) -> None:
    result = ludus(f"{line} --cfg job")
    assert result.code == 0, result.err
    assert shown in result.out


def test_an_unknown_run_names_those_there_are(ludus: Any, tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "cart_20260101-000000_aaaa")
    assert "known: cart_20260101-000000_aaaa" in ludus("show nope").err


@pytest.mark.parametrize(
    ("name", "options"),
    [("a2c", ["sac", "ppo"]), ("MyEnv-v0", ["TMaze-v0", "CartPole-v1"]), ("enjoy", ["env", "export"])],
)
def test_nothing_is_suggested_that_is_not_alike(name: str, options: list[str]) -> None:
    assert did_you_mean(name, options) == f"known: {', '.join(options)}"


@pytest.mark.parametrize(
    ("name", "meant"), [("gur", "gru"), ("pppo", "ppo"), ("lsmt", "lstm"), ("trian", "train"), ("indexes", "indices")]
)
def test_what_is_alike_is_suggested(name: str, meant: str) -> None:
    assert did_you_mean(name, ["other", meant]) == f"did you mean '{meant}'?"
