"""The commands of the life of experiments: list, show, compare, export, cleanup, report, tag, index, evaluate."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ludus import cli
from ludus.archive.index import Index
from ludus.reports.statistics import stratified_bootstrap
from synthetic import make_run


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Ludus = Callable[..., Outcome]


@pytest.fixture
def ludus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    """Runs a command line in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main(list(words))
        captured = capsys.readouterr()
        return Outcome(int(end.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    make_run(root, "cart_1", [10.0, 100.0], lr=0.01, days=60, heavy=True)
    make_run(root, "cart_2", [10.0, 480.0], seed=2, days=50, heavy=True)
    make_run(root, "cart_3", [10.0, 490.0], seed=3, days=1, heavy=True)
    (root / "@last").symlink_to("cart_3")
    return root


def test_list_is_a_table_newest_first(ludus: Ludus, runs: Path) -> None:
    lines = ludus("list").out.splitlines()
    assert lines[0].split()[:4] == ["id", "state", "environment", "algorithm"]
    assert [line.split()[0] for line in lines[1:4]] == ["cart_3", "cart_2", "cart_1"]
    assert lines[4].startswith("3 runs, ")


def test_list_filters_sorts_limits_and_picks_columns(ludus: Ludus, runs: Path) -> None:
    out = ludus(
        "list", "--filter", "algorithm.lr<0.005", "--sort", "reward:asc", "--columns", "id,algorithm.lr,reward"
    ).out
    assert [line.split() for line in out.splitlines()[:3]] == [
        ["id", "algorithm.lr", "reward"],
        ["cart_2", "0.001", "480.0"],
        ["cart_3", "0.001", "490.0"],
    ]
    assert ludus("list", "--limit", "1").out.splitlines()[-1].startswith("1 of 3 runs")
    assert ludus("list", "-f", "algorithm=ppo", "-f", "reward>485").out.splitlines()[1].startswith("cart_3")
    assert ludus("list", "-f", "reward>1000").out == "no run in runs/ fits; there are 3\n"


def test_list_as_json(ludus: Ludus, runs: Path) -> None:
    found = json.loads(ludus("list", "--sort", "reward", "--json").out)
    assert [run["id"] for run in found] == ["cart_3", "cart_2", "cart_1"]
    assert {"state", "reward", "last", "solved", "tags", "size", "config_hash", "commit", "exact"} <= set(found[0])
    assert json.loads(ludus("list", "--json", "--columns", "algorithm.lr", "-n", "1").out) == [{"algorithm.lr": 0.001}]


def test_list_of_nothing(ludus: Ludus) -> None:
    assert ludus("list").out == "no run in runs/; train one first\n"
    assert ludus("list", "--json").out == "[]\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("list", "--filter", "rewrad>3"), "did you mean 'reward'"),
        (("list", "--sort", "reward:sideways"), "use asc or desc"),
        (("list", "--columns", ","), "names no column"),
        (("show", "nobody"), "no such run"),
        (("compare", "cart_*", "--metrics", "entrpy"), "did you mean"),
        (("compare", "--statistic", "median"), "is not known"),
        (("compare", "--band", "minmax"), "is not known"),
        (("compare", "--plot", "a.gif"), "is not a format of figures"),
        (("export", "--format", "excel"), "is not known"),
        (("export", "x*"), "fits no run"),
        (("tag", "cart_1", "a,b"), "cannot be a tag"),
        (("tag", "cart_1", "-none"), "has no such tag"),
        (("report", ".."), "cannot be the name of a run"),
    ],
)
def test_mistakes_are_one_line_with_a_remedy(ludus: Ludus, runs: Path, words: tuple[str, ...], message: str) -> None:
    outcome = ludus(*words)
    assert outcome.code == 2
    assert outcome.err.startswith("error: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_terminal_is_told_nothing_but_text(ludus: Ludus, tmp_path: Path) -> None:
    make_run(
        tmp_path / "runs", "cart_1", spec="\x1b[2J\x07evil", meta={"overrides": ["\x1b[31m"]}, status={"reason": "\x9b"}
    )
    (tmp_path / "runs" / "cart_1" / "tags.json").write_text(json.dumps({"tags": ["\x1b]0;x\x07"]}))
    for words in (("list", "--columns", "id,spec,tags,reason"), ("show", "cart_1"), ("compare",)):
        out = ludus(*words).out
        assert all(char.isprintable() or char == "\n" for char in out)


def test_on_a_terminal_lines_fit_and_are_coloured(ludus: Ludus, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((60, 24)))
    out = ludus("list").out
    assert "\x1b[1m490.0\x1b[0m" in out
    plain = re.sub(r"\x1b\[\d*m", "", out)
    assert max(map(len, plain.splitlines())) <= 60
    assert "tags" not in plain.splitlines()[0]
    assert "reward" in plain.splitlines()[0]


def test_show_one_run_in_full(ludus: Ludus, runs: Path) -> None:
    out = ludus("show", "@last").out
    for words in (
        "cart_3",
        "CartPole-v1:ppo seed=3",
        "finished",
        "490.0",
        "train/loss/total",
        "step=1000",
        "best, last",
    ):
        assert words in out, words
    found = json.loads(ludus("show", "@best", "--json", "--config").out)
    assert (found["id"], found["last_metrics"]["env_steps"]) == ("cart_3", 2000)
    assert found["checkpoints"][0]["marks"] == ["best", "last"]
    assert found["alerts"] == []
    assert found["differences"]["algorithm.gamma"] == [0.99, 0.98]
    assert "0.99" in ludus("show", "cart_3", "--config").out


def test_show_tells_alerts_with_their_tips(ludus: Ludus, runs: Path) -> None:
    with (runs / "cart_3" / "metrics.jsonl").open("a") as file:
        for i in range(9):
            file.write(json.dumps({"env_steps": 3000 + i, "train/policy/kl": 0.9}) + "\n")
    assert "alert: train/policy/kl = 0.900: above 0.1; the policy moves too far" in ludus("show", "@last").out


def test_compare_prints_groups_differences_and_writes_a_plot(ludus: Ludus, runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ("compare", "cart_*", "--metrics", "reward,loss", "--plot", "out/a.png", "--band", "range")
    out = ludus(*words).out
    lines = out.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [["A", "reward", "lr=0.001"], ["B", "reward", "lr=0.01"]]
    assert "480.0 to 490.0" in lines[1]
    assert "algorithm.lr" in out
    assert lines[-1] == "plot out/a.png"
    assert (tmp_path / "out" / "a.png").stat().st_size > 5000
    found = json.loads(ludus("compare", "algorithm.lr<0.005", "--json").out)
    assert [group["runs"] for group in found["groups"]] == [["cart_2", "cart_3"]]
    assert len(json.loads(ludus("compare", "--group-by", "seed", "--json").out)["groups"]) == 3


def test_a_comparison_fits_the_terminal(ludus: Ludus, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long values, such as phases, are cut; what a group is called stays."""
    config = runs / "cart_1" / "config.yaml"
    phases = "phases: [" + ", ".join(f"{{name: part {i}, hooks: [collect]}}" for i in range(20)) + "]"
    config.write_text(config.read_text().replace("training: {", f"training: {{{phases}, "))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size((100, 24)))
    out = ludus("compare").out
    table = [line for line in out.splitlines() if not line.startswith(("note: ", "final: "))]
    assert max(map(len, table)) <= 100
    assert "training.phases" in out and "IQM" in table[0] and "final" in table[1]


def test_export_to_the_terminal_and_to_a_file(ludus: Ludus, runs: Path, tmp_path: Path) -> None:
    assert ludus("export", "cart_1", "--format", "csv", "--columns", "id,reward").out == "id,reward\ncart_1,100.0\n"
    outcome = ludus("export", "--format", "json", "--output", "deep/registry.json")
    assert outcome.out == "deep/registry.json: 3 runs\n"
    assert [run["id"] for run in json.loads((tmp_path / "deep" / "registry.json").read_text())] == [
        "cart_1",
        "cart_2",
        "cart_3",
    ]
    assert r"\toprule" in ludus("export", "cart*", "--format", "latex", "--group-by", "config").out


def test_cleanup_is_a_dry_run_unless_told(ludus: Ludus, runs: Path) -> None:
    words = ("cleanup", "--keep-best", "1", "--keep-recent", "30")
    outcome = ludus(*words)
    assert "nothing was removed; add --yes" in outcome.out
    assert [line.split()[0] for line in outcome.out.splitlines()[1:3]] == ["cart_2", "cart_1"]
    assert (runs / "cart_1" / "checkpoints").is_dir()
    outcome = ludus(*words, "--yes")
    assert outcome.code == 0
    assert "freed 6.0 kB" in outcome.out
    assert not (runs / "cart_1" / "checkpoints").exists()
    assert (runs / "cart_1" / "config.yaml").exists()
    assert (runs / "cart_3" / "checkpoints" / "step=1000").is_dir()
    assert "there is nothing to remove" in ludus(*words).out
    assert Index(runs).get("cart_1").size < 6000


def test_cleanup_of_some_runs_ranks_among_all(ludus: Ludus, runs: Path) -> None:
    """The best run of a filter is not the best run of its environment."""
    out = ludus("cleanup", "--keep-best", "1", "--keep-recent", "0", "--filter", "algorithm.lr=0.01").out
    assert out.splitlines()[1].split()[0] == "cart_1"
    assert "cart_2" not in out


def test_tags_are_added_removed_and_found(ludus: Ludus, runs: Path) -> None:
    assert ludus("tag", "@last", "+paper", "draft").out == "cart_3: paper, draft\n"
    assert ludus("tag", "@last", "-draft", "+paper").out == "cart_3: paper\n"
    assert [run["id"] for run in json.loads(ludus("list", "-f", "tags=paper", "--json").out)] == ["cart_3"]
    assert ludus("tag", "cart_*", "+all").out.count("\n") == 3
    assert json.loads((runs / "cart_1" / "tags.json").read_text()) == {"tags": ["all"]}


def test_report_says_where_it_is(ludus: Ludus, runs: Path) -> None:
    path, how = ludus("report").out.splitlines()
    address = (runs / "cart_3" / "report.html").resolve().as_uri()
    assert path == "runs/cart_3/report.html" and how == f"open it with --open, or in a browser: {address}"
    assert "SOLVED" in (runs / "cart_3" / "report.html").read_text()
    assert (runs / "cart_3" / "report.md").exists()


def test_report_opens_the_browser(ludus: Ludus, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import webbrowser

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    ludus("report", "cart_1", "--open")
    assert opened == [(runs / "cart_1" / "report.html").resolve().as_uri()]


def test_index_rebuild(ludus: Ludus, runs: Path) -> None:
    (runs / "index.sqlite").write_text("junk")
    assert ludus("index", "rebuild").out == "runs/index.sqlite: 3 runs\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained policy with two checkpoints."""
    from ludus.archive import checkpoint
    from ludus.archive.store import RunFolder
    from ludus.config.compose import to_yaml
    from ludus.experiment import build
    from support import close, config

    root = tmp_path_factory.mktemp("evaluate") / "runs"
    chosen = config(environment={"normalize_obs": "rolling"})
    run = RunFolder.create(root, "cart", config_yaml=to_yaml(chosen))
    built = build(chosen)
    for step, best in ((128, True), (256, False)):
        checkpoint.save(run.path, built.state_dict(), name=f"step={step}", best=best)
    close(built)
    return root


def evaluation(ludus: Ludus, root: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ludus("evaluate", "cart", "--json", "--runs-dir", str(root), *words).out)
    found.pop("seconds")
    return found


def test_evaluate_reports_statistics_of_its_episodes(ludus: Ludus, trained: Path) -> None:
    found = evaluation(ludus, trained, "--episodes", "20")
    returns = found["returns"]
    assert (found["checkpoint"], found["episodes"], len(returns)) == ("step=128", 20, 20)
    assert (found["mean"], found["std"]) == (pytest.approx(np.mean(returns)), pytest.approx(np.std(returns)))
    assert found["ci95"] == pytest.approx(stratified_bootstrap([returns], np.mean))
    assert (found["min"], found["max"]) == (min(returns), max(returns))
    assert found["length_mean"] == pytest.approx(np.mean(found["lengths"]))
    assert returns == found["lengths"]  # CartPole
    text = ludus("evaluate", "cart/@last", "--episodes", "3", "--runs-dir", str(trained)).out
    assert ", 95 % bootstrap interval of the mean " in text
    assert text.startswith("cart_")
    assert "/step=256\nreturn " in text


def test_evaluate_is_repeatable_by_seed_and_habit(ludus: Ludus, trained: Path) -> None:
    base = evaluation(ludus, trained, "--episodes", "12", "--stochastic", "--seed", "5")
    assert evaluation(ludus, trained, "--episodes", "12", "--stochastic", "--seed", "5") == base
    assert evaluation(ludus, trained, "--episodes", "12", "--stochastic", "--seed", "6")["returns"] != base["returns"]
    greedy = evaluation(ludus, trained, "--episodes", "12", "--deterministic", "--seed", "5")
    assert (greedy["deterministic"], base["deterministic"]) == (True, False)
    assert greedy["returns"] != base["returns"]


def test_evaluate_one_episode_has_no_interval(ludus: Ludus, trained: Path) -> None:
    assert evaluation(ludus, trained, "--episodes", "1")["ci95"] == [None, None]


@pytest.mark.parametrize("command", ["list", "show", "tag cart_1 +x", "cleanup", "index rebuild", "--help"])
def test_light_commands_import_nothing_heavy(runs: Path, command: str) -> None:
    code = (
        "import sys; from ludus.cli import run;\n"
        f"run({command.split()!r});\n"
        "heavy = {'torch', 'gymnasium', 'hydra', 'matplotlib', 'pandas'} & set(sys.modules); assert not heavy, heavy\n"
        f"assert {command == 'show'!r} or 'numpy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=runs.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("spec", ["CartPole-v1:ppo", "Acrobot-v1:a2c"])
def test_a_training_imports_no_other_algorithm(tmp_path: Path, spec: str) -> None:
    """A variant of a file and a preset alike; SciPy, which CMA-ES brings along, takes most of a second."""
    code = (
        "import sys; from ludus.cli import run;\n"
        f"run(['train', {spec!r}, '--max-timesteps', '64', '-q']);\n"
        "other = {f'ludus.algorithms.{name}' for name in ('dreamer', 'tdmpc', 'world_models', 'sac', 'dqn')};\n"
        "heavy = ({'scipy', 'cmaes', 'matplotlib', 'optuna'} | other) & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_evaluate_refuses_a_checkpoint_that_does_not_fit_the_config(ludus: Ludus, tmp_path: Path) -> None:
    ludus("train", "FrozenLake-v1:q_learning", "-q", "training.total_timesteps=64", "training.evaluation.every_steps=0")
    config = (tmp_path / "runs" / "@last").resolve() / "config.yaml"
    config.write_text(config.read_text().replace("id: FrozenLake-v1", "id: CliffWalking-v1"))
    found = ludus("evaluate", "@last", "-n", "1")
    assert (found.code, found.out) == (3, "") and found.err.count("\n") == 1
    assert "the checkpoint does not fit this config" in found.err
