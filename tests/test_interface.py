"""`import ludus`: what a notebook or a program does with it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ludus
from ludus.envs.local import env_id
from ludus.errors import ConfigError
from ludus.interface import resolve
from ludus.saved import override_words

TINY = {
    "environment.num_envs": 2,
    "training.total_timesteps": 128,
    "algorithm.rollout_steps": 32,
    "algorithm.batch_size": 0.5,
    "training.evaluation.episodes": 2,
    "training.evaluation.every_steps": 64,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> ludus.Run:
    return ludus.train("CartPole-v1:ppo", TINY, seed=1, quiet=True, runs_dir=tmp_path_factory.mktemp("runs"))


def test_import_is_light() -> None:
    code = "import ludus, sys; print(sorted({'torch', 'gymnasium', 'numpy', 'hydra'} & set(sys.modules)), dir(ludus))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.startswith("[] ") and "load_policy" in out


def test_every_public_name_is_there_and_documented() -> None:
    for name in ludus.__all__:
        assert name == "__version__" or getattr(ludus, name).__doc__, name
    with pytest.raises(AttributeError, match="public are train, load_run"):
        _ = ludus.learn


def test_importing_the_parts_leaves_the_names_alone() -> None:
    code = "import ludus.session, ludus.cli.listing, ludus; print(callable(ludus.runs), callable(ludus.compare))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "True True"


def test_a_trajectory_is_one_whole_episode_and_follows_its_seed(trained: ludus.Run) -> None:
    found = trained.trajectory(seed=5)
    steps = len(found)
    assert found.obs.shape == (steps, 4) and found.action.shape == found.reward.shape == (steps,)
    assert found.terminated != found.truncated
    assert found.total == steps == trained.evaluate(1, seed=5).lengths[0]  # a point for every step
    again = trained.trajectory(seed=5)
    assert np.array_equal(found.obs, again.obs) and np.array_equal(found.action, again.action)
    policy = trained.policy()
    assert [policy(obs) for obs in found.obs] == found.action.tolist()


def test_trains_what_the_command_trains(trained: ludus.Run) -> None:
    words = [f"{key}={value}" for key, value in TINY.items()]
    again = ludus.train("CartPole-v1:ppo", words, seed=1, quiet=True, runs_dir=str(trained.folder.parent))
    assert again.config == trained.config and again.config.experiment.seed == 1
    ours, theirs = (list(run.metrics()["train/loss/total"]) for run in (again, trained))
    assert ours == theirs
    assert again != trained and hash(again) != hash(trained)


def test_a_run_tells_about_itself(trained: ludus.Run) -> None:
    assert repr(trained).startswith(f"<Run {trained.id}: finished, 128 steps, last return")
    page = trained._repr_html_()
    assert trained.id in page and "ppo on CartPole-v1" in page
    assert trained.report() == trained.folder / "report.html"
    columns = trained.metrics()
    assert {len(columns[name]) for name in columns} == {2} and list(columns["env_steps"]) == [64, 128]
    assert trained.curve("train/loss/total")[0] == [64.0, 128.0]


def test_html_is_escaped(trained: ludus.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.archive.record import Record

    bad = Record(folder=trained.folder, id="<script>alert(1)</script>", algorithm="<b>", environment="<i>")
    monkeypatch.setattr(type(trained), "record", bad)
    assert "<i>" not in trained._repr_html_()


def test_metrics_become_a_frame_where_pandas_is(trained: ludus.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pandas:
        DataFrame = dict

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    assert type(trained.metrics()) is dict


def test_finds_runs_in_every_way(trained: ludus.Run) -> None:
    root = trained.folder.parent
    for reference in (trained.folder, str(trained.folder), trained.id):
        assert ludus.load_run(reference, runs_dir=root) == trained
    assert ludus.load_run(runs_dir=str(root)).folder.parent == root
    found = ludus.runs("algorithm=ppo", "seed=1", runs_dir=root)
    assert trained in found and ludus.runs("algorithm=dqn", runs_dir=root) == []
    with pytest.raises(ConfigError, match="no such run"):
        ludus.load_run("Nothing", runs_dir=root)
    with pytest.raises(ConfigError, match="no run has 'nonsense'"):
        ludus.runs("nonsense>1", runs_dir=root)


def test_compares(trained: ludus.Run) -> None:
    root = trained.folder.parent
    other = ludus.train("CartPole-v1:ppo", {**TINY, "algorithm.lr": 0.01}, seed=1, quiet=True, runs_dir=root)
    found = ludus.compare(trained, other)
    assert {run.id for group in found.groups for run in group.runs} == {trained.id, other.id}
    assert "algorithm.lr" in " ".join(found.differences)
    assert (
        len(ludus.compare([trained, other]).groups) == len(ludus.compare(trained.id, other, runs_dir=root).groups) == 2
    )
    assert "lr=" in str(found)
    for nothing in ([], ludus.runs("algorithm=sac", runs_dir=root)):
        with pytest.raises(ConfigError, match="there is no run to compare"):  # not all of them instead
            ludus.compare(nothing, runs_dir=root)
    with pytest.raises(ConfigError, match="compare: 3 is no run"):
        ludus.compare(3, runs_dir=root)
    with pytest.raises(ConfigError, match="run: None is no reference to a run"):
        ludus.load_run(None, runs_dir=root)


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True])
def test_a_wrong_seed_or_number_is_one_sentence(trained: ludus.Run, seed: Any) -> None:
    for call in (trained.policy, lambda seed: trained.evaluate(1, seed=seed)):
        with pytest.raises(ConfigError, match=r"seed: .* is no seed; give a whole number from 0 on"):
            call(seed=seed)
    with pytest.raises(ConfigError, match="episodes cannot be played"):
        trained.evaluate(seed)


def test_resumes(tmp_path: Path) -> None:
    run = ludus.train("CartPole-v1:ppo", TINY, seed=1, quiet=True, runs_dir=tmp_path)
    with pytest.raises(ConfigError, match=r"already finished.*training\.total_timesteps"):
        run.resume()
    run.resume({"training.total_timesteps": 256}, quiet=True)
    assert run.record.env_steps == 256


def test_a_checkpoint_that_was_named_is_the_one_that_counts(tmp_path: Path) -> None:
    run = ludus.train("CartPole-v1:ppo", TINY, seed=1, quiet=True, runs_dir=tmp_path)
    early = ludus.load_run(f"{run.id}/step=0", runs_dir=tmp_path)
    warm = ludus.train("CartPole-v1:ppo", TINY, init_from=run.folder, quiet=True, runs_dir=tmp_path)
    assert json.loads((warm.folder / "meta.json").read_text())["start"]["run"] == run.id
    warm = ludus.train("CartPole-v1:ppo", TINY, init_from=early, quiet=True, runs_dir=tmp_path)
    assert json.loads((warm.folder / "meta.json").read_text())["start"]["step"] == "step=0"
    again = early.resume(quiet=True)
    assert again.record.env_steps == 128 and "resumed at 0 steps" in (run.folder / "run.log").read_text()
    with pytest.raises(ConfigError, match=f"init_from: {run.id} is not in .*; train with runs_dir="):
        ludus.train("CartPole-v1:ppo", TINY, init_from=run, quiet=True, runs_dir=tmp_path / "others")


def test_trains_in_a_thread(tmp_path: Path) -> None:
    found: list[Any] = []

    def work() -> None:
        found.append(ludus.train("CartPole-v1:ppo", TINY, quiet=True, runs_dir=tmp_path))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)
    assert found and found[0].record.state == "finished"


class Corridor(gym.Env):
    """Walk right to the end of a corridor."""

    def __init__(self, length: int = 5) -> None:
        self.length = length
        self.observation_space = gym.spaces.Dict(
            {"place": gym.spaces.Box(0, 1, (1,), np.float32), "door": gym.spaces.Discrete(2)}
        )
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.t = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = int(np.clip(self.place + 2 * action - 1, 0, self.length))
        self.t += 1
        at_end = self.place == self.length
        return self._seen(), float(at_end), at_end, self.t >= 30, {}

    def _seen(self) -> dict[str, Any]:
        return {"place": np.array([self.place / self.length], np.float32), "door": int(self.place == self.length)}


def make_corridor() -> gym.Env:
    return Corridor(7)


@pytest.mark.parametrize("env", [Corridor, Corridor(), make_corridor, lambda: gym.wrappers.TimeLimit(Corridor(), 9)])
def test_takes_environments_that_are_handed_in(env: Any, tmp_path: Path) -> None:
    run = ludus.train("ppo", TINY, env=env, seed=1, quiet=True, runs_dir=tmp_path)
    assert run.config.environment.id.startswith("local/") and run.record.threshold is None
    policy = run.policy()
    assert policy({"place": [0.0], "door": 0}) in (0, 1)
    assert run.evaluate(2).episodes == 2


def test_an_environment_can_be_handed_in_again(tmp_path: Path) -> None:
    run = ludus.train("ppo", TINY, env=make_corridor, quiet=True, runs_dir=tmp_path)
    del gym.registry[run.config.environment.id]
    with pytest.raises(ludus.LudusError, match="make_corridor"):
        run.evaluate(1)
    assert ludus.load_run(run.folder, env=make_corridor).evaluate(1).episodes == 1


def test_no_other_environment_is_replaced(trained: ludus.Run) -> None:
    before = gym.registry["CartPole-v1"]
    with pytest.raises(ConfigError, match="env: the run has its own environment, CartPole-v1; leave it out"):
        ludus.load_run(trained.folder, env=Corridor)
    assert gym.registry["CartPole-v1"] is before


def test_environments_of_one_name_are_not_mixed_up(tmp_path: Path) -> None:
    """The second lambda does not take the place of the first: its run is still evaluated where it was trained."""
    short, long = (
        ludus.train("random", {"training.total_timesteps": 64}, env=env, quiet=True, runs_dir=tmp_path)
        for env in (lambda: gym.wrappers.TimeLimit(Corridor(50), 3), lambda: gym.wrappers.TimeLimit(Corridor(50), 9))
    )
    assert set(short.evaluate(3).lengths) == {3} and set(long.evaluate(3).lengths) == {9}


def test_equal_environments_have_one_id() -> None:
    def limited(steps: int) -> Any:
        return lambda: gym.wrappers.TimeLimit(Corridor(), steps)

    assert env_id(limited(3)) == env_id(limited(3)) != env_id(limited(4))
    assert env_id(Corridor(3)) == env_id(Corridor(3)) != env_id(Corridor(4))
    assert env_id(Corridor) == env_id(Corridor) and env_id(make_corridor) == "local/make_corridor-v0"


LENGTH = 3
"""What a lambda of the test reads."""


def corridor_of_length() -> gym.Env:
    return Corridor(LENGTH)


def test_other_values_around_a_function_are_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a function that it calls."""

    def id_of(call: str) -> str:
        return env_id(eval(call, globals()))

    for call in (
        "lambda: Corridor(LENGTH)",
        "lambda: corridor_of_length()",
        "lambda: [Corridor(LENGTH) for _ in 'a'][0]",
    ):
        monkeypatch.setitem(globals(), "LENGTH", 3)
        before = id_of(call)
        assert id_of(call) == before
        monkeypatch.setitem(globals(), "LENGTH", 4)
        assert id_of(call) != before


def test_an_edited_class_is_another_environment() -> None:
    """In a notebook a cell is run again."""

    def cell(reward: int) -> Any:
        names: dict[str, Any] = {"Corridor": Corridor, "__name__": "cell"}
        exec(
            f"class Mine(Corridor):\n    def step(self, action):\n        return 0, {reward}, True, False, {{}}", names
        )
        return names["Mine"]

    assert env_id(cell(1)) == env_id(cell(1)) != env_id(cell(2))


def test_an_id_may_look_like_a_run(tmp_path: Path) -> None:
    gym.register("own/ball_in_cup_catch", Corridor)
    try:
        assert isinstance(ludus.make_env("own/ball_in_cup_catch", runs_dir=tmp_path).unwrapped, Corridor)
    finally:
        del gym.registry["own/ball_in_cup_catch"]
    with pytest.raises(ConfigError, match="no such run"):
        ludus.make_env("CartPole-v1-ppo_20261117-140000_abcd", runs_dir=tmp_path)


def test_an_instance_is_never_touched(tmp_path: Path) -> None:
    env = Corridor()
    env.reset(seed=1)
    env.place = 3
    ludus.train("ppo", TINY, env=env, quiet=True, runs_dir=tmp_path)
    assert env.place == 3


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (3, "is a int.*give an id"),
        (gym.make_vec("CartPole-v1", 2), "vector of environments"),
        (lambda: "no environment", r"returned a str.*gymnasium\.Env"),
        ("Nowhere-v9", "Nowhere-v9"),
    ],
)
def test_a_wrong_environment_is_one_sentence(env: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ludus.LudusError, match=sentence):
        ludus.train("ppo", TINY, env=env, quiet=True, runs_dir=tmp_path)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: resolve("CartPole-v1:ppo", "algorithm.lr=1e-3"), "give a dict"),
        (lambda: resolve("CartPole-v1:ppo", {"algorithm.lrr": 1}), "did you mean"),
        (lambda: resolve("CartPole-v1:ppo", {"algorithm.lr": "fast"}), "lr"),
        (lambda: resolve("CartPole-v1"), "variant"),
        (
            lambda: resolve({"algorithm": {"name": "ppo"}}),
            "the spec is of type dict; give a spec such as",
        ),
        (lambda: resolve("CartPole-v1:ppo", seed=-1), "seed"),
        (lambda: resolve("CartPole-v1:ppo", {"algorithm.lr": print}), "overrides: .*is a builtin"),
        (lambda: resolve("CartPole-v1:ppo", 3), "overrides: is of type int.*give a dict"),
        (lambda: resolve("CartPole-v1:ppo", tags="fast"), "tags: is one text.*list"),
        (lambda: resolve(3), "the spec is of type int.*CartPole-v1:ppo"),
        (lambda: ludus.make_env("CartPol-v1"), "environment.id: 'CartPol-v1' is unknown; did you mean 'CartPole-v1'"),
        (lambda: ludus.make_env("nothing"), "nothing: there is no such run"),
    ],
)
def test_misuse_is_one_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"algorithm.lr": 1e-3}, ["algorithm.lr=0.001"]),
        ({"algorithm": {"lr": np.float64(0.5), "clip": 0.1}}, ["algorithm.lr=0.5", "algorithm.clip=0.1"]),
        ({"training.stop": None, "logging.csv": False}, ["training.stop=null", "logging.csv=false"]),
        ({"experiment.tags": ["a b", "it's"]}, [r"experiment.tags=['a b','it\'s']"]),
        ({"environment.kwargs": {"gravity": 9.0}}, ["++environment.kwargs.gravity=9.0"]),
        ({"network.encoder.hidden_dims": np.array([32, 16])}, ["network.encoder.hidden_dims=[32,16]"]),
        (["lr=1e-3"], ["lr=1e-3"]),
    ],
)
def test_overrides_become_words(given: Any, words: list[str]) -> None:
    assert override_words(given) == words


def test_words_come_back_as_they_were_given() -> None:
    tags = ("a b", "it's", "back\\slash", "at its end\\", "before\\'it", 'quo"te', "a,b", "{x}")
    wrappers = [{"id": "mask_observation", "indices": [1, 3]}, {"id": "frame_stack", "frames": 2}]
    phases = [{"name": "a", "hooks": ["collect", {"update_controller": {"per_env_step": 0.5}}], "set": {"lr": 0.1}}]
    given = {"experiment.tags": tags, "environment": {"kwargs": {"sutton_barto_reward": True}, "wrappers": wrappers}}
    config = resolve("CartPole-v1:ppo", {**given, "training.phases": phases}).config
    assert config.experiment.tags == tags and config.environment.kwargs == {"sutton_barto_reward": True}
    assert [dict(id=one.id, **one.arguments) for one in config.environment.wrappers] == wrappers
    assert [(one.hooks[1], one.set) for one in config.training.phases] == [(phases[0]["hooks"][1], {"lr": 0.1})]
    with pytest.raises(ConfigError, match="'a b' is no name of a setting"):
        resolve("CartPole-v1:ppo", {"environment.wrappers": [{"a b": 1}]})
