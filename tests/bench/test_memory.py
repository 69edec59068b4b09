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
from ludus.bench.memory import BenchPlan, bench, jobs, matching, pictures, results
from ludus.bench.memory.results import CPU, CoreResult, table
from ludus.bench.memory.tasks import CORES, PRESETS, TASKS, pick_cores, pick_tasks
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
def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    broken = dataclasses.replace(CARTPOLE, overrides=("environment.num_envs=2", "algorithm.batch_size=7"))
    plan = BenchPlan([CARTPOLE], [CORES["gru"]], [1], None, [512])
    wrong = [dataclasses.replace(job, task=broken, overrides=("algorithm.batch_size=7",)) for job in plan.jobs()]
    (failure,) = jobs.train([*wrong, *plan.jobs()], tmp_path, 1, lambda _: None)
    assert "does not divide the rollout" in failure
    assert len(jobs.finished(plan.jobs(), tmp_path)) == 1
