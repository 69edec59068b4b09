"""Artifacts of people who mean harm, and a W&B that does not answer: one line says why, and nothing is kept."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fake_wandb_artifacts import FakeArtifacts, digest_of
from ludus.archive import checkpoint, package
from ludus.archive.portable import PICKLED, write_whole
from ludus.archive.store import RunFolder
from ludus.errors import ConfigError
from ludus.hub import wandb as source

pytest.importorskip("wandb")

Files = dict[str, bytes]
CANARY = "canary-ran"


class Bomb:
    """Unpickling it leaves a file."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(CANARY),)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeArtifacts]:
    """A server on which alice is logged in, with a client that gives up soon."""
    for name in ("WANDB_MODE", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setattr(source, "FIRST_ANSWER", 2)
    with FakeArtifacts() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.address)
        yield server


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of an archived run with stored steps."""
    import ludus

    root, folder = tmp_path_factory.mktemp("made") / "runs", tmp_path_factory.mktemp("honest")
    training = {"total_timesteps": 512, "evaluation.every_steps": None, "stop.eval_reward": None}
    settings = {"training": training, "experiment.name": "cart", "buffers.replay.size": 1_600}
    ludus.train("CartPole-v1:dqn", settings, quiet=True, runs_dir=root)
    run = RunFolder.load(root, "@last")
    assert write_whole(run, checkpoint.find(run.path, "last"), folder) == ""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def listed(files: Files, /, **changes: Any) -> Files:
    """The same files with a manifest that fits them, or that has other values."""
    manifest = json.loads(files[package.MANIFEST])
    for name in manifest["files"]:
        if name in files:
            manifest["files"][name] = {"size": len(files[name]), "sha256": hashlib.sha256(files[name]).hexdigest()}
    return {**files, package.MANIFEST: json.dumps({**manifest, **changes}).encode()}


def with_state(change: Callable[[dict[str, Any]], object]) -> Callable[[Files], Files]:
    def changed(files: Files) -> Files:
        state = json.loads(files[package.STATE])
        change(state)
        return listed({**files, package.STATE: json.dumps(state).encode()})

    return changed


def with_contents(change: Callable[[dict[str, Any]], object]) -> Callable[[Files], Files]:
    return with_state(lambda state: change(state["buffers"]["replay"]["contents"]))


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def with_steps(change: Callable[[bytes], bytes]) -> Callable[[Files], Files]:
    def changed(files: Files) -> Files:
        name = next(name for name in sorted(files) if name.startswith("steps-"))
        return listed({**files, name: change(files[name])})

    return changed


def adding(name: str, data: bytes = b"import os") -> Callable[[Files], Files]:
    return lambda files: {**files, name: data}


def pickled_environment(state: dict[str, Any]) -> None:
    state["collector"]["env"] = {"pickle": [1], "mac": "x", "key": "y"}


def renamed(old: str, new: str) -> Callable[[dict[str, Any]], object]:
    return lambda found: found.update({new: found.pop(old)})


STRANGERS: dict[str, tuple[Callable[[Files], Files], str]] = {
    "a name that climbs": (adding("../../evil.yaml"), "is no file of a published run"),
    "an absolute name": (adding("/etc/cron.d/evil"), "is no file of a published run"),
    "a pickle": (adding("optimizer.pkl", pickle.dumps(Bomb())), "is no file of a published run"),
    "code": (adding("plugins/evil.py"), "is no file of a published run"),
    "steps under another name": (adding("steps-1.bin"), "is no file of a published run"),
    "a pickle as weights": (lambda f: listed({**f, package.WEIGHTS: pickle.dumps(Bomb())}), "header of"),
    "a pickle as state": (lambda f: listed({**f, package.STATE: pickle.dumps(Bomb())}), "not a state of ludus"),
    "a pickled environment": (with_state(pickled_environment), "holds a pickle, which is never loaded"),
    "a pickled environment by name": (
        with_state(lambda state: state["collector"].update(snapshot_method="pickle")), "holds a pickle"),
    "tampered weights": (lambda f: {**f, package.WEIGHTS: f[package.WEIGHTS][::-1]}, "expected sha256"),
    "no manifest": (lambda f: {k: v for k, v in f.items() if k != package.MANIFEST}, "is missing"),
    "steps that are gone": (
        lambda f: {k: v for k, v in f.items() if not k.startswith("steps-")}, "None bytes at W&B"),
    "steps that are too short": (with_steps(lambda data: data[:-1]), "bytes for"),
    "a buffer that climbs": (
        with_state(lambda state: renamed("replay", "../../evil")(state["buffers"])), "its columns have no names"),
    "a column that climbs": (
        with_contents(lambda found: renamed("action", "../evil")(found["columns"])), "its columns have no names"),
    "a column of objects": (
        with_contents(lambda found: found["columns"].update(action=[[10**9], "|O"])), "stored steps: no list"),
    "the same segment thousands of times": (
        with_contents(lambda found: found.update(
            segments=1_000 * found["segments"], places={"of": list(range(1_000 * len(found["segments"])))})),
        "few bytes would fill the disk"),
    "segments without end": (
        with_contents(lambda found: found.update(segment=2**40)), "few bytes would fill the disk"),
    "the same segment again, with rows of which there are none in the end": (
        with_contents(lambda found: found.update(
            segments=[*2_000 * found["segments"][:1], [0, 0, 10**9, found["segments"][0][3]]],
            places={"of": list(range(2_001))})),
        "no possible number of rows"),
    "the same segment again, balanced by negative rows": (
        with_contents(lambda found: found.update(
            segments=[*2_000 * found["segments"][:1], [0, 0, -1_999 * found["segments"][0][2], "0" * 64]],
            places={"of": list(range(2_001))})),
        "no possible number of rows"),
    "the same segment with two numbers of rows": (
        with_contents(lambda found: found.update(
            segments=[*2_000 * found["segments"][:1], [0, 0, 1, found["segments"][0][3]]],
            places={"of": list(range(2_001))})),
        "few bytes would fill the disk"),
    "a segment of NaN": (with_contents(lambda found: found.update(segment=float("nan"))), "no possible number of rows"),
    "columns of negative size": (
        with_contents(lambda found: found["columns"].update(far=[[10**7], "|u1"], near=[[-1, 10**7], "|u1"])),
        "its columns are too many or too large"),
    "a shape whose product takes minutes": (
        with_contents(lambda found: found["columns"].update(far=[3_000 * [10**4_000], "|u1"])),
        "its columns are too many or too large"),
    "columns without end": (
        with_contents(lambda found: found["columns"].update({f"c{i}": [[0], "|u1"] for i in range(2_000)})),
        "its columns are too many or too large"),
    "buffers without end": (
        with_state(lambda state: state["buffers"].update({f"b{i}": state["buffers"]["replay"] for i in range(20)})),
        "too many buffers"),
    "a state that is nested too deeply": (
        with_state(lambda state: state.update(deep=nested(300))), "nested too deeply"),
    "a state that is nested far too deeply": (
        lambda f: listed({
            **f, package.STATE: f[package.STATE][:-1] + b', "deep": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"}),
        "not a state of ludus"),
    "segments that are none": (with_contents(lambda found: found.update(segments=7)), "stored steps: no list"),
    "a program to start": (
        lambda f: listed({**f, package.CONFIG: f[package.CONFIG].replace(
            b"alert_command: []", f"alert_command: [touch, {CANARY}]".encode())}), "logging: a published"),
}  # fmt: skip


def pull(ludus: Any, tmp_path: Path, name: str = "cart") -> tuple[int, str]:
    code, _, err = ludus("pull", f"wandb:alice/ludus/{name}", "--runs-dir", tmp_path / "new")
    assert err.count("\n") == (code != 0) and (not err or err[:-1].isprintable()), err
    if code:
        assert err.startswith("error: ")
        assert not list((tmp_path / "new").glob("[!.]*")), "something was kept"
        assert not list(tmp_path.rglob(CANARY)) and not list(tmp_path.rglob("evil*"))
    return code, err


@pytest.mark.parametrize("what", STRANGERS)
def test_nothing_is_kept(what: str, honest: Files, server: FakeArtifacts, ludus: Any, tmp_path: Path) -> None:
    change, said = STRANGERS[what]
    server.offer("cart", change(dict(honest)))
    code, err = pull(ludus, tmp_path)
    assert code == 3 and said in err and "wandb:alice/ludus/cart:v0" in err, err
    assert not list((tmp_path / "new").glob(".pull-*"))


def test_the_honest_one_is_taken(honest: Files, server: FakeArtifacts, ludus: Any, tmp_path: Path) -> None:
    server.offer("cart", honest)
    assert pull(ludus, tmp_path) == (0, "")


def test_the_places_of_a_stranger_are_not_believed(
    honest: Files, server: FakeArtifacts, ludus: Any, tmp_path: Path
) -> None:
    """Steps that would lie terabytes behind each other fill no disk."""
    far = with_contents(lambda found: found["places"].update(of=[10**9 * i for i in range(len(found["segments"]))]))
    server.offer("cart", far(dict(honest)))
    assert pull(ludus, tmp_path) == (0, "")
    (column,) = (tmp_path / "new").glob("[!@]*/buffers/replay/action.bin")
    assert 0 < column.stat().st_size < 10**6


def test_steps_of_several_ranks_stay_here(trained: Path, tmp_path: Path) -> None:
    run = RunFolder.load(trained, "@last")
    state = checkpoint.load(checkpoint.find(run.path, "last"))
    path = checkpoint.save(tmp_path, {**state, "ranks": {"1": {"buffers": {"replay": {}}}}}, name="step=768")
    (tmp_path / "archive").mkdir()
    with pytest.raises(ConfigError, match="stored steps of several ranks are not archived"):
        write_whole(run, path, tmp_path / "archive")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"ref": "file:///etc/passwd"}, "is a link to something else"),
        ({"ref": "https://evil.example.com/x"}, "is a link to something else"),
        ({"size": 10 * 2**30}, "the limit is"),
        ({"size": 7}, "has more than the 7 bytes that W&B told"),
    ],
)
def test_what_w_and_b_says_of_a_file(
    entry: dict[str, Any], said: str, honest: Files, server: FakeArtifacts, ludus: Any, tmp_path: Path
) -> None:
    """A link, a size beyond the limit, and one that is a lie, which the download does not go beyond."""
    name = package.WEIGHTS
    if entry.get("size") == 7:  # the stranger's own list agrees with the lie
        manifest = json.loads(honest[package.MANIFEST])
        manifest["files"][name]["size"] = 7
        honest = {**honest, package.MANIFEST: json.dumps(manifest).encode()}
    server.offer("cart", honest, **{name: entry})
    code, err = pull(ludus, tmp_path)
    assert code == 3 and said in err, err


def test_other_artifacts_are_refused(honest: Files, server: FakeArtifacts, ludus: Any, tmp_path: Path) -> None:
    server.offer("cart", honest)
    server.versions[0].type = "dataset"
    code, err = pull(ludus, tmp_path)
    assert code == 2 and "is an artifact of type 'dataset'" in err, err


@pytest.mark.parametrize("name", ["", "../x", "a b", "x:y:z", "x/y", "-x"])
def test_what_names_no_run(name: str, ludus: Any, tmp_path: Path) -> None:
    code, err = pull(ludus, tmp_path, name)
    assert code == 2 and "write wandb:ENTITY/PROJECT/RUN" in err, err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"status": 401}, "does not accept the key"),
        ({"status": 404}, "does not accept the key, or does not answer"),
        ({"status": 500}, "does not accept the key, or does not answer"),
        ({"project": False}, "not found"),
        ({"refuse_files": 401}, "the server of its files answered with 401"),
        ({"refuse_files": 404}, "the server of its files answered with 404"),
        ({"refuse_files": 500}, "the server of its files answered with 500"),
        ({"refuse_files": 503}, "the server of its files answered with 503"),
    ],
)
def test_errors_of_the_server_are_one_line(
    change: dict[str, int], said: str, honest: Files, server: FakeArtifacts, ludus: Any, tmp_path: Path
) -> None:
    server.offer("cart", honest)
    for name, value in change.items():
        setattr(server, name, value)
    begun = time.monotonic()
    code, err = pull(ludus, tmp_path)
    assert code == 2 and said in err and time.monotonic() - begun < 12, err


def test_an_unknown_run(server: FakeArtifacts, ludus: Any, tmp_path: Path) -> None:
    code, err = pull(ludus, tmp_path)
    assert code == 2 and "not found" in err, err


def test_without_a_key_or_a_network(ludus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    code, err = pull(ludus, tmp_path)
    assert code == 2 and "there is no key for" in err, err
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")
    begun = time.monotonic()
    code, err = pull(ludus, tmp_path)
    assert code == 2 and "does not answer" in err and time.monotonic() - begun < 5, err


def test_pickled_environments_stay_here(trained: Path, tmp_path: Path) -> None:
    """Such a run is archived as it would be published: without environments and stored steps."""
    run = RunFolder.load(trained, "@last")
    state = checkpoint.load(checkpoint.find(run.path, "last"))
    state["collector"] = {**state["collector"], "snapshot_method": "pickle", "env": {"pickle": "x", "mac": "y"}}
    copy = RunFolder(tmp_path / "run")
    copy.path.mkdir()
    for name in ("config.yaml", "meta.json", "metrics.jsonl", "status.json", "spaces.json"):
        os.link(run.path / name, copy.path / name)
    path = checkpoint.save(copy.path, state, name="step=768")
    (tmp_path / "archive").mkdir()
    assert write_whole(copy, path, tmp_path / "archive") == PICKLED
    told = json.loads((tmp_path / "archive" / package.STATE).read_text())
    assert told["collector"]["env"] is None and told["buffers"] == {} and "mac" not in json.dumps(told)


def test_a_digest_is_that_of_the_client(tmp_path: Path) -> None:
    """The server of these tests knows files by the same name as W&B's client."""
    import wandb

    (tmp_path / "x").write_bytes(b"hello")
    artifact = wandb.Artifact("x", "y")
    assert artifact.add_file(str(tmp_path / "x"), policy="immutable").digest == digest_of(b"hello")


def test_the_first_steps_of_several_environments_may_be_the_same(
    server: FakeArtifacts, ludus: Any, tmp_path: Path
) -> None:
    """Of an honest run nothing is refused because eight environments began alike."""
    settings = ["training.total_timesteps=8", "buffers.replay.size=1600", "algorithm.epoch_steps=8", "-q"]
    settings += ["training.evaluation.every_steps=null", "training.stop.eval_reward=null", "environment.num_envs=8"]
    code, _, err = ludus("train", "FrozenLake-v1:dqn", *settings, "--runs-dir", tmp_path / "runs")
    assert code == 0, err
    run, folder = RunFolder.load(tmp_path / "runs", "@last"), tmp_path / "package"
    folder.mkdir()
    write_whole(run, checkpoint.find(run.path, "last"), folder)
    assert len(list(folder.glob("steps-*"))) < 4
    server.offer("cart", {path.name: path.read_bytes() for path in folder.iterdir()})
    assert pull(ludus, tmp_path) == (0, "")
