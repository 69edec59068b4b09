"""Filters, order and references of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.archive.index import Index
from ludus.archive.query import order, parse, select
from ludus.errors import ConfigError
from synthetic import make_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def ids(records: list[Any]) -> list[str]:
    return [record.id for record in records]


def test_find_by_keywords_and_conditions(root: Path) -> None:
    make_run(root, "a", [10.0], lr=0.01)
    make_run(root, "b", [400.0], lr=0.001, seed=2)
    make_run(root, "c", [500.0], lr=0.001, algorithm="reinforce")
    index = Index(root)
    assert set(ids(index.find(algorithm="ppo"))) == {"a", "b"}
    assert ids(index.find("reward>50", algorithm="ppo")) == ["b"]
    assert ids(index.find(**{"algorithm.lr": 0.01})) == ["a"]
    assert ids(index.find(solved=True)) == ["c"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("algorithm=ppo", "ab"),
        ("algorithm==PPO", "ab"),
        ("algorithm!=ppo", "c"),
        ("algorithm=*force", "c"),
        ("algorithm~^p", "ab"),
        ("algorithm !~ ^p", "c"),
        ("algorithm.lr>0.0005", "abc"),
        ("algorithm.lr > 0.001", "a"),
        ("algorithm.lr<=1e-3", "bc"),
        ("algorithm.lr=0.001", "bc"),
        ("algorithm.lr.start=0.001", "c"),
        ("reward>=400", "bc"),
        ("best<400", "a"),
        ("seed=2", "b"),
        ("solved=true", "c"),
        ("solved=no", ""),
        ("threshold=null", ""),
        ("started>2020", "abc"),
        ("started<2020-05-01", ""),
        ("tags=", ""),
        ("tags=[]", "abc"),
        ("environment.kwargs.x!=3", None),
        ("experiment.tags=[]", "abc"),
    ],
)
def test_conditions(root: Path, text: str, expected: str | None) -> None:
    make_run(root, "a", [10.0], lr=0.01)
    make_run(root, "b", [400.0], seed=2)
    schedule = {"start": 0.001, "end": 0.0, "from": 0.0, "to": 1.0, "schedule": "linear"}
    make_run(root, "c", [500.0], lr=schedule, algorithm="reinforce")
    records = Index(root).records()
    if expected is None:
        with pytest.raises(ConfigError, match="no run has"):
            select(records, [parse(text)])
    else:
        assert "".join(sorted(ids(select(records, [parse(text)])))) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reward", "is not a condition"),
        (">3", "is not a condition"),
        ("id~(", "not a regular expression"),
        ("reward>>4", "no operator >>; use = != > >="),
        ("algorithm=>ppo", "no operator =>"),
    ],
)
def test_bad_conditions(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text)


def test_a_misspelt_key_names_the_nearest(root: Path) -> None:
    make_run(root, "a")
    with pytest.raises(ConfigError, match=r"did you mean 'algorithm\.gamma'"):
        Index(root).find("algorithm.gama>0.5")


def test_order(root: Path) -> None:
    make_run(root, "a", [10.0], days=3)
    make_run(root, "b", [400.0], days=2, seed=10)
    make_run(root, "c", [500.0], days=1, seed=9)
    failed = make_run(root, "d", [1.0], state="failed")
    (failed / "metrics.jsonl").unlink()
    records = Index(root).records()
    assert ids(records) == ["d", "c", "b", "a"]
    assert ids(order(records, "reward")) == ["c", "b", "a", "d"]
    assert ids(order(records, "reward:asc")) == ["a", "b", "c", "d"]
    assert ids(order(records, "id")) == ["a", "b", "c", "d"]
    assert ids(order(records, "seed:desc"))[:2] == ["b", "c"]
    assert ids(order(records, "started")) == ["d", "c", "b", "a"]
    for bad in ("reward:up", "rewrad"):
        with pytest.raises(ConfigError):
            order(records, bad)


def test_pick_takes_references_globs_and_filters(root: Path) -> None:
    make_run(root, "cart_1", [10.0])
    make_run(root, "cart_2", [400.0])
    make_run(root, "pole_1", [90.0])
    (root / "@last").symlink_to("pole_1")
    index = Index(root)
    assert set(ids(index.pick([]))) == {"cart_1", "cart_2", "pole_1"}
    assert ids(index.pick(["cart_1", "@last", "cart_1"])) == ["cart_1", "pole_1"]
    assert set(ids(index.pick(["cart*"]))) == {"cart_1", "cart_2"}
    assert ids(index.pick(["cart*", "reward>50"])) == ["cart_2"]
    assert ids(index.pick(["pol"])) == ["pole_1"]
    assert ids(index.pick(["@best"])) == ["cart_2"]
    assert index.get(f"{root}/cart_2").id == "cart_2"
    for bad in ("cart", "nothing*", "../etc", "@nobody"):
        with pytest.raises(ConfigError):
            index.pick([bad])
