"""The generated schema and page: complete, documented, current (requirements E01, E55)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ludus.config.model import Model
from ludus.config.reference import PAGE, json_schema, markdown, tables
from ludus.config.validate import fields
from ludus.registry import ALGORITHMS, ENCODERS, MEMORY

ROOT = Path(__file__).parents[2]


def test_every_field_is_documented():
    missing = [entry.path for _, _, entries in tables() for entry in entries if not entry.doc]
    assert not missing, f"no docstring under: {', '.join(missing)}"
    assert all(doc for _, doc, _ in tables()), "a section has no docstring"


def test_every_registered_part_has_its_fields_on_the_page():
    page = markdown()
    for registry, path in ((ALGORITHMS, "algorithm"), (ENCODERS, "network.encoder"), (MEMORY, "network.memory")):
        for name in registry.names():
            assert f"`{path}`: `{'name' if path == 'algorithm' else 'type'}: {name}`" in page
            for field in fields(registry[name].Config):
                assert f"`{path}.{field}" in page


def test_the_committed_page_is_current():
    command = "ludus config reference --write"
    assert (ROOT / PAGE).read_text() == markdown(), f"docs/reference/config.md is stale: run {command}"


def test_an_undocumented_field_would_be_noticed():
    from ludus.config.reference import _rows

    class Bare(Model):
        """A model."""

        told: int = 1
        """Documented."""
        untold: int = 2

    assert [entry.doc for entry in _rows("x", Bare)] == ["Documented.", ""]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


def test_the_schema_is_json_and_its_references_resolve(schema):
    json.dumps(schema)

    def visit(node):
        if isinstance(node, dict):
            if "$ref" in node:
                assert node["$ref"].removeprefix("#/$defs/") in schema["$defs"]
            for item in node.values():
                visit(item)
        elif isinstance(node, list):
            for item in node:
                visit(item)

    visit(schema)


def test_the_schema_knows_every_choice_and_forbids_the_rest(schema):
    options = {option["title"]: option for option in schema["properties"]["algorithm"]["anyOf"] if "title" in option}
    assert set(options) == set(ALGORITHMS.names())
    for name, option in options.items():
        assert option["properties"]["name"] == {"const": name} and option["required"][0] == "name"
        assert option["additionalProperties"] is False
        assert set(fields(ALGORITHMS[name].Config)) <= set(option["properties"])
    lr = options["ppo"]["properties"]["lr"]
    lr = schema["$defs"][lr["$ref"].removeprefix("#/$defs/")] if "$ref" in lr else lr
    assert {"number", "string", "object"} <= {branch.get("type") for branch in lr["anyOf"]}
    assert schema["additionalProperties"] is False
