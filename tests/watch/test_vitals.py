"""Speed over a window, time left, memory and where it leads."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ludus.progress import Budget
from ludus.watch import ram, vitals
from ludus.watch.ram import MB
from ludus.watch.vitals import Vitals, one_decision


def test_speed_is_of_the_last_seconds_and_the_rest_follows_from_it() -> None:
    found: dict[str, float] = {}
    meter = Vitals(Budget(100_000))
    for second in range(1, 41):  # 1,000 steps a second, then 500
        steps = 1000 * min(second, 20) + 500 * max(second - 20, 0)
        found = meter.measure(epoch=2 * second, position=steps, seconds=float(second))
    assert found["time/fps"] == pytest.approx(500)
    assert found["time/fps_total"] == pytest.approx(30_000 / 40)
    assert found["time/eta_seconds"] == pytest.approx(70_000 / 500)
    assert found["time/epoch_seconds"] == pytest.approx(0.5)


def test_a_resumed_run_counts_from_where_it_went_on() -> None:
    meter = Vitals(Budget(20_000), epoch=100, position=10_000, seconds=50.0)
    found = meter.measure(epoch=102, position=10_400, seconds=52.0)
    assert (found["time/fps"], found["time/fps_total"], found["time/epoch_seconds"]) == (200.0, 200.0, 1.0)
    assert found["time/eta_seconds"] == pytest.approx(9_600 / 200)


def test_processor_time_is_not_wall_time() -> None:
    meter = Vitals(Budget(100))
    time.sleep(0.2)
    assert meter.measure(epoch=1, position=1, seconds=0.2)["time/cpu_seconds"] < 0.1
    begin = time.process_time()
    while time.process_time() < begin + 0.05:
        pass
    assert 0.05 <= meter.measure(epoch=2, position=2, seconds=0.3)["time/cpu_seconds"] < 0.15


def test_no_time_no_speed() -> None:
    found = Vitals(Budget(10)).measure(epoch=1, position=0, seconds=0.0)
    assert found["time/fps"] == 0.0
    assert "time/eta_seconds" not in found


ONE_BLOCK = """
import mmap
from ludus.watch import ram

before = ram.used()
block = mmap.mmap(-1, 64 * ram.MB)
for _ in range(64):
    block.write(bytes(ram.MB))
print(ram.used() - before)
"""


def test_memory_is_that_of_this_process() -> None:
    # A process of its own: here other tests have left an allocator that keeps what is freed (learning/allocation.py).
    grown = subprocess.run([sys.executable, "-c", ONE_BLOCK], capture_output=True, text=True, check=True)
    assert 56 * MB < int(grown.stdout) < 80 * MB
    found = Vitals(Budget(10)).measure(epoch=1, position=1, seconds=1.0)
    assert found["system/rss_mb"] <= found["system/peak_rss_mb"]
    assert found["system/memory_share"] == pytest.approx(found["system/rss_mb"] * MB / ram.total())
    assert ram.available() < ram.total()


def test_a_leak_is_seen_before_it_hurts(monkeypatch: pytest.MonkeyPatch) -> None:
    held = 100 * MB
    monkeypatch.setattr(ram, "used", lambda: held)
    monkeypatch.setattr(ram, "peak", lambda: held)
    monkeypatch.setattr(ram, "total", lambda: 1000 * MB)
    leaking, steady = Vitals(Budget(100_000)), Vitals(Budget(100_000))
    ahead = {}
    for second in range(5, 2_000, 5):
        held = 100 * MB + second * MB // 10
        ahead = leaking.measure(epoch=second, position=10 * second, seconds=float(second))
        assert ("system/memory_ahead" in ahead) == (second >= 5 * vitals.SETTLED)
    # 0.1 MB a second and 10 steps a second: 10,000 seconds make 1,000 MB more
    assert ahead["system/memory_ahead"] == pytest.approx(1.1, rel=0.02)
    held = 100 * MB
    for second in range(5, 2_000, 5):
        ahead = steady.measure(epoch=second, position=10 * second, seconds=float(second))
    assert ahead["system/memory_ahead"] == pytest.approx(0.1)
    assert len(steady._memory._samples) < 2 * vitals.SAMPLES


def test_a_decision_is_timed_rarely() -> None:
    calls = []
    meter = Vitals(Budget(10), act=lambda: (calls.append(1), time.sleep(0.002)))
    rows = [meter.measure(epoch=i, position=i, seconds=i / 10) for i in range(1, 400)]
    timed = [row["time/act_ms"] for row in rows if "time/act_ms" in row]
    assert len(timed) == 2
    assert len(calls) == 6
    assert all(2 <= value < 50 for value in timed)


@pytest.mark.parametrize(
    "space", [gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(5), gym.spaces.Box(0, 255, (3, 8, 8), np.uint8)]
)
def test_a_decision_is_one_greedy_action_for_one_environment(space: gym.Space) -> None:
    seen = []

    def act(obs: Any, state: Any, first: Any, *, deterministic: bool) -> None:
        seen.append((obs.shape, obs.dtype, state, first.tolist(), deterministic))

    one_decision(SimpleNamespace(act=act, initial_state=lambda batch: batch), space)()
    assert seen == [((1, *space.shape), space.dtype, 1, [True], True)]


def test_a_row_costs_microseconds() -> None:
    meter = Vitals(Budget(10**9))
    begin = time.process_time()
    for i in range(2_000):
        meter.measure(epoch=i, position=i, seconds=i / 100)
    assert (time.process_time() - begin) / 2_000 < 100e-6


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text(f"{512 * MB}\n")
    (tmp_path / "memory.current").write_text(f"{400 * MB}\n")
    (tmp_path / "memory.stat").write_text(f"anon {300 * MB}\ninactive_file {100 * MB}\n")
    monkeypatch.setattr(ram, "_CGROUP", tmp_path)
    assert ram.total() == 512 * MB
    assert ram.available() == 212 * MB
    (tmp_path / "memory.max").write_text("max\n")
    assert ram.total() > 512 * MB
