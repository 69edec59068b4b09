"""What tests and benchmark of the inspector share: small finished runs, a server over them, a browser."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.archive import checkpoint
from ludus.archive.store import RunFolder
from ludus.config.compose import load, to_yaml
from ludus.config.read import digest
from ludus.experiment import build

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium")


def make_run(root: Path, spec: str, *overrides: str, steps: tuple[int, ...] = (512, 1024)) -> RunFolder:
    """A finished run of a shipped config, with checkpoints of its first weights and twelve rows of metrics."""
    asked = ["runtime.compile=never", *overrides]
    resolved = load(spec, asked)
    config = resolved.config
    facts = {"config_hash": digest(resolved.data), "spec": spec, "overrides": asked, "argv": ["ludus", "train", spec]}
    run = RunFolder.create(root, resolved.run_name[:40], config_yaml=to_yaml(config), **facts)
    built = build(config)
    try:
        state: dict[str, Any] = built.state_dict()
    finally:
        built.close()
    for step in steps:
        checkpoint.save(run.path, state, name=f"step={step}", best=step == steps[0])
    rows = []
    for i in range(1, 13):
        row = {"epoch": i, "env_steps": i * 100, "updates": i * 4, "phase": "train", "seconds": i * 0.5}
        row |= {"train/roll/ep_rew/mean": 10.0 * i, "train/loss/policy": 0.5 / i}
        rows.append(row | ({"val/roll/ep_rew/mean": 8.0 * i} if i % 4 == 0 else {}))
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run.set_status("finished", reason="the step budget is used up")
    run.write("metrics.json", {"mean": 96.0, "best": 96.0, "env_steps": 1200, "updates": 48, "seconds": 6.0})
    return run


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The address of a server over a folder of runs, which ends afterwards."""
    from ludus.inspector.server import application, server_of

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = server_of(application(root), listener)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()
