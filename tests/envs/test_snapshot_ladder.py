"""Which rung holds, why the ones above do not, and what is kept on each."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from envs import test_snapshot_probes
from envs.conftest import Make
from envs.probes import Probe
from envs.test_snapshot import assert_begins_anew, assert_resumes, go, run, stored
from ludus.config.schema import Environment
from ludus.envs.make import resolve
from ludus.envs.snapshots import Refused, ladder, pickled, trial
from ludus.envs.snapshots.values import ValueDecoder, ValueEncoder
from ludus.envs.vector.stepper import SyncVectorEnv
from ludus.errors import EnvironmentFailed
from ludus.registry import WRAPPERS

test_snapshot_probes.register()

LADDER = [
    ("Rung/Walk-v0", "adapter", {"api": "no snapshot_state"}),
    ("Rung/Offers-v0", "api", {}),
    ("Rung/OffersTooLittle-v0", "replay", {"api": "differs", "adapter": "lock is a _thread.lock", "pickle": "pickle"}),
    ("Rung/Tokens-v0", "pickle", {"adapter": r"tokens\[0\] is a .*Token"}),
    ("Rung/Turns-v0", "pickle", {"adapter": "turn and .*(black|white) are one object|turn is a Token"}),
    ("Rung/Locked-v0", "replay", {"pickle": "cannot pickle"}),
    ("Rung/Carrying-v0", "barrier", {"replay": "differs"}),
    ("Rung/Wild-v0", "none", {"barrier": "differs"}),
    ("Probe/IgnoresSeed-v0", "none", {"barrier": "differs"}),
    ("Probe/Echo-v0", "adapter", {}),
]


@pytest.fixture(autouse=True)
def own_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(pickled.VARIABLE, str(tmp_path / "key"))
    monkeypatch.chdir(tmp_path)  # MuJoCo writes its log where it is


@pytest.mark.parametrize(("id", "rung", "reasons"), LADDER, ids=lambda value: value if isinstance(value, str) else "")
def test_the_first_rung_that_holds(make: Make, id: str, rung: str, reasons: dict[str, str]) -> None:
    one, other = make(id, num_envs=2), make(id, num_envs=2)
    assert one.choose_snapshot_method() == rung
    order = [*ladder.KEEPERS, "none"]
    assert list(one.refused) == order[: order.index(rung)]
    for name, reason in reasons.items():
        assert re.search(reason, one.refused[name]), one.refused[name]
    if rung == "barrier":
        assert_begins_anew(one, other)
    elif rung == "none":
        run(one, 3, 0)
        with pytest.raises(EnvironmentFailed, match="snapshot method 'none'"):
            one.snapshot()
    elif id != "Probe/Echo-v0":
        assert_resumes(one, other)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every step of a probe takes 0.3 seconds of a clock that only they move; returns the times of all steps."""
    times = [0.0]
    step = Probe.step

    def late(self: Probe, action: Any) -> Any:
        times.append(times[-1] + 0.3)
        return step(self, action)

    monkeypatch.setattr(Probe, "step", late)
    monkeypatch.setattr("time.monotonic", lambda: times[-1])
    return times


@pytest.mark.parametrize(("id", "rung"), [(id, rung) for id, rung, _ in LADDER if id.startswith("Rung/")])
def test_where_steps_are_slow_the_self_test_is_short_and_finds_the_same(
    make: Make, slow: list[float], id: str, rung: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trial._announced.clear()
    env = make(id, num_envs=1)
    begun = len(slow)
    assert env.choose_snapshot_method() == rung
    assert len(slow) - begun <= 5 * (24 + 60) + 32, "episodes of three or four steps"
    assert capsys.readouterr().err.count(f"{id}: a step takes 0.3 s; trying out how to save it takes about ") == 1
    assert env.slow == (0.0 if rung == "none" else pytest.approx(0.3))


def test_where_steps_are_fast_nothing_is_left_out(make: Make) -> None:
    env = make("Rung/Walk-v0", num_envs=1)
    assert env.choose_snapshot_method() == "adapter" and env.slow == 0.0


def test_two_views_of_one_memory_are_not_taken_apart(make: Make) -> None:
    env = make("Rung/Views-v0")
    assert env.choose_snapshot_method() == "barrier"
    assert "share memory" in env.refused["adapter"] and "differs" in env.refused["pickle"]


def test_the_self_test_is_lazy_cheap_and_done_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    choose = ladder.choose
    monkeypatch.setattr(ladder, "choose", lambda recipe: calls.append(recipe) or choose(recipe))
    env = make("CartPole-v1")
    run_without = env.reset(range(4))
    env.step(np.zeros(4, int))
    assert not calls and run_without is not None
    began = time.process_time()
    assert env.choose_snapshot_method() == env.choose_snapshot_method() == "adapter"
    assert time.process_time() - began < 0.1 and len(calls) == 1


def test_replay_has_to_watch_from_the_reset_on(make: Make) -> None:
    env = make("Rung/Locked-v0", num_envs=1)
    env.reset([0])
    go(env, 2, 0)
    assert env.choose_snapshot_method() == "replay"
    with pytest.raises(EnvironmentFailed, match=r"environment 0 .*call `choose_snapshot_method` before the reset"):
        env.snapshot()
    env.reset([0])
    env.snapshot()


def test_replay_keeps_this_episode_only_and_not_too_much(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make("Rung/Locked-v0", max_episode_steps=ladder.LIMIT + 1).choose_snapshot_method() == "barrier"
    env = make("Rung/Locked-v0", num_envs=1, max_episode_steps=50)
    run(env, 300, 0)
    (state,) = env.snapshot()["envs"]
    assert len(state["actions"]) < 50
    monkeypatch.setattr(ladder, "LIMIT", 64)
    recorder = ladder.EpisodeRecorder(resolve(Environment(id="Pendulum-v1")).make())
    recorder.reset(seed=0)
    for _ in range(64):
        recorder.step(np.zeros(1, np.float32))
    assert len(recorder.actions) == 64 and recorder.start == {"seed": 0}
    recorder.step(np.zeros(1, np.float32))
    assert recorder.start is None and len(recorder.actions) == 1


def test_what_a_replay_pays_is_not_paid_again(make: Make) -> None:
    one, other = (make("Rung/Locked-v0", wrappers=({"id": "scale_reward", "scale": 2.0},)) for _ in range(2))
    assert one.choose_snapshot_method() == "replay"
    assert_resumes(one, other)


@pytest.mark.parametrize("game", ["pong", "qbert"])
def test_the_action_an_emulator_holds_on_to_is_saved(game: str) -> None:
    """A cloned state of ALE lacks it; and Qbert's go on in another way right after a reset."""
    ale_py = pytest.importorskip("ale_py")
    from ludus.envs.snapshots import ale

    one, other, plain = (ale_py.ALEInterface() for _ in range(3))
    for emulator in (one, other, plain):
        emulator.setLoggerMode(ale_py.LoggerMode.Error)
        emulator.setInt("random_seed", 1)
        emulator.setFloat("repeat_action_probability", 0.25)
        emulator.loadROM(ale_py.roms.get_rom_path(game))
    rng, actions = np.random.default_rng(0), one.getMinimalActionSet()
    for moment in range(16):
        if moment % 4 == 0:
            one.reset_game(), plain.reset_game()
        ale.give(other, stored(ale.take(one)))
        for action in rng.choice(actions, 25):
            for emulator in (one, other, plain):
                emulator.act(action)
            states = [emulator.cloneState(include_rng=True).serialize() for emulator in (one, other, plain)]
            assert states[0] == states[1] == states[2], moment


def test_physics_that_outlive_a_reset_are_not_replayed(make: Make) -> None:
    """Fault 51: most episodes of BipedalWalker would come out the same, some would not."""
    pytest.importorskip("Box2D")
    env = make("BipedalWalker-v3", num_envs=1)
    assert env.choose_snapshot_method() == "barrier" and env.refused["replay"] == "its Box2D world outlives a reset"


def test_a_rung_that_stops_holding_is_named(make: Make) -> None:
    env = make("Rung/Walk-v0", num_envs=2)
    run(env, 3, 0)
    assert isinstance(env, SyncVectorEnv)
    env._stepper.envs[1].unwrapped.helper = object()  # type: ignore[attr-defined]
    with pytest.raises(EnvironmentFailed, match=r"environment 1 .*cannot be saved: 1:Walk.helper is a builtins.object"):
        env.snapshot()


def test_code_that_appears_later_is_refused() -> None:
    keeper = ladder.keeper("adapter", resolve(Environment(id="Rung/Walk-v0")))
    env = keeper.make()
    env.reset(seed=0)
    inner: Any = env.unwrapped
    inner.rule = lambda: 1
    with pytest.raises(Refused, match="rule is code that a new environment has not"):
        keeper.capture(env)
    del inner.rule, inner.at
    with pytest.raises(Refused, match="has lost its attribute at"):
        keeper.capture(env)


def test_a_changed_mujoco_model_is_refused() -> None:
    pytest.importorskip("mujoco"), pytest.importorskip("imageio")
    keeper = ladder.keeper("adapter", resolve(Environment(id="InvertedPendulum-v5")))
    env: Any = keeper.make()
    env.reset(seed=0)
    keeper.capture(env)
    env.unwrapped.model.body_mass[1] *= 2
    with pytest.raises(Refused, match="model that was changed"):
        keeper.capture(env)


def test_values_come_back_as_they_were() -> None:
    import collections
    import random

    shared = [1, 2]
    fortran = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    legacy, python, spawning = np.random.RandomState(3), random.Random(4), np.random.default_rng(5)
    legacy.normal(), python.gauss(0, 1), spawning.spawn(2)
    value = {
        "numbers": (True, 1, -0.0, 2.5, 2**100, None, "ä\n"),
        "nan": float("nan"),
        3: {(1, "a"): {4, 5}, np.int64(7): frozenset([6])},
        "numpy": [np.float32(1.5), np.str_("x"), np.bool_(True), np.array([b"ab", b"c"]), np.array(5, np.uint64)],
        "arrays": [fortran, np.zeros((0, 3)), np.array([1 + 2j]), np.array([1, 2], ">i4"), np.array(["x", "yz"])],
        "same": [shared, shared],
        "queue": collections.deque([1, 2], maxlen=2),
        "bytes": b"\x00\xff",
        "random": [legacy, python, spawning, np.random.Generator(np.random.MT19937(1))],
        "last": shared,
    }
    encoder = ValueEncoder()
    node = stored({"node": encoder.encode(value, "x")})
    encoder.finish()
    back = ValueDecoder(node).decode(node["node"])
    assert list(back) == list(value) and repr(back["numbers"]) == repr(value["numbers"])
    assert repr(back[3]) == repr(value[3]) and back["queue"] == value["queue"] and back["queue"].maxlen == 2
    for name in ("numpy", "arrays"):
        for mine, theirs in zip(back[name], value[name], strict=True):  # type: ignore[call-overload]
            assert type(mine) is type(theirs) and mine.dtype == theirs.dtype and mine.tobytes() == theirs.tobytes()
    assert back["arrays"][0].flags.f_contiguous and back["bytes"] == b"\x00\xff" and np.isnan(back["nan"])
    assert back["same"][0] is back["same"][1] is back["last"] and back["last"] is not shared
    assert back["random"][0].normal() == legacy.normal() and back["random"][1].gauss(0, 1) == python.gauss(0, 1)
    assert back["random"][2].spawn(1)[0].random() == spawning.spawn(1)[0].random()
    assert back["random"][3].random() == np.random.Generator(np.random.MT19937(1)).random()


def test_values_nobody_can_store_are_named() -> None:
    loop: list[Any] = []
    loop.append(loop)
    bad: list[tuple[Any, str]] = [
        (loop, "contains itself"),
        (object(), "x is a builtins.object"),
        (np.array([None]), "array of object"),
        ([1, {"a": iter(())}], r"x\[1\]\['a'\] is a builtins.tuple_iterator"),
    ]
    for value, reason in bad:
        with pytest.raises(Refused, match=reason):
            ValueEncoder().encode(value, "x")


WRAPPED: dict[str, tuple[str, dict[str, Any]]] = {
    "action_reward": ("CartPole-v1", {"rewards": [0.1, 0.2]}),
    "cart_pole_shaping": ("CartPole-v1", {"gamma": 0.9}),
    "cast_observation": ("CartPole-v1", {}),
    "clip_action": ("Pendulum-v1", {}),
    "clip_observation": ("Pendulum-v1", {"low": -0.5, "high": 0.5}),
    "clip_reward": ("Pendulum-v1", {}),
    "discrete_encoder": ("FrozenLake-v1", {"encoding": "binary"}),
    "flatten": ("Blackjack-v1", {}),
    "frame_skip": ("CartPole-v1", {"skip": 2}),
    "frame_stack": ("Pendulum-v1", {"frames": 3}),
    "mask_observation": ("Pendulum-v1", {"indices": [1]}),
    "mountain_car_shaping": ("MountainCar-v0", {}),
    "normalize_observation": ("Pendulum-v1", {"mean": 0.1, "std": 2.0}),
    "one_hot": ("FrozenLake-v1", {}),
    "remap_actions": ("CartPole-v1", {"mapping": [1, 0, 1]}),
    "rescale_action": ("Pendulum-v1", {}),
    "scale_observation": ("MountainCar-v0", {}),
    "scale_reward": ("Bandit-v0", {"scale": 0.5}),
    "state_count_bonus": ("MountainCar-v0", {}),
    "sticky_actions": ("CartPole-v1", {"probability": 0.4}),
    "time_aware": ("Acrobot-v1", {}),
    "unflatten": ("CartPole-v1", {"shape": [2, 2]}),
    "test_stack": ("CartPole-v1", {"stack_size": 3}),
    "test_delay": ("Pendulum-v1", {"delay": 2}),
    "test_sticky": ("CartPole-v1", {"repeat_action_probability": 0.4}),
    "test_normalize": ("Pendulum-v1", {}),
    "test_statistics": ("CartPole-v1", {}),
}
"""Ours, and Gymnasium's wrappers that keep something."""
ELSEWHERE = {
    "ale_action_masking", "breakout_features", "car_controls", "car_skip", "channels_first", "crop", "draw_cart_pole",
    "episodic_life", "fire_reset", "grayscale", "stop_without_reward",
    "max_and_skip", "minigrid_image", "minigrid_rgb", "minigrid_symbols", "noop_reset", "old_api", "pixels_only",
    "pong_features", "pong_shaping", "resize", "retro_mario_shaping", "vizdoom_shaping",
}  # fmt: skip
"""Those for pictures and for single suites: saved in the tests of theirs."""


@pytest.fixture
def gymnasiums() -> Any:
    wrappers = gym.wrappers
    extra = {
        "test_stack": wrappers.FrameStackObservation,
        "test_delay": wrappers.DelayObservation,
        "test_sticky": wrappers.StickyAction,
        "test_normalize": wrappers.NormalizeReward,
        "test_statistics": wrappers.RecordEpisodeStatistics,
    }
    for name, cls in extra.items():
        WRAPPERS.register(name)(cls)
    yield
    for name in extra:
        del WRAPPERS._classes[name]


def test_every_wrapper_is_in_the_table() -> None:
    ours = {name for name in WRAPPERS.names() if name.islower() and WRAPPERS[name].__module__.startswith("ludus.")}
    assert ours <= set(WRAPPED) | ELSEWHERE


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers_are_saved_with_what_they_remember(make: Make, gymnasiums: None, name: str) -> None:
    id, arguments = WRAPPED[name]
    wrappers = ({"id": name, **arguments}, {"id": "scale_reward", "scale": 3.0})
    one, other = (make(id, num_envs=2, wrappers=wrappers, max_episode_steps=40) for _ in range(2))
    assert one.choose_snapshot_method() == "adapter", one.refused
    assert_resumes(one, other, 100)


def test_spaces_that_are_drawn_from_are_saved() -> None:
    keeper = ladder.keeper("adapter", resolve(Environment(id="CartPole-v1")))
    env = keeper.make()
    env.reset(seed=0)
    env.action_space.seed(3)
    env.action_space.sample()
    state = stored(keeper.capture(env))
    expected = [env.action_space.sample() for _ in range(20)]
    assert [keeper.restore(state).action_space.sample() for _ in range(1)] == expected[:1]
    other = keeper.restore(state)
    assert [other.action_space.sample() for _ in range(20)] == expected
