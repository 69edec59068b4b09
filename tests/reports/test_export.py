"""Exports hold what the runs say and mean nothing else to their readers."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.archive.index import Index
from ludus.archive.record import Record
from ludus.errors import ConfigError
from ludus.reports.export import export, export_comparison, latex_text, markdown_text
from synthetic import make_run

NASTY = (
    r"=cmd|'/C calc'!A0 \input{/etc/passwd} $x_1$ 50% & #1 ~^ <b>[a](b) {} *é* \\[2cm] 日本 🎮 | `x` " "quoted" " --"
)


@pytest.fixture
def records(tmp_path: Path) -> list[Record]:
    make_run(tmp_path, "cart_1", [10.0, 480.0], seed=1)
    make_run(tmp_path, "cart_2", [10.0, 490.0], seed=2)
    make_run(
        tmp_path,
        "nasty",
        [-3.5],
        spec=NASTY,
        name=NASTY,
        meta={"config_hash": " =1+1"},
        status={"reason": "\t=2\n\x1b[31m"},
    )
    return sorted(Index(tmp_path).records(), key=lambda record: record.id)


def test_json_is_complete(records: list[Record]) -> None:
    first = json.loads(export(records, "json"))[0]
    assert (first["id"], first["reward"], first["solved"]) == ("cart_1", 480.0, True)
    assert first["config"]["training"]["evaluation"]["every_steps"] == 4096
    assert first["meta"]["argv"] == ["ludus", "train"]
    assert (first["status"]["state"], first["metrics"]["resume"]) == ("finished", "adapter")
    assert [row["val/roll/ep_rew/mean"] for row in first["evaluations"]] == [10.0, 480.0]
    chosen = json.loads(export(records, "json", ["id", "algorithm.lr"]))
    assert chosen[0] == {"id": "cart_1", "algorithm.lr": 0.001}


def test_csv_has_every_field_and_config_value(records: list[Record]) -> None:
    rows = list(csv.DictReader(io.StringIO(export(records, "csv"))))
    assert [row["id"] for row in rows] == ["cart_1", "cart_2", "nasty"]
    assert (rows[1]["reward"], rows[1]["algorithm.lr"], rows[1]["solved"]) == ("490.0", "0.001", "true")
    assert rows[2]["reward"] == "-3.5"  # a negative number stays one


def test_csv_runs_no_formula(records: list[Record]) -> None:
    cells = [cell for row in csv.reader(io.StringIO(export(records, "csv"))) for cell in row]
    assert "'" + NASTY in cells
    assert "' =1+1" in cells
    assert "\\t=2\\n\\x1b[31m" in cells
    for cell in cells:
        assert cell.isprintable()
        if cell.lstrip().startswith(("=", "+", "-", "@")):
            float(cell)


def test_markdown_is_a_table_whatever_the_text(records: list[Record]) -> None:
    lines = export(records, "markdown", ["id", "spec", "reward"]).splitlines()
    assert lines[:3] == ["| id | spec | reward |", "| --- | --- | ---: |", "| cart_1 | CartPole-v1:ppo | 480.0 |"]
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 4 for line in lines)
    assert "<b>" not in lines[-1].replace(r"\<", "")
    assert "**490.0**" in lines[3]  # the best


@given(st.text(max_size=40))
def test_markdown_text_opens_nothing(text: str) -> None:
    escaped = markdown_text(text)
    assert not re.search(r"(?<!\\)(?:\\\\)*[<|`\[*]", re.sub(r"\\.", "", escaped))
    assert "\n" not in escaped


@given(st.text(max_size=60))
def test_latex_text_is_plain_ascii_without_bare_specials(text: str) -> None:
    escaped = latex_text(text)
    assert escaped.isascii()
    assert "\n" not in escaped
    rest = re.sub(r"\\text[a-z]+\{\}|\\dots\{\}|\$\\(?:pm|to)\$|\\[{}$&%#_]|-\{\}|\{[\[\]*]\}", "", escaped)
    assert not set(rest) & set("\\{}$&%#_~^<>|[]*"), rest


@pytest.mark.parametrize("kind", ["runs", "groups", "fragment"])
def test_latex_compiles(records: list[Record], tmp_path: Path, kind: str) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex")
    from ludus.reports.compare import compare

    if kind == "groups":
        text = export_comparison(compare(records), "latex")
    elif kind == "runs":
        text = export(records, "latex", ["spec", "name", "reward", "tags", "config_hash", "algorithm.lr"])
    else:
        (tmp_path / "table.tex").write_text(export(records, "latex", fragment=True))
        text = "\\documentclass{article}\\usepackage{booktabs,textcomp}\\begin{document}\\input{table}\\end{document}"
    (tmp_path / "a.tex").write_text(text)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "a.pdf").stat().st_size > 5000


def test_latex_is_booktabs(records: list[Record]) -> None:
    text = export(records[:2], "latex", ["id", "reward"])
    assert r"\usepackage{booktabs}" in text
    assert r"cart\_1 & 480.0 \\" in text
    assert r"\textbf{490.0}" in text
    fragment = export(records[:2], "latex", ["id", "reward"], fragment=True)
    assert r"\documentclass" not in fragment
    assert fragment.count(r"\toprule") == fragment.count(r"\bottomrule") == 1


def test_groups_of_several_metrics_are_rows(records: list[Record]) -> None:
    from ludus.reports.compare import compare

    rows = list(csv.DictReader(io.StringIO(export_comparison(compare(records[:2], metrics=["reward", "loss"]), "csv"))))
    assert [row["metric"] for row in rows] == ["reward", "loss"]
    assert (rows[0]["n"], rows[0]["mean"], rows[0]["95 % interval"]) == ("2", "485.0", "480.0 to 490.0")
    data = json.loads(export_comparison(compare(records[:2]), "json"))
    assert data["groups"][0]["runs"] == ["cart_1", "cart_2"]


def test_unknown_formats_and_columns_are_refused(records: list[Record]) -> None:
    with pytest.raises(ConfigError, match="did you mean 'latex'"):
        export(records, "latx")
    with pytest.raises(ConfigError, match="did you mean 'reward'"):
        export(records, "csv", ["rewrd"])


def test_no_runs_are_an_empty_table() -> None:
    assert json.loads(export([], "json")) == []
    assert export([], "markdown", ["id"]) == "| id |\n| --- |\n"
