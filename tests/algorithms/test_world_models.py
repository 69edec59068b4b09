"""World Models: its phases, what dreams are worth, that workers change nothing, and exact resumes in mid-generation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus.algorithms.world_models import WorldModels, WorldModelsConfig
from ludus.archive import checkpoint
from ludus.config.schema import ExperimentConfig
from ludus.data.buffers.rows import all_rows
from ludus.errors import ConfigError, Diverged, ResourceError
from ludus.testing.runs import learned
from ludus.types import Report
from support import build, close, config, moment, run
from test_resume import finished, kill_when_past, ludus, only_run, outcome

C = {"population": 4, "rollouts": 2, "dream_steps": 5}
QUICK: dict[str, Any] = {
    "vision": {"latent": 3, "depth": 2}, "memory": {"units": 4, "mixtures": 2}, "vision_batch": 6, "memory_batch": 4,
    "sequence_length": 5, "rollout_steps": 4, "epoch_steps": 32,
}  # fmt: skip
PHASES = [
    {"name": "vision", "duration_steps": 96, "hooks": ["collect", {"update_vision": {"per_env_step": 0.1}}]},
    {"name": "memory", "type": "offline", "duration_updates": 4, "hooks": ["encode", "update_memory"]},
    {"name": "controller", "duration_updates": 3, "hooks": ["update_controller"]},
]


def settings(dream: bool = False, env: str = "CartPole-v1", **more: Any) -> ExperimentConfig:
    c = {**C, "train_in": "dream" if dream else "environment", **more.pop("controller", {})}
    environment = {"num_envs": 3, "wrappers": [{"id": "draw_cart_pole", "size": 12}], **more.pop("environment", {})}
    training = {"total_timesteps": 4_000, "epoch_updates": 1, **more.pop("training", {})}
    algorithm = {"name": "world_models", **QUICK, "controller": c, **more.pop("algorithm", {})}
    buffers = {"replay": {"size": 600}}
    return config(algorithm, env=env, environment=environment, training=training, buffers=buffers, **more)


def phased(dream: bool = False, **more: Any) -> ExperimentConfig:
    last = {**PHASES[2], **({"type": "offline"} if dream else {})}
    return settings(dream, training={"phases": [*PHASES[:2], last]}, **more)


def seen(one: Any, steps: int = 20) -> Any:
    """The moment for its hooks, after random steps, an update of V and M, and encoding."""
    now = moment(one.config.algorithm.config, total_steps=100_000)
    for _ in range(steps):
        one.algorithm.collect(now)
    for hook in ("update_vision", "encode", "update_memory"):
        one.algorithm.hooks()[hook](now)
    return now


# ---- settings --------------------------------------------------------------------------------------


def test_a_run_that_diverges_names_its_own_learning_rates() -> None:
    one = build(settings())
    with pytest.raises(Diverged, match=r"lower algorithm\.vision_lr or algorithm\.memory_lr, or look"):
        one.nan_guard.check("update_vision", Report(updates=1, metrics={"loss/vision": float("nan")}), "update 3")
    close(one)


def test_its_config_is_that_of_the_paper_and_loads_again() -> None:
    cfg = WorldModelsConfig()
    assert (cfg.vision.latent, cfg.vision.depth, cfg.memory.units, cfg.memory.mixtures) == (32, 32, 256, 5)
    assert (cfg.controller.population, cfg.controller.rollouts, cfg.controller.sigma) == (64, 16, 0.1)
    assert (cfg.vision_lr.start, cfg.memory_lr.start, cfg.vision_batch, cfg.memory_batch) == (1e-4, 1e-3, 100, 100)
    assert WorldModelsConfig.model_validate(cfg.model_dump(mode="json")) == cfg


@pytest.mark.parametrize(
    "wrong",
    [
        {"vission": {}},
        {"vision": {"latents": 3}},
        {"memory": {"layers": 1}},
        {"controller": {"popsize": 8}},
        {"controller": {"train_in": "sleep"}},
        {"controller": {"population": 3}},
        {"controller": {"temperature": 0.0}},
        {"controller": {"temperature": float("inf")}},
        {"controller": {"sigma": 1e32}},
        {"vision": {"free_nats": 1e39}},
        {"sequence_length": 1},
    ],
)
def test_unknown_keys_and_wrong_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        WorldModelsConfig.model_validate(wrong)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ({"environment": {"wrappers": []}}, "world_models sees one image"),
        ({"algorithm": {"random_step": 0.1}}, "not numbers"),
        ({"algorithm": {"sequence_length": 4_000}}, "algorithm.sequence_length"),
        ({"controller": {"hidden": 30_000}}, "4 controllers with 270,001 weights needs about .* GB.*controller.hidden"),
        ({"training": {"phases": [{**PHASES[1], "hooks": ["update"]}]}}, "unknown hook"),
        ({"training": {"phases": [{**PHASES[0], "set": {"controller": {}}}]}}, "fixed for the whole run"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_step(more: dict[str, Any], part: str) -> None:
    with pytest.raises((ConfigError, ResourceError), match=part):
        build(settings(**more))


def test_candidates_in_the_environment_need_an_online_phase() -> None:
    phases = [*PHASES[:2], {**PHASES[2], "type": "offline"}]
    with pytest.raises(ConfigError, match="make it online"):
        run(settings(training={"phases": phases}))


def test_memory_without_encoding_has_nothing_to_learn_from() -> None:
    phases = [PHASES[0], {**PHASES[1], "hooks": ["update_memory"]}]
    with pytest.raises(ConfigError, match="a whole cycle"):
        run(settings(training={"phases": phases}))


# ---- V and M ---------------------------------------------------------------------------------------


def test_images_are_encoded_once_for_each_state_of_vision_and_buffer() -> None:
    one = build(settings())
    now, algorithm = seen(one), one.algorithm
    stamp, posterior = algorithm.encoded.stamp, algorithm.encoded.columns["posterior"]
    assert algorithm.encode(now) == Report() and algorithm.encoded.columns["posterior"] is posterior
    for hook in (algorithm.update_vision, algorithm.collect):
        hook(now)
        algorithm.encode(now)
        assert algorithm.encoded.stamp != stamp
        stamp = algorithm.encoded.stamp
    close(one)


def test_what_is_encoded_is_all_that_is_stored() -> None:
    one = build(settings())
    seen(one)
    rows = list(all_rows(one.buffers["replay"], 7, 5))
    posterior = one.algorithm.encoded.columns["posterior"]
    assert sum(part["first"].shape[1] for part in rows) == posterior.shape[1]
    start = 0
    for part in all_rows(one.buffers["replay"], 7, 5):
        with torch.no_grad():
            expected = one.algorithm.world.vision.encode(torch.from_numpy(part["obs"]))
        found = posterior[:, start : start + part["first"].shape[1]]
        torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=1e-4)
        start += part["first"].shape[1]
    close(one)


def test_vision_and_memory_learn_apart_from_each_other() -> None:
    one = build(settings())
    now, nets = seen(one), one.algorithm.learner.networks

    def weights(name: str) -> torch.Tensor:
        return torch.cat([part.detach().flatten().clone() for part in nets[name].parameters()])

    before = {name: weights(name) for name in nets}
    assert one.algorithm.update_vision(now) == Report(updates=1)
    assert not torch.equal(weights("vision"), before["vision"]) and torch.equal(weights("memory"), before["memory"])
    vision = weights("vision")
    assert one.algorithm.update_memory(now) == Report(updates=1)
    assert torch.equal(weights("vision"), vision) and not torch.equal(weights("memory"), before["memory"])
    close(one)


def test_dreams_begin_with_images_that_began_an_episode() -> None:
    one = build(settings())
    seen(one)
    rows = next(all_rows(one.buffers["replay"], 1_000, 5))
    begun = rows["first"] & rows["known"]
    assert 0 < begun.sum() < rows["first"].sum()
    assert len(one.algorithm.encoded._starts) == begun.sum()
    close(one)


# ---- C ---------------------------------------------------------------------------------------------


def test_a_dream_is_worth_the_rewards_that_are_reached() -> None:
    """Reward 2 and a chance of 0.5 to go on at every step: 2 (1 + 1/2 + 1/4 + ...), whatever is done."""
    one = build(settings(dream=True))
    seen(one)
    memory = one.algorithm.world.memory
    with torch.no_grad():
        for head, bias in ((memory.reward, 2.0), (memory.continues, 0.0)):
            head.output.weight.zero_()
            head.output.bias.fill_(bias)
    scores = one.algorithm.dream(one.algorithm.evolution.ask())
    assert scores == pytest.approx([2 * (2 - 0.5**4)] * 4, rel=1e-5)
    close(one)


def test_candidates_dream_alone_as_they_do_together() -> None:
    one = build(settings(dream=True))
    seen(one)
    algorithm, candidates = one.algorithm, one.algorithm.evolution.ask()
    before = algorithm.rng.bit_generator.state
    together = algorithm.dream(candidates)
    assert len(set(together.tolist())) == 4
    for k in range(4):
        algorithm.rng.bit_generator.state = before  # the same starts, the same noise
        assert algorithm.dream(candidates[k : k + 1])[0] == pytest.approx(together[k], rel=1e-5)
    close(one)


@pytest.mark.parametrize("dream", [False, True])
def test_phases_see_then_remember_then_act(dream: bool) -> None:
    one = run(phased(dream))
    algorithm = one.algorithm
    assert isinstance(algorithm, WorldModels)
    assert algorithm.evolution.generation == 3 and algorithm.encoded.stamp
    assert one.progress.updates == 9 + 4 + 3
    assert one.progress.env_steps == 96 if dream else one.progress.env_steps > 96
    counts = {name: group.optimizer.count for name, group in algorithm.learner.groups.items()}
    assert counts == {"vision": 9, "memory": 4}
    assert algorithm.evolution.mean.any()


def test_the_controller_collects_once_it_has_evolved() -> None:
    one = build(settings())
    now, algorithm = seen(one), one.algorithm
    assert algorithm.behaviour.uniform
    while not algorithm.evolution.generation:
        report = algorithm.update_controller(now)
        assert report.env_steps == 12 and report.updates in (0, 1)
    assert {f"evolution/score/{name}" for name in ("mean", "best", "worst")} < set(report.metrics)
    algorithm.collect(now)
    assert not algorithm.behaviour.uniform
    close(one)


def test_what_acts_is_the_middle_of_the_evolution() -> None:
    one = run(phased())
    algorithm, features = one.algorithm, torch.randn(3, 7)
    found = algorithm.behaviour.actor.decide(features)
    mean = algorithm.evolution.mean.astype(np.float32)
    np.testing.assert_allclose(found[:, 1].numpy(), features.numpy() @ mean[:7] + mean[7], rtol=1e-4, atol=1e-5)


def test_scores_do_not_depend_on_the_number_of_workers() -> None:
    """The same run in this process, and in one or three others."""
    found = []
    for backend in ({"vectorization": "sync"}, *({"vectorization": "async", "workers": n} for n in (1, 3))):
        one = run(phased(environment=backend))
        found.append(learned(one))
    assert found[0] == found[1] == found[2]


# ---- resume ----------------------------------------------------------------------------------------

WORDS = [
    "train", "CartPole-v1:world_models", "-q", "runtime.threads=1", "environment.num_envs=4",
    "environment.wrappers=[{id: draw_cart_pole, size: 12}]", "algorithm.vision={latent: 3, depth: 2}",
    "algorithm.memory={units: 4}", "algorithm.vision_batch=6", "algorithm.memory_batch=4", "algorithm.epoch_steps=32",
    "algorithm.sequence_length=5", "algorithm.rollout_steps=2", "training.checkpoints.every_steps=32",
    "training.epoch_updates=5", "training.checkpoints.every_updates=5", "training.total_timesteps=100_000",
    "training.evaluation={every_updates: 20, episodes: 1, warmup_epochs: 0}",
]  # fmt: skip
STAGES = (
    "training.phases=[{name: vision, duration_steps: 160, hooks: [collect, {update_vision: {per_env_step: 0.1}}]},"
    "{name: memory, type: offline, duration_updates: 10, hooks: [encode, update_memory]},"
    "{name: controller, duration_updates: 3, hooks: [update_controller]}]"
)


@pytest.mark.integration
def test_killed_in_every_phase_and_in_mid_generation_it_resumes_to_the_bit(tmp_path: Path) -> None:
    words = [*WORDS, STAGES, "algorithm.controller={population: 6, rollouts: 3}"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    finished(ludus(*words, folder=whole))
    kill_when_past(ludus(*words, folder=broken), broken, 60)
    kill_when_past(ludus("resume", "@last", folder=broken), broken, 159)
    kill_when_past(ludus("resume", "@last", folder=broken), broken, 190)
    state = checkpoint.load(checkpoint.find(only_run(broken), "last"))["algorithm"]
    assert state["evolution"]["candidates"] is not None and state["tryouts"]["seeds"] is not None  # mid-generation
    finished(ludus("resume", "@last", folder=broken))
    assert outcome(only_run(broken)) == outcome(only_run(whole))


def test_environments_without_snapshots_play_their_wave_again() -> None:
    """A checkpoint resets them, in the run that goes on as in the one that is resumed."""
    one, other = (build(phased(), will_checkpoint=True) for _ in range(2))
    for each in (one, other):
        assert each.collector is not None
        each.collector.env.snapshot_method = "barrier"
    now = seen(one)
    one.algorithm.update_controller(now)
    assert one.collector is not None and one.algorithm.tryouts.steps
    one.collector.barrier([1, 2, 3])
    other.load_state_dict(one.state_dict())
    for each in (one, other):
        each.algorithm.update_controller(now)
        assert each.algorithm.tryouts.steps == 4 and each.algorithm.tryouts.wave == one.algorithm.tryouts.wave
    assert one.algorithm.tryouts.sums.tolist() == other.algorithm.tryouts.sums.tolist()
    for each in (one, other):
        close(each)
