"""The folder of a sweep: its names, and what somebody has edited or removed in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.errors import ConfigError, DataError
from ludus.sweeps.ledger import Ledger
from ludus.sweeps.store import SweepFolder, free_name
from sweeps.toy import spec_of, sweep

SPEC = "algorithm.lr=1e-3,1e-2"


def test_trials_beyond_ten_thousand_are_read_in_order(tmp_path: Path) -> None:
    folder = SweepFolder.create(tmp_path, spec_of(SPEC))
    for number in range(10_002):
        (folder.path / "trials" / f"{number:04}.json").write_text(json.dumps({"number": number, "latent": {}}))
    assert [trial.number for trial in folder.trials()] == list(range(10_002))


def test_runs_of_a_sweep_that_was_removed_are_not_taken_for_those_of_the_next(tmp_path: Path) -> None:
    sweep(tmp_path, spec_of(SPEC))
    shutil.rmtree(tmp_path / "@sweeps" / "toy")
    assert free_name(tmp_path, "toy") == "toy-2" and free_name(tmp_path, "to") == "to"
    with pytest.raises(ConfigError, match="is a run of an earlier sweep toy"):
        SweepFolder.create(tmp_path, spec_of("algorithm.lr=1e-4,1e-5"))
    assert SweepFolder.create(tmp_path, spec_of(SPEC, name="toy-t0001")).exists()
    assert not (tmp_path / "@sweeps" / "toy").exists()


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (lambda facts: facts | {"latent": [1]}, "latent: Input should be a valid dictionary"),
        (lambda facts: facts | {"latent": {"algorithm.lr": "high"}}, "latent.algorithm.lr"),
        (lambda facts: facts | {"latent": {"algorithm.lr": 7}}, "trial 1 has no such algorithm.lr"),
        (lambda facts: facts | {"latent": {"algorithm.clip": 0}}, "trial 1 has no such algorithm.lr"),
        (lambda facts: facts | {"luck": 1}, "luck: Unexpected keyword argument"),
        (lambda facts: facts | {"failures": "none"}, "failures: Input should be a valid dictionary"),
        (lambda facts: {"latent": facts["latent"]}, "number: Field required"),
    ],
)  # fmt: skip
def test_a_trial_that_was_edited_is_one_line(tmp_path: Path, edit: Callable[[Any], Any], told: str) -> None:
    path = sweep(tmp_path, spec_of(SPEC)).folder.path / "trials" / "0001.json"
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    with pytest.raises(DataError) as error:
        Ledger(SweepFolder.load(tmp_path, "toy"))
    assert told in error.value.line() and "undo the edit" in error.value.line() and "\n" not in error.value.line()
