"""Sweeps at W&B: the real client and its agent, against a server of ours; the runs are ordinary ones."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from fake_wandb_sweeps import FakeSweeps
from ludus import cli
from ludus.archive.index import Index
from ludus.config.compose import load
from ludus.errors import ConfigError, MissingExtra
from ludus.sweeps import agent
from ludus.sweeps.grammar import parameter_of
from ludus.sweeps.store import SweepFolder
from ludus.sweeps.wandb import check, claim, form_of, shares
from sweeps.toy import spec_of

TINY = ("training.total_timesteps=256", "training.evaluation.every_steps=256", "training.evaluation.episodes=1")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """What an agent gives a run: variables and a file."""

    def arrange(values: dict[str, Any], name: str = "config.yaml") -> None:
        items = {"wandb_version": 1, **{key: {"desc": None, "value": value} for key, value in values.items()}}
        text = json.dumps(items) if name.endswith("json") else yaml.safe_dump(items)
        (tmp_path / name).write_text(text)
        monkeypatch.setenv("WANDB_SWEEP_ID", "sweep1")
        monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", str(tmp_path / name))

    monkeypatch.delenv("WANDB_SWEEP_ID", raising=False)
    return arrange


@pytest.mark.parametrize("name", ["config.yaml", "config.json"])
def test_the_agents_values_land_in_the_config_under_their_names(given: Any, name: str) -> None:
    shape = {"start": 0.2, "end": 0.05, "schedule": "linear"}
    given({"policy_lr": 1e-3, "algorithm": {"clip": shape, "epochs": 3}, "n_envs": 2, "env_id": "CartPole-v1"}, name)
    words = ["algorithm.lr=0.5", "gamma=0.9"]  # the same setting by another name
    repeated = ["--policy_lr=0.001", "--algorithm={'epochs': 3}", "-q", "--gamma=0.9"]
    assert agent.without_repeats(repeated) == ["-q", "--gamma=0.9"]
    spec, overrides = agent.merged("CartPole-v1:ppo", words, agent.values())
    config = load(str(spec), overrides).config
    own: Any = config.algorithm.config
    assert (own.lr.start, own.epochs, own.gamma.start, config.environment.num_envs) == (1e-3, 3, 0.9, 2)
    assert (own.clip.start, own.clip.end) == (0.2, 0.05)
    assert config.logging.wandb.enabled  # W&B is told what came of it


def test_a_parameter_may_name_what_is_trained(given: Any) -> None:
    given({"config_id": "CartPole-v1:dqn", "logging.wandb.enabled": False})
    spec, overrides = agent.merged(None, [], agent.values())
    assert spec == "CartPole-v1:dqn" and overrides == ["logging.wandb.enabled=false"]


def test_without_an_agent_nothing_changes(given: Any) -> None:
    assert agent.values() == {} and agent.merged("a:b", ["c=1"], {}) == ("a:b", ["c=1"])
    assert agent.exit_code(75) == 75
    with pytest.raises(ConfigError, match="no agent of W&B started this"):
        agent.values(required=True)


def test_a_stop_that_the_agent_asked_for_is_no_failure(given: Any) -> None:
    given({})
    assert agent.exit_code(75) == 0 and agent.exit_code(2) == 2


@pytest.mark.parametrize(("path", "told"), [("", "names no file"), ("nowhere.yaml", "there is no file")])
def test_a_file_that_is_not_there_is_one_line(
    given: Any, monkeypatch: pytest.MonkeyPatch, path: str, told: str
) -> None:
    given({})
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", path)
    with pytest.raises(ConfigError, match=told):
        agent.values()


def test_a_spec_in_wandbs_form(tmp_path: Path) -> None:
    words = ("algorithm.lr=loguniform(1e-4,1e-2)", "algorithm.epochs=int(2,8)", "algorithm.clip=0.1,0.2")
    form = form_of(spec_of(*words, "gamma=uniform(0.9,1,0.01)", method="random", trials=5), tmp_path)
    assert form["parameters"] == {
        "algorithm.lr": {"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-2},
        "algorithm.epochs": {"distribution": "int_uniform", "min": 2, "max": 8},
        "algorithm.clip": {"values": [0.1, 0.2]},
        "gamma": {"distribution": "q_uniform", "min": 0.9, "max": 1.0, "q": 0.01},
    }
    assert (form["run_cap"], form["metric"]["name"]) == (5, "val/roll/ep_rew/mean")
    assert form["command"][-4:-1] == ["sweep", "join", "toy"]


@pytest.mark.parametrize("word", ["x=1,b", "x=uniform(0,2)", "x=logint(2,64)", "x=normal(1,2)", "x=lognormal(-6,1)"])
def test_a_latent_is_found_again(word: str) -> None:
    parameter = parameter_of(word)
    assert parameter is not None
    for latent in parameter.extremes():
        assert parameter.latent(parameter.value(latent)) == pytest.approx(latent)


def test_no_two_trials_have_one_number(tmp_path: Path) -> None:
    folder = SweepFolder.create(tmp_path, spec_of("algorithm.lr=1e-3,1e-2"))
    first = claim(folder, {"algorithm.lr": 1e-2})
    assert not folder.claimed(first)
    assert [claim(folder, {"algorithm.lr": 1e-3}).number, len(folder.trials())] == [1, 2]
    assert folder.trials()[0].latent == {"algorithm.lr": 1}
    with pytest.raises(ConfigError, match="does not fit"):
        claim(folder, {"algorithm.clip": 0.1})


def test_trials_are_shared_out() -> None:
    assert (shares(7, 3), shares(2, 5)) == ([3, 2, 2], [1, 1])


def test_what_wandb_cannot_do_is_one_line_within_seconds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "NETRC", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:1")
    grid = spec_of("algorithm.lr=1e-3,1e-2")
    importlib.import_module("wandb")
    begin = time.monotonic()
    with pytest.raises(ConfigError, match="there is no key for"):
        check(grid)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    with pytest.raises(ConfigError, match="does not answer"):
        check(grid)
    assert time.monotonic() - begin < 5
    for refused in ({"seeds": (1, 2)}, {"metric": {"name": "area"}}, {"pruning": {"type": "median"}}):
        with pytest.raises(ConfigError, match="W&B"):
            check(spec_of("algorithm.lr=1e-3,1e-2", **refused))
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match=r"ludus-rl\[wandb\]"):
        check(grid)


# ---- the real client ------------------------------------------------------------------------------------------------


def variables(server: FakeSweeps, home: Path) -> dict[str, str]:
    """Runs log offline: what a run sends is no part of a sweep."""
    own = {"WANDB_BASE_URL": server.address, "WANDB_API_KEY": "k" * 40, "HOME": str(home), "WANDB_SILENT": "true"}
    known = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    return {**known, **own, "WANDB_ENTITY": "alice", "WANDB_PROJECT": "ludus", "LUDUS_DISABLE_SESSION_LOGS": "1"}


def call(words: list[str], place: Path, env: dict[str, str]) -> str:
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_real_sweep_and_agent_call_us(tmp_path: Path) -> None:
    form = {"method": "grid", "metric": {"name": "val/roll/ep_rew/mean", "goal": "maximize"},
            "parameters": {"algorithm": {"parameters": {"lr": {"values": [1e-3, 3e-4]}}},
                           "algorithm.clip": {"value": {"start": 0.2, "end": 0.1, "schedule": "linear"}}},
            "command": [sys.executable, "-m", "ludus", "train", "CartPole-v1:ppo", *TINY, "logging.wandb.enabled=false",
                        "-q", "${args}"]}  # fmt: skip
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(form))
    with FakeSweeps() as server:
        env = variables(server, tmp_path)
        call(["wandb", "sweep", "sweep.yaml"], tmp_path, env)
        call(["wandb", "agent", "--count", "2", "alice/ludus/sweep1"], tmp_path, env)
    runs = Index(tmp_path / "runs").records()
    assert sorted(run.get("algorithm.lr") for run in runs) == [3e-4, 1e-3]
    assert {run.get("algorithm.clip.end") for run in runs} == {0.1} and {run.state for run in runs} == {"finished"}


@pytest.mark.slow
def test_the_engine_gives_the_same_table_as_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ludus", "sweep", "CartPole-v1:ppo", "algorithm.lr=1e-3,3e-4", *TINY, "--name", "two", "--jobs", "1"]
    with FakeSweeps() as server:
        env = {**variables(server, tmp_path), "WANDB_MODE": "offline"}
        call([*words, "--engine", "wandb"], tmp_path, env)
    call([*words, "--runs-dir", "here"], tmp_path, env)
    tables = []
    for place in ("runs", "here"):
        capsys.readouterr()
        with pytest.raises(SystemExit):
            cli.main(["sweep", "show", "two", "--json", "--runs-dir", str(tmp_path / place)])
        tables.append(json.loads(capsys.readouterr().out)["trials"])
    assert tables[0] == tables[1] and [row["state"] for row in tables[0]] == ["complete"] * 2
    assert server.forms[0]["parameters"] == {"algorithm.lr": {"values": [1e-3, 3e-4]}}
