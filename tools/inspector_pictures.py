"""The pictures of docs/inspector.md: pages of `ludus inspect` over a folder of trained runs, as small PNG files.

python tools/inspector_pictures.py RUNS_DIR docs/pictures       needs Debian's Chromium and the extras inspect and dev

RUNS_DIR holds trained runs of the specs in `RUNS`; of several runs of one spec the newest is shown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from inspected import chromium, served

RUNS = {
    "ppo": "CartPole-v1-ppo_2",
    "dqn": "CartPole-v1-dqn_2",
    "attention": "CartPole-v1-ppo_gtrxl_masked_2",
    "pixels": "MinAtar-Breakout-v1-ppo_2",
    "world": "CartPole-v1-dreamer_2",
}
"""What pictures show -> how the folder of such a run begins."""
COLOURS = 255


def newest(runs: Path, ids: Mapping[str, str] = RUNS) -> dict[str, list[str]]:
    """Runs of each kind, the newest first."""
    folders = sorted(path.name for path in runs.iterdir() if path.is_dir() and not path.is_symlink())
    found = {kind: [name for name in reversed(folders) if name.startswith(start)] for kind, start in ids.items()}
    missing = [ids[kind].removesuffix("_2") for kind, names in found.items() if not names]
    if missing:
        sys.exit(f"error: {runs}: there is no run of {', '.join(missing)}; train them first")
    return found


def steps_shown(page: Any) -> None:
    page.wait_for_selector("canvas.picture[data-shown]", state="attached")
    page.wait_for_timeout(500)


def looked_inside(page: Any) -> None:
    steps_shown(page)
    page.get_by_role("button", name="Look inside at this step").click()
    page.wait_for_selector("[data-panel=inside] h3")
    page.wait_for_timeout(500)


def dreamed(page: Any) -> None:
    steps_shown(page)
    page.get_by_role("button", name="Imagine from this step").click()
    page.wait_for_selector("[data-panel=dream] .uplot")
    page.wait_for_timeout(500)


def banded(page: Any) -> None:
    page.wait_for_selector(".uplot")
    page.get_by_label("Seeds as a band").check()
    page.wait_for_selector("text=seeds)")
    page.wait_for_timeout(500)


def apart(page: Any) -> None:
    steps_shown(page)
    page.get_by_role("button", name="First difference").click()
    page.wait_for_timeout(500)


def listed(page: Any) -> None:
    page.wait_for_selector("svg.spark")
    page.wait_for_timeout(500)


Shot = tuple[str, str, tuple[int, int], Callable[[Any], None], str | None]


def shots(found: Mapping[str, list[str]]) -> list[Shot]:
    """(file, query, size of the window, what to do first, selector of the part that is shown; none: the window)."""
    one = {kind: names[0] for kind, names in found.items()}
    seeds = "&".join(f"run={name}" for name in found["ppo"])
    episode, metric = "page=episode&checkpoint=last&episode=3&steps=1000", "metric=val/roll/ep_rew/mean"
    return [
        ("runs", "", (1280, 700), listed, None),
        ("curves", f"{seeds}&{metric}", (1280, 560), banded, None),
        ("episode", f"{episode}&run={one['attention']}&t=70", (1280, 1000), steps_shown, None),
        ("inside", f"{episode}&run={one['pixels']}&t=7", (1280, 1000), looked_inside, "[data-panel=inside]"),
        ("dream", f"{episode}&run={one['world']}&t=30", (1280, 1000), dreamed, "[data-panel=dream]"),
        ("compare", f"page=compare&run={one['ppo']}&run={one['dqn']}&episode=3", (1280, 1000), apart, None),
        ("phone", f"{episode}&run={one['ppo']}&t=40", (390, 844), steps_shown, None),
    ]


def reduce_colours(path: Path) -> None:
    """Keep a palette of the picture: a quarter of its size."""
    from PIL import Image

    with Image.open(path) as picture:
        reduced = picture.convert("RGB").quantize(COLOURS)
    reduced.save(path, optimize=True)


def main() -> None:
    """Serve, look, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs_dir", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    found = newest(options.runs_dir)
    with served(options.runs_dir) as address, chromium() as browser:
        for name, query, (width, height), first, part in shots(found):
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
            page.set_default_timeout(240_000)
            page.goto(f"{address}?{query}")
            first(page)
            target = options.out / f"inspector-{name}.png"
            (page.locator(part) if part else page).screenshot(path=str(target))
            reduce_colours(target)
            print(f"{target}: {target.stat().st_size:,} bytes")
            page.close()


if __name__ == "__main__":
    main()
