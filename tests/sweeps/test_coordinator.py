"""The coordinator: what it starts, what it stops, and that a kill at any moment changes nothing."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from ludus import files
from ludus.archive.lock import RunLock
from ludus.errors import ConfigError, DataError
from ludus.sweeps.coordinator import Coordinator, retry_failed
from ludus.sweeps.ledger import Ledger
from ludus.sweeps.pool import run_folder
from ludus.sweeps.results import best, rows
from ludus.sweeps.search import Search
from ludus.sweeps.store import SweepFolder
from sweeps.toy import Killed, ToyEngine, peak, spec_of, sweep, table

LR, CLIP = "algorithm.lr=loguniform(1e-5,1e-1)", "algorithm.clip=uniform(0.05,0.4)"
SAMPLERS = [("random", "tpe"), ("bayes", "tpe"), ("bayes", "cmaes")]


def test_a_grid_is_tried_in_full_with_the_first_key_slowest(tmp_path: Path) -> None:
    done = sweep(tmp_path, spec_of("algorithm.lr=1e-3,1e-2", "algorithm.clip=0.1,0.2,0.3"), size=2)
    values = [tuple(row.values.values()) for row in rows(done.ledger)]
    assert values == list(itertools.product((1e-3, 1e-2), (0.1, 0.2, 0.3)))
    found = best(done.ledger)
    assert found is not None and found.values == {"algorithm.lr": 1e-3, "algorithm.clip": 0.2}


def test_every_seed_of_a_trial_is_trained_and_the_mean_counts(tmp_path: Path) -> None:
    engine = ToyEngine(lambda values: values["seed"])
    done = sweep(tmp_path, spec_of("algorithm.lr=1e-3,1e-2", seeds=(1, 2, 6)), engine)
    assert engine.started == [f"toy-t{trial:04}-s{seed}" for trial in (0, 1) for seed in (1, 2, 6)]
    assert [(row.value, row.seeds) for row in rows(done.ledger)] == [(3.0, 3), (3.0, 3)]


@pytest.mark.parametrize(("method", "sampler"), SAMPLERS)
def test_a_sweep_killed_at_any_moment_goes_on_with_the_same_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, sampler: str
) -> None:
    """The kill comes before the n-th file is written, for many n; nothing is lost, repeated or chosen otherwise."""
    spec = spec_of(LR, CLIP, method=method, sampler=sampler, trials=9)
    whole = sweep(tmp_path / "whole", spec)
    write, left = files.write_json, 0

    def dying(path: Path, value: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        write(path, value)

    monkeypatch.setattr(files, "write_json", dying)
    engine, kills = ToyEngine(), 0
    for number in itertools.count(4):
        left = number % 5 + 3
        try:
            cut = sweep(tmp_path / "cut", spec, engine)
        except Killed:
            kills += 1
        else:
            break
    assert kills > 5
    assert table(cut) == table(whole)
    assert set(engine.started) == {f"toy-t{number:04}" for number in range(9)}
    assert len(list((tmp_path / "cut").glob("toy-t*"))) == 9


def test_a_finished_trial_is_never_started_again(tmp_path: Path) -> None:
    spec = spec_of("algorithm.lr=1e-3,1e-2,1e-1")
    sweep(tmp_path, spec)
    engine = ToyEngine()
    sweep(tmp_path, spec, engine)
    assert engine.started == []


def test_the_next_trial_depends_on_the_results(tmp_path: Path) -> None:
    """Otherwise nothing is learned: the same numbers for every objective."""
    spec = spec_of(LR, CLIP, method="bayes", trials=14)
    first = sweep(tmp_path / "a", spec, ToyEngine(peak))
    second = sweep(tmp_path / "b", spec, ToyEngine(lambda values: -peak(values)))
    chosen = [[trial.latent for trial in done.trials] for done in (first, second)]
    assert chosen[0][:10] == chosen[1][:10] and chosen[0][11:] != chosen[1][11:]


def test_cma_es_remembers_its_steps(tmp_path: Path) -> None:
    """Rebuilt without its state it would draw every trial from where it began."""
    done = sweep(tmp_path, spec_of(LR, CLIP, method="bayes", sampler="cmaes", trials=48))
    values = [row.value or 0.0 for row in rows(done.ledger)]
    early, late = sum(values[:12]) / 12, sum(values[-12:]) / 12
    assert late > 0.3 * early  # they are negative: 0 is best


def test_trials_of_another_version_are_refused(tmp_path: Path) -> None:
    spec = spec_of(LR, method="bayes", sampler="cmaes", trials=3)
    sweep(tmp_path, spec)
    folder = SweepFolder.load(tmp_path, "toy")
    trial = folder.trials()[1]
    trial.latent["algorithm.lr"] *= 2
    folder.write(trial)
    ledger = Ledger(folder)
    ledger.read_all()
    with pytest.raises(DataError, match="trial 1 is not what this version"):
        Search(ledger.spec).ask(ledger.judged())


@pytest.mark.parametrize("rule", ["median", "halving", "hyperband"])
def test_a_bad_trial_is_stopped_early_and_stays_so(tmp_path: Path, rule: str) -> None:
    pruning = {"type": rule, "startup": 2, "eta": 2}
    spec = spec_of(LR, method="random", trials=14, pruning=pruning)
    engine = ToyEngine(lambda values: 10 + peak(values))
    done = sweep(tmp_path, spec, engine)
    found = rows(done.ledger)
    stopped = [row for row in found if row.state == "pruned"]
    assert stopped and all("pruned after" in row.why for row in stopped)
    kept = [row.value for row in found if row.state == "complete"]
    assert kept and best(done.ledger) is not None
    again = ToyEngine()
    assert table(sweep(tmp_path, spec, again)) == table(done) and again.started == []


def test_the_first_decision_comes_after_as_many_evaluations_as_asked_for(tmp_path: Path) -> None:
    spec = spec_of("algorithm.lr=1,2,3,4", pruning={"type": "median", "startup": 1, "first": 3})
    done = sweep(tmp_path, spec, ToyEngine(lambda values: 10 - values["lr"]))
    assert [row.why for row in rows(done.ledger)][1:] == ["pruned after 3 evaluations"] * 3


def test_a_search_in_stages_begins_with_a_grid_and_ends_near_the_best(tmp_path: Path) -> None:
    stages = {"coarse": 6, "fine": 5}
    spec = spec_of(LR, CLIP, method="bayes", trials=17, stages=stages, begin_as_is=True)
    whole = sweep(tmp_path / "whole", spec)
    points = [trial.latent for trial in whole.trials]
    levels = [1e-5 * 10 ** (4 * share) for share in (1 / 6, 1 / 2, 5 / 6)]
    assert points[0] == {} and len({tuple(point.values()) for point in points[1:7]}) == 6
    assert all(any(point["algorithm.lr"] == pytest.approx(level) for level in levels) for point in points[1:7])
    for number in range(12, 17):
        best = points[whole.plan.ranking(whole.ledger.judged()[:number])[0]]
        assert abs(math.log10(points[number]["algorithm.lr"] / best["algorithm.lr"])) < 0.501
        assert abs(points[number]["algorithm.clip"] - best["algorithm.clip"]) < 0.044
    cut = sweep_in_parts(tmp_path / "cut", spec)
    assert table(cut) == table(whole)


def sweep_in_parts(root: Path, spec: Any) -> Any:
    """A sweep that is left after every few runs."""

    class Leaving(ToyEngine):
        def start(self, job: Any) -> Any:
            if len(self.started) == 4:
                raise Killed
            return super().start(job)

    while True:
        try:
            return sweep(root, spec, Leaving())
        except Killed:
            continue


def test_no_more_new_trials_than_asked_for(tmp_path: Path) -> None:
    spec = spec_of("algorithm.lr=1,2,3,4")
    folder = SweepFolder.create(tmp_path, spec)
    for count in (3, 4):
        engine = ToyEngine()
        Coordinator(folder, engine, 1, most=3).run()
        assert len(folder.trials()) == count and len(engine.started) == (3 if count == 3 else 1)


def test_wilcoxon_leaves_out_the_seeds_of_a_bad_trial(tmp_path: Path) -> None:
    spec = spec_of("algorithm.lr=1e-3,1e-1", pruning={"type": "wilcoxon"}, seeds=tuple(range(1, 9)))
    engine = ToyEngine(lambda values: (10.0 if values["lr"] < 1e-2 else 0.0) + values["seed"])
    done = sweep(tmp_path, spec, engine)
    assert [row.state for row in rows(done.ledger)] == ["complete", "pruned"]
    assert 3 <= sum("t0001" in name for name in engine.started) < 8


def test_a_failed_trial_is_told_left_alone_and_tried_again_when_asked(tmp_path: Path) -> None:
    spec = spec_of("algorithm.lr=1e-3,1e-2,1e-1")
    broken = ToyEngine(fails=lambda values: "it diverged" if values["lr"] == 1e-2 else "")
    done = sweep(tmp_path, spec, broken)
    assert [(row.state, row.why) for row in rows(done.ledger)][1] == ("failed", "it diverged")
    engine = ToyEngine()
    sweep(tmp_path, spec, engine)
    assert engine.started == []
    assert retry_failed(SweepFolder.load(tmp_path, "toy")) == 1
    mended = sweep(tmp_path, spec, engine)
    assert engine.started == ["toy-t0001"] and [row.state for row in rows(mended.ledger)] == ["complete"] * 3


def test_trials_that_all_fail_alike_end_the_sweep(tmp_path: Path) -> None:
    engine = ToyEngine(fails=lambda _: "algorithm.lr: is bad")
    with pytest.raises(ConfigError, match=r"3 trials failed alike: algorithm\.lr: is bad"):
        sweep(tmp_path, spec_of("algorithm.lr=range(1,9)"), engine)
    assert len(engine.started) == 3


def test_a_metric_that_nobody_writes_ends_the_sweep_with_the_nearest_name(tmp_path: Path) -> None:
    engine = ToyEngine()
    spec = spec_of("algorithm.lr=1e-3,1e-2,1e-1", metric={"name": "val/roll/ep_rew/maen"})
    with pytest.raises(ConfigError, match="no run writes it; did you mean 'val/roll/ep_rew/mean'"):
        sweep(tmp_path, spec, engine)
    assert len(engine.started) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_a_failure(tmp_path: Path, value: float) -> None:
    engine = ToyEngine(lambda values: value if values["lr"] == 1e-2 else 1.0)
    done = sweep(tmp_path, spec_of("algorithm.lr=1e-3,1e-2"), engine)
    assert [row.state for row in rows(done.ledger)] == ["complete", "failed"]


@pytest.mark.parametrize(("limit", "told"), [({"minutes": 2 / 60}, "minutes"), ({"memory_mb": 250}, "MB")])
def test_a_run_that_takes_too_much_is_stopped_and_counts_for_nothing(
    tmp_path: Path, limit: dict[str, Any], told: str
) -> None:
    done = sweep(tmp_path, spec_of("algorithm.lr=1e-3,1e-2", limits=limit))
    assert [row.state for row in rows(done.ledger)] == ["failed", "failed"]
    assert all(told in row.why for row in rows(done.ledger)) and best(done.ledger) is None


def test_a_run_that_another_process_has_is_waited_for(tmp_path: Path) -> None:
    """What a killed coordinator left behind goes on until it has saved."""
    spec = spec_of("algorithm.lr=1e-3,1e-2")

    class Leaving(ToyEngine):
        def wait(self, tasks: Any, seconds: float) -> None:
            if len(self.started) == 1 and tasks[0].made == 2:
                raise Killed
            super().wait(tasks, seconds)

    with pytest.raises(Killed):
        sweep(tmp_path, spec, Leaving())
    folder = run_folder(tmp_path, "toy-t0000")
    assert folder is not None
    lock = RunLock(folder)
    lock.acquire()
    looks = 0

    class Looking(ToyEngine):
        def wait(self, tasks: Any, seconds: float) -> None:
            nonlocal looks
            looks += 1
            assert looks > 3 or not self.started
            if looks == 3:
                lock.release()
            super().wait(tasks, seconds)

    engine = Looking()
    done = sweep(tmp_path, spec, engine)
    assert looks > 3 and engine.started == ["toy-t0000", "toy-t0001"]
    assert [row.state for row in rows(done.ledger)] == ["complete"] * 2


def test_a_run_that_keeps_dying_is_given_up(tmp_path: Path) -> None:
    class Deadly(ToyEngine):
        def wait(self, tasks: Any, seconds: float) -> None:
            for task in tasks:
                task.ended = -9

    engine = Deadly()
    done = sweep(tmp_path, spec_of("algorithm.lr=1e-3,1e-2"), engine)
    assert engine.started == ["toy-t0000"] * 3 + ["toy-t0001"] * 3
    assert all("was killed 3 times" in row.why for row in rows(done.ledger))


def test_two_coordinators_do_not_share_a_sweep(tmp_path: Path) -> None:
    sweep(tmp_path, spec_of("algorithm.lr=1e-3,1e-2"))
    folder = SweepFolder.load(tmp_path, "toy")
    lock = folder.lock()
    lock.acquire()
    with pytest.raises(ConfigError, match="is in use by process"):
        folder.lock().acquire()
    lock.release()
    with pytest.raises(ConfigError, match="is not running"):
        folder.stop()


def test_the_best_are_tried_again_on_fresh_seeds(tmp_path: Path) -> None:
    confirmation = {"trials": 2, "seeds": (101, 102)}
    spec = spec_of("algorithm.lr=1e-3,3e-3,1e-1", seeds=(1,), begin_as_is=True, confirmation=confirmation)
    engine = ToyEngine()
    sweep(tmp_path, spec, engine)
    assert engine.started[:4] == [f"toy-t{number:04}-s1" for number in range(4)]
    assert engine.started[4:] == [f"toy-t{number:04}-s{seed}" for number in (0, 2, 1) for seed in (101, 102)]
    again = ToyEngine()
    sweep(tmp_path, spec, again)
    assert again.started == []


def test_a_trial_is_judged_against_all_that_reached_its_rung(tmp_path: Path) -> None:
    """Successive halving keeps one of two; after a restart it still knows who was there before."""
    spec = spec_of("algorithm.lr=1,2,3,4", pruning={"type": "halving", "eta": 2})
    worse_and_worse = ToyEngine(lambda values: -values["lr"])
    done = sweep(tmp_path, spec, worse_and_worse)
    assert [row.state for row in rows(done.ledger)] == ["complete", "pruned", "pruned", "pruned"]
    assert all(trial.attributes for trial in SweepFolder.load(tmp_path, "toy").trials())
