"""Faults 71, 72 and 75: no secret reaches a file, no text from a file acts on whoever looks at it."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
import yaml

from faults.conftest import Ludus
from faults.processes import Process
from faults.support import SMALL, contents, only_run, refused
from ludus.config.compose import parse
from ludus.config.read import plain, read_file, to_yaml

SECRETS = {
    "WANDB_API_KEY": "canary1wandb0000000000000000000000000000",
    "HF_TOKEN": "hf_canary2huggingface0000000000000",
    "AWS_SECRET_ACCESS_KEY": "canary3/aws+secret0000000000000000000000",
    "MY_PASSWORD": "canary4-correct-horse",
}


def leaks(folder: Path, *processes: Process) -> list[str]:
    """Where any of the values can be found: names and contents of files, links, output."""
    found = []
    for name, data in contents(folder).items():
        text = data.encode() if isinstance(data, str) else data
        found += [f"{key} in {name}" for key, value in SECRETS.items() if value.encode() in text or value in name]
    for process in processes:
        found += [f"{key} in the output" for key, value in SECRETS.items() if value in process.out + process.err]
    return found


def test_71_secrets_of_the_environment(ludus: Ludus, tmp_path: Path) -> None:
    """Trained, resumed, reported and crashed with secrets around: the whole folder is clean."""
    words = ["training.total_timesteps=128", "logging.tensorboard=true"]
    trained = ludus("train", *SMALL, *words, env=SECRETS)
    assert trained.code == 0, trained.err
    resumed = ludus("resume", "@last", "training.total_timesteps=256", env=SECRETS)
    assert resumed.code == 0, resumed.err
    reported = ludus("report", "@last", env=SECRETS)
    shown = ludus("show", "@last", "--config", env=SECRETS)
    assert leaks(tmp_path, trained, resumed, reported, shown) == []


def test_71_secrets_in_a_crash(ludus: Ludus, tmp_path: Path) -> None:
    """An environment that tells its secret in an exception."""
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import os, gymnasium as gym\n"
        "from gymnasium.envs.classic_control.cartpole import CartPoleEnv\n"
        "class Teller(CartPoleEnv):\n"
        "    count = 0\n"
        "    def step(self, action):\n"
        "        Teller.count += 1\n"
        "        if Teller.count < 20_000:\n"
        "            return super().step(action)\n"
        "        raise ValueError('login failed: ' + os.environ['MY_PASSWORD'])\n"
        "gym.register('Teller-v0', Teller)\n"
    )
    process = ludus("train", *SMALL, "environment.id=Teller-v0", "--plugin", str(plugin), env=SECRETS)
    assert process.code == 4 and "login failed: ***" in (only_run(tmp_path) / "run.log").read_text(), process.err
    assert leaks(tmp_path, process) == []


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize(
    "word",
    [
        "+logging.wandb.api_key={}",
        "experiment.description={}",
        "experiment.tags=[a,{}]",
        "environment.kwargs={{token: '{}'}}",
        "environment.kwargs={{x: '--{}--'}}",
        "logging.wandb.entity={}",
    ],
)
def test_71_secrets_on_the_command_line(ludus: Ludus, tmp_path: Path, word: str, name: str) -> None:
    """Refused wherever they stand, and not repeated on the screen."""
    text = word.format(SECRETS[name] if "description" not in word else f"'{SECRETS[name]}'")
    process = ludus("train", *SMALL, "training.total_timesteps=64", text, env=SECRETS)
    assert process.code == 2, process.err
    refused(process, 2)
    assert leaks(tmp_path, process) == []


@pytest.mark.parametrize("key", ["api_key", "token", "password", "aws_secret_access_key", "hf_token", "wandb_key"])
def test_71_secrets_in_a_file(ludus: Ludus, tmp_path: Path, key: str) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        f"environment: {{id: CartPole-v1, kwargs: {{{key}: canary5-not-in-the-environment}}}}\nalgorithm: ppo\n"
    )
    process = ludus("train", str(path), "-q")
    refused(process, 2, "x.yaml:1", key, "never from a config")
    assert "canary5" not in process.err


def test_71_arguments_that_are_kept_are_clean(ludus: Ludus, tmp_path: Path) -> None:
    """meta.json tells the command line, but not what was secret in it."""
    words = ["--tag", "x", "training.total_timesteps=64", "--runs-dir", f"runs/{SECRETS['MY_PASSWORD']}"]
    process = ludus("train", *SMALL, *words, env=SECRETS)
    assert process.code == 0, process.err
    (meta,) = (tmp_path / "runs").rglob("meta.json")
    assert SECRETS["MY_PASSWORD"] not in meta.read_text() and "--runs-dir" in meta.read_text()


def test_72_wandb_captures_neither_arguments_nor_secrets(ludus: Ludus, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    environment = {**SECRETS, "WANDB_MODE": "offline", "WANDB_API_KEY": "a" * 40}
    words = ["training.total_timesteps=128", "logging.wandb.enabled=true", "--tag", "argument-canary"]
    process = ludus("train", *SMALL, *words, env=environment)
    assert process.code == 0, process.err
    run = only_run(tmp_path)
    captured = [path for path in (run / "wandb").rglob("*") if path.is_file() and not path.is_symlink()]
    assert captured
    for path in captured:
        data = path.read_bytes()
        assert b"a" * 40 not in data, path
        assert b"--tag" not in data or path.suffix == ".html", path  # our report tells the command, without secrets
    assert leaks(tmp_path, process) == []


# ---- hostile text --------------------------------------------------------------------------------

HTML = "<img src=x onerror=alert(1)>"
TERMINAL = "\x1b]0;owned\x07\x1b[31mred\x9b2J\r\u202e"
FORMULA = "=cmd|' /C calc'!A0"
HOSTILE = f"{HTML}{TERMINAL}{FORMULA}"


@pytest.fixture
def hostile(stopped: Path) -> Path:
    """A run whose every text is an attack: names, tags, reasons, phases, metrics, machine."""
    config = plain(read_file(stopped / "config.yaml"))
    config["experiment"].update(description=HOSTILE, tags=[HTML, FORMULA, TERMINAL])
    (stopped / "config.yaml").write_text(to_yaml(config))
    parse(config, "test")
    meta = json.loads((stopped / "meta.json").read_text())
    for key in ("name", "spec", "started", "config_hash"):
        meta[key] = f"{FORMULA}{HTML}{TERMINAL}"
    meta.update(overrides=[HOSTILE], argv=[HOSTILE], git={"commit": HOSTILE, "dirty": HOSTILE})
    meta.update(versions={HOSTILE: HOSTILE}, host={"name": HOSTILE, "platform": HOSTILE})
    (stopped / "meta.json").write_text(json.dumps(meta))
    status = json.loads((stopped / "status.json").read_text())
    (stopped / "status.json").write_text(json.dumps({**status, "reason": HOSTILE, "state": "stopped"}))
    rows = [json.loads(line) for line in (stopped / "metrics.jsonl").read_text().splitlines()]
    rows = [{**row, "phase": HOSTILE, f"train/{HOSTILE}": 1.0, "val/roll/ep_rew/mean": 5.0} for row in rows]
    (stopped / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (stopped / "run.log").open("a") as file:
        file.write(f"{HOSTILE}\n")
    return stopped


def harmless(text: str) -> None:
    """No control characters but line ends, no overriding of directions."""
    found = [char for char in text if not char.isprintable() and char not in "\n\t"]
    assert found == [], found


@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["list", "--columns", "id,name,spec,tags,reason,commit,host"],
        ["show", "@last"],
        ["show", "@last", "--config"],
        ["compare"],
        ["compare", "--group-by", "spec"],
        ["export", "--format", "markdown"],
        ["export", "--format", "latex"],
        ["cleanup", "--keep-best", "0", "--keep-recent", "0"],
        ["resume", "@last", "training.total_timesteps=704"],
    ],
    ids=" ".join,
)
def test_75_hostile_text_on_the_terminal(ludus: Ludus, hostile: Path, command: list[str]) -> None:
    process = ludus(*command)
    assert process.code in (0, 2, 3), process.err[-3000:]
    assert "Traceback" not in process.err
    harmless(process.out)
    harmless(process.err)
    if "markdown" in command:
        assert not re.search(r"(?<!\\)<img", process.out)


def test_75_hostile_text_on_the_console(ludus: Ludus, tmp_path: Path) -> None:
    """Description and tags as the header of a training shows them."""
    path = tmp_path / "x.json"
    config = {"experiment": {"description": HOSTILE, "tags": [HOSTILE]}, "environment": {"id": "CartPole-v1"}}
    path.write_text(json.dumps({**config, "algorithm": "ppo", "training": {"total_timesteps": 64}}))
    process = ludus("train", str(path), "environment.num_envs=4", "algorithm.rollout_steps=16", "-q")
    assert process.code == 0, process.err
    harmless(process.out)
    harmless(process.err)


def test_75_hostile_text_in_a_spreadsheet(ludus: Ludus, hostile: Path) -> None:
    process = ludus("export", "--format", "csv", "--columns", "id,name,spec,tags,reason,commit,host")
    assert process.code == 0, process.err
    for row in csv.reader(io.StringIO(process.out)):
        for cell in row:
            assert not cell.startswith(("=", "+", "@", "\t", "\r")), cell
            assert not cell.startswith("-") or re.fullmatch(r"-[\d.e+-]+", cell), cell
    table = (hostile / "metrics.csv").read_text()
    assert "\n=" not in table and ",=" not in table


def test_75_hostile_text_in_a_report(ludus: Ludus, hostile: Path) -> None:
    """Escaped in HTML, and no way out of a script or a style either."""
    process = ludus("report", "@last")
    assert process.code == 0, process.err
    page = (hostile / "report.html").read_text()
    assert "<img src=x" not in page and "onerror=alert(1)>" not in page.replace("&gt;", "")
    assert not re.search(r"<script[^>]*>[^<]*<img", page)
    assert "\x1b" not in page and "\u202e" not in page
    markdown = (hostile / "report.md").read_text()
    assert not re.search(r"(?<!\\)<img", markdown) and "\x1b" not in markdown


def test_75_hostile_text_as_json_is_only_data(ludus: Ludus, hostile: Path) -> None:
    for words in (["list", "--json"], ["show", "@last", "--json"], ["export", "--format", "json"]):
        process = ludus(*words)
        assert process.code == 0, process.err
        assert HTML in json.dumps(json.loads(process.out))
        harmless(process.out)
    assert yaml.safe_load((hostile / "config.yaml").read_text())["experiment"]["description"] == HOSTILE
