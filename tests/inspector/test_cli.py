"""`ludus inspect`: the address, refusals in one line, and a page in one file."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from ludus import cli


def failure(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and message of a command that fails."""
    with pytest.raises(SystemExit) as end:
        cli.main(arguments)
    return int(end.value.code or 0), capsys.readouterr().err


def test_it_serves_until_it_is_interrupted(runs: Path) -> None:
    command = [sys.executable, "-m", "ludus", "inspect", str(runs), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        try:
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", address)
            with urllib.request.urlopen(f"{address}api/runs", timeout=30) as answer:
                assert json.load(answer)["count"] == 7
        finally:
            process.send_signal(2)
            _, errors = process.communicate(timeout=30)
    assert "Traceback" not in errors


def test_other_addresses_print_a_token(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uvicorn.Server.run", lambda *_, **__: None)
    cli.run(["inspect", str(runs), "--port", "0", "--host", "0.0.0.0"])
    assert re.match(r"http://0\.0\.0\.0:\d+/\?token=[\w-]{32}\n", capsys.readouterr().out)
    cli.run(["inspect", str(runs), "--port", "0"])
    assert "token" not in capsys.readouterr().out


def test_a_port_that_is_taken_is_one_line(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = failure(["inspect", str(runs), "--port", str(taken.getsockname()[1])], capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert "choose another one, or 0 for any" in said


@pytest.mark.parametrize(
    "words", [["--static", "."], ["--static", "no/x.html"], ["--static", "x.html", "--seed", "9" * 20]]
)
def test_a_page_that_cannot_be_written_is_one_line(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = failure(["inspect", "@last", "--runs-dir", str(runs), *words], capsys)
    assert (code, said.count("\n"), words[-2] in said) == (2, 1, True)


@pytest.mark.parametrize("host", ["192.0.2.1", "nobody.invalid"])
def test_an_address_of_another_machine_is_one_line(runs: Path, capsys: pytest.CaptureFixture[str], host: str) -> None:
    code, said = failure(["inspect", str(runs), "--port", "0", "--host", host], capsys)
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("error: --host: cannot listen") and "name an address of this machine" in said


def test_what_is_missing_is_one_line(
    tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failure(["inspect", "--runs-dir", str(tmp_path / "none")], capsys)[0] == 2
    assert failure(["inspect", "nonsense", "--runs-dir", str(runs), "--port", "0"], capsys)[0] == 2
    monkeypatch.setitem(sys.modules, "ludus.inspector.server", None)
    code, said = failure(["inspect", "--runs-dir", str(runs)], capsys)
    assert (code, "pip install 'ludus-rl[inspect]'" in said) == (2, True)


def test_a_page_in_one_file(
    runs: Path, ids: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "page.html"
    folder = runs / ids["CartPole-v1-ppo"]
    cli.run(["inspect", str(folder), "--static", str(target), "--steps", "12", "--seed", "3", "--checkpoint", "last"])
    assert capsys.readouterr().out.startswith(f"wrote {target} (")
    text = target.read_text()
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", text)
    assert (
        "import " not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL).partition('type="module">')[2][:200]
    )
    data = json.loads(re.search(r'id="episode">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert data["meta"]["steps"] == 12
    assert data["meta"]["wish"]["checkpoint"] == "step=1024"
    assert failure(["inspect", str(folder), "--static", str(target), "--mode", "wild"], capsys)[0] == 2


def test_script_in_a_page_of_one_file_stays_data(runs: Path, ids: dict[str, str], tmp_path: Path) -> None:
    from ludus.inspector.single_page import page_of

    for name in ("arrays.bin", "frames.bin", "seen.bin"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "episode.json").write_text(json.dumps({"info": {"</script><script>alert(1)</script>": [1]}}))
    page = page_of(tmp_path)
    assert page.count("</script>") == 3
    assert (
        "Copyright (c) 2022 Leon Sorokin" in page and page.count("-->") == 1
    )  # a copy of uPlot has its licence with it
