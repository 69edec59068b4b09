"""metrics.csv: a table that widens and never loses a column."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from ludus.metrics.sinks.csv import Csv


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_new_key_widens_the_table(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    sink = Csv(path)
    sink.write({"epoch": 1, "a/b": 0.1})
    sink.write({"epoch": 2, "a/b": 0.2})
    sink.write({"epoch": 3, "val/x": 7.0})
    assert path.read_text().splitlines() == ["epoch,a/b,val/x", "1,0.1,", "2,0.2,", "3,,7.0"]
    sink.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.csv"]


def test_any_order_of_keys_loses_nothing(tmp_path: Path) -> None:
    rng, keys = random.Random(0), [f"k/{i}" for i in range(12)]
    rows = [{key: rng.random() for key in rng.sample(keys, rng.randint(1, 12))} for _ in range(60)]
    sink = Csv(tmp_path / "m.csv")
    for row in rows:
        sink.write(row)
    sink.close()
    read = [{key: float(text) for key, text in row.items() if text} for row in _read(tmp_path / "m.csv")]
    assert read == rows


def test_a_resumed_file_keeps_header_and_rows_but_no_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,a/b\n1,0.1\n2,0.")
    sink = Csv(path)
    sink.write({"epoch": 2, "a/b": 0.2, "c/d": 1.0})
    sink.close()
    assert path.read_text().splitlines() == ["epoch,a/b,c/d", "1,0.1,", "2,0.2,1.0"]


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_text_that_looks_like_a_formula_is_quoted(tmp_path: Path, text: str) -> None:
    sink = Csv(tmp_path / "m.csv")
    for _ in range(2):
        sink.write({"phase": text, f"{text}/key": -1.5})
    sink.close()
    again = Csv(tmp_path / "m.csv")
    again.write({"phase": "b\nc", f"{text}/key": 2.0})
    again.close()
    rows = _read(tmp_path / "m.csv")
    assert [row["phase"] for row in rows] == [f"'{text}", f"'{text}", "b c"]
    assert list(rows[0]) == ["phase", f"'{text}/key"]
    assert [row[f"'{text}/key"] for row in rows] == ["-1.5", "-1.5", "2.0"]  # numbers stay numbers


def test_a_failed_widening_keeps_the_table_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.csv"
    sink = Csv(path)
    sink.write({"epoch": 1})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            sink.write({"epoch": 2, "a/b": 1.0})
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.csv"]
    assert path.read_text().splitlines() == ["epoch", "1"]
    sink.write({"epoch": 3, "a/b": 2.0})
    sink.close()
    assert path.read_text().splitlines() == ["epoch,a/b", "1,", "3,2.0"]
