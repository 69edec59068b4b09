"""Faults 63-67: files of an enemy run nothing and allocate nothing."""

from __future__ import annotations

import ast
import io
import json
import os
import pickle
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from faults.conftest import Ludus
from faults.payload import Payload
from faults.support import SMALL, forge, refused
from ludus.archive import checkpoint

SOURCES = Path(__file__).parents[2] / "src" / "ludus"


def poisons(canary: Path) -> dict[str, bytes]:
    """The same payload in every wrapping a careless reader would open."""
    payload, found = Payload(canary), {f"pickle {n}": pickle.dumps(Payload(canary), protocol=n) for n in (0, 2, 5)}
    torch_file, array, arrays = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save({"model": payload}, torch_file)
    np.save(array, np.array([payload], dtype=object), allow_pickle=True)
    np.savez(arrays, x=np.array([payload], dtype=object))
    yaml = f"!!python/object/apply:os.mkdir ['{canary}']\n".encode()
    return {
        **found,
        "torch": torch_file.getvalue(),
        "npy": array.getvalue(),
        "npz": arrays.getvalue(),
        "yaml": b"experiment: " + yaml,
    }


READERS = {
    "config.yaml": ["resume", "play", "list", "show"],
    "meta.json": ["resume", "list", "show", "report"],
    "status.json": ["resume", "list", "show"],
    "metrics.json": ["verify", "list", "show", "report"],
    "metrics.jsonl": ["verify", "resume", "show", "report", "compare", "export"],
    "metrics.csv": ["resume"],
    "run.log": ["show", "report"],
    "tags.json": ["list"],
    ".lock": ["resume"],
    "../index.sqlite": ["list"],
    "checkpoints/step=640/tensors.safetensors": ["play", "resume"],
    "checkpoints/step=640/state.json": ["evaluate", "resume"],
    "checkpoints/step=640/manifest.json": ["show", "resume"],
}
NEVER_STEP = "inject.on_call('ludus.data.collector:Collector.collect', lambda: os._exit(0))"


@pytest.mark.parametrize("file", READERS)
def test_63_malicious_pickle(ludus: Ludus, stopped: Path, tmp_path: Path, file: str) -> None:
    """Whatever stands in whatever file: nothing runs, and every reader refuses it or does without it."""
    canary, backup = tmp_path / "canary", Path(shutil.copytree(tmp_path / "runs", tmp_path / "backup", symlinks=True))
    kinds = ("pickle 0", "torch", "yaml") if "checkpoints" not in file else ("pickle 5", "torch", "npy")
    for kind in kinds:
        shutil.rmtree(tmp_path / "runs")
        shutil.copytree(backup, tmp_path / "runs", symlinks=True)
        (stopped / file).write_bytes(poisons(canary)[kind])
        for command in READERS[file]:
            words = ["--episodes", "1"] if command == "evaluate" else []
            process = ludus(command, *([] if command in ("list", "export") else ["@last"]), *words, prelude=NEVER_STEP)
            assert process.code in (0, 2, 3), f"{kind} in {file}, {command}: {process.err[-2000:]}"
            assert "Traceback" not in process.err, f"{kind} in {file}, {command}: {process.err[-2000:]}"
            assert not canary.exists(), f"{kind} in {file} ran by {command}"


@pytest.mark.parametrize("name", [checkpoint.TENSORS, checkpoint.STATE])
def test_63_malicious_pickle_with_sums_that_are_right(ludus: Ludus, stopped: Path, tmp_path: Path, name: str) -> None:
    canary = tmp_path / "canary"
    for data in poisons(canary).values():
        for path in checkpoint.checkpoints(stopped).values():
            forge(path, lambda files, _, data=data: files.update({name: data}))  # type: ignore[misc]
        for command in ("resume", "play"):
            refused(ludus(command, "@last"), 3, "step=640")
        assert not canary.exists()


# ---- what the sources may not do -----------------------------------------------------------------

UNPICKLING = {
    "envs/snapshots/pickled.py": {"pickle.loads"},  # after its seal was checked (fault 70)
    "plugins.py": {"exec"},  # what the user named by --plugin, or agreed to for this very folder and content
    "exported.py": {"torch.jit.load"},  # the file that it has written itself, to compare it
    "envs/vector/worker.py": {"pickle.loads"},  # between a process and its own workers
    "sweeps/engines/modal_app.py": {"tarfile", "tarfile.open"},  # packs the folders of runs, in the user's container
    "sweeps/engines/modal.py": {"tarfile", "tarfile.open"},  # unpacks them, with a filter that lets nothing out
}
FORBIDDEN = ("torch.load", "pickle.load", "pickle.Unpickler", "cloudpickle.load", "marshal.load", "shelve.open",
             "joblib.load", "dill.load", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "numpy.load", "np.load",
             "torch.jit.load", "torch.package", "torch.hub", "eval", "exec", "zipfile", "tarfile", "gzip", "bz2",
             "lzma", "shutil.unpack_archive", "os.system", "os.popen", "subprocess.getoutput", "runpy")  # fmt: skip


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Dotted names of everything a file calls, and of what it imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node
        elif isinstance(node, ast.Import):
            yield from ((alias.name, ast.Call(ast.Name("import"), [], [])) for alias in node.names)


def test_64_no_way_to_unpickle_a_file() -> None:
    """No second try with weights_only=False, because there is no first one: these calls do not exist."""
    for path in SOURCES.rglob("*.py"):
        name = str(path.relative_to(SOURCES))
        found = {call for call, _ in calls(path) if call.startswith(FORBIDDEN) and call not in ("evaluate",)}
        found = {
            call
            for call in found
            if any(call == word or call.startswith((word + ".", word + "s")) for word in FORBIDDEN)
        }
        assert found <= UNPICKLING.get(name, set()), f"{name}: {found}"
        for call, node in calls(path):
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert keywords.get("weights_only") != "False" and keywords.get("allow_pickle") != "True", f"{name}: {call}"
            assert keywords.get("shell") != "True", f"{name}: {call}"


def test_65_no_third_party_checkpoint_is_loaded(ludus: Ludus, stopped: Path, tmp_path: Path) -> None:
    """A .pt or .pth file is no checkpoint, whatever the version of torch."""
    torch.save({"weight": torch.zeros(2)}, tmp_path / "model.pt")
    for reference in (str(tmp_path / "model.pt"), "model.pt"):
        refused(ludus("train", *SMALL, "--init-from", reference), 2, "model.pt")


def archives() -> dict[str, bytes]:
    """Members that lead out, links, a bomb, very many members."""
    out, links, bomb, many = (io.BytesIO() for _ in range(4))
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("../../canary", b"x")
    with tarfile.open(fileobj=links, mode="w") as tar:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(member)
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("tensors.safetensors", bytes(50_000_000))
    with zipfile.ZipFile(many, "w") as file:
        for number in range(10_000):
            file.writestr(str(number), b"")
    return {"out": out.getvalue(), "links": links.getvalue(), "bomb": bomb.getvalue(), "many": many.getvalue()}


@pytest.mark.parametrize("kind", ["out", "links", "bomb", "many"])
def test_66_archives_are_never_unpacked(ludus: Ludus, stopped: Path, tmp_path: Path, kind: str) -> None:
    data = archives()[kind]
    newest = checkpoint.find(stopped, "last")
    forge(newest, lambda files, _: files.update({checkpoint.TENSORS: data}))
    refused(ludus("resume", f"{stopped.name}/{newest.name}"), 3, checkpoint.TENSORS)
    archive = tmp_path / "runs" / "x.zip"
    archive.write_bytes(data)
    for reference in ("x.zip", str(archive)):
        assert ludus("resume", reference).code in (2, 3)
    assert not list(tmp_path.rglob("canary*")) and not Path("/canary").exists()


def header(text: dict[str, Any] | bytes, claim: int | None = None) -> bytes:
    """A safetensors file with this header and no data."""
    body = text if isinstance(text, bytes) else json.dumps(text).encode()
    return struct.pack("<Q", len(body) if claim is None else claim) + body


def tensor(count: int, *offsets: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [count], "data_offsets": offsets}


ABSURD = {
    "header of 100 GB": header(b"{}", 100 * 2**30),
    "header of 2^64": header(b"{}", 2**64 - 1),
    "tensor of 100 GB": header({"a": tensor(25 * 2**30, 0, 100 * 2**30)}),
    "overlap": header({"a": tensor(2, 0, 8), "b": tensor(2, 4, 12)}) + bytes(12),
    "shape overflow": header({"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}}) + bytes(4),
    "deep header": header(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "npy": b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 1024), }".ljust(
        128
    ),
}


@pytest.mark.parametrize("case", ABSURD)
def test_67_absurd_tensors_allocate_nothing(ludus: Ludus, stopped: Path, case: str) -> None:
    for path in checkpoint.checkpoints(stopped).values():
        forge(path, lambda files, _: files.update({checkpoint.TENSORS: ABSURD[case]}))
    process = ludus("resume", "@last", prelude="inject.limit_memory(500)")
    refused(process, 3, "step=640")
    assert process.cpu < 5


@pytest.mark.parametrize("name", [checkpoint.TENSORS, checkpoint.STATE])
def test_67_files_larger_than_memory_are_not_read(ludus: Ludus, stopped: Path, name: str) -> None:
    """A hole of a terabyte, and a manifest that vouches for it."""
    newest = checkpoint.find(stopped, "last")
    manifest = json.loads((newest / checkpoint.MANIFEST).read_text())
    manifest.pop("sha256")
    manifest["files"][name]["size"] = 2**40
    manifest["sha256"] = checkpoint._digest(checkpoint._dump(manifest))
    (newest / checkpoint.MANIFEST).write_bytes(checkpoint._dump(manifest))
    os.truncate(newest / name, 2**40)
    reference = f"{stopped.name}/{newest.name}"
    refused(ludus("resume", reference, prelude="inject.limit_memory(500)"), 3, name)
    os.truncate(newest / checkpoint.MANIFEST, 2**40)
    refused(ludus("resume", reference, prelude="inject.limit_memory(500)"), 3, checkpoint.MANIFEST)


@pytest.mark.parametrize(
    "name", [*(name for name in READERS if "metrics." not in name and name != "run.log"), "checkpoints"]
)
def test_67_a_fifo_in_the_place_of_a_file_blocks_nobody(ludus: Ludus, stopped: Path, name: str) -> None:
    path = stopped / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for command in ("list", "show", "resume"):
        process = ludus(command, *([] if command == "list" else ["@last"]), prelude=NEVER_STEP)
        assert process.code in (0, 2, 3, 5) and "Traceback" not in process.err, f"{command}: {process.err[-2000:]}"
