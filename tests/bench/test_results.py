"""Results of shipped configs: the list, the statistics, and a command that goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ludus import cli
from ludus.archive.record import Record
from ludus.bench import results
from ludus.config.compose import load
from ludus.errors import ConfigError


def test_every_listed_config_exists_has_a_threshold_and_enough_seeds() -> None:
    claims = results.listed()
    assert len(claims) >= 20 and len({claim.spec for claim in claims}) == len(claims)
    for claim in claims:
        config = load(claim.spec).config
        assert config.training.stop.eval_reward is not None, claim.spec
        assert len(claim.seeds) >= 5 and min(claim.seeds) >= 3001, claim.spec


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("first_seed: 1\nruns: {CartPole-v1:ppo: {seed: 3}}", "is not {seeds: N"),
        ("first_seed: 1\nruns: {CartPole-v1:ppo: {seeds: 0}}", "is not {seeds: N"),
        ("first_seed: 1\nrun: {}", "unknown key 'run'"),
    ],
)
def test_a_list_that_says_something_else_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "list.yaml").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        results.listed(tmp_path / "list.yaml")


def written(folder: Path, *seconds: float) -> Path:
    folder.mkdir()
    rows = [{"env_steps": i, "epoch": i, results.CPU: value} for i, value in enumerate(seconds)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_row_tells_returns_solved_runs_steps_and_processor_time(tmp_path: Path) -> None:
    ends = [(100.0, False, 4_000, (30.0, 30.0)), (480.0, True, 2_000, (60.0,)), (500.0, True, 1_000, (120.0, 180.0))]
    records = []
    for i, (last, solved, steps, cpu) in enumerate(ends):
        facts = {"last": last, "solved": solved, "threshold": 475.0, "env_steps": steps, "commit": "0123456789"}
        records.append(Record(written(tmp_path / str(i), *cpu), str(i), **facts))
    result = results.Result.of(results.Claim("CartPole-v1:ppo", (1, 2, 3), "500 (them)"), records)
    assert (result.solved, result.steps, result.minutes) == (2, 2_000, 1.0)
    cells = dict(zip(results.HEAD, result.cells(), strict=True))
    assert cells["IQM"] == "360.0" and cells["worst"] == "100.0" and cells["95 % interval"] == "100.0 to 500.0"
    assert cells["solved"] == "2 of 3" and cells["published"] == "500 (them)" and cells["CPU minutes"] == "1.0"
    page = results.page([result], ["Taxi-v4:ppo: 1 of 5 runs are finished"], ["ludus", "bench", "results"])
    assert "at commit 0123456. 1 configs, 3 runs; of 0 configs every seed" in page
    assert page.endswith("## Not finished\n\n- Taxi-v4:ppo: 1 of 5 runs are finished\n")


def test_the_command_trains_what_is_missing_and_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def command(*words: str, spec: str = "Bandit-v0:ppo") -> str:
        with pytest.raises(SystemExit) as end:
            cli.main(["bench", "results", spec, "--jobs", "1", "--out", "found", *words])
        said = capsys.readouterr().err
        assert not end.value.code, said
        return said

    command("--seeds", "1")
    first = {path.name for path in (tmp_path / "found/runs").glob("Bandit*")}
    command("--seeds", "1,2", "--page", "page.md")
    assert len(first) == 1 and first < {path.name for path in (tmp_path / "found/runs").glob("Bandit*")}
    assert "| Bandit-v0:ppo | 2 | " in (tmp_path / "page.md").read_text()
    (found,) = json.loads((tmp_path / "found/results.json").read_text())["results"]
    assert found["seeds"] == [1, 2] and len(found["values"]) == 2
    assert "Bandit-v0:ppo: 2 of 3 runs are finished" in command("--seeds", "1..3", "--write-only")
    command("--seeds", "1,2", "--write-only")
    assert "and earlier calls" not in (tmp_path / "found/results.md").read_text()
    command("--seeds", "7", spec="Bandit-v0:reinforce")
    text = (tmp_path / "found/results.md").read_text()
    assert "results Bandit-v0:reinforce --seeds 7` and earlier calls at commit" in text
    assert text.index("| Bandit-v0:ppo | 2 | ") < text.index("| Bandit-v0:reinforce | 1 | ")
    command("--seeds", "1,2", "--write-only")  # in whatever order they are called
    assert (tmp_path / "found/results.md").read_text().splitlines()[-2:] == text.splitlines()[-2:]
    both = json.loads((tmp_path / "found/results.json").read_text())["results"]
    assert [(one["spec"], one["seeds"]) for one in both] == [("Bandit-v0:ppo", [1, 2]), ("Bandit-v0:reinforce", [7])]


def test_runs_of_other_settings_are_not_on_the_page(tmp_path: Path) -> None:
    """Of a config that has changed since, of a spec that is gone, and runs that are under way."""
    from synthetic import make_run

    claim = results.Claim("Bandit-v0:ppo", (4,))
    facts = {"config_hash": results.config_hash(claim.runs()[0].config)}
    make_run(tmp_path, "good", spec=claim.spec, seed=4, meta=facts)
    make_run(tmp_path, "old", spec="Taxi-v4:ppo", seed=4)
    make_run(tmp_path, "gone", spec="Nowhere-v0:ppo", seed=4)
    make_run(tmp_path, "going", spec=claim.spec, seed=5, state="running", meta=facts)
    asked = results.Claim("CartPole-v1:ppo", (1,))
    listed = [results.Claim("CartPole-v1:ppo", (1,)), results.Claim("Bandit-v0:ppo", (1,), "0.9 (them)")]
    found = results.with_earlier([asked], listed, tmp_path)
    assert found == [asked, results.Claim("Bandit-v0:ppo", (4,), "0.9 (them)")]
    assert results.with_earlier([asked], listed[::-1], tmp_path) == found[::-1]
