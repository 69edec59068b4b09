"""Plays one episode of a checkpoint and writes everything the page shows of it.

A recording is a folder: `episode.json` (facts, and where each array and picture is), `arrays.bin` (numbers),
`frames.bin` (pictures of the environment) and `seen.bin` (what the policy sees, if that is an image).

Reading order: Wish -> play -> Played -> write. Shapes: T steps, D numbers of an observation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from ludus.acting.actor import Actor
from ludus.archive import checkpoint
from ludus.archive.run_plugins import load_for
from ludus.archive.store import RunFolder
from ludus.data.normalizer import make_reward_normalizer
from ludus.envs.facts import action_labels, observation_labels
from ludus.envs.make import describe, make_vector
from ludus.envs.spaces import EnvInfo
from ludus.envs.vector.stepper import SyncVectorEnv
from ludus.files import write_bytes, write_text
from ludus.inspector import columns
from ludus.inspector.attention import attention_over
from ludus.inspector.observations import Observations
from ludus.inspector.pictures import Pack
from ludus.inspector.strict import strict_json
from ludus.play import PlayedStep, episodes, greedy, policy_of
from ludus.session.player import Player, player_of, run_config, seeded
from ludus.text import clean
from ludus.types import ActResult, Array, Spaces, Tree, tree_leaves, tree_map

MOST_INFO, LONGEST_INFO = 32, 200
MOST_BYTES = 1 << 30
"""Of the observations and pictures of an episode; one that needs more is cut there."""
Tell = Callable[[int], None]
"""Called with the number of steps so far."""


@dataclass(frozen=True)
class Wish:
    """Which episode: the same wish gives the same episode wherever the environment follows its seed."""

    run: str
    checkpoint: str
    seed: int
    mode: str
    """One of `jobs.MODES`."""
    steps: int
    """Most steps to play."""


@dataclass(frozen=True, eq=False)
class Played:
    """An episode as it was played, with what is needed to look into the policy again."""

    wish: Wish
    path: Path
    """The checkpoint."""
    player: Player
    env: EnvInfo
    greedy: bool
    steps: list[PlayedStep]
    states: list[Tree]
    """The memory before each step; None before the first."""
    facts: list[dict[str, Array]]
    """What the policy told about each decision."""
    norms: list[float]
    """Length of the memory after each step."""
    info: list[dict[str, object]]
    """What the environment told beside each observation."""
    last_value: float
    """Of where the episode ended; NaN if nothing tells it."""

    @property
    def actor(self) -> Actor | None:
        """The part that reads observations."""
        return getattr(getattr(self.player.algorithm, "behaviour", None), "actor", None)


class InfoKept(gym.Wrapper):
    """Remembers what the newest step told in `info`."""

    newest: dict[str, Any] = {}

    def step(self, action: Any) -> Any:
        found = self.env.step(action)
        self.newest = found[4]
        return found


def play(runs: Path, wish: Wish, plugins: Sequence[str], frames: Path, tell: Tell) -> tuple[Played, dict[str, Any]]:
    """Play the episode; its pictures go to `frames` at once, their places are returned."""
    run = RunFolder.load(runs, wish.run)
    load_for(run, plugins)
    config = seeded(run_config(run), wish.seed)
    path = checkpoint.find(run.path, wish.checkpoint)
    drawn = "rgb_array" in describe(config.environment).render_modes
    mode = "rgb_array" if drawn else None
    with (
        make_vector(config.environment, num_envs=1, render_mode=mode, vectorization="sync") as env,
        Pack(frames) as pack,
    ):
        player = player_of(config, path, Spaces(env.observation_space, env.action_space))
        wanted = {"greedy": True, "sampled": False}.get(wish.mode)
        habit = greedy(player.algorithm, wanted, config.training.evaluation.deterministic)
        act = policy_of(player.algorithm, player.normalizer, deterministic=habit)
        keepers: list[InfoKept] = []
        if isinstance(env, SyncVectorEnv):
            env.surround(lambda inner: keepers.append(InfoKept(inner)) or keepers[-1])  # type: ignore[func-returns-value]
        played = Played(wish, path, player, env.info, habit, [], [], [], [], [], math.nan)
        state: Tree = None

        def watched(obs_B: Tree, before: Tree, first_B: Array) -> ActResult:
            nonlocal state
            result = act(obs_B, before, first_B)
            played.states.append(None if before is None else tree_map(lambda leaf: _copy(leaf), before))
            played.facts.append({name: np.array(fact)[0] for name, fact in result.info.items()})
            played.norms.append(columns.norm(result.state))
            state = result.state
            return result

        for step in _bounded(episodes(watched, env, [wish.seed], 1, max_steps=wish.steps, render=drawn), pack):
            for frame in step.frames:
                pack.add(frame)
            played.steps.append(step._replace(frames=[]))
            played.info.append(_told(keepers[0].newest) if keepers else {})
            tell(len(played.steps))
        value = math.nan
        end = played.steps[-1]
        if end.final_obs is not None and "value" in played.facts[-1]:
            value = float(np.asarray(act(end.final_obs, state, np.zeros(1, bool)).info["value"])[0])
        pictures = {"index": pack.index, "before": _before(played.steps)} if drawn else None
    return Played(**{**played.__dict__, "last_value": value}), {"frames": pictures}


def _bounded(steps: Iterator[PlayedStep], pack: Pack) -> Iterator[PlayedStep]:
    """The steps, as long as their observations and pictures fit."""
    size = 0
    for step in steps:
        yield step
        size += sum(np.asarray(leaf).nbytes for leaf in tree_leaves(step.obs))
        if size + pack.index[-1] > MOST_BYTES:
            return


def _before(steps: Sequence[PlayedStep]) -> list[int]:
    """The picture before each step, and the last one; where a new life begins there is one more."""
    found, at = [], 0
    for step in steps:
        at += bool(step.first[0] and step.t)
        found.append(at)
        at += 1
    return [*found, at]


def write(played: Played, folder: Path, pictures: dict[str, Any]) -> None:
    """Write arrays, what the policy saw, and last the facts: a folder with `episode.json` is complete."""
    steps, config = played.steps, played.player.config
    seen = Observations(played.env.observation_space, steps, played.player.normalizer)
    arrays = _arrays(played, seen)
    with Pack(folder / "seen.bin") as pack:
        for picture in seen.pictures():
            pack.add(picture)
    manifest, data = _packed(arrays)
    write_bytes(folder / "arrays.bin", data, durable=False)
    gamma, lam = discounts(played)
    end = steps[-1]
    labels = action_labels(config.environment.id)
    width = getattr(played.env.action_space, "n", None)
    facts = {
        "wish": asdict(played.wish) | {"checkpoint": played.path.name},
        "greedy": played.greedy,
        "environment": played.env.id,
        "algorithm": config.algorithm.name,
        "fps": played.env.render_fps,
        "steps": len(steps),
        "return": float(end.total[0]),
        "end": "terminated" if end.terminated[0] else "truncated" if end.truncated[0] else "cut",
        "gamma": gamma,
        "lambda": lam,
        "action": {"labels": [*labels] if len(labels) == width else [], "space": str(played.env.action_space)[:400]},
        "observation": {**seen.facts(observation_labels(config.environment.id)), "size": len(seen.names)},
        "arrays": manifest,
        "info": _columns(played.info),
        "memory": played.states[-1] is not None and any(math.isfinite(norm) and norm for norm in played.norms),
        "world": played.player.algorithm.world is not None,
        "seen": {"index": pack.index} if len(pack.index) > 1 else None,
        **pictures,
    }
    write_text(folder / "episode.json", strict_json(facts), durable=False)


def discounts(played: Played) -> tuple[float, float | None]:
    """Discount and lambda at the checkpoint; 1 where the algorithm has none."""
    cfg, budget = played.player.config.algorithm.config, played.player.config.training.total_timesteps or 0
    at = checkpoint.position(played.path.name.lstrip(".").removeprefix("old-").partition("-")[0])[0]
    schedule, lam = cfg.discount, getattr(cfg, "gae_lambda", None)
    return 1.0 if schedule is None else schedule.at(at, budget), None if lam is None else lam.at(at, budget)


def _arrays(played: Played, seen: Observations) -> dict[str, Array]:
    """Every column of numbers by name."""
    steps = played.steps
    raw, learned, terminated, truncated = (
        np.array([getattr(step, name)[0] for step in steps])
        for name in ("reward", "learned", "terminated", "truncated")
    )
    found: dict[str, Array] = {"reward": raw, "learned": learned, "total": np.array([step.total[0] for step in steps])}
    found["action"] = np.stack([np.asarray(step.action[0]) for step in steps])
    found["done"] = terminated | truncated
    for name in dict.fromkeys(name for facts in played.facts for name in facts):
        missing = np.full_like(next(facts[name] for facts in played.facts if name in facts), np.nan, np.float64)
        found[name] = np.stack([np.asarray(facts.get(name, missing)) for facts in played.facts])
    tempered = columns.entropy(found.get("probabilities"), found.get("std"))
    if tempered is not None:
        found["entropy"] = tempered
    found |= _judged(played, learned, terminated, found["done"], found.get("value"))
    if np.isfinite(played.norms).any():
        found["memory"] = np.array(played.norms)
    found["obs"] = seen.vectors()
    if seen.normalizer is not None:
        found["normalised"] = seen.vectors(normalised=True)
    attention = attention_over(played.actor, seen.for_policy())
    return found if attention is None else {**found, "attention": attention}


def _judged(played: Played, learned: Array, terminated: Array, done: Array, value: Array | None) -> dict[str, Array]:
    """Returns to go in the unit of values, and what values missed of them."""
    gamma, lam = discounts(played)
    scale = make_reward_normalizer(played.player.config, 1)
    if scale is not None:
        scale.load_state_dict(checkpoint.load(played.path)["reward_normalizer"])
        learned = scale.scaled(learned)
    following = np.full(len(learned), np.nan) if value is None else np.append(value[1:], played.last_value)
    found = {"to_go": columns.returns_to_go(learned, terminated, done, following, gamma)}
    if value is not None:
        found["advantage"] = found["to_go"] - value
        found["td_error"] = columns.td_errors(learned, terminated, value, following, gamma)
        if lam is not None:
            found["gae"] = columns.generalized_advantages(np.nan_to_num(found["td_error"]), done, gamma, lam)
    return found


def _packed(arrays: dict[str, Array]) -> tuple[dict[str, Any], bytes]:
    """Arrays one after another, columns of single numbers in double precision, with their places."""
    manifest: dict[str, Any] = {}
    parts, at = [], 0
    for name, array in arrays.items():
        kind = "<f8" if array.ndim == 1 or name == "action" else "<f4"
        data = np.ascontiguousarray(array, kind).tobytes()
        data += bytes(-len(data) % 8)
        manifest[name] = {"at": at, "shape": [*array.shape], "type": kind[1:]}
        parts.append(data)
        at += len(data)
    return manifest, b"".join(parts)


def normalised(played: Played, t: int) -> Tree:
    """The observation of step t as the network reads it."""
    obs, normalizer = played.steps[t].obs, played.player.normalizer
    return obs if normalizer is None else normalizer.apply(obs)


def device_of(actor: Any) -> torch.device:
    """Where an actor computes: an encoder of vectors may have no weights of its own, heads have."""
    parts = [actor.trunk, *actor.heads.values()] if hasattr(actor, "trunk") else []
    return next((p.device for part in parts for p in part.parameters()), torch.device("cpu"))


def _told(info: dict[str, Any]) -> dict[str, object]:
    """What of an environment's `info` can be shown: numbers, truths, short text and short vectors."""
    found: dict[str, object] = {}
    for key, value in list(info.items())[:MOST_INFO]:
        if isinstance(value, bool | np.bool_):
            found[clean(key, 60)] = bool(value)
        elif isinstance(value, int | float | np.number):
            found[clean(key, 60)] = float(value)
        elif isinstance(value, str):
            found[clean(key, 60)] = clean(value, LONGEST_INFO)
        elif isinstance(value, np.ndarray) and value.size <= 8 and value.dtype.kind in "fiub":
            found[clean(key, 60)] = [float(x) for x in value.ravel()]
    return found


def _columns(rows: Sequence[dict[str, object]]) -> dict[str, list[object]]:
    names = list(dict.fromkeys(name for row in rows for name in row))[:MOST_INFO]
    return {name: [row.get(name) for row in rows] for name in names}


def _copy(leaf: Any) -> Any:
    return leaf.clone() if hasattr(leaf, "clone") else np.array(leaf)
