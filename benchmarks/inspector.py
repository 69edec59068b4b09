"""How long the inspector lets people wait: a step from key to picture, 2,000,000 rows, 1,000 runs; one JSON line.

Needs the extra `inspect`, Playwright and Chromium: python benchmarks/inspector.py [--rows N] [--runs N] [--steps N]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from ludus.archive import checkpoint
from ludus.archive.store import RunFolder
from ludus.config.compose import load, to_yaml
from ludus.experiment import build
from ludus.testing.inspector import served

KEYS = 300
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


def make_run(root: Path, name: str) -> RunFolder:
    """A finished run without an end of episodes, with a checkpoint of its first weights."""
    config = load("Pendulum-v1:sac", ["runtime.compile=never", "environment.max_episode_steps=100000"]).config
    run = RunFolder.create(root, name, config_yaml=to_yaml(config), spec="Pendulum-v1:sac")
    built = build(config)
    checkpoint.save(run.path, built.state_dict(), name="step=1000", best=True)
    built.close()
    run.set_status("finished")
    run.write("metrics.json", {"mean": 1.0, "best": 1.0, "env_steps": 1000, "seconds": 1.0})
    return run


def write_rows(path: Path, rows: int, keys: int = 12) -> None:
    """So many rows with an evaluation in one of a thousand."""
    metrics = ", ".join(f'"train/metric/{i:02}": %.6f' for i in range(keys))
    row = f'{{"epoch": %d, "env_steps": %d, "updates": %d, "phase": "train", "seconds": %.2f, {metrics}%s}}\n'
    with path.open("w") as file:
        for i in range(rows):
            evaluated = f', "val/roll/ep_rew/mean": {i}.0' if i % 1000 == 0 else ""
            file.write(row % (i, i, i, i / 100, *[i * 0.001] * keys, evaluated))


def opened(page: Any, address: str, ready: str) -> float:
    """Seconds from asking for a page to its content."""
    begun = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(ready, state="attached", timeout=300_000)
    return time.perf_counter() - begun


def stepping(page: Any, root: Path, steps: int) -> dict[str, float]:
    """Waits from key to picture."""
    run = make_run(root / "stepping", "stepping")
    with served(root / "stepping") as address:
        query = f"?run={run.id}&checkpoint=last&episode=0&steps={steps}"
        seconds = opened(page, address + query, "canvas.picture[data-shown='0']")
        recorded = int(page.locator("input.slider").get_attribute("max"))
        page.evaluate(STEPPER, 20)
        waits = page.evaluate(STEPPER, min(KEYS, recorded - 25))
    quantiles = statistics.quantiles(waits, n=20)
    return {
        "steps": recorded, "played_and_opened_s": round(seconds, 2), "p50_ms": round(statistics.median(waits), 1),
        "p95_ms": round(quantiles[18], 1), "keys": len(waits),
    }  # fmt: skip


def main() -> None:
    """Everything in a folder that is removed again."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("rows", 2_000_000), ("runs", 1_000), ("steps", 1_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    wanted = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "inspector", "load": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory() as place, sync_playwright() as started:
        root = Path(place)
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        result["stepping"] = stepping(page, root, wanted.steps)
        print(result, file=sys.stderr)
        large = make_run(root / "large", "large")
        write_rows(large.path / "metrics.jsonl", wanted.rows)
        megabytes = (large.path / "metrics.jsonl").stat().st_size / 1e6
        with served(root / "large") as address:
            first, again = (opened(page, f"{address}?run={large.id}", ".uplot") for _ in range(2))
        result["large_run"] = {
            "rows": wanted.rows,
            "mb": round(megabytes),
            "first_s": round(first, 2),
            "again_s": round(again, 2),
        }
        print(result, file=sys.stderr)
        one = make_run(root / "many", "many")
        write_rows(one.path / "metrics.jsonl", 200)
        for i in range(wanted.runs - 1):
            shutil.copytree(one.path, root / "many" / f"{one.id[:-4]}{i:04}", symlinks=True)
        with served(root / "many") as address:
            first, again = (opened(page, address, "tbody tr") for _ in range(2))
        result["many_runs"] = {"runs": wanted.runs, "first_s": round(first, 2), "again_s": round(again, 2)}
        browser.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
