"""A few updates of every algorithm give the numbers in `fingerprints.json`. `fingerprints.py --write` renews them.

They agree to the bit on a machine like the recorded one. Elsewhere rounding differs and learning amplifies it: there
the mean of every group of tensors agrees to 1e-6, single values and the first row of metrics to 1e-3.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from golden import fingerprints
from ludus.learning import package
from ludus.registry import ALGORITHMS

RECORDED = json.loads(fingerprints.FILE.read_text())
SAME_MACHINE = RECORDED["machine"] == fingerprints.machine()
ON_MEANS, ON_VALUES = 1e-6, 1e-3
CASES = fingerprints.cases()
needs_compiler = pytest.mark.skipif(not package.has_compiler(), reason="no C++ compiler on this machine")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LUDUS_CACHE", str(tmp_path_factory.mktemp("compiled")))
        yield


def differences(expected: Any, found: Any, where: str = "") -> Iterator[str]:
    """What differs by more than the tolerances; hashes are compared apart."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if expected.keys() != found.keys():
            yield f"{where}: other keys: {sorted(expected.keys() ^ found.keys())}"
        for name in sorted(expected.keys() & found.keys() - {"sha256"}):
            one, other = expected[name], found[name]
            if name in ("sum", "abs_sum") and abs(one - other) > ON_MEANS * max(expected["count"], expected["abs_sum"]):
                yield f"{where}.{name}: {one!r} became {other!r}"
            elif name not in ("sum", "abs_sum"):
                yield from differences(one, other, f"{where}.{name}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        compared = 1 if where.endswith("rows") else len(expected)
        for i, pair in enumerate(zip(expected[:compared], found[:compared], strict=True)):
            yield from differences(*pair, f"{where}[{i}]")
    elif isinstance(expected, float) and isinstance(found, (int, float)):
        if not math.isclose(expected, found, rel_tol=ON_VALUES, abs_tol=ON_VALUES):
            yield f"{where}: {expected!r} became {found!r}"
    elif expected != found:
        yield f"{where}: {expected!r} became {found!r}"


def check(name: str) -> None:
    expected, found = RECORDED["cases"][name], fingerprints.fingerprint(CASES[name])
    assert not list(differences(expected, found, name))
    if SAME_MACHINE:
        assert found == expected, "close, but not equal to the bit"


@pytest.mark.parametrize("name", [name for name in CASES if not name.endswith("compiled")])
def test_eager_runs_learn_the_same_as_ever(name: str) -> None:
    check(name)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name.endswith("compiled")])
def test_compiled_runs_learn_the_same_as_ever(name: str, cache: None) -> None:
    check(name)


def test_every_algorithm_and_no_other_case_is_recorded() -> None:
    assert set(CASES) == set(RECORDED["cases"])
    assert {cfg.algorithm.name for cfg in CASES.values()} == set(ALGORITHMS.names())
    learned = {name for name, case in RECORDED["cases"].items() if case["updates"] >= 4}
    assert set(CASES) - learned == {"random"}
