"""From a run to its demonstrations and back to a run: `ludus record`, `ludus data info`, training from a path alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from demonstrations import PENDULUM, demonstrations, same
from ludus.data.datasets.minari import MinariData
from ludus.envs import deployment, make
from ludus.metrics.sinks.jsonl import read_rows

pytest.importorskip("minari")

CLONE = [
    "+experiment=behaviour_cloning",
    "training.total_updates=20",
    "training.epoch_updates=10",
    "algorithm.batch_size=16",
]
IQL = ["+experiment=iql", "training.total_updates=20", "training.epoch_updates=10", "algorithm.batch_size=16"]
PPO = [
    "CartPole-v1:ppo",
    "training.total_timesteps=256",
    "training.evaluation.every_steps=null",
    "runtime.compile=never",
]


def last_run(folder: Path) -> Path:
    return (folder / "runs" / "@last").resolve()


# ---- record ----------------------------------------------------------------------------------------------------------


def test_every_episode_can_be_played_again(ludus: Any, tmp_path: Path) -> None:
    """Its seed and its actions give its observations, rewards and end, the true final observation included."""
    done = ludus("record", "CartPole-v1", "--policy", "random", "-n", "11", "--out", "data/random-v0", "--seed", "7")
    assert done.code == 0, done.err
    assert "next     ludus train +experiment=behaviour_cloning buffers.demos.path=data/random-v0" in done.out
    env = gym.make("CartPole-v1")
    found = list(MinariData("data/random-v0", "demos").episodes())
    assert len(found) == 11 and len({one.seed for one in found}) == 11
    for one in found:
        obs, _ = env.reset(seed=one.seed)
        for t in range(len(one)):
            assert np.array_equal(obs, one.obs[t])
            obs, reward, terminated, truncated, _ = env.step(int(one.action[t]))
            assert reward == one.reward[t] and (terminated or truncated) == (t + 1 == len(one))
        assert np.array_equal(obs, one.obs[-1]) and terminated == one.terminated


def test_truncated_is_not_terminated(ludus: Any, tmp_path: Path) -> None:
    words = ["record", "Pendulum-v1", "environment.max_episode_steps=9", "--policy", "random", "-n", "3"]
    assert ludus(*words, "--out", "data").code == 0
    assert [(len(one), one.terminated) for one in MinariData("data", "demos").episodes()] == [(9, False)] * 3


def test_a_checkpoint_plays_and_the_same_seed_gives_the_same_data(ludus: Any, tmp_path: Path) -> None:
    assert ludus("train", *PPO, "-q").code == 0
    done = ludus("record", "@last", "-n", "3", "--out", "one-v0", "--seed", "5", "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert (
        facts["policy"] == f"{last_run(tmp_path).name}/step=256" and facts["episodes"] == facts["total_episodes"] == 3
    )
    assert ludus("record", "@last", "-n", "3", "--out", "two-v0", "--seed", "5").code == 0
    one, two = (list(MinariData(name, "demos").episodes()) for name in ("one-v0", "two-v0"))
    assert all(same(a, b) for a, b in zip(one, two, strict=True))
    assert [float(each.reward.sum()) for each in one] == facts["returns"]
    assert ludus("record", "@last", "-n", "2", "--out", "one-v0", "--append", "--seed", "6").code == 0
    assert len(list(MinariData("one-v0", "demos").episodes())) == 5


def test_a_scripted_expert_lands(ludus: Any, tmp_path: Path) -> None:
    pytest.importorskip("Box2D")
    words = ["record", "LunarLander-v3", "environment.kwargs={continuous: true}", "--policy", "lunar_lander", "-n", "3"]
    done = ludus(*words, "--out", "landings-v0", "--json")
    assert done.code == 0, done.err
    assert min(json.loads(done.out)["returns"]) > 100
    found = list(MinariData("landings-v0", "demos").episodes())
    assert all(one.action.dtype == np.float32 and one.terminated for one in found)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["CartPole-v1", "--policy", "random"], "--out: says not where the data set goes; write --out"),
        (["CartPole-v1", "--policy", "nobody", "--out", "x"], "--policy nobody: no such expert"),
        (["CartPole-v1", "--policy", "lunar_lander", "--out", "x"], "it only knows LunarLander-v3"),
        (["CartPole-v1", "--policy", "random", "--out", "there"], "--out there: exists already; name another folder"),
        (["CartPole-v1", "--policy", "random", "--out", "no", "--append"], "--out: there is no data set in no"),
        (["@last", "seed=3", "--out", "x"], "a run plays in its own environment"),
        (["@last", "--out", "x"], "there is no last run"),
    ],
)
def test_what_cannot_be_recorded_is_said_on_one_line(
    ludus: Any, tmp_path: Path, words: list[str], expected: str
) -> None:
    (tmp_path / "there").mkdir()
    done = ludus("record", *words)
    assert done.code == 2 and expected in done.err and done.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there"]


# ---- data info -------------------------------------------------------------------------------------------------------


def test_what_is_in_a_data_set(ludus: Any, tmp_path: Path) -> None:
    folder, made = demonstrations(tmp_path / "demos-v0")
    done = ludus("data", "info", "demos-v0")
    assert done.code == 0, done.err
    for part in (
        "demos-v0: Minari, demos-v0",
        "actions      Discrete(2)",
        "episodes     6 (3 terminated, 3 truncated), 135",
    ):
        assert part in done.out
    facts = json.loads(ludus("data", "info", "demos-v0", "--json").out)
    assert facts["return"]["mean"] == pytest.approx(np.mean([one.reward.sum() for one in made]), rel=1e-5)
    assert facts["sha256"] == MinariData(str(folder), "demos").sha256
    assert [row["name"] for row in facts["statistics"]] == ["obs[0]", "obs[1]", "obs[2]", "obs[3]", "action"]


def test_what_is_in_the_stored_buffer_of_a_run(ludus: Any, tmp_path: Path) -> None:
    settings = ["algorithm.learning_starts=64", "algorithm.batch_size=8", "algorithm.update_ratio=0.02"]
    more = ["training.total_timesteps=256", "training.evaluation.every_steps=null", "runtime.compile=never"]
    assert ludus("train", "CartPole-v1:dqn", *settings, *more, "-q").code == 0
    facts = json.loads(ludus("data", "info", "runs/@last", "--json").out)
    assert (facts["format"], facts["steps"]) == ("stored buffer", 256)
    assert facts["return"]["mean"] == facts["length"]["mean"], "CartPole pays 1 for every step"
    clone = [*CLONE, "buffers.demos={type: stored, path: runs/@last}"]
    done = ludus("train", *clone, "-q")
    assert done.code == 0, done.err


def test_what_is_nothing_is_said(ludus: Any, tmp_path: Path) -> None:
    done = ludus("data", "info", str(tmp_path))
    assert done.code == 2 and "there is no data set and no stored buffer" in done.err


# ---- train -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments cannot be looked up, described or made, as if their package were not installed."""

    def absent(cfg: Any, *_: Any, **__: Any) -> None:
        raise AssertionError(f"somebody asked for {cfg.id}")

    for module in (make, deployment):
        monkeypatch.setattr(module, "resolve", absent)


@pytest.mark.usefixtures("no_environments")
@pytest.mark.parametrize("words", [CLONE, IQL], ids=["behaviour_cloning", "iql"])
def test_a_path_is_enough(ludus: Any, tmp_path: Path, words: list[str]) -> None:
    """One command, no environment; the run says what it has learned from, and goes on later."""
    folder, _ = demonstrations(tmp_path / "demos-v0")
    done = ludus("train", *words, f"buffers.demos.path={folder}", "-q")
    assert done.code == 0, done.err
    sha256 = MinariData(str(folder), "demos").sha256
    assert f"data         {folder}: 6 episodes" in done.out and f"sha256 {sha256[:12]}" in done.out
    assert sha256[:12] in (last_run(tmp_path) / "run.log").read_text()
    done = ludus("resume", "@last", "training.total_updates=30")
    assert done.code == 0, done.err
    rows = list(read_rows(last_run(tmp_path) / "metrics.jsonl"))
    assert [(row["updates"], row["env_steps"]) for row in rows] == [(10, 0), (20, 0), (30, 0)]


@pytest.mark.parametrize("spec", ["CartPole-v1:behaviour_cloning", "CartPole-v1:iql"])
def test_with_an_environment_it_is_evaluated(ludus: Any, tmp_path: Path, spec: str) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    words = [f"buffers.demos.path={folder}", "training.total_updates=8", "training.evaluation.every_updates=4"]
    done = ludus("train", spec, *words, "training.epoch_updates=4", "training.evaluation.episodes=2", "-q")
    assert done.code == 0, done.err
    rows = list(read_rows(last_run(tmp_path) / "metrics.jsonl"))
    assert all("val/roll/ep_rew/mean" in row for row in rows)
    assert ludus("play", "@last", "--episodes", "1", "--render", "none").code == 0
    assert ludus("evaluate", "@last", "-n", "2").code == 0


def test_played_and_evaluated_later_in_an_environment_that_is_named(ludus: Any, tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    assert ludus("train", *CLONE, f"buffers.demos.path={folder}", "environment.normalize_obs=rolling", "-q").code == 0
    done = ludus("evaluate", "@last", "--env", "CartPole-v1", "-n", "2", "--json")
    assert done.code == 0 and json.loads(done.out)["episodes"] == 2
    done = ludus("evaluate", "@last", "--env", "Pendulum-v1", "-n", "2")
    assert done.code == 3 and "does not fit" in done.err


def test_another_data_set_is_refused_by_a_resumed_run(ludus: Any, tmp_path: Path) -> None:
    folder, _ = demonstrations(tmp_path / "demos-v0")
    assert ludus("train", *CLONE, f"buffers.demos.path={folder}", "-q").code == 0
    assert ludus("record", "CartPole-v1", "--policy", "random", "-n", "1", "--out", str(folder), "--append").code == 0
    done = ludus("resume", "@last", "training.total_updates=30")
    assert done.code == 3 and done.err.count("\n") == 1
    assert "is another data set than when this run was saved" in done.err


@pytest.mark.parametrize("kind", ["cut", "absent", "foreign id", "not finite"])
def test_a_broken_data_set_is_one_line_and_no_run(ludus: Any, tmp_path: Path, kind: str) -> None:
    import h5py

    folder, _ = demonstrations(tmp_path / "demos-v0")
    content, about = folder / "data" / "main_data.hdf5", folder / "data" / "metadata.json"
    if kind == "cut":
        content.write_bytes(content.read_bytes()[:3000])
    elif kind == "absent":
        content.unlink()
    elif kind == "foreign id":
        about.write_text(about.read_text().replace("demos-v0", "../evil-v0"))
    else:
        with h5py.File(content, "r+") as file:
            file["episode_4/observations"][2, 1] = np.nan
    done = ludus("train", *CLONE, f"buffers.demos.path={folder}", "-q")
    assert done.code == 3 and done.err.count("\n") == 1 and str(folder) in done.err
    assert "Traceback" not in done.err and not (tmp_path / "runs").exists()
    if kind == "not finite":
        assert "episode 4: observations is not finite at step 2" in done.err


def test_what_was_cloned_is_refined_online(ludus: Any, tmp_path: Path) -> None:
    """PPO begins with the cloned policy: only its critic is new."""
    folder, _ = demonstrations(tmp_path / "demos-v0")
    assert ludus("train", *CLONE, f"buffers.demos.path={folder}", "-q").code == 0
    run = last_run(tmp_path)
    done = ludus("train", *PPO, "--init-from", run.name, "-q")
    assert done.code == 0, done.err
    log = (last_run(tmp_path) / "run.log").read_text()
    assert "weights taken over: 6 tensors" in log and "not in the other run: policy.critic" in log
    assert "did not fit" not in log


BUFFERS = ("first", "demos")
SMALL_UNET = {"denoiser": {"widths": [8, 16], "groups": 4}}


@pytest.mark.parametrize(("algorithm", "more"), [("behaviour_cloning", {}), ("diffusion_policy", SMALL_UNET)])
def test_resumed_in_a_later_phase_it_validates_on_the_episodes_of_that_phase(
    ludus: Any, tmp_path: Path, algorithm: str, more: dict[str, Any]
) -> None:
    """Validated on the episodes of the first phase, the losses of a resumed run would be others."""
    paths = {name: demonstrations(tmp_path / f"{name}-v0", PENDULUM, seed=i)[0] for i, name in enumerate(BUFFERS)}
    phase = {"type": "offline", "duration_updates": 4, "hooks": ["update_controller"]}
    config = {
        "algorithm": {"name": algorithm, "batch_size": 8, **more},
        "buffers": {name: {"type": "minari", "path": str(path), "held_out": 0.3} for name, path in paths.items()},
        "training": {
            "total_updates": 8,
            "epoch_updates": 2,
            "checkpoints": {"every_updates": 6},
            "phases": [{"name": "one", "buffer": "first", **phase}, {"name": "two", **phase}],
        },
        "runtime": {"compile": "never"},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    done = ludus("train", str(tmp_path / "run.yaml"), "-q")
    assert done.code == 0, done.err

    def validated() -> list[float]:
        return [row["train/loss/validation"] for row in read_rows(last_run(tmp_path) / "metrics.jsonl")]

    before = validated()
    assert ludus("resume", "@last/update=6").code == 0
    assert validated() == before and len(before) == 4
