"""The console: what is on the screen, what is in a pipe, and what it costs."""

from __future__ import annotations

import io
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console as RichConsole

from ludus.console.live import Console
from ludus.progress import Budget
from ludus.watch.monitor import Monitor
from ludus.watch.rules import Rules

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


def _console(
    width: int = 100,
    height: int = 40,
    terminal: bool = True,
    copy: Callable[[str], None] | None = None,
    quiet: bool = False,
    **more: Any,
) -> tuple[Console, io.StringIO, Clock]:
    file, clock, rules = io.StringIO(), Clock(), Rules.load()
    rich = RichConsole(
        file=file, width=width, height=height, force_terminal=terminal, legacy_windows=False, highlight=False, **more
    )
    return Console(rules, Monitor(rules), console=rich, clock=clock, copy=copy, quiet=quiet), file, clock


def _train(console: Console, clock: Clock, epochs: int = 8) -> None:
    console.start(_HEADER, Budget(4_096), threshold=475.0)
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
train/roll ─────────────────────────────────────   train/loss ─────────────────────────────────────
  ep_rew/mean    640.0 ▲ ▁▁▂▂▄▅▇█                    value       1.0000 ▼ █▄▂▂▁▁▁▁
  ep_len/mean    640.0 ▲ ▁▁▂▂▄▅▇█                  train/policy ───────────────────────────────────
val ────────────────────────────────────────────     kl         !0.2000   ▁▁▁▁▁▁██
  ep_rew/mean    490.0 ▲ ▁█                        train/hp ───────────────────────────────────────
  ep_rew/std      12.5                               policy_lr   0.0003

main · epoch 8 ━━━━━━━━━━━━━━━━━─────────────────  50%  2,048 / 4,096  256 steps/s  8.0 s  ETA 8.0 s

history                                                     last      min      max     mean      std
train/roll/ep_rew/mean  ▁▁▂▂▄▅▇█                           640.0     10.0    640.0    255.0    211.2
val/roll/ep_rew/mean    ▁█                                 490.0    245.0    490.0    367.5    122.5

╭─ SOLVED ─────────────────────────────────────────────────────────────╮
│ evaluated mean return 490.0 ± 12.5   threshold 475.0   gap +15.0     │
╰──────────────────────────────────────────────────────────────────────╯
stopped  evaluated mean return reached 475
took     8.0 s for 2,048 steps, 8 epochs, 160 updates, 256 steps/s
folder   runs/CartPole-v1-ppo_20261115-213400_a1b2
next     ludus play @last                watch it play
         ludus play @last --video auto   record it
"""


def test_golden_screen() -> None:
    console, file, clock = _console()
    _train(console, clock)
    console.summary(_RESULT)
    assert _screen(file.getvalue()) == GOLDEN.rstrip()


def test_live_frames_cover_each_other() -> None:
    console, file, clock = _console()
    _train(console, clock)
    assert file.getvalue().count("train/roll") > 3  # drawn again and again ...
    assert _screen(file.getvalue()).count("train/roll") == 1  # ... in one place
    assert file.getvalue().endswith("\x1b[?25h")  # and the cursor is back


def test_out_of_bounds_is_yellow_and_marked() -> None:
    console, file, clock = _console(color_system="standard")
    _train(console, clock)
    assert re.search(r"\x1b\[33m *!0\.2000", file.getvalue())
    assert not re.search(r"\x1b\[33m *!?0\.0100", file.getvalue())


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    console, file, clock = _console(color_system="standard")
    _train(console, clock)
    assert "!0.2000" in file.getvalue()
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|9[0-7])m", file.getvalue())


def test_alerts_appear_once_and_are_recapped() -> None:
    console, file, clock = _console(width=120)
    _train(console, clock, epochs=12)
    screen = _screen(file.getvalue())
    assert screen.count("⚠ train/policy/kl = 0.200: above 0.1; the policy moves too far") == 1
    console.summary(_RESULT)
    assert "train/policy/kl: above 0.1 in 6 of 12 rows;" in _screen(file.getvalue())


def test_the_end_of_an_alert_is_told() -> None:
    console, file, _ = _console(width=120, terminal=False)
    console.start(_HEADER, Budget(4_096))
    for epoch in (7, 8, 9, 1, 2, 3):
        console._monitor.write(_row(epoch))
    lines = file.getvalue().splitlines()
    assert [line[0] for line in lines if "train/policy/kl" in line] == ["⚠", "✓"]
    assert "✓ train/policy/kl: over: above 0.1" in lines


@pytest.mark.parametrize("terminal", [True, False])
def test_the_copy_holds_what_was_said_without_colours(terminal: bool) -> None:
    copied: list[str] = []
    console, file, clock = _console(terminal=terminal, copy=copied.append, color_system="standard")
    _train(console, clock, epochs=12)
    console.note("\x1b[31ma note")
    console.summary(_RESULT)
    assert ("\x1b" in file.getvalue()) == terminal
    text = "\n".join(copied)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    for said in (
        "run          CartPole-v1-ppo_20261115-213400_a1b2",
        "[  4.0 s] evaluation at 1,024 steps: return 245.0 ± 12.5  threshold 475.0",
        "⚠ train/policy/kl = 0.200: above 0.1; the policy moves too far",
        "a note",
        "SOLVED",
        "took     8.0 s",
    ):
        assert said in text
    assert text.count("evaluation at") == 3
    assert "━" not in text  # the table that is drawn again and again is no part of it


def test_quiet_says_nothing_but_keeps_the_copy() -> None:
    copied: list[str] = []
    console, file, clock = _console(copy=copied.append, quiet=True)
    _train(console, clock)
    console.summary(_RESULT)
    assert file.getvalue() == ""
    assert any("evaluation at 2,048 steps" in line for line in copied)
    assert any("SOLVED" in line for line in copied)


def test_a_full_disk_costs_the_copy_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    def full(text: str) -> None:
        raise OSError(28, "No space left on device")

    console, file, clock = _console(terminal=False, copy=full)
    _train(console, clock)
    assert "evaluation at" in file.getvalue()
    assert len([record for record in caplog.records if "run.log" in record.message]) == 1


def test_a_resumed_run_shows_its_whole_history() -> None:
    console, file, clock = _console(terminal=False)
    console.replay([_row(epoch) for epoch in range(1, 9)])
    console.start(_HEADER, Budget(10_000), position=2_048)
    console.write(_row(9))
    console.summary(_RESULT)
    assert re.search(r"train/roll/ep_rew/mean  [▁▂▃▄▅▆▇█]{9} +810.0 +10.0 +810.0", file.getvalue())


def test_a_pipe_gets_plain_lines() -> None:
    console, file, clock = _console(terminal=False)
    _train(console, clock)
    console.summary(_RESULT)
    assert "\x1b" not in file.getvalue()
    assert "\r" not in file.getvalue()
    lines = file.getvalue().splitlines()
    counts = "768 / 4,096 steps  epoch 3  update 60  256 steps/s  ETA 0:13"
    assert f"[  3.0 s]  19%  {counts}  return 90.0  loss/value 2.6667" in lines
    assert "[  8.0 s] evaluation at 2,048 steps: return 490.0 ± 12.5  threshold 475.0" in lines
    assert len([line for line in lines if line.startswith("[")]) == 3
    assert any("SOLVED" in line for line in lines)


def test_a_pipe_gets_at_most_a_line_in_two_seconds_and_fewer_later() -> None:
    console, file, clock = _console(terminal=False)
    console.start({}, Budget(10**9))
    for epoch in range(1, 40 * 600):
        clock.now = epoch / 40
        console.write({"epoch": epoch, "env_steps": epoch, "phase": "main", "seconds": clock.now})
    lines = [line for line in file.getvalue().splitlines() if line.startswith("[")]
    assert 50 < len(lines) < 150
    console.close()


def test_a_dumb_terminal_is_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    console, file, clock = _console(color_system=None)
    _train(console, clock)
    assert "\x1b" not in file.getvalue()


def test_ascii_output_where_nothing_else_can_be_shown() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    rich = RichConsole(file=file, width=100, height=40, force_terminal=True, legacy_windows=False)
    console = Console(Rules.load(), console=rich)
    console.start({"run": "ü" * 5, "spec": "x"}, Budget(100))
    console.write(_row(1))
    console.close()
    console.summary(_RESULT)
    assert b"SOLVED" in raw.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_untrusted_text_cannot_act(terminal: bool) -> None:
    evil = "[red]x[/red]\x1b[2J\x1b]0;owned\x07\n=1"
    console, file, _ = _console(terminal=terminal, color_system=None)
    console.start({"run": evil, evil: evil}, Budget(100))
    row = _row(1, **{f"train/{evil}/x": 1.0, "phase": evil})
    console.write(row)
    console.note(evil)
    console.close()
    console.summary({**_RESULT, "reason": evil, "folder": evil})
    output = file.getvalue()
    assert "\x1b[2J" not in output
    assert "\x1b]0" not in output
    assert "\x07" not in output
    assert "[red]x[/red]" in output


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mean": 400.0}, ["NOT SOLVED", "threshold 475.0", "gap -75.0"]),
        ({"threshold": None}, ["FINISHED", "no threshold is set"]),
        ({"mean": None}, ["FINISHED", "the run was not evaluated"]),
        ({"mean": None, "state": "stopped"}, ["STOPPED", "the run was not evaluated"]),
        ({"threshold": None, "state": "stopped"}, ["STOPPED", "no threshold is set"]),
        ({"mean": 400.0, "state": "stopped"}, ["STOPPED", "gap -75.0"]),
        ({"mean": -math.inf}, ["NOT SOLVED", "gap -inf"]),
        ({"seconds": 0.0, "reason": None}, ["the budget is used up", "- steps/s"]),
        ({"next": [("ludus resume @last", "go on")]}, ["ludus resume @last", "go on"]),
    ],
)
def test_verdicts(change: dict[str, Any], words: list[str]) -> None:
    console, file, clock = _console()
    _train(console, clock, epochs=2)
    console.summary({**_RESULT, **change})
    for word in words:
        assert word in _screen(file.getvalue())
    assert ("SOLVED" in _screen(file.getvalue())) == ("STOPPED" not in words and "FINISHED" not in words)


@pytest.mark.parametrize("size", [(20, 5), (40, 10), (79, 24), (80, 24), (97, 12), (300, 80)])
def test_every_size_of_terminal(size: tuple[int, int]) -> None:
    console, file, clock = _console(*size)
    _train(console, clock)
    console.summary(_RESULT)
    assert max(map(len, _screen(file.getvalue()).splitlines())) <= max(size[0], 40)


def test_a_small_screen_keeps_the_most_important() -> None:
    console, file, clock = _console(width=70, height=9)
    _train(console, clock)
    screen = _screen(file.getvalue())
    assert "ep_rew/mean" in screen
    assert "policy_lr" not in screen


def test_a_resumed_run_counts_its_speed_from_where_it_went_on() -> None:
    console, file, clock = _console(terminal=False)
    console.start({}, Budget(20_000), position=10_000)
    clock.now = 5.0
    console.write({"epoch": 41, "env_steps": 11_000, "phase": "main", "seconds": 5.0})
    assert "200 steps/s  ETA 0:45" in file.getvalue()


def test_writing_is_almost_free_when_nothing_is_due() -> None:
    console, _, clock = _console()
    console.start(_HEADER, Budget(4_096))
    row = _row(1, **{f"train/x/{i}": float(i) for i in range(30)})
    console.write(row)
    begin = time.process_time()
    for _ in range(2_000):
        console.write(row)
    assert (time.process_time() - begin) / 2_000 < 20e-6
    console.close()


def test_a_slow_redraw_makes_the_next_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing may take one per cent of the time, however long one takes."""
    console, _, clock = _console()
    console.start(_HEADER, Budget(4_096))
    frame = console._frame

    def slow() -> Any:
        time.sleep(0.02)
        return frame()

    monkeypatch.setattr(console, "_frame", slow)
    for epoch in range(1, 10):
        clock.now = console._due
        console.write(_row(epoch))
    assert console._due - clock.now >= 0.02 / 0.01
    console.close()


def test_a_closed_pipe_ends_the_output_not_the_run() -> None:
    code = """if True:
        from ludus.console.live import Console
        from ludus.progress import Budget
        console = Console()
        console.start({"run": "x"}, Budget(1000))
        for i in range(2000):
            console.note("line " * 20)
        console.close()
        raise SystemExit(7)
    """
    command = f"{sys.executable} -c '{code}' | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 7, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_a_screen_that_is_gone_costs_the_screen_only(terminal: bool) -> None:
    """A closed terminal (EIO), a full disk (ENOSPC): rows, notes and the summary go nowhere, and nothing is raised."""
    from rich.console import Console as RichConsole

    master, slave = os.openpty()
    kept: list[str] = []
    with os.fdopen(slave, "w") as file:
        rich = RichConsole(file=file, force_terminal=terminal, width=100, height=40)
        console = Console(console=rich, copy=kept.append)
        console.start({"run": "x"}, Budget(1000))
        os.close(master)
        for epoch in range(3):
            console.write({"epoch": epoch, "env_steps": epoch, "seconds": float(epoch), "val/roll/ep_rew/mean": 1.0})
        console.note("hello")
        console.summary({"reason": "the end"})
    assert "hello" in kept


def test_every_line_of_a_pipe_tells_what_the_update_did() -> None:
    console, file, clock = _console(terminal=False)
    console.start({}, Budget(4_096))
    clock.now = 2.0
    console.write(
        _row(3, **{"train/loss/policy": -0.01, "train/policy/explained_var": 0.5, "train/policy/entropy": 0.6})
    )
    (line,) = [line for line in file.getvalue().splitlines() if line.startswith("[")]
    told = re.search(r"update (\d+)  .* steps/s .* return (\S+)  loss/policy (\S+)  loss/value (\S+)", line)
    assert told and told.groups() == ("60", "90.0", "-0.0100", "2.6667")
    assert "policy/entropy 0.600  policy/explained_var 0.500" in line


def test_the_clock_goes_on_while_nothing_is_written() -> None:
    console, file, clock = _console()
    console.start(_HEADER, Budget(4_096))
    console.write(_row(1))
    console.note("compiling the update ...")
    clock.now = 0.5
    console.tick()
    assert "compiling the update  " not in file.getvalue()
    for clock.now in (12.0, 12.5, 34.0):
        console.tick()
    assert "compiling the update  0:12" in file.getvalue() and "  0:13  ETA" in file.getvalue()
    assert "  0:35  ETA" in _screen(file.getvalue()).splitlines()[-2]
    assert _screen(file.getvalue()).splitlines()[-1] == "compiling the update  0:34"
    before = file.getvalue()
    clock.now = 34.5
    console.tick()
    assert file.getvalue() == before  # once a second is enough
    console.write(_row(2))
    assert "compiling the update  " not in _screen(file.getvalue())
    console.close()


def test_the_progress_goes_on_between_rows() -> None:
    console, file, clock = _console()
    at = (0, "")
    console.start(_HEADER, Budget(4_096), under_way=lambda: at)
    clock.now, at = 20.0, (100, "")
    console.tick()
    bar = _screen(file.getvalue()).splitlines()[-2]
    assert "100 / 4,096  5.0 steps/s" in bar and "ETA 13:19" in bar
    clock.now, at = 22.0, (110, "evaluation, 3 of 10 episodes")
    console.tick()
    assert "110 / 4,096" in _screen(file.getvalue()).splitlines()[-2]
    assert _screen(file.getvalue()).splitlines()[-1] == "evaluation, 3 of 10 episodes"
    console.write(_row(1))
    clock.now, at = 40.0, (512, "")
    console.tick()
    assert "512 / 4,096" in _screen(file.getvalue())
    console.close()


@pytest.mark.parametrize("learning_starts", [1_250, 1_000])
def test_what_was_noted_is_over_when_the_run_is_further(learning_starts: int) -> None:
    """The first update is compiled, then steps are taken for minutes before the next row."""
    console, file, clock = _console(terminal=False)
    at = (1_300, "")
    console.start({}, Budget(25_000), under_way=lambda: at, learning_starts=learning_starts)
    console.write(_row(1) | {"env_steps": 1_000, "seconds": 2.0})
    console.note("compiling the update ...")
    for clock.now, steps in ((20.0, 1_300), (40.0, 1_400)):
        at = (steps, "")
        console.tick()
    first, second = [line for line in file.getvalue().splitlines() if " / 25,000" in line][-2:]
    assert first.endswith("compiling the update")
    assert "compiling" not in second and "1,400 / 25,000 steps  10 steps/s  ETA 39:20" in second
    console.close()


def test_a_pipe_hears_of_a_long_rollout() -> None:
    said: list[str] = []
    console, file, clock = _console(terminal=False, copy=said.append)
    at = (0, "")
    console.start({}, Budget(4_096), under_way=lambda: at)
    for clock.now in (5.0, 14.0):
        console.tick()
    assert file.getvalue() == ""
    for clock.now, steps in ((16.0, 48), (17.0, 51), (31.0, 93)):
        at = (steps, "")
        console.tick()
    lines = file.getvalue().splitlines()
    assert [re.search(r"([\d,]+) / 4,096 steps  3.0 steps/s", line)[1] for line in lines] == ["48", "93"]
    assert said == lines
    console.write(_row(1))
    clock.now, at = 60.0, (300, "evaluation, 3 of 10 episodes")
    console.tick()
    assert file.getvalue().splitlines()[-1].endswith("evaluation, 3 of 10 episodes")
    console.close()
    clock.now = 100.0
    console.tick()
    assert file.getvalue().count("evaluation, 3") == 1, "nothing is said after the end"


def test_what_is_announced_is_printed_by_the_next_tick() -> None:
    said: list[str] = []
    console, file, _ = _console(terminal=False, copy=said.append)
    console.start({}, Budget(4_096))
    console.announce("SIGINT: stopping after this update ...")
    assert "stopping" not in file.getvalue()
    console.tick()
    assert file.getvalue().count("SIGINT: stopping after this update ...\n") == 1
    console.tick()
    assert said.count("SIGINT: stopping after this update ...") == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_random_actions_promise_no_end(terminal: bool) -> None:
    console, file, clock = _console(terminal=terminal)
    console.start({}, Budget(10_000), learning_starts=1_000)
    for epoch in range(1, 6):  # 256 steps in a second, and from step 1,024 on ten times as slow
        clock.now += 5.0
        seconds = float(epoch) if epoch <= 4 else 14.0
        console.write({"epoch": epoch, "env_steps": 256 * epoch, "phase": "main", "seconds": seconds})
        told = _screen(file.getvalue()).splitlines()[-2 if terminal else -1]
        assert ("ETA when learning starts at 1,000" in told) == (256 * epoch < 1_000)
    assert "26 steps/s" in told and "ETA 5:41" in told
    console.close()


def test_no_return_is_explained() -> None:
    console, file, clock = _console()
    console.start(_HEADER, Budget(4_096))
    console.write({"epoch": 1, "env_steps": 256, "phase": "main", "seconds": 1.0, "train/loss/value": 1.0})
    assert "no episode has ended yet" in _screen(file.getvalue())
    clock.now = 1.0
    console.write(_row(2))
    assert "no episode has ended yet" not in _screen(file.getvalue())
    console.close()
