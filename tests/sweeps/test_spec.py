"""Sweep specs: three ways to write one, what each means, and one line for each mistake."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ludus.cli.sweep import read_spec
from ludus.errors import ConfigError
from ludus.registry import ALGORITHMS
from ludus.sweeps.forms import from_file, seeds_of
from ludus.sweeps.grammar import parameter_of
from ludus.sweeps.objective import area
from ludus.sweeps.plan import Plan
from ludus.sweeps.space import Parameter, as_override, grid
from sweeps.toy import spec_of

NOTHING: dict[str, Any] = dict.fromkeys(
    ("name", "method", "sampler", "trials", "jobs", "seeds", "seed", "pruning", "metric")
)
WANDB = """
program: train.py
command: [ludus, train, "CartPole-v1:ppo", -q]
method: bayes
run_cap: 30
metric: {name: val/roll/ep_rew/mean, goal: maximize}
early_terminate: {type: hyperband, min_iter: 3, eta: 2}
parameters:
  algorithm:
    parameters:
      lr: {distribution: log_uniform_values, min: 1e-4, max: 1e-2}
      clip: {values: [{start: 0.2, end: 0.0, schedule: linear}, 0.1]}
  algorithm.epochs: {min: 2, max: 8}
  gamma: {value: 0.98}
"""
LAB = """
base_config: CartPole-v1:ppo
sweep:
  algorithm.lr: [1e-3, 3e-4]
  algorithm: {clip: [0.1, 0.2]}
parallel_jobs: 3
seeds: [1, 2]
"""


def read(tmp_path: Path, text: str, base: str | None = None) -> Any:
    path = tmp_path / "my_sweep.yaml"
    path.write_text(text)
    return from_file(path, base, {**NOTHING, "overrides": ()})


def words(*given: str, **options: Any) -> Any:
    return read_spec(list(given), {**NOTHING, "plugins": (), **options}, Path("runs"))


def test_wandbs_form(tmp_path: Path) -> None:
    spec = read(tmp_path, WANDB)
    assert (spec.name, spec.base, spec.method, spec.trials) == ("my_sweep", "CartPole-v1:ppo", "bayes", 30)
    assert spec.overrides == ("gamma=0.98",)
    assert [one.key for one in spec.parameters] == ["algorithm.lr", "algorithm.clip", "algorithm.epochs"]
    assert [one.kind for one in spec.parameters] == ["log_uniform", "choice", "int"]
    assert (spec.pruning.type, spec.pruning.first, spec.pruning.eta) == ("halving", 3, 2)
    Plan(spec).check_all()
    shaped = Plan(spec).resolve({"algorithm.clip": 0}).config.algorithm.config.clip
    assert (shaped.start, shaped.end) == (0.2, 0.0)


def test_the_form_of_base_config_and_parallel_jobs(tmp_path: Path) -> None:
    spec = read(tmp_path, LAB)
    assert (spec.base, spec.method, spec.jobs, spec.seeds) == ("CartPole-v1:ppo", "grid", 3, (1, 2))
    assert Plan(spec).trials == 4 and Plan(spec).runs == 8


def test_the_form_of_the_command_line() -> None:
    space = ("algorithm.lr=loguniform(1e-4,1e-2)", "algorithm.clip=0.1,0.2", "gamma=0.9")
    spec = words("CartPole-v1:ppo", *space, trials=30, seeds="3")
    assert (spec.method, spec.trials, spec.seeds, spec.overrides) == ("bayes", 30, (1, 2, 3), ("gamma=0.9",))
    assert words("CartPole-v1:ppo", "algorithm.clip=0.1,0.2").method == "grid"


@pytest.mark.parametrize("name", ["cartpole_ppo_grid", "cartpole_ppo_bayes"])
def test_shipped_sweeps_are_valid(name: str) -> None:
    spec = words(f"configs/sweeps/{name}.yaml")
    Plan(spec).check_all()
    assert name == "cartpole_ppo_bayes" or Plan(spec).trials == 27


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("method: bayes", "methd: bayes", "methd: unknown key; did you mean 'method'"),
        ("method: bayes", "method: best", "'best' is not known; write grid, random or bayes"),
        ("method: bayes", "method: grid", "a grid needs values, not a range"),
        ("run_cap: 30", "run_cap: 0", "trials: Input should be greater than 0"),
        ("run_cap: 30\n", "", "method bayes has no end; write --trials 30"),
        ("goal: maximize", "goal: maximise", "metric.goal"),
        ("type: hyperband", "type: hyperbrand", "pruning.type"),
        ("min_iter: 3", "min_itr: 3", "min_itr: unknown key; did you mean 'min_iter'"),
        ("min: 1e-4, max: 1e-2", "min: 1e-2, max: 1e-4", "is not below the largest"),
        ("min: 1e-4, max: 1e-2", "min: 0, max: 1e-2", "a logarithmic range cannot begin at 0"),
        ("min: 1e-4, max: 1e-2", "mn: 1e-4, max: 1e-2", "mn: unknown key; did you mean 'min'"),
        ("log_uniform_values", "log_unifrm_values", "did you mean 'log_uniform_values'"),
        ("log_uniform_values", "beta", "distribution 'beta' is not known here"),
        ("{min: 2, max: 8}", "{min: 2, max: 8.5}", "a whole and a broken number"),
        ("{min: 2, max: 8}", "{values: [2, 2]}", "the same value twice"),
        ("{min: 2, max: 8}", "{values: [2, 3], probabilities: [0.5, 0.4]}", "add up to 0.9"),
        ("{min: 2, max: 8}", "{values: [2, 3], probabilities: 1}", "is not a list of numbers from 0 to 1"),
        ("{min: 2, max: 8}", "{values: [2, 3], probabilities: [a, b]}", "is not a list of numbers from 0 to 1"),
        ("{min: 2, max: 8}", "{values: [2, 3], probabilities: [-1, 2]}", "is not a list of numbers from 0 to 1"),
        ("{min: 2, max: 8}", "{values: [2, 3], probabilities: [.nan, .nan]}", "is not a list of numbers from 0 to 1"),
        ("{min: 2, max: 8}", "{distribution: log_uniform, min: 64, max: 1000}", "write log_uniform_values"),
        ("{min: 2, max: 8}", "{distribution: log_normal, mu: 800}", "its largest values are no numbers any more"),
        ("{min: 2, max: 8}", "{min: 2, max: 100000000000000000000}", "whole numbers go up to 2^53"),
        ("{min: 2, max: 8}", "{value: 2, values: [2, 3]}", "values: is not used beside value"),
        ("{min: 2, max: 8}", "{values: [2, 3], min: 2}", "min: is not used beside values"),
        ("{min: 2, max: 8}", "{values: [2, 3], distribution: uniform}", "distribution: is not used beside values"),
        ("{min: 2, max: 8}", "{min: 2, max: 8, q: 2}", "q: is not used beside min and max"),
        ("{min: 2, max: 8}", "{distribution: normal, mu: 2, max: 8}", "max: is not used beside distribution and mu"),
        ("{min: 2, max: 8}", "{mu: 2}", "mu: means nothing alone"),
        ("{min: 2, max: 8}", "{value: 2, parameters: {a: {value: 2}}}", "value: is not used beside parameters"),
        ("{min: 2, max: 8}", "{parameters: [2, 8]}", "parameters.algorithm.epochs.parameters: is not a mapping"),
        ("min_iter: 3, eta: 2", "max_iter: soon", "early_terminate.max_iter: must be a whole number above 0"),
        ("min_iter: 3, eta: 2", "max_iter: 9, eta: 0", "early_terminate.eta: must be a whole number above 0"),
        ("min_iter: 3, eta: 2", "max_iter: 9, s: a", "early_terminate.s: must be a whole number above 0"),
        ("{min: 2, max: 8}", "{max: 8}", "min: must be a number"),
        ("{min: 2, max: 8}", "7", "is not a mapping"),
        ("algorithm.epochs", "algorithm.lr", "algorithm.lr is searched twice"),
        ("algorithm.epochs", "algorithm.epoch", "epoch: unknown key; did you mean 'epochs'"),
        ('command: [ludus, train, "CartPole-v1:ppo", -q]\n', "", "says not what to train"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_one_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in WANDB
    with pytest.raises(ConfigError) as error:
        Plan(read(tmp_path, WANDB.replace(old, new))).check_all()
    assert told in error.value.line() and "\n" not in error.value.line()


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        ((), {}, "says not what to train"),
        (("CartPole-v1:ppo",), {}, "nothing is searched"),
        (("CartPole-v1:ppo", "algorithm.lr=uniform(0,1"), {}, "not an override"),
        (("CartPole-v1:ppo", "algorithm.lr=loguniform(1e-4)"), {}, "needs two numbers"),
        (("CartPole-v1:ppo", "algorithm.lr=lognorm(1,2)"), {}, "did you mean 'lognormal'"),
        (("CartPole-v1:ppo", "algorithm.lr=uniform(0,1)"), {}, "method bayes has no end"),
        (("CartPole-v1:ppo", "algorithm.lr=uniform(0,1,0)"), {}, "cannot be rounded to multiples of 0"),
        (("CartPole-v1:ppo", "algorithm.lr=uniform(0,1,.nan)"), {}, "have to be finite"),
        (("CartPole-v1:ppo", "algorithm.lr=uniform(.nan,1)"), {}, "have to be finite"),
        (("CartPole-v1:ppo", "algorithm.lr=interval(0,inf)"), {}, "have to be finite"),
        (("CartPole-v1:ppo", "algorithm.epochs=range(1,9,0)"), {}, "needs a step that is not 0"),
        (("CartPole-v1:ppo", "algorithm.epochs=range(1,1000000000)"), {}, "at most 100,000 values"),
        (("CartPole-v1:ppo", "algorithm.lr=1,2"), {"seeds": "10000000000"}, "names more than 10,000 seeds"),
        (("CartPole-v1:ppo", "algorithm.lr=1,2"), {"seeds": "1..20000"}, "names more than 10,000 seeds"),
        (("CartPole-v1:ppo", "algorithm.lr=1,2"), {"seeds": "9" * 5_000}, "names no seeds"),
        (("CartPole-v1:ppo", "algorithm.lr=1,2"), {"seeds": "a"}, "names no seeds"),
        (("CartPole-v1:ppo", "seed=1,2"), {"seeds": "2"}, "seeds are searched and given"),
        (("CartPole-v1:ppo", "algorithm.lr=1,2"), {"name": "a/b"}, "name: String should match"),
        (("CartPole-v1:ppo", "algorithm.lr=1,2"), {"pruning": {"type": "wilcoxon"}}, "compares the seeds of a trial"),
        (("configs/sweeps/cartpole_ppo_grid.yaml", "algorithm.lr=1,2"), {}, "says what is searched"),
    ],
)  # fmt: skip
def test_a_mistake_on_the_command_line_is_one_line(given: tuple[str, ...], options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        words(*given, **options)
    assert told in error.value.line() and "\n" not in error.value.line()


def test_every_trial_is_checked_before_the_first_starts() -> None:
    with pytest.raises(ConfigError, match="does not divide the rollout"):
        Plan(spec_of("algorithm.lr=1e-3,1e-2", "algorithm.batch_size=0.5,1.0,100")).check_all()


def test_a_grid_is_counted_before_it_is_made() -> None:
    many = [parameter_of(f"a{i}=range(0,100)") for i in range(5)]
    with pytest.raises(ConfigError, match="10,000,000,000 combinations"):
        grid([one for one in many if one is not None])
    for one in ("a=int(1,10000000000)", "a=uniform(0,1,1e-12)"):
        with pytest.raises(ConfigError, match="a: more than 100,000 values"):
            grid([found for found in [parameter_of(one)] if found is not None])


def test_many_values_are_compared_at_once() -> None:
    assert parameter_of("algorithm.epochs=range(1,60000)") is not None  # each with each would be minutes


@pytest.mark.parametrize(
    ("distribution", "low", "high"),
    [
        ("log_uniform, min: -9, max: -2", math.exp(-9), math.exp(-2)),
        ("inv_log_uniform, min: 2, max: 9", math.exp(-9), math.exp(-2)),
        ("q_uniform, min: 0, max: 1, q: 0.25", 0.0, 1.0),
        ("normal, mu: 0.5, sigma: 0.01", 0.4, 0.6),
        ("log_normal, mu: -6, sigma: 0.1", 1e-3, 5e-3),
    ],
)
def test_distributions_mean_what_wandb_means(tmp_path: Path, distribution: str, low: float, high: float) -> None:
    text = WANDB.replace("{min: 2, max: 8}", f"{{distribution: {distribution}}}")
    parameter = read(tmp_path, text).parameters[2]
    values = [parameter.value(latent) for latent in parameter.extremes()]
    assert all(low <= value * (1 + 1e-9) and value <= high * (1 + 1e-9) for value in values)
    if "q:" in distribution:
        assert [parameter.value(latent) for latent in (0.1, 0.2, 0.9)] == [0.0, 0.25, 1.0]
        assert parameter.points() == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_probabilities_are_kept() -> None:
    parameter = Parameter(key="x", kind="choice", values=("a", "b"), probabilities=(0.8, 0.2))
    assert [parameter.value(latent) for latent in (0.0, 0.79, 0.81, 0.999)] == ["a", "a", "b", "b"]
    assert [parameter.value(latent) for latent in parameter.points()] == ["a", "b"]


@pytest.mark.parametrize("value", [1, 1e-5, True, None, "lin_0.001", "it's", [1, "a"], {"start": 0.1, "end": 0}])
def test_a_value_survives_the_grammar(value: Any) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    found = OverridesParser.create().parse_override(as_override("a.b", value)).value()
    assert found == value and type(found) is type(value)


def test_seeds() -> None:
    assert seeds_of(3, "x") == (1, 2, 3) and seeds_of("4..6,9", "x") == (4, 5, 6, 9) and seeds_of([7], "x") == (7,)


def test_the_area_rewards_those_who_are_good_sooner() -> None:
    assert area([100, 200], [10, 10], 200) == pytest.approx(10)
    assert area([50], [10], 200) == pytest.approx(10)  # stopped early: it stays as good as it was
    assert area([100, 200], [0, 10], 200) < area([100, 150], [0, 10], 200)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS.names() if name != "random"])
def test_every_algorithm_says_what_is_worth_tuning(name: str) -> None:
    config = ALGORITHMS[name].Config
    assert config.search
    for field, text in config.search.items():
        parameter = parameter_of(f"{field}={text}")
        assert parameter is not None and field in config.model_fields
        for latent in parameter.extremes():
            config.model_validate({field: parameter.value(latent)})
