"""Repositories of people who mean harm: nothing of them is kept, nothing runs, and one line says why."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_hub import Blob, FakeHub
from ludus.archive import package

Files = dict[str, Any]
CANARY = "canary-ran"
BOX = {"type": "box", "shape": [4], "low": "0", "high": "1", "dtype": "float32"}
LARGE = {**BOX, "shape": [6 * 10**7], "dtype": "uint8"}


class Bomb:
    """Unpickling it leaves a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(CANARY),)


@pytest.fixture(scope="session")
def honest(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of an honest package."""
    from ludus.archive.store import RunFolder
    from ludus.hub.publish import Wishes, write_package
    from ludus.session.player import checkpoint_name

    folder = tmp_path_factory.mktemp("honest")
    run = RunFolder.load(trained, "@last")
    write_package(run, checkpoint_name(run, None), folder, Wishes(episodes=2, repo="mallory/cart"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def listed(files: Files, /, **changes: Any) -> Files:
    """The same files with a manifest that fits them, or that has other values."""
    manifest = json.loads(files[package.MANIFEST])
    for name in manifest["files"]:
        if isinstance(files.get(name), bytes):
            data = files[name]
            manifest["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return {**files, package.MANIFEST: json.dumps({**manifest, **changes}).encode()}


def with_config(old: str, new: str) -> Callable[[Files], Files]:
    def change(files: Files) -> Files:
        text = files[package.CONFIG].decode()
        assert old in text
        return listed({**files, package.CONFIG: text.replace(old, new).encode()})

    return change


def with_state(change: Callable[[dict[str, Any]], None]) -> Callable[[Files], Files]:
    def changed(files: Files) -> Files:
        state = json.loads(files[package.STATE])
        change(state)
        return listed({**files, package.STATE: json.dumps(state).encode()})

    return changed


def with_spaces(**changes: Any) -> Callable[[Files], Files]:
    def change(files: Files) -> Files:
        spaces = {**json.loads(files[package.SPACES]), **changes}
        return listed({**files, package.SPACES: json.dumps(spaces).encode()})

    return change


def with_evaluation(**changes: Any) -> Callable[[Files], Files]:
    return lambda files: listed(files, evaluation={**json.loads(files[package.MANIFEST])["evaluation"], **changes})


def nested(depth: int) -> dict[str, Any]:
    space: dict[str, Any] = BOX
    for _ in range(depth):
        space = {"type": "tuple", "parts": [space]}
    return space


def adding(name: str, data: bytes = b"import os") -> Callable[[Files], Files]:
    return lambda files: {**files, name: data}


def listing(name: str) -> Callable[[Files], Files]:
    entry = {"size": 1, "sha256": "0" * 64}
    return lambda files: listed(files, files={**json.loads(files[package.MANIFEST])["files"], name: entry})


def zipped() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb()))
    return stream.getvalue()


def huge_header(files: Files) -> Files:
    return listed({**files, package.WEIGHTS: (2**62).to_bytes(8, "little") + b"{}"})


def tampered(files: Files) -> Files:
    return {**files, package.WEIGHTS: files[package.WEIGHTS][::-1]}


def claims(size: int) -> Callable[[Files], Files]:
    return lambda files: {**files, package.WEIGHTS: Blob(files[package.WEIGHTS], large=True, claimed=size)}


def deep(files: Files) -> Files:
    return {**files, package.MANIFEST: b"[" * 200_000}


def yaml_bomb(files: Files) -> Files:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    return listed({**files, package.CONFIG: "\n".join(lines).encode()})


def evil_environment(state: dict[str, Any]) -> None:
    state["collector"]["env"] = {"snapshot_method": "pickle", "pickle": "gASV"}


def stored_steps(state: dict[str, Any]) -> None:
    state["buffers"] = {"replay": {"file": "/etc/passwd"}}


NO_WANDB = "wandb:\n    enabled: false\n    project: ludus\n    entity: null"
WANDB = "wandb:\n    enabled: true\n    project: stolen\n    entity: mallory"
REPOSITORIES: dict[str, tuple[Callable[[Files], Files], str]] = {
    "a name that climbs": (adding("../../evil.yaml"), "is no file of a published run"),
    "an absolute name": (adding("/etc/cron.d/evil"), "is no file of a published run"),
    "a folder with code": (adding("plugins/evil.py"), "is no file of a published run"),
    "code": (adding("modeling_ludus.py"), "is no file of a published run"),
    "a pickle": (adding("optimizer.pkl", pickle.dumps(Bomb())), "is no file of a published run"),
    "html in a name": (adding("<img src=x onerror=alert(1)>.json"), "is no file of a published run"),
    "control characters in a name": (adding("\x1b[2J\x1b]0;evil\x07.json"), "is no file of a published run"),
    "a pickle as weights": (lambda f: listed({**f, package.WEIGHTS: pickle.dumps(Bomb())}), "header of"),
    "a zip as weights": (lambda f: listed({**f, package.WEIGHTS: zipped()}), "header of"),
    "a pickle as state": (lambda f: listed({**f, package.STATE: pickle.dumps(Bomb())}), "not a state of ludus"),
    "a header larger than the file": (huge_header, "header of"),
    "tampered weights": (tampered, "expected sha256"),
    "a claim of ten gigabytes": (claims(10 * 2**30), "the limit is"),
    "a size that is a lie": (claims(7), "7 bytes on the Hub"),
    "a listed name that climbs": (listing("../../../.bashrc"), "which is no file of a published run"),
    "a newer format": (lambda f: listed(f, version=99), "format version 99, this Ludus reads 1"),
    "no manifest": (lambda f: {k: v for k, v in f.items() if k != package.MANIFEST}, "is missing"),
    "a manifest without end": (deep, "not readable"),
    "a checkpoint that climbs": (lambda f: listed(f, checkpoint="../../x"), "is no checkpoint"),
    "a plugin with a path": (lambda f: listed(f, plugins=[{"name": "/tmp/evil.py"}]), "cannot be the name of a plugin"),
    "a program to start": (with_config("alert_command: []", f"alert_command: [touch, {CANARY}]"), "logging: a publ"),
    "a project to log to": (with_config(NO_WANDB, WANDB), "logging: a published"),
    "code to import": (with_config("experiment:", "_target_: os.system\nexperiment:"), "_target_"),
    "a local file for the environment": (
        with_config("kwargs: {}", "kwargs: {files: [{scenario: /etc/passwd}]}"), "names a file of this machine"),
    "a way to a local file": (
        with_config("kwargs: {}", "kwargs: {xml: ../../x.xml}"), "kwargs.xml: names a file of this machine"),
    "a local file of the user": (with_config("kwargs: {}", "kwargs: {xml: ~/x.xml}"), "names a file of this machine"),
    "stored steps of this machine": (
        with_config("buffers: {}", "buffers: {replay: {type: stored, path: runs}}"), "buffers.replay.path: names a"),
    "a local state to read": (with_config("resume_path: null", "resume_path: /etc"), "names a folder of this machine"),
    "a bomb of yaml": (yaml_bomb, "config.yaml"),
    "an environment to restore": (with_state(evil_environment), "environments, which are never restored"),
    "an empty collector": (with_state(lambda state: state.update(collector={})), "collector has no 'barrier_seeds'"),
    "steps to read": (with_state(stored_steps), "refers to stored steps"),
    "a space that fills the memory": (
        lambda f: listed({**f, package.SPACES: json.dumps({"carried": 0, "observation": {
            "type": "box", "shape": [10**6, 10**6], "low": "0", "high": "1", "dtype": "float32"}}).encode()}),
        "spaces of more than"),
    "spaces that fill the memory together": (
        with_spaces(observation={"type": "dict", "parts": dict.fromkeys("ab", LARGE)}),
        "spaces of more than"),
    "a choice that fills the memory": (
        with_spaces(observation={"type": "multi_discrete", "nvec": [[10**9]], "start": [[0]]}), "spaces of more than"),
    "numbers without a size": (with_spaces(observation={**BOX, "dtype": "S100000"}), "spaces of more than"),
    "a size that is no number": (with_spaces(observation={**BOX, "shape": [float("nan")]}), "spaces of more than"),
    "spaces that are none": (with_spaces(action={"type": "dict", "parts": []}), "spaces.json: not readable"),
    "spaces without end": (with_spaces(observation=nested(440)), "spaces.json: not readable"),
    "a return beyond all numbers": (with_evaluation(returns=[10**400]), "no list of returns"),
    "a return that is no number": (with_evaluation(returns=[float("nan")]), "no list of returns"),
    "an evaluation without a mean": (with_evaluation(mean=None), "no numbers as mean"),
    "a deviation in words": (with_evaluation(std="small"), "no numbers as mean"),
    "half an interval": (with_evaluation(high=None), "no numbers as mean"),
    "a plugin without a name": (lambda f: listed(f, plugins=[{}]), "cannot be the name of a plugin"),
    "compressed rows": (lambda f: {**f, package.ROWS: gzip.compress(b"0" * 10**6)}, "bytes on the Hub"),
    "a link": (lambda f: {**f, package.CONFIG: b"/etc/passwd"}, "bytes on the Hub"),
}  # fmt: skip


@pytest.mark.parametrize("what", REPOSITORIES)
def test_nothing_is_kept(what: str, honest: Files, hub: FakeHub, ludus: Any, tmp_path: Path) -> None:
    change, said = REPOSITORIES[what]
    hub.publish("mallory/cart", change(dict(honest)))
    code, out, err = ludus("pull", "mallory/cart", "--runs-dir", tmp_path / "new")
    assert code == 3, err
    assert err.startswith("error: mallory/cart@") and err.count("\n") == 1 and said in err, err
    assert err.isprintable() or err[:-1].isprintable()
    assert not list((tmp_path / "new").glob("*")) and not list((tmp_path / "new").glob(".pull-*"))
    assert not list(tmp_path.rglob(CANARY)) and not Path(CANARY).exists()


def test_the_honest_one_is_taken(honest: Files, hub: FakeHub, ludus: Any, tmp_path: Path) -> None:
    """With a card that somebody has edited: cards, pictures and videos are never fetched."""
    hub.publish("mallory/cart", {**honest, "README.md": b"<script>alert(1)</script>", ".gitattributes": b""})
    code, _, err = ludus("pull", "mallory/cart", "--runs-dir", tmp_path / "new")
    assert code == 0, err
    fetched = {path.rpartition("/")[2] for method, path, _ in hub.asked if "/resolve/" in path}
    assert fetched <= set(package.LIMITS)


def test_script_in_facts_is_dropped(honest: Files, hub: FakeHub, ludus: Any, tmp_path: Path) -> None:
    """What ends up in lists and pages are numbers and harmless words."""
    run = {"name": "<script>alert(1)</script>", "spec": "$(touch x)", "started": "`id`", "env_steps": 10**30}
    hub.publish("mallory/cart", listed(honest, run=run, provenance={"versions": {"<b>": "<i>"}, "git": "x" * 10**5}))
    code, out, err = ludus("pull", "mallory/cart", "--runs-dir", tmp_path / "new")
    assert code == 0, err
    (folder,) = [path for path in (tmp_path / "new").iterdir() if path.is_dir() and not path.is_symlink()]
    assert folder.name.startswith("cart_")
    for name in ("meta.json", "status.json", "run.log"):
        text = (folder / name).read_text()
        assert "script" not in text and "$(" not in text and "`" not in text and len(text) < 10_000
    assert ludus("list", "--runs-dir", tmp_path / "new")[0] == 0
