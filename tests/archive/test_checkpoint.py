"""Checkpoints: exact, whole or absent, and checked before they are believed."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import resource
import shutil
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ludus import files
from ludus.archive import checkpoint
from ludus.archive.tree import flatten, unflatten
from ludus.errors import ConfigError, DataError, ResourceError

STATE: dict[str, Any] = {
    "policy": {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.zeros(2)},
    "rng": np.random.default_rng(0).bit_generator.state,
    "moments": np.linspace(0, 1, 5),
    "lr": [1e-3, math.inf, math.nan],
}


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def same(a: Any, b: Any) -> bool:
    """Equal in type, shape, dtype and every bit that counts."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(_bits(a), _bits(b))
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or (a != a and b != b)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.zeros(0)


# ---- round trip ----------------------------------------------------------------------------------

_DTYPES = st.sampled_from(
    [np.dtype(code) for code in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8")]
)
_arrays = _DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    st.text(),
    _arrays,
    _arrays.map(torch.from_numpy),
    st.sampled_from([np.float32(0.1), np.float64(0.1), np.int64(7), np.bool_(True)]),
)
_keys = st.one_of(st.text(), st.sampled_from(["~tuple", "~tensor", "~dict", "__metadata__", "a.b", "", "~~"]))
_trees = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(_keys, inner, max_size=4),
        st.dictionaries(st.integers(), inner, max_size=3),
    ),
    max_leaves=12,
)


@settings(max_examples=100)
@given(st.dictionaries(_keys, _trees, max_size=4))
def test_any_tree_comes_back_as_it_was(state: dict[str, Any]) -> None:
    tree, tensors = flatten(state)
    text = json.dumps(tree, allow_nan=False)
    assert same(unflatten(json.loads(text), tensors), state)


@settings(max_examples=15)
@given(state=st.dictionaries(_keys, _trees, max_size=3))
def test_any_tree_survives_the_disk(tmp_path_factory: pytest.TempPathFactory, state: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("run")
    assert same(checkpoint.load(checkpoint.save(folder, state, name="step=1")), state)


def test_awkward_tensors(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    module = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "transposed": base.reshape(3, 4).t(),
        "shared": [base[:6], base[3:9], base],
        "expanded": torch.ones(1).expand(5),
        "bfloat16": torch.ones(3, dtype=torch.bfloat16),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "strided": np.arange(10)[::2],
        "big endian": np.arange(3, dtype=">i4"),
        "generator": torch.Generator().get_state(),
        "python": random.Random(1).getstate(),
        "optimizer": optimizer.state_dict(),
    }
    loaded = checkpoint.load(checkpoint.save(tmp_path, state, name="step=1"))
    assert same(loaded["optimizer"], state["optimizer"])
    for key in ("transposed", "expanded", "bfloat16", "scalar", "empty", "strided", "generator", "python", "shared"):
        assert same(loaded[key], state[key]), key
    assert loaded["big endian"].tolist() == [0, 1, 2]
    loaded["shared"][0][0] = 99.0
    assert base[0] == 0.0
    random.Random().setstate(loaded["python"])
    optimizer.load_state_dict(loaded["optimizer"])


def test_parameters_come_back_as_plain_tensors(tmp_path: Path) -> None:
    loaded = checkpoint.load(checkpoint.save(tmp_path, {"w": torch.nn.Parameter(torch.ones(2))}, name="step=1"))
    assert type(loaded["w"]) is torch.Tensor
    assert not loaded["w"].requires_grad


@pytest.mark.parametrize(
    "value",
    [object(), {1.5: 2}, np.array(["text"]), np.array([object()]), b"bytes", np.zeros(2, np.complex128), {1, 2}],
)
def test_what_cannot_be_saved_exactly_is_refused_by_name(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match=r"checkpoint: algorithm\.part"):
        checkpoint.save(tmp_path, {"algorithm": {"part": value}}, name="step=1")
    assert not list(tmp_path.rglob("step=*"))


# ---- layout, links, finding ----------------------------------------------------------------------


def test_layout_and_links(tmp_path: Path) -> None:
    first = checkpoint.save(tmp_path, STATE, name="step=100", best=True)
    second = checkpoint.save(tmp_path, {**STATE, "n": 1}, name="step=1000")
    parent = tmp_path / "checkpoints"
    assert _names(parent) == ["best", "last", "step=100", "step=1000"]
    assert (parent / "best").resolve() == first.resolve()
    assert (parent / "last").resolve() == second.resolve()
    assert _names(first) == ["manifest.json", "state.json", "tensors.safetensors"]
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in first.iterdir()} == {0o600}
    manifest = json.loads((first / "manifest.json").read_text())
    assert (manifest["format"], manifest["version"], manifest["name"]) == ("ludus-checkpoint", 3, "step=100")
    assert manifest["files"]["state.json"]["size"] == (first / "state.json").stat().st_size


def test_find(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no checkpoint"):
        checkpoint.find(tmp_path)
    steps = [checkpoint.save(tmp_path, {"n": n}, name=f"step={n}") for n in (9, 10, 100)]
    assert checkpoint.find(tmp_path) == steps[2]  # no best: the last, by number
    (tmp_path / "checkpoints" / "last").unlink()
    files.replace_link(tmp_path / "checkpoints" / "last", "step=9")  # stale: the directory is the truth
    assert checkpoint.find(tmp_path, "last") == steps[2]
    assert checkpoint.find(tmp_path, "step=10") == steps[1]
    with pytest.raises(ConfigError, match="no such checkpoint"):
        checkpoint.find(tmp_path, "best")
    checkpoint.save(tmp_path, {"n": 10}, name="step=10", best=True)
    assert checkpoint.find(tmp_path) == checkpoint.find(tmp_path, "best") == steps[1]
    for wrong in ("step=11", "../../x", "step=10/.."):
        with pytest.raises(ConfigError, match="no such checkpoint"):
            checkpoint.find(tmp_path, wrong)


def test_the_same_step_again_is_kept_if_equal_and_replaced_if_not(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, STATE, name="step=5")
    inode = (path / "state.json").stat().st_ino
    checkpoint.save(tmp_path, STATE, name="step=5")
    assert (path / "state.json").stat().st_ino == inode
    checkpoint.save(tmp_path, {"n": 2}, name="step=5")  # updates without environment steps, say
    assert checkpoint.load(path) == {"n": 2}
    assert _names(tmp_path / "checkpoints") == ["last", "step=5"]


def test_a_replacement_cut_off_between_its_renames_loses_nothing(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, {"n": 1}, name="step=5")
    path.rename(path.with_name(".old-step=5-abcdef"))
    assert checkpoint.load_newest_good(tmp_path).state == {"n": 1}
    checkpoint.save(tmp_path, {"n": 2}, name="step=6")
    assert checkpoint.load(path) == {"n": 1}


def test_litter_of_a_killed_writer_is_swept(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, STATE, name="step=5")
    parent = path.parent
    shutil.copytree(path, parent / ".new-step=6-abcdef")
    shutil.copytree(path, parent / ".old-step=5-abcdef")
    (parent / ".last.0123.tmp").symlink_to("step=5")
    outside = tmp_path / "outside"
    outside.mkdir()
    (parent / ".new-step=7-abcdef").symlink_to(outside)
    checkpoint.save(tmp_path, STATE, name="step=6")
    assert _names(parent) == [".new-step=7-abcdef", "last", "step=5", "step=6"]
    assert outside.exists()


# ---- damage --------------------------------------------------------------------------------------

_FILES = (checkpoint.TENSORS, checkpoint.STATE, checkpoint.MANIFEST)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint.save(tmp_path_factory.mktemp("run"), STATE, name="step=7")


@pytest.fixture
def copy(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "step=7"))


@pytest.mark.parametrize("name", _FILES)
def test_every_truncation_is_found(copy: Path, name: str) -> None:
    data = (copy / name).read_bytes()
    for cut in {*range(0, len(data), 13), len(data) - 1}:
        (copy / name).write_bytes(data[:cut])
        with pytest.raises(DataError) as caught:
            checkpoint.load(copy)
        assert name in caught.value.line()
        if name != checkpoint.MANIFEST:
            assert f"expected {len(data)} bytes, found {cut}" in caught.value.line()


@pytest.mark.parametrize("name", _FILES)
def test_every_flipped_bit_is_found(copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    for index in range(0, len(data), 5):
        data[index] ^= 1 << (index % 8)
        (copy / name).write_bytes(data)
        with pytest.raises(DataError) as caught:
            checkpoint.load(copy)
        assert name in caught.value.line()
        data[index] ^= 1 << (index % 8)


@pytest.mark.parametrize("name", _FILES)
def test_missing_or_strange_files(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(DataError, match=name):
        checkpoint.load(copy)
    (copy / name).mkdir()
    with pytest.raises(DataError, match=name):
        checkpoint.load(copy)


def _forge(copy: Path, **content: Any) -> None:
    """A checkpoint of an enemy: whatever he likes, with sums that are right."""
    for name in (checkpoint.TENSORS, checkpoint.STATE):
        if name in content:
            (copy / name).write_bytes(content[name])
    manifest = json.loads((copy / checkpoint.MANIFEST).read_text())
    manifest.pop("sha256")
    for name in (checkpoint.TENSORS, checkpoint.STATE):
        data = (copy / name).read_bytes()
        manifest["files"][name] = {"size": len(data), "sha256": checkpoint._digest(data)}
    manifest.update({key: value for key, value in content.items() if key not in _FILES})
    manifest["sha256"] = checkpoint._digest(checkpoint._dump(manifest))
    (copy / checkpoint.MANIFEST).write_bytes(checkpoint._dump(manifest))


def test_another_format_version_is_refused_naming_both(copy: Path) -> None:
    _forge(copy, version=2)
    with pytest.raises(DataError, match="format version 2, this Ludus reads 3"):
        checkpoint.load(copy)


def _header(claim: int, body: bytes = b"") -> bytes:
    return claim.to_bytes(8, "little") + body


def _tensors(header: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return _header(len(text), text + data)


def _entry(count: int, *offsets: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [count], "data_offsets": offsets}


@pytest.mark.parametrize(
    "tensors",
    [
        b"",
        b"1234",
        _header(100 * 2**30),
        _header(2**64 - 1, b"{}"),
        _tensors({"a": _entry(2**40, 0, 2**42)}),
        _tensors({"a": _entry(2, 0, 8), "b": _entry(2, 0, 8)}, b"x" * 8),
        _tensors({"a": _entry(2, 0, 4)}, b"x" * 4),
        b"PK\x03\x04" + bytes(64),
    ],
)
def test_absurd_tensor_files_are_refused_without_allocating(copy: Path, tensors: bytes) -> None:
    _forge(copy, **{checkpoint.TENSORS: tensors})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError):
        checkpoint.load(copy)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


class _Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, ("canary",)


@pytest.mark.parametrize(
    "state",
    [
        b"[" * 100_000,
        b"[]",
        b"nonsense",
        b'{"a": {"~tensor": "missing"}}',
        b'{"a": {"~tensor": ["list"]}}',
        b'{"a": {"~tuple": 5}}',
        b'{"a": {"~float": "many"}}',
        b'{"a": {"~dict": [1, 2]}}',
        b'{"a": {"~dict": [[[], 1]]}}',
        b'{"a": ' + b"9" * 5_000 + b"}",
        pickle.dumps(_Bomb()),
    ],
)
def test_absurd_states_are_refused_and_nothing_is_unpickled(
    copy: Path, state: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy)
    _forge(copy, **{checkpoint.STATE: state})
    with pytest.raises(DataError):
        checkpoint.load(copy)
    assert not (copy / "canary").exists()


@pytest.mark.parametrize(
    "files", [{}, [], None, {"../../etc/passwd": {"size": 1, "sha256": "0" * 64}}, {"state.json": 5}]
)
def test_absurd_manifests_are_refused(copy: Path, files: Any) -> None:
    _forge(copy, files=files)
    with pytest.raises(DataError, match="expected sizes"):
        checkpoint.load(copy)


def test_falls_back_to_the_newest_good_one_and_says_so(tmp_path: Path) -> None:
    paths = [checkpoint.save(tmp_path, {"n": n}, name=f"step={n}") for n in (1, 2, 3)]
    (paths[2] / checkpoint.STATE).write_bytes(b"")
    (paths[1] / checkpoint.MANIFEST).unlink()
    loaded = checkpoint.load_newest_good(tmp_path)
    assert (loaded.state, loaded.path) == ({"n": 1}, paths[0])
    assert [part in fault for part, fault in zip(("step=3", "step=2"), loaded.skipped, strict=True)] == [True, True]
    (paths[0] / checkpoint.TENSORS).unlink()
    with pytest.raises(DataError) as caught:
        checkpoint.load_newest_good(tmp_path)
    assert all(f"step={n}" in caught.value.line() for n in (1, 2, 3))


# ---- crashes -------------------------------------------------------------------------------------


def test_a_full_disk_keeps_the_old_one_and_leaves_no_litter(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, STATE, name="step=1")
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, old[1]))
        for step in (1, 2):
            with pytest.raises(ResourceError, match="free some space"):
                checkpoint.save(tmp_path, {"w": torch.zeros(10_000)}, name=f"step={step}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert _names(path.parent) == ["last", "step=1"]
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def _die_at_change(number: int) -> None:
    """SIGKILL right before the n-th change of the file system that this process makes."""
    count = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        creates = event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT
        if creates or event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.symlink"):
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_kill_at_any_moment_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, {"n": 0, "w": torch.zeros(1_000)}, name="step=0")
    newest, interrupted = 0, 0
    for number in range(1, 31):
        child = os.fork()
        if child == 0:
            _die_at_change(number)
            n = newest
            while True:  # some steps again with another state, some new: both ways of writing are hit
                n += 1
                checkpoint.save(tmp_path, {"n": n, "w": torch.full((1_000,), float(n))}, name=f"step={n // 2}")
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        interrupted += any(name.startswith(".") for name in _names(tmp_path / "checkpoints"))
        loaded = checkpoint.load_newest_good(tmp_path)
        assert loaded.skipped == ()
        n = loaded.state["n"]
        assert (loaded.state["w"] == float(n)).all()
        assert n >= newest
        newest = n
    assert newest > 5
    assert interrupted > 10
    checkpoint.save(tmp_path, {"n": -1}, name=f"step={10**6}")
    assert all(not name.startswith(".") for name in _names(tmp_path / "checkpoints"))


def test_every_file_is_synced_before_the_rename_and_the_manifest_is_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def spy_sync(descriptor: int) -> None:
        calls.append(re_name(Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def re_name(name: str) -> str:
        return "folder" if name.startswith(".new-") else name

    def spy_rename(self: Path, target: Path) -> Path:
        calls.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", spy_sync)
    monkeypatch.setattr(Path, "rename", spy_rename)
    checkpoint.save(tmp_path, STATE, name="step=1")
    assert calls[:6] == [checkpoint.TENSORS, checkpoint.STATE, checkpoint.MANIFEST, "folder", "rename", "checkpoints"]


def test_a_symlink_at_the_temporary_name_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    parent = tmp_path / "run" / "checkpoints"
    parent.mkdir(parents=True)
    monkeypatch.setattr(checkpoint.secrets, "token_hex", lambda _: "abcdef")
    (parent / ".new-step=1-abcdef").symlink_to(victim)
    with pytest.raises(FileExistsError):
        checkpoint.save(tmp_path / "run", STATE, name="step=1")
    assert list(victim.iterdir()) == []
