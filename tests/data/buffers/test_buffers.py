"""Buffers never lie: whatever is sampled is looked up in a log of what really happened."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.data.buffers.sampling import tensors
from ludus.errors import ConfigError, DataError
from scripted import Script, fill, make, marks

KINDS = ["uniform", "prioritized", "trajectory"]
plans = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "barrier", "elsewhere"]), st.integers(1, 6)),
    min_size=1,
    max_size=12,
).map(lambda plan: [("add", 3), *plan])
scripts = st.builds(
    Script,
    st.integers(1, 4),
    st.integers(0, 10_000),
    frames=st.sampled_from([1, 1, 3]),
    padding=st.sampled_from(["repeat", "zero"]),
    dtype=st.sampled_from([np.uint8, np.float32]),
    ends=st.sampled_from([0.05, 0.2, 0.9]),
)


def check_steps(script: Script, sample: dict[str, Any], n_step: int, gamma: float) -> set[tuple[int, int, int]]:
    """Every step of a sample against the log; returns which they were."""
    seen = set()
    for i in range(len(sample["index"])):
        b, episode, t = script.where(sample["obs"][0, i])
        log = script.log[b][episode]
        rewards = script.stretch(b, episode, t, n_step)
        m = len(rewards)
        assert m >= 1, "a step that was never added"
        np.testing.assert_array_equal(sample["obs"][0, i], script.obs(b, episode, t))
        np.testing.assert_array_equal(sample["next_obs"][0, i], script.obs(b, episode, t + m))
        assert sample["action"][0, i] == log.actions[t]
        assert sample["mark"][0, i] == t / 4
        total = sum(gamma**k * r for k, r in enumerate(rewards))
        assert sample["reward"][0, i] == pytest.approx(total, abs=1e-5, rel=1e-5)
        terminated = log.ended == "terminated" and t + m == len(log.rewards)
        assert sample["terminated"][0, i] == terminated
        assert sample["discount"][0, i] == pytest.approx(0.0 if terminated else gamma**m)
        seen.add((b, episode, t))
    return seen


@pytest.mark.parametrize("kind", KINDS)
@given(script=scripts, plan=plans, size=st.integers(1, 80), n_step=st.integers(1, 5))
@settings(max_examples=12, deadline=None)
def test_transitions_are_what_happened(kind: str, script: Script, plan: Any, size: int, n_step: int) -> None:
    buffer = make(kind, script, size, memory=False)
    for part in plan:
        fill(buffer, script, [part])
        if len(buffer):
            check_steps(script, buffer.sample(20, n_step=n_step, gamma=0.9), n_step, 0.9)


@pytest.mark.parametrize("kind", KINDS)
@given(script=scripts, plan=plans, size=st.integers(4, 80), length=st.integers(1, 8), state=st.booleans())
@settings(max_examples=12, deadline=None)
def test_sequences_are_what_happened(kind: str, script: Script, plan: Any, size: int, length: int, state: bool) -> None:
    buffer = make(kind, script, size, memory=state or kind != "prioritized")
    for part in plan:
        fill(buffer, script, [part])
        if buffer.can_sample_sequences(1, length, state=state):
            sample = buffer.sample_sequences(7, length, state=state)
            for i in range(7):
                check_sequence(script, {k: v for k, v in sample.items() if k != "state"}, i, whole=kind == "trajectory")
                if state:
                    b, episode, t = script.where(sample["obs"][0, i])
                    assert sample["state"][0][i, 0] == script.log[b][episode].memory[t]


def check_sequence(script: Script, sample: dict[str, Any], i: int, *, whole: bool) -> None:
    """One column of a sequence sample, row by row, as the log has it."""
    obs, first, mask = sample["obs"][:, i], sample["first"][:, i], sample["mask"][:, i]
    assert mask[0], "row 0 is a step"
    b, episode, t = script.where(obs[0])
    for row in range(len(mask)):
        here = script.where(obs[row])
        if mask[row]:
            log = script.log[b][here[1]]
            np.testing.assert_array_equal(obs[row], script.obs(*here))
            assert here[0] == b, "another environment"
            assert sample["action"][row, i] == log.actions[here[2]]
            assert sample["reward"][row, i] == log.rewards[here[2]]
            assert sample["mark"][row, i] == here[2] / 4
            over = here[2] + 1 == len(log.rewards) and bool(log.ended)
            assert sample["terminated"][row, i] == (over and log.ended == "terminated")
            if over:
                assert sample["truncated"][row, i] == (log.ended == "truncated")
            elif sample["truncated"][row, i]:
                assert not log.added[here[2] + 1], "the steps after it went elsewhere"
            # what comes after a step is always in the next row, its true final observation included
            np.testing.assert_array_equal(obs[row + 1], script.obs(b, here[1], here[2] + 1))
            if row + 1 < len(first) and (row + 1 < len(mask)):
                assert not first[row + 1]
            if row and mask[row - 1] and not first[row]:
                before = script.where(obs[row - 1])
                assert here == (b, before[1], before[2] + 1)
        else:
            assert sample["reward"][row, i] == 0 and sample["action"][row, i] == 0
            assert not sample["terminated"][row, i] and not sample["truncated"][row, i]
        if whole and (mask[row] or (row and mask[row - 1])):
            assert here[1] == episode, "a trajectory stays in its episode"
    if whole:
        ended = np.flatnonzero(~mask)
        if len(ended):
            assert not mask[ended[0] :].any() and first[ended[0] + 1 :].all()


@pytest.mark.parametrize("kind", KINDS)
@given(script=scripts, plan=plans, rows=st.integers(1, 12))
@settings(max_examples=10, deadline=None)
def test_exactly_the_newest_steps_can_be_drawn(kind: str, script: Script, plan: Any, rows: int) -> None:
    buffer = make(kind, script, rows * script.envs, memory=False)
    fill(buffer, script, plan)
    count = len(buffer)
    if not count:
        return
    drawn = set()
    for _ in range(40):
        drawn |= check_steps(script, buffer.sample(32, n_step=1, gamma=0.9), 1, 0.9)
    assert len(drawn) <= count
    assert len(drawn) >= min(count, 0.9 * count), "some steps are never drawn"
    for b in range(script.envs):  # the newest step of every environment is among them
        added = [(e, t) for e, log in enumerate(script.log[b]) for t in range(len(log.rewards)) if log.added[t]]
        mine = sorted((e, t) for env, e, t in drawn if env == b)
        assert mine == added[len(added) - len(mine) :], "not the newest ones"


@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_returns_over_more_steps_than_a_byte_counts(kind: str) -> None:
    script = Script(1, 0, ends=0.0, dtype=np.float32)
    buffer = make(kind, script, 500, memory=False)
    fill(buffer, script, [("add", 400)])
    sample = buffer.sample(64, n_step=300, gamma=0.99)
    check_steps(script, sample, 300, 0.99)
    assert sample["discount"].min() == pytest.approx(0.99**300)


@pytest.mark.parametrize("kind", KINDS)
def test_returns_over_several_steps_stop_at_an_end(kind: str) -> None:
    """Many short episodes, five steps ahead: most returns reach an end, none goes past it."""
    script = Script(3, 2, ends=0.3, dtype=np.float32)
    buffer = make(kind, script, 300, memory=False)
    fill(buffer, script, [("add", 40), ("add", 40)])
    sample = buffer.sample(500, n_step=5, gamma=0.9)
    check_steps(script, sample, 5, 0.9)
    assert sample["terminated"].any() and not sample["terminated"].all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_buffer_draws_the_same(kind: str, tmp_path: Path) -> None:
    script = Script(2, 3, dtype=np.float32)
    ours = make(kind, script, 100, memory=False)
    ours.attach(tmp_path)
    fill(ours, script, [("add", 60)])
    ours.sample(16)
    state = ours.save("step=1", ())
    theirs = make(kind, script, 100, seed=5, memory=False)
    theirs.load(state, tmp_path)
    same_future(ours, theirs, script)


def test_length_counts_steps_not_final_observations() -> None:
    script = Script(2, 0, ends=0.5, dtype=np.float32)
    buffer = make("uniform", script, 1000)
    fill(buffer, script, [("add", 50)])
    assert len(buffer) == 100
    fill(buffer, script, [("add", 2000)])
    assert 500 < len(buffer) < 1000  # half of the places hold final observations


def test_dtypes_are_the_spaces_own() -> None:
    script = Script(2, 0, dtype=np.uint8)
    buffer = make("uniform", script, 100)
    fill(buffer, script, [("add", 20)])
    sample = buffer.sample(8)
    assert sample["obs"].dtype == sample["next_obs"].dtype == np.uint8 == buffer.storage.data["obs"].dtype
    assert sample["action"].dtype == np.int64 and sample["reward"].dtype == np.float32


def test_frames_are_stored_once() -> None:
    one, four = (make("uniform", Script(1, 0, frames=k), 1000, memory=False) for k in (1, 4))
    assert four.columns["obs"].bytes == one.columns["obs"].bytes == 4
    assert four.storage.data["obs"].nbytes < 1.1 * one.storage.data["obs"].nbytes


def test_what_is_no_stack_is_refused() -> None:
    script = Script(1, 0, frames=3, ends=0.0)
    rollout = script.rollout(5)
    rollout.raw_obs[3, 0, 0] += 1
    with pytest.raises(ConfigError, match=r"buffers\.replay\.frames.*does not go on"):
        make("uniform", script, 100).add(rollout, mark=marks(rollout))


def test_samples_are_reused_memory_and_tensors_share_it() -> None:
    script = Script(1, 0)
    buffer = make("uniform", script, 100)
    fill(buffer, script, [("add", 50)])
    first = buffer.sample(8)
    batch = tensors(first)
    second = buffer.sample(8)
    assert second["obs"].base is first["obs"].base or second["obs"] is first["obs"]
    np.testing.assert_array_equal(batch["reward"].numpy(), second["reward"])


def test_uniform_is_uniform() -> None:
    script = Script(3, 0, ends=0.3)
    buffer = make("uniform", script, 60)
    fill(buffer, script, [("add", 5)] * 10)
    counts: dict[Any, int] = {}
    for _ in range(400):
        for obs in buffer.sample(50)["obs"][0]:
            counts[script.where(obs)] = counts.get(script.where(obs), 0) + 1
    expected = 20_000 / len(buffer)
    assert len(counts) == len(buffer)
    assert max(abs(count - expected) for count in counts.values()) < 6 * np.sqrt(expected)


def test_too_early_is_a_config_error() -> None:
    script = Script(1, 0)
    buffer = make("uniform", script, 100)
    fill(buffer, script, [("add", 3)])
    assert not buffer.can_sample_sequences(1, 40)
    with pytest.raises(ConfigError, match="no stretch of 40 steps"):
        buffer.sample_sequences(2, 40)


def test_auto_size_keeps_under_the_cap() -> None:
    script = Script(2, 0)
    cls = type(make("uniform", script, 1))
    for cap in (0.001, 0.01):
        cfg = cls.Config(size="auto", max_gb=cap)
        buffer = cls(cfg, script.spaces, 2, name="replay", rng=np.random.default_rng(0))
        assert 0.5 * cap * 2**30 < buffer.bytes <= cap * 2**30
    whole = cls(cls.Config(size="auto"), script.spaces, 2, name="replay", rng=np.random.default_rng(0), steps=5000)
    assert whole.size == 5000


# ---- saved and loaded --------------------------------------------------------------------------------------------


def same_future(ours: Any, theirs: Any, script: Script) -> None:
    """Both buffers give the same samples, now and after the same further steps."""
    for _ in range(3):
        for a, b in ((ours.sample(16, n_step=3), theirs.sample(16, n_step=3)),):
            for name in a:
                np.testing.assert_array_equal(a[name], b[name], err_msg=name)
        ours.update_priorities(a["index"], np.arange(16) / 3)
        theirs.update_priorities(b["index"], np.arange(16) / 3)
        rollout = script.rollout(4)
        for buffer in (ours, theirs):
            buffer.add(rollout, mark=marks(rollout))


@pytest.mark.parametrize("storage", ["ram", "disk"])
@pytest.mark.parametrize("kind", KINDS)
@given(script=scripts, plan=plans, size=st.integers(2, 60), saves=st.lists(st.integers(0, 12), max_size=4))
@settings(max_examples=6, deadline=None)
def test_saved_and_loaded_it_goes_on_the_same(
    kind: str, storage: str, script: Script, plan: Any, size: int, saves: list[int], tmp_path_factory: Any
) -> None:
    folder: Path = tmp_path_factory.mktemp("buffer")
    memory = kind != "prioritized"  # which draws nothing but sequences where memory is stored
    ours = make(kind, script, size, storage=storage, memory=memory)
    ours.attach(folder)
    for i, part in enumerate(plan):
        fill(ours, script, [part])
        if i in saves:
            ours.save(f"step={i}", (f"step={i - 1}", f"step={i - 2}"))
    state = ours.save("step=last", ("step=1", "step=2"))
    theirs = make(kind, script, size, seed=5, storage="ram", memory=memory)
    theirs.load(state, folder)
    assert len(theirs) == len(ours)
    if len(ours):
        same_future(ours, theirs, script)


@pytest.mark.parametrize("storage", ["ram", "disk"])
def test_steps_after_the_checkpoint_are_cut_and_kept_checkpoints_stay_readable(storage: str, tmp_path: Path) -> None:
    script = Script(2, 1)
    ours = make("uniform", script, 40, storage=storage)
    ours.attach(tmp_path)
    states, lengths = {}, {}
    for i in range(12):  # each checkpoint turns most of the buffer over
        fill(ours, script, [("add", 15)])
        states[i] = ours.save(f"step={i}", (f"step={i - 1}",))
        lengths[i] = len(ours)
        fill(ours, script, [("add", 7)])
        for kept in (i - 1, i):
            if kept >= 0:
                theirs = make("uniform", script, 40, seed=9)
                theirs.load(states[kept], tmp_path)
                assert len(theirs) == lengths[kept]
                check_steps(script, theirs.sample(64), 1, 0.99)
    sizes = sum(file.stat().st_size for file in tmp_path.glob("*.bin"))
    assert sizes <= 4.5 * ours.bytes, "files grow past what the living and two checkpoints need"


@pytest.mark.parametrize("storage", ["ram", "disk"])
def test_only_what_is_new_is_written(storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.data.buffers import segments

    written: list[int] = []
    original = segments.write_all
    monkeypatch.setattr(segments, "write_all", lambda f, a, o: (written.append(a.nbytes), original(f, a, o))[1])
    script = Script(1, 0, ends=0.01, dtype=np.float32)
    buffer = make("uniform", script, 2000, storage=storage)
    buffer.attach(tmp_path)
    fill(buffer, script, [("add", 200)] * 5)
    buffer.save("step=1", ())
    everything = sum(written)
    written.clear()
    fill(buffer, script, [("add", 10)])
    buffer.save("step=2", ("step=1",))
    if storage == "ram":
        assert 0 < sum(written) < everything / 50
    else:
        assert everything == 0


@pytest.mark.parametrize("name", ["obs.bin", "reward.bin", "mark.bin"])
@pytest.mark.parametrize("damage", ["flip", "short", "gone"])
def test_damage_is_named(name: str, damage: str, tmp_path: Path) -> None:
    script = Script(2, 1)
    ours = make("uniform", script, 100)
    ours.attach(tmp_path)
    fill(ours, script, [("add", 30)])
    state = ours.save("step=1", ())
    file = tmp_path / name
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[40] ^= 1
        file.write_bytes(content)
    elif damage == "short":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.unlink()
    theirs = make("uniform", script, 100)
    with pytest.raises(DataError, match=r"sha256|ends at|cannot be read") as caught:
        theirs.load(state, tmp_path)
    assert "--rebuild-buffer" in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_stored_buffer_reads_another_runs_steps(tmp_path: Path) -> None:
    from ludus.registry import BUFFERS

    script = Script(2, 1, frames=3)
    ours = make("uniform", script, 100)
    ours.attach(tmp_path / "buffers" / "replay")
    fill(ours, script, [("add", 30), ("add", 40)])
    ours.save("step=1", ())
    fill(ours, script, [("add", 5)])
    cls = BUFFERS["stored"]
    stored = cls(cls.Config(path=str(tmp_path)), script.spaces, 7, name="demos", rng=np.random.default_rng(0))
    stored.add_column("mark")
    check_steps(script, stored.sample(200), 1, 0.99)
    assert len(stored) > 40
    with pytest.raises(ConfigError, match="takes no others"):
        stored.add(script.rollout(1))
    other = Script(2, 1, frames=1)
    with pytest.raises(ConfigError, match=r"buffers\.demos\."):
        cls(cls.Config(path=str(tmp_path)), other.spaces, 2, name="demos", rng=np.random.default_rng(0))


HOSTILE: list[tuple[str, Any]] = [
    ("num_envs", -1), ("num_envs", "x"), ("num_envs", 2**31), ("frames", {}), ("frames", True), ("padding", 7),
    ("contents.rows", 2**63), ("contents.rows", 0), ("contents.rows", "x"), ("contents.end", [[1]]),
    ("contents.end.0", 1.5), ("contents.end.0", 40), ("contents.end.0", 2),
    ("contents.end.0", -1), ("contents.end.0", 2**63), ("contents.segments", {}), ("contents.segments.0", 7),
    ("contents.segments.0.0", 9), ("contents.segments.0.0", "x"), ("contents.segments.0.0", -1),
    ("contents.segments.0.1", 10**30), ("contents.segments.0.2", 10**6), ("contents.segments.0.3", None),
    ("contents.places", None), ("contents.places.of.0", 10**30), ("contents.places.of.0", -1),
    ("contents.columns.age.0", 7),
    ("contents.columns.age", [[], "|O"]), ("next.obs", []), ("next.obs.0", "x"), ("next.age.0", 2**63),
    ("next.steps.0", None), ("next.steps", [[[]]]),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["stored", "append"])
@pytest.mark.parametrize(("where", "value"), HOSTILE)
def test_an_index_with_other_things_in_it_is_refused(kind: str, where: str, value: Any, tmp_path: Path) -> None:
    from ludus.registry import BUFFERS

    script = Script(2, 3)
    buffer = make("uniform", script, 64, memory=False)
    buffer.attach(tmp_path)
    fill(buffer, script, [("add", 20)])
    buffer.save("step=1", ())
    index, cls = json.loads((tmp_path / "index.json").read_text()), BUFFERS[kind]
    *path, last = [int(key) if key.isdigit() else key for key in where.split(".")]
    part = index
    for key in path:
        part = part[key]
    part[last] = value
    (tmp_path / "index.json").write_text(json.dumps(index))
    options = {"path": str(tmp_path), **({"size": 64} if kind == "append" else {})}
    with pytest.raises((DataError, ConfigError)):
        stored = cls(cls.Config(**options), script.spaces, 2, name="demos", rng=np.random.default_rng(0))
        stored.add_column("mark")
        stored.sample(4)


@pytest.mark.parametrize("storage", ["ram", "disk"])
@pytest.mark.parametrize("places", [{"of": 10**6}, {"held": 10**6}, {"held": -1}, {"held": "x"}])
def test_places_beyond_the_files_are_refused_before_they_are_taken(
    storage: str, places: dict[str, Any], tmp_path: Path
) -> None:
    """A list of all places up to the last one is made: one number of a foreign checkpoint could fill memory or disk."""
    script = Script(2, 3)
    buffer = make("uniform", script, 64, memory=False, storage=storage)
    buffer.attach(tmp_path)
    fill(buffer, script, [("add", 20)])
    state = buffer.save("step=1", ())
    if "of" in places:
        state["contents"]["places"]["of"][0] = places["of"]
    else:
        state["contents"]["places"]["held"]["step=0"] = [places["held"]]
    again = make("uniform", script, 64, memory=False, storage=storage)
    again.attach(tmp_path)
    with pytest.raises(DataError, match="beyond the end of"):
        again.load(state, tmp_path)


@pytest.mark.parametrize("kind", ["stored", "append"])
def test_bytes_of_another_runs_files_are_never_read_as_objects(tmp_path: Path, kind: str) -> None:
    """They would be addresses of the process: whoever made the file could run what they like."""
    from ludus.registry import BUFFERS

    script = Script(2, 1)
    ours = make("uniform", script, 100, memory=False)
    ours.attach(tmp_path)
    fill(ours, script, [("add", 30)])
    ours.save("step=1", ())
    whole, cls = json.loads((tmp_path / "index.json").read_text()), BUFFERS[kind]
    options = {"path": str(tmp_path), **({"size": 100} if kind == "append" else {})}

    def read() -> None:
        stored = cls(cls.Config(**options), script.spaces, 2, name="demos", rng=np.random.default_rng(0))
        stored.add_column("mark")
        stored.sample(4)

    for dtype in ("|O", "i4,O", "V8", "M8[s]"):
        columns = {**whole["contents"]["columns"], "more": [[], dtype]}
        (tmp_path / "index.json").write_text(
            json.dumps({**whole, "contents": {**whole["contents"], "columns": columns}})
        )
        with pytest.raises(DataError, match="column more holds no numbers"):
            read()
    (tmp_path / "index.json").write_text(json.dumps({**whole, "contents": {**whole["contents"], "columns": [1]}}))
    with pytest.raises(DataError, match="cannot be read"):
        read()
    columns = {**whole["contents"]["columns"], "../mark": [[], "<f4"]}
    (tmp_path / "index.json").write_text(json.dumps({**whole, "contents": {**whole["contents"], "columns": columns}}))
    with pytest.raises(DataError, match="names no file beside it"):
        read()
    (tmp_path / "index.json").write_text(json.dumps(whole))
    (tmp_path / "reward.bin").unlink()
    os.mkfifo(tmp_path / "reward.bin")
    with pytest.raises(DataError, match="regular file"):
        read()


@pytest.mark.parametrize("storage", ["ram", "disk"])
def test_steps_are_appended_to_a_copy_of_another_runs(tmp_path: Path, storage: str) -> None:
    from ludus.registry import BUFFERS

    script = Script(2, 1, frames=3)
    ours = make("uniform", script, 200, memory=False)
    ours.attach(tmp_path / "first" / "buffers" / "replay")
    fill(ours, script, [("add", 30)])
    ours.save("step=1", ())
    before = {path: path.read_bytes() for path in (tmp_path / "first").rglob("*") if path.is_file()}
    cls = BUFFERS["append"]

    def begin(folder: str, **changes: Any) -> Any:
        options = {"path": str(tmp_path / "first"), "size": ours.size, "frames": 3, "storage": storage, **changes}
        buffer = cls(cls.Config(**options), script.spaces, 2, name="replay", rng=np.random.default_rng(0))
        buffer.add_column("mark")
        buffer.attach(tmp_path / folder)
        return buffer

    theirs = begin("second")
    assert len(theirs) == len(ours) == theirs.added == 60
    fill(theirs, script, [("add", 10)])
    assert len(theirs) == 80
    check_steps(script, theirs.sample(200), 1, 0.99)
    state = theirs.save("step=2", ())
    assert {path: path.read_bytes() for path in before} == before  # the other run is as it was
    again = begin("second", path=str(tmp_path / "gone"))  # a resumed run needs it no more
    again.load(state, tmp_path / "second")
    assert len(again) == 80
    emptied = begin("third")
    emptied.start_over()
    assert len(emptied) == 0
    for field, words in (({"size": 64}, r"buffers\.replay\.size: .*use "), ({"frames": 1}, r"buffers\.replay\.frames")):
        with pytest.raises(ConfigError, match=words):
            len(begin("other", **field))


# ---- normalised when they are drawn ------------------------------------------------------------------------------


class _Halves:
    """Something to normalise by that can be told apart."""

    def apply(self, obs: np.ndarray) -> np.ndarray:
        return obs / 2 + 1

    def scaled(self, reward: np.ndarray) -> np.ndarray:
        return reward / 4


@pytest.mark.parametrize("kind", KINDS)
def test_observations_and_what_follows_them_are_normalised(kind: str) -> None:
    script = Script(2, 0, dtype=np.float32)
    plain, other = (make(kind, script, 200, memory=False) for _ in range(2))
    other.normalizer = _Halves()
    rollout = script.rollout(60)
    for buffer in (plain, other):
        buffer.add(rollout, mark=marks(rollout))
    for raw, sample in ((plain.sample(32, n_step=2), other.sample(32, n_step=2)),
                        (plain.sample_sequences(8, 5), other.sample_sequences(8, 5))):  # fmt: skip
        for name in {"obs", "next_obs"} & set(raw):
            np.testing.assert_allclose(sample[name], raw[name] / 2 + 1)
        np.testing.assert_array_equal(sample["reward"], raw["reward"])
    assert "next_obs" in plain.sample(1)


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_are_scaled(kind: str) -> None:
    script = Script(2, 0, dtype=np.float32)
    plain, other = (make(kind, script, 200, memory=False) for _ in range(2))
    other.reward_normalizer = _Halves()
    rollout = script.rollout(60)
    for buffer in (plain, other):
        buffer.add(rollout, mark=marks(rollout))
    for raw, sample in ((plain.sample(32, n_step=3, gamma=0.9), other.sample(32, n_step=3, gamma=0.9)),
                        (plain.sample_sequences(8, 5), other.sample_sequences(8, 5))):  # fmt: skip
        np.testing.assert_allclose(sample["reward"], raw["reward"] / 4, rtol=1e-5)
        np.testing.assert_array_equal(sample["obs"], raw["obs"])
        assert np.abs(raw["reward"]).max() > 1


def test_every_column_is_on_the_disk_before_the_state_refers_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    synced: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append(Path(f"/proc/self/fd/{fd}").readlink().name), fsync(fd))[1]
    )
    script = Script(2, 0)
    buffer = make("uniform", script, 100)
    buffer.attach(tmp_path)
    fill(buffer, script, [("add", 20)])
    for save in ("step=1", "step=2"):
        synced.clear()
        buffer.save(save, ())
        assert {f"{name}.bin" for name in buffer.columns} <= set(synced)
        (index,) = [name for name in synced if name.startswith(".index.json.")]
        assert synced.index(index) > max(synced.index(f"{name}.bin") for name in buffer.columns)
        fill(buffer, script, [("add", 20)])
