"""How long the inspector lets people wait: a step from key to picture, 2,000,000 rows, 1,000 runs, ten clients at once.

Everything is measured in Chromium against `ludus inspect` as a process of its own; `cpu_s` is that process's time.
Needs the extra `inspect`, Playwright and Chromium. One command prints one line of JSON:

    python benchmarks/inspector.py [--rows N] [--runs N] [--steps N] [--seconds N]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from inspected import chromium, make_run

SPEC, ENDLESS = "Pendulum-v1:sac", "environment.max_episode_steps=100000"
KEYS, CLIENTS = 300, 10
LIMITS = {"stepping": ("p50_ms", 33.0), "large_run": ("first_s", 2.0), "many_runs": ("first_s", 2.0)}
"""What the first number of each part has to stay below."""
STEPPER = """async (count) => {
    const canvas = document.querySelector('canvas.picture');
    const waits = [];
    for (let i = 0; i < count; i += 1) {
        const before = canvas.dataset.shown;
        const begun = performance.now();
        document.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
        while (canvas.dataset.shown === before) await new Promise(requestAnimationFrame);
        await new Promise(requestAnimationFrame);
        waits.push(performance.now() - begun);
    }
    return waits;
}"""
"""Each wait ends with the display frame that shows the new picture."""


@dataclass
class Server:
    """`ludus inspect` over a folder."""

    port: int
    pid: int

    @property
    def address(self) -> str:
        """Of its first page."""
        return f"http://127.0.0.1:{self.port}/"

    def cpu(self) -> float:
        """Seconds of processor time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def inspecting(root: Path) -> Iterator[Server]:
    """A server as people start it."""
    command = [sys.executable, "-m", "ludus", "inspect", str(root), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Server(int(process.stdout.readline().rstrip("/\n").rpartition(":")[2]), process.pid)
        process.terminate()


def opened(page: Any, server: Server, query: str, ready: str) -> tuple[float, float]:
    """Seconds from asking for a page to its content, and processor time of the server for it."""
    begun, used = time.perf_counter(), server.cpu()
    page.goto(server.address + query)
    page.wait_for_selector(ready, state="attached", timeout=300_000)
    return round(time.perf_counter() - begun, 2), round(server.cpu() - used, 2)


def twice(page: Any, server: Server, query: str, ready: str) -> dict[str, float]:
    """The first time and the second."""
    (first, first_cpu), (again, again_cpu) = (opened(page, server, query, ready) for _ in range(2))
    return {"first_s": first, "first_cpu_s": first_cpu, "again_s": again, "again_cpu_s": again_cpu}


def stepping(page: Any, root: Path, steps: int) -> dict[str, float]:
    """Waits from key to picture."""
    run = make_run(root, SPEC, ENDLESS)
    with inspecting(root) as server:
        query = f"?run={run.id}&checkpoint=last&episode=0&steps={steps}"
        seconds, _ = opened(page, server, query, "canvas.picture[data-shown='0']")
        recorded = int(page.locator("input.slider").get_attribute("max"))
        page.evaluate(STEPPER, 20)
        waits = page.evaluate(STEPPER, min(KEYS, recorded - 25))
    p95 = statistics.quantiles(waits, n=20)[18]
    return {
        "p50_ms": round(statistics.median(waits), 1), "p95_ms": round(p95, 1), "keys": len(waits), "steps": recorded,
        "played_and_opened_s": seconds,
    }  # fmt: skip


def write_rows(path: Path, rows: int, keys: int = 12) -> None:
    """So many rows with an evaluation in one of a thousand."""
    metrics = ", ".join(f'"train/metric/{i:02}": %.6f' for i in range(keys))
    row = f'{{"epoch": %d, "env_steps": %d, "updates": %d, "phase": "train", "seconds": %.2f, {metrics}%s}}\n'
    with path.open("w") as file:
        for i in range(rows):
            evaluated = f', "val/roll/ep_rew/mean": {i}.0' if i % 1000 == 0 else ""
            file.write(row % (i, i, i, i / 100, *[i * 0.001] * keys, evaluated))


def large_run(page: Any, root: Path, rows: int) -> dict[str, float]:
    """The curves of one long run."""
    run = make_run(root, SPEC)
    path = run.path / "metrics.jsonl"
    write_rows(path, rows)
    with inspecting(root) as server:
        found = twice(page, server, f"?run={run.id}", ".uplot")
        metric, cpu = opened(page, server, f"?run={run.id}&metric=train/metric/05", ".uplot")
    return {**found, "other_metric_s": metric, "other_metric_cpu_s": cpu, "rows": rows, "mb": path.stat().st_size >> 20}


def many_runs(page: Any, root: Path, runs: int, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
    """The list of many runs, then ten clients over it."""
    one = make_run(root, "CartPole-v1:ppo")
    write_rows(one.path / "metrics.jsonl", 200)
    for i in range(runs - 1):
        shutil.copytree(one.path, root / f"{one.id[:-4]}{i:04}", symlinks=True, copy_function=os.link)
    with inspecting(root) as server:
        found = {**twice(page, server, "", "tbody tr"), "runs": runs}
        return found, at_once(server, one.id, seconds)


def at_once(server: Server, run: str, seconds: float) -> dict[str, Any]:
    """Clients that ask as the pages do, all the time; what fails is counted."""
    until, waits, faults = time.monotonic() + seconds, [], []

    def client(number: int) -> None:
        while time.monotonic() < until:
            for method, path, body in asked(run, number):
                begun = time.perf_counter()
                try:
                    answered(server.port, method, path, body)
                except (OSError, ValueError, http.client.HTTPException) as error:
                    faults.append(f"{path}: {error!r}"[:200])
                waits.append(time.perf_counter() - begun)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    used = server.cpu()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "errors": len(faults), "requests": len(waits), "clients": CLIENTS, "seconds": seconds,
        "p50_ms": round(statistics.median(waits) * 1000, 1), "worst_ms": round(max(waits) * 1000, 1),
        "cpu_s": round(server.cpu() - used, 1), "first_errors": faults[:3],
    }  # fmt: skip


def asked(run: str, number: int) -> Iterator[tuple[str, str, str | None]]:
    """What the pages ask one after the other."""
    yield "GET", "/", None
    yield "GET", "/api/runs", None
    yield "GET", f"/api/sparklines?run={run}", None
    yield "GET", f"/api/runs/{run}", None
    for axis in ("env_steps", "seconds"):
        yield "GET", "/api/curve?" + urlencode({"run": run, "metric": "train/metric/03", "axis": axis}), None
    yield "GET", f"/api/runs/{run}/config", None
    yield "POST", "/api/episodes", json.dumps({"run": run, "checkpoint": "last", "seed": number, "steps": 50})


def answered(port: int, method: str, path: str, body: str | None) -> None:
    """One request; an answer that is no success, or no JSON where there should be some, is a ValueError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(f"{answer.status} {content[:100]!r}")
    if path.startswith("/api/"):
        json.loads(content)


def main() -> None:
    """Everything in a folder that is removed again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 2_000_000), ("runs", 1_000), ("steps", 1_000), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    wanted = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "inspector", "load": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        page, root = browser.new_page(viewport={"width": 1280, "height": 900}), Path(place)
        result["stepping"] = stepping(page, root / "stepping", wanted.steps)
        print(result["stepping"], file=sys.stderr)
        result["large_run"] = large_run(page, root / "large", wanted.rows)
        print(result["large_run"], file=sys.stderr)
        result["many_runs"], result["at_once"] = many_runs(page, root / "many", wanted.runs, wanted.seconds)
    missed = [name for name, (key, limit) in LIMITS.items() if result[name][key] >= limit]
    result["missed"] = missed + (["at_once"] if result["at_once"]["errors"] else [])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
