"""Break the code on purpose, one line at a time: each change in `tests/mutations/*.yaml` must make its test fail."""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import py_compile
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from pytest import ExitCode

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600
"""For a test; a busy machine must not look like a change that nobody noticed."""
HANGS = 60
"""For a test that may never end: running out of time is how it notices."""
# imported once; a fork of its own tests each change
WARM = ("torch", "numpy", "gymnasium", "hypothesis", "hydra", "omegaconf", "pydantic", "rich", "typer", "safetensors")


@dataclass(frozen=True)
class Mutation:
    """One change and the test that must notice it."""

    id: str
    what: str
    file: str
    find: str
    replace: str
    test: str
    hangs: bool = False  # the test may run out of time instead of failing

    def text(self, root: Path) -> str:
        """The changed source."""
        return (root / self.file).read_text().replace(self.find, self.replace)


Start = tuple[str, list[str], Mutation | None]  # a name, its tests, its change


def load(folder: Path, area: str = "*") -> list[Mutation]:
    """The entries of all lists, or of one area's."""
    entries = (entry for path in sorted(folder.glob(f"{area}.yaml")) for entry in yaml.safe_load(path.read_text()))
    return [Mutation(**entry) for entry in entries]


def problems(root: Path, mutations: list[Mutation]) -> list[str]:
    """What is wrong with the list itself, one line each."""
    found = [f"{name}: {n} entries have this id" for name, n in Counter(m.id for m in mutations).items() if n > 1]
    for mutation in mutations:
        if not (root / mutation.file).is_file():
            found.append(f"{mutation.id}: {mutation.file}: no such file")
        elif (n := (root / mutation.file).read_text().count(mutation.find)) != 1:
            found.append(f"{mutation.id}: {mutation.find!r} occurs {n} times in {mutation.file}, not once")
        elif mutation.find == mutation.replace or not parses(mutation.text(root)):
            found.append(f"{mutation.id}: the changed {mutation.file} is no Python, or is unchanged")
        if not defines(root, mutation.test):
            found.append(f"{mutation.id}: {mutation.test}: no such test")
    return found


def parses(source: str) -> bool:
    """Whether this is Python."""
    with suppress(SyntaxError):
        return bool(ast.parse(source))
    return False


def defines(root: Path, test: str) -> bool:
    """Whether a test file defines the function (or the method of a class) that a node id names."""
    file, *names = test.partition("[")[0].split("::")
    if not names or not (root / file).is_file():
        return False
    body: list[ast.stmt] = ast.parse((root / file).read_text()).body
    for name in names:
        body = next((getattr(node, "body", []) for node in body if getattr(node, "name", None) == name), [])
    return bool(body) and names[-1].startswith("test")


def plant(source: Path, tree: Path, mutation: Mutation | None) -> None:
    """A source tree of hard links, where the changed file is one of its own without old byte code."""
    shutil.copytree(source, tree, copy_function=os.link)
    if mutation:
        path = tree.parent / mutation.file
        path.unlink()
        path.write_text(mutation.text(source.parent))
        for old in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            old.unlink()


def pytest_child(work: Path, tests: list[str]) -> int:
    """Fork a process that runs these tests on the tree in `work`; its exit code is pytest's."""
    if pid := os.fork():
        return pid
    code = int(ExitCode.INTERNAL_ERROR)  # pytest did not come to an end
    try:
        os.setsid()
        log = os.open(work / "log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(ROOT)
        sys.path.insert(0, str(work / "src"))
        own = {"PYTHONPATH": "src", "LUDUS_CACHE": "cache", "HYPOTHESIS_STORAGE_DIRECTORY": "hypothesis"}
        os.environ |= {name: str(work / folder) for name, folder in own.items()}
        code = int(pytest.main(["-q", "-p", "no:cacheprovider", f"--basetemp={work / 'tmp'}", *tests]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def outcomes(temporary: Path, starts: list[Start], jobs: int) -> Iterator[tuple[str, int | None]]:
    """Run tests side by side; name and exit code of each group as it ends, None for one that ran out of time."""
    running: dict[int, tuple[str, float]] = {}
    try:
        while starts or running:
            while starts and len(running) < jobs:
                name, tests, mutation = starts.pop(0)
                plant(temporary / "src", temporary / name / "src", mutation)
                seconds = HANGS if mutation and mutation.hangs else SECONDS * len(tests)
                running[pytest_child(temporary / name, tests)] = (name, time.monotonic() + seconds)
            for pid, (name, deadline) in list(running.items()):
                late = time.monotonic() > deadline
                if late:
                    os.killpg(pid, signal.SIGKILL)
                if (ended := os.waitpid(pid, 0 if late else os.WNOHANG))[0]:
                    del running[pid]
                    with suppress(ProcessLookupError):  # what the test left running
                        os.killpg(pid, signal.SIGKILL)
                    yield name, None if late else os.waitstatus_to_exitcode(ended[1])
            time.sleep(0.02)
    finally:
        for pid in running:
            os.killpg(pid, signal.SIGKILL)


def unchanged(tests: list[str], temporary: Path, jobs: int) -> bool:
    """Whether all tests pass on the source as it is."""
    starts: list[Start] = [(f"unchanged-{k}", tests[k::jobs], None) for k in range(min(jobs, len(tests)))]
    wrong = [name for name, code in outcomes(temporary, starts, jobs) if code != ExitCode.OK]
    for name in wrong:
        print((temporary / name / "log").read_text(), "error: these tests must pass on the unchanged source", sep="\n")
    return not wrong


def survivors(mutations: list[Mutation], temporary: Path, jobs: int) -> list[str]:
    """Apply each change, run its test, and name those that nothing noticed."""
    by_id = {mutation.id: mutation for mutation in mutations}
    survived = []
    for name, code in outcomes(temporary, [(m.id, [m.test], m) for m in mutations], jobs):
        m = by_id[name]
        if not (m.hangs if code is None else code == ExitCode.TESTS_FAILED):
            said = (temporary / name / "log").read_text().strip().splitlines()
            ended = f"pytest exit code {code}, {said[-1] if said else 'no output'}"
            why = "time ran out" if code is None else "it passes" if code == ExitCode.OK else ended
            print(f"survived: {m.id}: {m.what} ({m.file}); {m.test}: {why}", flush=True)
            survived.append(name)
        shutil.rmtree(temporary / name, ignore_errors=True)
    return survived


def main() -> int:
    """0: all caught; 1: some survived; 2: the list is wrong or a test fails without any change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--only", default="", metavar="ID,...", help="only these entries")
    parser.add_argument("--file", default="*", metavar="AREA", help="only tests/mutations/AREA.yaml")
    options = parser.parse_args()
    mutations = load(ROOT / "tests/mutations", options.file)
    only = set(filter(None, options.only.split(",")))
    unknown = [f"{name}: no entry has this id" for name in sorted(only - {mutation.id for mutation in mutations})]
    if wrong := problems(ROOT, mutations) + unknown:
        print(*(f"error: {line}" for line in wrong), sep="\n")
        return 2
    mutations = [mutation for mutation in mutations if mutation.id in only or not only]
    # one thread, the same examples every time, no byte code of a changed file
    os.environ |= {"OMP_NUM_THREADS": "1", "CI": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    for name in WARM:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="ludus-mutations-") as folder:
        temporary = Path(folder)
        shutil.copytree(ROOT / "src", temporary / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for path in (temporary / "src").rglob("*.py"):
            py_compile.compile(str(path), doraise=True)
        if not unchanged(sorted({mutation.test for mutation in mutations}), temporary, options.jobs):
            return 2
        survived = survivors(mutations, temporary, options.jobs)
    print(f"{len(mutations) - len(survived)} of {len(mutations)} caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
