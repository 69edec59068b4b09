"""The comparison of memory cores: fair by construction, goes on where it stopped."""

from __future__ import annotations

import csv
import dataclasses
import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from ludus.archive.differences import differences
from ludus.bench import memory
from ludus.bench.memory import BenchPlan, bench, jobs, matching, pictures, results, tuning
from ludus.bench.memory.results import CPU, CoreResult, table
from ludus.bench.memory.tasks import CORES, PRESETS, TASKS, pick_cores, pick_tasks
from ludus.bench.memory.tuning import Trial, Tuning
from ludus.cli import main
from ludus.config.compose import dump
from ludus.errors import ConfigError
from ludus.metrics.names import EVAL_RETURN
from ludus.reports.export import render
from ludus.reports.scores import Scores

CARTPOLE = TASKS["CartPole-v1-masked"]


def row(core: str, values: list[float], speed: float = 100.0) -> CoreResult:
    return CoreResult("Maze", core, 1000, Scores.of([values]), 0, None, speed, 1.0, 0.5)


@pytest.mark.parametrize(("target", "width"), [(1, 1), (100, 10), (104, 10), (117, 11), (10_000, 100)])
def test_the_nearest_width(target: int, width: int) -> None:
    assert matching.nearest_width(lambda units: units * units, target) == (width, width * width)


@pytest.mark.parametrize("core", CORES.values(), ids=list(CORES))
def test_parameters_are_equal_within_two_percent(core: jobs.Core) -> None:
    target = matching.reference_size(CARTPOLE, 1.0)
    width, size = matching.matched(CARTPOLE, core, target)
    assert size == pytest.approx(target, rel=0.02)
    assert matching.count(matching.configured(CARTPOLE, core, width)) == size


def test_cores_differ_in_nothing_but_the_network_and_what_it_sees() -> None:
    plan = BenchPlan([CARTPOLE], list(CORES.values()), [1], 1.0, [1000])
    configs = {job.core.name: dump(matching.load(job.words[0], job.words[1:]).config) for job in plan.jobs()}
    for name, config in configs.items():
        changed = {change.path for change in differences(configs["lstm"], config)}
        allowed = ("network.", "experiment.name", *(("environment.wrappers",) if name == "ppo-4" else ()))
        assert all(path.startswith(allowed) for path in changed), (name, changed)


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_no_core_is_given_more_than_its_size(task: jobs.BenchTask) -> None:
    for core in CORES.values():
        memory = matching.configured(task, core, None).network.memory.config
        assert memory.model_copy(update={"hidden_dim": 64}) == type(memory)(), core


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_batches_are_whole_sequences(task: jobs.BenchTask) -> None:
    """Otherwise cores with memory would learn from larger batches than those without."""
    config = matching.load(task.spec, list(task.overrides)).config
    settings, envs = config.algorithm.config, config.environment.num_envs
    assert settings.steps_per_batch(settings.rollout_steps * envs) % settings.rollout_steps == 0


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_sequences_are_as_long_as_what_has_to_be_remembered(task: jobs.BenchTask) -> None:
    """A gradient that does not reach back to the sign teaches nobody to remember it."""
    config = matching.load(task.spec, list(task.overrides)).config
    assert config.algorithm.config.rollout_steps > config.environment.kwargs.get("length", 0)


def lr_of(task: jobs.BenchTask, factor: float) -> object:
    words = [*task.overrides, *tuning.rate(task.spec, task.overrides, factor)]
    return dump(matching.load(task.spec, words).config)["algorithm"]["lr"]


def test_a_learning_rate_is_scaled_and_its_schedule_stays() -> None:
    before = lr_of(CARTPOLE, 1)
    assert before == {"start": 1e-3, "end": 0.0, "from": 0.0, "to": 1.0, "schedule": "linear"}
    assert lr_of(CARTPOLE, 0.3) == {**before, "start": pytest.approx(3e-4)}
    assert lr_of(TASKS["TMaze-v0"], 3) == pytest.approx(3e-3)
    assert tuning.rate(CARTPOLE.spec, CARTPOLE.overrides, 1) == ()


def test_every_core_is_tuned_alike_on_other_seeds_with_a_share_of_the_budget() -> None:
    plan = BenchPlan(
        [CARTPOLE], [CORES["ppo-1"], CORES["gru"]], [1, 2], None, [8000], (), Tuning([0.3, 1, 3], [7, 8], 0.25)
    )
    tried = plan.tuning_jobs()
    assert len(tried) == 2 * 3 * 2
    assert {job.seed for job in tried} == {7, 8}
    assert {job.config.training.total_timesteps for job in tried} == {2000}
    for job, factor in tried.items():
        assert job.config.algorithm.config.lr.start == pytest.approx(factor * 1e-3)
        assert job.config.training.stop.eval_reward is None
    rates = {
        job.core.name: job.config.algorithm.config.lr.start for job in plan.jobs({("CartPole-v1-masked", "gru"): 3})
    }
    assert rates == {"ppo-1": pytest.approx(1e-3), "gru": pytest.approx(3e-3)}
    assert {job.config.training.total_timesteps for job in plan.jobs()} == {8000}


def test_the_factor_with_the_highest_mean_is_chosen_and_of_equal_ones_the_nearest_to_the_config() -> None:
    found = [
        Trial("Maze", "gru", 0.3, (1.0, 5.0)),
        Trial("Maze", "gru", 1.0, (4.0, 4.0)),
        Trial("Maze", "lstm", 0.1, (2.0, 2.0)),
        Trial("Maze", "lstm", 3.0, (2.0, 2.0)),
        Trial("Hall", "gru", 0.3, (9.0, 9.0)),
    ]
    assert tuning.chosen(found) == {("Maze", "gru"): 1.0, ("Maze", "lstm"): 3.0, ("Hall", "gru"): 0.3}
    assert [cells[-1] for cells in tuning.table(found).rows] == ["", "yes", "", "yes", "yes"]


def test_evaluations_of_the_second_half_count(tmp_path: Path) -> None:
    rows = [{"env_steps": step, EVAL_RETURN: value} for step, value in ((25, 9.0), (50, 9.0), (75, 1.0), (100, 3.0))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    job = jobs.BenchRun(CARTPOLE, CORES["gru"], 1, 1000, ())
    assert tuning.trials({job: SimpleNamespace(folder=tmp_path)}, {job: 0.3}) == [
        Trial("CartPole-v1-masked", "gru", 0.3, (2.0,))
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lr-factors", "0.3,x"], "--lr-factors 0.3,x: not a list of different numbers above 0; write 0.3,1,3"),
        (["--lr-factors", "1,0"], "--lr-factors 1,0: not a list"),
        (["--lr-factors", "1,inf"], "--lr-factors 1,inf: not a list"),
        (["--lr-factors", "1,1.0"], "--lr-factors 1,1.0: not a list"),
        (
            ["--lr-factors", "1,3", "--seeds", "3", "--tuning-seeds", "9,2"],
            "--tuning-seeds 9,2: 2 is one of --seeds, too",
        ),
    ],
)
def test_rates_and_seeds_of_a_tuning_are_checked(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "bench", lambda *_: [])  # an unnoticed mistake must not train for hours
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "memory", "--cores", "gru", *words])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {said}")


def test_budgets_for_all_tasks_or_each() -> None:
    tasks = [CARTPOLE, TASKS["ProofOfMemory-v0"]]

    def budgets(*steps: int) -> list[str]:
        plan = BenchPlan(tasks, [CORES["gru"]], [1], None, steps)
        return [word for job in plan.jobs() for word in job.words if "total_timesteps" in word]

    assert budgets() == []
    assert budgets(100) == ["training.total_timesteps=100"] * 2
    assert budgets(100, 200) == ["training.total_timesteps=100", "training.total_timesteps=200"]
    with pytest.raises(ConfigError, match="3 budgets for 2 tasks"):
        budgets(1, 2, 3)


def test_a_share_that_cannot_be_met_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose a larger share"):
        matching.matched(CARTPOLE, CORES["lstm"], 20)


def test_tasks_by_preset_name_or_spec() -> None:
    assert pick_tasks(["classic-masked", "CartPole-v1-masked"]) == list(PRESETS["classic-masked"])
    assert pick_tasks(["CartPole-v1:ppo"])[0].spec == "CartPole-v1:ppo"
    with pytest.raises(ConfigError, match="did you mean 'CartPole-v1-masked'"):
        pick_tasks(["CartPole-v1-maskd"])
    with pytest.raises(ConfigError, match="no such core"):
        pick_cores(["lstn"])


def test_speed_is_of_training_alone(tmp_path: Path) -> None:
    """100 steps a second of processor time; the second row evaluated, the third waited."""
    rows = [
        {"env_steps": 100, "seconds": 1.0, CPU: 1.0},
        {"env_steps": 200, "seconds": 4.0, CPU: 3.0, EVAL_RETURN: 5.0},
        {"env_steps": 300, "seconds": 60.0, CPU: 1.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert results._speed(SimpleNamespace(folder=tmp_path)) == 100.0


def test_the_axis_of_speeds_is_readable(tmp_path: Path) -> None:
    """The style parses no formulas, which powers of ten are by default."""
    pictures.trade_off([row("gru", [10, 11], 900), row("lstm", [9, 10], 12_000)], tmp_path / "picture.svg")
    texts = (tmp_path / "picture.svg").read_text()
    assert "mathdefault" not in texts and ">1k<" in texts and ">10k<" in texts


def test_the_table_in_every_format() -> None:
    found = table([row("gru", [10, 11, 12]), row("lstm", [1, 2, 3])])
    assert "**11.0**" in render(found, "markdown")
    assert render(table([row("gru", [1, 1]), row("lstm", [1, 1])]), "markdown").count("**1.000**") == 2
    assert len(list(csv.reader(render(found, "csv").splitlines()))) == 3
    assert r"\textbf{11.0}" in render(found, "latex")


def test_trade_offs_are_said_from_the_data_and_ties_are_ties() -> None:
    found = [row("gru", [10, 11, 12]), row("lstm", [10, 11, 12]), row("mamba", [1, 2, 3], 50.0)]
    assert results.trade_offs(found) == [
        "Maze: highest return gru, lstm (11.0), lowest mamba (2.000); fastest training gru, lstm (100 steps/s of CPU), "
        "slowest mamba (50 steps/s of CPU); fastest decision gru, lstm, mamba (0.500 ms), "
        "slowest gru, lstm, mamba (0.500 ms)"
    ]


def test_measurements_have_intervals() -> None:
    assert results._median([3.0]) == (3.0, None)
    assert results._median([1.0, 2.0, 9.0]) == (2.0, (1.0, 9.0))
    measured = dataclasses.replace(row("gru", [1, 2]), speed=1234.0, speed_interval=(1200.0, 1300.0))
    assert measured.cells()[-3:] == ["1,234 (1,200 to 1,300)", "1.0", "0.500"]


def test_the_published_table_is_that_of_the_published_command() -> None:
    """Every task and core of it, parameters within two percent, no more seeds than it has."""
    page = (Path(__file__).parents[2] / "docs" / "memory-benchmark.md").read_text()
    command = shlex.split(
        page[page.index("ludus bench memory --env CartPole-v1-masked,") :].split("```")[0].replace("\\\n", " ")
    )
    options = dict(zip(command[3::2], command[4::2], strict=True))
    tasks, seeds = pick_tasks(options["--env"].split(",")), options["--seeds"]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.count("|") > 12]
    rows = {(task, core): (int(parameters.replace(",", "")), n) for task, core, parameters, n, *_ in cells[2:]}
    assert rows.keys() == {(task.name, core) for task in tasks for core in CORES}
    for (task, _), (parameters, n) in rows.items():
        assert 1 < int(n) <= int(seeds)
        assert parameters == pytest.approx(rows[task, "lstm"][0], rel=0.02)


@pytest.mark.integration
def test_a_second_call_trains_only_what_is_missing(tmp_path: Path) -> None:
    plan = BenchPlan([CARTPOLE], [CORES["ppo-1"], CORES["gru"]], [1], 1.0, [1024])
    lines: list[str] = []
    assert bench(plan, tmp_path, 2, lines.append) == []
    assert sum("seed 1" in line for line in lines) == 2
    lines.clear()
    bench(dataclasses.replace(plan, seeds=[1, 2]), tmp_path, 2, lines.append)
    assert "2 of 4 runs are finished already" in lines
    assert sum(", seed" in line for line in lines) == 2
    for name in ("table.md", "table.csv", "table.tex", "results.json", "trade-off.png"):
        assert (tmp_path / name).stat().st_size > 0
    assert (tmp_path / "CartPole-v1-masked.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.integration
def test_a_tuned_comparison_goes_on_where_it_stopped(tmp_path: Path) -> None:
    plan = BenchPlan([CARTPOLE], [CORES["ppo-1"]], [1], None, [1024], (), Tuning([1, 3], [7], 0.5))
    lines: list[str] = []
    assert bench(plan, tmp_path, 2, lines.append) == []
    assert sum(", seed 7" in line for line in lines) == 2
    assert sum(", seed 1" in line for line in lines) == 1
    page = (tmp_path / "tuning.md").read_text()
    (taken,) = [line.split("|")[3].strip() for line in page.splitlines() if "| yes" in line]
    (result,) = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert result["lr"] == pytest.approx(float(taken) * 1e-3)
    lines.clear()
    assert bench(plan, tmp_path, 2, lines.append) == []
    assert not any(", seed" in line for line in lines), lines


def test_without_every_tuning_run_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_train", lambda job, *_: "broken" if job.seed == 8 else None)
    plan = BenchPlan([CARTPOLE], [CORES["ppo-1"]], [1], None, [512], (), Tuning([1], [7, 8], 1.0))
    lines: list[str] = []
    assert bench(plan, tmp_path, 1, lines.append) == ["CartPole-v1-masked: ppo-1, seed 8: broken"]
    assert not any(", seed 1" in line for line in lines)
    assert not (tmp_path / "tuning.md").exists()


@pytest.mark.integration
def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    broken = dataclasses.replace(CARTPOLE, overrides=("environment.num_envs=2", "algorithm.batch_size=7"))
    plan = BenchPlan([CARTPOLE], [CORES["gru"]], [1], None, [512])
    wrong = [dataclasses.replace(job, task=broken, overrides=("algorithm.batch_size=7",)) for job in plan.jobs()]
    (failure,) = jobs.train([*wrong, *plan.jobs()], tmp_path, 1, lambda _: None)
    assert "does not divide the rollout" in failure
    assert len(jobs.finished(plan.jobs(), tmp_path)) == 1
