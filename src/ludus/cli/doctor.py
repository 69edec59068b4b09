"""`ludus doctor`: what is installed here, what the machine has, and what is wrong."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.filesize import decimal as size

from ludus.archive.index import Index
from ludus.cli.options import Json, RunsDir
from ludus.cli.table import painted, say
from ludus.errors import LudusError
from ludus.files import to_json
from ludus.text import clean

LEAST_DISK, LEAST_MEMORY = 1 << 30, 1 << 30
KEYS = {"HF_TOKEN": "hub", "WANDB_API_KEY": "wandb"}
"""Environment variables that may hold a key, and the extra that uses it; their values are never read out."""
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(\[[^]]*\])?[^;]*(?:;(.*))?$")


def doctor(json: Json = False, runs_dir: RunsDir = Path("runs")) -> None:
    """Versions, device, extras, keys (present or not), disk, and what is wrong."""
    facts: dict[str, Any] = {
        "versions": versions(),
        "machine": machine(),
        "extras": extras(),
        "keys": keys(),
        "disk": disk(runs_dir),
    }
    facts["problems"] = list(problems(runs_dir))
    if json:
        print(to_json(facts), end="")
        return
    for title in ("versions", "machine", "extras", "keys", "disk"):
        say(painted(title, "bold"))
        for name, value in facts[title].items():
            say(f"  {name:<14} {_shown(title, value)}")
    found = facts["problems"]
    say(painted("problems" if found else "no problems", "yellow" if found else "green"))
    for line in found:
        say(f"  {clean(line, 400)}")


def versions() -> dict[str, str]:
    """Of everything that determines numbers."""
    from ludus.archive.provenance import versions as found

    return found()


def machine() -> dict[str, Any]:
    """Processor, memory, accelerator, compiler, display."""
    from ludus.envs.make import cores
    from ludus.learning.package import has_compiler
    from ludus.watch import ram

    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin"
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores(),
        "memory": f"{size(ram.available())} of {size(ram.total())} free",
        "device": device(),
        "compiler": "there" if has_compiler() else "none: updates are not compiled",
        "display": "there" if display else "none: ludus play --video records instead",
    }


def device() -> str:
    """What `experiment.device: auto` picks."""
    import torch

    if torch.cuda.is_available():
        return f"cuda, {torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def extras() -> dict[str, str]:
    """Every extra: installed, or the packages that are missing."""
    found = {}
    own = metadata.distribution("ludus-rl")
    for extra in own.metadata.get_all("Provides-Extra") or []:
        if extra in ("all", "dev"):
            continue
        wanted = [match[1] for line in own.requires or [] if (match := _of(line, extra))]
        missing = [name for name in wanted if not _installed(name)]
        found[extra] = "installed" if not missing else f"pip install 'ludus-rl[{extra}]' (without {', '.join(missing)})"
    return found


def keys() -> dict[str, str]:
    """Where a key is; never the key."""
    found = {}
    for name in KEYS:
        found[name] = "set" if os.environ.get(name) else "not set"
    if importlib.util.find_spec("huggingface_hub"):
        from huggingface_hub import constants

        found["hf login"] = "there" if Path(constants.HF_TOKEN_PATH).is_file() else "none (hf auth login)"
    if importlib.util.find_spec("wandb"):
        from ludus.metrics.sinks.wandb import has_key

        found["wandb login"] = "there" if has_key() else "none (wandb login)"
    return found


def disk(runs_dir: Path) -> dict[str, str]:
    """Room where runs, caches and settings are."""
    from ludus.archive.user_folder import home
    from ludus.learning.package import default_folder as cache_folder

    places = {"runs": runs_dir, "cache": cache_folder(), "settings": home()}
    return {name: f"{place}, {size(_free(place))} free" for name, place in places.items() if place is not None}


def problems(runs_dir: Path) -> Iterator[str]:
    """What will go wrong, with a remedy each."""
    from ludus.watch import ram

    place = _existing(runs_dir)
    if not place.is_dir():
        yield f"{place} is no folder; choose another place with --runs-dir"
    if not os.access(place, os.W_OK):
        yield f"{place} cannot be written; choose another place with --runs-dir"
    if (free := _free(runs_dir)) < LEAST_DISK:
        yield f"{place}: only {size(free)} free; ludus cleanup removes old checkpoints"
    if ram.available() < LEAST_MEMORY:
        yield f"only {size(ram.available())} of memory are free; close something, or train smaller"
    try:
        lost = [record.id for record in Index(runs_dir).records() if record.state == "lost"]
    except (LudusError, OSError) as error:
        yield f"{runs_dir}: the runs cannot be listed: {error}"
        lost = []
    if lost:
        yield f"{len(lost)} runs ended without a word, such as {lost[0]}; ludus resume {lost[0]}"
    link = runs_dir / "@last"
    if link.is_symlink() and not link.exists():
        yield f"{link} points to a run that is gone; the next run mends it"


def _of(requirement: str, extra: str) -> re.Match[str] | None:
    """The parts of a requirement if it belongs to an extra."""
    match = _REQUIREMENT.match(requirement)
    return match if match and re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", match[3] or "") else None


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _existing(place: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    place = place.absolute()
    return next(path for path in (place, *place.parents) if path.exists())


def _free(place: Path) -> int:
    return shutil.disk_usage(_existing(place)).free


def _shown(title: str, value: object) -> str:
    text = clean(value, 200)
    return painted(text, "dim") if title == "extras" and text.startswith("pip") else text
