"""`ludus mcp` as the official client library sees it, over the pipes of a real process."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")
import anyio

from ludus.errors import ConfigError
from ludus.mcp.training import checked
from mcp import Client, StdioServerParameters

LOOK = {"list_runs", "show_run", "run_status", "run_logs", "run_metrics", "compare_runs", "run_alerts", "plot_runs",
        "list_environments", "show_config", "inspect_step"}  # fmt: skip
SMALL = ["training.total_timesteps=512", "training.evaluation.every_steps=256", "training.evaluation.episodes=2"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from ludus import train

    root = tmp_path_factory.mktemp("made") / "runs"
    train("CartPole-v1:ppo", SMALL, quiet=True, runs_dir=root)
    return root


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "runs", symlinks=True))


def talk(runs: Path, conversation: Callable[[Client], Awaitable[None]], *options: str) -> None:
    """Start the server and talk to it."""
    words = ["-m", "ludus", "mcp", "--runs-dir", str(runs), *options]

    async def session() -> None:
        with anyio.fail_after(240):
            async with Client(StdioServerParameters(command=sys.executable, args=words, env={**os.environ})) as client:
                await conversation(client)

    anyio.run(session)


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """The answer of a tool as data; an error is raised."""
    answer = await client.call_tool(tool, arguments)
    text = "".join(getattr(part, "text", "") for part in answer.content)
    if answer.is_error:
        raise ConfigError(tool, text)
    return json.loads(text) if text[:1] in "{[" else text


def test_looking(runs: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*_*/**/*") if path.is_file()}

    async def conversation(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == LOOK and all(tool.annotations.read_only_hint for tool in tools.values())
        assert all(tool.description for tool in tools.values())
        listed = await call(client, "list_runs", filters=["algorithm=ppo"])
        (run,) = listed["runs"]
        assert run["env_steps"] == 512 and (await call(client, "show_run"))["id"] == run["id"]
        status = await call(client, "run_status", run=run["id"])
        assert status["state"] == "finished" and status["total_timesteps"] == 512
        assert "512 steps" in await call(client, "run_logs", lines=5)
        curve = (await call(client, "run_metrics", metrics=["val/roll/ep_rew/mean"]))["curves"]["val/roll/ep_rew/mean"]
        assert curve["steps"] == [256, 512] and len(curve["values"]) == 2
        assert "IQM" in await call(client, "compare_runs")
        assert (await call(client, "run_alerts"))["run"] == run["id"]
        assert (await call(client, "show_config", spec="CartPole-v1:ppo"))["algorithm"]["name"] == "ppo"
        found = (await client.call_tool("plot_runs", {})).content
        assert [part.mime_type for part in found] == ["image/png"] and len(found[0].data) > 1000
        step = await client.call_tool("inspect_step", {"t": 2, "seed": 3, "mode": "greedy"})
        assert not step.is_error, step.content
        facts = json.loads(step.content[0].text)
        assert (facts["t"], facts["total"], facts["wish"]["seed"]) == (2, 3.0, 3)
        assert facts["action"] == [float(facts["probabilities"][1] > 0.5)] and facts["action_name"].startswith("push")
        assert "cart position" in facts["observation"] and math.isfinite(facts["value"])
        assert step.content[1].mime_type == "image/png"
        with pytest.raises(ConfigError, match="is unknown; use evaluation"):
            await call(client, "inspect_step", mode="wild")
        with pytest.raises(ConfigError, match="there is no such run"):
            await call(client, "show_run", run="nobody")
        answer = await client.call_tool("start_training", {"spec": "CartPole-v1:ppo"})
        assert answer.is_error

    talk(runs, conversation)
    after = {path: path.stat().st_mtime_ns for path in runs.glob("*_*/**/*") if path.is_file()}
    assert after == before


def test_training(runs: Path) -> None:
    """Started, followed, stopped and resumable; a mistake is one line."""

    async def conversation(client: Client) -> None:
        assert {tool.name for tool in (await client.list_tools()).tools} > LOOK
        with pytest.raises(ConfigError, match="unknown key"):
            await call(client, "start_training", spec="CartPole-v1:ppo", overrides=["algorithm.nonsense=1"])
        long = ["training.total_timesteps=100_000_000", "training.stop.eval_reward=null", "runtime.compile=never"]
        started = await call(client, "start_training", spec="CartPole-v1:ppo", overrides=long, seed=3)
        assert (await call(client, "run_status", run=started["run"]))["state"] == "running"
        await call(client, "stop_training", run=started["run"])
        until = time.monotonic() + 120
        while (status := await call(client, "run_status", run=started["run"]))["state"] == "running":
            assert time.monotonic() < until
            await anyio.sleep(0.2)
        assert status["state"] == "stopped" and status["next"] == f"ludus resume {started['run']}"
        with pytest.raises(ConfigError, match="is not running here"):
            await call(client, "stop_training", run=started["run"])

    talk(runs, conversation, "--allow-train")


@pytest.mark.parametrize(
    ("spec", "override"),
    [
        ("--plugin", "a=1"),
        ("os:system:ppo", "a=1"),
        ("/etc/passwd.yaml", "a=1"),
        ("../x.yaml", "a=1"),
        ("CartPole-v1:ppo", "--plugin=x.py"),
        ("CartPole-v1:ppo", "logging.alert_command=[touch,x]"),
        ("CartPole-v1:ppo", "+logging.alert_command=[touch,x]"),
        ("CartPole-v1:ppo", "environment.id=os:system"),
        ("CartPole-v1:ppo", "env_id=os:system"),
        ("CartPole-v1:ppo", "training.resume_path=/x"),
        ("CartPole-v1:ppo", "--help"),
    ],
)
def test_an_agent_names_no_programs_and_no_code(spec: str, override: str) -> None:
    with pytest.raises(ConfigError):
        checked(spec, [override])
    assert checked("ALE/Pong-v5:ppo", ["algorithm.lr=1e-3"])[0] == "ALE/Pong-v5:ppo"
