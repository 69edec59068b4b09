"""Reading files: what YAML means here, and every way a file can be bad (faults 29-33)."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.config.read import MAX_BYTES, read_file, to_yaml
from ludus.errors import ConfigError


def yaml(tmp_path: Path, text: str | bytes, name: str = "x.yaml") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_file(path)
    line = caught.value.line()
    assert line.startswith(str(path)) and "\n" not in line
    return line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("6e5", 6e5),
        ("-.5", -0.5),
        ("1_000_000", 1_000_000),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1:30", "1:30"),
        ("no", "no"),
        ("on", "on"),
        ("True", True),
        ("false", False),
        ("2026-11-15", "2026-11-15"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
        ("~", None),
        ("", None),
        (".inf", float("inf")),
        ("1.2.3", "1.2.3"),
        ("lin_0.001", "lin_0.001"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_scalars_follow_yaml_1_2(tmp_path, text, value):
    found = read_file(yaml(tmp_path, f"a: {text}\n"))["a"]
    assert found == value and type(found) is type(value)


def test_merge_keys_and_anchors(tmp_path):
    data = read_file(yaml(tmp_path, "a: &a {p: 1, q: {r: 2}}\nb: {<<: *a, p: 3}\nc: {<<: [{p: 4}, *a], s: *a}\n"))
    assert data["b"] == {"p": 3, "q": {"r": 2}} and data["b"].inherited == {"q"}
    assert data["c"] == {"p": 4, "q": {"r": 2}, "s": {"p": 1, "q": {"r": 2}}}
    assert data["b"].lines == {"p": 2, "q": 1, "<<": 2}


def test_keys_are_strings_as_written(tmp_path):
    assert read_file(yaml(tmp_path, "1: a\ntrue: b\n")) == {"1": "a", "true": "b"}


def test_duplicate_key_names_both_lines(tmp_path):
    line = refusal(yaml(tmp_path, "a:\n  x: 1\n  y: 2\n  x: 3\n"))
    assert "x.yaml:4" in line and "lines 2 and 4" in line
    assert "duplicate key 'x'" in refusal(yaml(tmp_path, '{"x": 1, "x": 1}', "x.json"))


def test_alias_bomb_is_refused_before_expansion(tmp_path):
    levels = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    levels += [f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    path = yaml(tmp_path, "\n".join(levels))
    tracemalloc.start()
    started = time.process_time()
    line = refusal(path)
    seconds, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "aliases" in line and seconds < 0.5 and peak < 50 * 2**20


def test_merging_aliases_count_too(tmp_path):
    levels = ["a: &a {x: 1, y: 2}"]
    levels += [
        f"{b}: &{b} {{l: *{a}, m: *{a}, n: {{<<: *{a}}}}}" for a, b in zip("abcdefghijk", "bcdefghijkl", strict=True)
    ]
    assert "aliases" in refusal(yaml(tmp_path, "\n".join(levels)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 3000, "nested deeper"),
        ("{a: " * 100_000, "nested deeper"),
        ("a: 1\n" + "b: " + "x" * MAX_BYTES, "larger than"),
        (b"a: \0b", "NUL"),
        ("a: 1".encode("utf-16"), "UTF-16"),
        (b"a: \xff", "UTF-8"),
        ("", "empty"),
        ("# nothing\n", "empty"),
        ("- 1\n- 2\n", "list"),
        ("just text", "str"),
        ("a: !!python/object/apply:os.system ['touch canary']", "tag"),
        ("a: !mine 1", "tag"),
        ("a: !!set {x}", "tag"),
        ("a: &a [*a]", "no anchor"),
        ("a: *b", "no anchor"),
        ("a: {b: 1\nc", "not YAML"),
        ("a: 1\n---\nb: 2\n", "second document"),
        ("? [a, b]\n: c", "key"),
        ("<<: 3", "<<"),
        ("a: '\x07'", "not YAML"),
    ],
)
def test_bad_yaml_is_one_line(tmp_path, monkeypatch, text, words):
    monkeypatch.chdir(tmp_path)
    path = yaml(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        read_file(path)
    assert words in caught.value.line() and "\n" not in caught.value.line()
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("text", ["[" * 100_000, "", "[1]", "{", '{"a": NaN}', '{"a": ' + "9" * 5000 + "}", "\x00"])
def test_bad_json_is_one_line(tmp_path, text):
    refusal(yaml(tmp_path, text, "x.json"))


def test_things_that_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "fifo.yaml")
    assert "regular file" in refusal(tmp_path / "fifo.yaml")
    assert "regular file" in refusal(tmp_path)
    assert "no such file" in refusal(tmp_path / "absent.yaml")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    refusal(tmp_path / "loop.yaml")


def test_a_byte_order_mark_is_no_matter(tmp_path):
    assert read_file(yaml(tmp_path, b"\xef\xbb\xbfa: 1")) == {"a": 1}


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"))
)
strange = st.sampled_from(
    ["1e-3", "010", "0o17", "no", "~", "1:30", "1_0", "<<", "=", "2026-11-15", "null", " a ", "a: b"]
)
keys = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)
trees = st.recursive(
    leaves | strange, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@settings(max_examples=60)
@given(st.dictionaries(keys | strange, trees, max_size=4))
def test_what_is_written_reads_back(folder, data):
    path = folder / "x.yaml"
    path.write_text(to_yaml(data) if data else "{}", encoding="utf-8", newline="")
    assert read_file(path) == data
    as_json = path.with_suffix(".json")
    as_json.write_text(json.dumps(data))
    assert read_file(as_json) == data
