"""F2: the monitors, hooks and filters of a repository from elsewhere are not started when a run notes its commit."""

import subprocess
import tempfile
from pathlib import Path

from ludus.runs.provenance import git_state

folder = Path(tempfile.mkdtemp())


def git(*words: str) -> None:
    """Call git in the folder."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


git("init")
(folder / "a").write_text("1")
git("add", "a")
git("commit", "-m", "x")
git("config", "core.fsmonitor", f"touch {folder}/by-monitor; false")
git("config", "filter.x.clean", f"touch {folder}/by-filter; cat")
(folder / ".git" / "info" / "attributes").write_text("a filter=x\n")
(folder / "a").write_text("2")
git_state(folder)
started = sorted(path.name for path in folder.glob("by-*"))
assert started == [], f"programs of the repository ran: {started}"
