"""The rung that unpickles: only what this user sealed, and only after the seal has been checked (faults 63 and 70)."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from envs import test_snapshot_probes
from envs.conftest import Make
from envs.test_snapshot import assert_same, go, run, stored
from envs.test_snapshot_probes import Bomb
from ludus.envs.snapshots import pickled
from ludus.envs.snapshots.pickled import seal, unseal
from ludus.errors import DataError

test_snapshot_probes.register()
ID = "Rung/Tokens-v0"
SOURCE = Path(__file__).parents[2] / "src" / "ludus"


@pytest.fixture(autouse=True)
def own_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "state" / "snapshot.key"
    monkeypatch.setenv(pickled.VARIABLE, str(path))
    yield path


@pytest.mark.parametrize("backend", ["sync", "async"])
def test_a_malicious_pickle_is_refused_before_it_runs(make: Make, backend: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    bomb = cloudpickle.dumps(Bomb(canary))
    env = make(ID, vectorization=backend, num_envs=2)
    assert env.choose_snapshot_method() == "pickle"
    run(env, 3, 0)
    good = stored(env.snapshot())
    one = good["envs"][1]
    payload = np.frombuffer(bomb, np.uint8)
    attacks: list[dict[str, Any]] = [
        {**one, "pickle": payload},  # the seal of another pickle
        {**one, "pickle": payload, "mac": "0" * 64},
        {**one, "pickle": payload, "mac": ""},
        {**one, "pickle": payload, "mac": None},
        {**one, "pickle": payload, "mac": "\N{SNOWMAN}" * 64},
        {"pickle": payload},
        {"pickle": payload, "mac": "0" * 64, "key": "0" * 16},
        {**one, "pickle": np.concatenate([payload, one["pickle"]])},
        {**one, "pickle": payload.astype(np.float64)},
        {**seal(bomb, "CartPole-v1")},  # sealed for something else
    ]
    for state in attacks:
        with pytest.raises(DataError, match=f"snapshot of {ID}: its pickled environment"):
            env.restore({**good, "envs": [good["envs"][0], state]})
        assert not canary.exists()
    pickle.loads(bomb)  # it was a live one
    assert canary.exists()
    env.restore(good)


def test_every_flipped_bit_is_found() -> None:
    sealed = seal(b"some payload", ID)
    assert unseal(sealed, ID) == b"some payload"
    for byte in range(12):
        for bit in range(8):
            data = sealed["pickle"].copy()
            data[byte] ^= 1 << bit
            with pytest.raises(DataError, match="does not match its seal"):
                unseal({**sealed, "pickle": data}, ID)


def test_another_users_snapshot_is_not_loaded(make: Make, own_key: Path) -> None:
    env = make(ID, num_envs=1)
    run(env, 3, 0)
    state = stored(env.snapshot())
    own_key.unlink()
    with pytest.raises(DataError, match=r"sealed by another user or machine; .*not portable"):
        env.restore(state)


def test_the_key_is_the_users_alone(own_key: Path) -> None:
    first = pickled.load_key()
    assert len(first) == 32 and pickled.load_key() == first
    assert own_key.stat().st_mode & 0o777 == 0o600 and own_key.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in own_key.parent.iterdir()] == [own_key.name]  # nothing half-made beside it
    own_key.chmod(0o644)
    with pytest.raises(DataError, match="not a key file of this user alone"):
        pickled.load_key()
    own_key.chmod(0o600)
    own_key.write_bytes(b"short")
    with pytest.raises(DataError, match="holds no key"):
        pickled.load_key()


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_a_key_that_is_no_plain_file_is_refused(own_key: Path, kind: str, tmp_path: Path) -> None:
    own_key.parent.mkdir()
    if kind == "link":
        (tmp_path / "elsewhere").write_bytes(bytes(32))
        own_key.symlink_to(tmp_path / "elsewhere")
    elif kind == "fifo":
        os.mkfifo(own_key, 0o600)
    else:
        own_key.mkdir()
    with pytest.raises(DataError, match=re.escape(str(own_key))):
        pickled.load_key()


def test_a_key_of_another_owner_is_refused(own_key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pickled.load_key()
    monkeypatch.setattr(os, "geteuid", lambda: 123_456)
    with pytest.raises(DataError, match="not a key file of this user alone"):
        pickled.load_key()


def test_the_key_lies_in_the_state_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(pickled.VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert pickled.key_file() == tmp_path / "ludus" / "snapshot.key"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pickled.key_file() == tmp_path / ".local" / "state" / "ludus" / "snapshot.key"


def test_a_key_others_may_read_is_named_when_a_snapshot_cannot_be_restored(make: Make, own_key: Path) -> None:
    env = make(ID, vectorization="sync", num_envs=1)
    assert env.choose_snapshot_method() == "pickle"
    run(env, 1, 0)
    state = stored(env.snapshot())
    own_key.chmod(0o644)
    with pytest.raises(DataError, match=f"its snapshot_method is 'pickle'.*{re.escape(str(own_key))}.*chmod 600"):
        make(ID, vectorization="sync", num_envs=1).restore(state)


def test_processes_that_begin_together_agree_on_one_key(own_key: Path) -> None:
    code = "from ludus.envs.snapshots import pickled; print(pickled.load_key().hex())"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert len({process.communicate()[0] for process in processes}) == 1


def test_without_a_place_for_a_key_the_next_rung_is_taken(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(pickled.VARIABLE, str(tmp_path / "file" / "key"))
    env = make(ID, num_envs=1)
    assert env.choose_snapshot_method() == "replay" and "key" in env.refused["pickle"]


def test_nothing_else_unpickles_what_was_stored() -> None:
    """The wire between a process and its own workers is the only other place that loads pickles."""
    pattern = re.compile(r"(pickle|torch|joblib|dill|shelve)\.(loads?|Unpickler)\(|allow_pickle=True")
    found = {
        str(path.relative_to(SOURCE)): line.strip()
        for path in SOURCE.rglob("*.py")
        for line in path.read_text().splitlines()
        if pattern.search(line)
    }
    assert set(found) == {"envs/snapshots/pickled.py", "envs/vector/worker.py"}, found


def test_a_pickled_environment_goes_on_the_same(make: Make) -> None:
    one, other = make(ID, num_envs=3), make(ID, vectorization="async", num_envs=3, workers=2)
    run(one, 50, 0), run(other, 5, 9)
    state = stored(one.snapshot())
    other.restore(state)
    assert_same(go(one, 200, 1), go(other, 200, 1))
