"""The console: what is on the screen, what is in a pipe, and what it costs."""

from __future__ import annotations

import io
import math
import os
import re
import subprocess
import sys
import time
from typing import Any

import pytest
from rich.console import Console as RichConsole

from ludus.metrics.monitor import Monitor
from ludus.metrics.rules import Rules
from ludus.metrics.sinks.console import Console

_HEADER = {
    "run": "CartPole-v1-ppo_20261115-213400_a1b2",
    "spec": "CartPole-v1:ppo",
    "environment": "CartPole-v1, 8 of them (envpool)",
    "algorithm": "ppo",
    "seed": "42",
    "folder": "runs/CartPole-v1-ppo_20261115-213400_a1b2",
}
_RESULT = {
    "mean": 490.0,
    "std": 12.5,
    "threshold": 475.0,
    "reason": "evaluated mean return reached 475",
    "seconds": 8.0,
    "env_steps": 2_048,
    "epochs": 8,
    "updates": 160,
    "folder": "runs/CartPole-v1-ppo_20261115-213400_a1b2",
}


class Clock:
    """Time that passes only when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def _row(epoch: int, **more: Any) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "env_steps": 256 * epoch,
        "updates": 20 * epoch,
        "phase": "main",
        "seconds": float(epoch),
        "train/roll/ep_rew/mean": 10.0 * epoch**2,
        "train/roll/ep_len/mean": 10.0 * epoch**2,
        "train/loss/value": 8.0 / epoch,
        "train/policy/kl": 0.2 if epoch > 6 else 0.01,
        "train/policy_lr": 3e-4,
        **more,
    }


def _console(width: int = 100, height: int = 40, terminal: bool = True, **more: Any) -> tuple[Console, io.StringIO, Clock]:
    file, clock, rules = io.StringIO(), Clock(), Rules.load()
    rich = RichConsole(
        file=file, width=width, height=height, force_terminal=terminal, legacy_windows=False, highlight=False, **more
    )
    return Console(rules, Monitor(rules), console=rich, clock=clock), file, clock


def _train(console: Console, clock: Clock, epochs: int = 8) -> None:
    console.start(_HEADER, 4_096, threshold=475.0)
    for epoch in range(1, epochs + 1):
        evaluated = {"val/roll/ep_rew/mean": 61.25 * epoch, "val/roll/ep_rew/std": 12.5} if epoch % 4 == 0 else {}
        row = _row(epoch, **evaluated)
        console._monitor.write(row)
        console.write(row)
        clock.now += 0.5
    console.close()


def _screen(output: str) -> str:
    """What a terminal shows in the end, without colours: enough of one for what rich.live sends."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\n|\r|[^\x1b\n\r]+", output):
        if token == "\n":
            row += 1
            lines += [""] * (row - len(lines) + 1)
        elif token.endswith("A") and token.startswith("\x1b"):
            row -= int(token[2:-1] or 1)
        elif token == "\x1b[2K":
            lines[row] = ""
        elif not token.startswith(("\x1b", "\r")):
            lines[row] += token
    return "\n".join(line.rstrip() for line in lines).rstrip()


GOLDEN = """\
╭─ ludus · CartPole-v1-ppo_20261115-213400_a1b2 ───────────────────────────────────────────────────╮
│ spec         CartPole-v1:ppo                    environment  CartPole-v1, 8 of them (envpool)    │
│ algorithm    ppo                                seed         42                                  │
│ folder       runs/CartPole-v1-ppo_20261115-213400_a1b2                                           │
╰──────────────────────────────────────────────────────────────────────────────────────────────────╯
"""


def test_golden_screen() -> None:
    console, file, clock = _console()
    _train(console, clock)
    console.summary(_RESULT)
    assert _screen(file.getvalue()) == GOLDEN.rstrip()
