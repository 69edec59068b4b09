"""`ludus config validate` reads all of a file, also what is no setting."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from ludus import cli


@pytest.fixture
def validate(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(spec: str) -> types.SimpleNamespace:
        with pytest.raises(SystemExit) as stop:
            cli.main(["config", "validate", spec])
        captured = capsys.readouterr()
        return types.SimpleNamespace(code=stop.value.code, out=captured.out, err=captured.err)

    return run


FACTS = """
spec:
  reward: 1 for every step
  action: {labels: [left, right]}
ppo: {environment: {id: CartPole-v1}, algorithm: ppo}
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("reward:", "rewards:", "spec.rewards: Extra inputs are not permitted; did you mean 'reward'?"),
        ("labels:", "lables:", "spec.action.lables: Extra inputs are not permitted; did you mean 'labels'?"),
        ("spec:", "spce:", "spce: neither a section nor a likely variant; did you mean 'spec'?"),
        ("spec:", "specs:", "specs: neither a section nor a likely variant; did you mean 'spec'?"),
    ],
)
@pytest.mark.parametrize("spec", ["Mine-v0:ppo", "configs/environments/Mine-v0.yaml:ppo"])
def test_config_validate_reads_the_facts_of_an_environment(validate, tmp_path, spec, old, new, words):
    (tmp_path / "configs" / "environments").mkdir(parents=True)
    file = tmp_path / "configs" / "environments" / "Mine-v0.yaml"
    file.write_text(FACTS)
    fine = validate(spec)
    assert (fine.code, fine.err) == (0, "")
    file.write_text(FACTS.replace(old, new))
    bad = validate(spec)
    assert bad.code == 2
    assert bad.err == f"error: configs/environments/Mine-v0.yaml:2: {words}\n"


def test_a_file_that_is_named_like_a_class_imports_nothing(validate: Any, tmp_path: Path) -> None:
    """`configs/environments/evil:Evil.yaml` came with a folder from elsewhere; nobody has typed `evil:Evil:ppo`."""
    folder = tmp_path / "configs" / "environments"
    folder.mkdir(parents=True)
    (folder / "evil:Evil.yaml").write_text("ppo: {environment: {id: CartPole-v1}, algorithm: ppo}\n")
    (tmp_path / "evil.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'canary')!r}).touch()")
    assert "evil:Evil" in validate("all").err
    assert not (tmp_path / "canary").exists()
