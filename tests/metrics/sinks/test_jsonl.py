"""metrics.jsonl: valid JSON, flushed, append-only, honest about gaps."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
from pathlib import Path

import pytest

from ludus.metrics.sinks.jsonl import Jsonl, read_rows


def test_rows_are_on_disk_before_close_and_keys_may_be_new(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = Jsonl(path)
    sink.write({"epoch": 1, "a/b": 0.1})
    sink.write({"epoch": 2, "c/d": 3.0})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"epoch": 1, "a/b": 0.1},
        {"epoch": 2, "c/d": 3.0},
    ]
    sink.close()
    sink.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_not_a_number_is_strict_json_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = Jsonl(path)
    sink.write({"phase": "NaN", "a/b": math.nan, "c/d": -math.inf, "e/f": 1.5})
    sink.close()

    def refuse(word: str) -> float:
        raise AssertionError(word)

    json.loads(path.read_text(), parse_constant=refuse)
    (row,) = read_rows(path)
    assert math.isnan(float(row["a/b"]))
    assert (row["phase"], row["c/d"], row["e/f"]) == ("NaN", -math.inf, 1.5)


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"epoch": 1}\n{"epoch": 2, "a')
    sink = Jsonl(path)
    sink.write({"epoch": 3})
    sink.close()
    assert list(read_rows(path)) == [{"epoch": 1}, {"epoch": 3}]


def test_a_full_disk_leaves_a_counted_gap(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = Jsonl(path)
    sink.write({"epoch": 1})
    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, old[1]))
        for epoch in (2, 3):
            with pytest.raises(OSError, match=r"space|large"):
                sink.write({"epoch": epoch})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    sink.write({"epoch": 4})
    sink.write({"epoch": 5})
    sink.close()
    assert list(read_rows(path)) == [{"epoch": 1}, {"epoch": 4, "lost_rows": 2}, {"epoch": 5}]


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "metrics.jsonl").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        Jsonl(tmp_path / "metrics.jsonl")
    assert victim.read_text() == "precious"


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    """One run folder from somebody else would hold every listing for ever."""
    from ludus.archive import history

    path = tmp_path / "metrics.jsonl"
    os.mkfifo(path)
    for _ in range(2):
        with pytest.raises(OSError, match="not a regular file"):
            list(read_rows(path))
        assert history.last_row(tmp_path) == {} and list(history.rows(tmp_path)) == []
        path.unlink()
        path.symlink_to("/dev/zero")
