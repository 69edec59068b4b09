"""The server: which tools there are, and their errors as one line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus import __version__, files
from ludus.errors import LudusError, MissingExtra, of_system
from ludus.mcp.judge import Judging
from ludus.mcp.look import Looking
from ludus.mcp.steps import Steps
from ludus.mcp.training import Training

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

INSTRUCTIONS = """Ludus trains agents by reinforcement learning; a run is a folder with config, metrics, checkpoints.
Name a run by its id, a unique prefix, @last or @best. {training}"""
Tool = Callable[..., Any]


def make_server(runs_dir: Path, *, allow_train: bool) -> MCPServer:
    """A server over the runs of a folder; without `allow_train` it can change nothing."""
    try:
        from mcp.server.mcpserver import MCPServer
        from mcp_types import ToolAnnotations
    except ImportError:
        raise MissingExtra("mcp", "mcp") from None
    told = "start_training trains in the background." if allow_train else "It only looks: nothing can be started."
    server: MCPServer = MCPServer(
        "ludus", version=__version__, instructions=INSTRUCTIONS.format(training=told), log_level="ERROR"
    )
    looks = ToolAnnotations(read_only_hint=True)
    for tool in looking_tools(runs_dir):
        server.tool(annotations=looks)(guarded(tool, runs_dir))
    for tool in drawing_tools(runs_dir):
        server.tool(annotations=looks, structured_output=False)(guarded(tool, runs_dir))
    if allow_train:
        training = Training(runs_dir)
        for tool in (training.start_training, training.stop_training, training.resume_training):
            server.tool(annotations=ToolAnnotations(read_only_hint=False))(guarded(tool, runs_dir))
    return server


def guarded(tool: Tool, runs_dir: Path) -> Tool:
    """The tool; what goes wrong is one line for the agent."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return tool(*arguments, **named)
        except LudusError as error:
            raise ToolError(error.line()) from None
        except OSError as error:
            raise ToolError(of_system(error, str(runs_dir)).line()) from None

    return call


def looking_tools(runs_dir: Path) -> list[Tool]:
    """Tools that answer with data."""
    looking, judging = Looking(runs_dir), Judging(runs_dir)
    return [
        looking.list_runs,
        looking.show_run,
        looking.run_status,
        looking.run_logs,
        looking.run_metrics,
        looking.compare_runs,
        looking.run_alerts,
        looking.list_environments,
        looking.show_config,
        judging.metric_trend,
        judging.correlate_metrics,
        judging.config_difference,
        judging.diagnose_run,
        judging.wait_for_run,
        judging.evaluate_run,
    ]


def drawing_tools(runs_dir: Path) -> list[Tool]:
    """Tools that answer with pictures."""
    from mcp.server.mcpserver import Image

    looking, steps = Looking(runs_dir), Steps(runs_dir)

    def plot_runs(runs: list[str] | None = None, metrics: list[str] | None = None, group_by: str = "config") -> Any:
        """Learning curves of runs, grouped over their seeds, as a picture."""
        return Image(data=looking.plot(runs, metrics, group_by), format="png")

    def inspect_step(
        run: str = "@last", t: int = 0, seed: int = 0, checkpoint: str | None = None, mode: str = "evaluation"
    ) -> Any:
        """One step of an episode: picture, observation, action, probabilities or Q-values, value, reward, info.

        The same seed, checkpoint (default: best) and mode (evaluation, greedy, sampled) give the same episode.
        """
        facts, picture = steps.step(run, checkpoint, seed, t, mode)
        return [files.to_json(facts), *([] if picture is None else [Image(data=picture, format="png")])]

    return [plot_runs, inspect_step]
