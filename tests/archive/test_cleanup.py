"""Cleanup removes what the plan says and never anything else."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ludus.archive.cleanup import apply, plan
from ludus.archive.index import Index
from ludus.archive.lock import RunLock
from ludus.archive.tags import retag
from synthetic import DEAD, make_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def goes(root: Path, **options: float) -> set[str]:
    """Ids of the runs something of which would go."""
    return {item.record.id for item in plan(Index(root).records(), **options) if item.folders}  # type: ignore[arg-type]


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() or path.is_symlink())
    return {
        str(path.relative_to(folder)): hashlib.sha256(b"" if path.is_symlink() else path.read_bytes()).hexdigest()
        for path in files
    }


def test_the_best_of_each_environment_and_the_young_stay(root: Path) -> None:
    for i in range(5):
        make_run(root, f"cart_{i}", [100.0 * i], days=100, heavy=True)
        make_run(root, f"pole_{i}", [-100.0 * i], days=100, environment="Pendulum-v1", heavy=True)
    make_run(root, "young", [-9999.0], days=3, heavy=True)
    assert goes(root, keep_best=2, keep_recent=30) == {"cart_0", "cart_1", "cart_2", "pole_2", "pole_3", "pole_4"}
    assert "young" in goes(root, keep_best=2, keep_recent=1)
    assert len(goes(root, keep_best=0, keep_recent=0)) == 11
    assert goes(root) == set()


def test_a_plan_touches_nothing(root: Path) -> None:
    make_run(root, "cart_1", days=100, heavy=True)
    before = contents(root / "cart_1")
    (item,) = plan(Index(root).records(), keep_best=0)
    assert item.size == 3000 + 2 * len("step=1000")
    assert contents(root / "cart_1") == before


def test_what_a_run_was_and_how_it_went_stays_byte_for_byte(root: Path) -> None:
    folder = make_run(root, "cart_1", days=100, heavy=True)
    (folder / "report.html").write_text("report")
    (folder / "best.ckpt").symlink_to("checkpoints/best")
    (folder / "buffers").mkdir()
    (folder / "buffers" / "shard").write_bytes(bytes(500))
    before = contents(folder)
    freed, problems = apply(plan(Index(root).records(), keep_best=0))
    assert (freed, problems) == (3500 + 2 * len("step=1000"), [])
    kept = {name: digest for name, digest in before.items() if "/" not in name and name != "best.ckpt"}
    after = contents(folder)
    after.pop(".lock", None)
    assert after == kept
    assert set(kept) == {"config.yaml", "meta.json", "status.json", "metrics.jsonl", "metrics.json", "report.html"}
    record = Index(root).get("cart_1")
    assert (record.reward, record.state) == (480.0, "finished")
    assert goes(root, keep_best=0) == set()


def test_a_live_run_is_never_touched(root: Path) -> None:
    make_run(root, "live", days=100, state="running", heavy=True)
    make_run(root, "elsewhere", days=0.5, state="running", meta={"host": {"name": "other"}}, heavy=True)
    make_run(root, "long_ago", days=3, state="running", meta={"host": {"name": "other"}}, heavy=True)
    make_run(root, "lost", days=100, state="running", status={"pid": DEAD}, heavy=True)
    locked = make_run(root, "locked", days=100, state="finished", heavy=True)
    code = "import sys; from pathlib import Path; from ludus.archive.lock import RunLock\n"
    code += "lock = RunLock(Path(sys.argv[1])); lock.acquire(); print('held', flush=True); sys.stdin.read()"
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(locked)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "held\n"
    try:
        assert goes(root, keep_best=0, keep_recent=0) == {"lost", "long_ago"}
    finally:
        owner.communicate("")
    assert goes(root, keep_best=0, keep_recent=0) == {"lost", "long_ago", "locked"}


def test_a_run_resumed_under_a_clock_that_went_back_is_not_old(root: Path) -> None:
    """Updated before it began: nobody knows how old it is."""
    three_years = {"updated": (datetime.now(UTC) - timedelta(days=1_095)).isoformat(timespec="seconds")}
    make_run(root, "jumped", days=1, status=three_years, heavy=True)
    make_run(root, "long_ago_and_jumped", days=100, status=three_years, heavy=True)
    make_run(root, "old", days=100, heavy=True)
    assert goes(root, keep_best=0) == {"old"}


def test_a_run_resumed_after_the_plan_is_left_alone(root: Path) -> None:
    folder = make_run(root, "cart_1", days=100, heavy=True)
    items = plan(Index(root).records(), keep_best=0)
    lock = RunLock(folder)
    lock.acquire()
    freed, problems = apply(items)
    lock.release()
    assert freed == 0
    assert "is in use by process" in problems[0]
    assert (folder / "checkpoints" / "step=1000").is_dir()


def test_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("years of work")
    folder = make_run(root, "cart_1", days=100)
    (folder / "checkpoints").symlink_to(precious)
    (folder / "videos").mkdir()
    (folder / "videos" / "mine").symlink_to(precious)
    (folder / "videos" / "file").symlink_to(precious / "thesis.tex")
    (root / "linked").symlink_to(precious)
    items = plan(Index(root).records(), keep_best=0)
    assert [path.name for item in items for path in item.folders] == ["videos"]
    apply(items)
    assert (precious / "thesis.tex").read_text() == "years of work"
    assert (folder / "checkpoints").is_symlink()
    assert not (folder / "videos").exists()


def test_a_folder_swapped_for_a_link_after_the_plan_is_not_followed(root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").touch()
    folder = make_run(root, "cart_1", days=100, heavy=True)
    items = plan(Index(root).records(), keep_best=0)
    (folder / "videos").rename(folder / "elsewhere")
    (folder / "videos").symlink_to(precious)
    apply(items)
    assert (precious / "thesis.tex").exists()


def test_the_tag_keep_protects(root: Path) -> None:
    make_run(root, "cart_1", days=100, heavy=True)
    retag(Index(root).get("cart_1"), ["+keep"])
    (item,) = plan(Index(root).records(), keep_best=0)
    assert (item.keep, item.folders) == ("is tagged keep", ())


def test_what_a_killed_cleanup_left_goes_with_the_next(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_run(root, "cart_1", days=100, heavy=True)

    def killed(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        apply(plan(Index(root).records(), keep_best=0))
    monkeypatch.undo()
    assert not (folder / "checkpoints").exists()  # out of sight as a whole
    apply(plan(Index(root).records(), keep_best=0))
    assert {path.name for path in folder.iterdir() if path.is_dir()} == set()


def test_what_cannot_be_removed_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(root, "cart_1", days=100, heavy=True)
    make_run(root, "cart_2", days=100, heavy=True)

    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refused)
    freed, problems = apply(plan(Index(root).records(), keep_best=0))
    assert freed == 0
    assert ["Permission denied" in problem for problem in problems] == [True, True]
