"""What the Hub refuses, and what the network does: one line, the right exit code, nothing half there."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fake_hub import FakeHub, Fault
from ludus.archive import package
from ludus.hub import client


@pytest.fixture
def there(ludus: Any, runs: Path, hub: FakeHub, tmp_path: Path) -> FakeHub:
    """A Hub with the run of alice."""
    assert ludus("publish", "@last", "-n", 1, "--runs-dir", runs)[0] == 0
    hub.asked.clear()
    return hub


def one_line(err: str) -> str:
    assert err.startswith("error: ") and err.count("\n") == 1 and "hf_" not in err, err
    return err


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("GET", "whoami", status=401), "does not accept the token; set HF_TOKEN, or log in: hf auth login"),
        (Fault("POST", "/repos/create", status=403), "the token may not do this"),
        (Fault("POST", "/commit/", status=409), "was changed while this was under way; try again"),
        (Fault("POST", "/commit/", status=429, times=9), "too many requests from here; try again in a few minutes"),
        (Fault("POST", "/commit/", status=500, times=9), "answered with error 500; try again later"),
        (Fault("GET", "whoami", cut_after=0, times=9), "does not answer; see that there is a network"),
    ],
)
def test_publish(ludus: Any, runs: Path, hub: FakeHub, fault: Fault, said: str) -> None:
    hub.faults.append(fault)
    code, _, err = ludus("publish", "@last", "-n", 1, "--runs-dir", runs)
    assert code == 2 and said in one_line(err)


def test_publish_into_the_repository_of_another(ludus: Any, runs: Path, hub: FakeHub) -> None:
    code, _, err = ludus("publish", "@last", "-n", 1, "--repo", "mallory/cart", "--runs-dir", runs)
    assert code == 2 and "mallory/cart: the token may not do this" in one_line(err)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("POST", "/commit/", status=429),
        Fault("POST", "/commit/", cut_after=5),
        Fault("POST", "/repos/create", status=503),
    ],
)
def test_publish_tries_again(ludus: Any, runs: Path, hub: FakeHub, fault: Fault) -> None:
    hub.faults.append(fault)
    assert ludus("publish", "@last", "-n", 1, "--runs-dir", runs)[0] == 0
    assert len(hub.put) == len(set(hub.put)) and len(hub.repos["alice/cart"].commits) == 2  # the first is the Hub's


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("GET", "/revision/", status=401), "does not accept the token"),
        (Fault("GET", "/revision/", status=403), "may not do this"),
        (Fault("GET", "/revision/", status=404), "there is no such repository, revision or file"),
        (Fault("GET", "/revision/", status=429), "too many requests"),
        (Fault("GET", "/tree/", status=503, times=99), "answered with error 503"),
        (Fault("GET", "/revision/", cut_after=3), "does not answer"),
    ],
)
def test_pull(ludus: Any, there: FakeHub, tmp_path: Path, fault: Fault, said: str) -> None:
    there.faults.append(fault)
    code, _, err = ludus("pull", "alice/cart", "--runs-dir", tmp_path / "new")
    assert code == 2 and said in one_line(err)
    assert not [path for path in (tmp_path / "new").glob("*") if not path.name.startswith(".")]


def test_a_cut_download_is_continued(ludus: Any, there: FakeHub, tmp_path: Path, monkeypatch: Any) -> None:
    """What has arrived is not fetched again."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4096)
    weights = there.repos["alice/cart"].commits[-1][1][package.WEIGHTS].data
    there.faults.append(Fault("GET", package.WEIGHTS, cut_after=50_000))
    assert ludus("pull", "alice/cart", "--runs-dir", tmp_path / "new")[0] == 0
    ranges = [head.get("Range") or head.get("range") for method, path, head in there.asked
              if method == "GET" and path.endswith(package.WEIGHTS)]  # fmt: skip
    assert ranges[0] is None and re.fullmatch(r"bytes=\d+-", ranges[1]) and len(weights) > 50_000


def test_the_next_pull_goes_on(ludus: Any, there: FakeHub, tmp_path: Path, monkeypatch: Any) -> None:
    there.faults.append(Fault("HEAD", package.WEIGHTS, status=404, times=1))
    code, _, err = ludus("pull", "alice/cart", "--runs-dir", tmp_path / "new")
    assert code == 2, err
    first = [path for method, path, _ in there.asked if method == "GET" and "/resolve/" in path]
    assert first and list((tmp_path / "new").glob(".pull-*"))
    there.asked.clear()
    assert ludus("pull", "alice/cart", "--runs-dir", tmp_path / "new")[0] == 0
    second = [path for method, path, _ in there.asked if method == "GET" and "/resolve/" in path]
    assert not set(first) & set(second)


def test_what_is_no_repository(ludus: Any, hub: FakeHub, tmp_path: Path) -> None:
    for name in ("cart", "a/b/c", "../x", "alice/..", "alice/x@../y", "alice/x@", "alice/<script>"):
        code, _, err = ludus("pull", name)
        assert code == 2 and ("is no repository" in err or "names no revision" in err), name
    assert not hub.asked
    hub.publish("alice/cart", {"README.md": b"x"})
    for name, said in {"alice/none": "no such repository", "alice/cart@v9": "no such repository, revision"}.items():
        code, _, err = ludus("pull", name)
        assert code == 2 and said in one_line(err)


def test_without_a_token(ludus: Any, runs: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    code, _, err = ludus("publish", "@last", "--runs-dir", runs)
    assert code == 2 and "HF_TOKEN" in one_line(err) and "hf auth login" in err and not hub.asked


def test_a_silent_or_absent_host_is_told_soon(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of their own; the machine may be busy, so only their own waiting is bounded."""
    silent = socket.create_server(("127.0.0.1", 0))
    with socket.create_server(("127.0.0.1", 0)) as free:
        gone = free.getsockname()[1]
    publish, pull = ["publish", "@last", "--runs-dir", str(runs)], ["pull", "a/b", "--runs-dir", str(tmp_path)]
    for port, words in ((silent.getsockname()[1], publish), (gone, pull)):
        address = f"http://127.0.0.1:{port}"
        environment = {**os.environ, "HF_ENDPOINT": address, "HF_TOKEN": "hf_canarycanarycanarycanary12"}
        done = subprocess.run(
            [sys.executable, "-m", "ludus", *words], env=environment, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 2 and "does not answer" in one_line(done.stderr), done.stderr
    silent.close()
    assert client.FIRST_ANSWER < 5


def test_neither_command_waits_for_torch_first(runs: Path, tmp_path: Path) -> None:
    """A missing token and an absent server are told before anything heavy is imported."""
    script = (
        "import sys\nfrom ludus import cli\n"
        "for words in (['publish', '@last'], ['pull', 'a/b']):\n"
        f"    try: cli.main([*words, '--runs-dir', {str(runs)!r}])\n"
        "    except SystemExit as end: print(end.code, 'torch' in sys.modules, 'gymnasium' in sys.modules)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "HF_TOKEN"}
    environment |= {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["2", "False", "False"] * 2, done.stderr


def test_two_pulls_at_once(ludus: Any, there: FakeHub, tmp_path: Path) -> None:
    from ludus.archive.lock import RunLock

    there.faults.append(Fault("HEAD", package.WEIGHTS, status=404))
    ludus("pull", "alice/cart", "--runs-dir", tmp_path / "new")
    (staging,) = (tmp_path / "new").glob(".pull-*")
    lock = RunLock(staging)
    lock.acquire()
    code, _, err = ludus("pull", "alice/cart", "--runs-dir", tmp_path / "new")
    lock.release()
    assert code == 2 and "is being pulled by another process" in err
    assert ludus("pull", "alice/cart", "--runs-dir", tmp_path / "new")[0] == 0


def test_a_killed_pull_leaves_no_run(there: FakeHub, tmp_path: Path, ludus: Any, monkeypatch: Any) -> None:
    """A folder is a run only when it is whole."""
    from ludus.archive import checkpoint
    from ludus.archive.store import runs_in

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", die)
        assert ludus("pull", "alice/cart", "--runs-dir", tmp_path / "new")[0] == 130
    assert runs_in(tmp_path / "new") == []
    code, out, _ = ludus("pull", "alice/cart", "--json", "--runs-dir", tmp_path / "new")
    assert code == 0 and runs_in(tmp_path / "new") == [json.loads(out)["run"]]
