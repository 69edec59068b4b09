"""The vector contract as checks for any environment and backend; `ludus env check` and the tests use them.

Each check compares a vector environment with a single environment, or with the same vector under a longer time limit,
for the same seeds and actions. Shapes: T steps of B environments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import gymnasium as gym
import numpy as np

from ludus.bench.fps import Presampled
from ludus.checks.subject import Broken, Recording, Subject, play
from ludus.config.schema import Environment
from ludus.data.collector import Collector
from ludus.envs.check import fault, probe
from ludus.envs.make import make_env
from ludus.errors import LudusError
from ludus.types import Tree, space_tree, tree_index, tree_leaves, tree_map

SAME_BITS = ("sync", "async")
"""Backends that step the single environments, so that results are equal to the bit."""
Status = Literal["PASS", "FAIL", "NOTE"]


class Finding(NamedTuple):
    """The result of one check."""

    check: str
    status: Status
    detail: str = ""


def findings(cfg: Environment, backend: str, **size: int) -> Iterator[Finding]:
    """Run every check on one backend; `size` is Subject's `num_envs`, `steps` and `limit`."""
    try:
        subject = Subject(cfg, backend, **size)
    except (Broken, LudusError) as error:
        yield Finding("starts", "FAIL", str(error))
        return
    try:
        for name, check in CHECKS.items():
            try:
                note = check(subject)
            except (Broken, LudusError) as error:
                yield Finding(name, "FAIL", str(error))
            else:
                yield Finding(name, "NOTE" if note else "PASS", note or "")
    finally:
        subject.env.close()


def spaces_and_dtypes(subject: Subject) -> None:
    """Shapes and dtypes are those of the spaces, and every observation is inside its space."""
    record, space, batch = subject.record, subject.info.observation_space, (subject.num_envs,)
    for name in ("obs", "final_obs"):
        parts = zip(tree_leaves(getattr(record, name)), tree_leaves(space_tree(space)), strict=True)
        for values, part in parts:
            if values.dtype != part.dtype or values.shape[1:] != batch + (part.shape or ()):
                raise Broken(f"{name} is {values.dtype} {values.shape[1:]}, its space {part}")
    dtypes = {"reward": "float32", "raw_reward": "float32", "terminated": "bool", "truncated": "bool"}
    for name, dtype in dtypes.items():
        values = getattr(record, name)
        if values.dtype != dtype or values.shape[1:] != batch:
            raise Broken(f"{name} is {values.dtype} {values.shape[1:]}, not {dtype} {batch}")
    if not np.isfinite(record.reward).all():
        raise Broken("a reward is not finite")
    shown = [tree_index(record.obs, at) for at in np.ndindex(len(record.reward) + 1, *batch)]
    for row in [*shown, *(tree_index(record.final_obs, tuple(at)) for at in np.argwhere(record.done))]:
        if problem := fault(space, row):
            raise Broken(f"an observation {problem}")


def true_episodes(subject: Subject) -> str | None:
    """No transition crosses an episode, and final observations are true: they equal those of a single environment."""
    if subject.backend not in SAME_BITS:
        return _true_final_observation(subject)
    for b in range(subject.num_envs):
        limited = subject.cfg.model_copy(update={"max_episode_steps": subject.info.max_episode_steps})
        with contextlib.closing(make_env(limited)) as single:
            _compare(subject, b, single)
    return None


def _compare(subject: Subject, b: int, single: gym.Env) -> None:
    record, space = subject.record, single.action_space
    obs, _ = single.reset(seed=subject.seeds[b])
    _agree(tree_index(record.obs, (0, b)), obs, "the first observation", b, 0)
    for t, action in enumerate(subject.actions[:, b]):
        if isinstance(space, gym.spaces.Box):
            action = np.clip(action, space.low, space.high)
        obs, reward, terminated, truncated, _ = single.step(action)
        _agree(record.reward[t, b], np.float32(reward), "the reward", b, t)
        _agree(record.terminated[t, b], bool(terminated), "terminated", b, t)
        _agree(record.truncated[t, b], bool(truncated), "truncated", b, t)
        if terminated or truncated:
            _agree(tree_index(record.final_obs, (t, b)), obs, "the final observation", b, t)
            obs, _ = single.reset()
        _agree(tree_index(record.obs, (t + 1, b)), obs, "the observation", b, t)


def _agree(got: Tree, wanted: Tree, what: str, b: int, t: int) -> None:
    if not _equal(got, tree_map(lambda value, like: np.asarray(value).astype(np.asarray(like).dtype), wanted, got)):
        raise Broken(f"{what} of environment {b} at step {t} is not the single environment's")


def _true_final_observation(subject: Subject) -> str | None:
    """For backends with their own random streams: under a longer time limit an episode goes on where it was cut."""
    cut = subject.record
    if not subject.limited:
        if not cut.done.any():
            return f"no episode ended within {subject.steps} steps, and the backend takes no time limit"
        t, b = np.argwhere(cut.done)[0]
        if _equal(tree_index(cut.final_obs, (t, b)), tree_index(cut.obs, (t + 1, b))):
            raise Broken("the final observation is the first of the next episode")
        return None
    longer = subject.play(2 * subject.limit)
    compared, stale = 0, False
    for b, column in enumerate(cut.done.T):
        t = int(np.flatnonzero(column)[0]) if column.any() else subject.steps
        if not _equal(*(tree_index(each.obs, (slice(t + 1), b)) for each in (cut, longer))):
            return "its episodes do not follow from seeds and actions, so that their ends cannot be compared"
        if t < subject.steps:
            compared += not longer.done[t, b]
            stale |= _compare_ends(cut, longer, t, b)
    if stale:
        return "the newest frame of a final observation is older than the last one"
    return None if compared else "every episode ended by itself before the time limit"


def _compare_ends(cut: Recording, longer: Recording, t: int, b: int) -> bool:
    """Broken unless `longer` goes on where `cut` ends; True if only the newest of stacked frames differs."""
    if not longer.done[t, b] and (cut.terminated[t, b] or not cut.truncated[t, b]):
        raise Broken(f"the time limit of environment {b} at step {t} is not reported as truncation")
    end = tree_index(cut.final_obs, (t, b))
    wanted = tree_index(longer.final_obs, (t, b)) if longer.done[t, b] else tree_index(longer.obs, (t + 1, b))
    if _equal(end, wanted):
        return False
    if np.ndim(end) == 3 and len(end) > 1 and np.array_equal(end[:-1], wanted[:-1]):
        return True
    raise Broken(f"the final observation of environment {b} at step {t} is not the episode's last")


def time_limit(subject: Subject) -> str | None:
    """No episode lasts longer than the limit, and some reach it."""
    record, limit = subject.record, subject.info.max_episode_steps
    if limit is None or limit > subject.steps:
        return "no episode reached a time limit"
    if subject.limited and limit > subject.limit:
        raise Broken(f"a time limit of {subject.limit} became {limit}")
    reached = 0
    for b in range(subject.num_envs):
        ends = np.flatnonzero(record.done[:, b])
        lengths = np.diff(ends, prepend=-1)
        if (lengths > limit).any() or subject.steps - (ends[-1] + 1 if len(ends) else 0) > limit:
            raise Broken(f"an episode of environment {b} lasts longer than {limit} steps")
        reached += int(record.truncated[ends, b].sum())
    return None if reached else "every episode ended by itself before the time limit"


def seeds_are_honoured(subject: Subject) -> str | None:
    """The same seeds give the same rollout, after a reset and in new environments; other seeds do not."""
    again, anew = play(subject.env, subject.seeds, subject.actions), subject.play(subject.limit)
    if not anew.same(subject.record):
        with contextlib.closing(make_env(subject.cfg)) as single:
            named = probe(single, subject.cfg.id)
        return named[0] if named else f"{subject.cfg.id}: rollouts with the same seeds and actions differ"
    if not again.same(subject.record):
        return f"{subject.cfg.id}: something outlives a reset; the same seeds give the same rollout in new ones only"
    other = play(subject.env, [seed + 1_000 for seed in subject.seeds], subject.actions)
    return "other seeds change nothing: it is deterministic" if other.same(subject.record) else None


def nothing_aliases(subject: Subject) -> None:
    """Environments share no memory, and later steps do not change a stored rollout."""
    env, record = subject.env, subject.record
    collector = Collector(env, subject.seeds)
    rollout = collector.collect(Presampled(subject.actions), subject.steps)
    names = ("obs", "reward", "terminated", "truncated")
    stored = {name: tree_map(np.copy, getattr(rollout, name)) for name in names}
    finals = None if rollout.ends is None else tree_map(np.copy, rollout.ends.obs)
    for action in subject.actions[:3]:
        env.step(action)
    if any(not _equal(getattr(rollout, name), values) for name, values in stored.items()):
        raise Broken("stepping on changed a stored rollout")
    if rollout.ends is not None:
        if not _equal(rollout.ends.obs, finals):
            raise Broken("stepping on changed a stored final observation")
        if record.same(play(env, subject.seeds, subject.actions)):
            ended = tree_index(record.final_obs, (rollout.ends.t, rollout.ends.b))
            if not _equal(finals, ended) or not _equal(stored["obs"], record.obs):
                raise Broken("the collector stored something else than the environments returned")


def _equal(one: Tree, other: Tree) -> bool:
    return all(tree_leaves(tree_map(np.array_equal, one, other)))


def closes(subject: Subject) -> None:
    """An environment can be closed twice."""
    subject.env.close()
    subject.env.close()


CHECKS: dict[str, Callable[[Subject], str | None]] = {
    "spaces and dtypes": spaces_and_dtypes,
    "true episodes": true_episodes,
    "time limit": time_limit,
    "seeds": seeds_are_honoured,
    "no aliasing": nothing_aliases,
    "closes": closes,
}
"""The checks in their order; closing is the last."""
