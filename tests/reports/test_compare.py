"""Groups, statistics and plots of runs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from ludus.archive.index import Index
from ludus.errors import ConfigError
from ludus.reports.compare import compare
from ludus.reports.plots import band, plot
from ludus.reports.statistics import iqm, stratified_bootstrap
from synthetic import make_run

SLOW, FAST = [[100.0, 200.0], [120.0, 260.0], [90.0, 150.0]], [[300.0, 500.0], [480.0, 490.0], [200.0, 470.0]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three seeds of each of two learning rates; logging and tags differ, which does not matter."""
    root = tmp_path / "runs"
    for i, returns in enumerate(SLOW):
        make_run(root, f"slow_{i}", returns, seed=i)
    for i, returns in enumerate(FAST):
        folder = make_run(root, f"fast_{i}", returns, seed=i, lr=0.01)
        config = (folder / "config.yaml").read_text()
        (folder / "config.yaml").write_text(config.replace("csv: true", f"csv: {str(i == 0).lower()}"))
    return root


def test_runs_that_differ_only_in_the_seed_are_one_group(root: Path) -> None:
    found = compare(Index(root).pick([]))
    assert (found.common, [group.label for group in found.groups]) == ("CartPole-v1:ppo", ["lr=0.01", "lr=0.001"])
    assert [[record.id for record in group.runs] for group in found.groups] == [
        ["fast_0", "fast_1", "fast_2"],
        ["slow_0", "slow_1", "slow_2"],
    ]
    assert found.differences == {"algorithm.lr": ("0.01", "0.001")}
    assert found.notes == ()


def test_other_plugins_and_warm_starts_are_other_groups(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    files = [{"plugins": [{"path": "/a/cem.py", "sha256": digit * 64}]} for digit in "12"]
    for seed in (1, 2):
        make_run(root, f"plain_{seed}", [10.0], seed=seed)
        make_run(root, f"other_{seed}", [20.0], seed=seed, lr=0.5)
        for i, meta in enumerate(files):
            make_run(root, f"file{i}_{seed}", [30.0 + i], seed=seed, meta=meta)
        for name in ("plain", "other"):
            start = {"run": f"{name}_{seed}", "step": f"step={seed}", "optimizer": False}
            make_run(root, f"from_{name}_{seed}", [40.0], seed=seed, meta={"start": start})
    resumed = {**files[0], "resumed": [{"env_steps": 9, **files[1]}]}
    make_run(root, "both_1", [50.0], seed=1, meta=resumed)
    found = compare(Index(root).pick([]))
    members = sorted(sorted(record.id for record in group.runs) for group in found.groups)
    pairs = ("file0", "file1", "from_other", "from_plain", "other", "plain")
    assert members == [["both_1"], *([f"{name}_1", f"{name}_2"] for name in pairs)]
    labels = {record.id: group.label for group in found.groups for record in group.runs}
    assert "plugins=cem.py 111111111111" in labels["file0_1"] and "plugins=none" in labels["plain_1"]
    assert "init_from=plain_1/step=1 | plain_2/step=2" in labels["from_plain_1"]
    shutil.rmtree(root / "plain_1")  # its weights are known by name only
    groups = compare(Index(root).pick(["from_plain_*"])).groups
    assert len(groups) == 2


def test_statistics_of_a_group(root: Path) -> None:
    fast, slow = compare(Index(root).pick([])).groups
    scores, best = fast.scores["reward"], [500.0, 490.0, 470.0]
    assert scores.values == tuple(best)
    assert scores.mean == pytest.approx(np.mean(best))
    assert (scores.median, scores.best, scores.worst) == (490.0, 500.0, 470.0)
    assert scores.iqm == pytest.approx(iqm(best))
    assert (scores.low, scores.high) == stratified_bootstrap([best])
    assert (fast.steps_to_threshold, fast.reached) == (1500.0, 2)  # 2,000 and 1,000; 470 never got there
    assert (slow.steps_to_threshold, slow.reached) == (None, 0)
    assert fast.seconds == 5.0


def test_environments_are_strata(tmp_path: Path) -> None:
    for i in range(4):
        make_run(tmp_path, f"a_{i}", [100.0], seed=i)
        make_run(tmp_path, f"b_{i}", [0.0], seed=i, environment="Other-v0")
    (group,) = compare(Index(tmp_path).pick([]), group_by="algorithm").groups
    assert (group.scores["reward"].low, group.scores["reward"].high) == (50.0, 50.0)
    assert "different environments are pooled" in compare(Index(tmp_path).pick([]), group_by="algorithm").notes[0]


@pytest.mark.parametrize(
    ("group_by", "labels"),
    [
        ("spec", ["CartPole-v1:ppo"]),
        ("algorithm.lr", ["0.01", "0.001"]),
        ("seed", ["0", "1", "2"]),
        ("tags", ["(none)"]),
    ],
)
def test_grouping_by_anything(root: Path, group_by: str, labels: list[str]) -> None:
    groups = compare(Index(root).pick([]), group_by=group_by).groups
    assert sorted(group.label for group in groups) == sorted(labels)


def test_other_metrics_by_short_and_whole_names(root: Path) -> None:
    found = compare(
        Index(root).pick([]), metrics=["reward", "loss", "policy/entropy", "train/roll/ep_rew/mean", "env_steps"]
    )
    scores = found.groups[0].scores
    assert scores["loss"].values == (0.5, 0.5, 0.5)
    assert scores["policy/entropy"].mean == 0.6
    assert scores["train/roll/ep_rew/mean"].best == 250.0
    assert scores["env_steps"].mean == 2000.0


def test_unknown_metrics_and_keys_name_the_nearest(root: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean"):
        compare(Index(root).pick([]), metrics=["entrpy"])
    with pytest.raises(ConfigError, match="one of train/roll/ep_rew/mean, val/roll/ep_rew/mean, val/roll/ep_len/mean"):
        compare(Index(root).pick([]), metrics=["mean"])
    with pytest.raises(ConfigError, match=r"did you mean 'algorithm\.lr'"):
        compare(Index(root).pick([]), group_by="algorithm.l")
    with pytest.raises(ConfigError, match="no run to compare"):
        compare([])


def test_one_run_has_no_interval_and_unfinished_runs_are_noted(tmp_path: Path) -> None:
    make_run(tmp_path, "a", [5.0])
    failed = make_run(tmp_path, "b", [5.0], lr=0.5, state="failed")
    (failed / "metrics.jsonl").unlink()
    found = compare(Index(tmp_path).pick([]))
    data = json.loads(json.dumps(found.data(), allow_nan=False))
    assert data["groups"][0]["metrics"]["reward"]["iqm_ci95"] is None
    assert found.groups[1].scores == {}
    assert any("1 of 1 runs have no reward" in note for note in found.notes)
    assert any("not every run is finished" in note for note in found.notes)


def test_without_evaluations_the_training_return_counts(tmp_path: Path) -> None:
    for i in range(2):
        folder = make_run(tmp_path, f"a_{i}", [10.0, 6.0], seed=i, summary={"best": None, "mean": None})
        text = (folder / "metrics.jsonl").read_text()
        (folder / "metrics.jsonl").write_text(re.sub(r'"val/roll/ep_rew/mean": [\d.]+, ', "", text))
    found = compare(Index(tmp_path).pick([]))
    assert found.groups[0].scores["reward"].values == (5.0, 5.0)
    assert "no run was evaluated" in found.notes[0]


def test_labels_tell_groups_of_one_spec_apart_and_name_several_specs(tmp_path: Path) -> None:
    make_run(tmp_path, "a", spec="CartPole-v1:ppo")
    make_run(tmp_path, "b", spec="CartPole-v1:ppo", lr=0.01)
    make_run(tmp_path, "c", spec="Pendulum-v1:ppo", environment="Pendulum-v1")
    found = compare(Index(tmp_path).pick([]))
    labels = {"CartPole-v1:ppo, lr=0.001", "CartPole-v1:ppo, lr=0.01", "Pendulum-v1:ppo"}
    assert (found.common, {group.label for group in found.groups}) == ("", labels)


def test_the_band_spans_all_runs_and_knows_where_the_shortest_ends() -> None:
    drawn = band([([10, 20, 30], [1.0, 2.0, 3.0]), ([20, 40], [2.0, 6.0])])
    assert (drawn.steps[0], drawn.steps[-1], drawn.until) == (20, 40, 30)
    assert drawn.middle[0] == 2.0
    assert drawn.middle[-1] == 4.5  # the first run is held at 3
    assert (drawn.low <= drawn.middle + 1e-12).all()
    assert (drawn.middle <= drawn.high + 1e-12).all()
    single = band([([1, 2], [5.0, 6.0])], "mean")
    np.testing.assert_array_equal(single.low, single.high)


def test_plots_are_pictures_and_repeatable(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = compare(Index(root).pick([]), metrics=["reward", "loss"])
    png, svg = plot(found, tmp_path / "new" / "a.png"), plot(found, tmp_path / "a.svg", statistic="mean")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    for word in ("evaluated return", "train/loss/total", "environment steps", "lr=0.01 (n=3)", "at 475"):
        assert word in text, word
    assert plot(found, tmp_path / "b.svg", statistic="mean").read_text() == text
    assert not list(tmp_path.glob(".*.tmp"))


def test_hostile_labels_are_only_text_in_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    make_run(tmp_path, "a", spec="$\\frac{<script>\x1b[31m", environment="E-v0")
    text = plot(compare(Index(tmp_path).pick([])), tmp_path / "a.svg").read_text()
    assert "<script>" not in text
    assert "\x1b" not in text


def test_what_cannot_be_plotted_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a format of figures"):
        plot(compare(Index(root).pick([])), tmp_path / "a.jpeg2000")
    with pytest.raises(ConfigError, match="none of the metrics has a curve"):
        plot(compare(Index(root).pick([]), metrics=["seconds"]), tmp_path / "a.png")


def test_a_missing_extra_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"ludus-rl\[report\]"):
        plot(compare(Index(root).pick([])), tmp_path / "a.png")
