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
from ludus.reports.export import comparison_table
from ludus.reports.plots import band, plot
from ludus.reports.run_metrics import lower_is_better
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
    (note,) = found.notes
    assert note.startswith("fewer than 5 seeds") and "lr=0.01; lr=0.001; train more" in note


def test_environments_that_are_known_by_name_alone_get_a_note(root: Path) -> None:
    for folder in root.glob("slow_*"):
        config = (folder / "config.yaml").read_text()
        assert "id: CartPole-v1" in config
        (folder / "config.yaml").write_text(config.replace("id: CartPole-v1", "id: local/lambda-v0"))
    found = compare(Index(root).pick(["slow*"]))
    assert len(found.groups) == 1 and any("known by its name alone" in note for note in found.notes)
    assert not any("known by its name alone" in note for note in compare(Index(root).pick(["fast*"])).notes)


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
    scores, best = fast.scores["final"], [500.0, 490.0, 470.0]
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
    assert (group.scores["final"].low, group.scores["final"].high) == (50.0, 50.0)
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
    assert data["groups"][0]["metrics"]["final"]["iqm_ci95"] is None
    assert data["improvement"] is None
    assert found.groups[1].scores == {}
    assert any("1 of 1 runs have no final" in note for note in found.notes)
    assert any("not every run is finished" in note for note in found.notes)


def test_without_evaluations_the_training_return_counts(tmp_path: Path) -> None:
    for i in range(2):
        folder = make_run(tmp_path, f"a_{i}", [10.0, 6.0], seed=i, summary={"best": None, "mean": None})
        text = (folder / "metrics.jsonl").read_text()
        (folder / "metrics.jsonl").write_text(re.sub(r'"val/roll/ep_rew/mean": [\d.]+, ', "", text))
    found = compare(Index(tmp_path).pick([]))
    assert found.groups[0].scores["best"].values == (5.0, 5.0)
    assert found.groups[0].scores["final"].values == (3.0, 3.0)
    assert "no run was evaluated" in found.notes[0]


def test_labels_tell_groups_of_one_spec_apart_and_name_several_specs(tmp_path: Path) -> None:
    make_run(tmp_path, "a", spec="CartPole-v1:ppo")
    make_run(tmp_path, "b", spec="CartPole-v1:ppo", lr=0.01)
    make_run(tmp_path, "c", spec="Pendulum-v1:ppo", environment="Pendulum-v1")
    found = compare(Index(tmp_path).pick([]))
    labels = {"CartPole-v1:ppo, lr=0.001", "CartPole-v1:ppo, lr=0.01", "Pendulum-v1:ppo"}
    assert (found.common, {group.label for group in found.groups}) == ("", labels)


def test_a_seed_that_was_trained_twice_counts_once(tmp_path: Path) -> None:
    """Running a command again must not narrow an interval."""
    make_run(tmp_path, "old", [100.0], seed=1, days=2)
    make_run(tmp_path, "new", [200.0], seed=1, days=1)
    make_run(tmp_path, "failed", [999.0], seed=1, state="failed")
    make_run(tmp_path, "other", [300.0], seed=2, days=3)
    found = compare(Index(tmp_path).pick([]))
    (group,) = found.groups
    assert [record.id for record in group.runs] == ["new", "other"]
    assert group.scores["final"].values == (200.0, 300.0)
    (note, _) = found.notes
    assert note == "cart: of each seed only the newest run counts; left out: old, failed".replace("cart", group.label)
    assert found.data()["groups"][0]["left_out"] == ["old", "failed"]


def test_the_same_seed_of_another_config_or_group_stays(tmp_path: Path) -> None:
    make_run(tmp_path, "a", [1.0], seed=1)
    make_run(tmp_path, "b", [2.0], seed=1, lr=0.5)
    make_run(tmp_path, "c", [3.0], seed=1, days=1, meta={"git": {"commit": "0ld"}})
    (pooled,) = compare(Index(tmp_path).pick([]), group_by="algorithm").groups
    assert {record.id for record in pooled.runs} == {"a", "b"}, "c is an older repetition of a"
    by_code = compare(Index(tmp_path).pick([]), group_by="commit").groups
    assert sorted(len(group.runs) for group in by_code) == [1, 2], "groups of different code are compared as they are"


def test_final_and_best_are_shown_and_the_final_one_decides(tmp_path: Path) -> None:
    for i in range(2):
        make_run(tmp_path, f"lucky_{i}", [500.0, 100.0], seed=i)
        make_run(tmp_path, f"steady_{i}", [300.0, 310.0], seed=i, lr=0.5)
    found = compare(Index(tmp_path).pick([]))
    assert found.metrics == ("final", "best")
    assert [group.label for group in found.groups] == ["lr=0.5", "lr=0.001"]
    assert [group.scores["best"].iqm for group in found.groups] == [310.0, 500.0]
    table = comparison_table(found)
    assert [row[0] for row in table.rows] == ["final", "final", "best", "best"]
    iqm_column = table.head.index("IQM")
    assert table.bold == {(0, iqm_column), (3, iqm_column)}


def test_losses_are_better_when_lower(tmp_path: Path) -> None:
    for i in range(2):
        make_run(tmp_path, f"slow_{i}", seed=i, summary={"seconds": 9.0 + i})
        make_run(tmp_path, f"fast_{i}", seed=i, lr=0.5, summary={"seconds": 2.0 + i})
    found = compare(Index(tmp_path).pick([]), metrics=["seconds", "final"])
    assert [group.label for group in found.groups] == ["lr=0.5", "lr=0.001"]
    assert found.lower_is_better == {"seconds": True, "final": False}
    assert found.improvement is not None and found.improvement.probability == 1.0
    assert min(comparison_table(found).bold)[0] == 0
    assert lower_is_better("train/loss/value")


def test_how_probably_the_best_group_wins(root: Path) -> None:
    found = compare(Index(root).pick([]))
    assert found.improvement is not None
    assert (found.improvement.better, found.improvement.other) == ("lr=0.01", "lr=0.001")
    assert (found.improvement.probability, found.improvement.low, found.improvement.high) == (1.0, 1.0, 1.0)
    said = "final: a run of lr=0.01 beats one of lr=0.001 with probability 1.00 (95 % interval 1.00 to 1.00)"
    assert str(found.improvement) == said
    assert found.data()["improvement"]["ci95"] == [1.0, 1.0]
    assert f"\n\n- {said}\n- fewer than" in found._repr_markdown_()


def test_groups_that_cannot_be_told_apart_are_named(tmp_path: Path) -> None:
    for i in range(5):
        make_run(tmp_path, f"a_{i}", [100.0 + 10 * i], seed=i)
        make_run(tmp_path, f"b_{i}", [105.0 + 10 * i], seed=i, lr=0.5)
        make_run(tmp_path, f"c_{i}", [1.0 + i], seed=i, lr=0.7)
    found = compare(Index(tmp_path).pick([]))
    assert found.notes == (
        "the 95 % interval of lr=0.5 overlaps with that of lr=0.001, so these runs do not show which is better",
    )
    assert found.improvement is not None
    assert found.improvement.probability == pytest.approx(15 / 25)
    assert found.improvement.low < 0.5 < found.improvement.high


def test_equal_groups_are_all_bold_and_a_single_run_is_not(tmp_path: Path) -> None:
    make_run(tmp_path, "lonely", [500.0], lr=0.9)
    for i in range(2):
        make_run(tmp_path, f"a_{i}", [500.0], seed=i)
        make_run(tmp_path, f"b_{i}", [500.0], seed=i, lr=0.5)
        make_run(tmp_path, f"c_{i}", [499.0], seed=i, lr=0.7)
    table = comparison_table(compare(Index(tmp_path).pick([]), metrics=["final"]))
    bold = {table.rows[i][0] for i, _ in table.bold}
    assert bold == {"lr=0.001", "lr=0.5"}


def test_labels_name_what_tells_groups_apart_even_of_many_differences(tmp_path: Path) -> None:
    """The first values in the file are the same for two of the groups; vague names get the part before."""
    changes = {
        "a": {},
        "b": {"gamma: 0.98": "gamma: 0.9", "num_envs: 8": "num_envs: 4", "episodes: 20": "episodes: 5",
              "every_steps: 4096": "every_steps: 1"},
        "c": {"gamma: 0.98": "gamma: 0.9", "num_envs: 8": "num_envs: 4", "episodes: 20": "episodes: 5",
              "every_steps: 4096": "every_steps: 1", "memory: {type: none}": "memory: {type: gru}"},
    }  # fmt: skip
    for name, words in changes.items():
        config = make_run(tmp_path, name) / "config.yaml"
        text = config.read_text()
        for old, new in words.items():
            text = text.replace(old, new)
        config.write_text(text)
    labels = [group.label for group in compare(Index(tmp_path).pick([])).groups]
    assert len(set(labels)) == 3 and not any("#" in label for label in labels)
    assert sum("memory.type=gru" in label for label in labels) == 1
    assert all(label.endswith(", ...") and len(label) < 80 for label in labels)


def test_the_range_is_from_the_smallest_to_the_largest_value() -> None:
    drawn = band([([10, 20], [1.0, 2.0]), ([10, 20], [5.0, 4.0]), ([10, 20], [2.0, 2.0])], around="range")
    assert (drawn.low[0], drawn.high[0], drawn.low[-1], drawn.high[-1]) == (1.0, 5.0, 2.0, 4.0)


def test_a_confirmation_decides_when_the_threshold_was_reached(tmp_path: Path) -> None:
    """Two rows of one step: an evaluation that reached it, and fresh episodes that did not."""
    folder = make_run(tmp_path, "a", [480.0, 490.0, 500.0])
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    fresh = [{**rows[0], "val/roll/ep_rew/mean": 470.0}, {**rows[1], "val/roll/ep_rew/mean": 476.0}]
    written = [rows[0], fresh[0], rows[1], fresh[1], rows[2]]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in written))
    (group,) = compare(Index(tmp_path).pick([])).groups
    assert (group.reached, group.steps_to_threshold) == (1, 2000.0)


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


@pytest.mark.filterwarnings("error")
def test_numbers_near_the_largest_float_count_as_infinite(tmp_path: Path) -> None:
    """Sums and axes of them overflow: compared and drawn is what is left, and nothing is a traceback."""
    pytest.importorskip("matplotlib")
    for seed, returns in enumerate([(1e308, -1e308, 300.0), (100.0, 1.7e308, 320.0)]):
        make_run(tmp_path / "some", f"run{seed}", returns, seed=seed, threshold=1e308)
        make_run(tmp_path / "none", f"run{seed}", (1.7e308, 1.7e308), seed=seed)
    found = compare(Index(tmp_path / "some").pick([]), metrics=["final", "best"])
    assert found.groups[0].scores["final"].mean == 310 and "best" not in found.groups[0].scores
    text = plot(found, tmp_path / "a.svg").read_text()
    assert "(n=2)" in text and "solved" not in text and "320" in text
    nothing = compare(Index(tmp_path / "none").pick([]))
    assert not nothing.groups[0].scores
    with pytest.raises(ConfigError, match="no run has a finite point of val/roll/ep_rew/mean; train them longer"):
        plot(nothing, tmp_path / "b.svg")


def test_a_missing_extra_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"ludus-rl\[report\]"):
        plot(compare(Index(root).pick([])), tmp_path / "a.png")
