"""metrics.yaml: overlay, patterns, and errors that name the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.errors import ConfigError
from ludus.watch.rules import Rules


def _load(tmp_path: Path, text: str) -> Rules:
    path = tmp_path / "metrics.yaml"
    path.write_text(text)
    return Rules.load(path)


def test_shipped_rules_cover_what_ppo_logs(tmp_path: Path) -> None:
    rules = Rules.load(tmp_path / "none.yaml")
    assert rules["train/roll/ep_rew/mean"].highlight
    assert rules["train/roll/ep_rew/mean"].better == "up"  # the pattern and the name both apply
    assert rules["train/policy/kl"].max == 0.1
    assert rules["train/opt/approx_kl"].max == 0.1
    assert rules["train/explained_variance"].min == 0
    assert rules.group("train/policy_lr") == "train/hp"
    assert rules["never/heard/of"].precision == 3


def test_the_overlay_changes_one_field_and_keeps_the_rest(tmp_path: Path) -> None:
    rules = _load(tmp_path, "train/roll/ep_rew/mean: {precision: 4}\n'*/mine': {bold: true}")
    assert rules["train/roll/ep_rew/mean"].precision == 4
    assert rules["train/roll/ep_rew/mean"].highlight
    assert rules["train/mine"].bold


def test_order_is_priority_then_name(tmp_path: Path) -> None:
    rules = _load(tmp_path, "_global: {key_priority: [b/*, a/x], groups: [b]}")
    assert sorted(["a/x", "c/z", "c/y", "b/q"], key=rules.rank) == ["b/q", "a/x", "c/y", "c/z"]
    assert sorted(["a", "b"], key=rules.group_rank) == ["b", "a"]


def test_the_x_axis_of_curves(tmp_path: Path) -> None:
    assert _load(tmp_path, "_global: {groups: [b]}").general.step_key is None
    assert _load(tmp_path, "_global: {step_key: updates}").general.step_key == "updates"
    assert _load(tmp_path, "_global: {step_key: seconds}").general.key_priority  # the shipped order stays


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("train/x: {precison: 2}", ["train/x.precison: unknown key", "did you mean 'precision'?"]),
        ("train/x: {precision: -1}", ["train/x.precision", "-1"]),
        ("train/x: {better: sideways}", ["train/x.better", "sideways"]),
        ("train/x: 3", ["train/x: expected a mapping"]),
        ("_global: {key_prioritty: []}", ["_global.key_prioritty", "did you mean 'key_priority'?"]),
        ("_global: {step_key: train/loss}", ["_global.step_key", "train/loss"]),
        ("train/x: {extreme: {mx: 3}}", ["train/x.extreme.mx"]),
        ("- a\n- b", ["metrics.yaml"]),
        ("a: {bold: true}\na: {bold: false}", ["duplicate key 'a'"]),
        ("a: [", ["not YAML"]),
    ],
)
def test_bad_files_are_one_clear_line(tmp_path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)
    line = caught.value.line()
    assert "\n" not in line
    for part in ["metrics.yaml", *parts]:
        assert part in line
