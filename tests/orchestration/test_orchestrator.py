"""The loop is algorithm-blind: proven with a toy algorithm that has a hook of its own and no environment at all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from pydantic import PositiveInt

from ludus.algorithms import Algorithm, AlgorithmConfig, PhaseContext
from ludus.config.schedule import PositiveSchedule, constant
from ludus.config.schema import ExperimentConfig
from ludus.config.training import Stop, Training
from ludus.errors import ConfigError
from ludus.metrics.recorder import Recorder
from ludus.orchestration.callbacks import Callback
from ludus.orchestration.callbacks.control import Control
from ludus.orchestration.callbacks.early_stop import EarlyStop
from ludus.orchestration.callbacks.plateau import Plateau, PlateauConfig
from ludus.orchestration.callbacks.watching import Status
from ludus.orchestration.evaluations import Evaluations
from ludus.orchestration.evaluator import EvalResult
from ludus.orchestration.phase_scheduler import PhaseScheduler
from ludus.orchestration.phases import phase_configs, run_phases
from ludus.registry import ALGORITHMS
from ludus.run import Run
from ludus.seeding import Streams
from ludus.types import ActResult, Report


class ToyConfig(AlgorithmConfig):
    """A toy."""

    chunk: PositiveInt = 10
    """Steps per collect."""
    lr: PositiveSchedule = constant(1.0)
    """A schedule."""


class Toy(Algorithm):
    """Counts what it is told to do; `discriminate` is a hook no other algorithm has."""

    Config = ToyConfig

    def __init__(self) -> None:
        self.trace: list[tuple[str, str]] = []
        self.seen: list[PhaseContext] = []
        self.nan = False

    def hooks(self):
        return {"collect": self.collect, "update_controller": self.update, "discriminate": self.discriminate}

    def collect(self, now: PhaseContext) -> Report:
        self._note("collect", now)
        return Report(
            env_steps=min(now.cfg.chunk, now.remaining_steps), metrics={"roll/ep_rew/mean": float(len(self.trace))}
        )

    def update(self, now: PhaseContext) -> Report:
        self._note("update_controller", now)
        return Report(updates=3, metrics={"loss/toy": np.nan if self.nan else 1.0})

    def discriminate(self, now: PhaseContext) -> Report:
        self._note("discriminate", now)
        return Report(updates=1)

    def _note(self, hook: str, now: PhaseContext) -> None:
        self.trace.append((now.name, hook))
        self.seen.append(now)

    def act(self, obs, state, first, *, deterministic) -> ActResult:
        raise AssertionError("not used here")

    def state(self):
        return {}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS._classes, "toy", Toy)


class FakeEvaluator:
    """Returns a growing score."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.confirmed: list[tuple[int, int]] = []

    def evaluate(self, env_steps: int) -> EvalResult:
        self.calls.append(env_steps)
        score = float(env_steps)
        return EvalResult(returns=(score,), lengths=(1,), env_steps=env_steps, seconds=0.0, deterministic=True)

    def confirm(self, env_steps: int, count: int) -> EvalResult:
        """Fresh episodes are 30 worse."""
        self.confirmed.append((env_steps, count))
        returns = (env_steps - 30.0,) * count
        return EvalResult(returns=returns, lengths=(1,) * count, env_steps=env_steps, seconds=0.0, deterministic=True)

    def close(self) -> None:
        """Nothing to close."""


class Diary(Callback):
    def __init__(self) -> None:
        self.moments: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.epochs: list[dict[str, float]] = []

    def on_start(self, run):
        self.moments.append("start")

    def on_report(self, run, hook, report):
        self.moments.append(hook)

    def on_row(self, run, row):
        self.moments.append("row")
        self.rows.append(dict(row))

    def on_epoch_end(self, run):
        self.moments.append("epoch")
        self.epochs.append(run.recorder.epoch)

    def on_evaluation(self, run, result):
        self.moments.append("evaluation")

    def on_confirmation(self, run, result):
        self.moments.append("confirmation")

    def on_phase_end(self, run):
        self.moments.append("phase")

    def on_end(self, run):
        self.moments.append("end")


def toy_run(
    total: int = 40,
    phases: list[dict] | None = None,
    callbacks: list[Callback] | None = None,
    logging: dict | None = None,
    **training: Any,
) -> Run:
    config = ExperimentConfig.model_validate(
        {
            "environment": {"id": "none"},
            "algorithm": {"name": "toy", "lr": {"start": 1.0, "end": 0.0}},
            "training": {"total_timesteps": total, "phases": phases, **training},
            "logging": logging or {},
        }
    )
    algorithm, nothing = Toy(), cast(Any, None)
    phases = run_phases(config, algorithm.default_cycle)
    return Run(
        config=config,
        spaces=nothing,
        streams=Streams(1),
        exploration=nothing,
        algorithm=algorithm,
        scheduler=PhaseScheduler(phases, config.training.budget, hooks=[*algorithm.hooks(), "evaluate"]),
        phase_configs=phase_configs(config, phases, 1),
        buffers=nothing,
        recorder=Recorder(),
        compiler=cast(Any, SimpleNamespace(sizes=())),
        precision=nothing,
        evaluator=cast(Any, FakeEvaluator()),
        callbacks=callbacks or [],
    )


def test_order_of_moments() -> None:
    diary = Diary()
    toy_run(20, callbacks=[diary]).run()
    cycle = ["collect", "update_controller"]
    assert diary.moments == ["start", *cycle, "row", "epoch", *cycle, "phase", "row", "epoch", "end"]


def test_steps_and_updates_are_separate_counters() -> None:
    run = toy_run(40)
    run.run()
    assert (run.progress.env_steps, run.progress.updates, run.progress.cycles) == (40, 12, 4)
    assert run.stop_reason == "the step budget is used up"


def test_three_phase_curriculum_with_its_own_hook_and_settings() -> None:
    phases = [
        {"name": "seed", "duration_steps": 20, "hooks": ["collect"], "set": {"chunk": 5}},
        {"name": "pretrain", "type": "offline", "duration_updates": 4, "hooks": ["discriminate"]},
        {"name": "measure", "type": "eval_only", "duration_cycles": 2, "hooks": ["evaluate"]},
        {"name": "joint", "hooks": ["collect", {"discriminate": 2}, "update_controller"]},
    ]
    run = toy_run(40, phases=phases)
    run.run()
    trace = run.algorithm.trace
    assert trace[:4] == [("seed", "collect")] * 4
    assert trace[4:8] == [("pretrain", "discriminate")] * 4
    assert trace[8:12] == [("joint", "collect"), *[("joint", "discriminate")] * 2, ("joint", "update_controller")]
    assert run.evaluator.calls == [20, 20]
    assert run.stop_reason == "all phases are done"


def test_schedules_are_read_where_a_cycle_begins_so_the_last_is_not_zero() -> None:
    diary = Diary()
    run = toy_run(40, callbacks=[diary])
    run.run()
    used = [now.at(now.cfg.lr) for now in run.algorithm.seen]
    assert used == [1.0, 1.0, 0.75, 0.75, 0.5, 0.5, 0.25, 0.25]
    assert [row["train/hp/lr"] for row in diary.rows] == [1.0, 0.75, 0.5, 0.25], "what is logged is what was used"


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        ({"hooks": ["dicriminate"]}, "did you mean 'discriminate'"),
        ({"hooks": ["collect"], "set": {"chunck": 1}}, r"set\.chunck.*did you mean 'chunk'"),
        ({"hooks": ["collect"], "set": {"chunk": 0}}, r"set\.chunk"),
    ],
)
def test_mistakes_in_phases_fail_before_the_first_step(phase: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        toy_run(phases=[{"name": "bad", **phase}])


def test_nan_stops_the_run_and_names_the_culprit() -> None:
    run = toy_run(40)
    run.algorithm.nan = True
    with pytest.raises(ConfigError, match=r"update_controller at environment step 10.*loss/toy is nan"):
        run.run()


@pytest.mark.parametrize("report", [None, {"updates": 1}, Report(updates=-1), Report(env_steps=-10)])
def test_a_hook_that_returns_no_report_or_counts_backwards_is_refused(report: Any) -> None:
    run = toy_run(40)
    run.hooks["update_controller"] = lambda _: report
    with pytest.raises(ConfigError, match=r"hook 'update_controller': returned .*a hook returns a Report"):
        run.run()


def test_evaluation_cadence_and_stop() -> None:
    run = toy_run(1_000, evaluation={"every_steps": 25}, stop={"eval_reward": 100, "confirm_episodes": 0})
    stopper = EarlyStop(run.config.training.stop, 100.0)
    run.callbacks.append(stopper)
    run.run()
    assert run.evaluator.calls == [30, 50, 80, 100]
    assert run.evaluator.confirmed == []
    assert run.progress.env_steps == 100
    assert "reached 100" in run.stop_reason
    assert run.best.mean == 100


def test_a_goal_is_confirmed_on_fresh_episodes_before_the_run_stops() -> None:
    diary, said = Diary(), []
    run = toy_run(1_000, evaluation={"every_steps": 25}, stop={"eval_reward": 100}, logging={"every_epochs": 50})
    run.callbacks += [EarlyStop(run.config.training.stop, 100.0), diary]
    run.say = said.append
    run.run()
    assert run.evaluator.confirmed == [(100, 100), (130, 100)], "the first was luck"
    assert said == [
        "the evaluation reached 100, its confirmation did not: mean return 70 over 100 fresh episodes; training goes on"
    ]
    assert run.progress.env_steps == 130
    assert run.stop_reason == "mean return 100 over 100 fresh episodes reached 100"
    assert (run.last.mean, run.best.mean) == (100, 130)
    returns = [(row["env_steps"], row["val/roll/ep_rew/mean"], row["val/roll/episodes"]) for row in diary.rows]
    assert returns == [(100, 100, 1), (100, 70, 100), (130, 130, 1), (130, 100, 100)], "rows of their own"
    assert diary.moments[-6:] == ["evaluation", "row", "confirmation", "row", "epoch", "end"]


@pytest.mark.parametrize(("own", "episodes", "expected"), [(None, 20, 100), (None, 400, 400), (7, 20, 7), (0, 20, 0)])
def test_how_many_episodes_confirm(own: int | None, episodes: int, expected: int) -> None:
    training = Training(evaluation={"episodes": episodes}, stop={"confirm_episodes": own})
    assert training.confirm_episodes == expected


def test_a_phase_that_only_evaluates_is_confirmed_too() -> None:
    measure = {"name": "measure", "type": "eval_only", "duration_cycles": 2, "hooks": ["evaluate"]}
    phases = [{"name": "learn", "duration_steps": 200, "hooks": ["collect"]}, measure]
    run = toy_run(400, phases=phases, stop={"eval_reward": 100, "confirm_episodes": 5})
    run.callbacks.append(EarlyStop(run.config.training.stop, 100.0))
    run.run()
    assert run.evaluator.confirmed == [(200, 5)]
    assert run.last.episodes == 5


@pytest.mark.parametrize("field", ["eval_reward", "train_reward"])
def test_a_goal_of_nan_is_refused(field: str) -> None:
    """A run that has it could be resumed again and again: it differs from itself."""
    with pytest.raises(ConfigError, match=f"training.stop.{field}: is no number"):
        EarlyStop(Stop(**{field: float("nan")}), 100.0)


def test_train_reward_stop() -> None:
    run = toy_run(1_000)
    run.callbacks.append(EarlyStop(run.config.training.stop.model_copy(update={"train_reward": 5.0}), None))
    run.run()
    assert run.progress.env_steps == 30


@pytest.mark.parametrize("every", [None, 0])
def test_no_evaluation_without_a_cadence(every: int | None) -> None:
    diary = Diary()
    run = toy_run(40, evaluation={"every_epochs": every}, callbacks=[diary])
    run.run()
    assert run.evaluator.calls == []
    assert not any(key.startswith("val/") for row in diary.rows for key in row)


def test_the_orchestrator_imports_no_algorithm() -> None:
    import ludus.orchestration

    folder = Path(ludus.orchestration.__file__).parent
    for path in folder.rglob("*.py"):
        text = path.read_text()
        for name in ("ppo", "reinforce", "random"):
            assert f"algorithms.{name}" not in text, path


def test_rows_carry_the_phase_and_settings_they_were_made_with() -> None:
    diary = Diary()
    phases = [
        {"name": "first", "duration_steps": 20, "hooks": ["collect"], "set": {"lr": 0.5}},
        {"name": "second", "hooks": ["collect"], "set": {"lr": 0.25}},
    ]
    toy_run(40, phases=phases, callbacks=[diary]).run()
    assert [row["phase"] for row in diary.rows] == ["first", "first", "second", "second"]
    assert [row["train/hp/lr"] for row in diary.rows] == [0.5, 0.5, 0.25, 0.25]


def test_the_last_epochs_are_written_whatever_the_grid() -> None:
    diary = Diary()
    toy_run(50, callbacks=[diary], logging={"every_epochs": 3}).run()
    assert [row["epoch"] for row in diary.rows] == [3, 5]


def test_stop_waits_for_the_end_of_the_cycle() -> None:
    class Impatient(Diary):
        def on_report(self, run, hook, report):
            super().on_report(run, hook, report)
            run.stop("enough")

    diary = Impatient()
    run = toy_run(100, callbacks=[diary])
    run.run()
    assert diary.moments == ["start", "collect", "update_controller", "row", "epoch", "end"]
    assert (run.progress.env_steps, run.progress.updates, run.stop_reason) == (10, 3, "enough")


# ---- moments do not depend on how often rows are written ---------------------------------------------------------

SELDOM = {"every_epochs": 1_000}


def test_every_epoch_ends_whether_or_not_a_row_is_written() -> None:
    diary = Diary()
    toy_run(40, callbacks=[diary], logging=SELDOM).run()
    cycle = ["collect", "update_controller"]
    assert diary.moments == ["start", *[*cycle, "epoch"] * 3, *cycle, "phase", "epoch", "row", "end"]
    assert [epoch["train/roll/ep_rew/mean"] for epoch in diary.epochs] == [1.0, 3.0, 5.0, 7.0], "each its own"


def test_the_metrics_of_an_epoch_are_those_of_its_row() -> None:
    diary = Diary()
    toy_run(40, callbacks=[diary]).run()
    for row, epoch in zip(diary.rows, diary.epochs, strict=True):
        assert epoch == {key: value for key, value in row.items() if key in epoch}
        assert {"train/loss/toy", "train/roll/ep_rew/mean"} <= set(epoch)


@pytest.mark.parametrize("epoch_steps", [0, 500])
def test_time_is_up_at_the_end_of_a_cycle(epoch_steps: int) -> None:
    diary = Diary()
    run = toy_run(1_000, callbacks=[diary], logging=SELDOM)
    run.algorithm.epoch_steps, run.seconds_before = epoch_steps, 90.0
    run.callbacks.append(EarlyStop(run.config.training.stop.model_copy(update={"minutes": 1.0}), None))
    run.run()
    assert (run.progress.env_steps, run.stop_reason) == (10, "1 minutes are over")
    assert diary.moments[-3:] == ["epoch", "row", "end"], "the epoch is over too"


def test_an_interrupt_writes_no_row_of_half_an_epoch() -> None:
    class Interrupting(Diary):
        def on_report(self, run, hook, report):
            super().on_report(run, hook, report)
            run.interrupt("SIGTERM")

    diary = Interrupting()
    run = toy_run(1_000, callbacks=[diary])
    run.algorithm.epoch_steps = 500
    run.run()
    assert diary.moments == ["start", "collect", "update_controller", "end"]
    assert run.stopped_early and run.progress.epochs == 0


def test_the_training_return_is_looked_at_every_epoch() -> None:
    run = toy_run(1_000, logging=SELDOM)
    run.callbacks.append(EarlyStop(run.config.training.stop.model_copy(update={"train_reward": 5.0}), None))
    run.run()
    assert run.progress.env_steps == 30


def test_a_plateau_is_found_in_epochs_not_in_rows() -> None:
    cfg = PlateauConfig(monitor="train/loss/toy", patience=2, actions=[{"field": "chunk", "set": 20}])
    plateau = Plateau(cfg)
    run = toy_run(60, callbacks=[plateau], logging=SELDOM)
    run.run()
    assert plateau.seen.interventions == 1
    assert [now.cfg.chunk for now in run.algorithm.seen[::2]] == [10, 10, 10, 20, 20]


def test_control_json_is_read_every_epoch(tmp_path: Path) -> None:
    (tmp_path / "control.json").write_text('{"stop": true}')
    run = toy_run(60, callbacks=[Control(tmp_path, lambda: None)], logging=SELDOM)
    run.run()
    assert run.progress.env_steps == 10
    assert run.stopped_early


def test_status_json_is_written_at_the_end_of_an_epoch() -> None:
    written: list[dict[str, Any]] = []
    status = Status(lambda state, **facts: written.append({"state": state, **facts}))
    run = toy_run(40, callbacks=[status], logging=SELDOM)
    run.run()
    (first,) = written
    assert (first["state"], first["phase"], first["env_steps"], first["total_steps"]) == ("running", "train", 10, 40)
    assert first["train_return"] == 1.0
    assert first["hook"] == run.scheduler.calls[0][-1].name
    assert first["metrics"]["train/roll/ep_rew/mean"] == 1.0


# ---- runs that are counted in updates ----------------------------------------------------------------------------


def test_a_run_counted_in_updates_moves_its_schedules_and_ends_with_its_budget() -> None:
    diary = Diary()
    training = {"total_updates": 12, "epoch_updates": 6, "evaluation": {"every_updates": 6}}
    run = toy_run(1, callbacks=[diary], **training)
    run.run()
    assert run.algorithm.trace == [("train", "update_controller")] * 4, "three updates each"
    assert [now.at(now.cfg.lr) for now in run.algorithm.seen] == [1.0, 0.75, 0.5, 0.25]
    assert (run.progress.env_steps, run.progress.updates, run.progress.epochs) == (0, 12, 2)
    assert [row["train/hp/lr"] for row in diary.rows] == [1.0, 0.5]
    assert run.evaluator.calls == [6, 12]
    assert run.stop_reason == "the update budget is used up"


def test_epochs_of_an_offline_phase_are_counted_in_updates() -> None:
    """`epoch_steps` of the algorithm counts environment steps and has no say there."""
    diary = Diary()
    phases = [
        {"name": "seed", "duration_steps": 40, "hooks": ["collect"]},
        {"name": "learn", "type": "offline", "duration_updates": 30, "hooks": ["update_controller"]},
    ]
    run = toy_run(40, phases=phases, callbacks=[diary], epoch_updates=9)
    run.algorithm.epoch_steps = 20
    run.run()
    assert [(row["env_steps"], row["updates"]) for row in diary.rows] == [
        (20, 0), (40, 0), (40, 9), (40, 18), (40, 27), (40, 30)]  # fmt: skip


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"total_updates": 9, "phases": [{"name": "a", "hooks": ["collect"]}]}, "phase 'a' is online"),
        ({"phases": [{"name": "a", "type": "offline", "hooks": ["discriminate"], "duration_cycles": 1}]},
         "phase 'a' needs duration_updates"),
        ({"total_updates": 9, "evaluation": {"every_steps": 1}}, "evaluation.every_steps: this run takes no"),
        ({"total_updates": 9, "checkpoints": {"every_steps": 1}}, "checkpoints.every_steps: this run takes no"),
    ],
)  # fmt: skip
def test_what_a_run_without_steps_cannot_have(training: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        toy_run(10, **training)


def result(*returns: float, env_steps: int = 10) -> EvalResult:
    lengths = (1,) * len(returns)
    return EvalResult(returns=returns, lengths=lengths, env_steps=env_steps, seconds=0.0, deterministic=True)


def test_the_goal_is_the_mean_of_an_evaluation() -> None:
    """One episode that reaches it is not enough."""
    run = toy_run(10, stop={"eval_reward": 100, "confirm_episodes": 0})
    stopper = EarlyStop(run.config.training.stop, None)
    stopper.on_evaluation(run, result(150.0, 20.0))
    assert run.stop_reason is None
    stopper.on_evaluation(run, result(150.0, 60.0))
    assert run.stop_reason == "evaluated mean return 105 reached 100"


def test_the_goal_of_training_is_the_mean_of_a_hundred_episodes() -> None:
    """A lucky first one does not end a run."""
    run = toy_run(10, stop={"train_reward": 100})
    stopper = EarlyStop(run.config.training.stop, None)
    for episodes in (1.0, 99.0):
        run.recorder.record("train", {"roll/ep_rew/mean": 150.0, "roll/episodes": episodes})
        stopper.on_epoch_end(run)
        assert run.stop_reason is None
    run.recorder.record("train", {"roll/ep_rew/mean": 99.0, "roll/episodes": 100.0})
    stopper.on_epoch_end(run)
    assert run.stop_reason is None
    run.recorder.record("train", {"roll/ep_rew/mean": 100.0, "roll/episodes": 100.0})
    stopper.on_epoch_end(run)
    assert run.stop_reason == "training mean return 100 reached 100"


def test_the_best_evaluation_is_the_one_with_the_best_mean() -> None:
    """The other has the better single episode."""
    run = toy_run(40)
    found = iter([result(50.0, 50.0), result(99.0, -20.0), result(60.0, 50.0)])
    run.evaluator.evaluate = lambda _: next(found)
    bests = []
    for _ in range(3):
        Evaluations(run).evaluate()
        bests.append(run.best.returns)
    assert bests == [(50.0, 50.0), (50.0, 50.0), (60.0, 50.0)]
    assert run.last.returns == (60.0, 50.0)
