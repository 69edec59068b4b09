"""`ludus inspect --static`: one episode as one HTML file that needs nothing else, to send to a friend."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ludus.errors import ConfigError
from ludus.files import write_text
from ludus.inspector.jobs import FILES, MODES

STATIC = Path(__file__).parent / "static"
MODULES = ("dom.js", "pictures.js", "source.js", "player.js", "chart.js", "panels.js", "single.js")
"""In the order in which they need each other."""
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>Ludus</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main id="main" tabindex="-1"></main>
<script type="application/json" id="episode">{data}</script>
<!-- uPlot, which the next script is:
{licence}
-->
<script>{plot}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def write_page(
    target: Path,
    runs: Path,
    run: str,
    plugins: Sequence[str],
    *,
    checkpoint: str | None,
    seed: int,
    mode: str,
    steps: int,
) -> int:
    """Play the episode here and write the page; returns its size in bytes."""
    from ludus.archive.store import RunFolder
    from ludus.inspector import recording
    from ludus.session.player import checkpoint_name

    if mode not in MODES:
        raise ConfigError("--mode", f"'{mode}' is unknown", f"use {', '.join(MODES)}")
    found = RunFolder.load(runs, run)
    wish = recording.Wish(found.id, checkpoint_name(found, checkpoint), seed, mode, steps)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        played, pictures = recording.play(runs, wish, plugins, folder / "frames.bin", lambda _: None)
        recording.write(played, folder, pictures)
        page = page_of(folder)
    write_text(target, page, durable=False)
    return len(page.encode())


def page_of(folder: Path) -> str:
    """The page of a recording."""
    packed: dict[str, Any] = {"meta": json.loads((folder / "episode.json").read_text()), "files": {}}
    for name in FILES[1:]:
        packed["files"][name] = base64.b64encode((folder / name).read_bytes()).decode()
    data = json.dumps(packed, separators=(",", ":")).replace("<", "\\u003c")
    plot, script = (STATIC / "uPlot.iife.min.js").read_text(), joined()
    sums = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in (plot, script)
    )
    style = (STATIC / "uPlot.min.css").read_text() + (STATIC / "style.css").read_text()
    policy = f"default-src 'none'; script-src {sums}; style-src 'unsafe-inline'; img-src blob: data:"
    licence = (STATIC / "uPlot.LICENSE").read_text()
    return _PAGE.format(policy=policy, style=style, data=data, licence=licence, plot=plot, script=script)


def joined() -> str:
    """The modules of the page as one: without imports and exports, since all of them are here."""
    texts = ((STATIC / name).read_text(encoding="utf-8") for name in MODULES)
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in texts)
