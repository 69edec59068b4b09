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

from ludus.errors import ConfigError, DataError
from ludus.mcp.judge import Judging, rank_correlation, trend
from ludus.mcp.look import Looking
from ludus.mcp.steps import Steps
from ludus.mcp.training import Training, checked
from mcp import Client, StdioServerParameters

LOOK = {"list_runs", "show_run", "run_status", "run_logs", "run_metrics", "compare_runs", "run_alerts", "plot_runs",
        "list_environments", "show_config", "inspect_step", "metric_trend", "correlate_metrics", "config_difference",
        "diagnose_run", "wait_for_run", "evaluate_run"}  # fmt: skip
SMALL = ["training.total_timesteps=512", "training.evaluation.every_steps=256", "training.evaluation.episodes=2",
         "algorithm.rollout_steps=16"]  # fmt: skip


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


def test_judging(runs: Path) -> None:
    async def conversation(client: Client) -> None:
        (run,) = (await call(client, "list_runs"))["runs"]
        heading = await call(client, "metric_trend", metric="train/policy/entropy", last=1.0)
        assert heading["points"] > 2 and heading["verdict"] in ("rises", "falls", "flat")
        with pytest.raises(ConfigError, match="has no metric 'nothing'; "):
            await call(client, "metric_trend", metric="nothing")
        with pytest.raises(ConfigError, match="no part of a run"):
            await call(client, "metric_trend", last=0)
        moving = (await call(client, "correlate_metrics", metric="train/policy/entropy"))["correlations"]
        assert moving and "train/policy/entropy" not in moving and all(abs(value) <= 1 for value in moving.values())
        assert (await call(client, "config_difference", run=run["id"], other="@last"))["differences"] == []
        found = await call(client, "diagnose_run")
        assert found["status"]["id"] == run["id"] and found["return"]["verdict"] == "fewer than four evaluations"
        assert (await call(client, "wait_for_run"))["state"] == "finished"  # at once
        played = await call(client, "evaluate_run", episodes=3, seed=5)
        assert (played["episodes"], played["seed"]) == (3, 5) and played["min"] <= played["mean"] <= played["max"]
        assert (await call(client, "evaluate_run", episodes=3, seed=5))["mean"] == played["mean"]

    talk(runs, conversation)


def test_a_log_that_is_a_link_is_not_read(runs: Path) -> None:
    (folder,) = runs.glob("*_*")
    (folder / "run.log").unlink()
    (folder / "run.log").symlink_to(folder / "config.yaml")
    with pytest.raises(ConfigError, match=r"run\.log cannot be read"):
        Looking(runs).run_logs(folder.name)


LINKED: dict[str, Callable[[Path, str], Any]] = {
    "show_run": lambda runs, id: Looking(runs).show_run(id),
    "run_status": lambda runs, id: Looking(runs).run_status(id),
    "run_logs": lambda runs, id: Looking(runs).run_logs(id),
    "run_metrics": lambda runs, id: Looking(runs).run_metrics(id),
    "run_alerts": lambda runs, id: Looking(runs).run_alerts(id),
    "list_runs": lambda runs, id: Looking(runs).list_runs([id]),
    "compare_runs": lambda runs, id: Looking(runs).compare_runs([id]),
    "plot_runs": lambda runs, id: Looking(runs).plot([id], None, "config"),
    "inspect_step": lambda runs, id: Steps(runs).step(id, None, 0, 0, "greedy"),
    "metric_trend": lambda runs, id: Judging(runs).metric_trend(id),
    "correlate_metrics": lambda runs, id: Judging(runs).correlate_metrics(id),
    "config_difference": lambda runs, id: Judging(runs).config_difference("@last", id),
    "diagnose_run": lambda runs, id: Judging(runs).diagnose_run(id),
    "wait_for_run": lambda runs, id: Judging(runs).wait_for_run(id, 0),
    "evaluate_run": lambda runs, id: Judging(runs).evaluate_run(id, 1),
    "stop_training": lambda runs, id: Training(runs).stop_training(id),
    "resume_training": lambda runs, id: Training(runs).resume_training(id),
}


@pytest.fixture
def linked(runs: Path, tmp_path: Path) -> Path:
    """The runs, and a second one, `other`, whose rows are a link to a file elsewhere."""
    (folder,) = runs.glob("*_*")
    other = Path(shutil.copytree(folder, runs / "other", symlinks=True))
    (other / "metrics.jsonl").rename(tmp_path / "elsewhere.jsonl")
    (other / "metrics.jsonl").symlink_to(tmp_path / "elsewhere.jsonl")
    return runs


@pytest.mark.parametrize("tool", LINKED)
def test_no_tool_follows_a_link_out_of_a_run_folder(tool: str, linked: Path) -> None:
    with pytest.raises(DataError, match=r"other: metrics\.jsonl is a link that leads out of the run folder"):
        LINKED[tool](linked, "other")


def test_runs_with_links_are_not_listed_and_not_the_best(linked: Path) -> None:
    (good,) = linked.glob("*_*")
    found = Looking(linked)
    assert [run["id"] for run in found.list_runs()["runs"]] == [good.name]
    assert found.show_run("@best")["id"] == good.name
    assert "n |" in found.compare_runs() and Judging(linked).evaluate_run("@best/@last", 1)["episodes"] == 1
    (good / "checkpoints" / "step=1").symlink_to(linked)
    with pytest.raises(DataError, match="step=1 is a link that leads out"):
        found.show_run("@best")


def test_a_spec_is_no_link_to_a_file_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "own.yaml").write_text("secret: canary")
    (tmp_path / "here" / "mine.yaml").symlink_to(tmp_path / "own.yaml")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(ConfigError, match="is a link that leads out of this folder"):
        Looking(tmp_path).show_config("mine.yaml")


def test_a_metric_that_no_run_has_is_refused_with_the_nearest_name(runs: Path) -> None:
    with pytest.raises(ConfigError, match="has no metric 'train/policy/entrop'; did you mean 'train/policy/entropy'"):
        Looking(runs).run_metrics(metrics=["val/roll/ep_rew/mean", "train/policy/entrop"])
    (folder,) = runs.glob("*_*")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 600, "epoch": 9, "train/broken": NaN}\n')
    assert Looking(runs).run_metrics(metrics=["train/broken"])["curves"] == {
        "train/broken": {"steps": [], "values": []}
    }
    with pytest.raises(ConfigError, match="no value of 'train/broken' is finite"):
        Judging(runs).metric_trend(metric="train/broken")


def test_a_run_without_a_config_has_a_status(runs: Path) -> None:
    (folder,) = runs.glob("*_*")
    (folder / "config.yaml").write_text("[broken")
    status = Looking(runs).run_status(folder.name)
    assert status["state"] == "finished" and status["total_timesteps"] is None


@pytest.mark.parametrize(
    ("values", "verdict"), [([0, 1, 2, 3.1], "rises"), ([3, 2, 1.1, 0], "falls"), ([1, 0, 1, 0], "flat")]
)
def test_a_trend_is_more_than_the_scatter_around_it(values: list[float], verdict: str) -> None:
    assert trend([0, 10, 20, 30], values, 1.0)["verdict"] == verdict
    assert trend([0, 10, 20, 30], [*values[:1], 5, 5, 5], 0.5)["points"] == 2


def test_ranks_are_correlated_and_not_numbers() -> None:
    assert rank_correlation([1, 2, 3, 4], [1, 10, 100, 1000]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9487, abs=1e-4)
    assert rank_correlation([1, 2, 3, 4], [2, 1, 4, 3]) == pytest.approx(0.6)
    assert math.isnan(rank_correlation([1, 1, 1], [1, 2, 3]))


def test_training(runs: Path) -> None:
    """Started, followed, stopped and resumed; a mistake is one line."""

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
        assert (await call(client, "resume_training", run=started["run"]))["run"] == started["run"]
        assert (await call(client, "wait_for_run", run=started["run"], seconds=0.1))["state"] == "running"
        with pytest.raises(ConfigError, match="is running; list_runs shows"):
            await call(client, "resume_training", run=started["run"])
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
