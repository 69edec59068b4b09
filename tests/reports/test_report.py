"""Reports: complete, self-contained, harmless, quick, and possible for any folder."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import time
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.archive import history
from ludus.errors import DataError
from ludus.reports.report import gather, peak_memory, write_report
from ludus.reports.svg import ChartLine, chart, ticks
from synthetic import DEAD, make_run

EVIL = "<img src=x onerror=alert(1)>\"'&\x1b[31m</script><script>alert(2)</script>"
VOID = {"meta", "path", "line", "circle", "br", "img", "link", "input"}


class Page(HTMLParser):
    """Tags, attributes and text; complains about what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words += data + "\n"

    def tags(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.seen if tag == name]


def page(folder: Path) -> Page:
    return Page(write_report(folder).read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path, "cart_1", [100.0, 300.0, 480.0], heavy=True, meta={"overrides": ["algorithm.lr=0.001"]})


def test_both_pages_say_how_it_went(folder: Path) -> None:
    found = page(folder)
    for words in (
        "SOLVED", "480.0", "threshold 475.0, gap +5.0", "CartPole-v1:ppo", "cart_1", "Learning", "Evaluations",
        "Checkpoints", "step=1000", "best", "last", "Configuration", "algorithm.lr", "Provenance", "exact, by adapter",
        "CartPole-v1:ppo algorithm.lr=0.001", "c0ffee",
    ):  # fmt: skip
        assert words in found.words, words
    text = (folder / "report.md").read_text()
    for words in ("# CartPole-v1:ppo: SOLVED", "| gap | +5.000 |", "**480.0**", "## Checkpoints", "step=1000", "▁"):
        assert words in text, words


def test_the_page_needs_nothing_but_itself(folder: Path) -> None:
    found = page(folder)
    sources = [value for _, attributes in found.seen for key, value in attributes.items() if key in ("src", "href")]
    assert sources == ["videos/a.mp4"]
    text = (folder / "report.html").read_text()
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_only_our_own_script_may_run(folder: Path) -> None:
    text = write_report(folder).read_text()
    (policy,) = [tag["content"] or "" for tag in Page(text).tags("meta") if "http-equiv" in tag]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_hostile_text_is_only_text(tmp_path: Path) -> None:
    folder = make_run(
        tmp_path, "cart_1", spec=EVIL, name=EVIL, environment=json.dumps(EVIL), status={"reason": EVIL},
        meta={"overrides": [EVIL], "argv": [EVIL], "versions": {EVIL: EVIL}, "git": {"commit": EVIL},
              "host": {"name": EVIL}, "config_hash": EVIL},
    )  # fmt: skip
    (folder / "tags.json").write_text(json.dumps({"tags": [EVIL]}))
    (folder / "videos").mkdir()
    (folder / "videos" / "<img onerror=x>.mp4").touch()
    with (folder / "metrics.jsonl").open("a") as file:
        for i in range(3):
            file.write(json.dumps({"env_steps": 5000 + i, f"train/{EVIL}": float(i), "phase": EVIL}) + "\n")
    found = page(folder)
    assert found.tags("img") == []
    assert len(found.tags("script")) == 1
    assert not [key for _, attributes in found.seen for key in attributes if key.startswith("on")]
    assert found.words.count("<img src=x onerror=alert(1)>") >= 8
    markdown = (folder / "report.md").read_text()
    assert not re.search(r"(?<!\\)<", markdown)
    assert "\x1b" not in markdown + (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ({"returns": [10.0]}, "NOT SOLVED"),
        ({"threshold": None}, "FINISHED"),
        ({"state": "stopped", "threshold": None}, "STOPPED"),
        ({"state": "failed"}, "FAILED"),
        ({"state": "running"}, "RUNNING"),
        ({"state": "running", "status": {"pid": DEAD}}, "LOST"),
    ],
)
def test_the_verdict(tmp_path: Path, options: dict[str, Any], verdict: str) -> None:
    folder = make_run(tmp_path, "cart_1", **options)
    assert verdict in page(folder).words
    assert f": {verdict}\n" in (folder / "report.md").read_text()


def test_alerts_come_with_tips(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "cart_1")
    with (folder / "metrics.jsonl").open("a") as file:
        for i in range(20):
            file.write(json.dumps({"epoch": 9 + i, "env_steps": 3000 + i, "train/policy/kl": 0.7}) + "\n")
    words = page(folder).words
    assert "train/policy/kl" in words
    assert "above 0.1" in words
    assert "the policy moves too far" in words
    assert "Tip: the policy moves too far" in (folder / "report.md").read_text()


def test_differences_from_the_defaults_are_marked(folder: Path) -> None:
    changes = {change.path: (change.before, change.after) for change in gather(folder).changes}
    assert changes["algorithm.gamma"] == (0.99, 0.98)
    assert changes["training.total_timesteps"] == (100_000, 40_000)
    assert "environment.num_envs" not in changes
    assert "experiment.seed" not in changes
    marked = [attributes for attributes in page(folder).tags("li") if attributes.get("class") == "changed"]
    assert len(marked) == len(changes)


def test_a_config_of_somebody_elses_plugin_is_shown_as_it_is(tmp_path: Path) -> None:
    found = page(make_run(tmp_path, "cart_1", algorithm="homemade"))
    assert "homemade" in found.words
    assert "differs from the default" not in found.words


def test_a_run_without_environment_steps_is_drawn_over_updates(folder: Path) -> None:
    rows = [{"env_steps": 0, "updates": 10 * i, "val/roll/ep_rew/mean": float(i)} for i in range(1, 4)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = page(folder)
    (line,) = json.loads(found.tags("svg")[0]["data-chart"] or "")["series"]
    assert line["x"] == [10, 20, 30]
    assert "updates per second" in found.words
    assert "| updates | mean |" in (folder / "report.md").read_text()


def test_charts_carry_their_values(folder: Path) -> None:
    charts = [json.loads(tag["data-chart"] or "") for tag in page(folder).tags("svg")]
    hero = {line["name"]: line for line in charts[0]["series"]}
    assert hero["evaluation"]["x"] == [1000, 2000, 3000]
    assert hero["evaluation"]["y"] == [100, 300, 480]
    assert hero["training"]["y"] == [50, 150, 240]


@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.json", "meta.json", "status.json", "checkpoints"])
def test_a_report_of_what_is_left(folder: Path, name: str) -> None:
    path = folder / name
    path.rename(folder / "gone")
    assert "cart_1" in page(folder).words


@pytest.mark.parametrize(
    "junk", ["", "null\n[]\n{}\n", '{"env_steps": "x", "val/roll/ep_rew/mean": null}\n', "\xff\x00{"]
)
def test_a_report_of_junk(folder: Path, junk: str) -> None:
    for name in ("metrics.jsonl", "metrics.json", "meta.json", "status.json", "tags.json"):
        (folder / name).write_text(junk)
    assert "cart_1" in page(folder).words


def test_numbers_that_are_none(folder: Path) -> None:
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 4000, "train/loss/total": "NaN", "val/roll/ep_rew/mean": "-Infinity"}\n')
    found = page(folder)
    assert "not a finite number" in found.words
    assert all("NaN" not in (tag["data-chart"] or "") for tag in found.tags("svg"))


def test_not_the_folder_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no config\.yaml"):
        write_report(tmp_path)


def test_a_long_run_is_read_quickly_and_with_its_evaluations(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "cart_1", [1.0])
    row = {f"train/part{i}/x": 0.5 for i in range(25)}
    with (folder / "metrics.jsonl").open("a") as file:
        for i in range(20_000):
            extra = {"val/roll/ep_rew/mean": float(i)} if i % 1000 == 999 else {}
            file.write(json.dumps({"epoch": i, "env_steps": 2000 + i, **row, **extra}) + "\n")
    write_report(folder)
    start = time.process_time()
    write_report(folder)
    assert time.process_time() - start < 2.0  # about 0.2 s on an idle machine
    rows = history.sampled(folder, 1000)
    assert len(rows) < 4100
    assert rows[-1]["env_steps"] == 21_999
    assert [row["val/roll/ep_rew/mean"] for row in rows if "val/roll/ep_rew/mean" in row][1:] == [
        float(i) for i in range(999, 20_000, 1000)
    ]


def test_sampled_rows_are_evenly_spread(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("".join(f'{{"env_steps": {i}}}\n' for i in range(1000)))
    steps = [float(row["env_steps"]) for row in history.sampled(tmp_path, 50)]
    gaps = {b - a for a, b in pairwise(steps[:-1])}
    assert (len(gaps), steps[0], steps[-1]) == (1, 0, 999)
    assert 50 <= len(steps) <= 102
    assert history.sampled(tmp_path / "none", 50) == []


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 10))
def test_ticks_are_few_and_inside(low: float, span: float, most: int) -> None:
    found = ticks(low, low + span, most)
    room = 1e-6 * (abs(low) + span)
    assert len(found) <= most + 2
    assert all(low - room <= tick <= low + span + room for tick in found)


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [-1.0, 1.0], [1e-9, 2e-9], [1e12, -1e12], [math.nan, 3.0]])
def test_a_chart_of_anything_stays_in_its_box(values: list[float]) -> None:
    drawn = chart([ChartLine("x", list(range(len(values))), values)], title="x", threshold=475.0)
    points = re.findall(r"[ML]([\d.-]+) ([\d.-]+)", drawn)
    assert points
    assert all(0 <= float(x) <= 340 and 0 <= float(y) <= 150 for x, y in points)


def test_no_chart_of_nothing() -> None:
    assert chart([ChartLine("x", [], []), ChartLine("y", [1.0], [math.inf])], title="x") == ""


def test_peak_memory_is_told_by_phase(tmp_path: Path) -> None:
    """The second phase frees memory, the third sets a new peak between two rows."""
    folder = make_run(tmp_path, "a", [1.0] * 4)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    held = [("explore", 300, 310), ("explore", 320, 330), ("rest", 200, 330), ("exploit", 250, 400)]
    for row, (phase, used, peak) in zip(rows, held, strict=True):
        row |= {"phase": phase, "train/system/rss_mb": used, "train/system/peak_rss_mb": peak}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert peak_memory(rows) == {"explore": 330, "rest": 200, "exploit": 400}
    write_report(folder)
    for page in ("report.md", "report.html"):
        assert "explore 330 MB, rest 200 MB, exploit 400 MB" in (folder / page).read_text()
