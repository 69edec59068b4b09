"""Run on the source the testers had what `seen.yaml` names for each finding: it must fail there, for its own reason."""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import yaml
from pytest import ExitCode

ROOT = Path(__file__).resolve().parents[2]
OLD = "092e6e4"  # what the testers tested
SECONDS = 600  # for a test or a script
NO_PROOF = re.compile(r"(\w+\.)*(ImportError|ModuleNotFoundError|NameError|SyntaxError|AttributeError|TypeError)\b")
"""Errors that only tell that the code was another one."""
RAISED = re.compile(r"^Traceback .*\n(?:(?: .*)?\n)*(\S[\s\S]*)", re.MULTILINE)
"""What stands below a traceback."""


@dataclass(frozen=True)
class Entry:
    """A finding, the test of today that would have noticed it, and what shows it on the old source."""

    finding: str
    test: str
    seen: dict[str, str]
    """`commit` and `test`: a test as it stood then; `script`: one of ours; `not_seen`: why there is nothing."""
    because: str = ""
    """Part of the failure: the assertion that does not hold, or the error that the defect was."""

    @property
    def id(self) -> str:
        """A1 of 'A1', F7 of 'F7 (lock)', 5 of '5, videos'."""
        return self.finding.split()[0].rstrip(",")


def load() -> list[Entry]:
    """All entries of `seen.yaml`."""
    return [Entry(**entry) for entry in yaml.safe_load(Path(__file__).with_name("seen.yaml").read_text())]


def unpack(commit: str, folder: Path, *paths: str) -> None:
    """Lay files of a commit into a folder."""
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit, *paths], check=True, stdout=subprocess.PIPE)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="tar")


def plant(commit: str, temporary: Path) -> Path:
    """The old source with the tests of a commit beside it."""
    tree = temporary / commit
    if not tree.exists():
        unpack(OLD, tree)
        shutil.rmtree(tree / "tests")
        unpack(commit, tree, "tests")
    return tree


def call(words: list[str], tree: Path, folder: Path, cwd: Path) -> tuple[int | None, str]:
    """Run Python on the source of a tree; exit code and output, None for one that ran out of time."""
    folder.mkdir()
    own = {"LUDUS_CACHE": str(folder / "cache"), "TMPDIR": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    own |= {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1", "CI": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        [sys.executable, *words], cwd=cwd, env={**os.environ, **own}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        said = process.communicate(timeout=SECONDS)[0]
        return process.returncode, said
    except subprocess.TimeoutExpired:
        return None, "time ran out"
    finally:
        with suppress(ProcessLookupError):  # what it left running
            os.killpg(process.pid, signal.SIGKILL)


def failures(entry: Entry, temporary: Path, number: int) -> tuple[list[str], str]:
    """What was raised where a test or script failed; where none did, why."""
    folder = temporary / f"run-{number}"
    if "script" in entry.seen:
        code, said = call([str(ROOT / entry.seen["script"])], plant(OLD, temporary), folder, folder)
        found = RAISED.search(said)
        return ([found[1]], "") if code == 1 and found else ([], "it passes" if code == 0 else said)
    tree, report = plant(entry.seen["commit"], temporary), temporary / f"report-{number}.xml"
    # torch's warning would end a test before the NaN that it warns of does its harm
    words = ["-m", "pytest", "-q", "-m", "", "-W", "ignore:std()", "-p", "no:cacheprovider", f"--junitxml={report}"]
    code, said = call([*words, f"--basetemp={folder / 'tmp'}", entry.seen["test"]], tree, folder, tree)
    if code != ExitCode.TESTS_FAILED:
        return [], "it passes" if code == 0 else said
    cases = ElementTree.parse(report)
    broken = [error.get("message", "") for error in cases.iter("error")]
    return ([], broken[0]) if broken else ([told(bad) for bad in cases.iter("failure")], "")


def told(failure: ElementTree.Element) -> str:
    """What pytest says of a failure, without source text."""
    lines = [line[1:].strip() for line in (failure.text or "").splitlines() if line.startswith("E ")]
    return "\n".join([failure.get("message", ""), *lines])


def problem(entry: Entry, temporary: Path, number: int) -> str:
    """Why the finding was not seen; nothing if it was."""
    if "not_seen" in entry.seen:
        return entry.seen["not_seen"]
    failed, why = failures(entry, temporary, number)
    if not failed:
        return why.strip()[-300:]
    if no_proof := [text for text in failed if NO_PROOF.match(text)]:
        return f"no proof: {no_proof[0][:300]}"
    if "script" in entry.seen and not failed[0].startswith("AssertionError"):
        return f"the script itself fails: {failed[0][:300]}"
    return "" if any(entry.because in text for text in failed) else f"it fails otherwise: {failed[0][:300]}"


def main() -> int:
    """0: all seen; 1: some were not; 2: unknown findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="ID,...", help="only these findings")
    only = {name.strip() for name in parser.parse_args().only.split(",") if name.strip()}
    entries = load()
    if unknown := only - {entry.id for entry in entries}:
        print(f"error: no finding has this id: {', '.join(sorted(unknown))}")
        return 2
    entries = [entry for entry in entries if entry.id in only or not only]
    seen = 0
    with tempfile.TemporaryDirectory(prefix="ludus-findings-", ignore_cleanup_errors=True) as folder:
        for number, entry in enumerate(entries):
            why = problem(entry, Path(folder), number)
            seen += not why
            print(f"{'NOT SEEN' if why else 'seen'} {entry.finding}: {entry.test}{why and ': '}{why}", flush=True)
    print(f"{seen} of {len(entries)} seen")
    return 0 if seen == len(entries) else 1


if __name__ == "__main__":
    sys.exit(main())
