"""Run folders and the references to them."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ludus.errors import ConfigError, DataError, LudusError
from ludus.runs.store import RunFolder, read_json, runs_in, safe_name
from synthetic import make_run


def _create(root: Path, name: str = "cart", **more: object) -> RunFolder:
    return RunFolder.create(root, name, config_yaml="seed: 1\n", argv=["ludus", "train"], **more)  # type: ignore[arg-type]


def _fake(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "config.yaml").touch()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_run_folder(tmp_path: Path) -> None:
    run = _create(tmp_path / "runs", spec="CartPole-v1:ppo", overrides=["algorithm.lr=1"], config_hash="abc")
    assert re.fullmatch(r"cart_\d{8}-\d{6}_[0-9a-f]{4}", run.id)
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert run.config_path.read_text() == "seed: 1\n"
    meta = run.meta()
    assert (meta["name"], meta["spec"], meta["overrides"], meta["config_hash"]) == (
        "cart",
        "CartPole-v1:ppo",
        ["algorithm.lr=1"],
        "abc",
    )
    assert {"python", "ludus", "torch", "numpy", "gymnasium"} <= set(meta["versions"])
    assert meta["argv"] == ["ludus", "train"]
    assert {"started", "git", "host"} <= set(meta)
    status = read_json(run.path / "status.json")
    assert (status["state"], status["pid"]) == ("running", os.getpid())
    assert "created for CartPole-v1:ppo" in (run.path / "run.log").read_text()
    assert str((tmp_path / "runs" / "@last").readlink()) == run.id


def test_creating_a_run_imports_nothing_heavy(tmp_path: Path) -> None:
    import subprocess

    code = (
        "import sys; from pathlib import Path; from ludus.runs.store import RunFolder;"
        f"RunFolder.create(Path({str(tmp_path)!r}), 'x', config_yaml='');"
        "assert not {'torch', 'gymnasium', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_status_and_summary(tmp_path: Path) -> None:
    run = _create(tmp_path)
    run.set_status("finished", env_steps=100, reason="solved")
    status = read_json(run.path / "status.json")
    assert {"state": "finished", "env_steps": 100, "reason": "solved"}.items() <= status.items()
    run.write("metrics.json", {"mean": 500.0, "nan": float("nan")})
    assert json.loads((run.path / "metrics.json").read_text()) == {"mean": 500.0, "nan": None}


def test_the_log_is_one_clean_line_an_event(tmp_path: Path) -> None:
    run = _create(tmp_path)
    run.log("a\nb \x1b[31mred")
    last = (run.path / "run.log").read_text().splitlines()[-1]
    assert last.endswith("a\\nb \\x1b[31mred")


def test_parallel_runs_all_exist_and_last_is_one_of_them(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: _create(tmp_path), range(24)))
    assert sorted({run.id for run in runs}) == runs_in(tmp_path)
    assert len(runs_in(tmp_path)) == 24
    assert RunFolder.load(tmp_path, "@last").id in runs_in(tmp_path)
    assert _names(tmp_path) == sorted(["@last", *runs_in(tmp_path)])


def test_references(tmp_path: Path) -> None:
    run = _create(tmp_path)
    _fake(tmp_path, "other_20260101-000000_abcd")
    for text in (run.id, run.id[:6], "@last", f"{tmp_path}/{run.id}", f"{tmp_path}/{run.id}/"):
        assert RunFolder.load(tmp_path, text) == run
    assert RunFolder.load(tmp_path, f"{run.id}/@best").checkpoint == "best"
    assert RunFolder.load(tmp_path, "@last/@last").checkpoint == "last"
    assert RunFolder.load(tmp_path, "oth/step=128").checkpoint == "step=128"


def test_the_best_run_is_the_one_with_the_highest_evaluation(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no run in .* was evaluated"):
        RunFolder.load(tmp_path, "@best")
    make_run(tmp_path, "cart_1", [10.0, 480.0])
    make_run(tmp_path, "cart_2", [10.0, 100.0], seed=2)
    assert RunFolder.load(tmp_path, "@best").id == "cart_1"
    assert RunFolder.load(tmp_path, "@best/step=5") == RunFolder(tmp_path / "cart_1", "step=5")


def test_an_id_wins_over_longer_names_that_begin_with_it(tmp_path: Path) -> None:
    _fake(tmp_path, "a", "ab")
    assert RunFolder.load(tmp_path, "a").id == "a"


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("cart_1", ["2 runs begin like that", "cart_1a, cart_1b"]),
        ("crat_1a", ["no such run", "did you mean 'cart_1a'?"]),
        ("@first", ["not a reference to a run"]),
        ("@last", ["there is no last run", "the newest run is 'dog_2'"]),
        ("dog_2/@worst", ["'worst' is no checkpoint", "run/step=N"]),
        ("dog_2/../cart_1a", ["is no checkpoint"]),
        ("dog_2/step=" + "9" * 30, ["is no checkpoint"]),
    ],
)
def test_references_that_lead_nowhere(tmp_path: Path, reference: str, parts: list[str]) -> None:
    _fake(tmp_path, "cart_1a", "cart_1b", "dog_2")
    with pytest.raises(ConfigError) as caught:
        RunFolder.load(tmp_path, reference)
    for part in parts:
        assert part in caught.value.line()


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/x",
        "/abs",
        "~",
        "a/b",
        ".",
        "..",
        "",
        "-rf",
        ".hidden",
        "x" * 65,
        "$(id)",
        "a\nb",
        "a b",
        "é",
        "@last",
    ],
)
def test_names_that_could_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / "runs"
    with pytest.raises(ConfigError):
        _create(root, name)
    assert not root.exists()
    with pytest.raises(LudusError) as caught:
        RunFolder.load(root, name)
    assert "\n" not in caught.value.line()


def test_a_long_name_still_makes_a_loadable_id(tmp_path: Path) -> None:
    run = _create(tmp_path, "n" * 64)
    assert len(run.id) <= 64
    assert RunFolder.load(tmp_path, run.id) == run
    assert run.meta()["name"] == "n" * 64


def test_links_out_of_the_runs_folder_are_refused(tmp_path: Path) -> None:
    _fake(tmp_path / "outside", "secret")
    root = tmp_path / "runs"
    root.mkdir()
    (root / "evil").symlink_to(tmp_path / "outside" / "secret")
    (root / "loop").symlink_to("loop")
    (root / "@last").symlink_to("../outside/secret")
    assert runs_in(root) == []
    for reference in ("evil", "loop", "@last"):
        with pytest.raises(ConfigError):
            RunFolder.load(root, reference)


def test_last_that_names_a_link_out_of_the_runs_folder_is_refused(tmp_path: Path) -> None:
    """The name is fine and the folder is there; only where it leads is wrong."""
    _fake(tmp_path / "outside", "secret")
    root = tmp_path / "runs"
    root.mkdir()
    (root / "evil").symlink_to(tmp_path / "outside" / "secret")
    (root / "@last").symlink_to("evil")
    with pytest.raises(ConfigError, match="leads out of the runs folder"):
        RunFolder.load(root, "@last")


def test_something_else_in_the_place_of_the_link_is_named_and_no_folder_is_left(tmp_path: Path) -> None:
    (tmp_path / "@last").mkdir()
    with pytest.raises(ConfigError, match=r"@last: is not a link"):
        _create(tmp_path)
    assert _names(tmp_path) == ["@last"]


def test_a_folder_that_could_not_be_completed_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    monkeypatch.setattr("ludus.files.replace_link", full)
    with pytest.raises(LudusError, match="No space left"):
        _create(tmp_path)
    assert _names(tmp_path) == []


def test_runs_are_numbered_in_the_order_they_are_made(tmp_path: Path) -> None:
    numbers = [_create(tmp_path).meta()["number"] for _ in range(3)]
    assert numbers == [1, 2, 3]
    (tmp_path / "@last").unlink()
    assert _create(tmp_path).meta()["number"] == 4


def test_last_that_is_gone(tmp_path: Path) -> None:
    run = _create(tmp_path)
    (run.path).rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match="which is gone; the newest run is 'moved'"):
        RunFolder.load(tmp_path, "@last")


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no config\.yaml"):
        RunFolder.load(tmp_path, "empty")


def test_no_runs_at_all_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ludus train CartPole-v1:ppo"):
        RunFolder.load(tmp_path / "runs", "x")


@pytest.mark.parametrize("text", ["{", "[]", "\xff", "[" * 100_000])
def test_broken_status_is_data_not_a_traceback(tmp_path: Path, text: str) -> None:
    run = _create(tmp_path)
    (run.path / "status.json").write_text(text)
    with pytest.raises(DataError, match=r"status\.json"):
        read_json(run.path / "status.json")


@pytest.mark.parametrize("name", ["with space", "ünï", "new\nline", "n" * 255])
def test_any_root_the_file_system_takes(tmp_path: Path, name: str) -> None:
    run = _create(tmp_path / name)
    assert RunFolder.load(tmp_path / name, "@last") == run


def test_a_root_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot make a run folder"):
        _create(tmp_path / "file" / "runs")
    with pytest.raises(ConfigError, match="cannot make a run folder"):
        _create(tmp_path / ("n" * 256))


@pytest.mark.parametrize(
    ("text", "name"), [("ALE/Pong-v5:ppo", "ALE-Pong-v5-ppo"), ("../x", "x"), ("...", "run"), ("a" * 99, "a" * 64)]
)
def test_safe_name(text: str, name: str) -> None:
    assert safe_name(text) == name


@pytest.mark.parametrize("name", ["checkpoints", "buffers", "videos", "tensorboard", "wandb", "debug"])
def test_a_folder_of_somebody_else_leads_nothing_out_of_it(tmp_path: Path, name: str) -> None:
    from ludus.session.session import Session

    run = RunFolder.create(tmp_path / "runs", "x", config_yaml="")
    (tmp_path / "elsewhere").mkdir()
    (run.path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is a link"):
        Session.hold(Session.__new__(Session), run)


@pytest.mark.parametrize("file", ["status.json", "meta.json", "metrics.json"])
def test_numbers_and_texts_that_are_none_hide_no_runs(tmp_path: Path, file: str) -> None:
    """One folder from somebody else must not make every listing fail."""
    from ludus.reports.report import write_report
    from ludus.runs import record

    run = RunFolder.create(tmp_path, "x", config_yaml="{}")
    huge = dict.fromkeys(("pid", "env_steps", "seconds", "updates", "best", "number"), 10**400)
    (run.path / file).write_text(json.dumps({"state": "finished \ud800", **huge}))
    assert record.read(run.path) is not None
    write_report(run.path)
