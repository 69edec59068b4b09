"""The snapshot methods that load no code, and how one is chosen for the environments of a recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from ludus.envs import Action, ResetReturn, StepReturn
from ludus.envs.deadline import Within, close
from ludus.envs.snapshots import BARRIER, NONE, Keeper, Refused, Snapshotable, SnapshotChoice, trial
from ludus.envs.snapshots.attributes import Reference, SnapshotWriter, is_kind, randomness, read
from ludus.envs.snapshots.pickled import Pickled
from ludus.envs.spaces import wrapper_of
from ludus.envs.wrappers.rewards import RawReward
from ludus.errors import DataError, EnvironmentFailed
from ludus.types import State

if TYPE_CHECKING:
    from ludus.envs.recipe import Recipe


LIMIT = 100_000
"""Steps of the longest episode worth replaying."""


class Adapter(Keeper):
    """Classic control, toy text, MuJoCo, ALE, and every environment made of plain attributes."""

    method = "adapter"

    def __init__(self, recipe: Recipe, fresh: gym.Env) -> None:
        super().__init__(recipe, fresh)
        if hasattr(fresh.unwrapped, "ale") and getattr(fresh.unwrapped, "continuous", False):
            raise Refused("nothing tells the strength of the action that ALE would repeat")
        self._reference = Reference(fresh)

    def capture(self, env: gym.Env) -> State:
        return {"layers": SnapshotWriter(env, self._reference).write()}

    def restore(self, state: State) -> gym.Env:
        env = self.make()
        read(env, state["layers"])
        return env


class Api(Adapter):
    """Environments that are `Snapshotable`."""

    method = "api"

    def __init__(self, recipe: Recipe, fresh: gym.Env) -> None:
        if not isinstance(fresh.unwrapped, Snapshotable):
            raise Refused("it has no snapshot_state and restore_state")
        super().__init__(recipe, fresh)

    def capture(self, env: gym.Env) -> State:
        own: Any = env.unwrapped
        return {"layers": SnapshotWriter(env, self._reference).write(own.snapshot_state())}

    def restore(self, state: State) -> gym.Env:
        env: Any = self.make()
        env.unwrapped.restore_state(read(env, state["layers"]))
        return env


class EpisodeRecorder(gym.Wrapper):
    """The outermost wrapper: records how the episode began, and its actions."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.start: State | None = None
        self.carries = False
        """Whether a Box2D world survived a reset: the order of contacts then depends on the memory of old bodies."""
        space = env.action_space
        self._actions = np.empty((64, *(space.shape or ())), space.dtype)
        self._count = 0

    @property
    def actions(self) -> np.ndarray:
        """A copy of this episode's actions."""
        return self._actions[: self._count].copy()

    def reset(self, *, seed: int | None = None, options: State | None = None) -> ResetReturn:
        self.start = {"random": randomness(self.env)} if seed is None else {"seed": seed}
        self._count = 0
        worlds = _worlds(self.env)
        answer = self.env.reset(seed=seed, options=options)
        self.carries |= any(old is new for old in worlds for new in _worlds(self.env))
        return answer

    def step(self, action: Action) -> StepReturn:
        if self._count >= LIMIT:  # such an episode counts as not recorded
            self.start, self._count = None, 0
        elif self._count == len(self._actions):
            self._actions = np.concatenate([self._actions, np.empty_like(self._actions)])
        self._actions[self._count] = action
        self._count += 1
        return self.env.step(action)

    def replay(self, start: State, actions: np.ndarray) -> None:
        """Begin with `start` and repeat the actions."""
        if "seed" in start:
            self.reset(seed=start["seed"])
        else:
            read(self.env, start["random"])
            self.reset()
        discrete = isinstance(self.action_space, gym.spaces.Discrete)
        for action in actions.tolist() if discrete else np.array(actions, self._actions.dtype):
            self.step(action)


class Replay(Keeper):
    """Environments whose state cannot be read (Box2D), if their episodes depend on generators and actions alone."""

    method = "replay"

    def __init__(self, recipe: Recipe, fresh: gym.Env) -> None:
        super().__init__(recipe, fresh)
        limit = recipe.max_episode_steps or recipe.spec.max_episode_steps
        if limit is None or limit > LIMIT:
            raise Refused(f"its episodes have no time limit of at most {LIMIT} steps")

    def attach(self, env: gym.Env) -> EpisodeRecorder:
        return EpisodeRecorder(env)

    def capture(self, env: gym.Env) -> State:
        assert isinstance(env, EpisodeRecorder)
        if env.carries:
            raise Refused("its Box2D world outlives a reset")
        if env.start is None:
            raise Refused(
                "the beginning of the episode was not recorded: call `choose_snapshot_method` before the reset"
            )
        return {"start": env.start, "actions": env.actions}

    def restore(self, state: State) -> gym.Env:
        env = self.attach(self.make())
        env.replay(state["start"], state["actions"])
        meter = wrapper_of(env, RawReward)
        if meter is not None:
            meter.take()  # all that was paid before
        return env


def _worlds(env: gym.Env) -> list[object]:
    return [value for value in vars(env.unwrapped).values() if is_kind(value, "Box2D", "b2World")]


class Barrier(Keeper):
    """No snapshots: every explicit reset makes new environments, which with the same seed and actions do the same.

    An environment may carry something over from one episode to the next that no seed resets (BipedalWalker's physics).
    """

    method, renews = BARRIER, True


KEEPERS: dict[str, type[Keeper]] = {keeper.method: keeper for keeper in (Api, Adapter, Pickled, Replay, Barrier)}
"""From the best method down."""


def choose(recipe: Recipe) -> SnapshotChoice:
    """The first method that passes its self-test.

    Always the same one, because the seeds of the test are fixed; where steps are slow it is as short as `trial.FEWEST`.
    """
    refused: dict[str, str] = {}
    fresh: gym.Env | None = None
    for method, kind in KEEPERS.items():
        fresh = recipe.make() if fresh is None else fresh
        try:
            keeper = kind(recipe, fresh)
            used, fresh = fresh, None
            with Within(recipe.deadline, f"environment {recipe.id}", "trying out how to save it") as watch:
                if method == BARRIER:
                    slow = trial.repeats(keeper, used, watch.beat)
                else:
                    slow = trial.resumes(keeper, used, trial.EPISODES if kind is Replay else 2, watch.beat)
        except (Refused, DataError) as reason:
            refused[method] = str(reason)
        else:
            return SnapshotChoice(method, refused, slow)
    return SnapshotChoice(NONE, refused)


def keeper(method: str, recipe: Recipe) -> Keeper:
    """The keeper of a method that was chosen."""
    fresh = recipe.make()
    try:
        return KEEPERS[method](recipe, fresh)
    except Refused as error:
        where = f"environment {recipe.id}"
        problem = f"its state can no longer be saved: {error}"
        raise EnvironmentFailed(where, problem, "make it the same way") from error
    finally:
        close(fresh, f"environment {recipe.id}", recipe.deadline)
